#!/usr/bin/python3
"""Sends requests to a NATS server and prints the answers, one JSON object a line.

Standard input: {"port": N, "login": {...}, "ca": FILE or null,
"client": [CERTIFICATE, KEY] or null, "requests": [[SUBJECT, BODY, {HEADER: VALUE}], ...]}.
A body that is an object is sent as JSON. A message that a stream returns is printed decoded; one that is
gone is left out. This is the text protocol, on one connection, without a client library: Debian has none for scripts.
"""

import base64
import json
import socket
import ssl
import sys


class Connection:
    def __init__(self, port, login, ca, client):
        self.socket = socket.create_connection(("localhost" if ca else "127.0.0.1", port), timeout=60)
        self.buffer = b""
        self.line()
        if ca:
            assert not self.buffer
            tls = ssl.create_default_context(cafile=ca)
            if client:
                tls.load_cert_chain(*client)
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "test", "version": "1", "protocol": 1, **login}
        self.send(f"CONNECT {json.dumps(options)}\r\nSUB _INBOX.test 1\r\n".encode())

    def send(self, data):
        self.socket.sendall(data)

    def fill(self):
        data = self.socket.recv(65536)
        if not data:
            sys.exit("the server closed the connection")
        self.buffer += data

    def line(self):
        while b"\r\n" not in self.buffer:
            self.fill()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line.decode()

    def take(self, size):
        while len(self.buffer) < size + 2:
            self.fill()
        data, self.buffer = self.buffer[:size], self.buffer[size + 2:]
        return data

    def request(self, subject, body, headers):
        payload = json.dumps(body).encode() if isinstance(body, dict) else body.encode()
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"NATS/1.0\r\n{lines}\r\n".encode() if headers else b""
        sizes = f"{len(head)} {len(head) + len(payload)}" if headers else str(len(payload))
        self.send(f"{'HPUB' if headers else 'PUB'} {subject} _INBOX.test {sizes}\r\n".encode() + head + payload + b"\r\n")
        return self.answer()

    def answer(self):
        while True:
            words = self.line().split()
            if words[0] == "PING":
                self.send(b"PONG\r\n")
            elif words[0] == "-ERR":
                sys.exit(" ".join(words))
            elif words[0] == "MSG":
                return json.loads(self.take(int(words[-1])))
            elif words[0] == "HMSG":
                data = self.take(int(words[-1]))
                return {"status": data[:int(words[-2])].split(b"\r\n")[0].decode()}


def headers_of(text):
    headers = {}
    for line in text.split("\r\n")[1:]:
        name, found, value = line.partition(":")
        if found:
            headers[name] = value.strip()
    return headers


def main():
    request = json.load(sys.stdin)
    connection = Connection(request["port"], request["login"], request["ca"], request["client"])
    for subject, body, headers in request["requests"]:
        answer = connection.request(subject, body, headers)
        message = answer.get("message") if ".STREAM.MSG.GET." in subject else None
        if message:
            body = base64.b64decode(message.get("data", ""))
            answer = {
                "subject": message["subject"], "seq": message["seq"], "time": message["time"],
                "body": body.decode("utf-8", "replace"), "hex": body.hex(),
                "headers": headers_of(base64.b64decode(message.get("hdrs", "")).decode("utf-8", "replace")),
            }
        elif ".STREAM.MSG.GET." in subject and answer.get("error", {}).get("code") == 404:
            continue
        print(json.dumps(answer))


main()
