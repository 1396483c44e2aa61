"""The keys that open a sealed store: several of them, of every kind, added, removed, rotated and destroyed while others use it."""

from __future__ import annotations

import hashlib

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent.errors import (
    DamagedStoreError,
    DestroyedStoreError,
    NewerFormatError,
    NotErasedError,
    RemovedKeyError,
    StoreError,
    WrongKeyError,
)
from graphagent.memory import Concept, EncryptedMemoryProvider, Scope, SingleFact, Subject
from graphagent.store import (
    EncryptedStore,
    Item,
    MemoryStore,
    Passphrase,
    Put,
    SqliteStore,
    new_key,
    new_recovery_key,
)
from graphagent.store._items import encode
from graphagent.store.sealed._format import UnreadableError
from graphagent.store.sealed._key_row import opened_keyset, replacing
from graphagent.store.sealed._key_sources import HeldKey
from graphagent.store.sealed._keyset import Keyset, NoSlotsError, OtherKeyError
from graphagent.store.sealed._secret import Secret, SlotKind
from graphagent.store.sealed._slots import NewerSlotError, Slot
from tests.store.sealed.test_format import KEY as OLD
from tests.store.sealed.test_format import frozen_rows, items_of
from tests.thorough import examples

KEY = bytes(range(32))
A, B = ("room", "ann", 1), ("room", "bob", 1)
KEYS = ("k",)


async def made(inner, key=KEY):
    """Give a store that has one item."""
    store = EncryptedStore(inner, key)
    await store.commit(Put(A, b"a"))
    return store


async def names(store):
    return [each.name for each in await store.keys.list()]


async def opens(inner, key):
    return (await EncryptedStore(inner, key).get(A)).value == b"a"


def put_row(inner, value, version=None):
    inner._items.put(encode(KEYS), Item(KEYS, value, version or inner._items.get(encode(KEYS)).version))


async def test_keys_of_every_kind_open_one_store(tmp_path):
    """A key, a pass phrase in any Unicode form and a recovery key in any spelling open one store, and are listed without secrets."""
    async with EncryptedStore(SqliteStore(tmp_path / "s.db"), KEY) as store:
        assert await store.keys.list() == ()
        recovery = new_recovery_key()
        await store.keys.add("recovery", recovery)
        await store.commit(Put(A, b"a"))
        await store.keys.add("phone", Passphrase("Ｃａｆe\u0301 CANARY-WORDS"))
        listed = await store.keys.list()
    assert [(each.name, each.kind, each.current) for each in listed] == [
        ("main", "key", True),
        ("recovery", "recovery", False),
        ("phone", "passphrase", False),
    ]
    assert [each.added for each in listed] == sorted(each.added for each in listed)
    assert recovery not in repr(listed)
    spelled = recovery.lower().replace("-", " ").replace("0", "o").replace("1", "l")
    for key in (KEY, Passphrase("Caf\u00e9 CANARY-WORDS"), recovery, spelled):
        async with EncryptedStore(SqliteStore(tmp_path / "s.db"), key) as store:
            assert (await store.get(A)).value == b"a"
            assert await store.verify() == 1
    for key in (Passphrase("cafe\u0301 CANARY-WORDS"), new_recovery_key(), new_key()):
        async with EncryptedStore(SqliteStore(tmp_path / "s.db"), key) as store:
            with pytest.raises(WrongKeyError) as caught:
                await store.get(A)
        assert "CANARY" not in str(caught.value) + repr(key if isinstance(key, Passphrase) else "")


@pytest.mark.every_loop
async def test_a_key_is_rotated_while_others_use_the_store(tmp_path):
    """After a rotation the old key opens nothing, not even what is left in the file, and says when it was removed."""
    path, new = tmp_path / "s.db", new_key()
    async with EncryptedStore(SqliteStore(path), KEY) as one, EncryptedStore(SqliteStore(path), KEY) as two:
        await one.commit(Put(A, b"a"))
        assert await two.get(A)
        async with SqliteStore(path) as inner:
            old_row = (await inner.get(KEYS)).value
        assert old_row[100:200] in b"".join(file.read_bytes() for file in tmp_path.iterdir())
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(one.commit, Put(("room", str(number), 1), b"x"))
            tasks.start_soon(one.keys.rotate, new)
        assert old_row[100:200] not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
        assert await one.verify() == 21
        assert [(each.name, each.current) for each in await one.keys.list()] == [("main", True)]
        for refused in (two.commit(Put(B, b"b")), two.keys.list(), two.keys.rotate(new_key()), two.verify()):
            with pytest.raises(RemovedKeyError, match="'main', and was removed on 2") as caught:
                await refused
        assert caught.value.name == "main"
    async with EncryptedStore(SqliteStore(path), new) as store:
        assert await store.verify() == 21


