"""The event loop goes on while notes are kept, found, taken along and made anew: long work is done by other threads, or in parts."""

from __future__ import annotations

import functools
import shutil
import sys
import threading

import anyio
import apsw
import pytest
from anyio.lowlevel import checkpoint

from graphagent.embed import CallableEmbedder
from graphagent.memory import Note, Notes
from graphagent.memory.notes import _validation
from graphagent.memory.notes.enrich import _consolidation
from graphagent.memory.notes.index import _chunks, _matrix
from graphagent.memory.notes.index._fts import SqliteTables
from graphagent.memory.notes.index._tokens import Tokens
from graphagent.store import SqliteStore
from graphagent.store.sqlite import _soundness
from graphagent.store.sqlite import _store as sqlite_store
from graphagent.testing import ScriptedModel
from tests.memory.notes.conftest import Words as Costly
from tests.memory.notes.conftest import store_of
from tests.memory.notes.enrich.test_consolidation import GIVEN, ONE, TWO, plan


class Words(Costly):
    """The same at no cost of its own."""

    def vector(self, text):
        return [1.0 + len(text), *[0.5] * (self.dimensions - 1)]


COUNT = 1_000
MOST = 12_000
"""Calls of functions that one step of the loop may make; a thousand take about 0.3 milliseconds."""
INLINE_ROWS = 32


def given(count=COUNT, word="note"):
    return [
        Note(f"{word} {number} of pear{number % 97} in house {number % 53}", f"/s{number % 40}", [f"c{number % 7}"])
        for number in range(count)
    ]


async def exported(notes):
    return [each async for each in notes.export()]


async def taken_along(notes):
    other = Notes(notes._service.repository.store, owner="other", embedder=Words())
    assert await other.import_([{**each, "owner": "other"} for each in await exported(notes)]) == COUNT


async def opened_again(notes):
    again = Notes(notes._service.repository.store, embedder=Words())
    assert len(await again.recall("pear5")) == 10


OPERATIONS = {
    "recall": lambda notes: notes.recall("pear5 house"),
    "recall in a scope": lambda notes: notes.recall("pear5 house", scope="/s5", categories=["c1"]),
    "first recall": opened_again,
    "get": lambda notes: notes.get("no such"),
    "remember": lambda notes: notes.remember("pear"),
    "remember_many": lambda notes: notes.remember_many(given(word="more")),
    "list_records": lambda notes: notes.list_records(limit=COUNT),
    "info": lambda notes: notes.info(),
    "tree": lambda notes: notes.tree(),
    "list_categories": lambda notes: notes.list_categories(),
    "forget": lambda notes: notes.forget(scope="/s1"),
    "reset": lambda notes: notes.reset(),
    "reindex": lambda notes: notes.reindex(),
    "reembed": lambda notes: notes.reembed(),
    "verify": lambda notes: notes.verify(),
    "export": exported,
    "import_": taken_along,
}


