"""Forks: what runs at once, in which order results come, what a failing branch does, what branches hear."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, race, tool
from graphagent.errors import BudgetError, NodeFailedError, NoPathError
from graphagent.events import NodeFinished, NodeStarted
from graphagent.llm import Message, ToolCall, ToolCalls, ToolResult, ToolResults
from graphagent.memory import ActionStep, MessageStep
from graphagent.nodes import execute_tools, llm_request, passthrough, update_prompt
from graphagent.run._sleep import together
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from tests.counting import calls
from tests.run.executors import both_executors  # noqa: F401  a fixture
from tests.run.test_threads import texts

pytestmark = pytest.mark.every_loop

items = passthrough(list[int], name="items")


@node
async def upper(ctx: Context, said: str) -> str:
    return said.upper()


@node
async def length(ctx: Context, said: str) -> int:
    return len(said)


@node
async def fail(ctx: Context, said: str) -> str:
    await checkpoint()
    raise ValueError(said)


class Crowd:
    """Counts how many are inside at once, and who was cancelled."""

    def __init__(self):
        self.inside = self.peak = self.done = self.cancelled = 0

    async def __call__(self, ctx: Context, value: int) -> int:
        self.inside += 1
        self.peak = max(self.peak, self.inside)
        try:
            for _ in range(3):
                await checkpoint()
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        finally:
            self.inside -= 1
        self.done += 1
        return value * 10


def waiting(cancelled, name="wait"):
    """A node that waits for ever and says when it is cancelled."""

    @node(name=name)
    async def wait(ctx: Context, value: object) -> str:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(ctx.node)
            raise
        return ""

    return wait


def only(fork, **options):
    return Agent(Strategy("s", START >> fork >> END), **options)


# ---- results


async def test_parallel_gives_a_tuple_in_the_order_of_its_branches():
    """Branches of different types end in any order, and the tuple is in the order of declaration."""

    @node
    async def late(ctx: Context, said: str) -> float:
        for _ in range(5):
            await checkpoint()
        return 0.5

    strategy = Strategy("count", START >> upper >> END)
    assert (await only(parallel(late, length, strategy)).run("ab")).output == (0.5, 2, "AB")


async def test_each_gives_a_list_in_the_order_of_the_items():
    """Later items may end earlier, and the list is in the order of the items."""

    @node
    async def slower_first(ctx: Context, value: int) -> int:
        for _ in range(10 - value):
            await checkpoint()
        return value * value

    assert (await only(each(slower_first, limit=None)).run(list(range(8)))).output == [value**2 for value in range(8)]


async def test_a_fork_in_a_branch_has_an_item_that_has_no_place_of_its_own():
    """An item of a set or a key of a dictionary, in a run with a store and in one without."""
    for kind, given in ((set[str], {"ab"}), (dict[str, int], {"ab": 1})):
        strategy = Strategy("s", START >> passthrough(kind, name="items") >> each(parallel(upper, race(upper))) >> END)
        for store in (None, MemoryStore()):
            assert (await Agent(strategy, store=store).run(given)).output == [("AB", "AB")]


@pytest.mark.parametrize("given", [[], (), iter(()), {}], ids=["list", "tuple", "iterator", "dict"])
async def test_each_of_nothing_is_an_empty_list(given):
    """An empty iterable of any kind gives an empty list, executes nothing, and counts as one node."""
    result = await only(each(upper), store=None).run(given)  # none keeps an iterator
    assert (result.output, result.nodes) == ([], 1)


@pytest.mark.parametrize("limit", [None, 1])
async def test_what_a_branch_leaves_in_its_task_no_other_branch_sees(limit):
    """A context variable, and a request of asyncio that its task be cancelled, of which it did not know itself."""
    left = ContextVar("left", default="nothing")

    @node
    async def leave(ctx: Context, name: str) -> str:
        found = left.get()
        left.set(name)
        if anyio.get_cancelled_exc_class() is asyncio.CancelledError and name == "b":
            asyncio.current_task().cancel()
        return found

    assert (await only(each(leave, limit=limit), store=None).run(list("abcde"))).output == ["nothing"] * 5


async def test_a_loop_around_an_each_of_nothing_ends():
    """It counts as one node, since nothing in it does, and other tasks get a turn."""
    nothing = each(upper, name="nothing")
    again = nothing.map(list)
    agent = Agent(Strategy("s", START >> nothing, nothing.when(len) >> END, again >> nothing), max_nodes=10)
    with anyio.fail_after(60), pytest.raises(BudgetError, match="10"):
        await agent.run([])


@pytest.mark.parametrize(("limit", "peak"), [(1, 1), (3, 3), (50, 20), (None, 20)])
async def test_a_limit_bounds_how_many_run_at_once(limit, peak):
    """The most that are ever inside at once is the limit, or the number of the items."""
    crowd = Crowd()
    result = await only(each(node(name="crowd")(crowd), limit=limit)).run(list(range(20)))
    assert result.output == [value * 10 for value in range(20)]
    assert (crowd.peak, crowd.done) == (peak, 20)


async def test_a_limit_of_parallel_bounds_it_too():
    """parallel(limit=2) has two of its branches inside at once."""
    crowd = Crowd()
    branches = [node(name=f"crowd {number}")(crowd) for number in range(5)]
    assert (await only(parallel(*branches, limit=2)).run(1)).output == (10,) * 5
    assert crowd.peak == 2


async def test_forks_may_stand_in_forks():
    """A fork is a node, so it may be a branch; the results nest as the forks do."""
    inner = parallel(upper, length, name="both")
    strategy = Strategy("count", START >> each(inner, limit=2) >> END)
    assert (await only(parallel(strategy, name="outer")).run(["a", "bc"])).output == ([("A", 1), ("BC", 2)],)


async def test_branches_are_named_by_fork_and_number():
    """Paths are `parallel/0/upper`, `each/3/length`, and go on into subgraphs of branches."""
    told = []
    count = Strategy("count", START >> length >> END)
    strategy = Strategy("s", START >> each(parallel(upper, count), limit=1) >> END)
    agent = Agent(strategy)
    agent.on(NodeStarted, lambda event: told.append(event.node))
    await agent.run(["a", "b"])
    assert sorted(told) == [
        "each",
        "each/0/parallel",
        "each/0/parallel/0/upper",
        "each/0/parallel/1/count",
        "each/0/parallel/1/count/length",
        "each/1/parallel",
        "each/1/parallel/0/upper",
        "each/1/parallel/1/count",
        "each/1/parallel/1/count/length",
    ]


# ---- failures


@pytest.mark.parametrize("fork", ["parallel", "each"])
async def test_a_failing_branch_cancels_the_others(fork):
    """The fork fails with the branch's error, under the branch's path, when all others have seen their cancellation."""
    cancelled = []

    @node
    async def mixed(ctx: Context, value: str) -> str:
        return await (fail if value == "bad" else waiting(cancelled)).function(ctx, value)

    if fork == "parallel":
        agent, given, path = only(parallel(waiting(cancelled), fail, waiting(cancelled, "b"))), "bad", "parallel/1/fail"
    else:
        agent, given, path = only(each(mixed, limit=None)), ["a", "bad", "b"], "each/1/mixed"
    with pytest.raises(NodeFailedError) as info:
        await agent.run(given)
    assert info.value.node == path
    assert isinstance(info.value.__cause__, ValueError)
    assert len(cancelled) == 2


async def test_a_branch_is_not_held_up_by_another_one():
    """One that has several nodes comes to its end while the first node of another waits for that."""
    arrived = anyio.Event()

    @node
    async def slow(ctx: Context, said: str) -> str:
        await arrived.wait()
        return said

    @node
    async def last(ctx: Context, said: str) -> str:
        arrived.set()
        return said

    quick = Strategy("quick", START >> upper >> upper.named("again") >> last >> END)
    with anyio.fail_after(60):
        assert (await only(parallel(slow, quick)).run("a")).output == ("a", "A")


async def test_items_that_were_not_begun_are_not_begun_after_a_failure():
    """With a limit, an item that fails ends the fork, and no further item begins."""
    begun = []

    @node
    async def third_fails(ctx: Context, value: int) -> int:
        begun.append(value)
        if value == 2:
            raise ValueError
        return value

    with pytest.raises(NodeFailedError):
        await only(each(third_fails, limit=1)).run(list(range(10)))
    assert begun == [0, 1, 2]


async def test_collect_keeps_a_failure_in_its_place():
    """With failures="collect" the others go on, and the NodeFailedError stands where the result would."""

    @node
    async def odd_fails(ctx: Context, value: int) -> int:
        if value % 2:
            raise ValueError(value)
        return value

    result = await only(each(odd_fails, failures="collect"), store=None).run([0, 1, 2, 3])
    assert [type(given) for given in result.output] == [int, NodeFailedError, int, NodeFailedError]
    assert (result.output[3].node, result.output[3].run_id) == ("each/3/odd_fails", result.run_id)
    assert (result.output[3].__cause__.args, result.output[3].reason) == ((3,), "ValueError: 3")
    assert (await only(parallel(upper, fail, failures="collect")).run("x")).output[0] == "X"


async def test_a_collected_failure_that_was_stored_still_says_what_was_raised():
    """Its `__cause__` is not kept, and its text is: also that of a failure within a failure, and of one that has none."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    errors = [KeyError("a"), OSError(), Broken()]

    @node
    async def fails(ctx: Context, number: int) -> str:
        raise errors[number]

    inner = Agent(Strategy("inner", START >> fails >> END), name="inner")
    agent = Agent(
        Strategy("s", START >> parallel(fails, inner.as_node(), failures="collect") >> END), store=MemoryStore()
    )
    reasons = [{each.reason.rpartition(".")[2] for each in (await agent.run(number)).output} for number in range(3)]
    assert reasons == [{"KeyError: 'a'"}, {"OSError"}, {"Broken: <exception str() failed>"}]