@pytest.mark.every_loop
async def test_of_two_rotations_at_once_one_wins():
    """If two processes rotate the same key at the same time, one has replaced it and the other is told so."""
    inner, keys = MemoryStore(), [new_key(), new_key()]
    stores = [await made(inner), await made(inner)]
    failed = []

    async def rotate(store, key):
        try:
            await store.keys.rotate(key)
        except RemovedKeyError:
            failed.append(key)

    async with anyio.create_task_group() as tasks:
        for store, key in zip(stores, keys, strict=True):
            tasks.start_soon(rotate, store, key)
    [lost] = failed
    [won] = set(keys) - {lost}
    assert await opens(inner, won)
    with pytest.raises(WrongKeyError):
        await opens(inner, lost)


async def test_two_keys_are_added_at_once():
    """Keys that two processes add at the same time are both there."""
    inner = MemoryStore()
    one, two = await made(inner), await made(inner)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.keys.add, "one", new_key())
        tasks.start_soon(two.keys.add, "two", new_key())
    assert sorted(await names(one)) == ["main", "one", "two"]


async def test_a_lost_pass_phrase():
    """With the recovery key, a pass phrase that is lost is replaced; the recovery key itself is not replaced by accident."""
    inner, recovery = MemoryStore(), new_recovery_key()
    await (await made(inner, Passphrase("lost words"))).keys.add("recovery", recovery)
    store = EncryptedStore(inner, recovery)
    with pytest.raises(ValueError, match="recovery key"):
        await store.keys.rotate(Passphrase("new words"))
    await store.keys.remove("main")
    await store.keys.add("main", Passphrase("new words"))
    assert await opens(inner, Passphrase("new words"))
    with pytest.raises(RemovedKeyError):
        await opens(inner, Passphrase("lost words"))
    await store.keys.rotate(again := new_recovery_key())
    assert await opens(inner, again)


async def test_a_destroyed_store(tmp_path):
    """After destroying its keys, nothing of a store is in its files, and whoever has it open or opens it is told so."""
    path = tmp_path / "s.db"
    async with EncryptedStore(SqliteStore(path), KEY) as one, EncryptedStore(SqliteStore(path), KEY) as two:
        await one.commit(Put(A, b"a" * 5000))
        assert await two.get(A)
        async with SqliteStore(path) as inner:
            bytes_of_it = [item.value[80:120] async for item in inner.scan(())]
        await one.keys.destroy()
        on_disk = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        assert [part for part in bytes_of_it if part in on_disk] == []
        for store in (one, two):
            for refused in (
                store.get(A),
                store.commit(Put(B, b"b")),
                store.keys.list(),
                store.keys.destroy(),
                store.verify(),
            ):
                with pytest.raises(DestroyedStoreError, match="destroyed on 2"):
                    await refused
    async with EncryptedStore(SqliteStore(path), new_key()) as store:
        with pytest.raises(DestroyedStoreError):
            await store.get(A)


async def test_facts_have_keys_too(tmp_path):
    """The keys of the provider of encrypted facts are those of its store."""
    user, app, city = Subject("user", "the user"), Scope.product("app"), Concept("city", "where the user lives")
    new = new_key()
    async with EncryptedMemoryProvider(tmp_path, key=KEY) as provider:
        await provider.save(SingleFact(city, "Reykjavik"), subject=user, scope=app)
        await provider.keys.rotate(new, name="laptop")
    async with EncryptedMemoryProvider(tmp_path, key=new) as provider:
        assert [each.name for each in await provider.keys.list()] == ["laptop"]
        assert [fact.value for fact in await provider.load(city, user, app)] == ["Reykjavik"]


