"""What waits for people in a store, over all owners and runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from graphagent import END, START, Agent, Strategy, tool
from graphagent.errors import DamagedStoreError, RunError, StoreError
from graphagent.history import (
    export_runs,
    forget_runs,
    forget_thread,
    import_runs,
    list_questions,
    prune_runs,
)
from graphagent.llm import ToolCall
from graphagent.log._header import WAITING, mark_key
from graphagent.nodes import ask_human
from graphagent.store import MemoryStore, Put
from graphagent.testing import ScriptedModel, fixed_clock
from graphagent_strategies import single_run


@dataclass
class Seat:
    row: int


seats = Strategy("seats", START >> ask_human("Which seat?", Seat) >> END)


@tool(approve=True)
def pay(name: str) -> str:
    """Pay somebody."""
    return f"paid {name}"


def clerk(store):
    """An agent whose sub-agent waits for an approval."""
    call = ToolCall("pay", {"name": "Ada"}, id="p")
    inner = Agent(single_run(), model=ScriptedModel([call]), tools=[pay], name="payer", description="Pays.")
    outer = ScriptedModel([ToolCall("payer", {"task": "Pay."}, id="t")])
    return Agent(single_run(), model=outer, tools=[inner], store=store)


class Looked(MemoryStore):
    """A store that notes what is scanned, and that cannot be written while it is `closed`."""

    def __init__(self):
        super().__init__()
        self.scanned, self.closed = [], False

    def scan(self, prefix, **options):
        self.scanned.append(prefix)
        return super().scan(prefix, **options)

    async def commit(self, *changes):
        if self.closed:
            raise StoreError("it is read-only")
        await super().commit(*changes)


async def test_questions_are_listed_over_all_owners(store):
    """Those of the agent's own strategy, with the types of their answers, or of all; the one that waits longest first."""
    agent, start = Agent(seats, store=store), datetime(2020, 1, 2, tzinfo=UTC)
    for days, owner in enumerate(("bob", "ada", "")):
        with fixed_clock(int((start - timedelta(days=days)).timestamp() * 1000), 0):
            await agent.run("KL 1144", run_id="r", owner=owner, thread="t" if owner else None)
    await clerk(store).run("Pay Ada.", run_id="paying", owner="ada")
    for _ in range(2):  # of which the second looks at the marks
        found = await agent.questions()
        assert [(each.owner, each.run_id, each.thread) for each in found] == [
            ("", "r", ""),
            ("ada", "r", "t"),
            ("bob", "r", "t"),
        ]
        assert [each.since for each in found] == [start - timedelta(days=n) for n in (2, 1, 0)]
        assert {(each.question.id, each.question.type, each.strategy) for each in found} == {
            ("ask_human:1", Seat, "seats")
        }
    [own] = await clerk(store).questions(owner="ada")
    assert (own.run_id, own.question.run_id.split("/")[1], own.question.call.name) == ("paying", "payer", "pay")
    everything = await list_questions(store)
    assert [(each.owner, each.run_id) for each in everything] == [
        ("", "r"), ("ada", "r"), ("bob", "r"), ("ada", "paying"),
    ]  # fmt: skip
    assert [each.owner for each in await list_questions(store, owner="bob")] == ["bob"]
    for each in await agent.questions():
        done = await agent.resume(each.run_id, answers={each.question.id: Seat(12)}, owner=each.owner)
        assert done.output == Seat(12)
    assert await agent.questions() == []


@pytest.mark.parametrize("looked", [False, True])
@pytest.mark.parametrize("how", ["end", "if_busy", "prune", "forget", "forget one", "forget the thread"])
async def test_a_run_that_waits_no_more_is_not_listed(store, how, looked):
    """Nothing of it is left in the room of those that wait."""
    agent = Agent(seats, store=store)
    await agent.run("x", run_id="r", owner="ada", thread="t")
    if looked:
        assert len(await agent.questions()) == 1
    if how == "end":
        await agent.end("r", owner="ada")
    elif how == "if_busy":
        await agent.run("x", run_id="s", owner="ada", thread="t", if_busy="end")
    elif how == "prune":
        await prune_runs(store, owner="ada", run_ids=["r"])
    elif how == "forget the thread":
        await forget_thread(store, "t", owner="ada")
    else:
        await forget_runs(store, owner="ada", run_ids=["r"] if how == "forget one" else None)
    left = ["s"] if how == "if_busy" else []
    assert [each.run_id for each in await agent.questions()] == left
    assert [item.key[2] async for item in store.scan((WAITING, "ada"))] == left


async def test_only_runs_that_wait_are_read():
    """Once a store was looked through, however many runs it has; one that cannot be written is looked through each time."""
    store = Looked()
    agent = Agent(seats, store=store)
    for number in range(5):
        await agent.run("x", run_id=f"r{number}")
        if number:
            await agent.resume(f"r{number}", answer=Seat(1))
    store.closed = True
    for _ in range(2):
        store.scanned.clear()
        assert [each.run_id for each in await agent.questions()] == ["r0"]
        assert ("runs",) in store.scanned
    store.closed = False
    assert await agent.questions(owner="ada") == []
    store.scanned.clear()
    assert [each.run_id for each in await agent.questions()] == ["r0"]
    assert store.scanned == [(WAITING,), ("runs", "", 1, "r0", "r0")]


async def test_a_mark_that_is_out_of_date_is_passed_over():
    """As an earlier build leaves it, which continues a run and knows of no marks. A damaged one is named."""
    store = MemoryStore()
    agent = Agent(seats, store=store)
    await agent.run("x", run_id="r")
    assert len(await agent.questions()) == 1
    mark = await store.get(mark_key(WAITING, "", "r"))
    await agent.resume("r", answer=Seat(1))
    await store.commit(*(Put(mark_key(WAITING, "", run_id), mark.value) for run_id in ("r", "gone")))
    assert await agent.questions() == await list_questions(store) == []
    await store.commit(Put(mark_key(WAITING, "", "r"), b"broken"))
    with pytest.raises(DamagedStoreError, match="run 'r'"):
        await agent.questions()


async def test_questions_of_runs_that_were_imported_are_listed():
    """Also in a store that was looked through before."""
    store, other = MemoryStore(), MemoryStore()
    await Agent(seats, store=store).run("x", run_id="r", owner="ada")
    assert await list_questions(other) == []
    await import_runs(other, [record async for record in export_runs(store)])
    assert [each.owner for each in await list_questions(other)] == ["ada"]
    with pytest.raises(RunError, match="this agent does not keep its runs"):
        await Agent(seats).questions()