async def test_collect_does_not_collect_a_used_up_budget():
    """A budget of the run ends the fork, whatever its policy."""
    crowd = Crowd()
    fork = each(node(name="crowd")(crowd), limit=2, failures="collect")
    with pytest.raises(BudgetError):
        await Agent(Strategy("s", START >> fork >> END), max_nodes=5).run(list(range(10)))
    assert crowd.done <= 5


async def test_an_output_without_a_way_in_a_branch_ends_the_fork():
    """NoPathError is a fault of the strategy, and is not collected."""

    @node
    async def lie(ctx: Context, said: str) -> Any:
        return said

    inner = Strategy("inner", START >> lie, lie.on(int) >> END)
    with pytest.raises(NoPathError) as info:
        await only(parallel(inner, upper, failures="collect")).run("x")
    assert info.value.node == "parallel/0/inner/lie"


async def test_an_iterable_that_raises_fails_the_fork():
    """What the iteration over the items raises is a failure of the fork's own node."""

    def broken():
        yield "a"
        raise OSError

    with pytest.raises(NodeFailedError) as info:
        await only(each(upper), store=None).run(broken())
    assert info.value.node == "each"


async def test_an_error_path_of_a_fork_takes_a_branchs_error():
    """on_error of a fork gets what the branch's node raised."""
    fork = parallel(upper, fail)
    strategy = Strategy("s", START >> fork, fork.on_error(ValueError).map(str) >> END, fork.map(str) >> END)
    assert (await Agent(strategy).run("x")).output == "x"


