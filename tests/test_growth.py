"""What is done with many calls, turns or runs takes so many lines of code for each of them, and none for each pair of them."""

from __future__ import annotations

import itertools
import sys
from contextlib import contextmanager

import graphagent
from graphagent import END, START, Agent, Context, Strategy, each, node, tool
from graphagent.graph import precedes
from graphagent.history import forget_runs, prune_runs
from graphagent.llm import Message, ModelResponse, ToolCall, Usage
from graphagent.memory import ContextWindow
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

INSIDE = graphagent.__file__.removesuffix("__init__.py")


class Store(MemoryStore):
    """A store of runs that are not read again after each commit, as those of other tests are."""

    compared = False


class Lines:
    """Counts the lines of the library that are executed, and each iteration of a comprehension as another one."""

    def __init__(self):
        self.counted = {}

    @contextmanager
    def __call__(self, what):
        self.counted[what] = 0

        def line(frame, event, argument):
            self.counted[what] += event == "line"
            return line

        before = sys.gettrace()
        sys.settrace(lambda frame, *_: line if frame.f_code.co_filename.startswith(INSIDE) else None)
        try:
            yield
        finally:
            sys.settrace(before)


async def curves(program, *, number=24):
    """Give how many lines there are for each pair, by what is done: half of the second difference of three numbers."""
    counted = []
    for count in (3, number, 2 * number, 3 * number):  # the first time, modules are imported
        lines = Lines()
        await program(count, lines)
        counted.append(lines.counted)
    _, few, more, most = counted
    return {what: (most[what] - 2 * more[what] + few[what]) / (2 * number**2) for what in few}


def steep(found):
    return {what: round(curve, 2) for what, curve in found.items() if curve > 0.2}


@tool
async def look(room: int) -> str:
    """Look into a room."""
    return "fine"


@node
async def same(ctx: Context, value: int) -> int:
    return value


@node
async def listed(ctx: Context, count: int) -> list[int]:
    return list(range(count))


async def test_many_calls_of_one_turn():
    """Each is executed, read, compared and executed again without a look at the others."""

    async def program(count, lines):
        calls = [ToolCall("look", {"room": room}, id=f"c{room}") for room in range(count)]
        turn = ModelResponse(Message.assistant(calls=calls), Usage(1, 1))
        agent = Agent(single_run(), model=ScriptedModel([turn, "done"]), tools=[look], store=Store(), max_nodes=None)
        with lines("run"):
            await agent.run("Look.", run_id="a")
        with lines("read"):
            await agent.read("a")
        with lines("rerun"):
            await agent.rerun("a", new_id="b")
        with lines("diff"):
            await agent.diff("a", "b")

    assert steep(await curves(program)) == {}


async def test_many_turns_with_a_window():
    """A turn looks at what the model sees, and not at the steps before a summary."""

    async def program(count, lines):
        numbers = itertools.count()

        def reply(request):
            if not request.tools:
                return "so far all is fine"
            number = next(numbers)
            return ToolCall("look", {"room": 1}, id=f"c{number}") if number < count else "done"

        model = ScriptedModel(itertools.repeat(reply))
        agent = Agent(single_run(), model=model, tools=[look], max_turns=None, max_nodes=None)
        agent.install(ContextWindow, tokens=150)
        with lines("run"):
            result = await agent.run("Look.")
        assert count < 20 or len(result.memory.visible) < count

    assert steep(await curves(program, number=100)) == {}


async def test_many_items_that_a_rule_names():
    """What was executed of a declaration is known without a look at all of that."""

    async def program(count, lines):
        many = same.named("many")
        strategy = Strategy("s", START >> listed >> each(many) >> END, rules=[precedes(listed, many)])
        agent = Agent(strategy, store=Store(), max_nodes=None)
        with lines("run"):
            await agent.run(count, run_id="a")
        with lines("read"):
            await agent.read("a")
        with lines("state"):
            await agent.state_at("a", len(await agent.history("a")) // 2)

    assert steep(await curves(program)) == {}


async def test_many_runs():
    """Those that are removed are found without a look at all others for each."""

    async def program(count, lines):
        store = Store()
        agent = Agent(Strategy("s", START >> same >> END), store=store)
        for number in range(count):
            await agent.run(number, run_id=f"r{number}")
        with lines("forget_runs"):
            await forget_runs(store, run_ids=[f"r{number}" for number in range(count // 3)])
        with lines("prune_runs"):
            await prune_runs(store, keep=count // 3)

    assert steep(await curves(program)) == {}
