"""Strategies made at random, and a world in which they do things that can be counted."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from anyio.lowlevel import checkpoint
from hypothesis import strategies as st

from graphagent import Agent
from graphagent.errors import NodeFailedError
from graphagent.graph import END, START, Node, Strategy, Tap, each, parallel, race
from graphagent.llm import Approve, Deny, ModelRequest, ModelResponse, ToolCall, ToolCalls, tool
from graphagent.nodes import ask_human, choose, execute_tools, llm_choices, llm_request, update_prompt
from graphagent.run import Context  # noqa: TC001  types of nodes are read when the program runs
from graphagent.testing import ScriptedModel

Part = tuple[Any, ...]
"""A part of a strategy as plain data, so that it can be built again for another life of the program."""


def digest(*parts: object) -> str:
    """Give ten characters that stand for some objects, the same in every process."""
    return blake2b(repr(parts).encode(), digest_size=5).hexdigest()


class Broken(Exception):
    """What nodes raise."""


@dataclass
class World:
    """What is there outside of a run, and outlives the program."""

    done: Counter[str] = field(default_factory=Counter)
    """How often each effect was done in this life."""
    before: Counter[str] = field(default_factory=Counter)
    """How often each effect is recorded since earlier lives."""
    bodies: Counter[str] = field(default_factory=Counter)
    """How often each plain node was executed in this life, under what it gave."""
    lost: set[str] = field(default_factory=set)
    """What may be done or not, since it is done by branches that lose a race."""
    keys: list[tuple[str, str]] = field(default_factory=list)
    """The tool calls that were made, each with its idempotency key."""
    asked: Counter[str] = field(default_factory=Counter)
    """What models were sent in this life, down to the last character."""

    def begin(self, before: Counter[str] | None = None) -> None:
        """Begin another life of the program."""
        self.done, self.before, self.bodies = Counter(), before or Counter(), Counter()
        self.keys, self.asked = [], Counter()

    def do(self, *what: object) -> str:
        """Do something, and give what names it."""
        name = digest(*what)
        self.done[name] += 1
        return f"E:{name}"

    def execute(self, name: str) -> None:
        """Note that a plain node was executed, under what it gave."""
        self.bodies[name] += 1

    def call(self, said: str, key: str) -> None:
        """Note what a tool call did, and its idempotency key."""
        self.keys.append((said[2:], key))

    def ask(self, sent: str) -> None:
        """Note what a model is sent."""
        self.asked[sent] += 1

    def times(self, *what: object) -> int:
        """Tell how often something has been done in all lives."""
        name = digest(*what)
        return self.done[name] + self.before[name]


# ---- the model and the tools


def _shown(request: ModelRequest) -> str:
    """Give what a request says, without the ids of calls."""
    parts = []
    for message in request.messages:
        calls = [(call.name, dict(call.arguments)) for call in message.tool_calls]
        parts.append((message.role, message.text, calls))
    return digest(parts)


def _sent(request: ModelRequest) -> str:
    """Give all that a model sees, with numbers for the ids of calls: of two calls with one id, the later one is given another."""
    ids: dict[str, int] = {}
    sent = repr((request.messages, [each.name for each in request.tools]))
    sent = re.sub(r"seconds=[^,]*, run_id='[^']*'", "", sent)
    return re.sub(r"\b(?:call_)?id='([^']*)'", lambda found: f"id={ids.setdefault(found[1], len(ids))}", sent)


class Oracle:
    """A model whose answer follows from what it is sent, down to the last character."""

    name = "oracle"

    def __init__(self, world: World) -> None:
        self.world = world

    async def respond(self, request: ModelRequest, on_text: Any = None) -> ModelResponse:
        await checkpoint()
        shown = _shown(request)
        self.world.ask(_sent(request))
        said = self.world.do("model", shown)
        kind = int(shown, 16)
        turns = sum(message.role == "tool" for message in request.messages)
        if request.tools and kind % 2 and turns < 9:
            offered, time = request.tools, self.world.times("model", shown)
            called = [offered[(kind >> n) % len(offered)] for n in range(kind % 3 + 1)]
            calls = [
                ToolCall(
                    each.name, {next(iter(each.parameters["properties"])): digest(shown, n)}, f"c{n}-{shown}-{time}"
                )
                for n, each in enumerate(called)
            ]
            return ScriptedModel([ToolCalls(calls, said)]).answer(request)
        return ScriptedModel([said + " and so on" * (kind % 7)]).answer(request)


def tools_of(world: World) -> list[Any]:
    """Give tools that say what they did in a world."""

    async def do(ctx: Context, name: str, of: str) -> str:
        await checkpoint()
        said = world.do(name, of)
        world.call(said, ctx.idempotency_key)
        return said

    @tool
    async def look(ctx: Context, of: str) -> str:
        """Look something up."""
        return await do(ctx, "look", of)

    @tool
    async def fail(ctx: Context, of: str) -> str:
        """Fail, in words that the model sees."""
        raise Broken(await do(ctx, "fail", of))

    @tool(approve=True)
    async def pay(ctx: Context, of: str) -> str:
        """Pay, when someone says so."""
        return await do(ctx, "pay", of)

    @tool(deferred=True)
    async def order(of: str) -> str:
        """Order something that takes days."""
        raise AssertionError("never called")

    @tool(in_flight="ask")
    async def send(ctx: Context, of: str) -> str:
        """Send something that must not be sent twice."""
        return await do(ctx, "send", of)

    return [look, look_twice(do), fail, pay, order, send]


def look_twice(do: Any) -> Any:
    """Give a tool that does two things, each recorded by itself."""

    @tool
    async def twice(ctx: Context, of: str) -> str:
        """Do two things."""
        first = await ctx.once("first", lambda: do(ctx, "first", of))
        second = await ctx.once("second", lambda: do(ctx, "second", of))
        return f"T:{digest(first, second)}"

    return twice


def answer_to(question: Any) -> Any:
    """Answer as the question says."""
    if question.kind == "approval":
        of = str(question.call.arguments["of"])
        return [True, Deny(f"not {of}"), Approve({"of": f"other {of}"}), Deny(f"no {of}")][int(of[-1], 16) % 4]
    if question.kind == "in_flight":
        return True
    if question.kind == "result":
        return {"ordered": question.call.arguments["of"]}
    return f"A:{digest(question.question)}"


# ---- strategies

_LEAVES = ("plain", "long", "work", "tap", "note", "flaky", "error", "model", "human", "typed", "choices", "helper")


def parts(depth: int, *, most: int = 3, agents: bool = False) -> st.SearchStrategy[list[Part]]:
    """Make some parts that stand one behind the other, among them sub-agents if there may be `agents`."""
    leaf = st.tuples(st.sampled_from([each for each in _LEAVES if agents or each != "helper"]), st.integers(0, 5))
    if depth == 0:
        return st.lists(leaf, min_size=1, max_size=most)
    inner = parts(depth - 1, most=2, agents=agents)
    how = st.tuples(st.sampled_from(("keep", "drop")), st.sampled_from((None, 1, 2)))
    part = st.one_of(
        leaf,
        leaf,
        st.tuples(st.just("choice"), inner, inner),
        st.tuples(st.just("loop"), inner),
        st.tuples(st.just("sub"), inner, st.booleans()),
        st.tuples(st.just("caught"), inner),
        *([st.tuples(st.just("agent"), inner)] if agents else []),
        st.tuples(st.just("parallel"), st.lists(inner, min_size=2, max_size=3), how, st.booleans()),
        st.tuples(st.just("each"), inner, st.integers(0, 3), how, st.booleans()),
        st.tuples(st.just("race"), inner, st.sampled_from(("keep", "drop"))),
    )
    return st.lists(part, min_size=1, max_size=most)


class Builder:
    """Builds the strategy of some parts. Built twice, it is the same."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._count = 0
        self._races = 0

    def strategy(self, parts: list[Part], name: str = "wild", *, ending: Any = None) -> Strategy[Any, Any]:
        """Build one."""
        paths: list[Any] = []
        loose: list[Any] = [START]
        for part in parts:
            loose = getattr(self, f"_{part[0]}")(paths, loose, *part[1:])
        if ending is not None:
            loose = _join(paths, loose, ending)
        paths += [path >> END for path in loose]
        paths.sort(key=lambda path: path.elements()[0] is not START)
        return Strategy[Any, Any](name, *paths)

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def _branch(self, parts: list[Part], *, fails: bool = False) -> Node[Any, Any]:
        name = self._name("branch")
        ending = self._failing() if fails else None
        return self.strategy(parts, name, ending=ending)

    def _failing(self) -> Node[Any, Any]:
        async def fail(ctx: Context, value: str) -> str:
            if int(digest(value), 16) % 2:
                raise Broken(digest("broken", value))
            return value

        return _node(fail, self._name("failing"))

    # each takes the paths so far and the loose ends, and gives the loose ends behind it

    def _plain(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        world = self.world

        async def plain(ctx: Context, value: str) -> str:
            if many % 2:
                await checkpoint()
            given = digest(ctx.node, value)
            world.execute(given)
            return given

        return _join(paths, loose, _node(plain, self._name("plain")))

    def _long(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        async def long(ctx: Context, value: str) -> str:
            return digest(ctx.node, value) * 6

        return _join(paths, loose, _node(long, self._name("long")))

    def _typed(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        async def make(ctx: Context, value: str) -> State:
            return State(0, [value])

        async def count(ctx: Context, state: State) -> State:
            state.count += 1  # in place, as people write it
            state.said.append(digest(state.said[-1]))
            return state

        async def read(ctx: Context, state: State) -> str:
            return digest(state.count, state.said)

        first = Node(make, name=self._name("make"), input_type=str, output_type=State)
        again = Node(count, name=self._name("count"), input_type=State, output_type=State)
        last = Node(read, name=self._name("read"), input_type=State, output_type=str)
        paths += [path >> first >> again for path in loose]
        paths += [again.when(lambda state: state.count <= many % 3) >> again, again.otherwise() >> last]
        return [last]

    def _work(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        return _join(paths, loose, _node(self._working(many % 3 + 1), self._name("work")))

    def _working(self, times: int) -> Any:
        world = self.world

        async def work(ctx: Context, value: str) -> str:
            found = []
            for number in range(times):

                async def do(number: int = number) -> str:
                    await checkpoint()
                    return world.do(ctx.node, value, number)

                found.append(await ctx.once(f"do:{number}", do))
            return digest(found)

        return work

    def _flaky(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        world = self.world

        async def flaky(ctx: Context, value: str) -> str:
            async def do() -> str:
                return world.do(ctx.node, value, ctx.attempt)

            done = await ctx.once("do", do)
            if ctx.attempt <= many % 3:
                raise Broken(value)
            return digest(done)

        return _join(paths, loose, _node(flaky, self._name("flaky")).retry(attempts=3, wait=0))

    def _tap(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        world = self.world

        async def tap(ctx: Context, value: Any) -> None:
            async def do() -> str:
                return world.do(ctx.node, value)

            if many % 2:
                await ctx.once("do", do)

        made = Tap(tap, name=self._name("tap"))
        return [path >> made for path in loose]

    def _note(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        made = update_prompt(*(f"note {n}" for n in range(many % 2 + 1)), name=self._name("note"))
        return [path >> made for path in loose]

    def _error(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        async def failing(ctx: Context, value: str) -> str:
            raise Broken(digest(ctx.node, value))

        async def handle(ctx: Context, error: Broken) -> str:
            return digest(type(error).__name__, str(error))

        first = _node(failing, self._name("error"))
        handler = Node(handle, name=self._name("handle"), input_type=Broken, output_type=str)
        _join(paths, loose, first)
        if many % 2:
            paths.append(first.on_error(Broken) >> handler)
            return [handler, first]
        return [first.on_error(Broken).map(_said), first]

    def _model(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        if many == 0:
            return _join(paths, loose, llm_request(tools=False, name=self._name("ask")))
        ask, act = llm_request(name=self._name("ask")), execute_tools(name=self._name("act"), limit=many)
        _join(paths, loose, ask)
        paths.append(ask.on(ToolCalls) >> act >> ask)
        return [ask.on(str)]

    def _helper(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        """Have a model call an agent, which has tools and asks questions, several times at once."""
        asking = [("human", 0)] if many % 2 else [("work", many)]
        helper = self._called(asking, self._name("helper"))
        ask, act = llm_request(name=self._name("ask")), execute_tools(name=self._name("act"), limit=many % 3 + 1)
        asks = Strategy[Any, Any](
            self._name("asks"), START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END
        )  # fmt: skip
        return _join(paths, loose, asks.using(tools=[helper]))

    def _agent(self, paths: list[Any], loose: list[Any], inner: list[Part]) -> list[Any]:
        called = self._called(inner, self._name("agent"))
        if len(inner) % 2:
            part = called.as_node()
            _join(paths, loose, part)
            return [part.otherwise().map(digest)]

        async def call(ctx: Context, value: str) -> str:
            return digest(await ctx.run_agent(called, value))

        return _join(paths, loose, _node(call, self._name("calling")))

    def _called(self, inner: list[Part], name: str) -> Agent[Any, Any]:
        return Agent(self.strategy(inner, name), tools=tools_of(self.world), name=name, description="Helps.")

    def _choices(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        def pick(answers: list[str]) -> int:
            return int(digest(answers), 16) % len(answers)

        ask = llm_choices(many % 3 + 1, limit=many % 2 + 1, name=self._name("ask"))
        return _join(paths, loose, ask, choose(pick, name=self._name("choose")))

    def _human(self, paths: list[Any], loose: list[Any], many: int) -> list[Any]:
        async def ask(ctx: Context, value: str) -> str:
            return await ctx.ask(f"What of {value}?", str, about=value)

        if self._races:  # which take no node that is known to ask
            return _join(paths, loose, _node(ask, self._name("human")))
        return _join(paths, loose, ask_human(lambda value: f"What of {value}?", str, name=self._name("human")))

    def _choice(self, paths: list[Any], loose: list[Any], a: list[Part], b: list[Part]) -> list[Any]:
        async def choose(ctx: Context, value: str) -> str:
            return digest(ctx.node, value)

        node = _node(choose, self._name("choose"))
        _join(paths, loose, node)
        ends = []
        for head, inner in ((node.when(lambda value: value < "8").map(_changed), a), (node.otherwise(), b)):
            part = self._branch(inner)
            paths.append(head >> part)
            ends.append(part)
        return ends

    def _loop(self, paths: list[Any], loose: list[Any], inner: list[Part]) -> list[Any]:
        async def begin(ctx: Context, value: str) -> str:
            return f"{digest(value)}.0"

        async def turn(ctx: Context, value: str) -> str:
            return f"{digest(value)}.{int(value.partition('.')[2] or 0) + 1}"

        first, again = _node(begin, self._name("begin")), _node(turn, self._name("turn"))
        body = self.strategy([("counted", inner)], self._name("body"))
        _join(paths, loose, first)
        paths += [first >> again, again.when(lambda value: int(value.partition(".")[2]) < 3) >> body >> again]
        return [again.otherwise()]

    def _counted(self, paths: list[Any], loose: list[Any], inner: list[Part]) -> list[Any]:
        """Do the parts, and hand on the count of the loop around."""

        async def split(ctx: Context, value: str) -> tuple[str, ...]:
            return digest(value), value.partition(".")[2]

        async def first(ctx: Context, value: Any) -> str:
            return value[0]

        async def second(ctx: Context, value: Any) -> str:
            return value[1]

        async def merge(ctx: Context, value: Any) -> str:
            return f"{digest(value[0])}.{value[1]}"

        apart = Node(split, name=self._name("split"), input_type=str, output_type=tuple[str, str])
        one = Node(first, name=self._name("first"), input_type=tuple[str, str], output_type=str)
        two = Node(second, name=self._name("second"), input_type=tuple[str, str], output_type=str)
        does = Strategy[Any, Any](self._name("does"), START >> one >> self._branch(inner) >> END)
        both = parallel(does, two, transcript="keep", name=self._name("both"))
        join = Node(merge, name=self._name("merge"), input_type=tuple[str, str], output_type=str)
        paths += [path >> apart >> both >> join for path in loose]
        return [join]

    def _sub(self, paths: list[Any], loose: list[Any], inner: list[Part], again: bool) -> list[Any]:
        world = self.world

        async def fate(ctx: Context, value: str) -> str:
            async def do() -> int:
                world.do(ctx.node, value)
                return f"E:{digest(ctx.node, value)} {world.times(ctx.node, value)}"

            if again and (await ctx.once("fate", do)).endswith(" 1"):
                raise Broken(value)
            return digest(value)

        part = self.strategy(inner, self._name("sub"), ending=_node(fate, self._name("fate")))
        return _join(paths, loose, part.retry(attempts=3, wait=0) if again else part)

    def _caught(self, paths: list[Any], loose: list[Any], inner: list[Part]) -> list[Any]:
        part = self._branch(inner, fails=True)
        _join(paths, loose, part)
        return [part.on_error(Broken).map(_said), part]

    def _parallel(
        self, paths: list[Any], loose: list[Any], inner: list[list[Part]], how: Any, collect: bool
    ) -> list[Any]:
        transcript, limit = how
        fork = parallel(
            *(self._branch(branch, fails=collect) for branch in inner),
            transcript=transcript, limit=limit, failures="collect" if collect else "cancel", name=self._name("parallel"),
        )  # fmt: skip
        return self._joined(paths, loose, fork)

    def _each(
        self, paths: list[Any], loose: list[Any], inner: list[Part], count: int, how: Any, collect: bool
    ) -> list[Any]:
        transcript, limit = how

        async def split(ctx: Context, value: str) -> list[str]:
            return [digest(value, n) * (1 + 4 * (n % 2)) for n in range(count)]

        apart = Node(split, name=self._name("items"), input_type=str, output_type=list[str])
        fork = each(
            self._branch(inner, fails=collect),
            transcript=transcript, limit=limit, failures="collect" if collect else "cancel", name=self._name("each"),
        )  # fmt: skip
        paths += [path >> apart for path in loose]
        return self._joined(paths, [apart], fork)

    def _race(self, paths: list[Any], loose: list[Any], inner: list[Part], transcript: Any) -> list[Any]:
        world = self.world

        async def lose(ctx: Context, value: str) -> str:
            async def do() -> str:
                world.lost.add(digest("lost", ctx.node, value))
                return world.do("lost", ctx.node, value)

            if await ctx.once("do", do) > "E:8":
                for _ in range(50):  # the other branch is done meanwhile, or waits for a person
                    await checkpoint()
            raise Broken(value)

        loser = _node(lose, self._name("lost"))
        self._races += 1
        fork = race(self._branch(inner), loser, transcript=transcript, name=self._name("race"))
        self._races -= 1
        return _join(paths, loose, fork)

    def _joined(self, paths: list[Any], loose: list[Any], fork: Node[Any, Any]) -> list[Any]:
        async def join(ctx: Context, value: Any) -> str:
            return digest([_plain_of(each) for each in value])

        return _join(paths, [*loose], fork, Node(join, name=self._name("join"), input_type=Any, output_type=str))


@dataclass
class State:
    """A value that is changed in place."""

    count: int
    said: list[str]


def _node(function: Any, name: str) -> Node[Any, Any]:
    return Node(function, name=name, input_type=str, output_type=str)


def _join(paths: list[Any], loose: list[Any], *nodes: Any) -> list[Any]:
    """Have loose ends lead to nodes that stand one behind the other, the last of which is the loose end."""
    first, *rest = nodes
    for path in loose:
        joined = path >> first
        for node in rest:
            joined = joined >> node
        paths.append(joined)
    return [nodes[-1]]


def _said(error: Exception) -> str:
    return digest(type(error).__name__, str(error))


def _changed(value: str) -> str:
    return digest("changed", value)


def _plain_of(value: Any) -> str:
    return f"{value.node}: {value}" if isinstance(value, NodeFailedError) else repr(value)
