"""Rules over paths in runs: what the agent knows of its runs and the strategy does not, and rules checked against what a run did."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import (
    BudgetError,
    NodeFailedError,
    RuleError,
    RunNotFoundError,
    StrategyChangedError,
    StrategyError,
)
from graphagent.events import NodeFailed, NodeFinished, NodeStarted
from graphagent.graph import BrokenRule, Node, each, guarded, never_together, precedes, race
from graphagent.graph._forks import Each, Parallel, Race
from graphagent.graph.rules._proof import check_rules, patterns
from graphagent.history import broken_rules, compare_runs
from graphagent.llm import ToolCall, ToolCalls
from graphagent.log._log import Log
from graphagent.log._replay import Replay
from graphagent.memory import ActionStep, FinalAnswerStep  # noqa: TC001  annotations choose the steps that callbacks see
from graphagent.nodes import execute_tools, llm_request
from graphagent.protocols import Feature
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel, Trace, record
from tests.graph.interleavings import rules_of, small_strategies
from tests.thorough import examples

ask = llm_request(tools=False)


@node
async def search(ctx: Context, text: str) -> str:
    return text


@node
async def send(ctx: Context, text: str) -> str:
    return text


APART = never_together(search, send)
route = Strategy(
    "route", START >> ask, ask.on("search") >> search >> END, ask.otherwise() >> send >> END, rules=[APART]
)


def agent(**settings):
    return Agent(route, model=ScriptedModel(["search", "no", "send", "yes"]), **settings)


def refused(make):
    with pytest.raises(StrategyError) as caught:
        make()
    return str(caught.value)


async def test_an_answer_that_may_be_refused_is_part_of_the_proof():
    """The model may be asked again: an agent with final checks refuses a strategy whose rules that could break, and another runs."""
    assert (await agent().run("x")).output == "search"
    assert refused(lambda: agent(final_answer_checks=[str.isascii])) == snapshot("""\
strategy 'route' has 1 problem:
  'send': it breaks the rule never_together(search, send) on the path START -> llm_request -[on 'search']-> search -[answer refused]-> llm_request -[otherwise]-> send: one run executes both; choose one of them with outlets such as .on(…) and .when(…), or change the rule\