async def test_a_race_gives_the_first_success_and_cancels_the_rest():
    """The first branch to succeed wins, failures before it do not count, and the others see their cancellation."""
    cancelled = []
    assert (await only(race(waiting(cancelled), fail, upper)).run("x")).output == "X"
    assert cancelled == ["race/0/wait"]


async def test_a_race_that_all_lose_fails_with_the_first_branchs_error():
    """The error is that of the first branch, in the order of declaration, and its notes name the others."""

    @node
    async def fails_first(ctx: Context, said: str) -> str:
        raise KeyError(said)

    with pytest.raises(NodeFailedError) as info:
        await only(race(fail, fails_first)).run("x")
    assert info.value.node == "race/0/fail"
    assert info.value.__notes__ == ["branch 1 failed too: node 'race/1/fails_first' failed with KeyError"]


async def test_a_race_of_one_is_that_one():
    """A race with one branch gives its result, or its error."""
    assert (await only(race(upper)).run("x")).output == "X"
    with pytest.raises(NodeFailedError):
        await only(race(fail)).run("x")


@pytest.mark.parametrize("fork", [parallel, race], ids=["parallel", "race"])
async def test_no_exception_group_reaches_the_user(fork):
    """Base exceptions of a branch, and several errors at once, come out as single exceptions."""

    class Quit(BaseException):
        pass

    @node
    async def leave(ctx: Context, said: str) -> str:
        await checkpoint()
        raise Quit

    @node
    async def stubborn(ctx: Context, said: str) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            raise OSError("while cleaning up")

    with pytest.raises(Quit):
        await only(fork(leave, stubborn)).run("x")
    with pytest.raises(NodeFailedError):
        await only(parallel(fail, stubborn, fail.named("fail 2"))).run("x")