KINDS = ("file", "sealed-file")


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Folders with many notes in a file, in clear and sealed."""

    async def fill(folder):
        for kind in KINDS:
            async with store_of(kind, folder) as store:
                await Notes(store, embedder=Words()).remember_many(given())

    folder = tmp_path_factory.mktemp("filled")
    anyio.run(fill, folder)
    return folder


@pytest.fixture
async def notes(kind, filled, tmp_path):
    """Notes in a file with many, used once already."""
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    async with store_of(kind, tmp_path) as store:
        notes = Notes(store, embedder=Words())
        await notes.recall("pear")
        yield notes


# Whose thread does it


class Watch:
    """Notes what a thread does that it must not."""

    def __init__(self):
        self.thread = threading.get_ident()
        self.seen = []

    def saw(self, what):
        if threading.get_ident() == self.thread:
            self.seen.append(what)

    def statement(self, cursor, sql, bindings):
        """Note a statement, unless it reads a single item or its neighbours, or the first few of a range, or is of a transaction of such reads."""
        few = sql in (sqlite_store._UP, sqlite_store._DOWN) and bindings[2] <= INLINE_ROWS
        if sql not in (sqlite_store._ONE, _soundness._BESIDE, "BEGIN", "COMMIT") and not few:
            self.saw(sql)
        return True

    def around(self, function):
        @functools.wraps(function)
        def call(*args, **options):
            self.saw(function.__name__)
            return function(*args, **options)

        return call


@pytest.fixture
def watch(monkeypatch):
    """A watch over this thread: statements of any connection made from now on, and products of vectors."""
    watch = Watch()

    def hook(connection):
        connection.exec_trace = watch.statement

    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, hook])
    for owner, name in (
        (_matrix.Matrix, "search"),
        (_matrix.Matrix, "cosines"),
        (_consolidation, "similarity"),
        (_chunks, "pieces"),
    ):
        monkeypatch.setattr(owner, name, watch.around(getattr(owner, name)))
    for name in ("add", "postings", "counts", "all_rows", "whole", "since", "newest", "purge", "make"):
        monkeypatch.setattr(SqliteTables, name, watch.around(getattr(SqliteTables, name)))
    monkeypatch.setattr(Tokens, "split", watch.around(Tokens.split))
    return watch


async def test_the_loops_thread_compares_no_vectors_of_notes_that_are_alike(watch, tmp_path):
    """Nor does it where a note is consolidated."""
    model = ScriptedModel([plan((1, "delete"))])
    async with Notes(SqliteStore(tmp_path / "n.db"), model=model, embedder=Words()) as notes:
        await notes.remember(ONE, **GIVEN, infer="never")
        await notes.remember(TWO, **GIVEN, infer="now")
    assert len(model.requests) == 1
    assert watch.seen == []


def test_the_watch_sees_what_the_loops_thread_does(watch, tmp_path):
    """A statement that is executed right here is seen, and so is a search of vectors."""
    store = SqliteStore(tmp_path / "n.db")

    async def wrong():
        await Notes(store).remember("pear")
        connection = apsw.Connection(str(tmp_path / "n.db"))
        connection.execute("SELECT count(*) FROM notes_rows").fetchall()
        connection.close()
        _matrix.Matrix(2).search([1.0, 0.0], 1)

    anyio.run(wrong)
    assert watch.seen == ["SELECT count(*) FROM notes_rows", "search"]


# How much it does at once


async def largest_step(work):
    """Do something, and give how many functions this thread called at most between two turns of another task."""
    calls = most = 0
    going_on = True

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    async def take_turns():
        nonlocal calls, most
        while going_on:
            await checkpoint()
            most, calls = max(most, calls), 0

    before = sys.getprofile()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        await checkpoint()
        sys.setprofile(count)
        try:
            most = calls = 0
            await work()
            await checkpoint()
        finally:
            sys.setprofile(before)
            going_on = False
    return max(most, calls)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
async def test_other_tasks_have_their_turn(watch, kind, name, notes):
    """However many notes there are, no step of the loop does so much that others wait for more than some milliseconds.

    Tables and vectors are searched and changed by other threads; the loop's own reads single items at most.
    """
    assert await largest_step(lambda: OPERATIONS[name](notes)) <= MOST
    assert watch.seen == []


def long_notes(word):
    """Notes of some thousand words, of which it takes a while to make the texts by which they are found."""
    return [
        " ".join(f"{word} {number} says that pear{place} is in house {place % 53}." for place in range(400))
        for number in range(40)
    ]


LONG_NOTES, MORE_LONG_NOTES = long_notes("note"), long_notes("more")
LONGEST_NOTE = " ".join(MORE_LONG_NOTES)[: _validation.LONGEST]


def of_texts(texts):
    """Vectors that cost nothing, made in another thread, as of any plain function."""
    return [[1.0, len(text)] for text in texts]


async def long_taken_along(notes):
    other = Notes(notes._service.repository.store, owner="other", embedder=CallableEmbedder(of_texts, name="plain"))
    assert await other.import_([{**each, "owner": "other"} for each in await exported(notes)]) == 40


async def long_opened_again(notes):
    again = Notes(notes._service.repository.store, embedder=CallableEmbedder(of_texts, name="plain"))
    assert len(await again.recall("pear5")) == 10


LONG = {
    "remember": lambda notes: notes.remember(LONGEST_NOTE),
    "remember_many": lambda notes: notes.remember_many(MORE_LONG_NOTES),
    "import_": long_taken_along,
    "first recall": long_opened_again,
    **{name: OPERATIONS[name] for name in ("recall", "list_records", "reindex", "reembed", "verify")},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LONG)
async def test_other_tasks_have_their_turn_beside_long_notes(kind, name, tmp_path):
    """However long notes are, no step of the loop does so much either."""
    async with store_of(kind, tmp_path) as store:
        notes = Notes(store, embedder=CallableEmbedder(of_texts, name="plain"))
        await notes.remember_many(LONG_NOTES)
        assert await largest_step(lambda: LONG[name](notes)) <= MOST


async def test_a_long_step_is_seen():
    """What does not let others go on is counted as one step; what lets them go on now and then is not."""

    async def work(parts):
        for _ in range(parts):
            for _ in range(10_000 // parts):
                abs(1)
            await checkpoint()

    assert 10_000 <= await largest_step(lambda: work(1)) < 10_200
    assert await largest_step(lambda: work(10)) < 3_000


async def test_an_embedder_that_blocks_holds_up_nobody(tmp_path):
    """A plain function as an embedder is called in another thread, whatever it is needed for."""
    here, threads = threading.get_ident(), set()

    def embed(texts):
        threads.add(threading.get_ident())
        return [[1.0, len(text)] for text in texts]

    async with Notes(tmp_path / "n.db", embedder=CallableEmbedder(embed, name="plain")) as notes:
        kept = await notes.remember("pear")
        await notes.remember_many(["apple", "plum"])
        await notes.update(kept.id, content="pears")
        assert await notes.recall("fruit")
        await notes.reembed()
        data = await exported(notes)
        await notes.reset()
        assert await notes.import_(data) == 3
    assert threads
    assert here not in threads
