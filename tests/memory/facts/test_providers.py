from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap

import anyio
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphagent.errors import DamagedStoreError, StoreError, WrongKeyError
from graphagent.memory import (
    EVERYTHING,
    Concept,
    EncryptedMemoryProvider,
    FactProvider,
    FactType,
    FileMemoryProvider,
    KeepingProvider,
    MultipleFacts,
    NoMemory,
    Scope,
    SingleFact,
    Source,
    StoreMemoryProvider,
    Subject,
)
from graphagent.memory.facts import _provider_none
from graphagent.store import DeleteAll, EncryptedStore, MemoryStore, Put, SqliteStore
from graphagent.store._items import checked
from graphagent.testing import check_provider
from tests import forkserver
from tests.memory.facts.test_file_provider import on_disk
from tests.thorough import examples

KEY = b"0123456789abcdef0123456789abcdef"
USER = Subject("user", "the user", priority=1)
CITY = Concept("city", "where the user lives")
TOOLS = Concept("tools", "tools the user works with", FactType.MULTIPLE)
APP = Scope.product("my-app")

MAKERS = {
    "file": lambda root: FileMemoryProvider(root),
    "sqlite": lambda root: StoreMemoryProvider(SqliteStore(root / "facts.db")),
    "encrypted": lambda root: EncryptedMemoryProvider(root, key=KEY),
}


@pytest.fixture(params=MAKERS)
def make(request, tmp_path):
    """Makes one more handle on one folder of facts."""
    return lambda: MAKERS[request.param](tmp_path / "root")


async def test_every_provider_keeps_the_contract(make):
    """One handle, and a new one for every call, keep all promises."""
    await check_provider(make)
    one = make()
    await check_provider(lambda: one)
    assert isinstance(one, KeepingProvider)
    assert isinstance(one, FactProvider)


async def test_the_memory_store_keeps_the_contract():
    """Facts in a store that is in memory keep all promises."""
    store = MemoryStore()
    await check_provider(lambda: StoreMemoryProvider(store))


async def test_handles_see_one_another(make):
    """What one handle saves or forgets, another one sees at its next call, though both remember what they read."""
    one, two = make(), make()
    for number in range(12):
        for saver, reader in ((one, two), (two, one)):
            await saver.save(SingleFact(CITY, f"{number}"), USER, APP)
            await saver.save(MultipleFacts(TOOLS, [f"{number}-{id(saver)}"]), USER, APP)
            assert [fact.value for fact in await reader.load(CITY, USER, APP)] == [f"{number}"]
            expected = [f"{n}-{id(each)}" for n in range(number + 1) for each in (one, two)]
            expected = expected if saver is two else expected[:-1]
            assert [fact.values for fact in await reader.load(TOOLS, USER, APP)] == [tuple(expected)]
        if number == 5:
            behind = make()
            assert len(await behind.load_all(USER, APP)) == 2
    assert [fact.version for fact in await behind.load_all(USER, APP)] == [24, 24]
    await one.forget(concept=TOOLS)
    assert [fact.concept for fact in await two.load_all(USER, APP)] == [CITY]
    await one.save(MultipleFacts(TOOLS, ["new"]), USER, APP)
    assert [(fact.values, fact.version) for fact in await two.load(TOOLS, USER, APP)] == [(("new",), 1)]
    await two.forget(everything=True)
    assert await one.load_all(USER, APP) == await one.load(CITY, USER, APP) == await behind.load(TOOLS, USER, APP) == []


async def test_a_concept_may_change_its_kind(make):
    """A single fact takes the place of several; several join a single one."""
    provider = make()
    single = Concept("tools", "the tool")
    await provider.save(MultipleFacts(TOOLS, ["git", "vim"]), USER, APP)
    await provider.save(SingleFact(single, "ed"), USER, APP)
    for handle in (provider, make()):
        assert [fact.values for fact in await handle.load(TOOLS, USER, APP)] == [("ed",)]
    await provider.save(MultipleFacts(TOOLS, ["make"]), USER, APP)
    for handle in (provider, make()):
        assert [fact.values for fact in await handle.load(single, USER, APP)] == [("ed", "make")]
        assert [fact.values for fact in await handle.load_all(USER, APP)] == [("ed", "make")]


