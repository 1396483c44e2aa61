"""Runs in a store without their agent: listed, read, measured, taken along, pruned, forgotten."""

from __future__ import annotations

import copy
import dataclasses
import json
from datetime import timedelta

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent import END, START, Agent, Context, Strategy, _clock, each, node, parallel
from graphagent.errors import BudgetError, DamagedStoreError, RunClaimedError, RunError, RunNotFoundError
from graphagent.history import (
    choose_runs,
    compare_runs,
    export_runs,
    forget_runs,
    import_runs,
    measure_runs,
    prune_runs,
    read_run,
    run_owners,
)
from graphagent.history._runs import family
from graphagent.llm import ToolCall, ToolCalls
from graphagent.llm._chat import chat_messages
from graphagent.log._bytes import payloads_in, plain
from graphagent.log._header import header_key, rows_key
from graphagent.memory import ActionStep
from graphagent.nodes import ask_human
from graphagent.run import RunHeader as Head
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, MemoryStore, Put, SqliteStore, new_key
from graphagent.store._items import checked
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.run.test_journal import rows
from tests.thorough import examples

LONG = "A very long letter. " * 2000
"""So long that it stands apart, as a payload."""


@node
async def draft(ctx: Context, topic: str) -> str:
    return f"{LONG}{topic}"


@node
async def shorten(ctx: Context, text: str) -> str:
    return text[-20:]


@node
async def enlarge(ctx: Context, text: str) -> str:
    return f"{text} {LONG}!"


ask = ask_human("Send it?", bool)


@node
async def send(ctx: Context, approved: bool) -> str:
    return f"sent: {approved}"


mail = Strategy("mail", START >> draft >> shorten >> enlarge >> ask >> send >> END)


async def told(store, *, owner=""):
    """What can be read of each run."""
    found = {}
    for head in await list_runs(store, owner=owner):
        stored = await read_run(store, head.run_id, owner=owner)
        values = [(entry.data, entry.value) for entry in stored.entries]
        found[head.run_id] = values, stored.memory.to_json(), stored.at, stored.questions
    return found


# ---- listed and read


async def test_runs_are_listed_newest_first_at_a_glance(store):
    """Each says where it is, what it began with, with a mark where that is cut, and for whom; another owner's are not among them."""
    agent = Agent(mail, store=store)
    await agent.run("the party", run_id="a")
    await agent.run("the weather", run_id="b")
    await agent.run("secret" * 14, run_id="c", owner="ada")
    await agent.resume("a", answer=True)
    assert [(head.run_id, head.status, head.title) for head in await list_runs(store)] == [
        ("b", "waiting", "the weather"), ("a", "done", "the party"),
    ]  # fmt: skip
    assert [(head.run_id, head.title) for head in await list_runs(store, owner="ada")] == [("c", f"{'secret' * 13}s…")]
    assert await list_runs(store, owner="bob") == []
    assert await run_owners(store) == ["", "ada"]


async def test_lists_of_runs_are_chosen_by_status_and_cut(store):
    """`status=` and `limit=` choose among the runs, the newest first; a status that is not known and a text are refused."""
    agent = Agent(mail, store=store)
    for run_id in ("a", "b", "c", "d"):
        await agent.run("the party", run_id=run_id)
    await agent.resume("b", answer=True)
    assert [head.run_id for head in await list_runs(store, status=["done"])] == ["b"]
    assert [head.run_id for head in await list_runs(store, limit=3)] == ["d", "c", "b"]
    assert [head.run_id for head in await list_runs(store, status=["waiting", "paused"], limit=2)] == ["d", "c"]
    assert await list_runs(store, limit=0) == []
    with pytest.raises(ValueError, match="did you mean 'done'"):
        await list_runs(store, status=["Done"])
    with pytest.raises(TypeError, match="status= is a list"):
        await list_runs(store, status="done")
    with pytest.raises(ValueError, match="limit=-1"):
        await list_runs(store, limit=-1)