""")
    held = Strategy("held", START >> ask >> search >> send >> END, rules=[precedes(search, send)])
    checked = Agent(held, model=ScriptedModel(["no", "yes"]), final_answer_checks=[lambda answer: answer == "yes"])
    assert (await checked.run("x")).output == "yes"


def test_callbacks_that_see_the_answer_may_refuse_it():
    """Those that see other steps cannot; one that a feature adds is found before the first run."""

    def every(step) -> None: ...

    def turns(step: ActionStep) -> None: ...

    def answers(step: FinalAnswerStep) -> None: ...

    assert agent(step_callbacks=[turns])
    for callback in (every, answers):
        assert "answer refused" in refused(lambda callback=callback: agent(step_callbacks=[callback]))


async def test_a_callback_of_a_feature_is_found_before_the_first_run():
    """Features add theirs when they are installed; the run does not begin."""

    class Judge(Feature):
        def install(self, agent):
            from graphagent.run._callbacks import Callback

            agent.callbacks.append(Callback.of(self.judge))

        def judge(self, step: FinalAnswerStep) -> None: ...

    judged = agent()
    judged.install(Judge)
    with pytest.raises(StrategyError, match="answer refused"):
        await judged.run("x")
    assert judged.model.requests == []


def test_both_ways_back_are_tried():
    """A refused answer of a strategy that is tried again as a whole."""
    rule = guarded(search, by="moderate", before=send)
    whole = Strategy("whole", START >> search >> moderate >> ask >> send >> END, rules=[rule]).retry(attempts=2)
    assert Agent(whole, model=ScriptedModel([]), final_answer_checks=[str.isascii])
    last = Strategy("last", START >> ask >> send >> search >> END, rules=[precedes(send, search)])
    assert Agent(last, model=ScriptedModel([]), final_answer_checks=[str.isascii])


# ---- rules checked against what a run did


@node
async def moderate(ctx: Context, text: str) -> str:
    if text == "bad":
        raise ValueError(text)
    return text


def mailing(**settings):
    """A strategy that may send what was not moderated, with no rules."""
    return Strategy(
        "mailing",
        START >> search,
        search.on("draft").map(str.upper) >> search,
        search.otherwise() >> moderate >> send >> END,
        moderate.on_error(ValueError).map(str) >> send,
        **settings,
    )


GUARDED = guarded(search, by=moderate, before=send)


async def test_a_stored_run_is_checked_by_its_journal(tmp_path):
    """Each node that was executed against a rule is found, with the entry that led to it; a run that kept the rules has none."""
    async with SqliteStore(tmp_path / "runs.db") as store:
        agent = Agent(mailing(), store=store)
        for task in ("good", "bad"):
            await agent.run(task, run_id=task)
        rules = [GUARDED, precedes(moderate, "send"), precedes(search, moderate), never_together(moderate, send)]
        assert await broken_rules(store, "good", mailing(), rules=rules[:3]) == []
        found = await broken_rules(store, "bad", agent.strategy, rules=rules)
        assert found == [
            BrokenRule(rules[0], "send", "search", 3),
            BrokenRule(rules[1], "send", "START", 3),
            BrokenRule(rules[3], "send", "moderate", 3),
        ]
        assert list(map(str, found[:2])) == [
            "'send' breaks the rule guarded(search, by=moderate, before=send) at 3: 'moderate' has not been executed to its end since 'search'",
            "'send' breaks the rule precedes(moderate, send) at 3: 'moderate' has not been executed to its end before",
        ]
        entry = (await agent.history("bad"))[found[0].at - 1]
        assert (entry.kind, entry.where, entry.next) == ("finished", "moderate", "send")
        assert entry.error == ("ValueError", "bad")
        assert await broken_rules(store, "bad", agent.strategy) == []
        assert await broken_rules(store, "bad", rules=[precedes("moderate", "send")]) == [
            BrokenRule(precedes("moderate", "send"), "send", "START", 3)
        ]


async def test_rules_leave_nothing_in_a_log():
    """What they name follows from the visits, so a run with rules is stored as one without them is."""
    store = MemoryStore()
    for name, rules in (("without", []), ("with", [APART])):
        strategy = Strategy(
            "s", START >> ask, ask.on("x") >> search >> END, ask.otherwise() >> send >> END, rules=rules
        )
        await Agent(strategy, model=ScriptedModel(["no"]), store=store).run("x", run_id=name)
    assert (await compare_runs(store, "without", "with")).to_text().splitlines()[1:] == ["--- without", "+++ with"]


async def test_what_cannot_be_checked_is_refused(tmp_path):
    """A run that there is not, another strategy, a node that the strategy does not have, and no rules."""
    async with SqliteStore(tmp_path / "runs.db") as store:
        agent = Agent(mailing(), store=store)
        await agent.run("good", run_id="r")
        with pytest.raises(RunNotFoundError):
            await broken_rules(store, "nothing", agent.strategy)
        with pytest.raises(RunNotFoundError):
            await broken_rules(store, "r", agent.strategy, owner="someone")
        other = Strategy("other", START >> search >> send >> END)
        with pytest.raises(StrategyChangedError, match="- node 'moderate', to which entry 2 led"):
            await broken_rules(store, "r", other, rules=[never_together(search, send)])
        with pytest.raises(StrategyError, match="names it, and it is not in the strategy"):
            await broken_rules(store, "r", agent.strategy, rules=[precedes("approve", send)])
        with pytest.raises(TypeError, match="rules= is a list of rules"):
            await broken_rules(store, "r", agent.strategy, rules=GUARDED)
        with pytest.raises(StrategyError, match="of a stored run, only paths are known: name 'search'"):
            await broken_rules(store, "r", rules=[GUARDED])
        with pytest.raises(TypeError, match="or the strategy that has them"):
            await broken_rules(store, "r")


async def test_a_recorded_run_is_checked_in_a_test():
    """`record` knows when nodes began and ended; the index is that of the node in `nodes`."""
    agent = Agent(mailing())
    taken = record(agent)
    await agent.run("good")
    assert taken.broken_rules([GUARDED]) == []
    await agent.run("bad")
    [found] = taken.broken_rules([GUARDED])
    assert (found.node, taken.nodes[found.at]) == ("send", "send")
    assert taken.broken_rules() == []
    with pytest.raises(ValueError, match=r"make it with record\(agent\)"):
        Trace().broken_rules()


async def test_the_runs_of_sub_agents_are_not_recorded():
    """Their nodes are not nodes of the strategy; the record of the calling run stays whole."""
    helper = Agent(Strategy("inner", START >> search >> END), name="helper", description="Helps.")
    act = execute_tools()
    ask = llm_request()
    strategy = Strategy("outer", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
    caller = Agent(strategy, model=ScriptedModel([ToolCall("helper", {"task": "x"}), "done"]), tools=[helper])
    taken = record(caller)
    await caller.run("go", run_id="r")
    assert taken.nodes == ["llm_request", "execute_tools", "llm_request"]
    assert taken.broken_rules([precedes(act, ask)])[0].at == 0


async def test_items_branches_and_attempts_in_a_journal(tmp_path):
    """Items of an `each` begin with their first entry, branches with their fork; a second attempt begins anew."""
    attempts = []

    @node
    async def flaky(ctx: Context, text: str) -> str:
        attempts.append(text)
        if len(attempts) == 1:
            raise OSError(text)
        return text

    one = Strategy("one", START >> send >> search >> flaky >> END).retry(attempts=2, wait=0)
    many = each(one, limit=1)
    strategy = Strategy("many", START >> many >> END)
    async with SqliteStore(tmp_path / "runs.db") as store:
        agent = Agent(strategy, store=store)
        taken = record(agent)
        await agent.run(["a", "b"], run_id="r")
        rules = [guarded(search, by=flaky, before=send), never_together("each/one/flaky", "each/one/send")]
        stored = [(each.rule, each.node, each.after) for each in await broken_rules(store, "r", strategy, rules=rules)]
        assert [(node, after) for rule, node, after in stored if rule is rules[0]] == [
            ("each/0/one/send", "each/0/one/search")
        ]
        assert [(node, after) for rule, node, after in stored if rule is rules[1]] == [
            ("each/0/one/flaky", "each/0/one/send"),
            ("each/0/one/send", "each/0/one/flaky"),
            ("each/0/one/flaky", "each/0/one/send"),
            ("each/1/one/send", "each/0/one/flaky"),
            ("each/1/one/flaky", "each/1/one/send"),
        ]
        assert [(each.rule, each.node, each.after) for each in taken.broken_rules(rules)] == stored


async def found_in(strategy, rule, *features):
    """Return what the journal of a run says against a rule, and its record."""
    store = MemoryStore()
    agent = Agent(strategy, store=store)
    for feature in features:
        agent.install(feature)
    taken = record(agent)
    await agent.run("x", run_id="r")
    stored = await broken_rules(store, "r", strategy, rules=[rule])
    return [[(each.node, each.after) for each in found] for found in (stored, taken.broken_rules([rule]))]


async def test_what_an_attempt_had_executed_that_was_taken_back_does_not_count():
    """As when a strategy is executed with its rules: another attempt follows it. What is left by an edge for errors counts."""
    attempts = []

    @node
    async def count(ctx: Context, text: str) -> int:
        attempts.append(text)
        return len(attempts) % 2

    @node
    async def fail(ctx: Context, text: str) -> str:
        raise OSError(text)

    paths = START >> count, count.on(1).map(str) >> moderate >> fail >> END, count.otherwise().map(str) >> END
    inner = Strategy("inner", *paths)
    again, once = inner.retry(attempts=2, wait=0), inner.retry(attempts=1)
    left = Strategy("left", START >> once >> send >> END, once.on_error(OSError).map(str) >> send)
    assert (
        await found_in(Strategy("s", START >> again >> send >> END), precedes(moderate, send))
        == [[("send", "START")]] * 2
    )
    assert await found_in(left, precedes(moderate, send)) == [[], []]


async def test_what_a_branch_had_executed_that_lost_does_not_count():
    """In a race, what the winner executed counts, and that the others began."""
    ended = anyio.Event()

    @node
    async def wait(ctx: Context, text: str) -> str:
        await anyio.sleep_forever()
        return text

    @node
    async def tell(ctx: Context, text: str) -> str:
        ended.set()
        return text

    @node
    async def follow(ctx: Context, text: str) -> str:
        await ended.wait()
        return text

    slow = Strategy("slow", START >> moderate >> tell >> wait >> END)
    strategy = Strategy("s", START >> race(slow, Strategy("fast", START >> follow >> END)) >> send >> END)
    assert await found_in(strategy, precedes(moderate, send)) == [[("send", "START")]] * 2
    assert await found_in(strategy, precedes(follow, send)) == [[], []]
    assert await found_in(strategy, never_together(moderate, send)) == [[("send", "race/0/slow/moderate")]] * 2


async def test_what_failed_did_not_end_though_middleware_caught_the_error():
    """As when it is executed; that it began counts."""

    class Catches(Feature):
        async def around_node(self, ctx: Any, value: Any, proceed: Any) -> Any:
            try:
                return await proceed(value)
            except OSError:
                return "caught"

    @node
    async def fails(ctx: Context, text: str) -> str:
        raise OSError(text)

    strategy, store = Strategy("s", START >> fails >> send >> END), MemoryStore()
    catching = Agent(strategy, store=store)
    catching.install(Catches)
    await catching.run("x", run_id="r")
    for rule in (precedes(fails, send), never_together(fails, send)):
        [broken] = await broken_rules(store, "r", strategy, rules=[rule])
        assert broken.node == "send"


async def test_what_was_executed_as_an_agent_is_checked():
    """A rule about a strategy, about a tool of it, or about the agent is broken once, by the node or the call that ran the agent."""
    paying = Strategy("paying", START >> search >> END)
    clerk = Agent(paying, name="clerk", description="Pays.")
    asking, act = llm_request(), execute_tools()
    helper = Strategy("helper", START >> asking, asking.on(ToolCalls) >> act >> asking, asking.on(str) >> END)

    @node
    async def runs(ctx: Context, text: str) -> str:
        return await ctx.run_agent(clerk, text)

    deep = Agent(Strategy("deep", START >> clerk.as_node() >> END)).as_node()
    for first, path, tools in (
        (clerk.as_node(), "clerk", ()),
        (runs, "runs: clerk", ()),
        (helper, "helper/execute_tools: clerk", [clerk]),
        (helper, "helper/execute_tools: clerk", [paying.as_tool("Pays.", name="clerk")]),
        (deep, "deep/deep/2/clerk", ()),
    ):
        strategy, store = Strategy("s", START >> first >> send >> paying.named("later") >> END), MemoryStore()
        model = ScriptedModel([ToolCall("clerk", {"task": "x"}), "done"])
        await Agent(strategy, model=model, tools=tools, store=store).run("x", run_id="r")
        for named in (paying, paying.as_tool("Gives.", name="give"), clerk.as_tool()):
            [broken] = await broken_rules(store, "r", strategy, rules=[precedes(send, named)])
            assert broken.node.removesuffix(": clerk") == path.removesuffix(": clerk")
            assert broken.after == "START"
            assert await broken_rules(store, "r", strategy, rules=[precedes(named, send)]) == []
            [apart, *_] = await broken_rules(store, "r", strategy, rules=[never_together(named, send)])
            assert apart.node == "send"


async def test_what_a_sub_agent_executed_is_checked():
    """By its declaration, as when it is executed; a rule about a path means a place of the strategy."""
    inner = Agent(Strategy("inner", START >> search >> END)).as_node()
    strategy, store = Strategy("s", START >> inner >> send >> search >> END), MemoryStore()
    await Agent(strategy, store=store).run("x", run_id="r")
    [broken] = await broken_rules(store, "r", strategy, rules=[precedes(send, search)])
    assert (broken.node, broken.after) == ("inner/inner/2/search", "START")
    assert await broken_rules(store, "r", strategy, rules=[precedes("send", "search")]) == []
    assert await broken_rules(store, "r", strategy, rules=[precedes(search, send)]) == []


async def test_the_rules_of_subgraphs_are_checked():
    """Each execution keeps them by itself; rules that are passed are those of the whole."""
    inner = Strategy("inner", START >> search >> send >> END)
    again = inner.when(lambda text: text == "x").map(str.upper) >> inner
    strategy, store = Strategy("s", START >> inner, again, inner.otherwise() >> END), MemoryStore()
    await Agent(strategy, store=store).run("x", run_id="r")
    inner.path_rules = (precedes(send, search),)
    found = await broken_rules(store, "r", strategy)
    assert [(each.node, each.after) for each in found] == [("inner/search", "START")] * 2
    [once] = await broken_rules(store, "r", strategy, rules=[precedes("inner/send", "inner/search")])
    assert once.at == found[0].at


async def test_what_middleware_does_not_execute_is_not_held_against_a_stored_run():
    """Neither as what is forbidden, nor as what forbids something; that it had to come before, it does not satisfy."""

    class Skip(Feature):
        async def around_node(self, ctx: Any, value: Any, proceed: Any) -> Any:
            return value if ctx.node == "search" else await proceed(value)

    strategy = Strategy("s", START >> moderate >> search >> send >> END)
    assert (await found_in(strategy, never_together(moderate, search), Skip))[0] == []
    assert (await found_in(strategy, never_together(search, send), Skip))[0] == []
    assert (await found_in(strategy, precedes(search, send), Skip))[0] == [("send", "START")]


# ---- the proof, and runs


class Chance:
    """What the nodes of a run do, by chance: return lists of lists of some length, raise, or wait."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.loops = 0

    def again(self, value: Any) -> bool:
        """Whether a loop is gone through again: not for ever, since one around an `each` without items executes no nodes."""
        self.loops += 1
        return self.random.random() < 0.4 and self.loops < 20

    async def __call__(self, ctx: Context, value: Any) -> Any:
        for _ in range(self.random.randrange(3)):
            await checkpoint()
        if self.random.random() < 0.25:
            raise OSError("by chance")
        return [[[0]] * self.random.randrange(3)] * self.random.randrange(3)