async def test_concepts_come_in_the_order_of_first_saving(make):
    """load_all is stable: a new version of a concept does not move it."""
    provider = make()
    for keyword in ("zebra", "ant", "mole", "zebra", "ant"):
        await provider.save(SingleFact(Concept(keyword), keyword), USER, APP)
    for handle in (provider, make()):
        assert [fact.value for fact in await handle.load_all(USER, APP)] == ["zebra", "ant", "mole"]


async def test_forgetting_leaves_no_byte(make, tmp_path):
    """Forgotten values and their names are in no file, whatever they were forgotten by."""
    provider = make()
    secret = Concept("secret-keyword", "secret-description")
    await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
    for fits in (
        {"concept": secret},
        {"subject": Subject("secret-subject")},
        {"scope": Scope.agent("secret-scope")},
        {"owner": "secret-owner", "everything": True},
    ):
        subject, scope, owner = fits.get("subject", USER), fits.get("scope", APP), fits.get("owner", "")
        for number in range(3):
            await provider.save(SingleFact(secret, f"secret-value-{number}" * 50), subject, scope, owner=owner)
        receipt = await provider.forget(**fits)
        assert receipt.facts == 3
        assert receipt.bytes > 3 * 50 * len("secret-value-0")
        assert await make().load_all(subject, scope, owner=owner) == (
            [] if fits.keys() - {"concept"} else await make().load(CITY, USER, APP)
        )
        assert b"secret" not in on_disk(tmp_path)
    assert [fact.value for fact in await provider.load(CITY, USER, APP)] == ["Oslo"]
    assert await provider.verify() == 1


@pytest.mark.parametrize("given", range(8))
@pytest.mark.parametrize("is_sealed", [False, True])
async def test_forgetting_leaves_no_item(is_sealed, given):
    """Whatever says what to forget, no version, no keyword in a list and no row of a domain is left in the store."""
    inner = MemoryStore()
    provider = StoreMemoryProvider(EncryptedStore(inner, KEY) if is_sealed else inner)
    await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
    await provider.save(SingleFact(CITY, "Moss"), USER, APP)
    fits = [("concept", CITY), ("subject", USER), ("scope", APP)]
    wanted = {name: each for bit, (name, each) in enumerate(fits) if given & 1 << bit}
    receipt = await provider.forget(**wanted, everything=not wanted)
    assert receipt.facts == 2
    left = [item.key[0] async for item in inner.scan(())]
    assert left == (["k", "r", "r"] if is_sealed else [])  # the keys, the base and the writer of an encrypted store


async def test_an_import_is_lossless_and_adds_behind(make):
    """Into what is empty, an export comes back as it was; into what is not, it comes behind, and nothing is lost."""
    provider, other = make(), StoreMemoryProvider(MemoryStore())
    for number in range(3):
        await provider.save(SingleFact(CITY, f"mine-{number}", source=Source("r", number)), USER, APP, owner="ann")
        await other.save(SingleFact(CITY, f"other-{number}"), USER, APP, owner="ann")
    history = await provider.history(CITY, USER, APP, owner="ann")
    copy = StoreMemoryProvider(MemoryStore())
    records = [record async for record in provider.export()]
    assert orjson.loads(orjson.dumps(records)) == records
    assert await copy.import_(orjson.loads(orjson.dumps(records))) == 3
    assert await copy.history(CITY, USER, APP, owner="ann") == history
    partly = make()
    await partly.forget(owner="ann", everything=True)
    assert await partly.import_(records[1:]) == 2
    assert await partly.history(CITY, USER, APP, owner="ann") == history[:2]
    await partly.forget(owner="ann", everything=True)
    assert await partly.import_(records) == 3
    others = [record async for record in other.export(owner="ann")]
    assert (await provider.import_(others), await provider.import_(others + others)) == (3, 0)
    merged = await make().history(CITY, USER, APP, owner="ann")
    assert [(fact.value, fact.version) for fact in merged] == [
        *((f"other-{number}", number + 4) for number in (2, 1, 0)),
        *((fact.value, fact.version) for fact in history),
    ]
    assert [fact.value for fact in await provider.load(CITY, USER, APP, owner="ann")] == ["other-2"]
    assert await provider.verify() == 6


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record: record.pop("id"),
        lambda record: record.update(extra=1),
        lambda record: record.update(values=[]),
        lambda record: record.update(values=["a", "b"]),
        lambda record: record.update(values="Oslo"),
        lambda record: record.update(version=0),
        lambda record: record.update(timestamp=None),
        lambda record: record.update(type="several"),
        lambda record: record.update(scope={"kind": "planet", "name": "x"}),
        lambda record: record.update(source=None),
        lambda record: record.update(owner=None),
        lambda record: record.update(subject=""),
    ],
)
async def test_what_is_no_export_is_refused_whole(make, spoil):
    """One wrong record, and nothing of an import is kept; the error says which, and shows no value."""
    provider = make()
    source = StoreMemoryProvider(MemoryStore())
    await source.save(SingleFact(CITY, "Oslo"), USER, APP)
    good = [record async for record in source.export()]
    bad = {**good[0]}
    spoil(bad)
    with pytest.raises(ValueError, match="record 1 is not one of an export") as raised:
        await provider.import_([*good, bad])
    assert "Oslo" not in str(raised.value)
    assert await provider.load_all(USER, APP) == []


