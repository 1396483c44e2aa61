"""How a strategy is walked: which way is taken, what an error becomes, what cancels it, how runs stay apart."""

from __future__ import annotations

import pickle
from datetime import timedelta
from enum import Enum
from typing import Any

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, race, tap
from graphagent.errors import BudgetError, ModelRequestError, NodeFailedError, NoPathError, RunError
from graphagent.events import NodeFailed, PathTaken
from graphagent.llm import ToolCalls
from graphagent.nodes import execute_tools, llm_request, passthrough
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, fixed_clock
from tests.run.executors import both_executors  # noqa: F401  a fixture

text = passthrough(str, name="text")
number = passthrough(int, name="number")


@node
async def upper(ctx: Context, said: str) -> str:
    return said.upper()


@node
async def count(ctx: Context, said: str) -> int:
    return len(said)


@node
async def fail(ctx: Context, said: str) -> str:
    raise ValueError("secret 42")


@node
async def endure(ctx: Context, said: str) -> str:
    await anyio.sleep_forever()
    return said


def says(word, name=None):
    """A node that gives a word, whatever it gets."""

    async def say(ctx: Context, _: object) -> str:
        return word

    return node(name=name or word)(say)


async def output(strategy, given):
    return (await Agent(strategy).run(given)).output


def cause_of(info):
    return info.value.__cause__


# ---- ways out


async def test_the_first_way_that_fits_is_taken():
    """Two ways fit, and the one that was declared first is taken."""
    choose = passthrough(str, name="choose")
    strategy = Strategy(
        "s",
        START >> choose,
        choose.when(lambda said: "a" in said) >> says("first") >> END,
        choose.when(lambda said: "b" in said) >> says("second") >> END,
        choose.otherwise() >> says("third") >> END,
    )
    assert [await output(strategy, said) for said in ("ab", "b", "c")] == ["first", "second", "third"]


async def test_a_type_chooses_a_way():
    """Each member of a union goes the way of its type, and several types may share one."""

    @node
    async def read(ctx: Context, said: str) -> int | str | float | None:
        return {"i": 1, "f": 1.5, "n": None}.get(said, said)

    strategy = Strategy(
        "s",
        START >> read,
        read.on(int, float) >> says("a number") >> END,
        read.on(str) >> says("text") >> END,
        read.on(None) >> says("nothing") >> END,
    )
    assert [await output(strategy, said) for said in "ifnx"] == ["a number", "a number", "nothing", "text"]


async def test_a_value_chooses_a_way_and_looks_at_the_type_too():
    """`.on(True)` does not take 1, and an enum member takes only itself."""

    class Mood(Enum):
        GOOD = 1
        BAD = 2

    @node
    async def read(ctx: Context, given: Mood | bool | int) -> Mood | bool | int:
        return given

    strategy = Strategy(
        "s",
        START >> read,
        read.on(True) >> says("true") >> END,
        read.on(Mood.GOOD) >> says("good") >> END,
        read.otherwise() >> says("rest") >> END,
    )
    given = [True, 1, False, Mood.GOOD, Mood.BAD]
    assert [await output(strategy, each_) for each_ in given] == ["true", "rest", "rest", "good", "rest"]


async def test_a_test_may_take_the_context():
    """`.when` calls a test of two parameters with the context and the output, and one of one with the output."""

    def for_ada(ctx: Context, said: str) -> bool:
        return ctx.owner == "ada" and ctx.node == "text"

    strategy = Strategy("s", START >> text, text.when(for_ada) >> says("hers") >> END, text.otherwise() >> END)
    agent = Agent(strategy)
    assert (await agent.run("x", owner="ada")).output == "hers"
    assert (await agent.run("x", owner="bob")).output == "x"


async def test_a_map_changes_what_is_handed_on_and_what_later_tests_see():
    """A test behind a map sees the mapped value; where it fails, the next way begins with the output itself."""
    strategy = Strategy(
        "s",
        START >> text,
        text.map(len).when(lambda size: size > 2) >> number >> END,
        text.map(str.upper) >> END,
    )
    assert [await output(strategy, said) for said in ("abc", "ab")] == [3, "AB"]


async def test_a_plain_edge_behind_outlets_takes_the_rest():
    """A plain edge after outlets is taken where none of them fits."""
    strategy = Strategy("s", START >> text, text.when(lambda said: said == "a") >> says("a") >> END, text >> END)
    assert [await output(strategy, said) for said in ("a", "z")] == ["a", "z"]