async def test_a_run_is_read_without_its_agent(store):
    """Its transcript, where it stands, what it asks and what it spent are those that the agent finds."""
    agent = Agent(mail, store=store)
    result = await agent.run("the party", run_id="a")
    stored = await read_run(store, "a")
    assert stored.at == ("ask_human",)
    [question] = stored.questions
    assert (question.id, question.question, question.about) == (
        result.pending.id, "Send it?", result.pending.about,
    )  # fmt: skip
    assert stored.memory == (await agent.read("a")).memory
    assert stored.nodes == result.nodes
    assert [entry.node for entry in stored.entries if entry.node] == ["draft", "shorten", "enlarge"]
    assert {stand.path: (stand.ended, stand.here) for stand in stored.graph} == {
        "draft": (1, False), "shorten": (1, False), "enlarge": (1, False), "ask_human": (0, True), "send": (0, False),
    }  # fmt: skip
    await agent.resume("a", answer=True)
    assert (await read_run(store, "a")).at == ()
    with pytest.raises(RunNotFoundError, match="'z'"):
        await read_run(store, "z")
    with pytest.raises(RunNotFoundError):
        await read_run(store, "a", owner="ada")


async def test_it_says_where_each_branch_stands():
    """Branches that wait are where the run is, and those that have ended are not; an each counts all its branches as one node."""

    @node
    async def count(ctx: Context, n: int) -> int:
        if n == 2:
            raise ValueError
        return n

    @node
    async def many(ctx: Context, text: str) -> list[int]:
        return [1, 1, 2]

    inner = Strategy("inner", START >> ask_human("Which?", str).named("which") >> END)
    forked = Strategy("forked", START >> parallel(shorten, inner.named("inner")) >> END)
    agent = Agent(forked, store=MemoryStore())
    await agent.run("x", run_id="a")
    assert (await read_run(agent.store, "a")).at == ("parallel/1/inner/which",)
    stands = {stand.path: stand for stand in (await read_run(agent.store, "a")).graph}
    assert stands["parallel/0/shorten"].ended == 1
    assert [path for path, stand in stands.items() if stand.here] == ["parallel/1/inner/which"]

    spread = Agent(Strategy("spread", START >> many >> each(count, limit=1) >> END), store=MemoryStore())
    with pytest.raises(RunError):
        await spread.run("x", run_id="a")
    stored = await read_run(spread.store, "a")
    [counted] = [stand for stand in stored.graph if stand.path.endswith("/count")]
    assert (counted.path, counted.ended) == ("each/count", 2)
    assert stored.at == ("each/2/count",)

    numbered = Strategy("numbered", START >> Strategy("outer", START >> inner.named("0") >> END) >> END)
    agent = Agent(numbered, store=MemoryStore())
    await agent.run("x", run_id="a")
    stored = await read_run(agent.store, "a")
    assert stored.at == ("outer/0/which",)
    assert [(stand.path, stand.kind, stand.depth) for stand in stored.graph] == [
        ("outer", "strategy", 0), ("outer/0", "strategy", 1), ("outer/0/which", "node", 2),
    ]  # fmt: skip


async def test_it_has_its_strategy_as_data(store):
    """It is drawn without the code, and the drawing names each edge that an entry says was taken."""
    ask = ask_human("Again?", bool)
    looping = Strategy("looping", START >> ask, ask.on(True) >> ask, ask.otherwise() >> send >> END)
    agent = Agent(looping, store=store)
    await agent.run("x", run_id="a")
    for again in (True, False):
        await agent.resume("a", answer=again)
    stored = await read_run(store, "a")
    assert stored.strategy == looping.outline
    assert stored.strategy.digest == stored.head.strategy_digest
    assert stored.strategy.to_svg() == looping.to_svg()
    taken = [f"{entry.node}:{entry.edge}" for entry in stored.entries if entry.edge is not None]
    assert taken == ["ask_human:0", "ask_human:1"]
    assert all(f'data-edge="{name}"' in stored.strategy.to_svg() for name in taken)


