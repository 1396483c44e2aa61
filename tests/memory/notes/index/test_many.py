"""Many notes, many scopes: nothing is cut off unseen, hidden by what may not be found, or looked at once for each."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import UTC, datetime

import apsw
import pytest

from graphagent.memory import Note, Notes, Turn
from graphagent.memory._note_values import Filter
from graphagent.memory.notes.index._fts import SqliteTables
from graphagent.memory.notes.index._tables import POOL
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel
from tests.memory.notes.conftest import Words
from tests.memory.notes.enrich.test_consolidation import GIVEN


class Alike(Words):
    """What has the word is the nearest there can be; the more other words, the farther away."""

    def vector(self, text):
        return [1.0, 0.1 * len(text.split())] if "pear" in text or text == "quince" else [0.0, 1.0]


MINE = {"scope": "/mine", "categories": ["y"], "source": "al", "at": datetime(2020, 1, 1, tzinfo=UTC)}
LATER = datetime(2030, 1, 1, tzinfo=UTC)
HIDDEN = {
    "in another scope": ({"scope": "/other"}, {}, {"scope": "/mine"}),
    "of another category": ({"categories": ["x"]}, {}, {"categories": ["y"]}),
    "of another source": ({"source": "bob"}, {}, {"source": "al"}),
    "private": ({"private": True}, {}, {}),
    "before": ({}, {"at": LATER}, {"since": LATER}),
}
"""What many notes are, what the one that is sought is, and what is asked for besides."""


@pytest.mark.parametrize("why", HIDDEN)
@pytest.mark.parametrize("embedder", [None, Alike()], ids=["words", "vectors"])
async def test_what_may_not_be_found_hides_nothing(store, embedder, why):
    """Of many notes that fit better, but may not be found, none takes the place of one that may, by words and by vectors."""
    others, sought, asked = HIDDEN[why]
    notes = Notes(store, embedder=embedder)
    await notes.remember_many([Note("pear", **{**MINE, **others}) for _ in range(POOL + 50)])
    kept = await notes.remember("a pear and quite a few other words beside it", **{**MINE, **sought})
    question = "pear" if embedder is None else "quince"
    assert [match.record.id for match in await notes.recall(question, limit=1, **asked)] == [kept.id]


def phrase(text):
    return json.dumps({"phrases": [text], "since": None, "until": None, "scopes": [], "complexity": 0.1})


async def test_a_deep_recall_finds_what_is_in_any_of_many_scopes_beside_one_another(tmp_path):
    """The root's own notes and those of the last of forty children are among what is found."""
    async with Notes(tmp_path / "n.db", model=ScriptedModel([phrase("answer")] * 2)) as notes:
        await notes.remember("the answer at the root", infer="never")
        for number in range(40):
            await notes.remember(f"the answer of child {number}", scope=f"/c{number:02}", infer="never")
        found = {match.record.scope for match in await notes.recall("answer", depth="deep", limit=50)}
        assert found == {"/", *(f"/c{number:02}" for number in range(40))}
        [only] = await notes.recall("answer child 39", depth="deep", limit=1)
        assert only.record.scope == "/c39"


def test_counts_and_lists_have_no_end_of_their_own():
    """Sixty thousand notes are counted, listed and may be found, all of them."""
    many = 60_001
    connection = apsw.Connection(":memory:")
    SqliteTables(connection).make()
    connection.execute(
        "WITH RECURSIVE each(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM each WHERE n < ?)"
        " INSERT INTO notes_rows (row, owner, id, scope, session, place, speaker, role, created, importance, source, private, chunks, traits)"
        " SELECT n, '', 'id' || n, '/s' || (n % 3), '', 0, '', '', n, 0.5, '', 0, 1, 0 FROM each",
        (many,),
    )
    connection.execute("INSERT INTO notes_categories SELECT row, 'c' FROM notes_rows")
    fits = Filter("")
    assert sum(count for count, _, _ in SqliteTables(connection).counts(fits).values()) == many
    assert SqliteTables(connection).categories(fits) == {"c": many}
    assert len(SqliteTables(connection).newest(fits, -1, 0)) == many
    assert len(SqliteTables(connection).fitting(fits)) == many
    assert len(SqliteTables(connection).fitting(Filter("", ("/s0", "/s1", "/s2")))) == many
    assert len(SqliteTables(connection).since("", 0)[0]) == many
    connection.close()