NAMES = ["a", "A", "b"]
steps = st.one_of(
    st.tuples(st.just("single"), st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from("xyz")),
    st.tuples(
        st.just("multiple"),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
        st.lists(st.sampled_from("xyz"), min_size=1),
    ),
    st.tuples(st.just("forget"), st.sampled_from([*NAMES, None]), st.sampled_from([*NAMES, None])),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("copy")),
)


class Model:
    """What a provider should know, as a plain list."""

    def __init__(self):
        self.kept = []

    def versions(self, subject, keyword):
        return [fact for about, fact in self.kept if (about, fact.concept.keyword) == (subject, keyword)]

    def values(self, subject, keyword):
        known = []
        for fact in self.versions(subject, keyword):
            known = list(fact.values) if isinstance(fact, SingleFact) else known + list(fact.values)
        return list(dict.fromkeys(known))

    def forget(self, subject, keyword):
        left = [
            (about, fact)
            for about, fact in self.kept
            if subject not in (None, about) or keyword not in (None, fact.concept.keyword)
        ]
        gone, self.kept = len(self.kept) - len(left), left
        return gone


async def apply(provider, model, step, reopen):
    """Do one step to a provider and to its model; gives the provider to go on with."""
    match step:
        case "single", subject, keyword, value:
            fact = SingleFact(Concept(keyword), value)
        case "multiple", subject, keyword, values:
            fact = MultipleFacts(Concept(keyword, fact_type=FactType.MULTIPLE), values)
        case "forget", subject, keyword:
            receipt = await provider.forget(
                subject=Subject(subject) if subject else None,
                concept=Concept(keyword) if keyword else None,
                everything=not subject and not keyword,
            )
            assert receipt.facts == model.forget(subject, keyword)
            return provider
        case ("reopen",):
            return reopen()
        case _:
            records = [record async for record in provider.export()]
            await provider.forget(everything=True)
            assert await provider.import_(records) == len(model.kept)
            return provider
    await provider.save(fact, Subject(subject), APP)
    model.kept.append((subject, fact))
    return provider


@pytest.mark.parametrize("kind", MAKERS)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(steps, max_size=12))
def test_a_provider_behaves_as_a_plain_list(kind, script, tmp_path_factory):
    """Whatever is saved, forgotten, exported and imported, a provider knows what a list of all that would say."""
    root = tmp_path_factory.mktemp("facts")

    async def play():
        provider, model = MAKERS[kind](root), Model()
        for step in script:
            provider = await apply(provider, model, step, lambda: MAKERS[kind](root))
            for subject in NAMES:
                expected = {}
                for keyword in NAMES:
                    versions = model.versions(subject, keyword)
                    history = await provider.history(Concept(keyword), Subject(subject), APP)
                    assert [fact.values for fact in history] == [fact.values for fact in reversed(versions)]
                    assert [fact.version for fact in history] == list(range(len(versions), 0, -1))
                    known = await provider.load(Concept(keyword), Subject(subject), APP)
                    assert [list(fact.values) for fact in known] == (
                        [model.values(subject, keyword)] if versions else []
                    )
                    expected |= {keyword: known[0]} if known else {}
                found = await provider.load_all(Subject(subject), APP)
                assert {fact.concept.keyword: fact for fact in found} == expected
                assert len(found) == len(expected)
            if model.kept:
                assert await provider.verify() == len(model.kept)

    anyio.run(play)


