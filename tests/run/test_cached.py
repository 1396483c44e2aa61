"""`.cached(…)`: which outputs of nodes are used again, for whom, for how long, and what a run records of it."""

from __future__ import annotations

import signal
import sys
import textwrap
from dataclasses import dataclass, make_dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, race, tap
from graphagent._clock import clock
from graphagent.errors import CacheError, DivergedError, FeatureError, NodeFailedError, RunNotFoundError
from graphagent.events import CacheUsed, Event, NodeFinished, NodeStarted
from graphagent.graph import CachePolicy, Node
from graphagent.history import clear_cache, forget_runs, prune_runs
from graphagent.llm import Message, ModelRequest
from graphagent.memory import ActionStep
from graphagent.nodes import ask_human, llm_request
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, MemoryStore, Put, SqliteStore, new_key
from graphagent.testing import ScriptedModel
from tests import forkserver
from tests.thorough import examples


@dataclass
class Counted:
    """A node that counts its executions, and fails so many times."""

    fails: int = 0
    executed: int = 0

    async def __call__(self, ctx: Context, value: Any) -> Any:
        self.executed += 1
        if self.executed <= self.fails:
            raise ConnectionError(f"attempt {self.executed}")
        return [value]

    def node(self, taken=str, returned=list[str], name="work"):
        return Node(self, name=name, input_type=taken, output_type=returned)


def only(step, store=None, name="s", **options):
    return Agent(Strategy(name, START >> step >> END), store=store, **options)


@pytest.fixture
async def wall():
    """The time of graphagent's clock, which tests set."""
    now = [1_000_000]
    token = clock.set(lambda: now[0])
    yield now
    clock.reset(token)


async def cached_keys(store):
    return [item.key async for item in store.scan(("cache",))]


# ---- what is found


async def test_an_output_is_computed_once_for_an_input(store):
    """A second run, and another agent on the same store, find the output of the first one; another input is computed."""
    work = Counted()
    agent = only(work.node().cached(), store)
    first, again, other = await agent.run("a"), await agent.run("a"), await agent.run("b")
    elsewhere = await only(work.node().cached(), store).run("b")
    assert [each.output for each in (first, again, other, elsewhere)] == [["a"], ["a"], ["b"], ["b"]]
    assert work.executed == 2


async def test_another_process_finds_it(tmp_path):
    """What one process computed, another one finds in the file."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import os, sys, anyio
            from graphagent import END, START, Agent, Context, Strategy, node
            from graphagent.store import SqliteStore

            @node
            async def where(ctx: Context, words: set[str]) -> int:
                return os.getpid()

            async def main():
                async with SqliteStore(sys.argv[1]) as store:
                    agent = Agent(Strategy("s", START >> where.cached(60) >> END), store=store)
                    print((await agent.run({"one", "two", "three"})).output)

            anyio.run(main)
            """
        )
    )
    told = [
        (await forkserver.ended([sys.executable, str(program), str(tmp_path / "runs.db")])).stdout.strip()
        for _ in range(2)
    ]
    assert told[0] == told[1]


async def test_an_output_is_found_until_its_time_is_over(store, wall):
    """`ttl` counts by graphagent's clock; an output that has expired is computed anew and replaced, one without `ttl` stays."""
    brief, lasting = Counted(), Counted()
    agent = only(brief.node().cached(ttl=10), store)
    for time in (0, 9_999, 10_000, 19_000):
        wall[0] = 1_000_000 + time
        await agent.run("a")
    assert brief.executed == 2
    agent = only(lasting.node(name="lasting").cached(), store)
    for time in (0, 10**12):
        wall[0] = 1_000_000 + time
        await agent.run("a")
    assert lasting.executed == 1
    assert len(await cached_keys(store)) == 2


async def test_nobody_finds_what_another_owner_computed(store):
    """Each owner has values of their own."""
    work = Counted()
    agent = only(work.node().cached(), store)
    for owner in ("ada", "bob", "", "ada", "bob"):
        await agent.run("a", owner=owner)
    assert work.executed == 3


async def test_strategies_and_nodes_do_not_share_values(store):
    """The name of the strategy, the path of the node, the version and the declared types tell values apart."""
    work = Counted()
    for step, name in (
        (work.node().cached(), "s"),
        (work.node().cached(), "t"),
        (work.node(name="other").cached(), "s"),
        (work.node().cached(version=2), "s"),
        (work.node().cached(version="2"), "s"),
        (work.node(returned=list[str | int]).cached(), "s"),
        (Strategy("inner", START >> work.node().cached() >> END), "s"),
    ):
        await only(step, store, name).run("a")
    assert work.executed == 7


