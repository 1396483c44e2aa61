"""Frozen rows, read by a decoder that was written from docs/format.md and shares no code with the package."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import unicodedata
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256, SHA512
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from graphagent.store import DeleteAll, EncryptedStore, Item, MemoryStore, Passphrase, Put
from graphagent.store._items import encode
from tests.store.sealed.elsewhere import Elsewhere

FILES = {
    1: "format_1.json",
    2: "format_2.json",
    "anchored": "anchored.json",
    3: "format_3.json",
    "anchored 3": "anchored_3.json",
}
FROZEN = {name: json.loads(Path(__file__).with_name(file).read_text()) for name, file in FILES.items()}
"""Stores of each format, and anchored ones of formats 2 and 3, with their anchors."""
KEY = base64.b64decode(FROZEN[1]["key"])


# The decoder


def number(data):
    return int.from_bytes(data, "big")


def enc(key):
    parts = []
    for segment in key:
        if isinstance(segment, int):
            parts.append(b"\x01" + segment.to_bytes(8, "big"))
        else:
            parts.append(b"\x02" + segment.encode("utf-8", "surrogatepass").replace(b"\0", b"\0\xff") + b"\0")
    return b"".join(parts)


def dec(data):
    segments = []
    while data:
        if data[0] == 1:
            segments.append(number(data[1:9]))
            data = data[9:]
        else:
            assert data[0] == 2
            end = data.index(b"\0")
            while data[end + 1 : end + 2] == b"\xff":
                end = data.index(b"\0", end + 1)
            segments.append(data[1:end].replace(b"\0\xff", b"\0").decode("utf-8", "surrogatepass"))
            data = data[end + 1 :]
    return tuple(segments)


def parts_of(*parts):
    return len(parts).to_bytes(4, "big") + b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def unseal(keys, store_id, kind, place, version, record):
    assert record[0] == 1
    aad = record[:5] + parts_of(b"graphagent/1", store_id, kind, place, version.to_bytes(8, "big"))
    info = b"graphagent/1 record\0" + record[5:29] + hashlib.sha256(aad).digest()
    derived = HKDFExpand(SHA512(), 64, info).derive(keys[number(record[1:5])])
    assert derived[32:] == record[29:61]
    padded = AESGCM(derived[:32]).decrypt(bytes(12), record[61:], aad)
    size = 4 + number(padded[:4])
    exponent = size.bit_length() - 1
    step = 2 ** (exponent - exponent.bit_length())
    least = 36 if kind == b"writer" else 256
    assert len(padded) == (least if size <= least else -(-size // step) * step)
    assert not any(padded[size:])
    return padded[4:size]


def read_keys(data):
    """Give the keys that open by their number, the primary one under None, and what stands behind them."""
    keys, names = {}, set()
    for at in range(1, 1 + 37 * data[0], 37):
        state, name, key = data[at], number(data[at + 1 : at + 5]), data[at + 5 : at + 37]
        assert state in (1, 2, 3, 4)
        assert name not in names
        names.add(name)
        assert len(key) == 32
        keys |= {name: key} if state != 4 else {}
        assert state != 1 or None not in keys
        keys |= {None: key} if state == 1 else {}
    assert None in keys
    return keys, data[1 + 37 * data[0] :]


def read_purposes(plain):
    purposes, rest = {}, plain[1:]
    for _ in range(plain[0]):
        purposes[rest[0]], rest = read_keys(rest[1:])[0], read_keys(rest[1:])[1]
    return purposes, rest


def read_key_row_1(row, key):
    head, slots = row[:32], row[33:]
    assert row[32] == 1
    behind = 7 + number(slots[5:7])
    end = behind + 2 + number(slots[behind : behind + 2])
    assert slots[0] == 1
    assert slots[end:] == hashlib.sha256(head + slots[:end]).digest()[:16]
    plain = unseal({number(slots[1:5]): key}, head[8:24], b"slot", slots[:behind], 0, slots[behind + 2 : end])
    purposes, rest = read_purposes(plain)
    assert not rest
    return head[8:24], purposes


def read_slot(row):
    size = 13 + 2 + number(row[13:15])
    name = row[15:size].decode()
    parameters = row[size + 1 : size + 1 + row[size]]
    return (row[0], number(row[1:5]), number(row[5:13]), name), parameters, row[size + 1 + row[size] :]


def slot_keys(kind, secret, store_id, parameters):
    if kind == 2:
        assert (parameters[0], len(parameters)) == (1, 10)
        passes, memory, lanes = number(parameters[1:5]), number(parameters[5:9]), parameters[9]
        secret = Argon2id(salt=store_id, length=32, iterations=passes, lanes=lanes, memory_cost=memory).derive(secret)
    info = b"graphagent/2 slot\0" + bytes([kind])
    seed = HKDF(SHA512(), 128, salt=store_id, info=info).derive(secret)
    return MLKEM768PrivateKey.from_seed_bytes(seed[:64]), X25519PrivateKey.from_private_bytes(seed[64:96]), seed[96:]


def hpke_open(mlkem, x25519, sealed, info):
    """RFC 9180, base mode, with the KEM X-Wing (0x647a), HKDF-SHA-256 (1) and AES-256-GCM (2); one message."""
    to_mlkem, to_x25519 = sealed[:1088], sealed[1088:1120]
    shared = mlkem.decapsulate(to_mlkem) + x25519.exchange(X25519PublicKey.from_public_bytes(to_x25519))
    shared = hashlib.sha3_256(shared + to_x25519 + x25519.public_key().public_bytes_raw() + b"\\.//^\\").digest()
    suite = b"HPKE" + bytes.fromhex("647a00010002")

    def extract(salt, label, data):
        return hmac.digest(salt, b"HPKE-v1" + suite + label + data, "sha256")

    context = b"\0" + extract(b"", b"psk_id_hash", b"") + extract(b"", b"info_hash", info)
    secret = extract(shared, b"secret", b"")

    def expand(label, size):
        named = size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + context
        return HKDFExpand(SHA256(), size, named).derive(secret)

    return AESGCM(expand(b"key", 32)).decrypt(expand(b"base_nonce", 12), sealed[1120:], None)


def read_key_row_2(row, version, secret):
    store_id, rest = row[8:24], row[41:]
    assert row[-16:] == hashlib.sha256(row[:-16]).digest()[:16]
    assert row[32:40] == bytes(8)
    slots = []
    for _ in range(row[40]):
        named, parameters, rest = read_slot(rest)
        slots.append((named, parameters, rest[:1216], rest[1216:2384]))
        rest = rest[2384:]
    removed, rest = rest[0], rest[1:]
    for _ in range(removed):
        rest = read_slot(rest)[2][40:]
    record, tags = rest[4 : 4 + number(rest[:4])], rest[4 + number(rest[:4]) :]
    authenticated = row[: len(row) - len(tags)]
    assert len(tags) == 32 * len(slots) + 16
    for at, ((kind, slot, _, _), parameters, public, sealed) in enumerate(slots):
        mlkem, x25519, mac = slot_keys(kind, secret, store_id, parameters)
        if public != mlkem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw():
            continue
        to = b"graphagent/2 row\0" + version.to_bytes(8, "big") + authenticated
        assert tags[32 * at : 32 * at + 32] == hmac.digest(mac, to, "sha256")
        info = b"graphagent/2 keys\0" + store_id + slot.to_bytes(4, "big")
        row_key = hpke_open(mlkem, x25519, sealed, info)
        purposes, macs = read_purposes(unseal({1: row_key}, store_id, b"keys", b"", version, record))
        assert macs[32 * at : 32 * at + 32] == mac
        assert len(macs) == 32 * len(slots)
        for tag, mac in ((32 * each, macs[32 * each : 32 * each + 32]) for each in range(len(slots))):
            assert tags[tag : tag + 32] == hmac.digest(mac, to, "sha256")
        return store_id, purposes
    raise AssertionError("no slot opens")


def read_key_row(row, version, secret):
    head = row[:32]
    assert head[:7] == b"gakeys\0"
    assert head[24:] == hashlib.sha256(head[:24]).digest()[:8]
    assert head[7] in (1, 2, 3)
    return read_key_row_1(row, secret) if head[7] == 1 else read_key_row_2(row, version, secret)


def blind(index_key, key):
    chain, blinded = bytes(32), []
    for segment in key:
        chain = hmac.digest(index_key, chain + enc((segment,)), "sha256")
        shown = base64.urlsafe_b64encode(chain[:16]).decode().rstrip("=")
        blinded.append(segment if isinstance(segment, int) else shown)
    return tuple(blinded)


def read_rooms(data):
    """Check the rooms, and give each with its depth, and what stands behind them."""
    rooms, rest = [], data[4:]
    for _ in range(number(data[:4])):
        size = 4 + number(rest[:4])
        assert len(dec(rest[4:size])) == 1
        assert rest[size] > 0
        rooms.append((rest[4:size], rest[size : size + 1]))
        rest = rest[size + 1 :]
    assert len({room for room, _ in rooms}) == len(rooms)
    return rooms, rest


def generation_of(row, version):
    if row[-1] == "#":
        return version >> 24
    assert row[-2] == "#"
    return row[-1]


def path_of(row):
    return row[1:-1] if row[-1] == "#" else row[1:-2]


def check_list(rows, store_id, keys):
    """Check that the domains are those that the rows of the writers, or the root, say."""
    domains = [row for row in rows if row[0] == "d"]
    assert len({path_of(row) for row in domains}) == len(domains)
    if rows["k",][0][7] < 3:
        assert not [row for row in domains if row[-1] == "#"]
        root = unseal(keys[1], store_id, b"root", enc(("r",)), rows["r",][1], rows["r",][0])
        assert number(root[:8]) == len(domains)
        total, (_, rest) = number(root[8:40]), read_rooms(root[40:])
        if rest:
            assert rest == b"\x01"
            read_writers(rows, store_id, keys)
        else:
            assert not [row for row in rows if row[0] == "r" and row != ("r",)]
    else:
        assert ("r",) not in rows
        total = read_writers(rows, store_id, keys)[-1]
    assert (total - sum(member_of(keys, 2, row, rows[row][1]) for row in domains)) % 2**256 == 0


def member_of(keys, kind, row, version):
    """Give what the row of a domain adds to the sum over domains, 2, or that over versions, 3."""
    if kind == 3:
        member = version.to_bytes(8, "big") + enc(row)
    else:
        member = enc(("d", *path_of(row), "#", generation_of(row, version)))
    return number(hmac.digest(keys[3][None], bytes([kind]) + member, "sha256"))


def read_store(rows, key):
    """Give every item of a sealed store, (clear key bytes, value, version), by its row; all that can be checked is."""
    store_id, keys = read_key_row(*rows["k",], key)
    check_list(rows, store_id, keys)
    items, held = {}, {}
    for row in [row for row in rows if row[0] == "d"]:
        plain = unseal(keys[1], store_id, b"domain", enc(row), rows[row][1], rows[row][0])
        path = ("i", *path_of(row))
        assert plain[0] in (0, 1, 2)
        if plain[0] == 2:
            data_keys, rest = read_keys(plain[1:])
            version, size = number(rest[:8]), number(rest[8:12])
            assert version > 0
            assert 0 < size <= len(rest) - 12
            clear = rest[12 : 12 + size]
            assert ("i", *blind(keys[2][None], dec(clear))) == path
            assert path not in rows
            held[path] = clear, rest[12 + size :], version
            continue
        data_keys, rest = read_keys(plain[41:])
        inside = [each for each in rows if each == path or (each[: len(path)] == path and plain[0] == 0)]
        sums = 0
        for each in inside:
            record, version = rows[each]
            clear = unseal(data_keys, store_id, b"item", enc(each), version, record)
            size = number(clear[:4])
            assert ("i", *blind(keys[2][None], dec(clear[4 : 4 + size]))) == each
            items[each] = clear[4 : 4 + size], clear[4 + size :], version
            to = b"\x01" + version.to_bytes(8, "big") + record[5:29] + record[-16:] + enc(each)
            sums += number(hmac.digest(keys[3][None], to, "sha256"))
        assert (rest, number(plain[1:9]), number(plain[9:41])) == (b"", len(inside), sums % 2**256)
    assert items.keys() == {row for row in rows if row[0] == "i"}
    return items | held, keys[2][None]


def read_writers(rows, store_id, keys):
    """Give what the base row and those of writers say: the line, events and their digest, commits, and what domains add up to."""
    former = ("r",) in rows
    base = unseal(keys[1], store_id, b"base", enc(("r", 0)), rows["r", 0][1], rows["r", 0][0])
    line, rest, size = base[:32], base[32:], 32 if former else 64
    total, versions, rest = 0 if former else number(rest[:32]), number(rest[size - 32 : size]), rest[size:]
    count, digest, rest = number(rest[:8]), rest[8:40], rest[40:]
    listed = [number(rest[2 + 8 * at : 10 + 8 * at]) for at in range(number(rest[:2]))]
    writers, rest = set(listed), rest[2 + 8 * len(listed) :]
    assert len(writers) == len(listed)
    size = 2 + 16 * number(rest[:2])
    events, rooms = rest[:size], rest[size:]
    assert len(events) == size
    assert count >= number(events[:2])
    for at in range(2, len(events), 16):
        digest = hashlib.sha256(digest + events[at : at + 16]).digest()
    assert {("r", writer) for writer in writers} == {row for row in rows if row[0] == "r"} - {("r",), ("r", 0)}
    for writer in writers:
        record, version = rows["r", writer]
        difference = unseal(keys[1], store_id, b"writer", enc(("r", writer)), version, record)
        assert len(difference) == (32 if former else 64)
        total += 0 if former else number(difference[:32])
        versions += number(difference[-32:])
    if line != bytes(32):
        counted = [row for row in rows if row == ("r",) or row[0] == "d"]
        versions -= sum(member_of(keys, 3, row, rows[row][1]) for row in counted)
    assert versions % 2**256 == 0
    if former:
        assert rooms == b""
    else:
        rooms, rest = read_rooms(rooms)
        assert rest == b""
        assert line != bytes(32) or (count, digest) == (0, bytes(32))
        for room, depth in rooms:
            total -= number(hmac.digest(keys[3][None], b"\x04" + depth + room, "sha256"))
    return line, count, digest, {writer: rows["r", writer][1] for writer in writers}, total


def read_anchor(content, rows, key):
    """Check an anchor against the rows of the store that it was written for last."""
    store_id, keys = read_key_row(*rows["k",], key)
    line, count, digest, writers, _ = read_writers(rows, store_id, keys)
    signed = content[:-32]
    assert content[-32:] == hmac.digest(hmac.digest(keys[3][None], b"graphagent/1 anchor", "sha256"), signed, "sha256")
    head = b"ganchor\0\x01" + store_id + line + count.to_bytes(8, "big") + digest
    head += rows["k",][1].to_bytes(8, "big") + len(writers).to_bytes(2, "big")
    each = [writer.to_bytes(8, "big") + commits.to_bytes(8, "big") for writer, commits in sorted(writers.items())]
    assert signed == head + b"".join(each)


# The tests


def frozen_rows(name):
    return {tuple(row["key"]): (bytes.fromhex(row["value"]), row["version"]) for row in FROZEN[name]["rows"]}


def items_of(name):
    items = FROZEN[name].get("items") or FROZEN[1]["items"]
    return [(tuple(item["key"]), bytes.fromhex(item["value"]), item["version"]) for item in items]


def check(rows, items, secret=KEY):
    found, index_key = read_store(rows, secret)
    wanted = {("i", *blind(index_key, key)): (enc(key), value, version) for key, value, version in items}
    assert found == wanted


def secrets_of(name):
    """Give the keys of frozen rows that have three: each for the package, and for the decoder."""
    phrase = FROZEN[name]["passphrase"]
    yield name, KEY, KEY
    yield name, Passphrase(phrase), unicodedata.normalize("NFKC", phrase).encode()
    yield name, FROZEN[name]["recovery"], bytes.fromhex(FROZEN[name]["recovery_bytes"])


SECRETS = [(1, KEY, KEY), *secrets_of(2), *secrets_of(3)]
"""The formats, with each key that opens the frozen rows: for the package, and for the decoder."""


@pytest.mark.parametrize(("format", "secret"), [(number, secret) for number, _, secret in SECRETS])
def test_frozen_rows_are_read_by_an_independent_decoder(format, secret):
    """The frozen rows mean what the specification says, with each of their keys."""
    check(frozen_rows(format), items_of(format), secret)


@pytest.mark.parametrize(("format", "key"), [(number, key) for number, key, _ in SECRETS])
async def test_frozen_rows_are_read_by_the_store(format, key):
    """The frozen rows of each format are read, verified and written to, for ever, with each of their keys."""
    inner, items = MemoryStore(), items_of(format)
    for place, (value, version) in frozen_rows(format).items():
        inner._items.put(encode(place), Item(place, value, version))
    store = EncryptedStore(inner, key)
    assert {(item.key, item.value, item.version) async for item in store.scan(())} == set(items)
    assert await store.verify() == len(items)
    await store.commit(*(Put(each, b"new", expected=version) for each, _, version in items if each[0] != "runs"))
    assert await EncryptedStore(inner, key).verify() == len(items)


async def test_the_decoder_reads_what_is_written_now():
    """What the package writes today is what the specification says."""
    inner = MemoryStore()
    store = EncryptedStore(inner, KEY, domains={"facts": 5})
    items = [
        (("facts", "o", "agent", "n\0", "s", "k", 3), b"v" * 1000, 1),
        (("runs", "é\ud800", 2**63 - 1), b"", 1),
        (("short",), b"x", 2),
        (("long",), b"v" * 5000, 1),
        (("runs", "id"), b"v" * 300, 1),
    ]
    await store.commit(*(Put(key, value) for key, value, _ in items), Put(("short",), b"x"))
    check({item.key: (item.value, item.version) async for item in inner.scan(())}, items)


@pytest.mark.parametrize("name", ["anchored", "anchored 3"])
async def test_a_frozen_anchored_store_and_its_anchor_are_read_by_both(name):
    """The rows of writers and the anchor mean what the specification says, and stay readable."""
    rows, items, content = frozen_rows(name), items_of(name), bytes.fromhex(FROZEN[name]["anchor"])
    check(rows, items)
    read_anchor(content, rows, KEY)
    inner = MemoryStore()
    for place, (value, version) in rows.items():
        inner._items.put(encode(place), Item(place, value, version))
    store = EncryptedStore(inner, KEY, anchor=Elsewhere(content))
    assert await store.verify() == len(items)
    await store.commit(Put(("new", "one"), b"v"))
    await store.aclose()
    assert await EncryptedStore(inner, KEY, anchor=store._anchor._object).verify() == len(items) + 1


async def test_the_decoder_reads_an_anchored_store_as_it_is_written_now():
    """What writers leave, those that ended and those that did not, and the anchor, are what the specification says."""
    inner, anchor = MemoryStore(), Elsewhere()
    stores = [EncryptedStore(inner, KEY, anchor=anchor) for _ in range(3)]
    for at, store in enumerate(stores):
        await store.commit(Put(("room", "one"), b"v"), Put(("room", str(at)), b"v"))
    await stores[1].aclose()
    await stores[2].commit(DeleteAll(("room", "0")))
    rows = {item.key: (item.value, item.version) async for item in inner.scan(())}
    check(rows, [(("room", "one"), b"v", 3), (("room", "1"), b"v", 1), (("room", "2"), b"v", 1)])
    read_anchor(anchor.content, rows, KEY)
    with pytest.raises(AssertionError):
        read_anchor(anchor.content[:-1] + b"x", rows, KEY)
    for row in [row for row in rows if row[0] == "r"]:
        with pytest.raises((AssertionError, KeyError)):
            read_store({each: found for each, found in rows.items() if each != row}, KEY)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("at", [0, 7, 20, 30, -20])
def test_the_decoder_can_fail(number, at):
    """The decoder refuses what was changed, so that its agreement means something."""
    rows = frozen_rows(number)
    for row, (value, version) in rows.items():
        changed = bytearray(value)
        changed[at] ^= 1
        with pytest.raises((AssertionError, KeyError, InvalidTag)):
            read_store({**rows, row: (bytes(changed), version)}, KEY)