WRITER = """
import sys
from pathlib import Path
import anyio
from graphagent.memory import *
from graphagent.memory import EncryptedMemoryProvider, FileMemoryProvider, StoreMemoryProvider
from graphagent.store import SqliteStore

kind, root, name, count = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
makers = {
    "file": lambda: FileMemoryProvider(root),
    "sqlite": lambda: StoreMemoryProvider(SqliteStore(root / "facts.db")),
    "encrypted": lambda: EncryptedMemoryProvider(root, key=b"0123456789abcdef0123456789abcdef"),
}
provider = makers[kind]()

async def main():
    for number in range(count):
        fact = MultipleFacts(Concept("tools", fact_type=FactType.MULTIPLE), [f"{name}-{number}"])
        await provider.save(fact, Subject("user"), Scope.product("my-app"))
        print(number, flush=True)

anyio.run(main)
"""


def writer(kind, root, name, count):
    """Start another process that saves facts and says which are saved."""
    return forkserver.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), kind, root, name, str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("kind", MAKERS)
def test_two_processes_lose_nothing(kind, tmp_path):
    """What two processes add to one concept at the same time is all there, with one version each."""
    writers = [writer(kind, tmp_path, name, 30) for name in ("left", "right")]
    for each in writers:
        _, err = each.communicate(timeout=600)
        assert each.returncode == 0, err

    async def check():
        provider = MAKERS[kind](tmp_path)
        history = await provider.history(TOOLS, USER, APP)
        assert [fact.version for fact in history] == list(range(60, 0, -1))
        expected = {f"{name}-{number}" for name in ("left", "right") for number in range(30)}
        assert {fact.value for fact in history} == expected
        assert await provider.verify() == 60

    anyio.run(check)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_killed_process_loses_nothing_that_it_acknowledged(kind, tmp_path):
    """Killed in the middle of saving, what was acknowledged is there, and the rest is absent or complete."""
    process = writer(kind, tmp_path, "x", 100_000)
    for _ in range(10):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read()  # communicate() would pass over what readline() has read ahead
    process.communicate()
    acknowledged = 10 + rest.count("\n")

    async def check():
        provider = MAKERS[kind](tmp_path)
        history = await provider.history(TOOLS, USER, APP)
        assert [fact.value for fact in history] == [f"x-{number}" for number in reversed(range(len(history)))]
        assert acknowledged <= len(history) <= acknowledged + 1
        assert await provider.verify() == len(history)
        await provider.save(MultipleFacts(TOOLS, ["after"]), USER, APP)

    anyio.run(check)


async def test_another_key_opens_nothing(tmp_path):
    """With another key every call is a WrongKeyError, nothing reads as empty, and no byte changes."""
    async with EncryptedMemoryProvider(tmp_path, key=KEY) as provider:
        await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
        await provider.verify()
    before = (tmp_path / "facts.db").read_bytes()
    stranger = EncryptedMemoryProvider(tmp_path, key=KEY[::-1])
    for call in (
        lambda: stranger.load(CITY, USER, APP),
        lambda: stranger.load_all(USER, APP),
        lambda: stranger.save(SingleFact(CITY, "Moss"), USER, APP),
        lambda: stranger.forget(everything=True),
        lambda: stranger.verify(),
    ):
        with pytest.raises(WrongKeyError):
            await call()
    assert (tmp_path / "facts.db").read_bytes() == before
    assert [fact.value for fact in await EncryptedMemoryProvider(tmp_path, key=KEY).load(CITY, USER, APP)] == ["Oslo"]


async def test_encrypted_facts_show_no_name_and_no_value(tmp_path):
    """Owner, scope, subject, keyword, description, value and source are on the disk in no readable form."""
    provider = EncryptedMemoryProvider(tmp_path, key=KEY)
    fact = SingleFact(
        Concept("secret-keyword", "secret-text"), "secret-value", source=Source("secret-run", 1, "secret-node")
    )
    await provider.save(fact, Subject("secret-subject"), Scope.agent("secret-agent"), owner="secret-owner")
    assert b"secret" not in on_disk(tmp_path)
    assert KEY not in on_disk(tmp_path)
    assert "secret" not in repr(provider)


