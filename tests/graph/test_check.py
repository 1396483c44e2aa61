"""Everything that can be wrong with a strategy is found when it is made, and told at once."""

from __future__ import annotations

import enum
import pickle
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from graphagent.errors import StrategyError
from graphagent.graph import END, START, Node, Strategy
from tests.graph.parts import step, steps, taps
from tests.graph.test_rules import problems


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Animal: ...


class Dog(Animal): ...


def test_a_node_that_start_never_reaches():
    """A node that is on no way from START is named."""
    a, b, c = steps("a b c")
    assert problems(START >> a >> END, b >> c >> END) == snapshot(
        [
            "'b': START never reaches it; add a path that leads to it, or remove it",
            "'c': START never reaches it; add a path that leads to it, or remove it",
        ]
    )


def test_a_dead_end():
    """A node or a tap from which nothing goes on is named."""
    a, b = steps("a b")
    assert problems(START >> a >> b) == snapshot(["'b': no edge leaves it; end its path with b >> END"])
    assert problems(START >> a >> END, a.on_error(OSError) >> taps("log")) == snapshot(
        ["'log': no edge leaves it; end its path with log >> END"]
    )
    assert problems(START >> a, a.on_error(OSError) >> END) == snapshot(
        ["'a': no edge takes its output Any (there are: on error OSError); add .on(…) or .otherwise()"]
    )


def test_a_cycle_without_a_way_out():
    """A cycle that can only go on for ever is named once; one that leads to a dead end is told as that."""
    a, b, c, d = steps("a b c d")
    assert problems(START >> a >> b >> c >> b, c.named("other") >> END) == snapshot(
        [
            "'b': no edge leaves the cycle of 'b', 'c'; add one before the plain edge of a node, such as b.when(…) >> END",
            "'other': START never reaches it; add a path that leads to it, or remove it",
        ]
    )
    assert problems(START >> a >> a) == snapshot(
        ["'a': no edge leaves the cycle of 'a'; add one before the plain edge of a node, such as a.when(…) >> END"]
    )
    assert problems(START >> a, a.when(bool) >> a, a.otherwise() >> d) == snapshot(
        ["'d': no edge leaves it; end its path with d >> END"]
    )


def test_two_nodes_of_one_name():
    """A name stands for one node; policies make a copy, and the message says so."""
    a, b = steps("a b")
    assert problems(START >> a >> step("a") >> END) == snapshot(
        ["'a': two different nodes have this name; rename one with .named('a_2')"]
    )
    assert problems(START >> a.retry(attempts=2) >> END, a.on_error(OSError) >> b >> END) == snapshot(
        [
            "'a': a policy such as .retry(…) returns a copy, and two are in the paths; use one variable for all, or rename one with .named('a_2')",
            "'a': START never reaches it; add a path that leads to it, or remove it",
            "'b': START never reaches it; add a path that leads to it, or remove it",
        ]
    )
    assert problems(START >> step("START") >> step("END") >> END) == snapshot(
        [
            "'START': two different nodes have this name; rename one with .named('START_2')",
            "'END': two different nodes have this name; rename one with .named('END_2')",
        ]
    )


def test_two_plain_edges():
    """Two plain edges of one node are no fork."""
    a, b, c = steps("a b c")
    assert problems(START >> a >> b >> END, a >> c >> END) == snapshot(
        [
            "'a': it has two plain edges, to 'b' and to 'c'; use parallel(…) for both at once, or outlets such as .on(…) and .when(…) to choose; a second place of the node is a copy: .named('a_2')"
        ]
    )
    log = taps("log")
    assert problems(START >> a, a.when(bool) >> log >> b >> END, a.otherwise() >> log >> c >> END) == snapshot(
        [
            "'log': it has two plain edges, to 'b' and to 'c'; use parallel(…) for both at once, or outlets such as .on(…) and .when(…) to choose; a second place of the node is a copy: .named('log_2')"
        ]
    )


def test_an_edge_behind_a_catch_all():
    """What stands behind a way that takes everything is never taken."""
    a, b, c = steps("a b c")
    assert problems(START >> a >> b >> END, a.when(bool) >> c >> END) == snapshot(
        ["'a': when bool to 'c' is never taken, because the plain edge before it takes everything"]
    )
    assert problems(START >> a, a.otherwise() >> b >> END, a.on(str) >> c >> END, a >> END) == snapshot(
        [
            "'a': on str to 'c' is never taken, because otherwise before it takes everything",
            "'a': the plain edge to 'END' is never taken, because otherwise before it takes everything",
        ]
    )
    assert problems(START >> a, a.map(str) >> END, a.otherwise() >> b >> END) == snapshot(
        ["'a': otherwise to 'b' is never taken, because map str before it takes everything"]
    )
    assert problems(START >> a >> END, a.on_error(OSError) >> b >> END) == []


