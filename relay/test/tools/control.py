"""A Unix socket in the working folder by which a test tells a server what to do: lines of JSON."""

import asyncio
import json
import os


async def serve(handle):
    """handle(request) returns the answer, or a coroutine of it."""

    async def connection(reader, writer):
        line = await reader.readline()
        try:
            answer = handle(json.loads(line))
            if asyncio.iscoroutine(answer):
                answer = await answer
        except Exception as error:  # pylint: disable=broad-except
            answer = {"error": repr(error)}
        writer.write((json.dumps(answer) + "\n").encode())
        await writer.drain()
        writer.close()

    # It is there when it can be used.
    server = await asyncio.start_unix_server(connection, "control.new", limit=1 << 24)
    os.rename("control.new", "control")
    return server