@pytest.mark.parametrize("key", [b"short", "not base64!", b"x" * 33, ""])
def test_what_is_no_key_is_refused_at_once(tmp_path, key):
    """The error says what a key is, shows none, and nothing is made on the disk."""
    with pytest.raises(ValueError, match="32 bytes") as raised:
        EncryptedMemoryProvider(tmp_path / "root", key=key)
    assert repr(key) not in str(raised.value)
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (("facts", "", "product", "my-app", "user", "city", 1), b"not json"),
        (("facts", "", "product", "my-app", "user", "city", 1), b"{}"),
        (("facts", "", "product", "my-app", "user", "", 1), b"\xff"),
        (("facts", "", "planet", "my-app", "user", "city", 1), b"{}"),
        (("facts", "", "product", "my-app", "user"), b"{}"),
        (("facts", "", "product", "my-app", "user", "city", "x"), b"{}"),
    ],
)
async def test_an_item_that_is_no_fact_is_damage(key, value):
    """What else stands among the facts of a store is refused by name, and shown in no error."""
    store = MemoryStore()
    provider = StoreMemoryProvider(store)
    await store.commit(Put(key, value))
    with pytest.raises(DamagedStoreError) as raised:
        await provider.verify()
    assert "not json" not in str(raised.value)


async def test_a_fact_that_is_in_no_list_is_damage():
    """load_all goes by the list of concepts, so neither it nor verify lets a fact pass that is not in it."""
    store = MemoryStore()
    provider = StoreMemoryProvider(store)
    await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
    assert await provider.verify() == 1
    await store.commit(DeleteAll(("facts", "", "product", "my-app", "user", "")))
    for read in (provider.verify, lambda: provider.load_all(USER, APP)):
        with pytest.raises(DamagedStoreError, match="'city' is damaged: they are in no list of concepts"):
            await read()


class Counted:
    """A store that counts what is read from it."""

    def __init__(self, store):
        self.store, self.commit = store, store.commit
        self.reads = self.items = 0

    async def get(self, key):
        self.reads += 1
        return await self.store.get(key)

    async def scan(self, prefix, **options):
        self.reads += 1
        async for item in self.store.scan(prefix, **options):
            self.items += 1
            yield item


@pytest.mark.parametrize("is_sealed", [False, True], ids=["plain", "sealed"])
async def test_all_facts_are_read_in_one_go(is_sealed):
    """A new process reads neither each concept on its own, nor all of a history that is long; and what is current comes in order."""
    inner = MemoryStore()

    def opened():
        counted = Counted(EncryptedStore(inner, bytes(32)) if is_sealed else inner)
        return counted, StoreMemoryProvider(counted)

    _, provider = opened()
    names = [f"concept {number}" for number in range(500)]
    for name in names:
        await provider.save(SingleFact(Concept(name), name), USER, APP)
    counted, fresh = opened()
    assert [fact.value for fact in await fresh.load_all(USER, APP)] == names
    assert counted.reads < 10

    pet = Subject("pet")
    for name in ("zebra", "ant"):
        await provider.save(SingleFact(Concept(name), name), pet, APP)
    for number in range(300):
        await provider.save(SingleFact(CITY, f"city {number}"), pet, APP)
    tools = [f"tool {number}" for number in range(40)]
    for tool in tools[:-1]:
        await provider.save(MultipleFacts(TOOLS, [tool]), pet, APP)
    for seen in (tools[:-1], tools):
        counted, fresh = opened() if seen is not tools else (counted, fresh)
        counted.items = 0
        assert [fact.values for fact in await fresh.load_all(pet, APP)] == [
            ("zebra",),
            ("ant",),
            ("city 299",),
            tuple(seen),
        ]
        assert counted.items < 200
        await provider.save(MultipleFacts(TOOLS, tools[-1:]), pet, APP)


async def test_the_list_of_concepts_of_earlier_builds_goes_on():
    """They put one concept into each row. Further ones are added to the last row, and each can be forgotten on its own."""
    store = MemoryStore()
    provider = StoreMemoryProvider(store)
    listed = ("facts", "", "product", "my-app", "user", "")
    names = ["zebra", "ant", "mole", "cat"]
    for name in names[:2]:
        await provider.save(SingleFact(Concept(name), name), USER, APP)
    await store.commit(
        DeleteAll(listed), *(Put((*listed, 9 + row), checked(name.encode())) for row, name in enumerate(names[:2]))
    )
    async with anyio.create_task_group() as tasks:
        for name in names[2:]:
            tasks.start_soon(provider.save, SingleFact(Concept(name), name), USER, APP)
    assert sorted(fact.value for fact in await provider.load_all(USER, APP)) == sorted(names)
    for left in (["zebra", "ant", "cat"], ["zebra", "cat"], ["cat"], []):
        [gone] = {fact.value for fact in await provider.load_all(USER, APP)}.difference(left)
        assert (await provider.forget(concept=Concept(gone))).facts == 1
        assert [fact.value for fact in await provider.load_all(USER, APP)] == left
    assert [item async for item in store.scan(())] == []