async def test_a_node_may_lead_back_to_itself():
    """A way from a node to itself is a loop."""

    @node
    async def add(ctx: Context, value: int) -> int:
        return value + 1

    strategy = Strategy("s", START >> add, add.when(lambda value: value < 10) >> add, add.otherwise() >> END)
    result = await Agent(strategy).run(0)
    assert (result.output, result.nodes) == (10, 10)


async def test_an_empty_strategy_gives_what_it_gets(executor):
    """START >> END hands on the same object, or one that was read from the store."""
    given = ["x"]
    returned = await output(Strategy("s", START >> END), given)
    assert returned == given
    assert (returned is given) == (executor == "in memory")


async def test_a_tap_passes_the_same_object_on(executor):
    """Whatever a tap gives is ignored, and its input goes on, as itself or as it was stored."""
    seen = []

    @tap
    async def look(ctx: Context, value: list[str]) -> None:
        seen.append(value)
        return ["other"]

    keep = passthrough(list, name="keep")
    given = ["x"]
    result = await Agent(Strategy("s", START >> look >> keep >> look.named("again") >> END)).run(given)
    assert [result.output, *seen] == [given] * 3
    assert all(each_ is given for each_ in (result.output, *seen)) == (executor == "in memory")


async def test_a_way_that_was_chosen_is_told_with_its_label():
    """PathTaken names the node, the way as it is drawn, and the next node or END."""
    taken = []
    inner = Strategy("inner", START >> text, text.when(lambda said: True) >> END, text.otherwise() >> upper >> END)
    agent = Agent(Strategy("s", START >> inner >> END))
    agent.on(PathTaken, lambda event: taken.append((event.node, event.path, event.target)))
    await agent.run("x")
    assert taken == [("inner/text", "when", "END")]


# ---- errors


async def test_what_a_node_raises_is_the_cause_of_a_node_failed_error():
    """The error names the path of the node, keeps the original as its cause, and repeats no foreign message."""
    with pytest.raises(NodeFailedError) as info:
        await Agent(Strategy("s", START >> upper >> fail >> END)).run("x", run_id="r1")
    assert (info.value.node, info.value.run_id) == ("fail", "r1")
    assert isinstance(cause_of(info), ValueError)
    assert "42" not in str(info.value)
    assert "ValueError" in str(info.value)


async def test_a_failing_node_inside_subgraphs_is_named_by_its_path():
    """The path goes through all subgraphs, and the error is wrapped once."""
    count_ = Strategy("count", START >> fail.named("words") >> END)
    outer = Strategy("outer", START >> count_ >> END)
    with pytest.raises(NodeFailedError) as info:
        await Agent(Strategy("s", START >> outer >> END)).run("x")
    assert info.value.node == "outer/count/words"
    assert isinstance(cause_of(info), ValueError)


async def test_no_path_says_what_was_tried():
    """An output that no way takes gives an error with the node, its type and the ways in order."""

    @node
    async def lie(ctx: Context, said: str) -> Any:
        return "neither"

    def large(value: int) -> bool:
        return value > 9

    inner = Strategy(
        "inner", START >> lie, lie.on(int).when(large) >> END, lie.on(int) >> END, lie.on(type(None)) >> END
    )
    with pytest.raises(NoPathError) as info:
        await Agent(Strategy("s", START >> inner >> END)).run("x", run_id="r1")
    assert (info.value.node, info.value.run_id) == ("inner/lie", "r1")
    assert info.value.tried == ("on int, when large", "on int", "on None")
    assert "a str" in str(info.value)
    assert "neither" not in str(info.value)


async def test_an_error_path_hands_on_the_error():
    """on_error takes the node's own exception, and ways for other errors are passed over."""

    @node
    async def excuse(ctx: Context, error: Exception) -> str:
        return f"{type(error).__name__}: {error}"

    strategy = Strategy(
        "s", START >> fail, fail.on_error(KeyError) >> END, fail.on_error(ValueError) >> excuse >> END, fail >> END
    )
    assert await output(strategy, "x") == "ValueError: secret 42"