def test_an_error_that_an_earlier_way_takes():
    """Error ways are tried in order too."""
    a, b, c = steps("a b c")
    assert problems(
        START >> a >> END, a.on_error(OSError) >> b >> END, a.on_error(ConnectionError) >> c >> END
    ) == snapshot(
        ["'a': on error ConnectionError to 'c' is never taken, because on error OSError before it takes such errors"]
    )
    assert not problems(START >> a >> END, a.on_error(ConnectionError) >> b >> END, a.on_error(OSError) >> c >> END)
    assert not problems(START >> a >> END, a.on_error(OSError).when(bool) >> b >> END, a.on_error(OSError) >> c >> END)


def test_types_that_do_not_fit():
    """The type of every way on is followed, through taps, outlets, maps, errors and subgraphs."""
    a, b = step("a", str, int), step("b", str, str)
    log = taps("log", bytes)

    def shout(value: int) -> bytes: ...

    inner = Strategy("inner", START >> step("n", int, int) >> END)
    assert problems(START >> a >> b >> END) == snapshot(
        [
            "'a': its output int does not fit the input str of 'b'; change one of them, or map it: end this path with a, and give Strategy one more: a.map(…) >> b"
        ]
    )
    assert problems(START >> a >> taps("any") >> b >> END) == snapshot(
        ["'any': its output int does not fit the input str of 'b'; change one of them"]
    )
    assert problems(START >> a >> log >> END) == snapshot(
        [
            "'a': its output int does not fit the input bytes of 'log'; change one of them, or map it: end this path with a, and give Strategy one more: a.map(…) >> log"
        ]
    )
    assert problems(START >> a, a.when(bool).map(shout) >> b >> END, a.otherwise() >> END) == snapshot(
        [
            "'a': its output bytes does not fit the input str of 'b'; change one of them, or map it: a.when(bool).map(shout).map(…) >> b"
        ]
    )
    assert problems(START >> a >> END, a.on_error(OSError) >> b >> END) == snapshot(
        [
            "'a': its output OSError does not fit the input str of 'b'; change one of them, or map it: a.on_error(OSError).map(…) >> b"
        ]
    )
    assert problems(START >> a >> inner >> b >> END) == snapshot(
        [
            "'inner': its output int does not fit the input str of 'b'; change one of them, or map it: end this path with inner, and give Strategy one more: inner.map(…) >> b"
        ]
    )
    assert not problems(START >> a, a.when(bool).map(str) >> b >> END, a.otherwise() >> END)


def test_an_output_that_no_way_takes():
    """Members of unions, of enums, literals and both bools need a way on."""
    end = END
    union, colour, flag = step("u", Any, str | int | None), step("c", Any, Colour), step("f", Any, bool | None)
    animal, some, word = step("a", Any, Animal | str), step("any"), step("w", Any, Literal["yes", "no"])
    assert [
        problems(START >> union, union.on(str) >> end),
        problems(START >> union, union.on(str) >> end, union.on(int).when(bool) >> end, union.on(None) >> end),
        problems(START >> colour, colour.on(Colour.RED) >> end),
        problems(START >> flag, flag.on(True) >> end, flag.on(None) >> end),
        problems(START >> animal, animal.on(Dog) >> end, animal.on(str) >> end),
        problems(START >> some, some.when(bool) >> end),
        problems(START >> word, word.on("yes") >> end, word.when(bool) >> end),
    ] == snapshot(
        [
            ["'u': no edge takes its output int | None (there are: on str); add .on(…) or .otherwise()"],
            [
                "'u': no edge takes its output int (there are: on str, on int, when bool, on None); add .on(…) or .otherwise()"
            ],
            ["'c': no edge takes its output Colour.BLUE (there are: on Colour.RED); add .on(…) or .otherwise()"],
            ["'f': no edge takes its output False (there are: on True, on None); add .on(…) or .otherwise()"],
            ["'a': no edge takes its output Animal (there are: on Dog, on str); add .on(…) or .otherwise()"],
            [],
            ["'w': no edge takes its output 'no' (there are: on 'yes', when bool); add .on(…) or .otherwise()"],
        ]
    )
    assert not problems(START >> colour, colour.on(Colour.RED) >> end, colour.on(Colour.BLUE) >> end)
    assert not problems(START >> flag, flag.on(True) >> end, flag.on(False) >> end, flag.otherwise() >> end)
    assert not problems(START >> union, union.on(str, int) >> end, union.on(None) >> end)
    assert not problems(START >> animal, animal.on(Dog) >> end, animal.on(Animal) >> end, animal >> end)
    assert not problems(START >> union, union.on(str) >> end, union.map(str) >> end)