async def test_a_key_is_shared(store):
    """Under the same `key`, nodes of several strategies use the same values; a name is no key."""
    work = Counted()
    for name in "st":
        await only(work.node(name=name).cached(key="work"), store, name).run("a")
    assert work.executed == 1
    await only(work.node(name="work").cached(), store, "s").run("a")
    assert work.executed == 2


async def test_items_of_a_fork_share_values_and_branches_do_not(store):
    """Equal items of `each` are one input, wherever they are; branches of `parallel` and `race` with one name are several nodes."""
    one, two = Counted(), Counted()
    step = each(one.node().cached(), limit=1)
    assert (await only(step, store).run(["a", "b", "a", "b"])).output == [["a"], ["b"], ["a"], ["b"]]
    assert one.executed == 2

    async def other(ctx: Context, value: str) -> list[str]:
        return [f"other {value}"]

    both = parallel(two.node().cached(), Node(other, name="work", input_type=str, output_type=list[str]).cached())
    for _ in range(2):
        assert (await only(both, store, "p").run("a")).output == (["a"], ["other a"])
    assert two.executed == 1
    raced = Counted()
    for _ in range(2):
        assert (await only(race(raced.node().cached(), name="race"), store, "r").run("a")).output == ["a"]
    assert raced.executed == 1


async def test_a_hit_is_an_event(store):
    """NodeStarted, CacheUsed, NodeFinished; the first execution has no CacheUsed, and a node counts in the budget either way."""
    agent = only(Counted().node().cached(), store)
    for expected in ([NodeStarted, NodeFinished], [NodeStarted, CacheUsed, NodeFinished]):
        heard = []
        run = agent.start("a")
        run.on(Event, heard.append)
        result = await run.finish()
        heard = [event for event in heard if isinstance(event, NodeStarted | CacheUsed | NodeFinished)]
        assert [type(event) for event in heard] == expected
        assert result.nodes == 1
    assert (heard[1].node, heard[1].call) == ("work", None)


async def test_who_changes_an_output_changes_nothing_for_others(store):
    """Each run has a value of its own, also the one that computed it."""
    agent = only(Counted().node().cached(), store)
    for _ in range(3):
        output = (await agent.run("a")).output
        assert output == ["a"]
        output.append("changed")


async def test_two_runs_that_compute_the_same_both_succeed(store):
    """Runs at the same time compute the value twice, and both keep it."""
    together = anyio.Event()
    executed = 0

    @node
    async def slow(ctx: Context, text: str) -> str:
        nonlocal executed
        executed += 1
        if executed == 2:
            together.set()
        await together.wait()
        return text.upper()

    agent = only(slow.cached(), store)
    outputs = []

    async def run():
        outputs.append((await agent.run("a")).output)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        group.start_soon(run)
    await run()
    assert (outputs, executed) == (["A", "A", "A"], 2)


# ---- values of another form


async def test_a_value_of_another_schema_is_a_miss(store):
    """If a field of the output, or of a class in it, is added, renamed or of another type, the output is computed anew."""
    executed = 0
    for fields in ([("n", int)], [("n", str)], [("m", str)], [("m", str), ("n", int)], [("n", int)]):
        inner = make_dataclass("Inner", fields)
        outer = make_dataclass("Outer", [("inner", inner)])

        async def work(ctx: Context, text: str, inner=inner, outer=outer, fields=fields) -> Any:
            nonlocal executed
            executed += 1
            return outer(inner(*(kind("1") for _, kind in fields)))

        found = (await only(Node(work, name="work", input_type=str, output_type=outer), store).run("a")).output
        step = Node(work, name="work", input_type=str, output_type=outer).cached()
        cached = (await only(step, store).run("a")).output
        assert (type(cached), cached) == (outer, found)
    assert executed == 5 + 4  # the last type is like the first one


async def test_a_damaged_value_is_computed_anew():
    """Bytes that are no value, or one of another type, are a miss and are replaced."""
    store, work = MemoryStore(), Counted()
    agent = only(work.node().cached(), store)
    await agent.run("a")
    (key,) = await cached_keys(store)
    whole = (await store.get(key)).value
    for count, bad in enumerate([b"", b"x", whole[:-1], whole[:9], whole[:9] + b"7", whole[:9] + b"[1,2]", b"\x09" + whole[1:],
                                 whole[:9] + b'[{"$":"typed","t":"No","v":{}},{}]', whole[:9] + b'[{"$":"str","b":"0"},{}]',
                                 whole[:9] + b'[{"$":"str","b":"0"},{"0":7}]']):  # fmt: skip
        await store.commit(Put(key, bad))
        assert (await agent.run("a")).output == ["a"]
        assert work.executed == count + 2
        assert (await agent.run("a")).output == ["a"]
        assert work.executed == count + 2