async def test_what_cannot_be_done_with_keys():
    """A name that is taken or unknown, a key that is there already, and the key in use are refused, and nothing is changed."""
    inner = MemoryStore()
    store = await made(inner)
    await store.keys.add("other", other := new_key())
    before = await inner.get(KEYS)
    for refused, why in (
        (lambda: store.keys.add("other", new_key()), "already"),
        (lambda: store.keys.add("new", other), "as 'other'"),
        (lambda: store.keys.add("", new_key()), "1 to 64"),
        (lambda: store.keys.add("a\nb", new_key()), "1 to 64"),
        (lambda: store.keys.add("x" * 65, new_key()), "1 to 64"),
        (lambda: store.keys.add("new", "no key"), "32 bytes"),
        (lambda: store.keys.remove("third"), "'main', 'other'"),
        (lambda: store.keys.remove("main"), "rotate"),
        (lambda: store.keys.rotate(KEY), "already"),
        (lambda: store.keys.rotate(other), "already"),
        (lambda: store.keys.rotate(new_key(), name="other"), "already"),
    ):
        with pytest.raises(ValueError, match=why):
            await refused()
    assert await inner.get(KEYS) == before
    for number in range(30):
        await store.keys.add(f"key {number}", new_key())
    with pytest.raises(ValueError, match="at most 32"):
        await store.keys.add("one too many", new_key())
    for _ in range(70):
        await store.keys.rotate(new_key())
    assert len((await inner.get(KEYS)).value) < 2**17
    assert len(await names(store)) == 32


async def test_names_that_look_the_same_are_the_same():
    """An accent of its own or in its letter makes no other name: neither two keys that nobody can tell apart, nor one that is not found."""
    store = await made(MemoryStore())
    await store.keys.add("caf\u00e9", new_key())
    with pytest.raises(ValueError, match="already"):
        await store.keys.add("cafe\u0301", new_key())
    await store.keys.remove("cafe\u0301")
    assert await names(store) == ["main"]


async def test_a_rotation_that_did_not_erase_is_made(tmp_path):
    """If the bytes of the old key cannot be erased yet, the new one opens the store all the same."""

    class Unerasing(MemoryStore):
        async def commit(self, *changes):
            await super().commit(*changes)
            if len(changes) == 3:
                raise NotErasedError("a file", "a full disk")

    inner, new = Unerasing(), new_key()
    store = await made(inner)
    with pytest.raises(NotErasedError):
        await store.keys.rotate(new)
    await store.commit(Put(A, b"a"))
    assert await opens(inner, new)


async def test_a_key_row_of_a_newer_version():
    """A format, a kind of slot or parameters that this version does not know are no wrong key: the error says to upgrade."""
    inner = MemoryStore()
    await made(inner)
    row = (await inner.get(KEYS)).value
    secret = Secret(SlotKind.KEY, KEY)
    head = row[:7] + b"\x04" + row[8:24]
    fourth_format = head + hashlib.sha256(head).digest()[:8] + b"who knows"
    unknown_kind = row[:41] + b"\x09" + row[42:-16]
    unknown_kind += hashlib.sha256(unknown_kind).digest()[:16]
    for newer, key in ((fourth_format, KEY), (unknown_kind, KEY), (unknown_kind, new_key())):
        put_row(inner, newer)
        with pytest.raises(NewerFormatError, match="Upgrade") as caught:
            await opens(inner, key)
        assert not isinstance(caught.value, DamagedStoreError)
    put_row(inner, row)
    assert await opens(inner, KEY)
    keyset = Keyset.open(row, 1, secret)
    newer_slot = keyset.with_slot("newer", Secret(SlotKind.RECOVERY, b"x" * 20), now=1)
    [main, other] = newer_slot.slots
    newer_slot = Keyset(
        keyset.store_id, keyset.keys, (main, Slot(9, other.number, 1, "newer", b"", other.public)), (), 1,
        newer_slot.authenticators,
    )  # fmt: skip
    put_row(inner, newer_slot.row(1))
    store = EncryptedStore(inner, KEY)
    assert [each.kind for each in await store.keys.list()] == ["key", "newer"]
    await store.keys.rotate(third := new_key())
    assert [each.kind for each in await EncryptedStore(inner, third).keys.list()] == ["newer", "key"]


async def test_only_who_has_a_key_can_write_a_key_row():
    """A key row that someone without a key made of public keys, or one put back under another version, is damage."""
    inner = MemoryStore()
    store = await made(inner)
    await store.keys.add("other", new_key())
    row = await inner.get(KEYS)
    keyset = await opened_keyset(row, HeldKey(KEY), "a store")
    forged = Keyset.fresh(Secret(SlotKind.KEY, new_key().encode()[:32]), now=1)
    forged = Keyset(
        keyset.store_id, forged.keys, (*keyset.slots, *forged.slots), (), 1,
        {slot.number: bytes(32) for slot in (*keyset.slots, *forged.slots)},
    )  # fmt: skip
    put_row(inner, forged.row(row.version))
    with pytest.raises(DamagedStoreError, match="without its keys"):
        await opens(inner, KEY)
    put_row(inner, row.value, version=row.version + 1)
    with pytest.raises(DamagedStoreError):
        await opens(inner, KEY)