def test_an_outlet_that_is_never_taken():
    """A type or value that the output cannot be, or that ways before it take, is told."""
    a, colour = step("a", Any, str | None), step("c", Any, Colour)
    assert [
        problems(START >> a, a.on(int) >> END, a.otherwise() >> END),
        problems(START >> a, a.on(5) >> END, a.otherwise() >> END),
        problems(START >> a, a.on(str) >> END, a.on("x") >> END, a.on(None) >> END),
        problems(START >> colour, colour.on(Colour.RED) >> END, colour.on(Colour.RED) >> END, colour >> END),
        problems(START >> colour, colour.on(1) >> END, colour >> END),
        problems(START >> colour, colour.on(3) >> END, colour >> END),
    ] == snapshot(
        [
            ["'a': on int is never taken: its output is str | None"],
            ["'a': on 5 is never taken: its output is str | None"],
            ["'a': on 'x' to 'END' is never taken, because the edges before it take all of that"],
            ["'c': on Colour.RED to 'END' is never taken, because the edges before it take all of that"],
            ["'c': on 1 is never taken: its output is Colour; write Colour.RED"],
            ["'c': on 3 is never taken: its output is Colour"],
        ]
    )


def test_what_only_the_class_can_tell():
    """`list[int]` cannot be told from `list[str]` when the program runs."""
    both, one = step("a", Any, list[int] | list[str]), step("b", Any, list[int] | str)
    assert problems(START >> both, both.on(list[int]) >> END, both.otherwise() >> END) == snapshot(
        [
            "'a': on list[int] would also take list[str], since only the class can be seen when the program runs; use .when(…) to tell them apart"
        ]
    )
    assert not problems(START >> one, one.on(list[int]) >> END, one.on(str) >> END)
    assert not problems(START >> both, both.on(list) >> END)


def test_what_a_strategy_takes_and_gives():
    """Its output is the union over its paths to END, in their order."""
    number = step("n", int, str | float)
    count = step("count", str, int)
    assert [
        repr(Strategy("x", START >> number, number.on(str) >> count >> END, number.on(float) >> END)),
        repr(Strategy("x", START >> count >> END, count.on_error(OSError) >> END)),
        repr(Strategy("x", START >> taps("log", bytes) >> END)),
        repr(Strategy("x", START >> END)),
        repr(Strategy("x", START >> (f := step("f", str, bool)), f.on(False) >> END, f.on(True) >> END)),
        repr(Strategy("x", START >> count, count.when(bool).map(str).map(len) >> END, count >> END)),
    ] == snapshot(
        [
            "<strategy 'x': int -> int | float>",
            "<strategy 'x': str -> int | OSError>",
            "<strategy 'x': bytes -> bytes>",
            "<strategy 'x': Any -> Any>",
            "<strategy 'x': str -> bool>",
            "<strategy 'x': str -> Any>",
        ]
    )


def test_a_map_behind_a_map_decides_the_type():
    """Conditions between maps do not hide the last one."""

    def size(text: str) -> int: ...

    count = step("count", str, int)
    made = Strategy("x", START >> count, count.map(str).when(bool).map(size) >> END, count.otherwise() >> END)
    assert made.output_type is int


def test_all_problems_at_once():
    """One error tells everything, in the order of the paths, and survives pickling."""
    read, upper, length, stray = (
        step("read", str, list[str]),
        step("upper", str, str),
        step("length", str, int),
        step("s"),
    )
    with pytest.raises(StrategyError) as caught:
        Strategy("wrong", START >> read, read.on(int) >> upper, read.on(list) >> length >> END, stray >> length)
    assert str(caught.value) == snapshot("""\
strategy 'wrong' has 4 problems:
  'read': on int is never taken: its output is list[str]
  'read': its output list does not fit the input str of 'length'; change one of them, or map it: read.on(list).map(…) >> length
  's': START never reaches it; add a path that leads to it, or remove it
  'upper': no edge leaves it; end its path with upper >> END\
""")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


Targets = list[list[int]]
"""For every node, where its ways lead; the number of nodes means END."""


@st.composite
def graphs(draw: st.DrawFn) -> Targets:
    size = draw(st.integers(1, 6))
    return draw(st.lists(st.lists(st.integers(0, size), max_size=3), min_size=size, max_size=size))


