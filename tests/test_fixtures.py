"""Stores that earlier builds wrote are read, and their runs continued: `tests/fixtures/write.py` says how they were made."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import apsw
import pytest

from graphagent.events import CacheUsed
from graphagent.history import answer_run, broken_rules, list_questions, resume_run
from graphagent.memory import (
    EncryptedMemoryProvider,
    FileMemoryProvider,
    Notes,
    Scope,
    SingleFact,
    StoreMemoryProvider,
)
from graphagent.store import EncryptedStore, SqliteStore
from tests.fixtures.dumps import build, dump
from tests.fixtures.programs import APP, CASES, CITY, KEY, USER, embedder, mail
from tests.fixtures.read import facts_read, notes_read, run_read, runs_read

FIXTURES = Path(__file__).parent / "fixtures"
BUILDS = sorted(file.parent.name for file in FIXTURES.glob("*/read.json"))


@pytest.fixture(params=BUILDS)
def fixture(request):
    """The folder of each build."""
    return FIXTURES / request.param


@pytest.fixture
def read(fixture):
    """What that build itself read."""
    return json.loads((fixture / "read.json").read_text("utf-8"))


@pytest.fixture
async def opened(fixture, tmp_path):
    """Return a function that opens a store by the name of its dump."""
    async with AsyncExitStack() as closing:

        async def open_store(name):
            file = tmp_path / f"{name}.db"
            build((fixture / f"{name}.sql").read_text("utf-8"), file)
            inner = await closing.enter_async_context(SqliteStore(file))
            return EncryptedStore(inner, KEY) if name.startswith("sealed") else inner

        yield open_store


def same(found):
    """Return plain data as JSON has it."""
    return json.loads(json.dumps(found))


def test_a_file_made_of_a_dump_has_its_content_and_is_sound(fixture, tmp_path):
    """The dump of the file is the dump that it was made of, and neither its tables nor the tables of its index are damaged."""
    for text in fixture.glob("*.sql"):
        file = tmp_path / f"{text.stem}.db"
        build(text.read_text("utf-8"), file)
        assert dump(file) == text.read_text("utf-8")
        connection = apsw.Connection(str(file))
        assert connection.pragma("integrity_check") == "ok"
        if "notes_words" in text.read_text("utf-8"):
            connection.execute("INSERT INTO notes_words(notes_words, rank) VALUES ('integrity-check', 0)")
        connection.close()


@pytest.mark.parametrize("name", ["runs", "sealed_runs"])
async def test_runs_of_earlier_builds_are_read_as_they_were(name, read, opened):
    """Their list, transcripts, questions, entries and the state after each entry are those that the build itself read.

    Only the key of a question had the place of its task before it, which the key of its answer has not.
    """
    store = await opened(name)
    assert same(await runs_read(store)) == read[name]["list"]
    for run_id, expected in read[name]["runs"].items():
        for entry in expected["entries"]:
            entry[2] = re.sub(r"^\d+\.\d+/", "", entry[2])
        assert same(await run_read(store, run_id)) == expected, run_id


@pytest.mark.parametrize("name", ["runs", "sealed_runs"])
async def test_runs_of_earlier_builds_are_continued(name, read, opened):
    """Each run that waits, is paused, failed, was cancelled or interrupted ends as it should; one that ended has its output."""
    store = await opened(name)
    for run_id in read[name]["runs"]:
        case = CASES[run_id]
        assert (await case.build(store, ()).read(run_id, owner=case.owner, **case.deps)).status == case.status
        agent = case.build(store, case.later)
        for options in case.answers or [{}]:
            result = await agent.resume(run_id, owner=case.owner, **case.deps, **options)
        assert (result.status, result.output) == ("done", case.output), run_id


@pytest.mark.parametrize("name", ["runs", "sealed_runs"])
async def test_runs_of_earlier_builds_are_answered_and_resumed_without_their_agents(name, read, opened):
    """By the schemas in their logs; whoever has the agent continues them. Those that are over stay as they are."""
    store = await opened(name)
    for run_id in read[name]["runs"]:
        case = CASES[run_id]
        agent = case.build(store, case.later)
        for options in case.answers or [{}]:
            answer = (options["answer"],) if "answer" in options else ()
            if options:
                head = await answer_run(store, run_id, *answer, results=options.get("results"), owner=case.owner)
            else:
                head = await resume_run(store, run_id, owner=case.owner)
            assert head.status == ("done" if case.status == "done" else "queued")
            result = await agent.resume(run_id, owner=case.owner, **case.deps)
        assert (result.status, result.output) == ("done", case.output), run_id


@pytest.mark.parametrize("name", ["runs", "sealed_runs"])
async def test_questions_of_earlier_builds_are_listed(name, read, opened):
    """When the store is looked through for the first time, and afterwards."""
    store, runs = await opened(name), read[name]["runs"].items()
    waiting = {(run_id, asked[0]) for run_id, run in runs if run["status"] == "waiting" for asked in run["questions"]}
    for _ in range(2):
        assert {(each.run_id, each.question.id) for each in await list_questions(store)} == waiting


@pytest.mark.parametrize("name", ["runs", "sealed_runs"])
async def test_what_earlier_builds_left_is_taken_up(name, opened):
    """A thread is continued, what was left to be learned is learned, and what was cached is found."""
    store = await opened(name)
    chatting = CASES["thread-2"].build(store, ["Yes."])
    talk = await chatting.run("Many?", thread="alice")
    texts = [each.text for each in talk.memory.to_messages()]
    assert texts == ["Norway?", "Oslo.", "How many?", "720,000.", "Many?", "Yes."]

    learned = {
        "facts": [{"subject": "user", "keyword": "city", "description": "where", "value": "Oslo", "type": "SINGLE"}]
    }
    assert await CASES["learning"].build(store, [learned]).settle() == 1
    [city] = await StoreMemoryProvider(store).load(CITY, USER, Scope.agent("guide"))
    assert city.source.run_id == "learning"

    counting, found = CASES["cached"].build(store, ()), []
    counting.on(CacheUsed, found.append)
    assert (await counting.run("one two three")).output == 3
    assert len(found) == 1


async def test_rules_are_checked_on_runs_of_earlier_builds(opened):
    """A run that waits for an approval has broken no rule, neither before nor after it."""
    store = await opened("runs")
    assert await broken_rules(store, "ruled", mail) == []
    await CASES["ruled"].build(store, ()).resume("ruled", answer=True)
    assert await broken_rules(store, "ruled", mail) == []


@pytest.mark.parametrize("name", ["facts", "facts.db", "sealed_facts"])
async def test_facts_of_earlier_builds_are_read_and_kept_on(name, fixture, read, opened, tmp_path):
    """Facts of all owners, their history and their number are what they were, and the next version follows."""
    async with AsyncExitStack() as closing:
        if name == "facts":
            shutil.copytree(fixture / "facts", tmp_path / "facts")
            provider = await closing.enter_async_context(FileMemoryProvider(tmp_path / "facts"))
        elif name == "facts.db":
            provider = StoreMemoryProvider(await opened("facts"))
        else:
            (tmp_path / "sealed").mkdir()
            build((fixture / "sealed_facts.sql").read_text("utf-8"), tmp_path / "sealed" / "facts.db")
            provider = await closing.enter_async_context(EncryptedMemoryProvider(tmp_path / "sealed", key=KEY))
        assert same(await facts_read(provider)) == read[name]
        await provider.save(SingleFact(CITY, "Turin"), USER, APP)
        assert [fact.version for fact in await provider.history(CITY, USER, APP)] == [3, 2, 1]


@pytest.mark.parametrize("name", ["notes", "sealed_notes"])
async def test_notes_of_earlier_builds_are_read_found_and_changed(name, read, opened):
    """Notes, what they were before, their tree and what is found are what they were; one more is found beside them."""
    async with Notes(await opened(name), embedder=embedder()) as notes:
        assert same(await notes_read(notes)) == read[name]
        added = await notes.remember("The kiln is hot on Mondays.", scope="/chat")
        found = await notes.recall("When is the kiln hot?", limit=5)
        assert found[0].record == added
        [changed] = [match.record for match in await notes.recall("PostgreSQL", limit=1)]
        assert "17" not in (await notes.undo(changed.id)).content
        await notes.forget(scope="/")
        assert await notes.list_records() == []
