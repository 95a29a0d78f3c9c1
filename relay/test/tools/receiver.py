#!/usr/bin/python3
"""An HTTP server on loopback that records requests and misbehaves: BrokerTest/Receiver.pm says how.

    receiver.py PORT [CERTIFICATE KEY h2|http/1.1 [AUTHORITY]]

Requests go to the file `requests` of the working folder, one JSON object a line. HTTP/1.1 is done by hand, since no
library would break it the way tests want it; HTTP/2 is h2's.
"""

import asyncio
import contextlib
import json
import os
import socket
import ssl
import struct
import sys

import control
import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions


class Receiver:
    def __init__(self):
        self.answers, self.how = {}, "serve"
        self.held = []      # (path, event)
        self.connections = self.concurrent = 0
        self.file = open("requests", "a", encoding="utf-8")

    def record(self, request):
        self.file.write(json.dumps(request) + "\n")
        self.file.flush()

    def next_answer(self, path):
        answers = self.answers.get(path) or self.answers.get("*") or [{}]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def hold(self, path):
        event = asyncio.Event()
        entry = (path, event)
        self.held.append(entry)
        try:
            await event.wait()
        finally:
            if entry in self.held:
                self.held.remove(entry)

    def handle(self, request):
        do = request["do"]
        mine = [entry for entry in self.held if request.get("path") in (None, entry[0])]
        if do == "answer":
            self.answers[request["path"]] = request["answers"]
        elif do == "accept":
            self.how = request["how"]
        elif do == "release":
            for entry in mine:
                self.held.remove(entry)
                entry[1].set()
        elif do == "forget":
            self.file.truncate(0)
        return {"held": len(mine)}

    async def exchange(self, connection, version, method, path, headers, body, reply):
        """One request that came whole, and its answer by `reply`."""
        joined = {}
        for name, value in headers:
            joined[name.lower()] = joined[name.lower()] + ", " + value if name.lower() in joined else value
        target = path.split("?")[0]
        self.concurrent += 1
        try:
            answer = self.next_answer(target)
            self.record({
                "method": method, "path": path, "target_path": target, "headers": joined, "body": body.decode("latin-1"),
                "http": version, "connection": connection, "concurrent": self.concurrent,
            })
            await self.reply(answer, target, reply)
        finally:
            self.concurrent -= 1

    async def reply(self, answer, target, reply):
        if answer.get("never"):
            await asyncio.Event().wait()
        if answer.get("hold") == "head":
            await self.hold(target)
        if answer.get("close") == "before":
            await reply.abort()
            return
        body = answer.get("body", "{}").encode() if "size" not in answer else b"x" * answer["size"]
        headers = {"Content-Type": "application/json", **answer.get("headers", {})}
        status = answer.get("status", 200)
        if "redirect" in answer:
            status, headers["Location"] = answer.get("status", 302), answer["redirect"]
        if status in (204, 304):
            body = b""
        await reply.head(status, {**headers, "Content-Length": str(len(body))})
        if answer.get("hold") == "body":
            await self.hold(target)
        if answer.get("close") == "middle":
            await reply.data(body[:len(body) // 2], False)
            await reply.abort()
        else:
            await reply.data(body, True)

    async def connection(self, reader, writer):
        self.connections += 1
        transport = writer.transport
        try:
            if self.how == "close":
                return
            if self.how == "reset":
                reset(transport)
                return
            if self.how == "ignore":
                transport.pause_reading()
                await asyncio.Event().wait()
            tls = transport.get_extra_info("ssl_object")
            if tls and tls.selected_alpn_protocol() == "h2":
                await Http2(self, self.connections, reader, writer).run()
            else:
                await http1(self, self.connections, reader, writer)
        except (OSError, EOFError, ValueError):
            pass
        finally:
            writer.close()


def reset(transport):
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class Reply1:
    def __init__(self, writer):
        self.writer = writer

    async def head(self, status, headers):
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.writer.write(f"HTTP/1.1 {status} Test\r\n{lines}\r\n".encode())
        await self.writer.drain()

    async def data(self, data, _):
        self.writer.write(data)
        await self.writer.drain()

    async def abort(self):
        self.writer.close()
        raise EOFError


async def http1(receiver, connection, reader, writer):
    while line := await reader.readline():
        method, path, _ = line.decode("latin-1").split()
        headers = []
        while (line := (await reader.readline()).decode("latin-1").rstrip("\r\n")):
            name, _, value = line.partition(":")
            headers.append((name, value.strip()))
        fields = {name.lower(): value for name, value in headers}
        if fields.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if fields.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while size := int((await reader.readline()).split(b";")[0], 16):
                body += await reader.readexactly(size)
                await reader.readline()
            while (await reader.readline()).strip():
                pass
        else:
            body = await reader.readexactly(int(fields.get("content-length", 0)))
        # A client that goes away while its request is held ends the wait.
        await until_gone(reader, receiver.exchange(connection, "1.1", method, path, headers, body, Reply1(writer)))
        if fields.get("connection", "").lower() == "close":
            return


async def until_gone(reader, work):
    work = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(reader_end(reader))
    try:
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise EOFError
        work.result()
    finally:
        for task in (work, gone):
            task.cancel()


async def reader_end(reader):
    # Nothing is taken from the stream: the next request may be in it.
    while not reader.at_eof() and reader.exception() is None:
        await asyncio.sleep(0.02)


class Http2:
    """A connection, whose streams are tasks."""

    def __init__(self, receiver, number, reader, writer):
        self.receiver, self.number, self.reader, self.writer = receiver, number, reader, writer
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.streams, self.tasks, self.window = {}, {}, asyncio.Condition()

    async def flush(self):
        if data := self.h2.data_to_send():
            self.writer.write(data)
        await self.writer.drain()

    async def run(self):
        self.h2.initiate_connection()
        await self.flush()
        try:
            while data := await self.reader.read(65536):
                for event in self.h2.receive_data(data):
                    await self.event(event)
                await self.flush()
        except h2.exceptions.ProtocolError as error:
            print(f"HTTP/2: {error!r}", file=sys.stderr)
        finally:
            for task in self.tasks.values():
                task.cancel()

    async def event(self, event):
        if isinstance(event, h2.events.RequestReceived):
            self.streams[event.stream_id] = (event.headers, bytearray())
        elif isinstance(event, h2.events.DataReceived):
            self.streams[event.stream_id][1].extend(event.data)
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self.tasks[event.stream_id] = asyncio.create_task(self.answer(event.stream_id))
        elif isinstance(event, h2.events.StreamReset) and event.stream_id in self.tasks:
            self.tasks.pop(event.stream_id).cancel()
        elif isinstance(event, h2.events.WindowUpdated):
            async with self.window:
                self.window.notify_all()

    async def answer(self, stream):
        headers, body = self.streams.pop(stream)
        fields = dict(headers)
        with contextlib.suppress(EOFError, OSError, h2.exceptions.ProtocolError):
            await self.receiver.exchange(
                self.number, "2", fields[":method"], fields[":path"], [one for one in headers if one[0][0] != ":"], bytes(body), Reply2(self, stream))
        self.tasks.pop(stream, None)


class Reply2:
    def __init__(self, connection, stream):
        self.connection, self.stream = connection, stream

    async def head(self, status, headers):
        self.connection.h2.send_headers(self.stream, [(":status", str(status))] + [(name.lower(), str(value)) for name, value in headers.items()])
        await self.connection.flush()

    async def data(self, data, last):
        h2c, offset = self.connection.h2, 0
        while offset < len(data):
            room = min(h2c.local_flow_control_window(self.stream), h2c.max_outbound_frame_size, len(data) - offset)
            if room > 0:
                h2c.send_data(self.stream, data[offset:offset + room])
                offset += room
                await self.connection.flush()
            else:
                async with self.connection.window:
                    await self.connection.window.wait()
        if last:
            h2c.end_stream(self.stream)
            await self.connection.flush()

    async def abort(self):
        self.connection.h2.reset_stream(self.stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
        await self.connection.flush()
        raise EOFError


def say_why():
    """asyncio ends a connection without sending what TLS has to say about it; other servers send the alert."""
    protocol = asyncio.sslproto.SSLProtocol
    end = protocol._on_handshake_complete

    def complete(self, error):
        if error is not None:
            self._process_outgoing()
        end(self, error)

    protocol._on_handshake_complete = complete


async def main():
    receiver, tls = Receiver(), None
    if len(sys.argv) > 2:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(sys.argv[2], sys.argv[3])
        tls.set_alpn_protocols(["h2", "http/1.1"] if sys.argv[4] == "h2" else ["http/1.1"])
        if len(sys.argv) > 5:
            tls.load_verify_locations(sys.argv[5])
            tls.verify_mode = ssl.CERT_REQUIRED
            say_why()
    await asyncio.start_server(receiver.connection, "127.0.0.1", int(sys.argv[1]), ssl=tls, backlog=1024, limit=1 << 24)
    async with await control.serve(receiver.handle):
        await asyncio.Event().wait()


os.umask(0o077)
asyncio.run(main())