def brute_force(targets: Targets) -> set[tuple[str, str]]:
    """Give the expected problems from the transitive closure of the edges."""
    size = len(targets)
    end, start = size, size + 1
    leads = [[False] * (size + 2) for _ in range(size + 2)]
    leads[start][0] = True
    for source, out in enumerate(targets):
        for target in out:
            leads[source][target] = True
    used = {0} | {source for source, out in enumerate(targets) if out} | {each for out in targets for each in out}
    for via in range(size + 2):
        for source in range(size + 2):
            for target in range(size + 2):
                leads[source][target] = leads[source][target] or (leads[source][via] and leads[via][target])
    found: set[tuple[str, str]] = set()
    for one in sorted(used - {end}):
        after = {other for other in range(size) if leads[one][other]}
        if not leads[start][one]:
            found.add((f"n{one}", "START never reaches"))
        elif not targets[one]:
            found.add((f"n{one}", "no edge leaves it"))
        elif not leads[one][end] and all(leads[other][one] for other in after):
            found.add((f"n{min(after)}", "no edge leaves the cycle"))
    return found


@given(graphs())
@example([[1], [0]])
@example([[0, 1], [2], [1]])
@example([[1, 2], [3], [2]])
def test_the_verdict_on_any_small_graph(targets: Targets):
    """What is unreachable, a dead end or a closed cycle is what a transitive closure says, no more and no less."""
    nodes: list[Any] = [step(f"n{number}") for number in range(len(targets))]
    paths: list[Any] = [START >> nodes[0]]
    for source, out in zip(nodes, targets, strict=True):
        heads = [source] if len(out) == 1 else [*[source.when(bool) for _ in out[1:]], source.otherwise()]
        paths += [head >> [*nodes, END][target] for head, target in zip(heads, out, strict=False)]
    kinds = ("START never reaches", "no edge leaves it", "no edge leaves the cycle")
    found = {(text.split("'")[1], what) for text in problems(*paths) for what in kinds if what in text}
    assert found == brute_force(targets)
    assert bool(problems(*paths)) == bool(found)


VALUES: dict[Any, list[Any]] = {
    str: ["a", "b", "z"],
    int: [0, 7, 9],
    bool: [True, False],
    float: [1.5, 2.5],
    None: [None],
    Colour: [Colour.RED, Colour.BLUE],
    Literal["a", "b"]: ["a", "b"],
    Animal: [Animal(), Dog()],
    Dog: [Dog()],
}
HEADS: list[tuple[str, tuple[Any, ...]]] = [
    *[("on", (kind,)) for kind in (str, int, bool, float, Colour, Animal, Dog)],
    *[("on", (value,)) for value in (True, False, None, Colour.RED, Colour.BLUE, "a", "b", 7, 1.5)],
    *[("on", pair) for pair in ((str, int), (float, bool), (Colour, Dog))],
    *[("when", (bool,)), ("otherwise", ()), ("map", (str,))],
]


def outlet(node: Node[Any, Any], head: tuple[str, tuple[Any, ...]], change: bool) -> Any:
    made = getattr(node, head[0])(*head[1])
    return made.map(str) if change else made


def takes(made: Any, value: Any) -> bool:
    """Tell whether an outlet surely takes a value: a test of the user's may always say no."""
    return all(rule.test is None or (not rule.label.startswith("when") and rule.test(value)) for rule in made.rules)


@given(
    st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4, unique=True),
    st.lists(st.tuples(st.sampled_from(HEADS), st.booleans()), min_size=1, max_size=5),
)
@example([bool, float], [(("on", (float,)), False), (("on", (bool,)), False)])
@example([float], [(("on", (1.5,)), False)])
@example([bool, None], [(("on", (True,)), False), (("on", (None,)), False)])
def test_completeness_against_all_values(kinds: list[Any], heads: list[Any]):
    """A way is missing just when some value of the output passes none; what is called never taken takes no value."""
    union: Any = kinds[0]
    for kind in kinds[1:]:
        union = union | kind if union is not None else kind | union
    node = step("n", Any, union)
    ways = [outlet(node, head, change) for head, change in heads]
    said = problems(START >> node, *[way >> END for way in ways])
    values = [value for kind in kinds for value in VALUES[kind]]
    values += [3] if float in kinds and int not in kinds else []
    left = [value for value in values if not any(takes(way, value) for way in ways)]
    assert any("no edge takes" in text for text in said) == bool(left), said
    labels = [", ".join(rule.label for rule in way.rules) for way in ways]
    for number, (way, label) in enumerate(zip(ways, labels, strict=True)):
        dead = any(text.startswith((f"'n': {label} is never", f"'n': {label} to 'END' is never")) for text in said)
        if dead and labels.count(label) == 1:
            assert not [
                value for value in values if takes(way, value) and not any(takes(each, value) for each in ways[:number])
            ]
