"""Any sequence of commits and reads leaves every store as it leaves a dictionary."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphagent.errors import ConflictError
from graphagent.store import Delete, DeleteAll, EncryptedStore, Exists, Item, MemoryStore, Put, SqliteStore
from graphagent.store._items import bounds, decode, encode
from graphagent.store.postgres import PostgresStore
from tests import postgres
from tests.thorough import examples

segments = st.one_of(st.sampled_from(["", "a", "b", "\0", "\0\xff", "ab"]), st.integers(0, 3))
keys = st.lists(segments, min_size=1, max_size=5).map(tuple)
values = st.sampled_from([b"", b"v", b"\0\xff", b"w" * 400, b"x" * 401, b"y" * 5000])
changes = st.one_of(
    st.builds(Put, keys, values, st.none() | st.integers(0, 2), st.none() | st.integers(1, 3)),
    st.builds(Put, keys, values, st.integers(1, 2), st.none() | st.integers(1, 2), values),
    st.builds(Exists, keys, st.none() | st.integers(1, 2)),
    st.builds(Delete, keys, st.none() | st.integers(0, 2)),
    st.builds(DeleteAll, st.lists(segments, max_size=3).map(tuple)),
)
steps = st.lists(st.one_of(st.lists(changes, min_size=1, max_size=4), st.just("again")), max_size=12)


def apply(model, batch):
    """Give what a commit makes of a dictionary, or None for a conflict."""
    model = dict(model)
    for change in batch:
        if isinstance(change, DeleteAll):
            size = len(change.prefix)
            model = {key: item for key, item in model.items() if key[:size] != change.prefix}
            continue
        version = model[change.key].version if change.key in model else 0
        expected = (change.version or version or 1) if isinstance(change, Exists) else change.expected
        if expected not in (None, version):
            return None
        if getattr(change, "before", None) not in (None, version and model[change.key].value):
            return None
        if isinstance(change, Put):
            model[change.key] = Item(change.key, change.value, change.version or version + 1)
        elif isinstance(change, Delete):
            model.pop(change.key, None)
    return model


def stores_of(kind, place):
    """Give one or two stores over the same items."""
    if kind == "sqlite":
        return [SqliteStore(place / "s.db", synchronous="NORMAL")]
    if kind == "memory":
        return [MemoryStore()]
    if kind == "two in PostgreSQL":
        return [PostgresStore(place), PostgresStore(place)]
    inner = MemoryStore()
    return [EncryptedStore(inner, bytes(32), domains={"a": 3}) for _ in range(2 if kind == "sealed twice" else 1)]


@pytest.mark.parametrize(
    "kind",
    ["memory", "sqlite", "sealed", "sealed twice", pytest.param("two in PostgreSQL", marks=pytest.mark.thorough)],
)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=steps, probes=st.lists(keys, max_size=3))
def test_a_store_is_a_dictionary(kind, plan, probes):
    """Commits, conflicts, reads, scans and new beginnings agree with a dictionary step by step."""

    async def run(place):
        stores = stores_of(kind, place)
        model = {}
        for number, step in enumerate(plan):
            store = stores[number % len(stores)]
            if step == "again":
                await store.aclose()
                continue
            after = apply(model, step)
            if after is None:
                with pytest.raises(ConflictError):
                    await store.commit(*step)
            else:
                await store.commit(*step)
                model = after
            for each in stores:
                found = [item async for item in each.scan(())]
                assert {item.key: item for item in found} == model
                assert len(found) == len(model)
        for key in [*probes, *model]:
            for store in stores:
                assert await store.get(key) == model.get(key)
                for size in range(len(key) + 1):
                    prefix = key[:size]
                    wanted = {each for each in model if each[:size] == prefix}
                    forward = [item.key async for item in store.scan(prefix)]
                    assert sorted(forward, key=repr) == sorted(wanted, key=repr)
                    assert [item.key async for item in store.scan(prefix, reverse=True)] == forward[::-1]
                    middle = len(forward) // 2
                    if forward:
                        rest = [item.key async for item in store.scan(prefix, after=forward[middle], limit=2)]
                        assert rest == forward[middle + 1 : middle + 3]
        for store in stores:
            await store.commit(Put(("a", "the file"), b""))  # if no step has used the store
            await store.commit(Delete(("a", "the file")))
            assert await store.verify() == len(model)
            await store.aclose()

    with tempfile.TemporaryDirectory() as folder:
        if kind != "two in PostgreSQL":
            anyio.run(run, Path(folder))
            return
        with postgres.database() as dsn:
            anyio.run(run, dsn)


wide = st.one_of(st.text(max_size=6), st.text(alphabet="\0\x01\x02\xffa\ud800", max_size=6), st.integers(0, 2**63 - 1))
wide_keys = st.lists(wide, max_size=4).map(tuple)


@settings(max_examples=examples(400))
@given(wide_keys, wide_keys)
def test_encoded_keys(one, two):
    """Encoding is one to one, decoding undoes it, prefixes stay prefixes, ints sort as numbers."""
    assert decode(encode(one)) == one
    assert decode(encode(one + two), len(encode(one))) == two
    assert (encode(one) == encode(two)) == (one == two)
    low, high = bounds(one)
    assert (low <= encode(two) < high) == (two[: len(one)] == one)
    if one[:-1] == two[:-1] and one and two and isinstance(one[-1], int) and isinstance(two[-1], int):
        assert (encode(one) < encode(two)) == (one[-1] < two[-1])


@settings(max_examples=examples(400))
@given(
    st.one_of(
        st.binary(max_size=20),
        st.lists(st.sampled_from([b"\x01", b"\x02", b"\0", b"\xff", b"a"]), max_size=12).map(b"".join),
    )
)
def test_decoding_is_strict(place):
    """Bytes either are those of exactly one key, or are refused with a ValueError."""
    try:
        key = decode(place)
    except ValueError:
        return
    assert encode(key) == place
