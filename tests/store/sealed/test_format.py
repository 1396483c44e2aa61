"""Frozen rows, read by a decoder that was written from docs/format.md and shares no code with the package."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from graphagent.store import EncryptedStore, Item, MemoryStore, Put
from graphagent.store._encoding import encode

FROZEN = json.loads(Path(__file__).with_name("format_1.json").read_text())
KEY = base64.b64decode(FROZEN["key"])


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
    assert len(padded) == (256 if size <= 256 else -(-size // step) * step)
    assert not any(padded[size:])
    return padded[4:size]


def read_keys(data):
    """Give the keys that open by their number, the primary one under None, and what stands behind them."""
    keys = {}
    for at in range(1, 1 + 37 * data[0], 37):
        state, name, key = data[at], number(data[at + 1 : at + 5]), data[at + 5 : at + 37]
        keys |= {name: key} if state != 4 else {}
        keys |= {None: key} if state == 1 else {}
    return keys, data[1 + 37 * data[0] :]


def read_key_row(row, key):
    head, slots = row[:32], row[33:]
    assert head[:8] == b"gakeys\0\x01"
    assert head[24:] == hashlib.sha256(head[:24]).digest()[:8]
    assert row[32] == 1
    behind = 7 + number(slots[5:7])
    end = behind + 2 + number(slots[behind : behind + 2])
    assert slots[0] == 1
    assert slots[end:] == hashlib.sha256(head + slots[:end]).digest()[:16]
    plain = unseal({number(slots[1:5]): key}, head[8:24], b"slot", slots[:behind], 0, slots[behind + 2 : end])
    purposes, rest = {}, plain[1:]
    for _ in range(plain[0]):
        purposes[rest[0]], rest = read_keys(rest[1:])[0], read_keys(rest[1:])[1]
    assert not rest
    return head[8:24], purposes


def blind(index_key, key):
    chain, blinded = bytes(32), []
    for segment in key:
        chain = hmac.digest(index_key, chain + enc((segment,)), "sha256")
        shown = base64.urlsafe_b64encode(chain[:16]).decode().rstrip("=")
        blinded.append(segment if isinstance(segment, int) else shown)
    return tuple(blinded)


def read_store(rows, key):
    """Give every item of a sealed store, (clear key bytes, value, version), by its row; all that can be checked is."""
    store_id, keys = read_key_row(rows["k",][0], key)
    root = unseal(keys[1], store_id, b"root", enc(("r",)), rows["r",][1], rows["r",][0])
    items, domains = {}, [row for row in rows if row[0] == "d"]
    assert number(root[:8]) == len(domains)
    total = sum(number(hmac.digest(keys[3][None], b"\x02" + enc(row), "sha256")) for row in domains)
    assert number(root[8:40]) == total % 2**256
    for row in domains:
        plain = unseal(keys[1], store_id, b"domain", enc(row), rows[row][1], rows[row][0])
        data_keys, rest = read_keys(plain[41:])
        path = ("i", *row[1:-2])
        inside = [each for each in rows if each == path or (each[: len(path)] == path and plain[0] == 0)]
        sums = 0
        for each in inside:
            record, version = rows[each]
            clear = unseal(data_keys, store_id, b"item", enc(each), version, record)
            size = number(clear[:4])
            items[each] = clear[4 : 4 + size], clear[4 + size :], version
            to = b"\x01" + version.to_bytes(8, "big") + record[5:29] + record[-16:] + enc(each)
            sums += number(hmac.digest(keys[3][None], to, "sha256"))
        assert (rest, number(plain[1:9]), number(plain[9:41])) == (b"", len(inside), sums % 2**256)
    return items, keys[2][None]


# The tests


def frozen_rows(kind="rows"):
    return {tuple(row["key"]): (bytes.fromhex(row["value"]), row["version"]) for row in FROZEN[kind]}


def check(rows, items):
    found, index_key = read_store(rows, KEY)
    wanted = {("i", *blind(index_key, key)): (enc(key), value, version) for key, value, version in items}
    assert found == wanted


ITEMS = [(tuple(item["key"]), bytes.fromhex(item["value"]), item["version"]) for item in FROZEN["items"]]


def test_frozen_rows_are_read_by_an_independent_decoder():
    """The frozen rows mean what the specification says."""
    check(frozen_rows(), ITEMS)


async def test_frozen_rows_are_read_by_the_store():
    """The frozen rows of format 1 are read, verified and written to, for ever."""
    inner = MemoryStore()
    for key, (value, version) in frozen_rows().items():
        inner._items.put(encode(key), Item(key, value, version))
    store = EncryptedStore(inner, KEY)
    assert {(item.key, item.value, item.version) async for item in store.scan(())} == set(ITEMS)
    assert await store.verify() == len(ITEMS)
    await store.commit(Put(ITEMS[0][0], b"new", expected=ITEMS[0][2]))
    assert await EncryptedStore(inner, KEY).verify() == len(ITEMS)


async def test_the_decoder_reads_what_is_written_now():
    """What the package writes today is what the specification says."""
    inner = MemoryStore()
    store = EncryptedStore(inner, KEY, domains={"facts": 5})
    items = [
        (("facts", "o", "agent", "n\0", "s", "k", 3), b"v" * 1000, 1),
        (("runs", "é\ud800", 2**63 - 1), b"", 1),
        (("short",), b"x", 2),
        (("runs", "id"), b"v" * 300, 1),
    ]
    await store.commit(*(Put(key, value) for key, value, _ in items), Put(("short",), b"x"))
    check({item.key: (item.value, item.version) async for item in inner.scan(())}, items)


@pytest.mark.parametrize("at", [0, 7, 20, 30])
def test_the_decoder_can_fail(at):
    """The decoder refuses what was changed, so that its agreement means something."""
    rows = frozen_rows()
    for row, (value, version) in rows.items():
        changed = value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
        with pytest.raises((AssertionError, KeyError)):
            read_store({**rows, row: (changed, version)}, KEY)