class Colour(Enum):
    RED = 1
    BLUE = "red"


def test_types_of_another_form_are_told_apart():
    """The outline of a type has its classes with their fields, also of itself, in containers and in unions."""
    from graphagent.codec._typed_objects import outline

    assert outline(dict[str, list[Colour | None]]) == ["dict[str, list[Colour | None]]", "Colour: RED, BLUE"]
    assert outline(CachePolicy) == ["CachePolicy", "CachePolicy: ttl float | None, key str, version str | int"]
    assert outline(Any) == ["Any"]


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4) | st.binary(max_size=4)
    | st.decimals(allow_nan=False) | st.dates() | st.text(min_size=1, max_size=1).map(lambda text: text * 20_000),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(inputs=st.lists(st.tuples(st.sampled_from(["", "ada", "bob"]), plain), max_size=8))
def test_a_pure_node_never_returns_the_value_of_another_input_or_owner(inputs):
    """For any inputs and owners, the output is that of this input and this owner, with the types that it has."""

    async def work(ctx: Context, value: Any) -> Any:
        return (ctx.owner, repr(value))

    agent = only(Node(work, name="work", input_type=Any, output_type=Any).cached(), MemoryStore())

    async def run():
        for owner, value in [*inputs, *inputs]:
            assert (await agent.run(value, owner=owner)).output == (owner, repr(value))

    anyio.run(run)


# ---- errors, retries, timeouts


async def test_errors_are_not_kept(store):
    """A node that raised is executed by the next run."""
    work = Counted(fails=1)
    agent = only(work.node().cached(), store)
    with pytest.raises(NodeFailedError):
        await agent.run("a")
    assert await cached_keys(store) == []
    assert (await agent.run("a")).output == ["a"]
    assert work.executed == 2


@pytest.mark.parametrize("inner", ["cached", "retry"])
async def test_retries_may_be_inside_or_outside(store, inner):
    """In either order, a node that fails is tried again, its output is kept, and a later run finds it."""
    work = Counted(fails=2)
    step = work.node()
    step = step.cached().retry(attempts=3, wait=0) if inner == "cached" else step.retry(attempts=3, wait=0).cached()
    agent = only(step, store)
    assert (await agent.run("a")).output == (await agent.run("a")).output == ["a"]
    assert work.executed == 3


async def test_a_timeout_outside_covers_the_cache_and_keeps_nothing(store):
    """A node that is cancelled by its time limit, inside or outside the cache, leaves no value."""
    is_stuck = True

    @node
    async def slow(ctx: Context, text: str) -> str:
        if is_stuck:
            await anyio.sleep_forever()
        return text

    for step in (slow.cached().timeout(0.01), slow.timeout(0.01).cached()):
        with pytest.raises(NodeFailedError) as info:
            await only(step, store).run("a")
        assert isinstance(info.value.__cause__, TimeoutError)
    assert await cached_keys(store) == []
    is_stuck = False
    assert (await only(slow.timeout(60).cached(), store).run("a")).output == "a"


# ---- refusals


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (lambda: llm_request(tools=False), "asks a model"),
        (lambda: Strategy("inner", START >> Counted().node() >> END), "is a strategy"),
        (lambda: parallel(Counted().node()), "is a parallel"),
        (lambda: each(Counted().node()), "is an each"),
        (lambda: Counted().node().cached(5), "is cached already"),
        (lambda: Node(Counted(), name="x", needs=(dict,)), "needs dict"),
    ],
)
def test_only_nodes_that_compute_can_be_cached(step, text):
    """Strategies, forks, nodes that ask a model or need a feature are refused when `.cached` is called."""
    with pytest.raises(TypeError, match=text):
        step().cached(ttl=5)


def test_a_tap_has_nothing_to_keep():
    """A tap is refused with the reason."""

    @tap
    async def say(ctx: Context, text: str) -> None: ...

    with pytest.raises(TypeError, match="has no output to keep"):
        say.cached(5)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "strategy",
    [
        Strategy("s", START >> Counted().node().cached() >> END),
        Strategy("s", START >> Strategy("inner", START >> each(Counted().node().cached()) >> END) >> END),
    ],
)
async def test_without_a_store_a_run_is_refused_before_it_begins(strategy):
    """The error names the node, and says what to write."""
    heard = []
    agent = Agent(strategy)
    agent.on(NodeStarted, heard.append)
    with pytest.raises(FeatureError, match=r"work' is cached, and the agent has no store .* store=SqliteStore"):
        await agent.run("a")
    assert heard == []


