"""What is tried: every store and provider of graphagent, and beside them a naive file of JSON and SQLite on its own.

Each keeps records, which are texts with a number. Those with odd numbers are forgotten together in the middle. `records` reads
everything there is, and says by AssertionError that something is read that was never written.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import AsyncExitStack

import apsw

from graphagent import END, START, Agent, Strategy
from graphagent.errors import DamagedStoreError
from graphagent.history import forget_thread, verify_runs
from graphagent.memory import (
    Concept,
    EncryptedMemoryProvider,
    FileMemoryProvider,
    Notes,
    Scope,
    SingleFact,
    StoreMemoryProvider,
    Subject,
)
from graphagent.nodes import llm_request
from graphagent.run import list_runs
from graphagent.store import DeleteAll, EncryptedStore, Put, SqliteStore
from graphagent.testing import ScriptedModel

KEY = bytes(range(32))
APP = Scope.product("app")
PEOPLE = Subject("user"), Subject("pet")
CONCEPTS = [Concept(f"concept-{number}", f"what {number} is about") for number in range(3)]
STEPS = ("save 0", "save 1", "save 2", "save 3", "save 4", "forget", "save 6", "save 8")
"""What is done to a store, in this order."""
ROTATING = ("save 0", "save 1", "rotate", "save 2", "forget", "save 4", "rotate", "save 6", "save 8")
AFTER = "save 10"
"""What must still be possible after a fault."""


def text(number):
    """Return the text of a record; every third is so long that a store keeps it apart, and that it has several sectors."""
    return f"pear {number} " * (90 if number % 3 == 2 else 4) + "end"


def number_of(found):
    """Return the number of a text that was written once."""
    number = re.match(r"pear (\d+) ", found)
    assert number is not None, "never written"
    assert found == text(int(number[1])), "never written"
    return int(number[1])


class Stored:
    """Items of a store: each record is two of them, of one commit."""

    def __init__(self, name, *, sealed=False, anchored=False, steps=STEPS):
        self.name, self.steps = name, steps
        self._sealed, self.anchored = sealed, anchored

    def open(self, folder):
        store = SqliteStore(f"{folder}/at/store.db")
        anchor = f"{folder}/anchor" if self.anchored else None
        return EncryptedStore(store, KEY, anchor=anchor) if self._sealed else store

    async def close(self, store):
        await store.aclose()

    async def save(self, store, number):
        group, value = ("odd", "even")[number % 2 == 0], text(number).encode()
        await store.commit(Put(("r", group, "a", number), value), Put(("r", group, "b", number), value))

    async def forget(self, store):
        await store.commit(DeleteAll(("r", "odd")))

    async def rotate(self, store):
        await store.keys.rotate_data()

    async def records(self, store):
        found = [{}, {}]
        async for item in store.scan(("r",)):
            number = number_of(item.value.decode())
            assert number == item.key[3], "a value under another key"
            found[item.key[2] == "b"][number] = True
        assert found[0] == found[1], "half of a commit"
        return set(found[0])

    async def verify(self, store):
        return await store.verify()

    def reads(self, store, numbers):
        keys = [("r", ("odd", "even")[number % 2 == 0], half, number) for number in numbers for half in "ab"]

        async def scan(*prefix, reverse=False):
            return [item async for item in store.scan(prefix, reverse=reverse)]

        return [
            *(lambda key=key: store.get(key) for key in keys[1::3]),
            lambda: store.get(("r", "even", "a", 99)),
            lambda: store.get_many(keys),
            lambda: scan("r"),
            lambda: scan("r", "even", reverse=True),
        ]


class Facts:
    """Facts of two subjects, each a version of one of a few concepts."""

    steps = STEPS

    def __init__(self, name, make):
        self.name, self._make = name, make

    def open(self, folder):
        return self._make(f"{folder}/at")

    async def close(self, provider):
        await provider.__aexit__(None, None, None)
        store = getattr(provider, "_store", None)
        if store is not None and hasattr(store, "aclose"):
            await store.aclose()

    async def save(self, provider, number):
        await provider.save(SingleFact(CONCEPTS[number % 3], text(number)), PEOPLE[number % 2], APP)

    async def forget(self, provider):
        await provider.forget(subject=PEOPLE[1])

    async def records(self, provider):
        found = set()
        for side, subject in enumerate(PEOPLE):
            current = []
            for place, concept in enumerate(CONCEPTS):
                versions = await provider.history(concept, subject, APP)
                numbers = [number_of(fact.value) for fact in versions]
                assert all(number % 3 == place and number % 2 == side for number in numbers), "a fact of another place"
                assert [fact.version for fact in versions] == list(range(len(versions), 0, -1)), "versions have a gap"
                found.update(numbers)
                newest = versions[0] if versions else None
                assert [fact.id for fact in await provider.load(concept, subject, APP)] == (
                    [newest.id] if newest else []
                )
                current += [newest.id] if newest else []
            assert sorted(fact.id for fact in await provider.load_all(subject, APP)) == sorted(current), (
                "load_all differs"
            )
        return found

    async def verify(self, provider):
        return await provider.verify()

    def reads(self, provider, numbers):
        del numbers
        return [
            *(lambda c=concept: provider.load(c, PEOPLE[0], APP) for concept in CONCEPTS),
            *(lambda c=concept: provider.history(c, PEOPLE[0], APP) for concept in CONCEPTS),
            lambda: provider.load_all(PEOPLE[0], APP),
            lambda: provider.load_all(PEOPLE[1], APP),
        ]


def stored_facts(folder):
    return StoreMemoryProvider(SqliteStore(f"{folder}/facts.db"))


def sealed_facts(folder):
    return EncryptedMemoryProvider(folder, key=KEY)


class Noted:
    """Notes of two scopes."""

    steps = STEPS

    def __init__(self, *, sealed):
        self.sealed, self.name = sealed, "Notes, sealed" if sealed else "Notes"

    def open(self, folder):
        store = SqliteStore(f"{folder}/at/notes.db")
        return Notes(EncryptedStore(store, KEY) if self.sealed else store)

    async def close(self, notes):
        await notes.aclose()
        await notes._service.repository.store.aclose()

    async def save(self, notes, number):
        await notes.remember(text(number), scope=("/odd", "/even")[number % 2 == 0])

    async def forget(self, notes):
        await notes.forget(scope="/odd")

    async def records(self, notes):
        records = await notes.list_records()
        found = {}
        for record in records:
            number = number_of(record.content)
            assert number not in found, "twice"
            assert record.scope == ("/odd", "/even")[number % 2 == 0], "another scope"
            found[number] = record.id
        matches = await notes.recall("pear", limit=len(found) + 10)
        assert {match.record.id for match in matches} == set(found.values()), "recall finds others than there are"
        return set(found)

    async def verify(self, notes):
        return await notes.verify()

    def reads(self, notes, numbers):
        async def recall(question, **options):
            return [
                (match.record, round(match.score, 6)) for match in await notes.recall(question, limit=50, **options)
            ]

        async def one():
            return [await notes.get(record.id) for record in await notes.list_records()]

        return [
            notes.list_records,
            lambda: recall("pear"),
            lambda: recall("pear 4", scope="/even"),
            lambda: recall("4 end"),
            lambda: recall("nothing"),
            one,
        ]


def reply(request):
    """Answer with the question."""
    return "echo " + request.messages[-1].text


class Runs:
    """Runs of an agent; those with odd numbers are a thread."""

    steps = STEPS

    def __init__(self, *, sealed):
        self.sealed, self.name = sealed, "Runs, sealed" if sealed else "Runs"
        self._strategy = Strategy("echo", START >> llm_request() >> END)

    def open(self, folder):
        store = SqliteStore(f"{folder}/at/runs.db")
        store = EncryptedStore(store, KEY) if self.sealed else store
        return Agent(self._strategy, model=ScriptedModel([reply] * 20), store=store)

    async def close(self, agent):
        await agent.store.aclose()

    async def save(self, agent, number):
        result = await agent.run(text(number), run_id=f"r{number}", **({"thread": "odd"} if number % 2 else {}))
        assert result.output == "echo " + text(number)

    async def forget(self, agent):
        await forget_thread(agent.store, "odd")

    async def records(self, agent):
        found = set()
        for header in await list_runs(agent.store):
            run = await agent.read(header.run_id)
            if header.status == "done":
                number = int(header.run_id[1:])
                assert run.result.output == "echo " + text(number), "another output"
                found.add(number)
        return found

    async def verify(self, agent):
        return await verify_runs(agent.store)

    def reads(self, agent, numbers):
        async def read(number):
            run = await agent.read(f"r{number}")
            return run.result.output, run.result.memory.to_messages(), run.result.usage

        async def listed(**options):
            found = await list_runs(agent.store, **options)
            if any(header.status == "damaged" for header in found):
                raise DamagedStoreError("a header", "it is listed as damaged")
            return found

        return [
            listed,
            lambda: listed(thread="odd"),
            *(lambda number=number: read(number) for number in numbers),
        ]


class Json:
    """A naive file: all records in one file, written anew by each save."""

    steps = STEPS
    name = "a file of JSON"

    def open(self, folder):
        return folder

    async def close(self, folder):
        pass

    def _read(self, folder):
        try:
            number = os.open(f"{folder}/records.json", os.O_RDONLY)
        except FileNotFoundError:
            return {}
        try:
            return json.loads(os.read(number, 2**20))
        finally:
            os.close(number)

    def _write(self, folder, records):
        number = os.open(f"{folder}/records.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(number, json.dumps(records).encode())
        finally:
            os.close(number)

    async def save(self, folder, number):
        self._write(folder, {**self._read(folder), str(number): text(number)})

    async def forget(self, folder):
        self._write(folder, {number: each for number, each in self._read(folder).items() if int(number) % 2 == 0})

    async def records(self, folder):
        found = self._read(folder)
        assert all(int(number) == number_of(each) for number, each in found.items()), "a value under another key"
        return set(map(int, found))

    async def verify(self, folder):
        return len(self._read(folder))

    def reads(self, folder, numbers):
        async def one(number):
            return self._read(folder).get(str(number))

        return [lambda: self.records_as_they_are(folder), *(lambda number=number: one(number) for number in numbers)]

    async def records_as_they_are(self, folder):
        return self._read(folder)


class Alone:
    """SQLite on its own: a table, read and written as it comes, with the settings that it has by itself."""

    steps = STEPS
    name = "SQLite on its own"

    def open(self, folder):
        connection = apsw.Connection(f"{folder}/records.db")
        connection.execute("CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY, value TEXT)")
        return connection

    async def close(self, connection):
        connection.close()

    async def save(self, connection, number):
        connection.execute("INSERT INTO records VALUES (?, ?)", (number, text(number)))

    async def forget(self, connection):
        connection.execute("DELETE FROM records WHERE number % 2")

    async def records(self, connection):
        found = list(connection.execute("SELECT number, value FROM records"))
        assert all(number == number_of(each) for number, each in found), "a value under another key"
        return {number for number, _ in found}

    async def verify(self, connection):
        return len(await self.records(connection))

    def reads(self, connection, numbers):
        async def rows(more="", *values):
            return list(connection.execute(f"SELECT number, value FROM records {more}", values))

        return [rows, *(lambda number=number: rows("WHERE number=?", number) for number in numbers)]


OURS = [
    Stored("SqliteStore"),
    Stored("EncryptedStore", sealed=True),
    Stored("EncryptedStore, its keys rotated", sealed=True, steps=ROTATING),
    Stored("EncryptedStore with an anchor", sealed=True, anchored=True),
    Facts("FileMemoryProvider", FileMemoryProvider),
    Facts("StoreMemoryProvider", stored_facts),
    Facts("EncryptedMemoryProvider", sealed_facts),
    Noted(sealed=False),
    Noted(sealed=True),
    Runs(sealed=False),
    Runs(sealed=True),
]
OTHERS = [Json(), Alone()]
SUBJECTS = {subject.name: subject for subject in [*OURS, *OTHERS]}


async def do(subject, handle, step):
    """Do a step."""
    what, *number = step.split()
    await getattr(subject, what)(handle, *map(int, number))


class closed(AsyncExitStack):
    """Open a subject for a `with`."""

    def __init__(self, subject, folder):
        super().__init__()
        self._subject, self._folder = subject, folder

    async def __aenter__(self):
        handle = self._subject.open(self._folder)
        self.push_async_callback(self._subject.close, handle)
        return handle