async def test_an_error_path_may_have_conditions_and_changes():
    """A test behind on_error decides whether it is taken, and a map changes what is handed on."""

    @node
    async def ask(ctx: Context, status: int) -> str:
        raise ModelRequestError("no", status=status)

    strategy = Strategy(
        "s",
        START >> ask,
        ask.on_error(ModelRequestError).when(lambda error: error.status == 429).map(str) >> END,
        ask >> END,
    )
    assert await output(strategy, 429) == "no"
    with pytest.raises(NodeFailedError) as info:
        await output(strategy, 500)
    assert cause_of(info).status == 500


async def test_an_error_path_of_a_subgraph_takes_the_error_of_a_node_inside():
    """What a node inside raised is handed on as itself, also from a subgraph of a subgraph."""
    inner = Strategy("inner", START >> Strategy("deep", START >> fail >> END) >> END)
    strategy = Strategy("s", START >> inner, inner.on_error(ValueError).map(repr) >> END, inner >> END)
    assert await output(strategy, "x") == "ValueError('secret 42')"


@pytest.mark.parametrize("kind", [NodeFailedError, RunError])
async def test_an_error_path_that_names_the_wrapping_gets_it(kind):
    """on_error(NodeFailedError) and on_error(RunError) get the error that says where it was."""
    inner = Strategy("inner", START >> fail >> END)
    strategy = Strategy("s", START >> inner, inner.on_error(kind).map(lambda error: error.node) >> END, inner >> END)
    assert await output(strategy, "x") == "inner/fail"


async def test_an_output_without_a_way_inside_a_subgraph_is_an_error_that_can_be_taken():
    """on_error(NoPathError) of a subgraph takes it."""

    @node
    async def lie(ctx: Context, said: str) -> Any:
        return said

    inner = Strategy("inner", START >> lie, lie.on(int) >> END)
    strategy = Strategy("s", START >> inner, inner.on_error(NoPathError).map(lambda error: -1) >> END, inner >> END)
    assert await output(strategy, "x") == -1


async def test_an_error_path_takes_a_used_up_budget_only_by_its_name():
    """on_error(Exception) does not take a BudgetError, and on_error(BudgetError) does."""
    loop = passthrough(str, name="loop")
    inner = Strategy("inner", START >> loop, loop.when(lambda said: True) >> loop, loop.otherwise() >> END).using(
        max_nodes=3
    )
    for_all = Strategy("s", START >> inner, inner.on_error(Exception).map(str) >> END, inner >> END)
    with pytest.raises(BudgetError):
        await output(for_all, "x")
    by_name = Strategy("s", START >> inner, inner.on_error(BudgetError).map(lambda e: e.budget) >> END, inner >> END)
    assert await output(by_name, "x") == "nodes"


async def test_an_error_of_another_run_is_an_error_like_any_other():
    """A node that runs another agent fails with that run's error as its cause, which keeps its own run id."""
    loop = passthrough(str, name="loop")
    endless = Agent(Strategy("e", START >> loop, loop.when(bool) >> loop, loop.otherwise() >> END), max_nodes=5)

    @node
    async def delegate(ctx: Context, said: str) -> str:
        return (await endless.run(said, run_id=said)).output

    strategy = Strategy("s", START >> delegate >> END)
    with pytest.raises(NodeFailedError) as info:
        await Agent(strategy).run("inner", run_id="outer")
    assert (info.value.node, info.value.run_id) == ("delegate", "outer")
    assert isinstance(cause_of(info), BudgetError)
    assert (cause_of(info).run_id, cause_of(info).result.run_id) == ("inner", "inner")
    patient = Strategy(
        "s", START >> delegate, delegate.on_error(Exception).map(lambda e: e.budget) >> END, delegate >> END
    )
    assert await output(patient, "x") == "nodes"


async def test_a_test_or_map_that_raises_fails_the_node():
    """What a .when or a .map raises is a failure of its node, and no error path of that node takes it."""

    def broken(said: str) -> bool:
        raise KeyError("x")

    for way in (text.when(broken), text.map(broken).when(bool)):
        strategy = Strategy(
            "s", START >> text, way >> says("a") >> END, text.on_error(KeyError).map(str) >> END, text >> END
        )
        with pytest.raises(NodeFailedError) as info:
            await output(strategy, "x")
        assert info.value.node == "text"
        assert isinstance(cause_of(info), KeyError)