async def test_a_race_whose_losers_fail_while_they_are_cancelled_is_won():
    """What a loser raises while it is cancelled changes nothing."""

    @node
    async def stubborn(ctx: Context, said: str) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            raise OSError("while cleaning up")

    @node
    async def soon(ctx: Context, said: str) -> str:
        await checkpoint()
        return "won"

    assert (await only(race(stubborn, soon)).run("x")).output == "won"


async def test_together_begins_in_order_and_raises_the_first_error():
    """`together` begins work in the order of the numbers, and raises what failed first, as itself."""
    begun = []

    async def work(number):
        begun.append(number)
        await checkpoint()
        if number >= 2:
            raise ValueError(number)

    with pytest.raises(ValueError, match="2"):
        await together(work, 10, 1)
    assert begun == [0, 1, 2]
    await together(work, 0)


# ---- transcripts


def talk(name):
    """A branch that asks the model, with a word of its own."""
    ask = llm_request(tools=False, name="ask")
    return Strategy(name, START >> update_prompt(f"I am {name}.") >> ask >> END)


async def test_branches_hear_what_was_said_before_and_not_each_other():
    """Each branch is sent what stood before the fork, the task included, and its own words only."""
    model = ScriptedModel(["before", "one", "two"])
    ask = llm_request(tools=False)
    strategy = Strategy("s", START >> ask >> parallel(talk("a"), talk("b"), limit=1) >> END)
    await Agent(strategy, model=model).run("task")
    sent = [[message.text for message in request.messages] for request in model.requests]
    assert sent[1] == ["task", "before", "I am a.", "before"]
    assert sent[2] == ["task", "before", "I am b.", "before"]


async def test_the_task_counts_once_in_every_branch():
    """A task that arrives in branches, and behind the join, as the same object is sent once each time."""
    model = ScriptedModel(["one", "two", "three"])
    ask = llm_request(tools=False)
    fork = parallel(ask.named("a"), ask.named("b"), limit=1)
    strategy = Strategy("s", START >> fork, fork.map(lambda _: "end") >> ask >> END)
    await Agent(strategy, model=model).run("task")
    sent = [[message.text for message in request.messages] for request in model.requests]
    assert sent == [["task"], ["task"], ["task", "end"]]


@pytest.mark.parametrize(
    ("transcript", "kept"),
    [("drop", []), ("keep", ["I am a.", "x", "one", "I am b.", "x", "two"])],
)
async def test_transcripts_of_branches_are_dropped_or_kept_in_order(transcript, kept):
    """At the join the branches' steps are dropped, or follow in the order of the branches, whoever ended first."""
    model = ScriptedModel(["one", "two"])
    fork = parallel(talk("a"), talk("b"), limit=1, transcript=transcript)
    size = passthrough(str, name="size")
    strategy = Strategy("s", START >> size, size.map(lambda said: "x") >> fork >> END)
    result = await Agent(strategy, model=model).run("task")
    assert texts(result.memory) == ["task", *kept]
    assert result.turns == 2


