"""Programs that can be of any size, for `benchmarks.growth`: each measures what it does with so many steps, calls, runs or notes.

A program is a function of the number, a folder for its files and a stopwatch. What is done once with all of them is measured as
`took(…)`, and what is done with one beside all others as `took.one(…)`.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, tool
from graphagent.errors import NodeFailedError
from graphagent.graph import precedes
from graphagent.history import export_runs, forget_runs, list_threads, prune_runs, run_owners, verify_runs
from graphagent.llm import Message, ModelRequest, ModelResponse, ToolCall, ToolCalls, Usage
from graphagent.memory import (
    EVERYTHING,
    Concept,
    ContextWindow,
    EncryptedMemoryProvider,
    Fact,
    FileMemoryProvider,
    MessageStep,
    Notes,
    RunMemory,
    Scope,
    SingleFact,
    StoreMemoryProvider,
)
from graphagent.nodes import execute_tools, llm_request
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore, new_key
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

if TYPE_CHECKING:
    from graphagent.protocols import Store

SAMPLES = 20
"""How often something is done that is told of one."""


class Taken(NamedTuple):
    """What something took."""

    seconds: float
    alone: bool
    """Whether it is one thing beside so many others, which should take as long however many there are."""


class Stopwatch:
    """Measures the CPU time of parts of a program."""

    def __init__(self) -> None:
        self.taken: dict[str, Taken] = {}
        # The collector of cycles visits whatever there is from time to time, which would count as growth of one part or another.
        gc.disable()

    @contextmanager
    def __call__(self, what: str) -> Generator[None]:
        """Measure something that is done with all."""
        gc.collect()
        began = time.process_time()
        yield
        self.taken[what] = Taken(time.process_time() - began, alone=False)

    async def one(self, what: str, work: Callable[[int], Awaitable[object]]) -> None:
        """Measure something that is done beside all others, several times; the first time does not count."""
        await work(0)
        gc.collect()
        began = time.process_time()
        for number in range(1, SAMPLES + 1):
            await work(number)
        self.taken[what] = Taken((time.process_time() - began) / SAMPLES, alone=True)


# ---- one run


class Last:
    """The last node of a run, which fails when it is told to."""

    def __init__(self) -> None:
        self.fails = False

        @node
        async def last(ctx: Context, value: object) -> object:
            if self.fails:
                raise RuntimeError("the last node failed")
            return value

        self.node = last


async def _live(
    agent_of: Callable[[Store | None, Any], Agent[Any, Any]],
    task: Any,
    folder: Path,
    took: Stopwatch,
    *,
    turns: int | None = None,
) -> None:
    """Execute a run whose last node fails the first time, and do what can be done with a run."""
    last = Last()
    with took("run, no store"):
        await agent_of(None, last.node).run(task)
    agent = agent_of(MemoryStore(), last.node)
    with took("run, store in memory"):
        await agent.run(task, run_id="a")
    with took("rerun, store in memory"):
        await agent.rerun("a")
    async with SqliteStore(folder / "runs.db", synchronous="NORMAL") as store:
        agent = agent_of(store, last.node)
        last.fails = True
        with took("run"), suppress(NodeFailedError):
            await agent.run(task, run_id="a")
        last.fails = False
        with took("resume"):
            await agent.resume("a")
        with took("read"):
            run = await agent.read("a")
        if turns is not None and run.memory.turns != turns:
            raise AssertionError(f"the run has {run.memory.turns} turns, not {turns}")
        with took("messages"):
            run.memory.to_messages()
        with took("text"):
            run.memory.to_text()
        with took("history"):
            entries = await agent.history("a")
        with took("state in the middle"):
            await agent.state_at("a", entries[len(entries) // 2].number)
        with took("rerun"):
            await agent.rerun("a")
        with took("fork near the end"):
            await agent.fork("a", before="last", run_id="b")
        with took("diff"):
            await agent.diff("a", "b")
        with took("verify"):
            await verify_runs(store)
        with took("export"):
            _ = [record async for record in export_runs(store, run_ids=["a"])]


@node
async def down(ctx: Context, left: int) -> int:
    """Count down."""
    return left - 1


async def steps(size: int, folder: Path, took: Stopwatch) -> None:
    """A loop of so many nodes."""

    def agent_of(store: Store | None, last: Any) -> Agent[Any, Any]:
        loop = Strategy(
            "loop", START >> down, down.when(lambda left: left > 0) >> down, down.otherwise() >> last >> END
        )
        return Agent(loop, store=store, max_nodes=None)

    await _live(agent_of, size, folder, took)


@tool
async def look(room: int) -> str:
    """Look into a room."""
    return "the window is shut, the lamp is off"


@tool(approve=True)
async def pay(amount: int) -> str:
    """Pay."""
    return "paid"


def _tooled(
    reply: Callable[[], Callable[[ModelRequest], Any]], *, window: bool = False
) -> Callable[[Store | None, Any], Agent[Any, Any]]:
    def agent_of(store: Store | None, last: Any) -> Agent[Any, Any]:
        ask, act = llm_request(), execute_tools()
        strategy = Strategy("rounds", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> last >> END)
        model = ScriptedModel(itertools.repeat(reply()))
        agent = Agent(strategy, model=model, tools=[look], store=store, max_turns=None, max_nodes=None)
        if window:
            agent.install(ContextWindow, tokens=1_000)
        return agent

    return agent_of


def _turns(count: int, *, window: bool = False) -> Callable[[], Callable[[ModelRequest], Any]]:
    def reply() -> Callable[[ModelRequest], Any]:
        numbers = itertools.count()

        def answer(request: ModelRequest) -> Any:
            if not request.tools:
                return "so far all windows are shut"
            number = next(numbers) % (count + 1)
            call = ToolCall("look", {"room": number}, id=f"c{number}")
            if window:  # it goes by the tokens of the whole prompt, which the model counts
                return call if number < count else "done"
            message = Message.assistant(calls=[call]) if number < count else Message.assistant("done")
            return ModelResponse(message, Usage(1, 1))

        return answer

    return reply


async def turns(size: int, folder: Path, took: Stopwatch) -> None:
    """So many model turns, each with a call of a tool."""
    await _live(_tooled(_turns(size)), "Look into every room.", folder, took, turns=size + 1)


async def window(size: int, folder: Path, took: Stopwatch) -> None:
    """The same with a window of 1,000 tokens."""
    agent_of = _tooled(_turns(size, window=True), window=True)
    await _live(agent_of, "Look into every room.", folder, took, turns=size + 1)


async def calls(size: int, folder: Path, took: Stopwatch) -> None:
    """So many calls of a tool in one turn."""
    turn = ModelResponse(
        Message.assistant(calls=[ToolCall("look", {"room": room}, id=f"c{room}") for room in range(size)]),
        Usage(1, 1),
    )

    def reply() -> Callable[[ModelRequest], Any]:
        answers = itertools.cycle([turn, "done"])
        return lambda request: next(answers)

    await _live(_tooled(reply), "Look into every room.", folder, took)


@node
async def listed(ctx: Context, count: int) -> list[int]:
    """Return numbers."""
    return list(range(count))


@node
async def same(ctx: Context, number: int) -> int:
    """Return a number."""
    return number


async def items(size: int, folder: Path, took: Stopwatch) -> None:
    """`each` over so many items."""

    def agent_of(store: Store | None, last: Any) -> Agent[Any, Any]:
        return Agent(Strategy("items", START >> listed >> each(same) >> last >> END), store=store, max_nodes=None)

    await _live(agent_of, size, folder, took)


async def ruled(size: int, folder: Path, took: Stopwatch) -> None:
    """A loop and an `each` of nodes that rules name."""

    @node
    async def begin(ctx: Context, count: int) -> int:
        return count

    @node
    async def single(ctx: Context, left: int) -> int:
        return left

    @node
    async def many(ctx: Context, number: int) -> int:
        return number

    def agent_of(store: Store | None, last: Any) -> Agent[Any, Any]:
        strategy = Strategy(
            "ruled",
            START >> begin >> down,
            down.when(lambda left: left > 0) >> single >> down,
            down.otherwise().map(lambda _: list(range(size))) >> each(many) >> last >> END,
            rules=[precedes(begin, single), precedes(begin, many)],
        )
        return Agent(strategy, store=store, max_nodes=None)

    await _live(agent_of, size, folder, took)


async def branches(size: int, folder: Path, took: Stopwatch) -> None:
    """`parallel` with so many branches."""
    nodes = [same.named(f"same{number}") for number in range(size)]
    with took("parallel(…)"):
        fork = parallel(*nodes)
    with took("Strategy(…)"):
        Strategy("branches", START >> fork >> END)

    def agent_of(store: Store | None, last: Any) -> Agent[Any, Any]:
        return Agent(Strategy("branches", START >> fork >> last >> END), store=store, max_nodes=None)

    await _live(agent_of, 1, folder, took)


async def nodes(size: int, folder: Path, took: Stopwatch) -> None:
    """A path of so many nodes."""
    path: Any = START
    for number in range(size):
        path = path >> same.named(f"same{number}")

    def agent_of(store: Store | None, last: Any) -> Agent[Any, Any]:
        return Agent(Strategy("path", path >> last >> END), store=store, max_nodes=None)

    with took("Strategy(…)"):
        strategy = Strategy("path", path >> END)
    with took("Mermaid"):
        strategy.to_mermaid()
    await _live(agent_of, 1, folder, took)


async def effects(size: int, folder: Path, took: Stopwatch) -> None:
    """So many effects of one node: half by `ctx.once`, half by `ctx.gather`."""

    @node
    async def busy(ctx: Context, count: int) -> int:
        async def nothing() -> int:
            return 1

        async def branch(inner: Context, number: int) -> int:
            return await inner.once("it", nothing)

        for number in range(count // 2):
            await ctx.once(f"it {number}", nothing)
        return len(await ctx.gather([partial(branch, number=number) for number in range(count // 2)]))

    def agent_of(store: Store | None, last: Any) -> Agent[Any, Any]:
        return Agent(Strategy("busy", START >> busy >> last >> END), store=store, max_nodes=None)

    await _live(agent_of, size, folder, took)


async def messages(size: int, folder: Path, took: Stopwatch) -> None:
    """So many steps that a node adds, and changes."""

    @node
    async def writing(ctx: Context, count: int) -> int:
        for number in range(count):
            await ctx.add(MessageStep(Message.user(f"message {number}")))
        for step in ctx.memory.run_steps[1:]:
            step.message = Message.user("another")
        return count

    def agent_of(store: Store | None, last: Any) -> Agent[Any, Any]:
        return Agent(Strategy("writing", START >> writing >> last >> END), store=store, max_nodes=None)

    await _live(agent_of, size, folder, took)


async def questions(size: int, folder: Path, took: Stopwatch) -> None:
    """So many calls in one turn that wait for a person's approval."""
    turn = ModelResponse(
        Message.assistant(calls=[ToolCall("pay", {"amount": amount}, id=f"c{amount}") for amount in range(size)]),
        Usage(1, 1),
    )
    async with SqliteStore(folder / "runs.db", synchronous="NORMAL") as store:
        model = ScriptedModel([turn, "paid"])
        agent = Agent(single_run(), model=model, tools=[pay], store=store, max_nodes=None)
        with took("run until it waits"):
            await agent.run("Pay all.", run_id="a")
        with took("read"):
            run = await agent.read("a")
        with took("questions"):
            asked = run.questions
        with took("resume with all answers"):
            await agent.resume("a", answers={question.id: True for question in asked})


