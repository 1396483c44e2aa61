"""Time travel in runs that are kept: looked at behind any entry, forked there, compared, and executed again."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import Literal, NewType

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings

from graphagent import END, START, Agent, Context, Strategy, node, parallel, race, tool
from graphagent.errors import BudgetError, DivergedError, NodeFailedError, RunExistsError, RunNotFoundError
from graphagent.events import NodeStarted
from graphagent.history import forget_runs, prune_runs
from graphagent.llm import Message, ModelRequest, ToolCall, ToolCalls, ToolResult
from graphagent.log._entries import EffectRecorded
from graphagent.log._header import RunHeader, header_key, rows_key
from graphagent.memory import AgentMemory, FileMemoryProvider, Subject
from graphagent.nodes import ask_human, auto_detect_facts, execute_tools, llm_request, passthrough
from graphagent.run import list_runs
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, fixed_clock
from graphagent_strategies import single_run
from tests.run.family import Family
from tests.run.lives import Life, Undisturbed, Watched, answers_to, cut, entries_of, recorded_in
from tests.run.test_resume import MANY, backends, chosen
from tests.run.worlds import parts
from tests.thorough import examples, some


async def items_of(store, run_id):
    """Give all that is kept of a run, byte for byte."""
    rows = [(item.key, item.value, item.version) async for item in store.scan(rows_key(RunHeader(run_id=run_id)))]
    return [*rows, await store.get(header_key("", run_id))]


class Filmed(Watched):
    """A store that has a look at the run with each commit."""

    def __init__(self):
        super().__init__()
        self.agent = None
        self.seen = {}
        self.started = []

    async def commit(self, *changes):
        run = self.agent.last
        self.seen[run._run.log.state.number] = copy.deepcopy(run.memory.full_steps()), len(self.started)
        await super().commit(*changes)


async def filmed(built):
    """Run some parts while they are looked at."""
    life, store = Life(built), Filmed()
    make = life.agent

    def agent(store):
        made = make(store)
        made.on(NodeStarted, lambda event: store.started.append((event.node, repr(event.input))))
        store.agent = made
        return made

    life.agent = agent
    await life.live(store)
    return store


async def seen_everywhere(built):
    with fixed_clock(step_ms=0):
        store = await filmed(built)
        agent = store.agent
        history = await agent.history("r")
        assert [entry.number for entry in history] == list(range(1, len(history) + 1))
        for entry in history:
            snapshot = await agent.state_at("r", entry.number)
            assert snapshot.number == entry.number
            steps, started = store.seen.get(entry.number, (None, None))
            if steps is not None and not any("/0/" in f"{place}/" for place in snapshot.places):
                assert snapshot.memory.full_steps() == steps, entry
            if entry.next:
                assert entry.next in snapshot.places, (entry, snapshot.places)
                later = next(((n, v) for n, v in store.started[started:] if n == entry.next), None)
                if started is not None and later is not None:
                    assert repr(snapshot.places[entry.next]) == later[1]


@backends
def test_the_state_behind_any_entry_is_what_the_run_had(backend):
    """The history lists what was committed; behind each entry stand the transcript and the places of that moment.

    Compared with the run itself, looked at while it commits: with loops, retries, error paths, strategies inside and branches.
    """

    @settings(max_examples=examples(6, 3), **MANY)
    @given(parts(2))
    def everywhere(built):
        anyio.run(seen_everywhere, built, backend=backend)

    everywhere()


async def forked(life, store, origin, number, run_id):
    """Fork a run behind an entry, and finish the fork."""
    agent = life.agent(store)
    try:
        result = await agent.fork(origin, at=number, run_id=run_id)
        while result.status == "waiting":
            agent = life.agent(store)
            result = await agent.resume(run_id, answers=answers_to(result.questions, one=False))
    except NodeFailedError as error:
        return f"failed: {error}", agent.last.result
    return f"done: {result.output!r}", result


async def forked_everywhere(built):
    with fixed_clock(step_ms=0):
        whole = await Undisturbed.of(built)
        store = await cut(whole.commits)
        entries = await entries_of(store)
        before = await items_of(store, "r")
        for number in chosen(range(1, len(entries) + 1)):
            whole.life.world.begin(recorded_in(entries[:number]))
            said, result = await forked(whole.life, store, "r", number, f"f{number}")
            whole.compare(said, result, entries[:number])
            assert result.usage == whole.usage
            assert result.ledger.total == whole.usage
            assert result.run_id == f"f{number}"
        assert await items_of(store, "r") == before


@backends
def test_a_fork_behind_any_entry_ends_as_its_origin_did(backend):
    """Output, transcript and usage are the same, nothing recorded is done again, and the origin keeps every byte."""

    @settings(max_examples=examples(4, 2), **MANY)
    @given(parts(2))
    def everywhere(built):
        anyio.run(forked_everywhere, built, backend=backend)

    everywhere()


async def rerun_everywhere(built):
    with fixed_clock(step_ms=0):
        whole = await Undisturbed.of(built)
        store = await cut(whole.commits)
        entries = await entries_of(store)
        origin = (await whole.life.agent(store).read("r")).result
        for number in [None, *chosen(range(1, len(entries) + 1))]:
            known = entries if number is None else entries[:number]
            whole.life.world.begin(recorded_in(known))
            agent = whole.life.agent(store)
            try:
                result = await agent.rerun("r", until=number, new_id=f"n{number}")
                while result.status == "waiting":
                    result = await agent.resume(f"n{number}", answers=answers_to(result.questions, one=False))
                said = f"done: {result.output!r}"
            except NodeFailedError as error:
                said, result = f"failed: {error}", agent.last.result
            whole.life.world.bodies = whole.bodies
            whole.compare(said, result, [each for each in known if isinstance(each.entry, EffectRecorded)])
            assert result.usage == whole.usage
            assert result.turns == origin.turns
            if "race" not in repr(built):
                assert result.nodes == origin.nodes


@backends
def test_a_rerun_until_any_entry_ends_the_same_and_is_live_behind_it_alone(backend):
    """What was recorded by then is not done again, what comes later is done once; turns, transcript and usage are the same.

    Of races only the winner is executed again, so nodes are not compared there.
    """

    @settings(max_examples=examples(6, 3), **MANY)
    @given(parts(2))
    def everywhere(built):
        anyio.run(rerun_everywhere, built, backend=backend)

    everywhere()


async def test_branches_that_failed_and_were_collected_are_behind_a_rerun_too():
    """In a loop, so that the branches stand there again."""
    await rerun_everywhere([("loop", [("each", [("flaky", 3), ("tap", 3)], 2, ("drop", None), True)])])


# ---- forks


@dataclass
class Page:
    """A typed value."""

    of: str


@node
async def make(ctx: Context, text: str) -> Page:
    return Page(text)


@node
async def read(ctx: Context, page: Page) -> str:
    return f"{page.of}!"


@node
async def loud(ctx: Context, text: str) -> str:
    return text.upper()


@node
async def join(ctx: Context, both: tuple[str, str]) -> str:
    return "+".join(both)


talk = llm_request(tools=False)
book = Strategy("book", START >> Strategy("inner", START >> loud >> make >> END) >> read >> END)


def kept(strategy, *replies, **settings):
    """Give an agent with a store."""
    return Agent(strategy, model=ScriptedModel(replies), store=MemoryStore(), **settings)


def again(agent, *replies):
    """Give an agent of another process over the same store."""
    return Agent(agent.strategy, model=ScriptedModel(replies), store=agent.store, tools=agent.tools)


async def test_the_model_sees_an_edited_transcript_and_value():
    """A fork's model is sent what the edit left in the transcript, and the origin keeps what it had."""
    agent = kept(Strategy("s", START >> talk >> loud >> talk.named("more") >> END), "one", "two")
    await agent.run("task", run_id="r")
    before = await items_of(agent.store, "r")
    other = again(agent, "three")

    def edit(snapshot):
        assert (snapshot.value, snapshot.places) == ("ONE", {"more": "ONE"})
        snapshot.memory.steps[0].task = "another task"
        snapshot.value = "EDITED"

    result = await other.fork("r", before="more", edit=edit, run_id="f")
    assert result.output == "three"
    [request] = other.model.requests
    assert [message.text for message in request.messages] == ["another task", "one", "EDITED"]
    assert (await again(agent).read("f")).memory.steps[0].task == "another task"
    assert await items_of(agent.store, "r") == before


