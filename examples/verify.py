#!/usr/bin/env python3
"""Checks seals and proofs of outbox, with Python's standard library alone.

    verify.py proof FILE [--hash HEX]... [--key PUBLIC.pem]... [--chain SEALS]
    verify.py chain FILE [--hash HEX]... [--key PUBLIC.pem]... [--first-previous HEX]

It was written from docs/seal-format.md and knows nothing of outbox-verify, so that each can be checked against the
other. Exit status: 0 all that the file shows is proven, 1 something is not, 2 nothing could be checked.
"""

import argparse
import base64
import datetime
import hashlib
import json
import re
import sys
import uuid

COLUMNS = {
    "messages": ("outbox message 1", """outbox_id uuid, queue text, event_id uuid, event_type text, aggregate_type text,
        aggregate_id text, partition_key text, sequence_id bigint, idempotency_key text, routing_key text,
        priority smallint, max_attempts integer, payload jsonb, headers jsonb, replay_of uuid, created_at timestamptz,
        payload_bytes bytea, content_type text"""),
    "attempts": ("outbox attempt 1", """outbox_id uuid, attempt_no integer, state text, worker_id text, lease_token uuid,
        claimed_at timestamptz, completed_at timestamptz, reference text, response_code text, error_code text,
        error_message text, latency_ms integer, recorded_by text, created_at timestamptz"""),
    "events": ("outbox event 1", """event_id uuid, event text, at timestamptz, queue text, worker_id text, actor text,
        outbox_ids uuid[], attempt_nos integer[], lease_expires_at timestamptz, detail jsonb"""),
}
FORMS = {table: (tag, [tuple(column.split()) for column in columns.split(",")])
         for table, (tag, columns) in COLUMNS.items()}
TABLES = list(FORMS)
SIZES = {"uuid": 16, "smallint": 2, "integer": 4, "bigint": 8, "timestamptz": 8}
LEAST, MOST = -2**63, 2**63 - 1
SEAL_KEYS = """seal_no from_at to_at from_us to_us messages attempts events root previous hash signature key_id
    parts""".split()
UNSEALED_KEYS = "table partition seal_no columns".split()
ROW_KEYS = UNSEALED_KEYS + "index rows path part_index parts part_path".split()


class Refused(Exception):
    """Something that the file claims does not hold."""


class Unreadable(Exception):
    """Nothing can be checked."""


def require(holds, otherwise):
    if not holds:
        raise Refused(otherwise)


# ---------------------------------------------------------------- the canonical form

def number(value, size):
    return value.to_bytes(size, "big", signed=True)


def value(data):
    return number(-1, 4) if data is None else number(len(data), 4) + data


def row(tag, columns):
    return value(tag.encode()) + number(len(columns), 4) + b"".join(map(value, columns))


def sha256(data):
    return hashlib.sha256(data).digest()


def leaf(data):
    return sha256(b"\0" + data)


def node(left, right):
    return sha256(b"\1" + left + right)


def tree(leaves):
    if len(leaves) < 2:
        return leaves[0] if leaves else sha256(b"")
    k = 1 << ((len(leaves) - 1).bit_length() - 1)
    return node(tree(leaves[:k]), tree(leaves[k:]))


def climb(start, index, leaves, path, what):
    require(0 <= index < leaves, what + " is outside of its tree")
    path, at, last = list(path), start, leaves - 1
    while last > 0:
        if index % 2 == 1 or index < last:
            require(path, "the path of " + what + " is too short")
            step = path.pop(0)
            at = node(step, at) if index % 2 == 1 else node(at, step)
        index, last = index // 2, last // 2
    require(not path, "the path of " + what + " is too long")
    return at


def part_leaf(table, partition, rows, root):
    return leaf(row("outbox part 1", [table.encode(), partition.encode(), number(rows, 8), root]))


def seal_hash(seal):
    numbers = [number(seal[key], 8) for key in ("seal_no", "from_us", "to_us", *TABLES)]
    key_id = None if seal["key_id"] is None else seal["key_id"].hex().encode()
    return sha256(b"\2" + row("outbox seal 1", numbers + [seal["root"], seal["previous"], key_id]))


# ---------------------------------------------------------------- JSON

def object_of(pairs):
    if len(dict(pairs)) != len(pairs):
        raise Unreadable("a key comes twice in one object")
    return dict(pairs)