async def test_a_sub_agent_with_a_cached_node_needs_the_store_of_its_parent():
    """The refusal names the node by its path, and with a store the values are in that of the parent."""
    from graphagent_strategies import single_run

    child = only(Counted().node().cached(), name="c")
    child.name, child.description = "child", "Works."
    with pytest.raises(FeatureError, match="node 'child/work' is cached"):
        await Agent(single_run(), model=ScriptedModel(["hi"]), tools=[child]).run("x")


async def test_a_node_that_does_more_than_compute_is_refused_when_it_does(store):
    """Steps, requests and questions would be missing in a run that finds the output: the node fails, and nothing is kept."""

    @node
    async def adds(ctx: Context, text: str) -> str:
        await ctx.add(ActionStep(model_output_message=Message.assistant("hi")))
        return text

    @node
    async def requests(ctx: Context, text: str) -> str:
        return (await ctx.request(ModelRequest((Message.user(text),)))).message.text

    async def refused(running, text):
        with pytest.raises(NodeFailedError) as info:
            await running
        assert isinstance(info.value.__cause__, CacheError)
        assert text in str(info.value)

    for step, text in ((adds, "adds to the transcript"), (requests, "asks a model")):
        await refused(only(step.cached(), store, model=ScriptedModel(["hi"])).run("a"), text)
    agent = only(ask_human("Well?", str).cached(), store)
    run = agent.start("a")
    await run.finish()
    run.answer("yes")
    await refused(run.finish(), "asks a person")
    assert await cached_keys(store) == []


# ---- journal


async def test_a_run_that_is_resumed_does_not_ask_the_cache_again(store):
    """The outcome is recorded, found or computed: a run that stopped after it keeps it, whatever the cache has then."""
    work, stops = Counted(), [True]

    @node
    async def after(ctx: Context, words: list[str]) -> str:
        if stops:
            stops.pop()
            raise ConnectionError
        return words[0]

    step = work.node().cached()

    def agent():
        return Agent(Strategy("s", START >> step >> after >> END), store=store)

    for run_id in ("computed", "found"):
        stops[:] = [True]
        with pytest.raises(NodeFailedError):
            await agent().run("a", run_id=run_id)
        await clear_cache(store)
        assert (await agent().resume(run_id)).output == "a"
        assert work.executed == 1
        assert await cached_keys(store) == []
        await agent().run("a")  # for the second run to find
        work.executed = 1


@dataclass
class Draft:
    text: str
    colours: set[Colour]


async def test_a_rerun_takes_the_recorded_output(store):
    """A rerun, a fork and the history have the output with its declared type; neither the node nor the cache is asked."""
    executed = 0

    @node
    async def draft(ctx: Context, text: str) -> Draft:
        nonlocal executed
        executed += 1
        await ctx.once("inner", inner)
        return Draft(text * 20_000, {Colour.RED})

    async def inner() -> str:
        return "done"

    @node
    async def length(ctx: Context, draft: Draft) -> int:
        return len(draft.text)

    agent = Agent(Strategy("s", START >> draft.cached() >> length >> END), store=store)
    for run_id in ("computed", "found"):
        assert (await agent.run("ab", run_id=run_id)).output == 40_000
        (effect,) = [entry for entry in await agent.history(run_id) if entry.key.startswith("cached:")]
        assert effect.value == Draft("ab" * 20_000, {Colour.RED})
        await clear_cache(store)
        assert (await agent.rerun(run_id)).output == 40_000
        assert executed == 1
        assert await cached_keys(store) == []
        await agent.run("ab")
        executed = 1


async def test_a_rerun_of_a_run_that_did_not_cache_diverges(store):
    """The node does something else than what was recorded, and the error names it; nothing is kept."""
    work = Counted()
    await only(work.node(), store).run("a", run_id="r")
    with pytest.raises(DivergedError, match="node 'work' does something other than was recorded"):
        await only(work.node().cached(), store).rerun("r")
    assert work.executed == 1
    assert await cached_keys(store) == []


async def test_a_value_is_in_a_journal_once(store):
    """A long text is stored once, though the effect and the end of the node both have it."""
    from graphagent.history import measure_runs

    async def work(ctx: Context, text: str) -> str:
        return text * 1000

    step = Node(work, name="work", input_type=str, output_type=str)
    for name, each_ in (("plain", step), ("cached", step.cached())):
        await only(each_, store, name).run("x" * 20, run_id=name)
    sizes = await measure_runs(store)
    assert sizes["cached"].bytes < 1.1 * sizes["plain"].bytes