@pytest.mark.parametrize(
    ("place", "output"),
    [
        ({"before": "inner/loud"}, "NEW!"),
        ({"after": "inner/loud"}, "new!"),
        ({"before": "inner"}, "NEW!"),
        ({"after": "inner/make"}, "new!"),
        ({"after": "inner"}, "new!"),
        ({"before": "read"}, "new!"),
    ],
)
async def test_a_value_is_edited_in_a_strategy_inside(place, output):
    """Before its nodes, behind them, and at its end, each with a value of the type that is declared there."""
    agent = kept(book)
    await agent.run("x", run_id="r")

    def edit(snapshot):
        snapshot.value = Page("new") if isinstance(snapshot.value, Page) else "new"

    assert (await agent.fork("r", **place, edit=edit, run_id="f")).output == output
    assert (await agent.read("f")).output == output
    assert (await agent.read("r")).output == "X!"


async def test_a_value_is_edited_in_one_of_several_branches():
    """`places` names what each branch stands at; the others go on with what they had."""
    strategy = Strategy(
        "s", START >> parallel(Strategy("a", START >> loud >> talk >> END), loud, limit=1) >> join >> END
    )
    agent = kept(strategy, "one")
    await agent.run("x", run_id="r")
    other = again(agent, "two")

    def edit(snapshot):
        assert snapshot.places == {"parallel/0/a/llm_request": "X", "parallel/1/loud": "x"}
        snapshot.places["parallel/0/a/llm_request"] = "NEW"

    result = await other.fork("r", before="parallel/0/a/llm_request", edit=edit)
    assert result.output == "two+X"
    assert other.model.requests[0].messages[-1].text == "NEW"


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"at": 0}, ValueError, "has the entries 1 to 7, and no 0"),
        ({"at": 8}, ValueError, "has the entries 1 to 7, and no 8"),
        ({"at": "read"}, TypeError, "by its number, such as 7, and not by 'read'"),
        ({"at": True}, TypeError, "and not by True"),
        ({}, ValueError, "one of at=, before= and after="),
        ({"at": 1, "before": "read"}, ValueError, "one of at=, before= and after="),
        ({"before": "reed"}, ValueError, "'reed'; it executed: 'inner', 'inner/loud', 'inner/make', 'read'"),
        ({"after": "inner/read"}, ValueError, "'inner/read'; it executed: 'inner', "),
        ({"after": "read", "run_id": "r"}, RunExistsError, "there is a run 'r' already"),
        ({"at": 1, "edit": lambda seen: setattr(seen, "value", 7)}, ValueError, "before node 'inner', where .* str, .* int"),
        ({"after": "inner/make", "edit": lambda seen: setattr(seen, "value", "x")}, ValueError, "end of 'inner', .* Page, .* str"),
        ({"at": 1, "edit": lambda seen: seen.places.update(reed=1)}, ValueError, "is at 'inner', .* at 'reed'"),
    ],
)  # fmt: skip
async def test_a_fork_that_cannot_be_is_refused_with_nothing_written(arguments, error, said):
    """The error says what exists, and the store is as before."""
    agent = kept(book)
    await agent.run("x", run_id="r")
    before = [(item.key, item.value) async for item in agent.store.scan(())]
    with pytest.raises(error, match=said):
        await agent.fork("r", **arguments)
    assert [(item.key, item.value) async for item in agent.store.scan(())] == before


