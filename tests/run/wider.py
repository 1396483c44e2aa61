"""Wilder strategies than those of `worlds.py`: nodes that talk before they are stopped, edits, budgets, summaries, sub-agents.

And what happens to their runs: they are cancelled, paused, edited and answered at random places; their store breaks, and they are
resumed by this process or by another one.
"""

from __future__ import annotations

from typing import Any

from anyio.lowlevel import checkpoint
from hypothesis import strategies as st

from graphagent import END, START, Agent
from graphagent.graph import Node, Strategy, Tap
from graphagent.llm import Message, ModelRequest, ModelResponse, PricedModel, Prices, ToolCall, ToolCalls
from graphagent.memory import MessageStep, WholeHistory
from graphagent.nodes import compress_history, execute_tools, llm_request
from graphagent.run import Context, Question
from graphagent.testing import ScriptedModel
from tests.run.worlds import (
    _LEAVES,
    Broken,
    Builder,
    Oracle,
    Part,
    World,
    _join,
    _node,
    _shown,
    digest,
    tools_of,
)

LEAVES = (*_LEAVES, "says", "says", "edits", "compress", "model", "asks")


def wide_parts(depth: int, *, most: int = 3) -> st.SearchStrategy[list[Part]]:
    """Make some parts that stand one behind the other."""
    leaf = st.tuples(st.sampled_from(LEAVES), st.integers(0, 5))
    if depth == 0:
        return st.lists(leaf, min_size=1, max_size=most)
    inner = wide_parts(depth - 1, most=2)
    how = st.tuples(st.sampled_from(("keep", "drop")), st.sampled_from((None, 1, 2)))
    part = st.one_of(
        leaf,
        leaf,
        leaf,
        st.tuples(st.just("choice"), inner, inner),
        st.tuples(st.just("loop"), inner),
        st.tuples(st.just("sub"), inner, st.booleans()),
        st.tuples(st.just("budget"), inner),
        st.tuples(st.just("caught"), inner),
        st.tuples(st.just("parallel"), st.lists(inner, min_size=2, max_size=3), how, st.booleans()),
        st.tuples(st.just("each"), inner, st.integers(0, 3), how, st.booleans()),
        st.tuples(st.just("race"), inner, st.sampled_from(("keep", "drop"))),
    )
    return st.lists(part, min_size=1, max_size=most)