async def test_a_strategy_that_is_not_one_is_damage():
    """An entry whose outline lacks something, or is of another type, is named."""
    store = MemoryStore()
    await Agent(mail, store=store).run("x", run_id="a")
    key = (*rows_key(Head(run_id="a")), 1)
    time, ran, [sound, *others] = plain((await store.get(key)).value)
    for outline in (
        ["strategy mail: str -> str"],
        {"kind": "strategy"},
        sound["strategy"] | {"kind": "city"},
        sound["strategy"] | {"inside": [1]},
    ):
        changed = [time, ran, [sound | {"strategy": outline}, *others]]
        await store.commit(Put(key, checked(msgspec.msgpack.encode(changed))))
        with pytest.raises(DamagedStoreError, match="entry 1 of run 'a'"):
            await read_run(store, "a")


async def test_each_prompt_is_exactly_what_the_model_was_sent(store):
    """Message by message, the rules included, from the steps alone, also when a callback has changed a step since."""
    model = ScriptedModel(
        [ToolCall("look", {"what": "a"}), ToolCalls([ToolCall("look", {"what": "b"})], "Hm."), "done"]
    )

    from graphagent import tool

    @tool
    async def look(what: str) -> str:
        """Look."""
        return f"{what} looks fine"

    def edit(step: ActionStep, run):
        if step.step_number == 2:
            run.memory.steps[1].observations = "changed"

    agent = Agent(
        single_run(), model=model, tools=[look], store=store, system_prompt="Be kind.\nAlways.", step_callbacks=[edit]
    )
    await agent.run("Look around", run_id="a")
    steps = [step for step in (await read_run(store, "a")).memory.steps if isinstance(step, ActionStep)]
    assert len(steps) == len(model.requests) == 3
    for step, request in zip(steps, model.requests, strict=True):
        assert step.model_input_messages == tuple(request.messages)
        assert chat_messages(step.model_input_messages) == chat_messages(request.messages)


async def test_runs_are_measured(store):
    """The sizes are those of what is kept; a fork has a copy of what it has in common with its origin."""
    agent = Agent(mail, store=store)
    await agent.run("x", run_id="a")
    await agent.fork("a", after="shorten", run_id="b")
    sizes = await measure_runs(store)
    own = await measure_runs(store, run_id="b")
    kept = await rows(store)
    for run_id in ("a", "b"):
        assert sizes[run_id].entries == sum(key[:-1] == rows_key(Head(run_id=run_id)) for key in kept)
    assert (sizes["a"].payloads, sizes["b"].payloads) == (2, 2)
    assert sum(size.bytes for size in sizes.values()) == sum(map(len, (await rows(store)).values()))
    assert own == {"b": sizes["b"]}


async def test_two_runs_are_compared_without_their_agent(store):
    """As the agent compares them."""
    agent = Agent(mail, store=store)
    await agent.run("x", run_id="a")
    await agent.fork("a", before="ask_human", run_id="b")
    await agent.resume("a", answer=True)
    await agent.resume("b", answer=False)
    there = await compare_runs(store, "a", "b")
    same = await agent.diff("a", "b")
    assert there.common == same.common == 4
    assert [entry.data for entry in there.only_b] == [entry.data for entry in same.only_b]
    assert "+++ b" in there.to_text()


# ---- pruned


def _helper(**settings):
    return Agent(mail, name="helper", description="Writes a letter.", **settings)


def _family(store):
    """An agent that calls another one, which waits."""
    model = ScriptedModel([ToolCall("helper", {"task": "t"}, id="c"), "done"] * 9)
    return Agent(single_run(), model=model, tools=[_helper()], store=store)


async def test_parts_are_listed_as_a_tree_and_go_with_their_run(store):
    """The run of a sub-agent is a child of the run that called it."""
    agent = _family(store)
    await agent.run("x", run_id="a")
    heads = await list_runs(store)
    parts = family(heads)
    [root] = parts[""]
    [part] = parts["a"]
    assert (root.run_id, part.parent) == ("a", "a")
    assert part.run_id.startswith("a/")
    with pytest.raises(ValueError, match="is a part of run 'a', and goes with it"):
        await prune_runs(store, run_ids=[part.run_id])
    receipt = await prune_runs(store, run_ids=["a"])
    assert receipt.runs == 2
    assert await rows(store) == {}


