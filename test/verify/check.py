"""Compares outbox-verify with examples/verify.py: on random histories, on corruptions of them, and on what an attacker
would try. Prints TAP.

    check.py MANY PROGRAM        MANY: verify/test/many.cpp, PROGRAM: outbox-verify. HISTORIES and SEED are in the environment.
"""

import base64
import copy
import json
import os
import random
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "examples")]
sys.dont_write_bytecode = True

import histories  # noqa: E402
import verify  # noqa: E402

tests = failed = 0


def ok(holds, what, detail=""):
    global tests, failed
    tests += 1
    failed += not holds
    print("%sok %d - %s" % ("" if holds else "not ", tests, what), flush=True)
    if not holds and detail:
        print("# " + str(detail)[:2000].replace("\n", "\n# "), flush=True)


class Program:
    """The C++ verifier: many cases in one process."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, command, given, data):
        self.process.stdin.write(json.dumps([command, given, data.hex()]).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode()
        if not answer:
            raise SystemExit("Bail out! the program ended at %s %s" % (command, data[:500]))
        return int(answer[0]), json.loads(answer[2:])


class Case:
    """A file and what the auditor brings along."""

    def __init__(self, command, data, hashes=(), keys=(), first_previous=None, chain=None):
        self.command = command
        self.data = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.hashes, self.keys, self.first_previous, self.chain = list(hashes), list(keys), first_previous, chain

    def by_program(self, program):
        given = {"hashes": self.hashes, "keys": self.keys}
        if self.first_previous is not None:
            given["first_previous"] = self.first_previous
        if self.chain is not None:
            given["chain"] = self.chain.hex()
        return program.ask(self.command, given, self.data)

    def by_python(self):
        said = []

        def check():
            anchors = verify.Anchors(self.hashes, self.keys, self.first_previous)
            if self.command == "chain":
                return verify.check_chain(self.data, anchors, said.append)
            return verify.check_proof(self.data, anchors, self.chain or b"", said.append)
        return verify.status_of(check, said.append), "\n".join(said)


class Both:
    """Asks both, and collects where they disagree."""

    def __init__(self, program):
        self.program, self.wrong, self.statuses = program, [], {}

    def expect(self, statuses, case, why):
        a, said = case.by_program(self.program)
        b, also = case.by_python()
        self.statuses[a] = self.statuses.get(a, 0) + 1
        # Only whether it is all right must be the same: what is no JSON for one parser may be for the other.
        if (a == 0) != (b == 0) or a not in statuses or b not in statuses:
            self.wrong.append("%s: outbox-verify %d, verify.py %d, expected %s\n%s\n%s" % (why, a, b, statuses, said[-800:], also[-800:]))
        return a

    def report(self, what):
        ok(not self.wrong, "%s (%s)" % (what, ", ".join("%d: %d" % one for one in sorted(self.statuses.items()))),
           "%d wrong\n" % len(self.wrong) + "\n".join(self.wrong[:3]))
        self.wrong, self.statuses = [], {}


def lines(seals):
    return "".join(json.dumps(seal) + "\n" for seal in seals).encode()


# ---------------------------------------------------------------- keys, by OpenSSL's program

class Signer:
    def __init__(self, folder, name):
        self.key, self.folder = os.path.join(folder, name), folder
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", self.key], check=True, stderr=subprocess.DEVNULL)
        self.pem = subprocess.run(["openssl", "pkey", "-in", self.key, "-pubout"], check=True, capture_output=True, text=True).stdout
        raw = base64.b64decode("".join(self.pem.splitlines()[1:-1]))[12:]
        self.key_id = histories.h(raw).hex()[:16]

    def __call__(self, digest):
        file = os.path.join(self.folder, "digest")
        with open(file, "wb") as out:
            out.write(digest)
        signature = subprocess.run(["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", self.key, "-in", file],
                                   check=True, capture_output=True).stdout
        return signature


# ---------------------------------------------------------------- vectors

def read_vectors():
    with open(os.path.join(ROOT, "docs", "seal-format.md"), encoding="utf-8") as page:
        text = page.read().split("<!-- vectors -->")[1].split("<!-- end of vectors -->")[0]
    return [block.splitlines() for block in text.strip().strip("`").strip().split("\n\n")]


def check_vectors():
    tree, *rows = read_vectors()
    leaves, wrong = [], []
    for line in tree[1:]:
        word, what, digits = line.split()
        if word == "leaf":
            leaves.append(verify.leaf(bytes.fromhex(what.strip("'"))))
            wrong += [line] if leaves[-1].hex() != digits else []
        elif verify.tree(leaves[:int(what)]).hex() != digits:
            wrong.append(line)
    for name, tag, *rest in rows:
        columns = [None if line.split()[3] == "NULL" else bytes.fromhex(line.split()[3].strip("'")) for line in rest[:-2]]
        data = verify.row(tag[len("tag "):], columns)
        prefix, digest = rest[-1].split()[1:]
        if rest[-2] != "row " + data.hex() or verify.sha256(bytes.fromhex(prefix) + data).hex() != digest:
            wrong.append(name)
        form = [form for form in verify.FORMS.values() if form[0] == tag[len("tag "):]]
        if form and [tuple(line.split()[1:3]) for line in rest[:-2]] != form[0][1]:
            wrong.append(name + ": columns")
    ok(not wrong and len(rows) == 10, "verify.py agrees with the vectors of docs/seal-format.md", wrong)
    printed = subprocess.run([sys.executable, os.path.join(HERE, "histories.py"), "--vectors"], capture_output=True, text=True, check=True)
    ok(read_vectors() == [block.splitlines() for block in printed.stdout.strip().strip("`").strip().split("\n\n")],
       "... which are those of histories.py")


def check_signatures(signer):
    # RFC 8032, 7.1: TEST 1, TEST 2, TEST 3.
    known = [("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
              "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"),
             ("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
              "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"),
             ("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
              "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a")]
    good = [verify.is_signed(*map(bytes.fromhex, one)) for one in known]
    bad = [verify.is_signed(*map(bytes.fromhex, (a, b + "00", c))) for a, b, c in known]
    raw = verify.read_key(signer.pem)
    for i in range(20):
        digest = histories.h(b"%d" % i)
        signature = signer(digest)
        good.append(verify.is_signed(raw, digest, signature))
        at = i * 3
        bad.append(verify.is_signed(raw, digest, signature[:at] + bytes([signature[at] ^ 1 << i % 8]) + signature[at + 1:]))
        s = int.from_bytes(signature[32:], "little") + verify.Q
        bad.append(verify.is_signed(raw, digest, signature[:32] + s.to_bytes(32, "little")))
    ok(all(good) and not any(bad), "verify.py knows signatures of RFC 8032 and OpenSSL from wrong ones")


# ---------------------------------------------------------------- random histories

def cases_of(history, rng, pem):
    """The proof and the chain, each with something that stands for them."""
    chain = lines(history.chain())
    before = history.before.hex() if history.before else None
    if pem:
        yield Case("proof", history.proof(), keys=[pem])
        yield Case("chain", chain, keys=[pem], first_previous=before)
    named = [window for window in history.windows if any(row["window"] is window for row in history.proven)]
    if rng.random() < 0.5:
        yield Case("proof", history.proof(), [window["hash"].hex() for window in named])
    else:
        yield Case("proof", history.proof(), [history.last_hash()], chain=chain)
    yield Case("chain", chain, [history.last_hash()], first_previous=before)


def flip_byte(case, rng):
    at = rng.randrange(len(case.data))
    changed = copy.copy(case)
    changed.data = case.data[:at] + bytes([rng.choice([case.data[at] ^ 1 << rng.randrange(8), rng.choice(b'0123456789abcdef",[]{}:-')])]) + case.data[at + 1:]
    return changed


def without_signatures(data, is_chain):
    """What a case says, apart from what nothing that was given stands for."""
    things = [json.loads(line) for line in data.splitlines() if line.strip()] if is_chain else [json.loads(data)]
    for seal in things if is_chain else things[0]["seals"]:
        seal["signature"] = seal["key_id"] = None
    return things


def places(thing, way=()):
    """Each value within, by the way to it."""
    if isinstance(thing, (dict, list)):
        for key in list(thing) if isinstance(thing, dict) else range(len(thing)):
            yield way + (key,)
            yield from places(thing[key], way + (key,))


def other_value(rng, value):
    if isinstance(value, bool) or value is None:
        return rng.choice(["00", 0, []])
    if isinstance(value, int):
        return rng.choice([value + 1, value - 1, -value - 1, value + 2**32, 2**63, float(value) + 0.5, None, str(value)])
    if isinstance(value, str):
        if re.fullmatch("[0-9a-f]+", value) and rng.random() < 0.7:
            at = rng.randrange(len(value))
            return value[:at] + rng.choice("0123456789abcdef".replace(value[at], "")) + value[at + 1:]
        return rng.choice([value + "00", value + "x", value[:-1] if value else "0", None, 7, value.upper() if value.upper() != value else value + "A"])
    if isinstance(value, list):
        return rng.choice([value + value[-1:] if value else [[]], value[1:] if value else {}, value[::-1] if value != value[::-1] else [None], {}])
    return rng.choice([None, [], dict(value, more=1), dict(list(value.items())[1:])])


def change_one(proof, rng, with_key):
    """Another proof, which claims something else at one place that a hash stands for."""
    changed = copy.deepcopy(proof)
    ways = [way for way in places(changed) if with_key or way[-1] not in ("signature", "key_id")]
    way = rng.choice(ways)
    target = changed
    for key in way[:-1]:
        target = target[key]
    # A seal that the proof names twice is the same seal.
    target[way[-1]] = other_value(rng, target[way[-1]])
    return changed


def check_histories(both, signer, count, seed):
    proven = flips = 0
    for i in range(count):
        rng = random.Random("%s %d" % (seed, i))
        pem = signer.pem if i % 100 == 0 else None
        history = histories.History("%s %d" % (seed, i), signer if pem else None)
        for case in cases_of(history, rng, pem):
            all_sealed = case.command == "chain" or all(row["window"] for row in history.proven)
            # A hash that no seal of the proof has is refused.
            both.expect([0 if all_sealed and case.hashes + case.keys else 1 if case.hashes + case.keys else 2], case, "seed %s %d" % (seed, i))
            proven += all_sealed
    both.report("%d random histories of seed %s: both verifiers agree" % (count, seed))
    ok(proven > count, "... and most of them are proven")


def check_corruptions(both, signer, count, seed):
    for i in range(count):
        rng = random.Random("corrupt %s %d" % (seed, i))
        pem = signer.pem if i % 100 == 0 else None
        history = histories.History("%s %d" % (seed, i), signer if pem else None)
        proof = history.proof()
        good = Case("proof", proof, [window["hash"].hex() for window in history.windows
                                     if any(row["window"] is window for row in history.proven)], [pem] if pem else [])
        if not all(row["window"] for row in history.proven):
            continue
        for _ in range(2):
            bad = copy.copy(good)
            changed = change_one(proof, rng, bool(pem))
            if changed == proof:
                continue
            bad.data = json.dumps(changed).encode()
            both.expect([1, 2], bad, "corrupted, seed %s %d: %s" % (seed, i, bad.data[:3000]))
    both.report("one value of a proof changed: both refuse it")
    for i in range(count):
        rng = random.Random("flip %s %d" % (seed, i))
        history = histories.History("%s %d" % (seed, i))
        for case in cases_of(history, rng, None):
            flipped = flip_byte(case, rng)
            if both.expect([0, 1, 2], flipped, "flipped, seed %s %d" % (seed, i)) == 0:
                is_chain = case.command == "chain"
                if without_signatures(flipped.data, is_chain) != without_signatures(case.data, is_chain):
                    both.wrong.append("accepted: %s" % flipped.data)
    both.report("one byte of a file changed: both agree, and what they accept says the same as before")


# ---------------------------------------------------------------- what an attacker would try

def find_history(wanted):
    """The first whose proven rows are all sealed and fulfil this."""
    for seed in range(100000):
        history = histories.History("attack %d" % seed)
        if all(row["window"] for row in history.proven) and wanted(history):
            return history
    raise SystemExit("Bail out! no such history")


def reseal(history):
    """Everything again after a change of rows: consistent in itself."""
    previous = history.before
    for window in history.windows:
        previous = history.seal(window, previous)


def attack_cases():
    history = find_history(lambda one: sum(row["table"] == "attempts" for row in one.proven) >= 3 and len(one.proven[0]["leaves"]) >= 3
                           and sum(row["table"] == "events" for row in one.proven) == 2)
    proof, chain, last = history.proof(), lines(history.chain()), history.last_hash()
    attempts = [i for i, row in enumerate(proof["rows"]) if row["table"] == "attempts"]
    events = [i for i, row in enumerate(proof["rows"]) if row["table"] == "events"]

    def changed(change):
        other = copy.deepcopy(proof)
        change(other)
        return Case("proof", other, [last], chain=chain)

    def swap(rows, a, b):
        rows[a], rows[b] = rows[b], rows[a]

    yield 0, "as it is", changed(lambda p: None)
    yield 0, "without its events: it cannot be told", changed(lambda p: p["rows"].__delitem__(slice(events[0], None)))
    yield 0, "without its last attempt: not proven how it ended", changed(lambda p: p["rows"].pop(attempts[-1]))
    yield 1, "without its first attempt", changed(lambda p: p["rows"].pop(attempts[0]))
    yield 1, "without one in the middle", changed(lambda p: p["rows"].pop(attempts[1]))
    yield 1, "an attempt twice", changed(lambda p: p["rows"].insert(attempts[1], p["rows"][attempts[0]]))
    yield 1, "two attempts in the other order", changed(lambda p: swap(p["rows"], attempts[0], attempts[1]))
    yield 1, "without the message", changed(lambda p: p["rows"].pop(0))
    yield 1, "the message twice", changed(lambda p: p["rows"].insert(1, p["rows"][0]))
    yield 1, "another id", changed(lambda p: p.update(outbox_id="01938f3e-5c1f-7d2a-8000-0123456789ab"))
    yield 1, "two columns under each other's names", changed(lambda p: swap(p["rows"][0]["columns"], 4, 5))
    yield 1, "a column renamed", changed(lambda p: p["rows"][0]["columns"][4].__setitem__(0, "aggregate_id"))
    yield 1, "text called jsonb", changed(lambda p: p["rows"][0]["columns"][3].__setitem__(1, "jsonb"))
    yield 1, "NULL called empty", changed(lambda p: [c.__setitem__(2, "") for c in p["rows"][0]["columns"] if c[2] is None])
    yield 1, "attempts called events", changed(lambda p: p["rows"][attempts[0]].update(table="events"))
    yield 1, "another partition's name", changed(lambda p: p["rows"][0].update(partition="messages_other"))
    yield 1, "another index", changed(lambda p: p["rows"][0].update(index=(p["rows"][0]["index"] + 1) % p["rows"][0]["rows"]))
    yield 1, "more rows than the part has", changed(lambda p: p["rows"][0].update(rows=p["rows"][0]["rows"] + 1))
    yield 1, "a step less", changed(lambda p: p["rows"][0]["path"].pop())
    yield 1, "a step more", changed(lambda p: p["rows"][0]["path"].append("00" * 32))
    yield 1, "a path of 100,000 steps", changed(lambda p: p["rows"][0].update(path=["00" * 32] * 100000))
    yield 1, "a negative index", changed(lambda p: p["rows"][0].update(index=-1))
    yield 1, "a huge index", changed(lambda p: p["rows"][0].update(index=2**63 - 1, rows=2**63 - 1))
    yield 1, "no rows in the part", changed(lambda p: p["rows"][0].update(rows=0))
    yield 1, "no parts", changed(lambda p: p["rows"][0].update(parts=0, part_path=[]))
    yield 1, "another part of the seal", changed(lambda p: p["rows"][0].update(part_index=p["rows"][0]["part_index"] + 1))
    yield 1, "a seal called another", changed(lambda p: [seal.update(seal_no=seal["seal_no"] + 1) for seal in p["seals"]])
    yield 1, "a seal twice in the proof", changed(lambda p: p["seals"].append(p["seals"][-1]))
    yield 1, "without its seals", changed(lambda p: p["seals"].clear() or [row.update(seal_no=7) for row in p["rows"]])
    yield 1, "a row called unsealed", changed(lambda p: [p["rows"][0].pop(key) for key in ("index", "rows", "path", "part_index", "parts", "part_path")]
                                              and p["rows"][0].update(seal_no=None))
    yield 1, "a row half unsealed", changed(lambda p: p["rows"][0].update(seal_no=None))
    yield 1, "no rows", changed(lambda p: p["rows"].clear())
    yield 1, "a key more", changed(lambda p: p.update(note="all is well"))
    yield 1, "a key more in a row", changed(lambda p: p["rows"][0].update(state="DISPATCHED"))
    yield 1, "another format", changed(lambda p: p.update(format="outbox proof 2"))
    yield 2, "neither hash nor key", Case("proof", proof)
    yield 1, "a hash that is of no seal", Case("proof", proof, ["00" * 32], chain=chain)
    yield 2, "a hash that is none", Case("proof", proof, ["00"], chain=chain)

    many = find_history(lambda one: len(one.windows) >= 4 and all(row["window"] is one.windows[0] for row in one.proven))
    seals = many.chain()
    yield 0, "a chain", Case("chain", lines(seals), [many.last_hash()])
    yield 0, "a chain by itself", Case("chain", lines(seals))
    yield 0, "without its beginning", Case("chain", lines(seals[1:]), first_previous=seals[0]["hash"])
    yield 1, "after another beginning", Case("chain", lines(seals[1:]), first_previous="11" * 32)
    yield 1, "a seal left out", Case("chain", lines(seals[:1] + seals[2:]))
    yield 1, "two seals in the other order", Case("chain", lines(seals[:1] + [seals[2], seals[1]] + seals[3:]))
    yield 1, "a seal twice", Case("chain", lines(seals[:2] + seals[1:]))
    yield 1, "seals after the one with the hash", Case("chain", lines(seals), [seals[-2]["hash"]])
    yield 1, "no seals", Case("chain", b"\n \n")
    yield 1, "a proof by the hash of an earlier seal", Case("proof", proof, [history.windows[0]["previous"].hex()] if history.windows[0]["previous"] else ["11" * 32], chain=chain)
    yield 1, "the seals between are missing", Case("proof", many.proof(), [many.last_hash()], chain=lines(seals[2:]))
    yield 0, "... and are there", Case("proof", many.proof(), [many.last_hash()], chain=lines(seals[1:]))

    # The past rewritten with all its followers: consistent, and found by the printed hash alone.
    printed = many.last_hash()
    columns = histories.columns_of("messages")
    many.proven[0]["values"][[name for name, _ in columns].index("payload")] = b'{"amount": 1}'
    reseal(many)
    yield 0, "a rewritten chain by itself", Case("chain", lines(many.chain()))
    yield 1, "a rewritten chain against the printed hash", Case("chain", lines(many.chain()), [printed])
    yield 1, "a proof of the rewritten past against it", Case("proof", many.proof(), [printed], chain=lines(many.chain()))
    yield 1, "... with the old seals as well", Case("proof", many.proof(), [printed], chain=lines(seals))

    late = find_history(lambda one: one.windows[-1]["to"] < 10**17 and len(one.proven[0]["leaves"]) >= 1)
    at = [name for name, _ in columns].index("created_at")
    late.proven[0]["values"][at] = histories.encoded("timestamptz", late.proven[0]["window"]["to"])
    reseal(late)
    yield 1, "a row outside of its window", Case("proof", late.proof(), [late.last_hash()], chain=lines(late.chain()))

    ended = find_history(lambda one: sum(row["table"] == "attempts" for row in one.proven) >= 2)
    state = [name for name, _ in histories.columns_of("attempts")].index("state")
    ended.proven[1]["values"][state] = b"DISPATCHED"
    reseal(ended)
    yield 1, "an attempt after the end", Case("proof", ended.proof(), [ended.last_hash()], chain=lines(ended.chain()))


def malformed(proof):
    text = json.dumps(proof)
    yield b""
    yield b"\0"
    yield b"null"
    yield b"[]"
    yield b"\xef\xbb\xbf\xff" + text.encode()
    yield text.encode()[:-1]
    yield text.encode() + b"{}"
    yield b"[" * 100000
    yield b"[" * 100000 + b"]" * 100000
    yield b'{"a":' * 100000 + b"1" + b"}" * 100000
    yield text.replace('"rows"', '"format": "outbox proof 1", "format"', 1).encode()
    yield text.replace('"seal_no": ', '"seal_no": 1, "seal_no": ', 1).encode()
    yield text.replace('"index": ', '"index": 1e400, "i": ', 1).encode()
    yield re.sub('"index": ([0-9]+)', r'"index": \1.0', text, count=1).encode()
    yield re.sub('"index": ([0-9]+)', r'"index": 1e0', text, count=1).encode()
    yield re.sub('"index": ([0-9]+)', r'"index": 1' + "0" * 5000, text, count=1).encode()
    yield re.sub('"index": ([0-9]+)', r'"index": 18446744073709551616', text, count=1).encode()
    yield re.sub('"index": ([0-9]+)', r'"index": NaN', text, count=1).encode()
    yield re.sub('"index": ([0-9]+)', r'"index": true', text, count=1).encode()
    yield text.replace("outbox proof 1", "\\ud800", 1).encode()
    yield text.replace('"partition": "', '"partition": "\\ud800', 1).encode()
    yield text.replace('"partition": "', '"partition": "\\u0000', 1).encode()
    yield text.replace("outbox proof 1", "outbox proof 1\n", 1).encode("utf-16")
    yield b"x" * 10000000


def check_attacks(both):
    for status, what, case in attack_cases():
        both.expect([status], case, what)
    both.report("what an attacker would try")
    history = find_history(lambda one: len(one.proven) > 2)
    for data in malformed(history.proof()):
        both.expect([1, 2], Case("proof", data, [history.last_hash()]), "malformed proof %s" % data[:60])
        both.expect([1, 2], Case("chain", data, [history.last_hash()]), "malformed chain %s" % data[:60])
        both.expect([1, 2], Case("proof", history.proof(), [history.last_hash()], chain=data or b"[]"), "malformed seals %s" % data[:60])
    both.report("malformed files")


def check_keys(both, signer, other):
    seed, history = next((seed, one) for seed, one in (("keys %d" % i, histories.History("keys %d" % i, signer)) for i in range(1000))
                         if all(row["window"] for row in one.proven) and len(one.windows) >= 3)
    proof, seals = history.proof(), history.chain()

    def stripped(seals, numbers, names=("signature", "key_id")):
        return [dict(seal, **dict.fromkeys(names)) if i in numbers else seal for i, seal in enumerate(seals)]

    def signed_but(*numbers):
        return lines(histories.History(seed, signer, numbers).chain())

    both.expect([0], Case("proof", proof, keys=[signer.pem]), "the key")
    both.expect([0], Case("proof", proof, keys=[other.pem, signer.pem]), "one of two keys")
    both.expect([1], Case("proof", proof, keys=[other.pem]), "another key")
    both.expect([1], Case("proof", dict(proof, seals=stripped(proof["seals"], range(9))), keys=[signer.pem]), "signatures taken away")
    both.expect([0], Case("chain", lines(seals), keys=[signer.pem]), "a signed chain")
    both.expect([0], Case("chain", signed_but(0), keys=[signer.pem]), "signed since the second seal")
    both.expect([1], Case("chain", signed_but(len(seals) - 1), keys=[signer.pem]), "the last seal is not signed")
    for keys in ([], [signer.pem]):
        for numbers in ([0], [len(seals) - 1], range(len(seals))):
            both.expect([1], Case("chain", lines(stripped(seals, numbers)), [], keys), "seals %s stripped of their signatures" % numbers)
            both.expect([1], Case("chain", lines(stripped(seals, numbers, ["signature"])), [], keys), "... with their key_id left")
        both.expect([1], Case("chain", lines([dict(seals[0], key_id=other.key_id)] + seals[1:]), [], keys), "under another key's name")
    forged = [dict(seals[0], signature=seals[1]["signature"])] + seals[1:]
    both.expect([1], Case("chain", lines(forged), keys=[signer.pem]), "the signature of another seal")
    both.expect([1], Case("chain", lines([dict(seals[0], key_id=other.key_id)] + seals[1:]), keys=[signer.pem, other.pem]), "under another key's name")
    both.expect([1], Case("chain", lines([dict(seals[0], key_id=None)] + seals[1:])), "a signature of no key")
    both.expect([2], Case("chain", lines(seals), keys=["no key"]), "no key")
    private = open(signer.key, encoding="ascii").read()
    both.expect([2], Case("chain", lines(seals), keys=[private]), "a private key")
    rsa = subprocess.run("openssl genpkey -algorithm RSA 2>/dev/null | openssl pkey -pubout", shell=True, check=True, capture_output=True, text=True)
    both.expect([2], Case("chain", lines(seals), keys=[rsa.stdout]), "a key of another kind")
    both.report("keys and signatures")


def check_output(program):
    history = find_history(lambda one: len(one.proven) == 2 and one.proven[1]["table"] == "attempts")
    columns = [name for name, _ in histories.columns_of("messages")]
    history.proven[0]["values"][columns.index("payload")] = b'"x\nPROVEN: all\r\x1b[2J\xc2\x9b1m\xe2\x80\xae\xff\xed\xa0\x80\\'
    reseal(history)
    case = Case("proof", history.proof(), [history.last_hash()], chain=lines(history.chain()))
    status, said = case.by_program(program)
    ok(status == 0 and '"x\\u{a}PROVEN: all\\u{d}\\u{1b}[2J\\u{9b}1m\\u{202e}\\xff\\xed\\xa0\\x80\\\\"' in said, "a payload cannot look like a sentence", said)
    ok(said.count("\nPROVEN: ") == len(re.findall("^PROVEN: ", said, re.M)) and "all\n" not in said, "... nor break a line", said)
    _, also = case.by_python()
    ok("\\nPROVEN: all" in also and "\nPROVEN: all" not in also, "... nor in verify.py", also)


def check_compare(program):
    line = "messages\tmessages_default\t01938f3e-5c1f-7d2a-8000-0123456789ab\t%s\t\\x%s\n"
    a = line % ("", "00" * 32) + line % ("1", "11" * 32)
    b = line % ("\\N", "00" * 32) + line.replace("\\x", "\\\\x") % ("1", "11" * 32)

    def compare(one, two):
        return program.ask("compare", one.encode().hex(), two.encode())
    ok(compare(a, b)[0] == 0, "the same leaves, as psql and COPY write them")
    status, said = compare(a, b.replace("11" * 32, "22" * 32))
    ok(status == 1 and said.startswith("DIFFERS: messages, partition \"messages_default\", 01938f3e-5c1f-7d2a-8000-0123456789ab, attempt 1\n"), "a leaf that differs", said)
    ok([compare(a, "")[0], compare("", a)[0]] == [1, 1] and "ONLY IN THE FIRST" in compare(a, "")[1] and "ONLY IN THE SECOND" in compare("", a)[1], "rows that one has")
    bad = [a + a, "x\n", a.replace("\\x00", "\\x0g", 1), a.replace("\t", ",")]
    ok([compare(one, a)[0] for one in bad] == [2] * len(bad), "what is no export of leaves")


def check_command_line(path, folder):
    history = find_history(lambda one: True)
    file, chain = os.path.join(folder, "proof"), os.path.join(folder, "chain")
    with open(file, "w", encoding="utf-8") as out:
        json.dump(history.proof(), out)
    with open(chain, "wb") as out:
        out.write(lines(history.chain()))

    def status(*arguments, stdin=None):
        results = []
        for program in ([path], [sys.executable, os.path.join(ROOT, "examples", "verify.py")]):
            with open(stdin or os.devnull, "rb") as given:
                results.append(subprocess.run(program + list(arguments), stdin=given, capture_output=True, check=False).returncode)
        return results

    last = history.last_hash()
    ok(status("proof", file, "--hash", last, "--chain", chain) == [0, 0], "a proof from a file")
    ok(status("proof", "-", "--hash", last.upper(), "--chain", chain, stdin=file) == [0, 0], "... and from the standard input")
    ok(status("chain", chain) == [0, 0], "a chain from a file")
    ok(status("chain", chain, "--hash", "00" * 32) == [1, 1], "another hash")
    ok([status(*one) for one in ((), ("proof",), ("proof", file, "--no"), ("proof", file + "x"), ("proof", folder), ("proof", file),
                                 ("chain", chain, "--key", file), ("chain", chain, "--hash", "xy"))] == [[2, 2]] * 8, "status 2 where nothing could be checked")


def main():
    many, path = sys.argv[1:]
    count, seed = int(os.environ.get("HISTORIES", "10000")), os.environ.get("SEED", str(random.randrange(2**32)))
    print("# HISTORIES=%d SEED=%s" % (count, seed))
    program = Program(many)
    both = Both(program)
    with tempfile.TemporaryDirectory() as folder:
        signer, other = Signer(folder, "key"), Signer(folder, "other")
        check_vectors()
        check_signatures(signer)
        check_attacks(both)
        check_keys(both, signer, other)
        check_output(program)
        check_compare(program)
        check_command_line(path, folder)
        check_histories(both, signer, count, seed)
        check_corruptions(both, signer, count // 2, seed)
    program.process.stdin.close()
    ok(program.process.wait() == 0, "no report of a sanitizer")
    print("1..%d" % tests)
    sys.exit(failed > 0)


main()