async def test_the_result_of_a_tool_call_is_edited_while_its_node_is_executed():
    """The model sees the other result, and the call is not made again; once all results are in the transcript, there is none to edit."""
    made = []

    @tool
    def look(place: str) -> str:
        """Look.

        Args:
            place: Where.
        """
        made.append(place)
        return f"saw {place}"

    calls = [ToolCall("look", {"place": "Oslo"}, "c1"), ToolCall("look", {"place": "Rome"}, "c2")]
    model = ScriptedModel([calls, "It rains.", "It snows."])
    agent = Agent(single_run(), model=model, tools=[look], store=MemoryStore())
    await agent.run("Weather?", run_id="a")
    first = next(each.number for each in await agent.history("a") if isinstance(each.value, ToolResult))

    def snow(snapshot):
        assert [each.content for each in snapshot.results.values()] == ["saw Oslo"]
        snapshot.results["c1"] = dataclasses.replace(snapshot.results["c1"], content="saw snow")

    forked = await agent.fork("a", at=first, edit=snow, run_id="b")
    assert forked.output == "It snows."
    assert [each.parts[0].content for each in model.requests[-1].messages[-2:]] == ["saw snow", "saw Rome"]
    assert made == ["Oslo", "Rome", "Rome"]
    assert [each.content for each in (await agent.read("b")).memory.steps[1].results] == ["saw snow", "saw Rome"]
    assert (await agent.state_at("a", first)).types == {"execute_tools": ToolCalls}
    assert (await agent.state_at("a", first + 3)).results == {}
    for id_, result in (("c2", ToolResult("c2", "look", "x")), ("c1", ToolResult("c2", "look", "x")), ("c1", "x")):
        with pytest.raises(ValueError, match=f"call '{id_}'"):
            await agent.fork(
                "a", at=first, edit=lambda each, id_=id_, result=result: each.results.update({id_: result})
            )