def with_rules(strategy, rules):
    """Return a strategy with rules that nobody has proven, as one may be that continues the run of another."""
    ruled = strategy.named(strategy.name)
    ruled.path_rules = tuple(rules)
    return ruled


def taken_back(events, begun, until, strategy):
    """Whether what began was taken back before something else: its attempt was followed by another, or its branch lost a race."""
    path, anew = events[begun][1], set()
    for number in range(begun + 1, until):
        kind, other = events[number]
        if not path.startswith(f"{other}/") or any(f"{other}/".startswith(f"{each}/") for each in anew):
            continue
        if kind is NodeStarted:
            anew.add(other)
        elif kind is NodeFailed:
            following = [
                each
                for what, each in events[number + 1 : until + 1]  # it may be what begins the next attempt
                if other.startswith(f"{each}/")
                or (what is NodeStarted and f"{each}/".startswith(f"{other.rpartition('/')[0]}/".lstrip("/")))
            ]
            if following and following[0].startswith(f"{other}/"):
                return True
        elif strategy.outline.find(other)[1].kind == "race":
            since = max(at for at in range(number) if events[at] == (NodeStarted, other))
            won = next(
                each
                for what, each in events[since:number]
                if what is NodeFinished and each.startswith(f"{other}/") and each.count("/") == other.count("/") + 2
            )
            if not path.startswith(f"{won.rpartition('/')[0]}/"):
                return True
    return False


