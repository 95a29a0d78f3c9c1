#!/usr/bin/python3
"""A TCP proxy on loopback that is told to break connections: BrokerTest/Proxy.pm says how.

    proxy.py PORT HOST PORT | proxy.py PORT PATH
"""

import asyncio
import socket
import struct
import sys

import control


class Link:
    """A client's connection and the one to the server: whatever ends it, its task closes both."""

    def __init__(self, proxy, client):
        self.proxy, self.sockets = proxy, [client]
        self.reset = False
        self.task = asyncio.create_task(self.run())

    async def run(self):
        try:
            client, server = self.sockets[0], await self.connect()
            async with asyncio.TaskGroup() as group:
                group.create_task(self.pipe("up", client, server))
                group.create_task(self.pipe("down", server, client))
        except* OSError:
            self.reset = True
        finally:
            self.close()

    async def connect(self):
        target = self.proxy.target
        # A hole has no need of a server that answers.
        await self.proxy.may_pass["up"].wait()
        server = socket.socket(socket.AF_INET if len(target) == 2 else socket.AF_UNIX)
        self.sockets.append(server)
        server.setblocking(False)
        await asyncio.get_running_loop().sock_connect(server, (target[0], int(target[1])) if len(target) == 2 else target[0])
        if len(target) == 2:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server

    async def pipe(self, direction, source, sink):
        loop = asyncio.get_running_loop()
        passed = 0
        while True:
            data = await loop.sock_recv(source, 65536)
            if data and direction in self.proxy.most:
                data = data[:self.proxy.most[direction] - passed]
                passed += len(data)
                if not data:
                    continue
            await self.proxy.may_pass[direction].wait()
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            data, last = self.proxy.allowed(direction, data)
            await loop.sock_sendall(sink, data)
            self.proxy.stats[direction] += len(data)
            if direction == "down" and self.proxy.rate:
                await asyncio.sleep(len(data) / self.proxy.rate)
            if last:
                self.proxy.cutting = asyncio.create_task(self.proxy.cut())
                await asyncio.Event().wait()

    def close(self):
        self.proxy.links.discard(self)
        for one in self.sockets:
            if self.reset and one.family == socket.AF_INET:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()


class Proxy:
    def __init__(self, port, target):
        self.port, self.target, self.listener, self.accepting = port, target, None, None
        self.links, self.cutting, self.rate = set(), None, None
        self.may_pass = {"up": asyncio.Event(), "down": asyncio.Event()}
        self.left, self.most = {"up": None, "down": None}, {}
        self.stats = {"accepted": 0, "up": 0, "down": 0, "cuts": 0}
        self.resume()

    def listen(self):
        if self.listener:
            return
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.setblocking(False)
        self.listener.bind(("127.0.0.1", self.port))
        self.listener.listen(1024)
        self.accepting = asyncio.create_task(self.accept(self.listener))

    async def accept(self, listener):
        while True:
            client, _ = await asyncio.get_running_loop().sock_accept(listener)
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.stats["accepted"] += 1
            self.links.add(Link(self, client))

    def resume(self):
        self.left, self.most = {"up": None, "down": None}, {}
        self.rate = None
        for event in self.may_pass.values():
            event.set()
        self.listen()

    async def refuse(self):
        if self.listener:
            self.accepting.cancel()
            await asyncio.wait([self.accepting])
            self.listener.close()
            self.listener = None

    def hole(self, directions):
        for direction in directions:
            self.may_pass[direction].clear()

    def allowed(self, direction, data):
        """What of it may be forwarded, and whether all is cut after that."""
        left = self.left[direction]
        if left is None:
            return data, False
        data = data[:left]
        self.left[direction] = left - len(data)
        return data, self.left[direction] == 0

    async def cut(self):
        links = list(self.links)
        for link in links:
            link.reset = True
            link.task.cancel()
        if links:
            await asyncio.wait([link.task for link in links])
        self.left = {"up": None, "down": None}
        self.stats["cuts"] += 1

    async def handle(self, request):
        do = request["do"]
        if do == "to":
            self.target = request["target"]
        elif do == "hole":
            self.hole(request["directions"])
        elif do == "swallow":
            self.most[request["direction"]] = request["bytes"]
        elif do == "slow":
            self.rate = request["rate"]
        elif do == "cut_after":
            self.left[request["direction"]] = request["bytes"]
        elif do == "resume":
            self.resume()
        elif do != "stats":
            await {"refuse": self.refuse, "cut": self.cut}[do]()
        return {**self.stats, "open": len(self.links)}


async def main():
    proxy = Proxy(int(sys.argv[1]), sys.argv[2:])
    async with await control.serve(proxy.handle):
        await asyncio.Event().wait()


asyncio.run(main())
