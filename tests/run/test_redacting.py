"""Exported runs without what somebody wrote: nothing of it is left, and the rest is read as before."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from graphagent import Agent
from graphagent.history import export_runs, import_runs, read_run, redact_runs, run_owners
from graphagent.log._bytes import plain
from graphagent.memory import AgentMemory, Concept, Scope, SingleFact, StoreMemoryProvider, Subject
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.fixtures.dumps import build
from tests.fixtures.programs import KEY
from tests.run.canaries import NUMBER, written

FIXTURES = Path(__file__).parents[1] / "fixtures"
RUNS = sorted(f"{file.parent.name}/{file.stem}" for file in FIXTURES.glob("*/*runs*.sql"))
WORDS = re.compile(rf"zq\w+|{NUMBER}")


async def exported(store):
    return [each async for each in export_runs(store)]


def text_of(records):
    """Return all that records have, as text."""
    data = [plain(base64.b64decode(each["data"])) for each in records if each["type"] != "payload"]
    payloads = [base64.b64decode(each["data"]).decode() for each in records if each["type"] == "payload"]
    return json.dumps([data, [{**each, "data": ""} for each in records], payloads])


async def shape(store):
    """Return what stays of the runs of a store: who did what when, and how much of it."""
    found = {}
    for owner in await run_owners(store):
        for head in await list_runs(store, owner=owner):
            run = await read_run(store, head.run_id, owner=owner)
            found[head.run_id] = (
                head.written, head.turns, head.tokens, head.cost, head.started, head.parent, bool(head.thread), run.nodes, run.turns, run.usage,
                [(each.path, each.ended, each.here) for each in run.graph], run.taken, run.at, len(run.questions),
                None if run.failure is None else run.failure.type,
                [(each.number, each.kind, each.at, each.where, each.next, each.edge, each.error and each.error[0]) for each in run.entries],
            )  # fmt: skip
    return found


async def test_no_word_that_somebody_wrote_is_left_in_redacted_runs():
    """Neither of a task, a prompt, an answer, an argument or its name, a result, an id, a fact, a note, an error, a question, an owner."""
    await written(store := MemoryStore())
    records = await exported(store)
    redacted = list(redact_runs(records))
    assert len(Counter(WORDS.findall(text_of(records)))) > 40
    assert WORDS.findall(text_of(redacted)) == []


async def test_what_a_run_did_when_is_read_of_redacted_runs_as_before():
    await written(store := MemoryStore())
    copy = MemoryStore()
    await import_runs(copy, redact_runs(await exported(store)))
    assert await shape(copy) == await shape(store)


async def test_facts_are_told_apart_where_their_keywords_are_not_shown():
    """Two facts with keywords of one length do not contradict each other."""
    facts = StoreMemoryProvider(store := MemoryStore())
    for keyword in ("home", "name"):
        await facts.save(SingleFact(Concept(keyword), "zqvalue"), Subject("user"), Scope.agent("single_run"))  # fmt: skip
    agent = Agent(single_run(), model=ScriptedModel(["Hello."]), store=store)
    agent.install(AgentMemory, provider=facts, learn=False)
    await agent.run("Hello.", run_id="r")
    await import_runs(copy := MemoryStore(), redact_runs(await exported(store)))
    prompt = "".join(each.text for each in (await read_run(copy, "r")).memory.to_messages())
    assert "contradicts" not in prompt
    assert re.findall('"concept":"([^"]*)"', prompt) == ["fact-1", "fact-2"]


@pytest.mark.parametrize("name", RUNS)
async def test_runs_that_earlier_builds_wrote_are_redacted_too(name, tmp_path):
    build((FIXTURES / f"{name}.sql").read_text("utf-8"), tmp_path / "runs.db")
    async with SqliteStore(tmp_path / "runs.db") as inner:
        store = EncryptedStore(inner, KEY) if "sealed" in name else inner
        copy = MemoryStore()
        await import_runs(copy, redact_runs(await exported(store)))
        assert await shape(copy) == await shape(store)