async def test_what_is_pruned_fits_all_that_is_said(store):
    """Age, status, number and names narrow each other; the newest stay in any case."""
    agent = Agent(mail, store=store)
    day = 86_400_000
    for number, run_id in enumerate("abcd"):
        token = _clock.clock.set(lambda number=number: 1_000 * day + number * day)
        await agent.run("x", run_id=run_id)
        _clock.clock.reset(token)
    token = _clock.clock.set(lambda: 1_010 * day)
    await agent.resume("b", answer=True)
    heads = await list_runs(store)

    def chosen(**what):
        return [head.run_id for head in choose_runs(heads, **what)]

    assert chosen(older_than=timedelta(0)) == ["d", "c", "b", "a"]
    assert chosen(older_than=timedelta(days=8)) == ["c", "a"]
    assert chosen(status=["done"]) == ["b"]
    assert chosen(status=["done", "waiting"], keep=1) == ["c", "b", "a"]
    assert chosen(keep=3) == ["a"]
    assert chosen(run_ids=["a", "b"], status=["waiting"]) == ["a"]
    with pytest.raises(ValueError, match="say which runs"):
        await prune_runs(store)
    with pytest.raises(RunNotFoundError, match="'z'"):
        await prune_runs(store, run_ids=["z"])
    before = await rows(store)
    receipt = await prune_runs(store, older_than=timedelta(days=8))
    _clock.clock.reset(token)
    left = await rows(store)
    assert receipt.runs == 2
    assert receipt.bytes == sum(map(len, before.values())) - sum(map(len, left.values()))
    assert {key[3] for key in left} == {"b", "d"}


class Gate:
    """A node that is at work until it is let go."""

    def __init__(self):
        self.reached, self.open = anyio.Event(), anyio.Event()

        @node
        async def hold(ctx: Context, text: str) -> str:
            self.reached.set()
            await self.open.wait()
            return text

        self.strategy = Strategy("held", START >> shorten >> hold >> enlarge >> END)


async def test_what_is_executed_stays(store):
    """A run that has a process is not pruned; named, it is refused. The origin of one may go, since a fork is a copy."""
    await Agent(mail, store=store).run("x", run_id="a")
    gate = Gate()
    agent = Agent(gate.strategy, store=store)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: agent.run("y", run_id="b"))
        await gate.reached.wait()
        assert [head.run_id for head in await list_runs(store) if head.running] == ["b"]
        with pytest.raises(RunClaimedError, match="another task of this process"):
            await prune_runs(store, run_ids=["b"])
        assert (await prune_runs(store, older_than=timedelta(0))).runs == 1
        gate.open.set()
    gate.reached, gate.open = anyio.Event(), anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: agent.fork("b", at=2, run_id="c"))
        await gate.reached.wait()
        assert [head.run_id for head in await list_runs(store) if head.running] == ["c"]
        assert (await prune_runs(store, run_ids=["b"])).runs == 1
        gate.open.set()
    assert (await agent.read("c")).output.endswith(f"{LONG}!")


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_pruning_never_breaks_a_fork(data):
    """Whatever was forked from what, and wherever, what is left reads as before, payloads included, and goes on."""

    async def main():
        store = MemoryStore()
        agent = Agent(mail, store=store)
        await agent.run("the party", run_id="r0")
        for number in range(1, data.draw(st.integers(1, 6), label="forks")):
            heads = {head.run_id: head for head in await list_runs(store)}
            origin = data.draw(st.sampled_from(sorted(heads)), label="origin")
            at = data.draw(st.integers(1, heads[origin].last), label="at")
            await agent.fork(origin, at=at, run_id=f"r{number}")
        while heads := await list_runs(store):
            before = await told(store)
            ids = sorted(head.run_id for head in heads)
            gone = data.draw(st.sets(st.sampled_from(ids), min_size=1), label="gone")
            size = sum(map(len, (await rows(store)).values()))
            receipt = await prune_runs(store, run_ids=gone)
            assert receipt.runs == len(gone)
            assert receipt.bytes == size - sum(map(len, (await rows(store)).values()))
            assert await told(store) == {run_id: each for run_id, each in before.items() if run_id not in gone}
            named = {key[3] for key in await rows(store)}
            assert named == set(ids) - gone
            for run_id in named:
                kept, own = await rows(store), rows_key(Head(run_id=run_id))
                found = {key[-1] for key in kept if key[:-1] == (*own, 0)}
                read = payloads_in([plain(row) for key, row in kept.items() if key[:-1] == own])
                assert found == read, "a payload that nothing names"
            left = data.draw(st.sampled_from([*sorted(named), None]), label="goes on")
            if left is not None:
                answer = True if (await read_run(store, left)).questions else None
                if answer:
                    assert (await agent.resume(left, answer=True)).output == "sent: True"

    anyio.run(main)