KILLED = """
import os, sys, anyio
from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.run._policies import CacheEntry
from graphagent.store import SqliteStore

def note(text):
    with open(sys.argv[1] + "/log", "a") as log:
        log.write(text + "\\n")

@node
async def work(ctx: Context, text: str) -> str:
    note("executed")
    return text.upper()

if sys.argv[2] == "kill":
    put = CacheEntry.put

    async def dying(self, value, kind):
        if sys.argv[3] == "after":
            await put(self, value, kind)
        os.kill(os.getpid(), 9)

    CacheEntry.put = dying

async def main():
    async with SqliteStore(sys.argv[1] + "/runs.db") as store:
        agent = Agent(Strategy("s", START >> work.cached(60) >> END), store=store)
        result = await (agent.run("a", run_id="r") if sys.argv[2] == "kill" else agent.resume("r"))
        note(result.output)

anyio.run(main)
"""


@pytest.mark.parametrize(("place", "times"), [("before", 2), ("after", 1)])
async def test_a_run_that_is_killed_between_computing_and_committing_is_resumed(tmp_path, place, times):
    """Killed before its output is kept, the node is executed again; killed after that and before the journal has it, it is found."""
    (tmp_path / "program.py").write_text(KILLED)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    killed = await forkserver.ended([*command, "kill", place], check=False)
    assert killed.returncode == -signal.SIGKILL
    await forkserver.ended([*command, "resume", place])
    assert (tmp_path / "log").read_text().split() == ["executed"] * times + ["A"]


# ---- secrets, and forgetting


async def test_a_sealed_store_keeps_values_sealed_and_keys_show_nothing(tmp_path):
    """Neither the input nor the output is in the bytes of a sealed file, and a plain store has no input in its keys."""
    async with SqliteStore(tmp_path / "runs.db") as inner:
        agent = only(Counted().node().cached(), EncryptedStore(inner, new_key()))
        await agent.run("marmalade", owner="zebedee")
    assert not any(word in (tmp_path / "runs.db").read_bytes() for word in (b"marmalade", b"zebedee"))
    store = MemoryStore()
    await only(Counted().node().cached(), store).run("marmalade", owner="ada")
    assert [(key[:3], len(key[3])) for key in await cached_keys(store)] == [(("cache", "ada", "run"), 64)]


async def test_an_owner_is_forgotten_with_what_was_cached_for_them(store):
    """`forget_runs` erases the values of the owner and of nobody else; so does `clear_cache`, and leaves the runs."""
    work = Counted()
    agent = only(work.node().cached(), store)
    for owner in ("ada", "bob"):
        await agent.run("a", owner=owner, run_id=owner)
    receipt = await forget_runs(store, owner="ada")
    assert receipt.runs == 1
    assert [key[1] for key in await cached_keys(store)] == ["bob"]
    assert await clear_cache(store, owner="bob") == 1
    assert await clear_cache(store, owner="bob") == 0
    assert await cached_keys(store) == []
    assert [head.run_id for head in await list_runs(store, owner="bob")] == ["bob"]


async def test_a_run_that_is_forgotten_while_it_computes_keeps_nothing(store):
    """A value that is computed by then is not kept: the owner would not be forgotten."""

    @node
    async def work(ctx: Context, text: str) -> str:
        await forget_runs(store, owner="ada")
        return text

    with pytest.raises(RunNotFoundError):
        await only(work.cached(), store).run("a", owner="ada")
    assert await cached_keys(store) == []


async def test_expired_values_are_pruned(store, wall):
    """`prune_runs` and `clear_cache(expired=True)` erase what has expired, and nothing else."""
    work = Counted()
    for ttl, name in ((10, "brief"), (20, "long"), (None, "lasting")):
        await only(work.node(name=name).cached(ttl), store).run("a")
    wall[0] += 10_000
    await prune_runs(store, older_than=timedelta(days=1))
    assert len(await cached_keys(store)) == 2
    wall[0] += 10_000
    assert await clear_cache(store, expired=True) == 1
    assert len(await cached_keys(store)) == 1


def test_a_drawing_says_that_a_node_is_cached():
    """The note names the time, where there is one."""
    text = Strategy(
        "s", START >> Counted().node().cached(90) >> Counted().node(Any, str, "b").cached() >> END
    ).to_mermaid()
    assert "cached 90 s" in text
    assert "cached" in text.replace("cached 90 s", "")