async def test_each_keeps_transcripts_in_the_order_of_the_items():
    """The steps of item 0 stand before those of item 1, though item 1 ended first."""

    @node
    async def note(ctx: Context, value: int) -> int:
        for _ in range(5 - value):
            await checkpoint()
        from graphagent.llm import Message

        ctx.memory.steps.append(MessageStep(Message.user(f"item {value}")))
        return value

    result = await only(each(note, limit=None, transcript="keep")).run([0, 1, 2])
    assert texts(result.memory) == ["item 0", "item 1", "item 2"]


async def test_a_race_keeps_the_winners_transcript_only():
    """With transcript="keep" what the winner said flows back, and nothing of the losers."""
    model = ScriptedModel(["won"])
    cancelled = []
    slow = Strategy("slow", START >> update_prompt("I am slow.") >> waiting(cancelled) >> END)
    result = await Agent(Strategy("s", START >> race(slow, talk("a"), transcript="keep") >> END), model=model).run(
        "task"
    )
    assert texts(result.memory) == ["task", "I am a.", "won"]
    assert cancelled == ["race/0/slow/wait"]


async def test_a_turn_whose_calls_are_executed_in_a_branch_gets_its_results():
    """Calls that a branch executes have their results in the parent's transcript, once, whatever is kept."""
    from graphagent import tool

    @tool
    async def double(n: int) -> int:
        """Double a number."""
        return n * 2

    for transcript in ("drop", "keep"):
        model = ScriptedModel([ToolCall("double", {"n": 4}), "eight"])
        ask, act = llm_request(), execute_tools()
        names = passthrough(ToolCalls, name="names")
        fork = parallel(act, names, transcript=transcript)
        strategy = Strategy(
            "s", START >> ask, ask.on(ToolCalls) >> fork, fork.map(lambda both: both[0]) >> ask, ask.on(str) >> END
        )
        result = await Agent(strategy, model=model, tools=[double]).run("task")
        assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "tool"]
        assert model.requests[1].messages[-1].text == "8"
        assert [type(step).__name__ for step in result.memory.steps] == [
            "TaskStep",
            "ActionStep",
            "ActionStep",
            "FinalAnswerStep",
        ]


async def test_a_branch_that_ends_with_tool_calls_keeps_its_turn():
    """A kept transcript holds a turn whose calls nobody executed, and it is sent with a result for each call."""
    from graphagent import tool

    @tool
    async def double(n: int) -> int:
        """Double a number."""
        return n * 2

    model = ScriptedModel([ToolCall("double", {"n": 4})])
    ask = llm_request()
    result = await Agent(
        Strategy("s", START >> parallel(ask, transcript="keep") >> END), model=model, tools=[double]
    ).run("task")
    assert [message.role for message in result.memory.to_messages()] == ["user", "assistant", "tool"]


async def test_results_of_a_fork_over_calls_reach_the_model():
    """A fork of one's own over the calls of a turn may give the results."""
    from graphagent import tool

    @tool
    async def double(n: int) -> int:
        """Double a number."""
        return n * 2

    @node
    async def by_hand(ctx: Context, call: ToolCall) -> ToolResult:
        return ToolResult(call.id, call.name, f"by hand: {call.arguments['n'] * 2}")

    model = ScriptedModel([[ToolCall("double", {"n": 1}), ToolCall("double", {"n": 2})], "done"])
    ask, work = llm_request(), each(by_hand)
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> work, work.map(ToolResults) >> ask, ask.on(str) >> END)
    result = await Agent(strategy, model=model, tools=[double]).run("task")
    assert [message.text for message in model.requests[1].messages if message.role == "tool"] == [
        "by hand: 2",
        "by hand: 4",
    ]
    [turn, _] = [step for step in result.memory.steps if isinstance(step, ActionStep)]
    assert [given.content for given in turn.results] == ["by hand: 2", "by hand: 4"]