@pytest.mark.parametrize("what", ["tree", "info", "list_scopes", "list_categories", "list_records", "recall"])
async def test_what_is_read_does_not_grow_with_the_number_of_scopes(tmp_path, monkeypatch, what):
    """As many statements are executed over three hundred scopes as over three."""
    statements = []

    def hook(connection):
        connection.exec_trace = lambda cursor, sql, bindings: statements.append(sql) or True

    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, hook])
    operations = {
        "tree": lambda notes: notes.tree(),
        "info": lambda notes: notes.info(),
        "list_scopes": lambda notes: notes.list_scopes(),
        "list_categories": lambda notes: notes.list_categories(),
        "list_records": lambda notes: notes.list_records(limit=3),
        "recall": lambda notes: notes.recall("pear", limit=3),
    }
    told = []
    for scopes in (3, 300):
        async with SqliteStore(tmp_path / f"{scopes}.db") as store:
            notes = Notes(store)
            await notes.remember_many([Note("pear", f"/s{number % scopes}", ["c"]) for number in range(300)])
            await operations[what](notes)
            statements.clear()
            await operations[what](notes)
            told.append(len(statements))
    assert told[0] == told[1]


async def test_what_is_done_with_one_note_does_not_grow_with_their_number(tmp_path, monkeypatch):
    """SQLite takes about as many steps among two thousand notes as among two hundred, but for the words in FTS5."""
    steps = Counter()

    def finished(told):
        if any(name in told["sql"] for name in ("notes_rows", "notes_categories", "notes_metadata")):
            steps[doing] += told["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    def hook(connection):
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, finished)

    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, hook])
    said = [Turn(f"hello {number}", f"speaker {number % 5}") for number in range(20)]
    operations = {
        "remember": lambda notes, _: notes.remember("the key is lost"),
        "remember it again": lambda notes, _: notes.remember("the key is lost"),
        "update": lambda notes, id_: notes.update(id_, content="the key is under the stone"),
        "recall": lambda notes, _: notes.recall("which key does Ada have?"),
        "recall by a category": lambda notes, _: notes.recall("which key does Ada have?", categories=["rare"]),
        "undo": lambda notes, id_: notes.undo(id_),
        "forget": lambda notes, id_: notes.forget(ids=[id_]),
    }
    taken = []
    for count in (200, 2000):
        async with SqliteStore(tmp_path / f"{count}.db", synchronous="NORMAL") as store:
            notes, doing = Notes(store), ""
            await notes.remember_many([Note(f"pear {number}", "/s", [f"c{number % 40}"]) for number in range(count)])
            await notes.remember_conversation(said, session="monday")
            record = await notes.remember("the key is under the mat", categories=["rare"])
            for doing, work in operations.items():  # noqa: B007  the hook reads it
                await work(notes, record.id)
        taken.append({name: steps.pop(name, 0) for name in operations})
    few, many = taken
    assert {name: (few[name], many[name]) for name in few if many[name] > 1.5 * few[name]} == {}


async def cost(store, count, **settings):
    """Give the processor time, in seconds, of one save of many notes, every one of its own words."""
    notes = Notes(store, embedder=Words(dimensions=64), **settings)
    given = [Note(f"alpha{number} beta{number} gamma{number}", **GIVEN) for number in range(count)]
    await notes.remember("first")
    began = time.process_time()
    await notes.remember_many(given)
    return time.process_time() - began


async def test_a_save_of_eight_times_as_many_notes_costs_about_eight_times_as_much(tmp_path):
    """Nothing in a save compares each of its notes with each other one."""
    few = min([await cost(SqliteStore(tmp_path / f"{number}.db"), 400) for number in range(3)])
    assert await cost(SqliteStore(tmp_path / "many.db"), 3_200) < 24 * few