@pytest.mark.parametrize("place", [{"at": 0}, {"at": 8}])
async def test_there_is_no_state_behind_an_entry_that_is_not_there(place):
    """`state_at` names the entries that there are."""
    agent = kept(book)
    await agent.run("x", run_id="r")
    with pytest.raises(ValueError, match="has the entries 1 to 7"):
        await agent.state_at("r", place["at"])


async def test_forks_of_forks_have_what_they_have_in_common():
    """Each tells and does the same as the first run, and goes its own way from there."""
    agent = kept(Strategy("s", START >> loud >> talk >> ask_human("Well?", str) >> END), "said " * 20_000)
    await agent.run("task" * 3_000, run_id="f0")
    for depth in range(3):
        result = await agent.fork(f"f{depth}", before="ask_human", run_id=f"f{depth + 1}")
        assert result.pending.question == "Well?"
    assert (await agent.read("f3")).memory == (await agent.read("f0")).memory
    assert (await agent.resume("f3", answer="well")).output == "well"
    assert (await agent.read("f2")).status == "waiting"


@pytest.mark.parametrize("kind", ["approve", "deferred"])
async def test_a_run_that_waits_for_a_tool_call_waits_again_when_it_is_executed_again(kind):
    """Nothing is recorded of that call; the call beside it is taken from the recording, and the answer makes the first one."""
    made = []

    @tool(**{kind: True})
    async def post(to: str) -> str:
        """Post."""
        made.append(to)
        return "posted"

    @tool
    async def look(at: str) -> str:
        """Look."""
        made.append(at)
        return "seen"

    ask, act = llm_request(), execute_tools()
    strategy = Strategy("posts", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
    calls = ToolCalls([ToolCall("look", {"at": "sky"}, id="c1"), ToolCall("post", {"to": "ada"}, id="c2")])
    agent = Agent(strategy, model=ScriptedModel([calls, "done"]), tools=[post, look], store=MemoryStore())
    assert (await agent.run("x", run_id="first")).status == "waiting"
    again = await agent.rerun("first", new_id="second")
    assert (again.status, made) == ("waiting", ["sky"])
    assert [question.id for question in again.questions] == ["c2"]
    assert (await agent.resume("second", answer=True if kind == "approve" else "sent")).output == "done"
    assert made == ["sky", "ada"] if kind == "approve" else made == ["sky"]


async def test_forks_outlive_the_runs_that_they_were_forked_from():
    """Pruning what stands before a fork leaves it whole; forgetting takes all of the owner's runs."""
    agent = kept(Strategy("s", START >> talk >> ask_human("Well?", str) >> loud >> END), "one")
    await agent.run("x", run_id="f0")
    for depth in range(3):
        await agent.fork(f"f{depth}", before="ask_human", run_id=f"f{depth + 1}")
    whole = (await agent.read("f3")).memory.full_steps()
    for gone in ("f1", "f0", "f2"):
        assert (await prune_runs(agent.store, run_ids=[gone])).runs == 1
        with pytest.raises(RunNotFoundError):
            await agent.read(gone)
        assert (await agent.read("f3")).memory.full_steps() == whole
        assert (await agent.rerun("f3", until="llm_request", new_id=f"again {gone}")).status == "waiting"
    assert (await agent.resume("f3", answer="well")).output == "WELL"
    assert (await forget_runs(agent.store)).runs == 4
    assert [item async for item in agent.store.scan(("runs",))] == []


async def test_a_fork_has_spent_what_its_origin_had_spent_by_then():
    """In the run, in the ledger, and in the budget of a subgraph, once; what the origin spent later does not count."""
    inside = Strategy("inside", START >> talk >> loud >> talk.named("more") >> END).using(max_turns=2)
    strategy = Strategy("s", START >> talk.named("first") >> inside >> talk.named("last") >> END)
    agent = kept(strategy, "one", "two", "three", "four")
    whole = await agent.run("x", run_id="r")
    assert whole.turns == 4
    for entry in await agent.history("r"):
        state = await agent.state_at("r", entry.number)
        live = ["two", "three", "four"][max(state.turns - 1, 0) :] if state.turns else ["one", "two", "three", "four"]
        other = again(agent, *live)
        forked = await other.fork("r", at=entry.number, run_id=f"f{entry.number}")
        assert (forked.usage, forked.turns) == (whole.usage, whole.turns)
        assert forked.nodes == whole.nodes  # the node that they part in is executed again, and ends once
        assert forked.ledger.total == forked.usage
        assert len(other.model.requests) == 4 - state.turns
    tight = Agent(strategy, model=ScriptedModel(["x"] * 3), store=agent.store, max_turns=2)
    with pytest.raises(BudgetError) as info:
        await tight.fork("r", after="inside/llm_request", run_id="tight")
    assert (info.value.result.turns, len(tight.model.requests)) == (2, 0)


@pytest.mark.parametrize("asks", ["", "words"])
async def test_a_sub_agents_run_is_continued_in_a_fork_that_parts_while_it_is_executed(asks):
    """A fork behind any entry of the run around ends the same, and asks the model of no agent again what it had answered."""
    family = Family(store=MemoryStore(), asks=asks)
    whole = await family.finish()
    history = await family.chief.history("r")
    before = {head.run_id: head for head in await list_runs(family.store)}
    for entry in some(history, 8, salt=asks):
        other = Family(store=family.store, asks=asks)
        name = f"f{entry.number}"
        result = await other.chief.fork("r", at=entry.number, run_id=name)
        while result.questions:
            asked = result.questions[-1]
            result = await other.chief.resume(name, answers={asked.id: other.answer(asked)})
        assert (result.status, result.output) == ("done", whole.output)
        turns = [
            done.where for done in history[: entry.number] if done.kind == "effect" and done.key.startswith("model:")
        ]
        read = sum("/reader/" in where for where in turns)
        assert other.asked.count("reader") == 2 - read
        assert other.asked.count("researcher") == 4 - (sum("/researcher/" in where for where in turns) - read)
        assert result.usage == result.ledger.total == whole.usage
    now = {head.run_id: head for head in await list_runs(family.store)}
    assert {run_id: now[run_id] for run_id in before} == before


# ---- compared


@tool
async def look(at: str) -> str:
    """Look."""
    return f"{at} is green"


def looking(*replies):
    return Agent(single_run(), model=ScriptedModel(replies), tools=[look], store=MemoryStore())


async def test_runs_that_did_the_same_are_equal_whenever_that_was():
    """Times are not compared: neither those of entries, nor of model turns and tools."""
    calls = ToolCall("look", {"at": "moss"}, id="c")
    agent = looking(calls, "done")
    await agent.run("x", run_id="a")
    await anyio.sleep(0.005)
    await again(agent, calls, "done").run("x", run_id="b")
    same = await agent.diff("a", "b")
    assert (same.common, same.only_a, same.only_b) == (10, (), ())
    assert await agent.diff("a", "a") == dataclasses.replace(same, b="a")


async def test_the_first_difference_of_two_runs_is_named():
    """A fork has all in common with its origin until they part; runs of other tasks have nothing."""
    agent = looking(ToolCall("look", {"at": "moss"}, id="c"), "one")
    await agent.run("x", run_id="r")
    await again(agent, "two").fork("r", after="execute_tools", run_id="f")
    found = await agent.diff("r", "f")
    assert found.common == 7
    assert (found.only_a[0].kind, found.only_b[0].kind) == ("effect", "resumed")
    assert found.only_a[0].value.model_output_message.text == "one"
    assert found.only_b[1].value.model_output_message.text == "two"
    assert found.to_text().splitlines()[:3] == ["7 entries in common", "--- r", "- 8 effect llm_request model:1"]
    other = looking(ToolCall("look", {"at": "fern"}, id="c"), "one")
    other = Agent(other.strategy, model=other.model, tools=[look], store=agent.store)
    await other.run("x", run_id="fern")
    assert (await agent.diff("r", "fern")).common == 1
    await again(agent, "one").run("y", run_id="y")
    assert (await agent.diff("r", "y")).common == 0
    with pytest.raises(RunNotFoundError):
        await agent.diff("r", "nobody")


# ---- executed again


class Refusing:
    """A model that must not be asked."""

    name = "refusing"

    async def respond(self, request, on_text=None):
        raise AssertionError("it was asked")


def silent(agent, strategy=None, tools=None):
    """Give an agent over the same store whose model must not be asked."""
    return Agent(
        strategy or agent.strategy, model=Refusing(), store=agent.store, tools=agent.tools if tools is None else tools
    )


async def test_a_rerun_of_a_strategy_that_does_more_is_refused():
    """A turn, an effect, or an unrecorded request too many: the error names the place, and nothing is done live."""
    done = []

    @node
    async def act(ctx: Context, text: str) -> str:
        async def do() -> str:
            done.append(text)
            return text

        return await ctx.once("more", do)

    @node
    async def hidden(ctx: Context, text: str) -> str:
        await ctx.request(ModelRequest([Message.user(text)]), record=False)
        return text

    agent = kept(Strategy("s", START >> loud >> talk >> loud.named("end") >> END), "one")
    await agent.run("x", run_id="r")
    for extra, name in ((talk.named("more"), "more"), (act, "act"), (hidden, "hidden")):
        for paths in (START >> loud >> extra >> talk >> END, START >> loud >> talk >> extra >> END):
            changed = silent(agent, Strategy("s", paths))
            for until in (None, "llm_request" if paths.elements()[2] is extra else "end"):
                with pytest.raises(DivergedError) as info:
                    await changed.rerun("r", until=until)
                assert info.value.node == name
    act_as_end = act.named("end")
    for until in (None, "end"):
        with pytest.raises(DivergedError, match=r"node 'end' .*'more'"):
            await silent(agent, Strategy("s", START >> loud >> talk >> act_as_end >> END)).rerun("r", until=until)
    assert done == []


async def test_what_a_rerun_does_otherwise_is_named_as_in_the_history():
    """A model request that was not recorded is `model:1` of its node, and one that was too."""
    agent = kept(Strategy("s", START >> talk >> END), "one")
    await agent.run("x", run_id="r")
    assert "model:1" in [entry.key for entry in await agent.history("r")]
    for changed in (START >> talk >> talk.named("more") >> END, START >> talk.named("more") >> END):
        with pytest.raises(DivergedError, match="it does 'model:1', "):
            await silent(agent, Strategy("s", changed)).rerun("r")


async def test_nodes_that_do_nothing_may_come_and_go_in_a_rerun():
    """Only what is recorded of a node's doing is compared; with `until`, too."""
    agent = kept(Strategy("s", START >> loud >> talk >> loud.named("end") >> talk.named("more") >> END), "one", "two")
    await agent.run("x", run_id="r")
    changed = Strategy("s", START >> talk >> loud.named("new") >> talk.named("more") >> loud.named("newer") >> END)
    for until in (None, "more"):
        assert (await silent(agent, changed).rerun("r", until=until)).output == "TWO"


async def test_a_rerun_with_other_tool_calls_is_refused():
    """Another tool, other arguments and another order do not take the recorded result."""
    calls = ToolCall("look", {"at": "moss"}, id="c")
    agent = looking(calls, "done")
    ask, act = llm_request(), execute_tools()

    def changed(change):
        @node
        async def edit(ctx: Context, calls: ToolCalls) -> ToolCalls:
            return ToolCalls([change(call) for call in calls], calls.text)

        return Strategy("s", START >> ask, ask.on(ToolCalls) >> edit >> act >> ask, ask.on(str) >> END)

    def to(**changes):
        return lambda call: dataclasses.replace(call, **changes)

    agent.strategy = changed(to())
    await again(agent, calls, "done").run("x", run_id="r")
    assert (await silent(agent).rerun("r")).output == "done"
    for change in (to(arguments={"at": "fern"}), to(name="see"), to(id="d")):
        for until in (None, "execute_tools"):
            with pytest.raises(DivergedError, match=r"node 'execute_tools'.*'call:"):
                await silent(agent, changed(change)).rerun("r", until=until)


async def test_extraction_goes_live_behind_until_only(tmp_path):
    """Its request is not recorded, so its node is given what it kept; where that is not recorded yet, it is live."""
    user = Subject("user", "the user", priority=1)
    learn = Strategy("s", START >> talk >> auto_detect_facts(subjects=[user]) >> END)
    found = {"facts": [{"subject": "user", "keyword": "city", "description": "home", "value": "Oslo"}]}

    def agent_of(store, *replies):
        agent = Agent(learn, model=ScriptedModel(replies), store=store)
        agent.install(AgentMemory, provider=FileMemoryProvider(tmp_path / "facts"), agent_name="a")
        return agent

    store = MemoryStore()
    result = await agent_of(store, "hi", found).run("x", run_id="r")
    assert len([row for row in result.ledger.charges if row.node == "auto_detect_facts"]) == 1
    assert (await agent_of(store).rerun("r")).output == "hi"
    for until in ("llm_request", "auto_detect_facts"):
        agent = agent_of(store, found)
        assert (await agent.rerun("r", until=until)).output == "hi"
        assert len(agent.model.requests) == (until == "llm_request")


class Paced:
    """A model that lets one of the racers wait for ever in each round: at its first request, or at its second."""

    name = "paced"

    def __init__(self, *stuck):
        self.stuck, self.asked = stuck, []

    async def respond(self, request, on_text=None):
        text = request.messages[-1].text
        self.asked.append(text)
        if text.startswith(self.stuck[len(text.split()[-1]) // 2]):
            await anyio.sleep_forever()
        await checkpoint()
        return ScriptedModel([f"<{text}>"]).answer(request)


async def test_a_rerun_of_a_race_is_won_by_who_won():
    """The winner alone is executed, on its own results, in each of several races; what the losers spent is counted."""

    def runner(name):
        @node(name=name)
        async def run(ctx: Context, text: str) -> str:
            first = await ctx.request(ModelRequest([Message.user(f"{name} {text}")]))
            second = await ctx.request(ModelRequest([Message.user(f"{name} again {text}")]))
            return text + first.message.text[1] + second.message.text[1]

        return run

    again_, fork = loud.named("again"), race(runner("hare"), runner("tortoise"))
    strategy = Strategy(
        "s", START >> fork, fork.when(lambda text: len(text) < 9) >> again_ >> fork, fork.otherwise() >> END
    )
    quiet = passthrough(str, name="quiet")
    longer = Strategy(
        "s",
        START >> quiet >> fork,
        fork.when(lambda text: len(text) < 9) >> again_ >> fork,
        fork.otherwise() >> END,
    )
    hare, tortoise, late = "hare ", "tortoise ", "tortoise again "
    for stuck in ((hare, late, hare, tortoise), (late, "hare again ", tortoise, hare), (late, late, late, hare)):
        store = MemoryStore()
        result = await Agent(strategy, model=Paced(*stuck), store=store).run("x", run_id="r")
        history = await Agent(strategy, store=store).history("r")
        rerun = await Agent(strategy, model=Refusing(), store=store).rerun("r")
        assert (rerun.output, rerun.usage) == (result.output, result.usage)
        assert rerun.ledger.total == rerun.usage
        more = await Agent(longer, model=Refusing(), store=store).rerun("r")
        assert (more.output, more.usage) == (result.output, result.usage)
        done = [entry.number for entry in history if entry.kind == "effect"]
        for until in some(range(1, len(history) + 1), 6, salt=str(stuck)):
            model = Paced(*stuck)
            live = await Agent(strategy, model=model, store=store).rerun("r", until=until)
            assert live.output == result.output
            # What is live behind it: what was recorded later, and in each race that was not won the request that hangs.
            assert len(model.asked) <= sum(number > until for number in done) + len(stuck)


async def test_what_failed_live_and_was_tried_again_is_taken_from_the_attempt_that_went_well():
    """A failure of the network does not come again: the results of the last attempt count, in a loop as well."""
    broken = [True, False, True, False]

    @node
    async def twice(ctx: Context, text: str) -> str:
        async def do(what: str) -> str:
            if what == "b" and broken.pop(0):
                raise OSError("the line is cut")
            return f"{what}{len(broken)}"

        first = await ctx.once("a", lambda: do("a"))
        return text + first + await ctx.once("b", lambda: do("b"))

    patient = twice.retry(attempts=2, wait=0)
    agent = kept(
        Strategy("s", START >> patient, patient.when(lambda text: len(text) < 8) >> patient, patient.otherwise() >> END)
    )
    result = await agent.run("x", run_id="r")
    assert broken == []
    assert len((await agent.rerun("r")).output) == len(result.output)


async def test_a_rerun_gives_the_answers_of_people_in_branches():
    """Answers, approvals and results from outside are recorded too, wherever they were asked for."""
    fork = parallel(ask_human("One?", bool, name="a"), Strategy("b", START >> ask_human("Two?", Page) >> read >> END))

    @node
    async def end(ctx: Context, both: tuple[bool, str]) -> str:
        return repr(both)

    agent = kept(Strategy("s", START >> fork >> end >> END))
    result = await agent.run("x", run_id="r")
    [_, two] = result.questions
    await agent.resume("r", answers={two.id: Page("p")})
    result = await agent.resume("r", answer=True)
    assert result.output == "(True, 'p!')"
    assert (await agent.rerun("r")).output == result.output
    half = await agent.rerun(
        "r", until=next(e.number for e in await agent.history("r") if e.kind == "resumed"), new_id="h"
    )
    assert [question.question for question in half.questions] == ["One?"]
    assert (await agent.resume("h", answer=False)).output == "(False, 'p!')"


async def test_a_rerun_gives_the_answers_to_several_questions():
    """Of nodes that come one after the other, of one in a loop, and of one that asks twice."""
    well = ask_human("Well?", str, name="well")

    @node
    async def twice(ctx: Context, text: str) -> str:
        return f"{text}{await ctx.ask('One?')}{await ctx.ask('Two?')}"

    strategy = Strategy(
        "s", START >> well, well.when(lambda text: text == "more") >> well, well.otherwise() >> twice >> END
    )
    agent = kept(strategy)
    await agent.run("x", run_id="r")
    for answer in ("more", "a", "b", "c"):
        result = await agent.resume("r", answer=answer)
    assert result.output == "abc"
    assert (await agent.rerun("r")).output == "abc"
    half = [entry.number for entry in await agent.history("r") if entry.kind == "resumed"]
    waits = await agent.rerun("r", until=half[2], new_id="h")
    assert waits.pending.question == "Two?"
    assert (await agent.resume("h", answer="d")).output == "abd"


async def test_a_rerun_takes_a_subgraph_that_was_tried_again_from_the_attempt_that_went_well():
    """What failed need not fail again, wherever inside the subgraph it was."""
    broken = [True]

    @node
    async def first(ctx: Context, text: str) -> str:
        return await ctx.once("a", lambda: do(f"a{len(broken)}"))

    @node
    async def second(ctx: Context, text: str) -> str:
        await ctx.once("b", lambda: do("b"))
        await ctx.request(ModelRequest([Message.user("Count.")]))
        return text + await ctx.once("c", fail)

    async def do(what: str) -> str:
        return what

    async def fail() -> str:
        if broken:
            broken.pop()
            raise OSError("the line is cut")
        return "c"

    inside = Strategy("inside", START >> first >> loud >> second >> END).retry(attempts=2, wait=0)
    agent = kept(Strategy("s", START >> inside >> talk >> END), "1", "2", "done")
    result = await agent.run("x", run_id="r")
    for until in (None, "inside", "llm_request"):
        again_ = again(agent, *["done"] * (until == "inside"))
        repeated = await again_.rerun("r", until=until)
        assert (repeated.output, repeated.usage, repeated.ledger.total) == ("done", result.usage, result.usage)


async def test_an_answer_of_a_declared_type_is_in_the_history():
    """As the node that asked was given it."""
    agent = kept(Strategy("s", START >> ask_human("Which?", Page) >> read >> END))
    await agent.run("x", run_id="r")
    await agent.resume("r", answer=Page("p"))
    [given] = [entry.value for entry in await agent.history("r") if entry.key.startswith("answer:")]
    assert given == Page("p")


async def test_a_rerun_counts_turns_against_the_budget():
    """Turns, nodes, tokens and rows of the ledger are those of the origin; a place that is not there is refused."""
    agent = looking(ToolCall("look", {"at": "moss"}, id="c"), "done")
    result = await agent.run("x", run_id="r")
    again_ = await silent(agent).rerun("r", new_id="again")
    assert (
        (again_.turns, again_.nodes, again_.usage) == (result.turns, result.nodes, result.usage) == (2, 3, result.usage)
    )
    assert [(row.node, row.what, row.usage) for row in again_.ledger.charges] == [
        (row.node, row.what, row.usage) for row in result.ledger.charges
    ]
    assert (await agent.diff("r", "again")).only_a == ()
    for until, said in (
        (0, "entries 1 to 10"),
        (11, "entries 1 to 10"),
        ("nowhere", "it executed: 'execute_tools', 'llm_"),
    ):
        with pytest.raises(ValueError, match=said):
            await agent.rerun("r", until=until)
    with pytest.raises(RunExistsError):
        await agent.rerun("r", new_id="again")


Size = NewType("Size", str)


@pytest.mark.parametrize(
    ("kind", "fitting", "other"),
    [(Literal["small", "large"], "large", "huge"), (Size, "large", 3), (list[str], ["large"], [1])],
    ids=str,
)
async def test_a_fork_takes_values_of_any_declared_type(kind, fitting, other):
    """Literals and new types are types of values; what is of another type is refused."""
    agent = Agent(Strategy("s", START >> passthrough(kind) >> END), store=MemoryStore())
    task = ["small"] if kind == list[str] else "small"
    await agent.run(task, run_id="r")

    def put(value):
        def edit(snapshot):
            snapshot.value = value

        return edit

    assert (await agent.fork("r", before="passthrough", edit=put(fitting))).output == fitting
    with pytest.raises(ValueError, match="where the strategy declares"):
        await agent.fork("r", before="passthrough", edit=put(other))