async def test_events_of_branches_name_their_paths():
    """Ends of branches are told with their own paths, while they run at once."""
    told = []
    agent = only(parallel(upper, length))
    agent.on(NodeFinished, lambda event: told.append((event.node, event.output)))
    await agent.run("ab")
    assert sorted(told[:2]) == [("parallel/0/upper", "AB"), ("parallel/1/length", 2)]
    assert told[2] == ("parallel", ("AB", 2))


async def test_a_race_ends_with_what_ends_the_run():
    """A used-up budget of the run, or a script that is too short, is no branch that merely lost."""
    ask = llm_request(tools=False)

    @node
    async def late(ctx: Context, text: str) -> str:
        await anyio.sleep(0.02)
        return text

    strategy = Strategy("racing", START >> race(ask, late) >> END)
    with pytest.raises(BudgetError):
        await Agent(strategy, model=ScriptedModel(["never"]), max_turns=0).run("a")
    with pytest.raises(NodeFailedError, match="script"):
        await Agent(strategy, model=ScriptedModel([])).run("a")


async def test_a_dropped_branch_edits_no_turn_of_its_parent():
    """A branch works on copies of the turns before the fork: only a kept transcript changes anything."""
    ask = llm_request()

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    @node
    async def edit(ctx: Context, calls: ToolCalls) -> str:
        turn = ctx.memory.last_turn
        assert turn is not None
        turn.observations = "edited in a branch"
        return "edited"

    strategy = Strategy(
        "editing",
        START >> ask,
        ask.on(ToolCalls) >> parallel(edit, edit.named("again")) >> END,
        ask.on(str) >> END,
    )
    result = await Agent(strategy, model=ScriptedModel([ToolCalls([ToolCall("look")])]), tools=[look]).run("a")
    assert all("edited" not in message.text for message in result.memory.to_messages())


@pytest.mark.parametrize("kept", ["drop", "keep"])
async def test_callbacks_see_a_turn_whose_calls_were_not_executed_before_the_fork_once(kept):
    """The branches begin with it as one of their steps, and it comes before what they add, or before the answer."""
    ask, seen = llm_request(), []

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    @node
    async def note(ctx: Context, calls: ToolCalls) -> str:
        await ctx.add(MessageStep(Message.user("noted")))
        return "noted"

    def see(step: ActionStep):
        seen.append(step.step_number)

    fork = parallel(note, note.named("again"), transcript=kept)
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> fork >> END, ask.on(str) >> END)
    model = ScriptedModel([ToolCalls([ToolCall("look")])])
    agent = Agent(strategy, model=model, tools=[look], step_callbacks=[see], store=MemoryStore())
    result = await agent.run("a", run_id="r")
    kinds = [type(step).__name__ for step in result.memory.steps]
    added = ["ActionStep", "MessageStep", "MessageStep"] if kept == "keep" else ["ActionStep"]
    assert kinds == ["TaskStep", *added, "FinalAnswerStep"]
    assert seen == [1]
    assert (await agent.read("r")).memory == result.memory


@pytest.mark.parametrize(
    ("made", "failures"),
    [
        (lambda bad, late, either: race(bad, late), 1),
        (lambda bad, late, either: race(late, bad.named("a"), bad.named("b")), 2),
        (lambda bad, late, either: race(bad.retry(attempts=2, wait=0), late), 2),
        (lambda bad, late, either: race(bad, late).retry(attempts=2, wait=0), 1),
        (lambda bad, late, either: parallel(race(bad, late), bad.named("b"), failures="collect"), 2),
        (lambda bad, late, either: parallel(late, bad, failures="collect"), 1),
        (lambda bad, late, either: each(either, failures="collect"), 2),
    ],
)
async def test_a_branch_that_failed_stays_failed_when_the_run_goes_on(made, failures):
    """A run breaks off behind the failure of a branch: whoever resumes it knows that it failed, and executes what was left."""
    failed, interrupted = [], anyio.CancelScope()

    @node
    async def bad(ctx: Context, text: str) -> str:
        failed.append(ctx.node)
        raise ConnectionError(text)

    @node
    async def late(ctx: Context, text: str) -> str:
        while len(failed) < failures:
            await checkpoint()
        await ctx.once("behind", _one)
        interrupted.cancel()
        await checkpoint()
        return "late"

    @node
    async def either(ctx: Context, text: str) -> str:
        return await (late.function if text == "1" else bad.function)(ctx, text)

    @node
    async def three(ctx: Context, text: str) -> list[str]:
        return ["0", "1", "2"]

    fork, store = made(bad, late, either), MemoryStore()
    first = [three] if fork.name == "each" else []
    strategy = Strategy("s", START >> three >> fork >> END if first else START >> fork >> END)
    with interrupted:
        await Agent(strategy, store=store).run("x", run_id="r")
    assert interrupted.cancelled_caught
    result = await Agent(strategy, store=store).resume("r")
    assert "late" in str(result.output)
    assert len(failed) == failures