def against(events, pattern, strategy):
    """Return the nodes that a run began against a rule, by the words of the rule alone; `events` are types and paths."""

    def place(path):
        return strategy.outline.find(path)[0]

    def span(begun):
        """When a node that began was over, and whether it came to its end: it may be tried again without beginning anew."""
        path, over, complete = events[begun][1], len(events), False
        retried = strategy.outline.find(path)[1].retried
        for number in range(begun + 1, len(events)):
            kind, other = events[number]
            follows = kind is NodeStarted and other.rpartition("/")[0] == path.rpartition("/")[0]
            if follows or (kind is not NodeStarted and path.startswith(f"{other}/")):
                return min(over, number), complete
            if kind is NodeFinished and other == path:
                over, complete = number, True
            if kind is NodeFailed and other == path and not retried:
                over = number
        return over, complete

    spans = [(number, path, *span(number)) for number, (kind, path) in enumerate(events) if kind is NodeStarted]
    found = []
    for number, path, *_ in spans:
        if place(path) not in pattern.then:
            continue
        before = [over for begun, other, over, _ in spans if begun < number and place(other) in pattern.first]
        since = max(before, default=-1)
        guarded = any(
            begun > since and over < number and complete and not taken_back(events, begun, number, strategy)
            for begun, other, over, complete in spans
            if place(other) in pattern.between
        )
        if (before or pattern.at_start) and not guarded:
            found.append(path)
    return found


