"""Strategies are declared with `>>`, outlets and policies; wrong uses say at once what is wrong."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from inline_snapshot import snapshot

from graphagent import Agent
from graphagent.errors import StrategyError
from graphagent.graph import END, START, Node, Retry, Strategy, Tap, _types, each, node, parallel, race, tap
from graphagent.graph._policies import Timeout
from graphagent_strategies import single_run
from tests.counting import calls
from tests.graph.parts import nothing, step, steps, taps


def said(action) -> str:
    """Do what is wrong; give the kind of error and what it says."""
    with pytest.raises((TypeError, ValueError)) as caught:
        action()
    return f"{type(caught.value).__name__}: {caught.value}"


def edges(strategy: Strategy[Any, Any]) -> list[tuple[str, str, str]]:
    return [(edge.source.name, edge.label, edge.target.name) for edge in strategy.edges]


async def test_a_node_is_a_named_function_with_types():
    """A decorated function has a name, its types, and still does what it did."""

    @node
    async def length(ctx: Any, text: str) -> int:
        return len(text)

    @node(name="size")
    async def other(ctx: Any, text: str, more: int = 1) -> int:
        return len(text) + more

    assert repr(length) == "<node 'length': str -> int>"
    assert repr(other) == "<node 'size': str -> int>"
    assert await length.function(None, "abc") == 3
    assert await other.function(None, "abc") == 4


def test_a_tap_knows_what_it_takes():
    """A decorated tap has a name and the type of its input."""

    @tap
    async def log(ctx: Any, text: str) -> None: ...

    @tap(name="loud")
    async def shout(ctx: Any, text: str) -> None: ...

    assert (log.name, log.input_type, repr(shout), shout.named("again").name) == ("log", str, "<tap 'loud'>", "again")


def test_wrong_nodes_are_refused():
    """A node is async and takes a context and an input; its name can stand in a path."""

    def plain(ctx: Any, text: str) -> str:
        return text

    async def lonely(ctx: Any) -> None: ...

    async def keyword(ctx: Any, text: str, *, more: int) -> None: ...

    async def parts(ctx: Any, text: str) -> Any:
        yield text

    async def method(self: Any, ctx: Any, text: str) -> str:
        return text

    async def bare_method(self: Any, text: str) -> str:
        return text

    wrong: Any = node
    assert [
        said(lambda: wrong("draft")),
        said(lambda: node(parts)),
        said(lambda: tap(parts)),
        said(lambda: wrong(method)),
        said(lambda: node(bare_method)),
        said(lambda: wrong(staticmethod(plain))),
        said(lambda: wrong(Strategy)),
        said(lambda: wrong(5)),
        said(lambda: wrong(lambda ctx, text: text)),
        said(lambda: node(plain)),
        said(lambda: tap(plain)),
        said(lambda: node(lonely)),
        said(lambda: node(keyword)),
        said(lambda: step("")),
        said(lambda: step("a/b")),
        said(lambda: step("a").named("a\nb")),
        said(lambda: taps("a").named("a/b")),
    ] == snapshot(
        [
            "TypeError: @node('draft') takes no name by position; write @node(name='draft')",
            "TypeError: @node 'parts' is a generator; remove the yield: return the whole output, such as a list. For what others see meanwhile: ctx.emit(…)",
            "TypeError: @tap 'parts' is a generator; remove the yield: a tap passes on its input. For what others see meanwhile: ctx.emit(…)",
            "TypeError: @node 'method' is a method, and a node has no object to pass as 'self'; make it a function outside of the class, or a node of the method of an object: node(thing.method)",
            "TypeError: @node 'bare_method' is a method, and a node has no object to pass as 'self'; make it a function outside of the class, or a node of the method of an object: node(thing.bare_method)",
            "TypeError: @node takes a function; put @staticmethod above @node, not below",
            "TypeError: @node takes an async function, not the class Strategy",
            "TypeError: @node takes an async function, not an int",
            "TypeError: @node takes an async function, and a lambda cannot be one; write `async def name(ctx: Context, …)`",
            "TypeError: @node 'plain' must be async: write `async def plain(ctx: Context, …)`",
            "TypeError: @tap 'plain' must be async: write `async def plain(ctx: Context, …)`",
            "TypeError: @node 'lonely' takes a context and an input: write `async def lonely(ctx: Context, …)`",
            "TypeError: @node 'keyword' takes a context and an input: write `async def keyword(ctx: Context, …)`",
            "ValueError: a node cannot be named '': a name has at least one character, no '/' and no control characters",
            "ValueError: a node cannot be named 'a/b': a name has at least one character, no '/' and no control characters",
            "ValueError: a node cannot be named 'a\\nb': a name has at least one character, no '/' and no control characters",
            "ValueError: a node cannot be named 'a/b': a name has at least one character, no '/' and no control characters",
        ]
    )


def test_wrong_paths_are_refused():
    """What cannot stand in a path, or not there, says so where it is written."""
    a, b = steps("a b")
    assert [
        said(lambda: a >> nothing),
        said(lambda: a.on(str) >> 5),
        said(lambda: START >> "a"),
        said(lambda: START >> START),
        said(lambda: a >> b.on(str)),
        said(lambda: a >> b.when(bool).map(str)),
        said(lambda: taps("log") >> a),
        said(lambda: taps("log").map(str)),
        said(lambda: taps("log").on(str, int)),
        said(lambda: START >> END >> a),
        said(lambda: a >> END >> b),
        said(lambda: END >> a),
        said(lambda: START >> single_run >> END),
        said(lambda: single_run >> a),
        said(lambda: "a" >> START),
        said(lambda: a >> (b >> END)),
        said(lambda: START >> [a, b]),
        said(lambda: START >> (lambda value: value)),
        said(lambda: a >> Agent(Strategy("x", START >> b >> END))),
        said(lambda: a >> None),
    ] == snapshot(
        [
            "TypeError: after 'a' comes a node, a tap, a strategy or END, not the function nothing; put @node on it",
            "TypeError: after 'a' comes a node, a tap, a strategy or END, not an int; see @node",
            "TypeError: after 'START' comes a node, a tap, a strategy or END, not a name; write the node itself",
            "TypeError: after 'START' comes a node, a tap, a strategy or END, not START, which only begins a path",
            "TypeError: the outlet ('b', on str) belongs at the head of a path; end this one with b, and give Strategy one more that begins with the outlet",
            "TypeError: the outlet ('b', when bool, map str) belongs at the head of a path; end this one with b, and give Strategy one more that begins with the outlet",
            "TypeError: a path cannot begin at the tap 'log'; begin it at START, a node or an outlet",
            "TypeError: only .on_error(…) leaves the tap 'log': it passes its input on to one place. Write .map(…), .on(…) and .when(…) before it, or after another node, such as passthrough(str)",
            "TypeError: only .on_error(…) leaves the tap 'log': it passes its input on to one place. Write .map(…), .on(…) and .when(…) before it, or after another node, such as passthrough(str)",
            "TypeError: a path ends at END, and nothing comes after it; for another path, give Strategy one more argument",
            "TypeError: a path ends at END, and nothing comes after it; for another path, give Strategy one more argument",
            "TypeError: a path ends at END, and nothing comes after it; for another path, give Strategy one more argument",
            "TypeError: after 'START' comes a node, a tap, a strategy or END, not the function single_run; call it if it makes a node: single_run(…), or make it async and put @node on it",
            "TypeError: a path begins at START, a node or an outlet, not at the function single_run; call it if it makes a node: single_run(…), or make it async and put @node on it",
            "TypeError: a path begins at START, a node or an outlet, not at a name; write the node itself",
            "TypeError: after 'a' comes a node, a tap, a strategy or END, not another path; write its nodes without parentheses, or give Strategy both paths",
            "TypeError: after 'START' comes a node, a tap, a strategy or END, not a list; nodes that are executed at the same time are parallel(a, b)",
            "TypeError: after 'START' comes a node, a tap, a strategy or END, not a lambda; to change a value, write .map(…) after the node before",
            "TypeError: after 'a' comes a node, a tap, a strategy or END, not an Agent; write agent.as_node(), or its strategy as a part of this one",
            "TypeError: after 'a' comes a node, a tap, a strategy or END, not None; see @node",
        ]
    )


def test_wrong_arguments_of_a_strategy_are_refused():
    """The first path begins at START, no other does, and every path leads somewhere."""
    a, b = steps("a b")
    assert [
        said(lambda: Strategy("x", a >> END)),
        said(lambda: Strategy("x", START >> a, START >> b)),
        said(lambda: Strategy("x", "a")),
        said(lambda: Strategy("x", START)),
        said(lambda: Strategy("x", START >> a >> END, b)),
        said(lambda: Strategy("x", START >> a >> END, a.on(str))),
        said(lambda: Strategy("x", START >> a >> END, taps("log"))),
        said(lambda: Strategy("x/y", START >> a >> END)),
    ] == snapshot(
        [
            "TypeError: strategy 'x', path 1: begin the first path at START",
            "TypeError: strategy 'x', path 2: only the first path begins at START",
            "TypeError: strategy 'x', path 1: a path is nodes joined with >>, not a name; write the node itself",
            "TypeError: strategy 'x', path 1: a path is nodes joined with >>, not START alone",
            "TypeError: strategy 'x', path 2: it leads nowhere; continue it with >>, up to END",
            "TypeError: strategy 'x', path 2: it leads nowhere; continue it with >>, up to END",
            "TypeError: strategy 'x', path 2: a path is nodes joined with >>, not a Tap; see @node",
            "ValueError: a node cannot be named 'x/y': a name has at least one character, no '/' and no control characters",
        ]
    )


def test_wrong_outlets_are_refused():
    """Tests and changes are plain functions of the right arguments; types can be tested; errors are errors."""
    a = step("a")

    async def later(value: Any) -> bool:
        return True

    assert [
        said(lambda: a.on()),
        said(lambda: a.on(Any)),
        said(lambda: a.on(str, 5)),
        said(lambda: a.when(lambda: True)),
        said(lambda: a.when(lambda ctx, value, more: True)),
        said(lambda: a.when(later)),
        said(lambda: a.when(True)),
        said(lambda: a.map(later)),
        said(lambda: a.map(lambda ctx, value: value)),
        said(lambda: a.map("upper")),
        said(lambda: a.on_error("ValueError")),
        said(lambda: a.on_error(KeyboardInterrupt)),
    ] == snapshot(
        [
            "TypeError: .on() of node 'a' takes a type or a value; for all other outputs use .otherwise()",
            "TypeError: .on() takes a class or a value, not Any; use .when(test) for anything else",
            "TypeError: .on() takes a class or a value, not 5; use .when(test) for anything else",
            "TypeError: .when() of node 'a' takes a plain, not async, function of (output) or of (ctx, output)",
            "TypeError: .when() of node 'a' takes a plain, not async, function of (output) or of (ctx, output)",
            "TypeError: .when() of node 'a' takes a plain, not async, function of (output) or of (ctx, output)",
            "TypeError: .when() of node 'a' takes a plain, not async, function of (output) or of (ctx, output)",
            "TypeError: .map() of node 'a' takes a plain, not async, function of (output)",
            "TypeError: .map() of node 'a' takes a plain, not async, function of (output)",
            "TypeError: .map() of node 'a' takes a plain, not async, function of (output)",
            "TypeError: .on_error() of node 'a' takes a subclass of Exception, not 'ValueError'",
            "TypeError: .on_error() of node 'a' takes a subclass of Exception, not <class 'KeyboardInterrupt'>",
        ]
    )


def test_wrong_policies_are_refused():
    """Numbers that make no sense are refused when they are written."""
    a = step("a")
    assert [
        said(lambda: a.retry(attempts=0)),
        said(lambda: a.retry(attempts=2, wait=-1)),
        said(lambda: a.retry(attempts=2, factor=float("nan"))),
        said(lambda: a.retry(attempts=2, max_wait=-0.1)),
        said(lambda: a.retry(attempts=2, errors="ValueError")),
        said(lambda: a.retry(attempts=2, errors=(ValueError, SystemExit))),
        said(lambda: a.timeout(0)),
        said(lambda: a.timeout(float("nan"))),
    ] == snapshot(
        [
            "ValueError: retry(attempts=0) must allow at least one attempt",
            "ValueError: retry(wait=-1) must be 0 or more",
            "ValueError: retry(factor=nan) must be 0 or more",
            "ValueError: retry(max_wait=-0.1) must be 0 or more",
            "TypeError: retry(errors=) takes a subclass of Exception, not 'ValueError'",
            "TypeError: retry(errors=) takes a subclass of Exception, not <class 'SystemExit'>",
            "ValueError: timeout(0) must be more than 0 seconds",
            "ValueError: timeout(nan) must be more than 0 seconds",
        ]
    )


def test_wrong_forks_are_refused():
    """A fork has branches, all nodes, that can take the same input; its limit lets something run."""
    a, text, number = step("a"), step("text", str), step("number", int)
    assert [
        said(lambda: parallel()),
        said(lambda: parallel(a, nothing)),
        said(lambda: race(a, taps("log"))),
        said(lambda: each(nothing)),
        said(lambda: each(a, limit=0)),
        said(lambda: parallel(a, a, limit=-1, name="both")),
        said(lambda: parallel(a, START >> a)),
        said(lambda: race([a, a.named("b")])),
        said(lambda: parallel(a, text, number)),
        said(lambda: race(text, number, name="first")),
    ] == snapshot(
        [
            "TypeError: 'parallel' has no branches; give it nodes",
            "TypeError: a branch of 'parallel' is a node or a strategy, not the function nothing; put @node on it",
            "TypeError: a branch of 'race' is a node or a strategy, not a Tap; see @node",
            "TypeError: a branch of 'each' is a node or a strategy, not the function nothing; put @node on it",
            "ValueError: 'each': limit=0 would run no branch; give 1 or more, or None for no limit",
            "ValueError: 'both': limit=-1 would run no branch; give 1 or more, or None for no limit",
            "TypeError: a branch of 'parallel' is a node or a strategy, not a path; make it Strategy('name', START >> … >> END)",
            "TypeError: a branch of 'race' is a node or a strategy, not a list; nodes that are executed at the same time are parallel(a, b)",
            "TypeError: the branches of 'parallel' get the same input, but no type fits all: 'a' takes Any, 'text' takes str, 'number' takes int",
            "TypeError: the branches of 'first' get the same input, but no type fits all: 'text' takes str, 'number' takes int",
        ]
    )


def test_many_branches_of_one_type_are_compared_once():
    """What is compared for the input of a fork are types, however many branches have each."""
    branches = [step(f"number{place}", int | str) for place in range(200)] + [step("text", str)]
    before = sum(_types._fits.cache_info()[:2])
    assert parallel(*branches).input_type is str
    assert sum(_types._fits.cache_info()[:2]) - before < 50


async def test_strategies_and_forks_are_nested_up_to_a_limit():
    """As many as are allowed are executed, with policies around each; one more is a problem of the strategy that would have it."""
    inner = step("leaf")
    for level in range(60):
        part = inner.retry(attempts=2).timeout(60)
        inner = parallel(part, name=f"p{level}") if level == 1 else Strategy(f"s{level}", START >> part >> END)
    assert inner.declaration.levels == 60
    assert (await Agent(inner, max_nodes=None).run(1)).done
    with pytest.raises(StrategyError, match=r"'s59': it has 60 levels .* the limit is 60") as raised:
        Strategy("s60", START >> inner >> END)
    assert [problem.node for problem in raised.value.problems] == ["s59"]


def test_edges_keep_the_order_of_the_paths():
    """An edge is one step of one path, with its conditions; taps and nodes alike."""
    ask, act, log = step("ask"), step("act"), taps("log")
    made = Strategy(
        "x",
        START >> log >> ask,
        ask.on(int).when(bool).map(str) >> act >> ask,
        ask.on_error(ValueError) >> END,
        ask.otherwise() >> END,
    )
    assert edges(made) == snapshot(
        [
            ("START", "", "log"),
            ("log", "", "ask"),
            ("ask", "on int, when bool, map str", "act"),
            ("act", "", "ask"),
            ("ask", "on error ValueError", "END"),
            ("ask", "otherwise", "END"),
        ]
    )
    assert list(made.elements_by_name) == ["log", "ask", "act"]


def test_a_path_can_begin_with_taps():
    """Taps that take anything may stand behind START, before what decides the type."""
    first, second = taps("first"), taps("second")
    made = Strategy("x", START >> first >> second >> step("a", int, str) >> END)
    assert (made.input_type, made.output_type) == (int, str)


def test_the_same_plain_edge_twice_is_one_edge():
    """A path may go over an edge that another has drawn."""
    a, b, c = steps("a b c")
    made = Strategy("x", START >> a, a.when(bool) >> b >> c >> END, a.otherwise() >> c >> END)
    assert edges(made) == [
        ("START", "", "a"), ("a", "when bool", "b"), ("b", "", "c"), ("c", "", "END"), ("a", "otherwise", "c"),
    ]  # fmt: skip


def test_policies_wrap_and_keep_the_name():
    """Each policy gives a new node under the same name, the innermost policy first."""
    plain = step("a", str, int)
    wrapped = plain.timeout(2).retry(attempts=3, wait=0.5, errors=OSError)
    assert plain.policies == ()
    assert wrapped.policies == (Timeout(2), Retry(3, 0.5, 2.0, 60.0, (OSError,)))
    assert (wrapped.name, wrapped.input_type, wrapped.output_type, wrapped.function) == ("a", str, int, plain.function)
    assert edges(Strategy("x", START >> wrapped >> END, wrapped.on_error(OSError) >> END)) == [
        ("START", "", "a"), ("a", "", "END"), ("a", "on error OSError", "END"),
    ]  # fmt: skip


def test_named_gives_a_second_place():
    """A renamed node is another node, with its own ways on; the first keeps its name and its ways."""
    a = step("a").retry(attempts=2)
    b = a.named("b")
    made = Strategy("x", START >> a >> b >> END)
    assert (a.name, b.name, b.policies) == ("a", "b", a.policies)
    assert edges(made) == [("START", "", "a"), ("a", "", "b"), ("b", "", "END")]


def test_strategies_share_nodes():
    """Joining a node in one strategy changes nothing in another."""
    a, b = steps("a b")
    one = Strategy("one", START >> a >> b >> END)
    two = Strategy("two", START >> b >> a >> END)
    three = Strategy("three", START >> one >> two >> a >> END)
    assert edges(one) == [("START", "", "a"), ("a", "", "b"), ("b", "", "END")]
    assert edges(two) == [("START", "", "b"), ("b", "", "a"), ("a", "", "END")]
    assert edges(three)[1:] == [("one", "", "two"), ("two", "", "a"), ("a", "", "END")]


def test_a_path_can_be_continued_in_two_ways():
    """A path is a value: going on from it twice makes two paths."""
    a, b, c = steps("a b c")
    start = START >> a
    assert edges(Strategy("x", start >> b >> END))[1] == ("a", "", "b")
    assert edges(Strategy("x", start >> c >> END))[1] == ("a", "", "c")


def test_a_strategy_keeps_being_one_under_policies_and_names():
    """A wrapped, renamed or set strategy is still a strategy, and the first is unchanged."""
    inner = Strategy("inner", START >> step("a", str, str) >> END)
    wrapped = inner.retry(attempts=2).named("again").using(max_nodes=5, tools=[])
    assert (type(wrapped), wrapped.name, wrapped.edges) == (Strategy, "again", inner.edges)
    assert (wrapped.setting.max_nodes, wrapped.setting.tools, wrapped.setting.model) == (5, [], None)
    assert (inner.name, inner.policies, inner.setting) == ("inner", (), None)
    assert repr(wrapped) == "<strategy 'again': str -> str>"
    assert edges(Strategy("x", START >> inner >> wrapped.named("c").using() >> END)) == snapshot(
        [("START", "", "inner"), ("inner", "", "c"), ("c", "", "END")]
    )


def test_forks_know_their_types():
    """A fork takes what all its branches take, and gives what its kind makes of theirs."""
    a, b = step("a", str | int, int), step("b", str | bytes, bool)
    collected = parallel(a, b, failures="collect", limit=2, transcript="keep", name="both")
    shown = [repr(each) for each in (parallel(a, b), collected, each(a), each(a, failures="collect"), race(a, b))]
    assert shown == snapshot(
        [
            "<node 'parallel': str -> tuple[int, bool]>",
            "<node 'both': str -> tuple[int | NodeFailedError, bool | NodeFailedError]>",
            "<node 'each': Iterable[str | int] -> list[int]>",
            "<node 'each': Iterable[str | int] -> list[int | NodeFailedError]>",
            "<node 'race': str -> int | bool>",
        ]
    )
    assert (collected.branches, collected.limit, collected.failures, collected.transcript) == (
        (a, b), 2, "collect", "keep",
    )  # fmt: skip
    assert (each(a).limit, parallel(a).limit) == (8, None)


def test_walk_gives_every_path():
    """Nodes inside subgraphs and forks have the paths that the journal uses."""
    a, b, log = step("a"), step("b"), taps("log")
    inner = Strategy("inner", START >> log >> a >> END)
    fork = parallel(inner, b, race(a, b, name="first"))
    made = Strategy("x", START >> a >> inner >> each(b) >> fork >> END)
    assert [path for path, _ in made.walk()] == snapshot(
        [
            "a",
            "inner",
            "inner/log",
            "inner/a",
            "each",
            "each/b",
            "parallel",
            "parallel/0/inner",
            "parallel/0/inner/log",
            "parallel/0/inner/a",
            "parallel/1/b",
            "parallel/2/first",
            "parallel/2/first/0/a",
            "parallel/2/first/1/b",
        ]
    )
    assert dict(made.walk())["parallel/0/inner/a"] is a


def declared(count):
    """Declare, check, walk, draw and let go a path of so many nodes."""
    path: Any = START
    for number in range(count):
        path = path >> step(f"n{number}", str, str)
    made = Strategy("long", path >> END)
    assert (len(made.edges), len(list(made.walk())), made.output_type) == (count + 1, count, str)
    assert made.to_mermaid().count("-->") == count + 1


def test_a_path_of_ten_thousand_nodes():
    """A long path is declared, checked, walked and let go without deep recursion; ten times as many nodes are ten times as much work."""
    declared(10_000)
    assert calls(lambda: declared(2_000)) < 12 * calls(lambda: declared(200))


def test_values_are_told_from_one_another():
    """A value passes by type and equality, so 1, True and 1.0 are three."""
    a = step("a")
    values = [1, True, 1.0, None, "1", b"1"]
    passed = [[rule.test(value) for value in values] for rule in (a.on(each).rules[0] for each in values)]
    assert passed == [[one == at for at in range(len(values))] for one in range(len(values))]


def test_a_float_output_may_be_an_int():
    """Where a node promises float, an int passes for one; where it promises both, it does not."""
    number, both, flag = step("a", str, float | None), step("b", str, int | float), step("c", str, float | bool)
    assert [each.on(float).rules[0].test(3) for each in (number, both, flag, step("d"))] == [
        True, False, True, False,
    ]  # fmt: skip
    assert not flag.on(float).rules[0].test(True)


def test_maps_tell_their_type():
    """The type behind a map is what its function says, or the class itself."""
    a = step("a")

    def shout(text: str) -> bytes: ...

    changes = [shout, str, functools.partial(shout), lambda value: value]
    assert [a.map(change).rules[0].value for change in changes] == [bytes, str, Any, Any]


def test_a_wrong_strategy_does_not_exist():
    """The constructor raises; nothing is left of it but the error."""
    with pytest.raises(StrategyError):
        Strategy("x", START >> step("a"))


def test_nodes_can_have_any_printable_name():
    """A name is for people."""
    assert Strategy("ü", START >> step("日本 «x» <b>") >> END).name == "ü"
    assert isinstance(step("🙂"), Node)


def test_a_tap_that_takes_anything_does_not_settle_what_a_strategy_takes():
    """It stands behind START and before any node; the strategy takes what that node takes."""

    @tap
    async def watch(ctx: object, value: object) -> None: ...

    @node
    async def length(ctx: object, text: str) -> int:
        return len(text)

    strategy = Strategy("watched", START >> watch >> length >> END)
    assert type(watch) is Tap
    assert (strategy.input_type, strategy.output_type) == (str, int)


@pytest.mark.parametrize("wrong", [(START >> step("a") >> step("b"),), ("s",), ()])
def test_a_strategy_without_a_name_or_a_path_says_what_it_takes(wrong):
    """The name comes first, then the paths."""
    with pytest.raises(TypeError):
        Strategy(*wrong)


def test_a_node_that_takes_its_context_second_is_refused():
    """Swapped parameters are found when the node is made."""

    class Fake:
        __graphagent_context__ = True

    with pytest.raises(TypeError, match="context first"):

        @node
        async def swapped(text: str, ctx: Fake) -> str:
            return text