def constant(name):
    raise Unreadable(name + " is not JSON")


def read_json(data):
    try:
        text = data.decode()
        depth = 0
        for bracket in re.findall(r'"(?:[^"\\]|\\.)*"|[][{}]', text, re.S):
            depth += (bracket in "[{") - (bracket in "]}")
            if depth > 16:
                raise Unreadable("the JSON is nested too deep")
        return json.loads(text, object_pairs_hook=object_of, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise Unreadable("not JSON: %s" % error) from error


def keys(thing, names, what):
    require(isinstance(thing, dict) and set(thing) == set(names), what + " has not exactly the keys that it must have")
    return thing


def text(thing, what):
    require(isinstance(thing, str) and not re.search("[\ud800-\udfff]", thing), what + " is not a text")
    return thing


def integer(thing, what):
    require(type(thing) is int and LEAST <= thing <= MOST, what + " is not an integer of 64 bits")
    return thing


def array(thing, what):
    require(isinstance(thing, list), what + " is not an array")
    return thing


def binary(thing, what, size=None):
    require(isinstance(thing, str) and re.fullmatch("([0-9a-f]{2})*", thing), what + " is not lower-case digits")
    require(size is None or len(thing) == 2 * size, what + " has not %s bytes" % size)
    return bytes.fromhex(thing)


def maybe(thing, what, size=None):
    return None if thing is None else binary(thing, what, size)


# ---------------------------------------------------------------- values for a reader

def time_text(us):
    if us in (LEAST, MOST):
        return "infinity" if us > 0 else "-infinity"
    days, us = divmod(us, 86400 * 10**6)
    cycles, days = divmod(days, 146097)  # days of 400 years; 2000-01-01 is the day 730120 of Python
    day = datetime.date.fromordinal(days + 730120)
    seconds, us = divmod(us, 10**6)
    year = day.year + 400 * cycles
    return "%s%04d-%02d-%02dT%02d:%02d:%02d.%06dZ" % ("-" if year < 0 else "", abs(year), day.month, day.day,
                                                     seconds // 3600, seconds // 60 % 60, seconds % 60, us)


def elements(data):
    """The elements of an array, or None if the bytes are not one."""
    found, words = [], [int.from_bytes(data[at:at + 4], "big", signed=True) for at in range(0, min(len(data) - 3, 52), 4)]
    dimensions = words[0] if words else -1
    if not 0 <= dimensions <= 6 or len(words) < 1 + 2 * dimensions:
        return None
    data, count = data[4 + 8 * dimensions:], 1 if dimensions else 0
    for length, first in zip(words[1:1 + 2 * dimensions:2], words[2:2 + 2 * dimensions:2]):
        if length < 1 or first + length - 1 > 2**31 - 1:
            return None
        count *= length
    while count > 0:
        size = int.from_bytes(data[:4], "big", signed=True)
        if len(data) < 4 or size < -1 or size > len(data) - 4:
            return None
        found.append(None if size < 0 else data[4:4 + size])
        data, count = data[4 + max(size, 0):], count - 1
    return found if data == b"" else None


def is_value(kind, data):
    if kind.endswith("[]"):
        found = elements(data)
        return found is not None and all(one is None or is_value(kind[:-2], one) for one in found)
    return len(data) == SIZES.get(kind, len(data))


def shown(kind, data):
    if data is None:
        return "NULL"
    if kind.endswith("[]"):
        return "{%s}" % ", ".join(shown(kind[:-2], one) for one in elements(data))
    if kind == "uuid":
        return str(uuid.UUID(bytes=data))
    if kind == "timestamptz":
        return time_text(int.from_bytes(data, "big", signed=True))
    if kind in SIZES:
        return str(int.from_bytes(data, "big", signed=True))
    if kind == "bytea":
        return "\\x" + data.hex()
    # Nothing of it may act on a terminal.
    return ascii(data.decode(errors="backslashreplace"))


# ---------------------------------------------------------------- Ed25519, verification only: RFC 8032, section 6

P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT_OF_MINUS_1 = pow(2, (P - 1) // 4, P)


def point_add(a, b):
    a1, b1 = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    c, d = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = b1 - a1, d - c, d + c, b1 + a1
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def point_mul(s, point):
    result = (0, 1, 1, 0)
    while s > 0:
        if s & 1:
            result = point_add(result, point)
        point = point_add(point, point)
        s >>= 1
    return result


def point_equal(a, b):
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0


def recover_x(y, sign):
    if y >= P:
        return None
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    if x2 == 0:
        return None if sign else 0
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P != 0:
        x = x * ROOT_OF_MINUS_1 % P
    if (x * x - x2) % P != 0:
        return None
    return P - x if x & 1 != sign else x


def point_decompress(data):
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    x = recover_x(y, sign)
    return None if x is None else (x, y, 1, x * y % P)


BASE_Y = 4 * pow(5, P - 2, P) % P
BASE_X = recover_x(BASE_Y, 0)
BASE = (BASE_X, BASE_Y, 1, BASE_X * BASE_Y % P)


def is_signed(public, message, signature):
    a, r = point_decompress(public), point_decompress(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= Q:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % Q
    return point_equal(point_mul(s, BASE), point_add(r, point_mul(h, a)))


def read_key(pem):
    """The 32 bytes of a public key in PEM."""
    found = re.search(r"-----BEGIN PUBLIC KEY-----([\sA-Za-z0-9+/=]+)-----END PUBLIC KEY-----", pem)
    der = base64.b64decode(found[1]) if found else b""
    if len(der) != 44 or der[:12].hex() != "302a300506032b6570032100":
        raise Unreadable("the key is not an Ed25519 public key in PEM")
    return der[12:]


# ---------------------------------------------------------------- seals

def read_part(thing):
    keys(thing, ["table", "partition", "rows", "root"], "a part")
    part = {"table": text(thing["table"], "table"), "partition": text(thing["partition"], "partition"),
            "rows": integer(thing["rows"], "rows"), "root": binary(thing["root"], "root", 32)}
    require(part["table"] in TABLES and part["rows"] > 0, "a part is of no table, or has no rows")
    return part


def place(part):
    return TABLES.index(part["table"]), part["partition"].encode()


def read_seal(thing):
    """A seal that agrees with itself."""
    keys(thing, SEAL_KEYS, "a seal")
    seal = {key: integer(thing[key], key) for key in ("seal_no", "from_us", "to_us", *TABLES)}
    seal.update(root=binary(thing["root"], "root", 32), previous=maybe(thing["previous"], "previous", 32),
                hash=binary(thing["hash"], "hash", 32), signature=maybe(thing["signature"], "signature", 64),
                key_id=maybe(thing["key_id"], "key_id", 8))
    seal["parts"] = parts = [read_part(part) for part in array(thing["parts"], "parts")]
    name = "seal %d: " % seal["seal_no"]
    require(all(place(a) < place(b) for a, b in zip(parts, parts[1:])), name + "its parts are not in order")
    for table in TABLES:
        require(sum(part["rows"] for part in parts if part["table"] == table) == seal[table],
                name + "its parts have not its number of " + table)
    require(seal["root"] == tree([part_leaf(**part) for part in parts]), name + "its root is not that of its parts")
    require(seal["hash"] == seal_hash(seal), name + "its hash is not that of its fields")
    require((seal["signature"] is None) == (seal["key_id"] is None), name + "a signature without key_id, or the reverse")
    require(seal["seal_no"] >= 1 and seal["from_us"] < seal["to_us"], name + "a wrong number or window")
    require((seal["seal_no"] == 1) == (seal["previous"] is None) == (seal["from_us"] == LEAST), name + "not as the first is")
    require([thing["from_at"], thing["to_at"]] == [time_text(seal["from_us"]), time_text(seal["to_us"])],
            name + "its times are not those that it shows")
    return seal


def link(seal, following):
    require(following["seal_no"] == seal["seal_no"] + 1 and following["previous"] == seal["hash"]
            and following["from_us"] == seal["to_us"], "seal %d does not follow seal %d" % (following["seal_no"], seal["seal_no"]))


class Anchors:
    """What the auditor brings along."""

    def __init__(self, hashes=(), pems=(), first_previous=None):
        self.hashes = {self.digits(digits) for digits in hashes}
        self.met = set()
        self.keys = {sha256(key)[:8]: key for key in map(read_key, pems)}
        self.first_previous = None if first_previous is None else self.digits(first_previous)

    @staticmethod
    def digits(digits):
        if not re.fullmatch("[0-9a-fA-F]{64}", digits):
            raise Unreadable("a hash has 64 hexadecimal digits")
        return bytes.fromhex(digits)

    def holds(self, seal):
        known = seal["hash"] in self.hashes
        if known:
            self.met.add(seal["hash"])
        if seal["key_id"] is None or not self.keys:
            return known
        require(seal["key_id"] in self.keys, "seal %d is signed by a key that was not given" % seal["seal_no"])
        require(is_signed(self.keys[seal["key_id"]], seal["hash"], seal["signature"]),
                "the signature of seal %d is wrong" % seal["seal_no"])
        return True

    def require_all_met(self):
        require(self.met == self.hashes, "no seal has a hash that was given")


def read_chain(data):
    seals = [read_seal(read_json(line)) for line in data.split(b"\n") if line.strip(b" \t\r")]
    return seals


def check_chain(data, anchors, say=print):
    seals = read_chain(data)
    require(seals, "there are no seals")
    for seal, following in zip(seals, seals[1:]):
        link(seal, following)
    require(anchors.first_previous is None or seals[0]["previous"] == anchors.first_previous,
            "the first seal does not follow the one whose hash was given")
    covered = [seal["seal_no"] for seal in seals if anchors.holds(seal)]
    anchors.require_all_met()
    say("Seals %d to %d agree with themselves and each other. The last hash is %s."
        % (seals[0]["seal_no"], seals[-1]["seal_no"], seals[-1]["hash"].hex()))
    if not anchors.hashes and not anchors.keys:
        say("NOT PROVEN: that this is the chain that was made then. Compare a printed hash.")
        return True
    if covered:
        say("PROVEN: seals up to %d are what the given hash or key stands for." % covered[-1])
    if not covered or covered[-1] != seals[-1]["seal_no"]:
        say("NOT PROVEN: the seals after that.")
        return False
    return True


# ---------------------------------------------------------------- proofs

class Row:
    def __init__(self, thing):
        require(isinstance(thing, dict) and thing.get("table") in TABLES, "a row is of no table")
        require("seal_no" in thing, "a row has no seal_no")
        keys(thing, UNSEALED_KEYS if thing["seal_no"] is None else ROW_KEYS, "a row")
        self.json, self.table, self.partition = thing, thing["table"], text(thing["partition"], "partition")
        self.tag, self.columns = FORMS[self.table]
        given = array(thing["columns"], "columns")
        require(len(given) == len(self.columns), "a row has not the columns of its table")
        self.values = {}
        for (name, kind), column in zip(self.columns, given):
            require(isinstance(column, list) and len(column) == 3 and column[:2] == [name, kind],
                    "column %s is not in its place" % name)
            self.values[name] = data = maybe(column[2], name)
            require(data is None or is_value(kind, data), "column %s is no %s" % (name, kind))
        self.seal_no = None if thing["seal_no"] is None else integer(thing["seal_no"], "seal_no")

    def get(self, name):
        require(self.values[name] is not None, name + " is NULL")
        return self.values[name]

    def number(self, name):
        return int.from_bytes(self.get(name), "big", signed=True)

    def climb(self, start, index, leaves, path):
        steps = [binary(step, "a step", 32) for step in array(self.json[path], path)]
        return climb(start, integer(self.json[index], index), integer(self.json[leaves], leaves), steps, "a row")

    def check(self, seal):
        """It is in this seal."""
        root = self.climb(leaf(row(self.tag, list(self.values.values()))), "index", "rows", "path")
        part = {"table": self.table, "partition": self.partition, "rows": self.json["rows"], "root": root}
        require(self.climb(part_leaf(**part), "part_index", "parts", "part_path") == seal["root"],
                "a row is not in seal %d" % seal["seal_no"])
        require(self.json["parts"] == len(seal["parts"]) and seal["parts"][self.json["part_index"]] == part,
                "a row is not in the part that it names")
        at = self.number("at" if self.table == "events" else "created_at")
        require(seal["from_us"] <= at < seal["to_us"], "the time of a row is not in the window of its seal")


def require_order(rows, outbox_id):
    require(rows and rows[0].table == "messages", "the first row is not the message")
    require(str(uuid.UUID(bytes=rows[0].get("outbox_id"))) == outbox_id, "the message is another one")
    require([TABLES.index(one.table) for one in rows[1:]] == sorted(TABLES.index(one.table) for one in rows[1:])
            and all(one.table != "messages" for one in rows[1:]), "the rows are not in order")
    attempts = [one for one in rows if one.table == "attempts"]
    events = [one for one in rows if one.table == "events"]
    require([one.number("attempt_no") for one in attempts] == list(range(1, len(attempts) + 1)), "an attempt is missing")
    require(all(one.get("outbox_id") == rows[0].get("outbox_id") for one in attempts), "an attempt is of another message")
    require(all(one.get("state") not in (b"DISPATCHED", b"FAILED") for one in attempts[:-1]), "an attempt comes after the end")
    require(all(rows[0].get("outbox_id") in elements(one.get("outbox_ids")) for one in events), "an event is of another message")
    require(all(a.get("event_id") < b.get("event_id") for a, b in zip(events, events[1:])), "the events are not in order")
    for one in attempts:
        one.get("state")
    return attempts


def trusted_seals(seals, anchors):
    trusted, following = set(), None
    for seal_no in sorted(seals, reverse=True):
        seal = seals[seal_no]
        linked = following is not None and following["seal_no"] == seal_no + 1
        if linked:
            link(seal, following)
        if anchors.holds(seal) or (linked and seal_no + 1 in trusted):
            trusted.add(seal_no)
        following = seal
    anchors.require_all_met()
    return trusted


def check_proof(data, anchors, chain=b"", say=print):
    if not anchors.hashes and not anchors.keys:
        raise Unreadable("give --hash or --key: without them a proof only agrees with itself")
    between = read_chain(chain)
    proof = keys(read_json(data), ["format", "outbox_id", "rows", "seals"], "the proof")
    require(proof["format"] == "outbox proof 1", "the format is another one")
    rows = [Row(one) for one in array(proof["rows"], "rows")]
    attempts = require_order(rows, text(proof["outbox_id"], "outbox_id"))
    seals, own = {}, [read_seal(one) for one in array(proof["seals"], "seals")]
    require(all(a["seal_no"] < b["seal_no"] for a, b in zip(own, own[1:])), "the seals are not in order")
    for seal in between + own:
        require(seals.setdefault(seal["seal_no"], seal)["hash"] == seal["hash"], "two seals have one number")
    for one in rows:
        require(one.seal_no is None or one.seal_no in seals, "the seal of a row is not there")
        if one.seal_no is not None:
            one.check(seals[one.seal_no])
    trusted = trusted_seals(seals, anchors)
    for one in rows:
        say("%s: %s, %s" % ("PROVEN" if one.seal_no in trusted else "NOT PROVEN", one.table,
                            ", ".join("%s = %s" % (name, shown(kind, one.values[name])) for name, kind in one.columns)))
    if not attempts or attempts[-1].get("state") not in (b"DISPATCHED", b"FAILED"):
        say("NOT PROVEN: how the message ended.")
    return all(one.seal_no in trusted for one in rows)


# ---------------------------------------------------------------- the command line

def status_of(check, say=print):
    try:
        return 0 if check() else 1
    except Refused as refused:
        say("REFUSED: %s." % ascii(str(refused))[1:-1])
        return 1
    except Unreadable as unreadable:
        say("NOT CHECKED: %s." % ascii(str(unreadable))[1:-1])
        return 2


def contents(name):
    try:
        with (sys.stdin.buffer if name == "-" else open(name, "rb")) as file:
            return file.read()
    except OSError as error:
        raise Unreadable(str(error)) from error


def main():
    parser = argparse.ArgumentParser(description="Checks seals and proofs of outbox.")
    parser.add_argument("command", choices=["proof", "chain"])
    parser.add_argument("file")
    parser.add_argument("--hash", action="append", default=[])
    parser.add_argument("--key", action="append", default=[])
    parser.add_argument("--chain")
    parser.add_argument("--first-previous")
    given = parser.parse_args()

    def check():
        anchors = Anchors(given.hash, [contents(name).decode("latin-1") for name in given.key], given.first_previous)
        if given.command == "chain":
            return check_chain(contents(given.file), anchors)
        return check_proof(contents(given.file), anchors, contents(given.chain) if given.chain else b"")

    return status_of(check)


if __name__ == "__main__":
    sys.exit(main())