class Interfering(MemoryStore):
    """A store in which something happens just before the next commit."""

    def __init__(self):
        super().__init__()
        self.meanwhile = None

    async def commit(self, *changes):
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        await super().commit(*changes)


async def test_a_fork_that_comes_while_its_origin_is_pruned_is_whole():
    """It is seen before the origin is gone."""
    store = Interfering()
    agent = Agent(mail, store=store)
    await agent.run("x", run_id="a")

    async def fork():
        await agent.fork("a", after="draft", run_id="b")

    store.meanwhile = fork
    assert (await prune_runs(store, run_ids=["a"])).runs == 1
    assert (await agent.resume("b", answer=True)).output == "sent: True"
    assert [head.run_id for head in await list_runs(store)] == ["b"]


async def test_an_origin_that_is_pruned_while_it_is_forked_refuses_the_fork():
    """There is no fork without its beginning."""
    store = Interfering()
    agent = Agent(mail, store=store)
    await agent.run("x", run_id="a")

    async def prune():
        await prune_runs(store, run_ids=["a"])

    store.meanwhile = prune
    with pytest.raises(RunError):
        await agent.fork("a", after="draft", run_id="b")
    assert await rows(store) == {}


async def test_a_run_that_goes_on_while_it_is_pruned_stays():
    """Who claims it first has it."""
    store = Interfering()
    await Agent(mail, store=store).run("x", run_id="other")
    gate = Gate()
    agent = Agent(gate.strategy, store=store, max_nodes=1)
    with pytest.raises(BudgetError):
        await agent.run("x", run_id="a")
    agent = Agent(gate.strategy, store=store)
    async with anyio.create_task_group() as group:

        async def go_on():
            group.start_soon(agent.resume, "a")
            await gate.reached.wait()

        store.meanwhile = go_on
        assert (await prune_runs(store, status=["waiting", "failed"])).runs == 1
        gate.open.set()
    assert (await agent.read("a")).done
    assert [head.run_id for head in await list_runs(store)] == ["a"]


async def test_a_fork_does_not_rely_on_payloads_of_its_origin():
    """It has its own, those of the part that it copied and those of what it did then, though the origin had the same before."""
    store = MemoryStore()
    agent = Agent(mail, store=store)
    await agent.run("x", run_id="a")
    await agent.fork("a", after="shorten", run_id="b")
    assert (await measure_runs(store))["b"].payloads == 2
    await prune_runs(store, run_ids=["a"])
    [question] = (await agent.read("b")).questions
    assert question.about.endswith(f"{LONG}!")


# ---- forgotten


async def test_forgetting_leaves_nothing_of_an_owner(store):
    """The other owner's runs stay; a receipt says what went."""
    agent = Agent(mail, store=store)
    for owner in ("", "ada"):
        await agent.run("x", run_id="a", owner=owner)
        await agent.fork("a", at=2, run_id="b", owner=owner)
    before = await rows(store)
    receipt = await forget_runs(store, owner="ada")
    left = await rows(store)
    assert receipt.runs == 2
    assert receipt.bytes == sum(map(len, before.values())) - sum(map(len, left.values()))
    assert left == {key: value for key, value in before.items() if key[1] == ""}
    assert await forget_runs(store, owner="ada") == dataclasses.replace(receipt, runs=0, bytes=0)