async def test_a_fact_under_another_key_is_damage():
    """A fact that was moved to another concept or version is not taken for that one's."""
    store = MemoryStore()
    provider = StoreMemoryProvider(store)
    await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
    key = ("facts", "", "product", "my-app", "user", "city", 1)
    value = (await store.get(key)).value
    for other in ((*key[:-1], 2), (*key[:-2], "town", 1)):
        await store.commit(Put(other, value))
        with pytest.raises(DamagedStoreError, match="a fact of another place"):
            await provider.load(Concept(other[-2]), USER, APP)
    assert await provider.load(CITY, EVERYTHING, APP) == []


async def test_no_memory_keeps_nothing_and_says_so_once(caplog, monkeypatch):
    """NoMemory has every method, gives nothing, and logs that facts are lost once per process."""
    monkeypatch.setattr(_provider_none, "_said", False)
    provider = NoMemory()
    assert isinstance(provider, KeepingProvider)
    with caplog.at_level(logging.WARNING, "graphagent"):
        for _ in range(3):
            async with provider:
                await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
            assert await provider.load(CITY, USER, APP) == await provider.load_all(USER, APP) == []
            assert await provider.load_by_description("", USER, APP) == await provider.history(CITY, USER, APP) == []
    assert [record async for record in provider.export()] == []
    assert (await provider.import_([]), await provider.verify(), (await provider.forget(everything=True)).facts) == (
        0,
        0,
        0,
    )
    [record] = caplog.records
    assert (record.name, record.levelname) == ("graphagent.memory", "WARNING")
    assert "not stored" in record.message
    assert "Oslo" not in record.message


async def test_a_folder_is_plain_or_sealed(tmp_path):
    """A provider refuses the other one's folder: it would read as empty, and be written beside."""
    scope, subject, fact = Scope.agent("a"), Subject("user"), SingleFact(Concept("city"), "Oslo")
    plain, sealed, key = tmp_path / "plain", tmp_path / "sealed", os.urandom(32)
    await FileMemoryProvider(plain).save(fact, subject, scope)
    await EncryptedMemoryProvider(sealed, key=key).save(fact, subject, scope)
    with pytest.raises(StoreError, match="holds plain facts"):
        EncryptedMemoryProvider(plain, key=key)
    wrong = FileMemoryProvider(sealed)
    uses = (
        lambda: wrong.load_all(subject, scope),
        lambda: wrong.save(fact, subject, scope),
        lambda: wrong.forget(subject=subject),
        wrong.verify,
    )
    for use in uses:
        with pytest.raises(StoreError, match="holds sealed facts"):
            await use()
    assert [path.name for path in sealed.iterdir() if path.suffix == ".jsonl"] == []


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"concept": None, "subject": None, "scope": None},
        {"owner": "ann"},
        {"concept": CITY, "everything": True},
        {"subject": USER, "owner": "ann", "everything": True},
        {"scope": APP, "everything": True},
    ],
)
async def test_forgetting_everything_has_to_be_said(make, given):
    """Where nothing says what to forget, as with a variable that is None, nothing is; `everything` stands alone."""
    provider = make()
    for owner in ("", "ann"):
        await provider.save(SingleFact(CITY, "Oslo"), USER, APP, owner=owner)
    for each in (provider, NoMemory()):
        with pytest.raises(ValueError, match=r"say what to forget.*everything=True"):
            await each.forget(**given)
    assert await provider.verify() == 2
    assert (await NoMemory().forget(everything=True)).facts == 0
    assert (await provider.forget(owner="ann", everything=True)).facts == 1
    assert await make().load(CITY, USER, APP, owner="ann") == []
    assert [fact.value for fact in await make().load(CITY, USER, APP)] == ["Oslo"]
    assert (await provider.forget(everything=True)).facts == 1


async def test_forgetting_by_a_mere_name_is_refused(tmp_path):
    """A text in the place of a concept, subject or scope would fit nothing, and look as if it had worked."""
    for provider in (FileMemoryProvider(tmp_path), StoreMemoryProvider(MemoryStore())):
        for wrong in ({"concept": "city"}, {"subject": "user"}, {"scope": "agent"}):
            with pytest.raises(TypeError, match="not a str"):
                await provider.forget(**wrong)
