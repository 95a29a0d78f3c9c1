"""Random histories of an outbox with their seals and proofs, from a seed.

A third implementation of docs/seal-format.md, which shares nothing with outbox-verify and examples/verify.py: trees by
the recursive definitions of RFC 6962, forms by struct. `histories.py --vectors` prints the test vectors of that page.
"""

import hashlib
import json
import random
import struct
import sys
import uuid

MESSAGE = """outbox_id uuid queue text event_id uuid event_type text aggregate_type text aggregate_id text partition_key text
    sequence_id bigint idempotency_key text routing_key text priority smallint max_attempts integer payload jsonb headers jsonb
    replay_of uuid created_at timestamptz payload_bytes bytea content_type text""".split()
ATTEMPT = """outbox_id uuid attempt_no integer state text worker_id text lease_token uuid claimed_at timestamptz
    completed_at timestamptz reference text response_code text error_code text error_message text latency_ms integer
    recorded_by text created_at timestamptz""".split()
EVENT = """event_id uuid event text at timestamptz queue text worker_id text actor text outbox_ids uuid[] attempt_nos integer[]
    lease_expires_at timestamptz detail jsonb""".split()
KINDS = {"messages": ("outbox message 1", MESSAGE), "attempts": ("outbox attempt 1", ATTEMPT), "events": ("outbox event 1", EVENT)}
FORMATS = {"smallint": ">h", "integer": ">i", "bigint": ">q", "timestamptz": ">q"}
# Of all planes, with what acts on a terminal or changes the direction of writing.
RANGES = ((0, 0x7f), (0x20, 0x7e), (0x80, 0x7ff), (0x800, 0xd7ff), (0xe000, 0xffff), (0x10000, 0x1ffff), (0x20000, 0x2ffff),
          (0xe0000, 0xeffff), (0xf0000, 0x10ffff), (0x200b, 0x206f))
