"""Makes `malformed.json`: sealed stores that are wrong in one way each, from the frozen rows, for every reader to refuse.

`python -m tests.store.sealed.malformed` writes the file. It shares no code with the package, and makes the same file each time.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, MLKEM768X25519PublicKey, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from tests.store.sealed.test_format import (
    KEY,
    enc,
    frozen_rows,
    generation_of,
    number,
    parts_of,
    path_of,
    read_key_row,
    read_keys,
    read_slot,
    unseal,
)

FILE = Path(__file__).with_name("malformed.json")
FORMATS = (1, 2, 3, "anchored 3")
"""The names of the frozen rows from which the cases are made."""
Rows = dict[tuple[str | int, ...], tuple[bytes, int]]
Case = tuple[str, Rows]
RECORD = {
    "the algorithm": 0, "the number of its key": 4, "the first byte of its salt": 5, "the last byte of its salt": 28,
    "the first byte of its commitment": 29, "the last byte of its commitment": 60, "the first encrypted byte": 61,
    "a byte in its middle": 100, "the first byte of its tag": -16, "the last byte of its tag": -1,
}  # fmt: skip
CUTS = {"nothing left": 0, "its head": 5, "its salt": 29, "its commitment": 61, "no tag": -16, "a byte less": -1}


def seal(key_number, key, store_id, kind, place, version, plain, *, padded=None):
    """Seal as docs/format.md says. `padded` replaces the plaintext with its length and its padding."""
    salt = hashlib.sha256(b"salt" + enc(place) + kind + plain + (padded or b"")).digest()[:24]
    head = b"\x01" + key_number.to_bytes(4, "big")
    aad = head + parts_of(b"graphagent/1", store_id, kind, enc(place), version.to_bytes(8, "big"))
    derived = HKDFExpand(SHA512(), 64, b"graphagent/1 record\0" + salt + hashlib.sha256(aad).digest()).derive(key)
    return (
        head
        + salt
        + derived[32:]
        + AESGCM(derived[:32]).encrypt(bytes(12), padded or pad(plain, 36 if kind == b"writer" else 256), aad)
    )


def pad(plain, least=256):
    data = len(plain).to_bytes(4, "big") + plain
    size = len(data)
    exponent = max(size, 2).bit_length() - 1
    step = 2 ** (exponent - exponent.bit_length())
    return data + bytes((least if size <= least else -(-size // step) * step) - size)


def flipped(value, at):
    changed = bytearray(value)
    changed[at] ^= 1
    return bytes(changed)


def named(row):
    if row[0] == "r" and row[1:]:
        return "a writer" if row[1] else "the base row"
    return {"k": "the key row", "r": "the root", "d": "a domain", "i": "an item"}[row[0]]


def other_generation(rows: Rows, row, *, beside: bool) -> Rows:
    """Give a domain another generation, in place of its row or `beside` it, where format 3 has the place of formats 1 and 2."""
    left = {key: each for key, each in rows.items() if key != row}
    value, version = rows[row]
    if row[-1] != "#":
        return {**(rows if beside else left), (*row[:-1], row[-1] + 1): (value, version)}
    if beside:
        return {**rows, (*row, generation_of(row, version)): (value, 1)}
    return {**left, row: (value, version + 2**24)}


def records(rows: Rows) -> Iterator[Case]:
    """Yield stores whose records were changed by someone without the key."""
    kinds = {row[0]: row for row in sorted(rows, key=enc, reverse=True)}
    writers = sorted(row for row in rows if row[0] == "r" and row[1:] and row[1])[:1]
    for row in (kinds["r"], *writers, kinds["d"], kinds["i"]):
        value, version = rows[row]
        for what, at in RECORD.items():
            yield f"{named(row)}: {what} changed", {**rows, row: (flipped(value, at), version)}
        for what, at in CUTS.items():
            yield f"{named(row)}, cut: {what}", {**rows, row: (value[:at], version)}
        yield f"{named(row)}: a byte more", {**rows, row: (value + b"\0", version)}
        yield f"{named(row)}: sixteen bytes more", {**rows, row: (value + bytes(16), version)}
        yield f"{named(row)}: a version later", {**rows, row: (value, version + 1)}
        yield f"{named(row)}: all zeros", {**rows, row: (bytes(len(value)), version)}
        yield f"{named(row)}: missing", {key: each for key, each in rows.items() if key != row}
        for other in (kinds["r"], *writers, kinds["d"], kinds["i"]):
            if other != row:
                yield f"{named(row)}: the value of {named(other)}", {**rows, row: (rows[other][0], version)}
    twins = [row for row in sorted(rows, key=enc) if row[0] == "i"][:2]
    (one, two) = twins
    yield "two items exchanged", {**rows, one: rows[two], two: rows[one]}
    yield "an item in two places", {**rows, two: rows[one]}
    yield "an item more", {**rows, (*one[:-1], 77): rows[one]}
    domain = kinds["d"]
    yield "a domain twice", other_generation(rows, domain, beside=True)
    yield "a domain of another generation", other_generation(rows, domain, beside=False)
    for row in writers:
        yield "a writer twice", {**rows, (*row[:-1], row[-1] ^ 1): rows[row]}
        yield "a root beside the base row", {**rows, ("r",): rows[row]}
        yield "no row of base and writers", {key: each for key, each in rows.items() if key[0] != "r"}


def key_rows(rows: Rows, format_: int) -> Iterator[Case]:
    """Yield stores whose key row was changed by someone without the key, who can compute every checksum."""
    row, version = rows["k",]
    size = 33 if format_ == 1 else 41

    def whole(head, rest, *, at=24):
        """Put the checksums right."""
        head = head[:24] + (hashlib.sha256(head[:24]).digest()[:8] if at < 24 else head[24:32]) + head[32:]
        if format_ == 1:
            slot = rest[:-16]
            return head + slot + hashlib.sha256(head[:32] + slot).digest()[:16]
        body = head + rest[:-16]
        return body + hashlib.sha256(body).digest()[:16]

    places = {"magic": 0, "format": 7, "store id": 8, "checksum of the head": 24, "number of slots": size - 1}
    places |= {"kind of a slot": size, "number of a slot": size + 4}
    if format_ > 1:
        places |= {
            "time of destruction": 32,
            "time of a slot": size + 12,
            "length of a name": size + 13,
            "name": size + 15,
        }
        places |= {
            "first public key": size + 40,
            "sealed row key": size + 40 + 1216,
            "keyset": -600,
            "tag of a slot": -40,
        }
    for what, at in places.items():
        changed = flipped(row, at)
        yield f"the key row: {what} changed", {**rows, ("k",): (changed, version)}
        fixed = whole(changed[:size], changed[size:], at=at)
        if what not in ("format", "checksum of the head") and fixed != row:
            yield f"the key row: {what} changed, with right checksums", {**rows, ("k",): (fixed, version)}
    for cut in sorted({0, 7, 8, 24, 31, 32, size - 1, size, size + 3, len(row) // 2, len(row) - 17, len(row) - 1}):
        yield f"the key row, cut at {cut}", {**rows, ("k",): (row[:cut], version)}
    yield "the key row: a byte more", {**rows, ("k",): (row + b"\0", version)}
    yield "the key row: too long", {**rows, ("k",): (row + bytes(2**17), version)}
    yield "the key row: missing", {key: each for key, each in rows.items() if key != ("k",)}
    for count in (0, 2 if format_ == 1 else 33, 255):
        changed = row[: size - 1] + bytes([count]) + row[size:]
        yield (
            f"the key row: {count} slots, with right checksums",
            {**rows, ("k",): (whole(changed[:size], changed[size:]), version)},
        )
    later = row[:7] + b"\x63" + row[8:]
    yield (
        "the key row: of format 99, with right checksums",
        {**rows, ("k",): (whole(later[:size], later[size:], at=7), version)},
    )
    if format_ > 1:
        yield "the key row: a version later", {**rows, ("k",): (row, version + 1)}
        yield from forged_slots(rows, row, version, whole)


def forged_slots(rows, row, version, whole):
    """Yield key rows that someone makes who has all public keys, and no other."""
    store_id, count = row[8:24], row[40]
    slots, rest = [], row[41:]
    for _ in range(count):
        end = 15 + number(rest[13:15])
        end += 1 + rest[end] + 1216 + 1168
        slots.append(rest[:end])
        rest = rest[end:]
    after = rest[1:]
    for _ in range(rest[0]):
        after = read_slot(after)[2][40:]
    head, gone, behind = row[:40], rest[: len(rest) - len(after)], after
    size = 4 + number(behind[:4])
    tags = behind[size:]

    def put(slots, behind=behind, head=head, gone=gone):
        return {**rows, ("k",): (whole(head + bytes([len(slots)]), b"".join(slots) + gone + behind), version)}

    yield "the key row: a slot less", put(slots[:1])
    yield "the key row: slots in another order", put(slots[::-1])
    yield "the key row: a slot twice", put([*slots, slots[0]])
    yield "the key row: a name that is not UTF-8", put([slots[0][:15] + b"\xff\xfe" + slots[0][17:], *slots[1:]])
    yield "the key row: a name beyond the end", put([slots[0][:13] + b"\xff\xff" + slots[0][15:], *slots[1:]])
    yield "the key row: destroyed, with all slots", put(slots, head=row[:32] + (10**12).to_bytes(8, "big"))
    foreign = b"x" * 32
    suite = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
    forged = []
    for slot in slots:
        public = slot[-1216 - 1168 : -1168]
        to = MLKEM768X25519PublicKey(
            MLKEM768PublicKey.from_public_bytes(public[:1184]), X25519PublicKey.from_public_bytes(public[1184:])
        )
        info = b"graphagent/2 keys\0" + store_id + slot[1:5]
        forged.append(slot[:-1168] + suite.encrypt(foreign, to, info))
    plain = b"\x03" + b"".join(bytes([purpose, 1, 1]) + (1).to_bytes(4, "big") + b"y" * 32 for purpose in (1, 2, 3))
    record = seal(1, foreign, store_id, b"keys", (), version, plain + bytes(32) * len(slots))
    yield (
        "the key row: keys of somebody else, sealed to all slots",
        put(forged, len(record).to_bytes(4, "big") + record + tags),
    )
    yield "the key row: row keys of somebody else", put(forged)
    yield "the key row: no tags", put(slots, behind[:size] + tags[-16:])
    yield "the key row: tags exchanged", put(slots, behind[:size] + tags[32:64] + tags[:32] + tags[64:])
    yield "the key row: a keyset beyond the end", put(slots, b"\xff" * 4 + behind[4:])
    yield "the key row: 255 removed slots", put(slots, gone=b"\xff" + gone[1:])
    yield "the key row: a removed slot less", put(slots, gone=b"\0")


def insiders(rows: Rows) -> Iterator[Case]:
    """Yield stores that someone with the key has made, against the format. Each is right but for one thing."""
    store_id, keys = read_key_row(*rows["k",], KEY)
    seal_key, sum_key = keys[1], keys[3][None]
    seal_number = next(name for name, key in seal_key.items() if name is not None and key == seal_key[None])
    single = next(
        (row for row in sorted(rows, key=enc) if row[0] == "d" and _plain_of(rows, row, keys, store_id)[0] == 1),
        None,
    )
    domain = next(
        row for row in sorted(rows, key=enc) if row[0] == "d" and _plain_of(rows, row, keys, store_id)[0] == 0
    )
    holding = next(
        (row for row in sorted(rows, key=enc) if row[0] == "d" and _plain_of(rows, row, keys, store_id)[0] == 2), None
    )
    within = ("i", *path_of(domain))
    inside = sorted((row for row in rows if row[: len(within)] == within), key=enc)
    item = inside[0]

    def sealed(
        row,
        kind,
        plain,
        *,
        padded=None,
        number=seal_number,
        key=None,
        version=None,
        kept=None,
        store=store_id,
        place=None,
    ):
        made = seal(
            number, key or seal_key[None], store, kind, place or row, version or rows[row][1], plain, padded=padded
        )
        return {**(kept or rows), row: (made, rows[row][1])}

    if ("r",) in rows:
        yield from _roots(rows, sealed, unseal(seal_key, store_id, b"root", enc(("r",)), *rows["r",][::-1]))
    else:
        yield from _bases(rows, sealed, unseal(seal_key, store_id, b"base", enc(("r", 0)), *rows["r", 0][::-1]))
        yield from _writers(rows, sealed, lambda row: unseal(seal_key, store_id, b"writer", enc(row), *rows[row][::-1]))
    if single is None:  # the domains and items of an anchored store are those of another one
        return
    for row in (domain, single):
        plain, which = _plain_of(rows, row, keys, store_id), "domain" if row == domain else "single domain"
        entry, listed = plain[42:79], plain[41:]
        other = entry[:1] + (9).to_bytes(4, "big") + bytes(32)
        for what, changed in {
            "an item too many": plain[:1] + (number(plain[1:9]) + 1).to_bytes(8, "big") + plain[9:],
            "an item too few": plain[:1] + (number(plain[1:9]) - 1).to_bytes(8, "big") + plain[9:],
            "another sum": plain[:40] + bytes([plain[40] ^ 1]) + plain[41:],
            "of kind 2": b"\x02" + plain[1:],
            "of kind 3": b"\x03" + plain[1:],
            "no keys": plain[:41] + b"\0",
            "two primary keys": plain[:41] + b"\x02" + entry + other,
            "no primary key": plain[:41] + b"\x01" + b"\x03" + entry[1:],
            "two keys of one number": plain[:41] + b"\x02" + entry + b"\x03" + entry[1:5] + bytes(32),
            "a key of state 0": plain[:41] + b"\x02" + entry + b"\0" + other[1:],
            "a key of state 5": plain[:41] + b"\x02" + entry + b"\x05" + other[1:],
            "its key destroyed": plain[:41] + b"\x02" + b"\x04" + entry[1:5] + bytes(32) + other,
            "keys beyond the end": plain[:41] + b"\x09" + listed[1:],
            "a byte more": plain + b"\0",
            "nothing": b"",
        }.items():
            yield f"sealed {which}: {what}", sealed(row, b"domain", changed)
        yield from _placed(rows, sealed, row, plain, f"sealed {which}")
    if holding is not None:
        yield from _holding(rows, sealed, holding, _plain_of(rows, holding, keys, store_id), rows[item])
        yield from _placed(
            rows, sealed, holding, _plain_of(rows, holding, keys, store_id), "sealed domain that holds its item"
        )

    data_keys, _ = read_keys(_plain_of(rows, domain, keys, store_id)[41:])
    data_number = next(name for name, key in data_keys.items() if name is not None and key == data_keys[None])
    clear = unseal(data_keys, store_id, b"item", enc(item), rows[item][1], rows[item][0])
    twin = unseal(data_keys, store_id, b"item", enc(inside[1]), rows[inside[1]][1], rows[inside[1]][0])
    bad_pad = pad(clear)[:-1] + b"\x07"
    for what, plain, how in (
        ("the key of another item", twin[: 4 + number(twin[:4])] + clear[4 + number(clear[:4]) :], {}),
        ("a key beyond the end", b"\xff\xff\xff\xff" + clear[4:], {}),
        ("a key that is none", (3).to_bytes(4, "big") + b"\x07\x07\x07" + b"value", {}),
        ("no key", (0).to_bytes(4, "big") + b"value", {}),
        ("nothing", b"", {}),
        ("padding that is not zero", clear, {"padded": bad_pad}),
        ("as a domain", clear, {"kind": b"domain"}),
        ("for another store", clear, {"store": bytes(16)}),
        ("for another version", clear, {"version": rows[item][1] + 1}),
        ("for another place", clear, {"place": inside[1]}),
        ("with the key of the domains", clear, {"key": seal_key[None]}),
        ("with an unknown key", clear, {"number": 77}),
    ):
        kind = how.pop("kind", b"item")
        made = sealed(item, kind, plain, **{"number": data_number, "key": data_keys[None], **how})
        # The sums are those of the rows as they are, so that nothing else is wrong.
        state = _plain_of(rows, domain, keys, store_id)
        total = sum(number(hmac.digest(sum_key, _member(made, each), "sha256")) for each in inside) % 2**256
        state = state[:9] + total.to_bytes(32, "big") + state[41:]
        yield f"sealed item: {what}", sealed(domain, b"domain", state, kept=made)


def _roots(rows, sealed, root):
    for what, plain in {
        "a domain too many": (number(root[:8]) + 1).to_bytes(8, "big") + root[8:],
        "a domain too few": (number(root[:8]) - 1).to_bytes(8, "big") + root[8:],
        "another sum": root[:39] + bytes([root[39] ^ 1]) + root[40:],
        "a room too many": root[:40] + (number(root[40:44]) + 1).to_bytes(4, "big") + root[44:],
        "a byte more": root + b"\0",
        "a byte less": root[:-1],
        "nothing": b"",
    }.items():
        yield f"sealed root: {what}", sealed(("r",), b"root", plain)


def _bases(rows, sealed, base):
    row, sums, rest = ("r", 0), base[32:96], base[96:]
    head, writers = base[:136], 2 + 8 * number(rest[40:42])
    listed, events = rest[40 : 40 + writers], rest[40 + writers :]
    rooms = events[2 + 16 * number(events[:2]) :]
    events = events[: len(events) - len(rooms)]
    more = (number(listed[:2]) + 1).to_bytes(2, "big")
    depth = rooms[: 8 + number(rooms[4:8])] + bytes([rooms[8 + number(rooms[4:8])] + 1])
    for what, plain in {
        "another list": flipped(base, 63),
        "other versions": flipped(base, 95),
        "a writer too many": head + more + (5).to_bytes(8, "big") + listed[2:] + events + rooms,
        "a writer twice": head + more + listed[2:10] + listed[2:] + events + rooms,
        "a writer too few": head + (number(listed[:2]) - 1).to_bytes(2, "big") + listed[10:] + events + rooms,
        "writers beyond the end": head + b"\xff\xff" + listed[2:] + events + rooms,
        "events beyond the end": head + listed + b"\xff\xff" + events[2:] + rooms,
        "more events than it counts": base[:96] + bytes(8) + rest[8:40] + listed + b"\0\1" + bytes(16) + rooms,
        "a room too many": base[: -len(rooms)] + (number(rooms[:4]) + 1).to_bytes(4, "big") + rooms[4:],
        "a room too few": base[: -len(rooms)] + (number(rooms[:4]) - 1).to_bytes(4, "big") + rooms[len(depth) :],
        "a room with another depth": base[: -len(rooms)] + depth + rooms[len(depth) :],
        "no rooms, as in format 2": base[: -len(rooms)],
        "one sum, as in format 2": base[:32] + sums[32:] + rest,
        "a byte more": base + b"\0",
        "a byte less": base[:-1],
        "nothing": b"",
    }.items():
        yield f"sealed base: {what}", sealed(row, b"base", plain)
    if base[:32] == bytes(32):
        yield "sealed base: a line", sealed(row, b"base", flipped(base, 31))
        counted = (1).to_bytes(8, "big")
        yield "sealed base: events without a line", sealed(row, b"base", base[:96] + counted + base[104:])
        yield "sealed base: a digest without a line", sealed(row, b"base", flipped(base, 120))
    yield "sealed base: as a writer", sealed(row, b"writer", base)
    yield "sealed base: as a root", sealed(row, b"root", base)
    yield "sealed base: for another store", sealed(row, b"base", base, store=bytes(16))
    yield "sealed base: for another version", sealed(row, b"base", base, version=rows[row][1] + 1)
    yield "sealed base: for another place", sealed(row, b"base", base, place=("r", 1))
    yield "sealed base: with an unknown key", sealed(row, b"base", base, number=99)


def _writers(rows, sealed, opened):
    row, other = sorted(row for row in rows if row[0] == "r" and row[1])[:2]
    plain = opened(row)
    for what, changed in {
        "another list": flipped(plain, 31),
        "other versions": flipped(plain, 63),
        "one sum, as in format 2": plain[:32],
        "the sums of another": opened(other),
        "a byte more": plain + b"\0",
        "a byte less": plain[:-1],
        "nothing": b"",
    }.items():
        yield f"sealed writer: {what}", sealed(row, b"writer", changed)
    yield "sealed writer: padded as others", sealed(row, b"writer", plain, padded=pad(plain))
    yield "sealed writer: as a base", sealed(row, b"base", plain, padded=pad(plain, 36))
    yield "sealed writer: for another store", sealed(row, b"writer", plain, store=bytes(16))
    yield "sealed writer: for another version", sealed(row, b"writer", plain, version=rows[row][1] + 1)
    yield "sealed writer: for another place", sealed(row, b"writer", plain, place=other)
    yield "sealed writer: with an unknown key", sealed(row, b"writer", plain, number=99)


def _placed(rows, sealed, row, plain, which):
    """Yield the row of a domain as it is, but padded in another way, or sealed for another place."""
    right = pad(plain)
    for what, padded in {
        "padding that is not zero": right[:-1] + b"\x01",
        "padded too far": right + bytes(256),
        "a length beyond the end": b"\xff\xff\xff\xff" + right[4:],
        "a length that is too short": bytes(4) + right[4:],
    }.items():
        yield f"{which}: {what}", sealed(row, b"domain", plain, padded=padded)
    yield f"{which}: as an item", sealed(row, b"item", plain)
    yield f"{which}: for another store", sealed(row, b"domain", plain, store=bytes(16))
    yield f"{which}: for another version", sealed(row, b"domain", plain, version=rows[row][1] + 1)
    yield f"{which}: for another place", sealed(row, b"domain", plain, place=("d", "x", "#", 1))
    yield f"{which}: with an unknown key", sealed(row, b"domain", plain, number=99)


def _holding(rows, sealed, row, plain, other):
    """Yield the row of a domain that holds its item, `plain`, against the format. `other` is the row of an item."""
    end = 2 + 37 * plain[1]
    keys, version, item = plain[:end], plain[end : end + 8], plain[end + 8 :]
    key, value = item[4 : 4 + number(item[:4])], item[4 + number(item[:4]) :]
    entry, end = keys[2:39], enc(("~",))
    for what, changed in {
        "no version": keys + bytes(8) + item,
        "a key that is none": keys + version + (3).to_bytes(4, "big") + b"\x07\x07\x07" + value,
        "a key beyond the end": keys + version + b"\xff\xff\xff\xff" + key + value,
        "a longer key": keys + version + (len(key) + len(end)).to_bytes(4, "big") + key + end + value,
        "no key": keys + version + bytes(4) + value,
        "no item": keys + version,
        "no data keys": b"\x02\0" + version + item,
        "two primary keys": b"\x02\x02" + entry + entry[:1] + (9).to_bytes(4, "big") + bytes(32) + version + item,
        "no primary key": b"\x02\x01\x03" + entry[1:] + version + item,
        "data keys beyond the end": b"\x02\x09" + keys[2:] + version + item,
        "without all behind its kind": plain[:1],
    }.items():
        yield f"sealed domain that holds its item: {what}", sealed(row, b"domain", changed)
    yield "an item beside the domain that holds it", {**rows, ("i", *path_of(row)): other}


def _member(rows, row):
    value, version = rows[row]
    return b"\x01" + version.to_bytes(8, "big") + value[5:29] + value[-16:] + enc(row)


def _plain_of(rows, row, keys, store_id):
    return unseal(keys[1], store_id, b"domain", enc(row), rows[row][1], rows[row][0])


def cases() -> Iterator[tuple[int | str, str, Rows]]:
    """Yield the frozen rows that each is made from, what is wrong, and the rows."""
    for format_ in FORMATS:
        rows = frozen_rows(format_)
        of_keys = () if isinstance(format_, str) else key_rows(rows, format_)
        for name, made in (*records(rows), *of_keys, *insiders(rows)):
            yield format_, name, made


def packed(format_: int | str, name: str, made: Rows) -> dict[str, object]:
    """Give a case as JSON: the rows that differ from the frozen ones, each by what was put over its bytes, and its size."""
    rows = frozen_rows(format_)
    changed: list[dict[str, object]] = []
    for key, (value, version) in made.items():
        if rows.get(key) == (value, version):
            continue
        before = rows.get(key, (b"", 0))[0].ljust(len(value), b"\0")
        different = [at for at in range(0, len(value), 16) if before[at : at + 16] != value[at : at + 16]]
        over: list[list[object]] = []
        for at in different:
            if over and at == over[-1][1]:
                over[-1][1] = at + 16
            else:
                over.append([at, at + 16])
        puts = [[start, base64.b64encode(value[start:end]).decode()] for start, end in over]
        changed.append({"key": list(key), "version": version, "size": len(value), "over": puts})
    return {
        "format": format_,
        "wrong": name,
        "missing": [list(key) for key in rows if key not in made],
        "rows": changed,
    }


def unpacked(case) -> Rows:
    """Give the rows of a case."""
    frozen = frozen_rows(case["format"])
    rows = {key: each for key, each in frozen.items() if list(key) not in case["missing"]}
    for each in case["rows"]:
        key = tuple(each["key"])
        value = bytearray(frozen.get(key, (b"", 0))[0].ljust(each["size"], b"\0")[: each["size"]])
        for at, over in each["over"]:
            new = base64.b64decode(over)
            value[at : at + len(new)] = new
        rows[key] = bytes(value), each["version"]
    return rows


if __name__ == "__main__":
    found = [packed(*case) for case in cases()]
    FILE.write_text("[\n" + ",\n".join(json.dumps(case) for case in found) + "\n]\n")
    print(len(found), FILE.stat().st_size)