class WideBuilder(Builder):
    """Builds the strategy of some parts, the ones of this file included."""

    def _says(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        world = self.world

        async def says(ctx: Context, value: str) -> str:
            async def do() -> str:
                await checkpoint()
                return world.do(ctx.node, value, ctx.attempt)

            await ctx.add(MessageStep(Message.user(f"first {digest(value)} {ctx.attempt}")))
            if many == 1:
                await ctx.add(MessageStep(Message.user("this lasts")), lasting=True)
            done = await ctx.once("do", do)
            await ctx.add(MessageStep(Message.user(f"then {done}")))
            if many == 2:
                ctx.memory.lower("untrusted")
            if many > 3 and ctx.attempt == 1:
                raise Broken(value)
            return digest(done)

        node = _node(says, self._name("says"))
        return _join(paths, loose, node.retry(attempts=2, wait=0) if many > 3 else node)

    def _asks(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        world = self.world

        async def asks(ctx: Context, value: str) -> str:
            async def do() -> str:
                return world.do(ctx.node, value)

            await ctx.add(MessageStep(Message.user(f"before {digest(value)}")))
            await ctx.once("do", do)
            answer = await ctx.ask(Question(ctx.execution, f"What of {value}?", ctx.node, about=value))
            await ctx.add(MessageStep(Message.user(f"after {answer}")))
            return digest(answer)

        return _join(paths, loose, _node(asks, self._name("asks")))

    def _slips(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        world = self.world

        async def slips(ctx: Context, value: str) -> str:
            async def do() -> str:
                return world.do(ctx.node, value)

            await ctx.add(MessageStep(Message.user(f"slip {many}")))
            await ctx.once("do", do)
            raise Broken(digest(value))

        node = _node(slips, self._name("slips"))
        _join(paths, loose, node)
        return [node.on_error(Broken).map(str), node]

    def _edits(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        async def edits(ctx: Context, value: Any) -> None:
            await checkpoint()
            edit(ctx.memory, many)

        made = Tap(edits, name=self._name("edits"))
        return [path >> made for path in loose]

    def once_more(self) -> Node[Any, Any]:
        """Return a node that fails the first time, so that the whole strategy is executed again."""
        world = self.world

        async def once_more(ctx: Context, value: str) -> str:
            async def do() -> str:
                world.do(ctx.node)
                return f"E:{digest(ctx.node)} {world.times(ctx.node)}"

            if (await ctx.once("do", do)).endswith(" 1"):
                raise Broken(value)
            return value

        return _node(once_more, "once_more")

    def _compress(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        made = compress_history(WholeHistory(keep=many % 2), name=self._name("compress"))
        return [path >> made for path in loose]

    def _budget(self, paths: list[Any], loose: list[Any], inner: list[Part]) -> list[Any]:
        part = self.strategy(inner, self._name("budget")).using(max_nodes=4000, max_turns=400, max_tokens=10**7)
        return _join(paths, loose, part)


def edit(memory: Any, how: int) -> None:
    """Change a transcript in one of six ways."""
    steps = memory.steps
    said = [place for place, step in enumerate(steps) if isinstance(step, MessageStep)]
    if how == 0 or not said:
        steps.insert(1, MessageStep(Message.user(f"inserted {len(steps)}")))
    elif how == 1:
        steps[said[0]].message = Message.user(f"changed {len(steps)}")
    elif how == 2:
        del steps[said[-1]]
    elif how == 3:
        steps[said[-1] :] = [MessageStep(Message.user("one")), *steps[said[-1] :]]
    elif how == 4:
        steps[said[0]], steps[said[-1]] = steps[said[-1]], steps[said[0]]
    else:
        steps.append(MessageStep(Message.user(f"appended {len(steps)}")))


class WideOracle(Oracle):
    """A model whose answer follows from what it is sent, and that calls agents as well."""

    async def respond(self, request: ModelRequest, on_text: Any = None) -> ModelResponse:
        """Answer a request."""
        await checkpoint()
        shown = _shown(request)
        said = self.world.do("model", shown)
        kind = int(shown, 16)
        turns = sum(message.role == "tool" for message in request.messages)
        if request.tools and kind % 3 and turns < 6:
            names = [each.name for each in request.tools]
            calls = []
            for n in range(kind % 3 + 1):
                name = names[(kind >> n) % len(names)]
                what = {"task": digest(shown, n)} if name == "helper" else {"of": digest(shown, n)}
                calls.append(ToolCall(name, what, f"c{n}-{shown}"))
            return ScriptedModel([ToolCalls(calls, said)]).answer(request)
        return ScriptedModel([said + " and so on" * (kind % 7)]).answer(request)


def helper(world: World) -> Agent[Any, Any]:
    """Return an agent that other agents call: it uses tools that wait for people, too."""
    ask, act = llm_request(name="ask"), execute_tools(name="act", limit=2)
    strategy = Strategy[Any, Any]("help", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
    model = PricedModel(WideOracle(world), Prices("1.5", "7"))
    tools = [each for each in tools_of(world) if each.name in ("look", "pay", "order")]
    return Agent(strategy, model=model, tools=tools, name="helper", description="Helps.", max_turns=500)


class WideLife:
    """One definition of an agent."""

    def __init__(self, built: list[Part], *, again: bool = False) -> None:
        self.world = World()
        builder = WideBuilder(self.world)
        ending = builder.once_more() if again else None
        self.strategy = builder.strategy(built, ending=ending)
        if again:
            self.strategy = self.strategy.retry(attempts=3, wait=0)
        self.tools = [*tools_of(self.world), helper(self.world)]

    def agent(self, store: Any) -> Agent[Any, Any]:
        """Return a new agent."""
        return Agent(
            self.strategy, model=PricedModel(WideOracle(self.world), Prices("1.5", "7")), tools=self.tools, store=store,
            system_prompt="Be right.", max_nodes=5000, max_turns=500,
        )  # fmt: skip