async def sub_agents(size: int, folder: Path, took: Stopwatch) -> None:
    """A loop of so many calls of a sub-agent."""
    inner = Agent(Strategy("inner", START >> down >> END), max_nodes=None).as_node()

    def agent_of(store: Store | None, last: Any) -> Agent[Any, Any]:
        loop = Strategy(
            "loop", START >> inner, inner.when(lambda left: left > 0) >> inner, inner.otherwise() >> last >> END
        )
        return Agent(loop, store=store, max_nodes=None)

    await _live(agent_of, size, folder, took)


async def steps_given(size: int, folder: Path, took: Stopwatch) -> None:
    """A run that begins with so many messages as `steps=`."""
    said = (Message.assistant if number % 2 else Message.user for number in range(size))
    given = RunMemory(steps=[MessageStep(message(f"message {number}")) for number, message in enumerate(said)])

    def agent_of(store: Store | None, last: Any) -> Agent[Any, Any]:
        ask = llm_request()
        return Agent(Strategy("chat", START >> ask >> END), model=ScriptedModel(itertools.repeat("yes")), store=store)

    async with SqliteStore(folder / "runs.db", synchronous="NORMAL") as store:
        for name, kept in (("no store", None), ("SQLite", store)):
            agent = agent_of(kept, None)
            with took(f"run, {name}"):
                await agent.run("Is that so?", steps=given)