async def _one():
    return 1


async def test_a_race_that_all_lost_is_tried_again_in_full():
    """Who resumes a run that failed since every branch of a race did gives each another chance."""
    executed = []

    @node
    async def flaky(ctx: Context, text: str) -> str:
        executed.append(ctx.node)
        if len(executed) < 3:
            raise ConnectionError(text)
        return "back"

    agent = Agent(Strategy("s", START >> race(flaky, flaky.named("b")) >> END), store=MemoryStore())
    with pytest.raises(NodeFailedError):
        await agent.run("x", run_id="r")
    assert (await agent.resume("r")).output == "back"
    assert executed[:3] == ["race/0/flaky", "race/1/b", "race/0/flaky"]


async def test_the_error_of_a_branch_that_failed_in_an_earlier_process_is_told():
    """If the others fail after the run was resumed, the first branch's error is raised, and the rest are in its notes."""
    interrupted, lives = anyio.CancelScope(), []

    @node
    async def bad(ctx: Context, text: str) -> str:
        raise KeyError(text)

    @node
    async def late(ctx: Context, text: str) -> str:
        await ctx.once("behind", _one)
        lives.append(1)
        if len(lives) == 1:
            interrupted.cancel()
            await anyio.lowlevel.checkpoint()
        raise ConnectionError(text)

    agent = Agent(Strategy("s", START >> race(bad, late) >> END), store=MemoryStore())
    with interrupted:
        await agent.run("x", run_id="r")
    with pytest.raises(NodeFailedError, match=r"race/0/bad.*KeyError") as info:
        await agent.resume("r")
    assert info.value.__notes__ == ["branch 1 failed too: node 'race/1/late' failed with ConnectionError"]


def test_the_branches_of_a_stored_fork_read_its_input_once():
    """With a store, the work of an `each` grows with its items and not with their square, also inside another `each` or a strategy."""

    @node
    async def items(ctx: Context, n: int) -> list[list[int]]:
        return [list(range(n))]

    @node
    async def same(ctx: Context, n: int) -> int:
        return n

    class Store(MemoryStore):
        compared = False  # the fold of the log with the state after each commit, which is other work

    inner = Strategy("inner", START >> each(same) >> END)
    agent = Agent(Strategy("s", START >> items >> each(inner) >> END), store=Store(), max_nodes=None)
    _, few, more, many = (calls(lambda n=n: anyio.run(agent.run, n)) for n in (10, 20, 40, 80))
    assert many - more < 2.5 * (more - few)


@pytest.mark.parametrize("fork", ["each", "parallel"])
async def test_what_a_branch_changes_in_place_is_its_own_with_a_store(fork):
    """Each branch has objects of its own, also within lists and tuples of different types."""

    @node
    async def pairs(ctx: Context, n: int) -> tuple[list[int], list[int]]:
        return [n], [n]

    @node
    async def change(ctx: Context, given: Any) -> str:
        seen = repr(given)
        (given if fork == "each" else given[0]).append(0)
        await checkpoint()
        return seen

    forked = each(change) if fork == "each" else parallel(change, change.named("other"))
    result = await Agent(Strategy("s", START >> pairs >> forked >> END), store=MemoryStore()).run(7)
    assert [*result.output] == (["[7]", "[7]"] if fork == "each" else ["([7], [7])", "([7], [7])"])