@pytest.mark.every_loop
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(data=st.data(), seed=st.integers(0, 1_000_000))
@settings(max_examples=examples(400, 60), suppress_health_check=list(HealthCheck), deadline=None)
def test_no_run_of_an_accepted_strategy_breaks_a_rule(backend, data, seed):
    """Neither its record nor its journal has anything against it; of any strategy, the record shows just what the rule forbids."""
    chance = Chance(seed)
    strategy = data.draw(small_strategies([Node(chance, name=name) for name in "abcd"], chance.again))
    rules = data.draw(st.lists(rules_of(strategy), min_size=1, max_size=3))

    async def run():
        store = MemoryStore()
        agent = Agent(strategy, store=store, max_nodes=40)
        taken = record(agent)
        with contextlib.suppress(NodeFailedError, BudgetError):
            await agent.run([[[0]], [[0]]], run_id="r")
        return taken, [await broken_rules(store, "r", strategy, rules=[rule]) for rule in rules]

    taken, stored = anyio.run(run, backend=backend)
    events = [(type(event), event.node) for event in taken.events]
    forks = any(isinstance(element, Each | Parallel | Race) for _, element in strategy.walk())
    for rule, found in zip(rules, stored, strict=True):
        seen = [broken.node for broken in taken.broken_rules([rule])]
        if not check_rules(strategy.edges, [rule]):
            assert (seen, found) == ([], [])
        expected = [
            each for pattern in patterns(rule, list(strategy.walk())) for each in against(events, pattern, strategy)
        ]
        assert sorted(seen) == sorted(expected)
        if not forks:  # the journal knows the order of all that happened; the last node may not have been begun
            assert [broken.node for broken in found][: len(seen)] == seen