async def test_forgetting_a_sealed_run_destroys_its_keys(tmp_path):
    """The rows of its domains are gone from the store within, those of other runs are as they were."""
    async with SqliteStore(tmp_path / "runs.db") as plain:
        store = EncryptedStore(plain, new_key())
        agent = Agent(mail, store=store)
        await agent.run("x", run_id="a")
        before = [item.key async for item in plain.scan(("d",))]
        await agent.run("x", run_id="b")
        assert len([item async for item in plain.scan(("d",))]) == len(before) + 3, (
            "a head, its entries and the mark that it waits are a domain each"
        )
        await prune_runs(store, run_ids=["b"])
        assert [item.key async for item in plain.scan(("d",))] == before
        await forget_runs(store)
        assert [item async for item in plain.scan(("d",))] == []
        assert await store.verify() == 0


async def test_a_run_that_is_forgotten_while_it_is_executed_breaks_off(store):
    """It says so, and nothing of it comes back."""
    agent = Agent(mail, store=store)
    run = agent.start("x", run_id="a", owner="ada")

    @node
    async def forget(ctx: Context, text: str) -> str:
        await forget_runs(store, owner="ada")
        return text

    forgetful = Agent(Strategy("s", START >> draft >> forget >> shorten >> END), store=store)
    with pytest.raises(RunNotFoundError):
        await forgetful.run("x", run_id="a", owner="ada")
    assert await rows(store) == {}
    assert run.result.status == "new"


async def test_a_run_is_forgotten_beside_damaged_ones(store):
    """A run in no thread is forgotten though another one is damaged; a run that continues its steps shows that they are forgotten."""
    agent = Agent(single_run(), model=ScriptedModel(["one", "two", "three"]), store=store)
    result = await agent.run("1", run_id="first")
    await agent.run("2", steps=result.memory, run_id="second")
    await agent.run("3", run_id="other")
    await store.commit(Put(header_key("", "other"), b"damaged"))
    assert (await forget_runs(store, run_ids=["first"])).runs == 1
    assert [head.run_id for head in await list_runs(store)] == ["second", "other"]
    shown = str((await agent.read("second")).memory.to_json())
    assert "[forgotten]" in shown
    assert "'1'" not in shown


async def test_damaged_runs_can_be_forgotten():
    """Nobody has to read them for that."""
    store = MemoryStore()
    await Agent(mail, store=store).run("x", run_id="a")
    await store.commit(Put(header_key("", "a"), b"nonsense"), Put((*rows_key(Head(run_id="a")), 2), b"nonsense"))
    assert (await forget_runs(store)).runs == 1
    assert await rows(store) == {}


# ---- taken along


async def _example(store):
    """Runs with forks of forks, payloads, owners, sub-agents."""
    agent = Agent(mail, store=store)
    await agent.run("the party", run_id="a")
    await agent.fork("a", after="shorten", run_id="b")
    await agent.fork("b", before="ask_human", run_id="c")
    await agent.resume("c", answer=True)
    await agent.run("é \ud800 \x00", run_id="odd", owner="ada")
    await _family(store).run("x", run_id="tree")


async def test_an_export_is_without_loss(store):
    """Entry by entry, byte for byte, into another store, from which the same export comes; and the runs go on there."""
    await _example(store)
    exported = [json.loads(json.dumps(record)) async for record in export_runs(store)]
    other = MemoryStore()
    assert await import_runs(other, exported) == len([record for record in exported if record["type"] == "run"]) == 5
    entries = {key: value for key, value in (await rows(store)).items() if key[2] == 1}
    assert {key: value for key, value in (await rows(other)).items() if key[2] == 1} == entries
    assert [record async for record in export_runs(other)] == exported
    assert await told(other) == await told(store)
    assert (await Agent(mail, store=other).resume("b", answer=False)).output == "sent: False"


async def test_what_is_there_already_stays(store):
    """An import adds what is missing, and changes nothing."""
    await _example(store)
    exported = [record async for record in export_runs(store)]
    before = await rows(store)
    assert await import_runs(store, exported) == 0
    assert await rows(store) == before
    await prune_runs(store, run_ids=["odd"], owner="ada")
    assert await import_runs(store, exported) == 1
    assert await rows(store) == before