CHARACTERS = [chr(first + i * (last - first) // 200) for first, last in RANGES for i in range(201)]
MIN, MAX = -(1 << 63), (1 << 63) - 1


def columns_of(table):
    names = KINDS[table][1]
    return list(zip(names[::2], names[1::2]))


class Array(list):
    """With the length and the first index of each of its dimensions."""

    def __init__(self, items, dimensions):
        super().__init__(items)
        self.dimensions = dimensions


def shaped(rng, items):
    """The same, and sometimes with other dimensions than one from 1."""
    if not items or rng.random() < 0.8:
        return items
    dimensions = [(len(items), rng.choice([0, 2, -5, -2**31, 2**31 - len(items)]))]
    if len(items) % 2 == 0 and rng.random() < 0.5:
        dimensions = rng.choice([[(2, 1), (len(items) // 2, 1)], [(len(items) // 2, -1), (1, 1), (2, 7)]])
    return Array(items, dimensions)


def encoded(kind, value):
    """The bytes of a value of Python; None for NULL."""
    if value is None or isinstance(value, bytes):
        return value
    if kind.endswith("[]"):
        dimensions = getattr(value, "dimensions", [(len(value), 1)] if value else [])
        return struct.pack(">i", len(dimensions)) + b"".join(struct.pack(">ii", *one) for one in dimensions) + b"".join(
            framed(encoded(kind[:-2], one)) for one in value)
    return struct.pack(FORMATS[kind], value)


def framed(data):
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def form(tag, values):
    return framed(tag.encode()) + struct.pack(">i", len(values)) + b"".join(framed(one) for one in values)


def h(data):
    return hashlib.sha256(data).digest()


def split(n):
    k = 1
    while 2 * k < n:
        k *= 2
    return k


def mth(leaves):
    if not leaves:
        return h(b"")
    if len(leaves) == 1:
        return leaves[0]
    k = split(len(leaves))
    return h(b"\1" + mth(leaves[:k]) + mth(leaves[k:]))


def path(m, leaves):
    if len(leaves) <= 1:
        return []
    k = split(len(leaves))
    return path(m, leaves[:k]) + [mth(leaves[k:])] if m < k else path(m - k, leaves[k:]) + [mth(leaves[:k])]


def time_text(us):
    """For years from 1 on."""
    if us == MIN:
        return "-infinity"
    seconds, fraction = divmod(us, 1000000)
    days, seconds = divmod(seconds, 86400)
    year, days = 2000 + 400 * (days // 146097), days % 146097
    while days >= (length := 366 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 365):
        days -= length
        year += 1
    month = 1
    for month_days in (31, length - 337, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31):
        if days < month_days:
            break
        days -= month_days
        month += 1
    return "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ" % (year, month, days + 1, seconds // 3600, seconds % 3600 // 60, seconds % 60, fraction)


class Values:
    """Random values of every kind."""

    def __init__(self, rng):
        self.rng = rng

    def id(self):
        return self.rng.randbytes(16)

    def characters(self, count):
        return "".join(self.rng.choices(CHARACTERS, k=count))

    def text(self, longest=12):
        rng = self.rng
        if rng.random() < 0.05:
            return b"\xff" + rng.randbytes(rng.randrange(6))
        if rng.random() < 0.03:
            return rng.randbytes(rng.randrange(9))
        if rng.random() < 0.01:
            longest = 3000
        return self.characters(rng.randrange(longest)).encode()

    def json(self, depth=0):
        rng = self.rng
        kinds = [lambda: None, lambda: rng.random() < 0.5, lambda: rng.randint(-10**30, 10**30), lambda: rng.uniform(-1e9, 1e9),
                 lambda: self.characters(rng.randrange(8))]
        if depth < 6:
            kinds += 2 * [lambda: [self.json(depth + 1) for _ in range(rng.randrange(4))],
                          lambda: {self.characters(rng.randrange(3)): self.json(depth + 1) for _ in range(rng.randrange(4))}]
        return rng.choice(kinds)()

    def jsonb(self):
        if self.rng.random() < 0.02:
            return b"[" * 3000 + b"]" * 3000
        return json.dumps(self.json(), ensure_ascii=self.rng.random() < 0.2).encode()

    def time(self):
        return self.rng.choice([MIN, MAX, 0, -1, self.rng.randint(MIN, MAX), self.rng.randint(8 * 10**14, 9 * 10**14)])

    def value(self, kind):
        rng = self.rng
        if kind.endswith("[]"):
            return shaped(rng, [None if rng.random() < 0.1 else self.value(kind[:-2]) for _ in range(rng.choice([0, 1, 2, 3, 50]))])
        bits = {"smallint": 16, "integer": 32, "bigint": 64}.get(kind)
        if bits:
            most = 1 << (bits - 1)
            return rng.choice([0, -1, most - 1, -most, rng.randint(-most, most - 1)])
        return {"uuid": self.id, "text": self.text, "bytea": self.text, "jsonb": self.jsonb, "timestamptz": self.time}[kind]()

    def row(self, table, **given):
        row = {name: None if self.rng.random() < 0.3 else self.value(kind) for name, kind in columns_of(table)}
        row.update(given)
        return row


class History:
    """The sealed rows of a few windows. sign: a function from a hash to its signature, and key_id; None: nothing is
    signed. unsigned: the windows that are not, by their index."""

    def __init__(self, seed, sign=None, unsigned=()):
        self.rng = rng = random.Random(seed)
        self.values = Values(rng)
        self.sign, self.unsigned = sign, unsigned
        count = rng.randint(1, 5)
        first = rng.choice([1, 1, 2, rng.randint(1, 2**62)])
        bounds = sorted(rng.sample(range(7 * 10**14, 9 * 10**14), count + 1))
        if rng.random() < 0.1:
            bounds[-1] = rng.choice([MAX, MAX - 1, 10**17, 10**18])
        if first == 1:
            bounds[0] = MIN
        self.windows = [{"seal_no": first + i, "from": bounds[i], "to": bounds[i + 1], "rows": []} for i in range(count)]
        self.unsealed = []
        self.make_rows()
        previous = None if first == 1 else self.values.id() * 2
        self.before = previous
        for window in self.windows:
            previous = self.seal(window, previous)

    def put(self, table, partition, window, **given):
        """A row recorded within the window; None: not sealed yet."""
        if window is None:
            at = MAX
        elif window["from"] == MIN:
            at = self.rng.choice([MIN, self.rng.randint(MIN, window["to"] - 1), window["to"] - 1])
        else:
            at = self.rng.choice([window["from"], self.rng.randint(window["from"], window["to"] - 1), window["to"] - 1])
        given["at" if table == "events" else "created_at"] = at
        row = {"table": table, "partition": partition, "window": window,
               "values": [encoded(kind, value) for (_, kind), value in zip(columns_of(table), self.values.row(table, **given).values())]}
        (self.unsealed if window is None else window["rows"]).append(row)
        return row

    def some_window(self, least):
        later = self.windows[least:]
        return None if self.rng.random() < 0.03 else self.rng.choice(later) if later else None

    def message(self, partition):
        rng = self.rng
        outbox_id = self.values.id()
        window = self.rng.choice(self.windows)
        rows = [self.put("messages", "messages_" + partition, window, outbox_id=outbox_id)]
        attempts = rng.choice([0, 1, 1, 1, 2, 3, 7])
        for number in range(1, attempts + 1):
            if window is not None:
                window = self.some_window(self.windows.index(window))
            is_last = number == attempts and rng.random() < 0.8
            state = rng.choice([b"DISPATCHED", b"FAILED"]) if is_last else rng.choice([b"RETRYABLE", b"ZOMBIE_REQUEUE"])
            rows.append(self.put("attempts", "attempts_" + partition, window, outbox_id=outbox_id, attempt_no=number, state=state))
        events = [self.put("events", "events_" + partition, rng.choice(self.windows), event_id=self.values.id(),
                           outbox_ids=shaped(rng, list(self.values.value("uuid[]")) + [outbox_id] + list(self.values.value("uuid[]"))))
                  for _ in range(rng.choice([0, 0, 0, 1, 2]))]
        return rows + sorted(events, key=lambda row: row["values"][0])

    def make_rows(self):
        rng = self.rng
        partitions = ["default", "p20261130", "p20261207", "\u00e9\u65e5\U0001f600", "a.b"]
        self.proven = self.message(rng.choice(partitions))
        for _ in range(rng.choice([0, 0, 1, 2, 5, 40])):
            self.message(rng.choice(partitions))
        # A window with many rows, so that paths are long.
        if rng.random() < 0.02:
            window = rng.choice(self.windows)
            for _ in range(rng.randint(100, 600)):
                self.put("attempts", "attempts_default", window, outbox_id=self.values.id(), attempt_no=1)

    def seal(self, window, previous):
        parts = {}
        for row in window["rows"]:
            parts.setdefault((list(KINDS).index(row["table"]), row["partition"].encode()), []).append(row)
        window["parts"] = []
        for (table, partition), rows in sorted(parts.items()):
            rows.sort(key=lambda row: (row["values"][0], row["values"][1] if row["table"] == "attempts" else b""))
            tag = KINDS[rows[0]["table"]][0]
            leaves = [h(b"\0" + form(tag, row["values"])) for row in rows]
            part = {"table": list(KINDS)[table], "partition": partition.decode(), "rows": len(rows), "root": mth(leaves)}
            for index, row in enumerate(rows):
                row.update(index=index, leaves=leaves, part_index=len(window["parts"]))
            window["parts"].append(part)
        window["leaves"] = [h(b"\0" + form("outbox part 1", [part["table"].encode(), part["partition"].encode(),
                                                            struct.pack(">q", part["rows"]), part["root"]]))
                            for part in window["parts"]]
        window["root"], window["previous"] = mth(window["leaves"]), previous
        window.update({table: sum(row["table"] == table for row in window["rows"]) for table in KINDS})
        numbers = [struct.pack(">q", window[key]) for key in ("seal_no", "from", "to", "messages", "attempts", "events")]
        sign = None if self.windows.index(window) in self.unsigned else self.sign
        window["key_id"] = sign.key_id if sign else None
        window["hash"] = h(b"\2" + form("outbox seal 1", numbers + [window["root"], previous, window["key_id"] and window["key_id"].encode()]))
        window["signature"] = sign(window["hash"]) if sign else None
        return window["hash"]

    @staticmethod
    def seal_json(window):
        def text(data):
            return None if data is None else data.hex()
        parts = [dict(part, root=part["root"].hex()) for part in window["parts"]]
        return {"seal_no": window["seal_no"], "from_at": time_text(window["from"]),
                "to_at": "infinity" if window["to"] == MAX else time_text(window["to"]), "from_us": window["from"],
                "to_us": window["to"], "messages": window["messages"], "attempts": window["attempts"], "events": window["events"],
                "root": window["root"].hex(), "previous": text(window["previous"]), "hash": window["hash"].hex(),
                "signature": text(window["signature"]), "key_id": window["key_id"], "parts": parts}

    @staticmethod
    def row_json(row):
        window = row["window"]
        given = {"table": row["table"], "partition": row["partition"], "seal_no": window["seal_no"] if window else None,
                 "columns": [[name, kind, None if value is None else value.hex()]
                             for (name, kind), value in zip(columns_of(row["table"]), row["values"])]}
        if window:
            given.update(index=row["index"], rows=len(row["leaves"]), path=[one.hex() for one in path(row["index"], row["leaves"])],
                         part_index=row["part_index"], parts=len(window["leaves"]),
                         part_path=[one.hex() for one in path(row["part_index"], window["leaves"])])
        return given

    def proof(self):
        named = {row["window"]["seal_no"] for row in self.proven if row["window"]}
        return {"format": "outbox proof 1", "outbox_id": str(uuid.UUID(bytes=self.proven[0]["values"][0])),
                "rows": [self.row_json(row) for row in self.proven],
                "seals": [self.seal_json(window) for window in self.windows if window["seal_no"] in named]}

    def chain(self):
        return [self.seal_json(window) for window in self.windows]

    def last_hash(self):
        return self.windows[-1]["hash"].hex()


# ---------------------------------------------------------------- the vectors of docs/seal-format.md

def print_vector(name, tag, columns, prefix):
    values = [encoded(kind, value) for _, kind, value in columns]
    row = form(tag, values)
    print("\n%s\ntag %s" % (name, tag))
    for (column, kind, _), data in zip(columns, values):
        print("column %s %s %s" % (column, kind, "NULL" if data is None else data.hex() or "''"))
    print("row %s\nhash %02x %s" % (row.hex(), prefix, h(bytes([prefix]) + row).hex()))
    return h(bytes([prefix]) + row)


def print_vectors():
    def rows(table, *values):
        return [(name, kind, value) for (name, kind), value in zip(columns_of(table), values)]

    one, two = bytes.fromhex("01938f3e5c1f7d2a80000123456789ab"), bytes.fromhex("01938f3e5c207d2a8000fedcba987654")
    at = 849315723456789
    print("```")
    print("the tree of RFC 6962")
    leaves = []
    for data in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"):
        leaves.append(h(b"\0" + bytes.fromhex(data)))
        print("leaf %s %s\nroot %d %s" % (data or "''", leaves[-1].hex(), len(leaves), mth(leaves).hex()))
    print("root 0 %s" % mth([]).hex())
    message = print_vector("a message", KINDS["messages"][0], rows(
        "messages", one, b"default", one, b"order.placed", b"order", "\u00c4\u65e5\U0001f600".encode(), None, MAX, b"", None, 15, -1,
        b'{"id": 17, "total": 99.90}', b"{}", None, at, None, None), 0)
    print_vector("a message in bytes, most of it NULL", KINDS["messages"][0], rows(
        "messages", two, b"q", one, b"x", None, None, b"\xff\xa2\xaf", None, None, None, 0, None, None, b"{}", one, MIN, b"\0\xff", b"a/b"), 0)
    attempt = print_vector("an attempt", KINDS["attempts"][0], rows(
        "attempts", one, 1, b"DISPATCHED", b"worker 1", two, at + 1, at + 1000000, b"receipt 4711", b"200", None, None, 2147483647,
        b"worker 1", at + 1000000), 0)
    print_vector("an event", KINDS["events"][0], rows(
        "events", two, b"LEASE_CLAIMED", MAX, b"default", b"", None, [one, two], [1, None, -2], -1, b"{}"), 0)
    print_vector("an event with arrays of other bounds", KINDS["events"][0], rows(
        "events", two, b"LEASE_CLAIMED", at, b"default", None, None, Array([one, None, two, one], [(2, 1), (2, -3)]), Array([7], [(1, 0)]), None, b"{}"), 0)
    print_vector("an event with empty arrays", KINDS["events"][0], rows(
        "events", two, b"SEALED", 0, None, None, b"postgres", [], None, None, b"null"), 0)
    parts = [print_vector("a part", "outbox part 1", [("table", "text", table), ("partition", "text", partition), ("rows", "bigint", 1),
                                                    ("root", "bytea", root)], 0)
             for table, partition, root in ((b"messages", b"messages_default", message), (b"attempts", b"attempts_default", attempt))]

    def seal(name, seal_no, start, end, counts, root, previous, key_id):
        names = ("seal_no", "from_at", "to_at", "messages", "attempts", "events", "root", "previous", "key_id")
        kinds = ("bigint", "timestamptz", "timestamptz", "bigint", "bigint", "bigint", "bytea", "bytea", "text")
        return print_vector(name, "outbox seal 1", list(zip(names, kinds, (seal_no, start, end, *counts, root, previous, key_id))), 2)

    first = seal("the first seal, of the message and the attempt above", 1, MIN, at + 60000000, (1, 1, 0), mth(parts), None, None)
    seal("a signed seal without rows after it", 2, at + 60000000, at + 120000000, (0, 0, 0), mth([]), first, b"0123456789abcdef")
    print("```")


if __name__ == "__main__":
    if sys.argv[1:] == ["--vectors"]:
        print_vectors()