async def test_a_failure_is_told_once_for_each_place_that_it_passes():
    """NodeFailed is told for the node and for the subgraph around it, the innermost first."""
    told = []
    inner = Strategy("inner", START >> fail >> END)
    agent = Agent(Strategy("s", START >> inner, inner.on_error(ValueError).map(str) >> END, inner >> END))
    agent.on(NodeFailed, lambda event: told.append(event.node))
    await agent.run("x")
    assert told == ["inner/fail", "inner"]


async def test_run_errors_survive_pickling():
    """What a run raises can go to another process, cause and all."""
    with pytest.raises(NodeFailedError) as info:
        await Agent(Strategy("s", START >> fail >> END)).run("x", run_id="r1")
    copied = pickle.loads(pickle.dumps(info.value))
    assert (str(copied), copied.node, copied.run_id) == (str(info.value), "fail", "r1")
    assert isinstance(copied.__cause__, ValueError)


async def test_base_exceptions_pass_as_themselves():
    """What is no Exception is wrapped by nothing and taken by no error path."""

    class Quit(BaseException):
        pass

    @node
    async def leave(ctx: Context, said: str) -> str:
        raise Quit

    strategy = Strategy("s", START >> leave, leave.on_error(Exception).map(str) >> END, leave >> END)
    with pytest.raises(Quit):
        await output(strategy, "x")


# ---- cancellation


@pytest.mark.parametrize(
    "waiting",
    [
        endure,
        endure.timeout(60),
        endure.retry(attempts=9),
        fail.retry(attempts=9, wait=60),
        Strategy("inner", START >> endure >> END),
        parallel(endure, upper),
        parallel(endure, upper, failures="collect"),
        race(endure, fail),
        Strategy("inner", START >> text, text.map(list) >> each(endure, failures="collect") >> END),
    ],
    ids=["node", "timeout", "retry", "retry wait", "subgraph", "parallel", "collect", "race", "each"],
)
async def test_cancellation_goes_through(waiting):
    """A run that is cancelled ends with the cancellation, wherever it is waiting, and no error path takes it."""
    strategy = Strategy("s", START >> waiting, waiting.on_error(Exception).map(str) >> END, waiting >> END)
    ended = []
    with anyio.move_on_after(0.02) as scope:
        try:
            await Agent(strategy).run("xyz")
        except anyio.get_cancelled_exc_class():
            ended.append("cancelled")
            raise
        ended.append("went on")
    assert scope.cancelled_caught
    assert ended == ["cancelled"]


async def test_a_scope_inside_a_node_is_the_nodes_own():
    """A node may cancel a scope of its own and go on."""

    @node
    async def impatient(ctx: Context, said: str) -> str:
        with anyio.move_on_after(0.001):
            await anyio.sleep_forever()
        return "went on"

    assert await output(Strategy("s", START >> impatient >> END), "x") == "went on"


async def test_a_tool_that_is_being_called_is_cancelled():
    """Cancelling a run cancels its tool calls, one by one and at once alike."""
    from graphagent import tool
    from graphagent.llm import ToolCall

    cancelled, begun = [], anyio.Semaphore(0)

    @tool
    async def wait() -> str:
        """Wait for ever."""
        begun.release()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(True)
            raise
        return ""

    for limit in (1, 4):
        ask, act = llm_request(), execute_tools(limit=limit)
        strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
        agent = Agent(strategy, model=ScriptedModel([[ToolCall("wait"), ToolCall("wait")]]), tools=[wait])
        async with anyio.create_task_group() as group:
            group.start_soon(agent.run, "x")
            for _ in range(min(limit, 2)):
                await begun.acquire()
            group.cancel_scope.cancel()
    assert len(cancelled) == 1 + 2


@pytest.mark.parametrize("budget", [None, 10], ids=["plain", "budget of its own"])
async def test_an_endless_loop_of_nodes_that_never_wait_lets_others_run(budget):
    """Nodes that never suspend give the loop a turn now and then, so the run can be cancelled and others go on."""
    loop = passthrough(str, name="loop")
    once = Strategy("once", START >> loop >> END).using(max_nodes=budget)
    endless = Strategy("s", START >> once, once.when(lambda said: True) >> once, once.otherwise() >> END)
    scope = anyio.CancelScope()

    async def other():
        for _ in range(4):
            await anyio.lowlevel.checkpoint()
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        with scope:
            await Agent(endless, max_nodes=None).run("x")
    assert scope.cancelled_caught


