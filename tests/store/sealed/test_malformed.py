"""Frozen sealed stores that are wrong in one way each: every reader refuses each of them, and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag

from graphagent.errors import StoreError
from graphagent.store import EncryptedStore, Item, MemoryStore
from graphagent.store._items import encode
from tests.store.sealed import malformed
from tests.store.sealed.test_format import KEY, frozen_rows, read_store

RANDOM = ("the key row: keys of somebody else, sealed to all slots", "the key row: row keys of somebody else")
"""Cases with a new random key each time they are made."""
PAGE = Path(__file__).parents[3] / "docs" / "format.md"
CASES = json.loads(malformed.FILE.read_text())


def inner_of(rows):
    inner = MemoryStore()
    for place, (value, version) in rows.items():
        inner._items.put(encode(place), Item(place, value, version))
    return inner


def test_the_page_says_how_many_there_are():
    """There are as many cases as the page of the format says, with a name each."""
    names = {(case["format"], case["wrong"]) for case in CASES}
    page = PAGE.read_text("utf-8")
    sealed = sum(name.startswith("sealed ") for _, name in names)
    rows = sum(name.startswith("the key row") for _, name in names)
    assert len(names) == len(CASES)
    assert f"{len(CASES)} sealed stores with one error" in page
    assert f"| someone with the key | {sealed} |" in page
    assert f"| someone without a key who can compute every checksum | {rows} |" in page
    assert f"| someone without a key | {len(CASES) - sealed - rows} |" in page


def test_the_frozen_cases_are_those_that_are_made_today():
    """The frozen rows and the cases fit: each case that is made from the frozen rows is in the file, and the other way round."""
    keys = {(case["format"], case["wrong"]) for case in CASES}
    made = {(format_, name): rows for format_, name, rows in malformed.cases()}
    assert made.keys() == keys
    for case in CASES:
        wanted = made[case["format"], case["wrong"]]
        if case["wrong"] not in RANDOM:
            assert malformed.unpacked(case) == wanted, case["wrong"]


def test_an_independent_decoder_refuses_each():
    """The decoder that was written from the specification alone refuses every malformed store."""
    accepted = []
    for case in CASES:
        try:
            read_store(malformed.unpacked(case), KEY)
        except (AssertionError, KeyError, ValueError, IndexError, InvalidTag):
            continue
        accepted.append((case["format"], case["wrong"]))
    assert accepted == []


@pytest.mark.parametrize("format_", malformed.FORMATS)
async def test_the_store_refuses_each_and_changes_nothing(format_):
    """`verify` raises a StoreError for each, reading returns nothing that is wrong, and the rows stay as they are."""
    right = {item.key: item.value async for item in EncryptedStore(inner_of(frozen_rows(format_)), KEY).scan(())}
    accepted, wrong = [], []
    for case in CASES:
        if case["format"] != format_:
            continue
        rows = malformed.unpacked(case)
        inner = inner_of(rows)
        try:
            await EncryptedStore(inner, KEY).verify()
            accepted.append(case["wrong"])
        except StoreError:
            pass
        try:
            found = {item.key: item.value async for item in EncryptedStore(inner, KEY).scan(())}
            if any(right.get(key) != value for key, value in found.items()):
                wrong.append(case["wrong"])
        except StoreError:
            pass
        assert {item.key: (item.value, item.version) async for item in inner.scan(())} == rows
    assert (accepted, wrong) == ([], [])