async def test_one_run_is_exported_whole(store):
    """A fork needs no origin; a run brings along the runs of its sub-agents."""
    await _example(store)
    exported = [record async for record in export_runs(store, owner="", run_ids=["c"])]
    other = MemoryStore()
    assert await import_runs(other, exported) == 1
    assert (await told(other))["c"] == (await told(store))["c"]
    assert (await list_runs(other))[0].origin == ("b", 5)
    assert {record["run_id"].partition("/")[0] async for record in export_runs(store, owner="", run_ids=["tree"])} == {
        "tree"
    }
    with pytest.raises(RunNotFoundError):
        [record async for record in export_runs(store, owner="", run_ids=["z"])]


async def test_a_fork_whose_origin_is_another_run_here_brings_its_own_beginning():
    """The run of that name here stays as it is, and the fork reads as it did there."""
    store, other = MemoryStore(), MemoryStore()
    agent = Agent(mail, store=store)
    await agent.run("the party", run_id="a")
    await agent.fork("a", after="enlarge", run_id="b")
    await Agent(mail, store=other).run("something else", run_id="a")
    here = (await told(other))["a"]
    assert await import_runs(other, [record async for record in export_runs(store)]) == 1
    assert (await told(other))["a"] == here
    assert (await told(other))["b"] == (await told(store))["b"]
    await prune_runs(other, run_ids=["a"])
    assert (await Agent(mail, store=other).resume("b", answer=True)).output == "sent: True"


@pytest.fixture(scope="module")
def exported():
    """An export as records."""

    async def main():
        store = MemoryStore()
        await _example(store)
        return [json.loads(json.dumps(record)) async for record in export_runs(store)]

    return anyio.run(main)


def _mutations(draw, value):
    """Give JSON data with something changed in it."""
    if isinstance(value, dict) and value:
        key = draw(st.sampled_from(sorted(value)))
        if draw(st.booleans()):
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: _mutations(draw, value[key])}
    if isinstance(value, list) and value:
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], *([_mutations(draw, value[place])] if draw(st.booleans()) else []), *value[place + 1 :]]
    return draw(st.sampled_from([None, 0, 7, -1, "", "x", [], {}, True, 1.5, "AAAA"]).filter(lambda new: new != value))


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_damaged_input_is_refused(exported, data):
    """Whatever was changed, taken away or doubled in an export: nothing of it is imported, or it says the same all the same."""
    records = copy.deepcopy(exported)
    place = data.draw(st.integers(0, len(records) - 1), label="place")
    what = data.draw(st.sampled_from(["change", "drop", "double", "swap"]), label="what")
    if what == "change":
        records[place] = _mutations(data.draw, records[place])
    elif what == "drop":
        del records[place]
    elif what == "double":
        records.insert(place, records[place])
    else:
        records[place] = data.draw(st.sampled_from([None, [], "x", 3, {}]))

    async def main():
        store = MemoryStore()
        refused = ""
        try:
            await import_runs(store, records)
        except ValueError as error:
            refused = str(error)
        if refused:
            assert "nothing was imported" in refused
            assert LONG[:30] not in refused
            assert await rows(store) == {}
        else:
            assert (await rows(store)).items() <= (await _imported(exported)).items()

    anyio.run(main)


async def _imported(records):
    store = MemoryStore()
    await import_runs(store, records)
    return await rows(store)


async def test_an_import_of_what_lacks_its_beginning_is_refused():
    """Rather than to keep a run that cannot be read, since it continues one that is missing."""
    store = MemoryStore()
    agent = Agent(Strategy("s", START >> shorten >> END), store=store)
    for run_id in ("a", "b"):
        await agent.run("x", thread="t", run_id=run_id)
    records = [record async for record in export_runs(store) if record["run_id"] != "a"]
    with pytest.raises(ValueError, match="lacks run 'a', which it continues; nothing was imported"):
        await import_runs(MemoryStore(), records)