async def test_nodes_that_block_for_long_let_others_run_between_them():
    """A node that never waits and takes longer than a millisecond is followed by a turn of the others."""
    with fixed_clock(step_ms=0) as clock:
        seen = []

        @node
        async def block(ctx: Context, number: int) -> int:
            clock.move(timedelta(milliseconds=10))
            return number + 1

        strategy = Strategy(
            "s", START >> block, block.when(lambda number: number < 40) >> block, block.otherwise() >> END
        )
        running = True

        async def other():
            while running:
                seen.append(None)
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            group.start_soon(other)
            await Agent(strategy).run(0)
            running = False
    assert len(seen) >= 20


# ---- runs beside each other


async def test_a_thousand_runs_of_one_agent_do_not_mix():
    """Each of a thousand concurrent runs has its own transcript, output, ids and counts."""

    class Echo:
        name = "echo"

        async def respond(self, request, on_text=None):
            await anyio.lowlevel.checkpoint()
            from graphagent.llm import Message, ModelResponse, Usage

            said = [message.text for message in request.messages if message.role == "user"]
            return ModelResponse(Message.assistant("|".join(said)), Usage(1, 1))

    ask = llm_request(tools=False)
    again = llm_request(tools=False, name="again")
    strategy = Strategy("s", START >> ask, ask.map(lambda said: f"{said}!") >> again >> END)
    agent = Agent(strategy, model=Echo())
    results = {}

    async def run(number):
        results[number] = await agent.run(f"task {number}", owner=f"owner {number}", run_id=f"run {number}")

    async with anyio.create_task_group() as group:
        for number in range(1000):
            group.start_soon(run, number)
    for number, result in results.items():
        assert result.output == f"task {number}|task {number}!"
        assert (result.run_id, result.nodes, result.turns) == (f"run {number}", 2, 2)
        assert result.usage.total_tokens == 4
        assert result.memory.steps[0].task == f"task {number}"
        assert len(result.memory.steps) == 5


async def test_the_journal_of_a_run_has_its_node_executions_in_the_order_of_their_ends():
    """An entry has the path of its node and its output; nodes inside subgraphs and forks end before these."""

    @tap
    async def look(ctx: Context, value: object) -> None: ...

    inner = Strategy("inner", START >> upper >> look >> END)
    agent = Agent(Strategy("s", START >> inner >> parallel(count) >> END), store=MemoryStore())
    result = await agent.run("ab", run_id="r")
    assert result.output == (2,)
    assert [(entry.node, entry.value) for entry in await agent.history("r") if entry.node] == [
        ("inner/upper", "AB"),
        ("inner/look", "AB"),
        ("inner", "AB"),
        ("parallel/0/count", 2),
        ("parallel", (2,)),
    ]
    assert result.nodes == 3


async def test_nothing_hides_a_script_that_is_too_short():
    """A test whose script ran out fails, whatever error paths, retries and forks there are."""

    @node
    async def mend(ctx: Context, error: Exception) -> str:
        return "mended"

    ask = llm_request(tools=False)
    caught = Strategy("caught", START >> ask >> END, ask.on_error(Exception) >> mend >> END)
    collected = Strategy("collected", START >> parallel(caught, caught.named("again"), failures="collect") >> END)
    for strategy in (caught, collected, Strategy("patient", START >> ask.retry(attempts=2, wait=0) >> END)):
        with pytest.raises(NodeFailedError, match="script"):
            await Agent(strategy, model=ScriptedModel([])).run("a")


async def test_a_condition_or_a_change_that_raises_is_named():
    """An error in .when(…) or .map(…) says which edge it was on, and not only which node was before it."""

    def is_long(size) -> bool:
        return size.characters > 3

    tested = Strategy("tested", START >> count, count.when(is_long) >> number >> END, count.otherwise() >> END)
    changed = Strategy("changed", START >> count, count.map(lambda size: size.characters) >> END)
    for strategy, where in ((tested, ".when(is_long) before 'number'"), (changed, ".map(…) before 'END'")):
        with pytest.raises(NodeFailedError) as caught:
            await output(strategy, "x")
        assert str(caught.value) == f"node 'count' failed with AttributeError in {where}"