# ---- many runs


def _short(store: Store) -> Agent[Any, Any]:
    return Agent(Strategy("short", START >> same >> END), store=store)


async def _runs(size: int, store: Store, took: Stopwatch) -> None:
    agent = _short(store)
    with took("run them"):
        for number in range(size):
            await agent.run(number, run_id=f"r{number:06}")
    await took.one("run one more", lambda number: agent.run(number, run_id=f"m{number}"))
    await took.one("read one", lambda number: agent.read(f"r{number % size:06}"))
    with took("list_runs"):
        await list_runs(store)
    with took("run_owners"):
        await run_owners(store)
    with took("verify_runs"):
        await verify_runs(store)
    with took("export_runs"):
        _ = [record async for record in export_runs(store)]
    with took("forget_runs of a quarter"):
        await forget_runs(store, run_ids=[f"r{number:06}" for number in range(size // 4)])
    with took("prune_runs, half stay"):
        await prune_runs(store, keep=size // 2)
    with took("forget_runs"):
        await forget_runs(store)


async def runs(size: int, folder: Path, took: Stopwatch) -> None:
    """So many runs of one owner, in SQLite."""
    async with SqliteStore(folder / "runs.db", synchronous="NORMAL") as store:
        await _runs(size, store, took)


async def sealed_runs(size: int, folder: Path, took: Stopwatch) -> None:
    """The same in a sealed store."""
    async with EncryptedStore(SqliteStore(folder / "runs.db", synchronous="NORMAL"), key=new_key()) as store:
        await _runs(size, store, took)


async def threads(size: int, folder: Path, took: Stopwatch) -> None:
    """So many threads of one message each."""
    async with SqliteStore(folder / "runs.db", synchronous="NORMAL") as store:
        agent = _short(store)
        for number in range(size):
            await agent.run(number, thread=f"t{number}")
        with took("list_threads"):
            await list_threads(store)
        await took.one("one more message", lambda number: agent.run(number, thread=f"t{number % size}"))
        await took.one("one more thread", lambda number: agent.run(number, thread=f"m{number}"))


async def thread(size: int, folder: Path, took: Stopwatch) -> None:
    """So many messages of one thread."""

    def agent_of(store: Store | None) -> Agent[Any, Any]:
        ask = llm_request()
        return Agent(Strategy("chat", START >> ask >> END), model=ScriptedModel(itertools.repeat("yes")), store=store)

    async with SqliteStore(folder / "runs.db", synchronous="NORMAL") as store:
        agent = agent_of(store)
        run_id = ""
        with took("all messages"):
            for _ in range(size):
                run_id = (await agent.run("Is that so?", thread="t")).run_id
        await took.one("one more message", lambda number: agent.run("Is that so?", thread="t"))
        with took("read the last run"):
            await agent.read(run_id)
        with took("prune_runs, a tenth stays"):
            await prune_runs(store, thread="t", keep=size // 10)
        with took("list_threads"):
            await list_threads(store)


# ---- notes and facts


async def notes(size: int, folder: Path, took: Stopwatch) -> None:
    """So many notes in a file."""
    view = Notes(folder / "notes.db")
    texts = [f"item {number} of the list is {number * 7919 % 10_007} and blue" for number in range(size)]
    with took("remember_many"):
        await view.remember_many(texts)
    await took.one("remember one more", lambda number: view.remember(f"zebra {number} giraffe"))
    with took("recall by words that all have"):
        for number in range(SAMPLES):
            await view.recall(f"which is item {number}?")
    with took("list_records, a page"):
        for _ in range(SAMPLES):
            await view.list_records(limit=20)
    record = await view.remember("the key is under the mat")
    await took.one("update", lambda number: view.update(record.id, content=f"the key is under mat {number}"))
    with took("verify"):
        await view.verify()
    with took("info"):
        await view.info()


async def _facts(size: int, provider: Any, took: Stopwatch) -> None:
    scope = Scope.agent("clerk")

    def fact(number: int) -> Fact:
        return SingleFact(Concept(f"concept {number}", "something"), f"value {number}")

    with took("save them"):
        for number in range(size):
            await provider.save(fact(number), EVERYTHING, scope)
    with took("load_all"):
        await provider.load_all(EVERYTHING, scope)
    await took.one("save one more", lambda number: provider.save(fact(size + number), EVERYTHING, scope))
    await took.one("load one", lambda number: provider.load(fact(number).concept, EVERYTHING, scope))
    with took("history of one"):
        await provider.history(fact(0).concept, EVERYTHING, scope)
    with took("export"):
        records = [record async for record in provider.export()]
    with took("import_ again"):
        await provider.import_(records)
    with took("verify"):
        await provider.verify()
    with took("forget one"):
        await provider.forget(concept=fact(0).concept)


async def fact_files(size: int, folder: Path, took: Stopwatch) -> None:
    """So many facts in readable files."""
    async with FileMemoryProvider(folder / "facts") as provider:
        await _facts(size, provider, took)


async def facts(size: int, folder: Path, took: Stopwatch) -> None:
    """The same in SQLite."""
    async with SqliteStore(folder / "facts.db", synchronous="NORMAL") as store:
        await _facts(size, StoreMemoryProvider(store), took)


async def sealed_facts(size: int, folder: Path, took: Stopwatch) -> None:
    """The same in a sealed file."""
    async with EncryptedMemoryProvider(folder / "sealed", key=new_key()) as provider:
        await _facts(size, provider, took)


# ---- values


async def members(size: int, folder: Path, took: Stopwatch) -> None:
    """A value with so many members."""

    @node
    async def made(ctx: Context, count: int) -> tuple[list[int], set[int], dict[str, int]]:
        return [*range(count)], {*range(count)}, {f"key {number}": number for number in range(count)}

    def agent_of(store: Store | None, last: Any) -> Agent[Any, Any]:
        return Agent(Strategy("made", START >> made >> last >> END), store=store)

    await _live(agent_of, size, folder, took)


async def pieces(size: int, folder: Path, took: Stopwatch) -> None:
    """A streamed answer of so many words."""
    strategy = Strategy("chat", START >> llm_request() >> END)
    agent = Agent(strategy, model=ScriptedModel(itertools.repeat("word " * size)))
    with took("stream().text()"):
        async with agent.stream("Say words.") as stream:
            _ = [piece async for piece in stream.text()]


Program = Callable[[int, Path, Stopwatch], Awaitable[None]]

PROGRAMS: dict[str, tuple[Program, int]] = {
    "nodes executed in a loop": (steps, 500),
    "turns with a tool call": (turns, 60),
    "… with a window of 1,000 tokens": (window, 60),
    "tool calls in one turn": (calls, 60),
    "items of `each`": (items, 200),
    "items and nodes that rules name": (ruled, 100),
    "branches of `parallel`": (branches, 150),
    "nodes of a path": (nodes, 150),
    "effects of one node": (effects, 200),
    "steps of one node": (messages, 100),
    "calls of a sub-agent": (sub_agents, 100),
    "calls that wait for approval": (questions, 100),
    "messages as `steps=`": (steps_given, 250),
    "members of a value": (members, 4_000),
    "words of an answer": (pieces, 500),
    "runs": (runs, 250),
    "… sealed": (sealed_runs, 100),
    "threads": (threads, 150),
    "messages of a thread": (thread, 30),
    "notes": (notes, 500),
    "facts, files": (fact_files, 250),
    "facts, SQLite": (facts, 250),
    "facts, sealed": (sealed_facts, 100),
}
"""What there is so many of, with the program and the smaller one of its two numbers."""