@pytest.mark.every_loop
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(data=st.data(), seed=st.integers(0, 1_000_000), durable=st.booleans())
@settings(max_examples=examples(400, 60), suppress_health_check=list(HealthCheck), deadline=None)
def test_no_run_breaks_a_rule_as_it_is_executed(backend, data, seed, durable):
    """Whether or not the strategy was proven: nothing begins that a rule forbids. What was proven is never refused."""
    chance = Chance(seed)
    strategy = data.draw(small_strategies([Node(chance, name=name) for name in "abcd"], chance.again))
    rules = data.draw(st.lists(rules_of(strategy), min_size=1, max_size=3))
    proven = not check_rules(strategy.edges, rules)

    async def run():
        agent = Agent(with_rules(strategy, rules), store=MemoryStore() if durable else None, max_nodes=40)
        taken, refused = record(agent), False
        try:
            await agent.run([[[0]], [[0]]], run_id="r")
        except RuleError:
            refused = True
        except (NodeFailedError, BudgetError):
            pass
        return taken, refused

    taken, refused = anyio.run(run, backend=backend)
    assert not (proven and refused)
    assert taken.broken_rules(rules) == []


@pytest.mark.every_loop
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(data=st.data(), seed=st.integers(0, 1_000_000))
@settings(max_examples=examples(400, 60), suppress_health_check=list(HealthCheck), deadline=None)
def test_what_a_log_says_of_rules_that_are_newer_is_what_it_would_have_noted(backend, data, seed):
    """Of each declaration, whether and where it was begun and came to its end: for rules that are checked, and for those added later."""
    chance = Chance(seed)
    strategy = data.draw(small_strategies([Node(chance, name=name) for name in "abcd"], chance.again))
    ruled = with_rules(strategy, data.draw(st.lists(rules_of(strategy), min_size=1, max_size=3)))

    async def run():
        store = MemoryStore()
        live = Agent(ruled, store=store, max_nodes=40).start([[[0]], [[0]]], run_id="r")
        with contextlib.suppress(NodeFailedError, BudgetError, RuleError):
            await live.finish()
        replay = Replay(live._run.config.ruled_in)
        replay.begin_items((await Log.read(store, "", "r", watch=replay.watch)).state)
        return live.status, live._run.log.past, replay.executed

    status, noted, read = anyio.run(run, backend=backend)
    scopes = noted.scopes if noted is not None else {}
    assert {path for path, _ in scopes} <= {path for path, _ in read.scopes}
    for scope in scopes.keys() & read.scopes.keys():  # a subgraph may have been entered again, with nothing begun there
        assert scopes[scope].keys() <= read.scopes[scope].keys()
        for name, known in scopes[scope].items():
            found = read.scopes[scope][name]
            assert set(found.ended) <= set(known.ended)
            assert status != "done" or set(known.ended) == set(found.ended)