@pytest.mark.parametrize("flipped", [0, 1, 2, 3])
async def test_every_byte_of_the_key_row_matters(flipped):
    """Whatever byte of the key row is changed, or cut off, opening the store is refused."""
    inner = MemoryStore()
    await (await made(inner)).keys.rotate(key := new_key())
    row = (await inner.get(KEYS)).value
    for at in range(flipped, len(row), 37):
        for changed in (row[:at] + bytes([row[at] ^ 1]) + row[at + 1 :], row[:at]):
            put_row(inner, changed)
            with pytest.raises(StoreError):
                await opens(inner, key)


class Watching(Secret):
    """A pass phrase that records with which parameters it would be stretched."""

    __slots__ = ("asked",)

    def __init__(self):
        super().__init__(SlotKind.PASSPHRASE, b"words")
        self.asked = []

    def stretched(self, salt, parameters, stretch):
        self.asked.append(
            (int.from_bytes(parameters[1:5], "big"), int.from_bytes(parameters[5:9], "big"), parameters[9])
        )
        return bytes(32)


def argon2(passes, kib, lanes):
    """Give the parameters of a slot that opens with a pass phrase."""
    return b"\x01" + passes.to_bytes(4, "big") + kib.to_bytes(4, "big") + bytes([lanes])


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 2, 3, 7]),
            st.binary(max_size=64)
            | st.builds(argon2, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 255)),
            st.binary(max_size=256),
            st.integers(0, 2**64 - 1),
        ),
        max_size=40,
    ),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=300),
)
def test_a_hostile_key_row_costs_nothing(slots, destroyed, rest):
    """Whatever a key row says, also about the memory that a pass phrase takes, opening it is refused and takes little."""
    body = b"gakeys\0\x02" + bytes(16)
    body += hashlib.sha256(body).digest()[:8] + destroyed.to_bytes(8, "big") + bytes([len(slots)])
    for number, (kind, parameters, name, added) in enumerate(slots):
        named = bytes([kind]) + number.to_bytes(4, "big") + added.to_bytes(8, "big")
        named += len(name).to_bytes(2, "big") + name + bytes([len(parameters)]) + parameters
        body += named + bytes(1216 + 1168)
    body += b"\0" + bytes(4) + bytes(32 * len(slots)) if len(rest) % 2 else rest
    row = body + hashlib.sha256(body).digest()[:16]
    for secret in (Secret(SlotKind.KEY, KEY), watching := Watching()):
        with pytest.raises((UnreadableError, OtherKeyError, NewerSlotError, NoSlotsError)):
            Keyset.open(row, 1, secret)
    for passes, kib, lanes in watching.asked:
        assert kib <= 2**17
        assert passes * kib <= 2**20
        assert lanes <= 16


async def test_a_store_of_format_1_is_upgraded_by_the_first_change(tmp_path):
    """A key row of format 1 is read, and written in format 2 when a key is added."""
    inner = MemoryStore()
    for place, (value, version) in frozen_rows(1).items():
        inner._items.put(encode(place), Item(place, value, version))
    store = EncryptedStore(inner, OLD)
    [first] = await store.keys.list()
    assert (first.name, first.kind, first.added, first.current) == ("main", "key", None, True)
    assert (await inner.get(KEYS)).value[7] == 1
    await store.keys.add("words", Passphrase("some words"))
    assert (await inner.get(KEYS)).value[7] == 2
    for key in (OLD, Passphrase("some words")):
        assert await EncryptedStore(inner, key).verify() == len(items_of(1))
    with pytest.raises(WrongKeyError):
        await opens(inner, new_key())


@pytest.mark.every_loop
async def test_an_operation_continues_while_a_pass_phrase_is_stretched():
    """The event loop goes on while a pass phrase is made into a key."""
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await anyio.sleep(0.001)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        await made(MemoryStore(), Passphrase("some words"))
        tasks.cancel_scope.cancel()
    assert ticks > 5


def test_replacing_erases_only_when_asked():
    """A change of the keyset is one put, unless the bytes of the one before are to be erased."""
    keyset = Keyset.fresh(Secret(SlotKind.KEY, KEY), now=1)
    assert [type(change).__name__ for change in replacing(1, keyset)] == ["Put"]
    assert [type(change).__name__ for change in replacing(1, keyset, erased=True)] == ["Put", "Put", "DeleteAll"]
