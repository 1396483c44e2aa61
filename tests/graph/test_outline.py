"""The outline of a strategy: plain data that says what was declared, compared by a digest, read in another process, drawn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given, settings
from inline_snapshot import snapshot

from graphagent.graph import END, START, Outline, Strategy, each, parallel, race
from graphagent.graph._outline import differences
from tests.graph.interleavings import small_strategies
from tests.graph.parts import step, steps, taps
from tests.thorough import examples

ROOT = Path(__file__).parents[2]


def long_enough(value: Any) -> bool:
    return True


def mail() -> Strategy[Any, Any]:
    draft, send = step("draft", str, str).retry(attempts=3), step("send", str, bool)
    return Strategy(
        "mail", START >> draft, draft.when(long_enough).map(str.upper) >> taps("note", str) >> send >> END,
        draft.on_error(OSError).map(str) >> draft, draft.otherwise() >> draft,
    )  # fmt: skip


def nested() -> Strategy[Any, Any]:
    a, b, split, join = steps("a b split join")
    fork = parallel(mail(), race(a, b, name="0"), name="all")
    return Strategy("nested", START >> fork >> split >> each(mail()) >> join >> mail().named("7") >> END)


def test_it_says_what_was_declared():
    """Nodes, taps and edges in the order of the paths, with types, conditions and policies, and no functions."""
    assert msgspec.to_builtins(mail().outline) == snapshot(
        {
            "kind": "strategy",
            "name": "mail",
            "input_type": "str",
            "output_type": "bool",
            "inside": (
                {
                    "kind": "node",
                    "name": "draft",
                    "input_type": "str",
                    "output_type": "str",
                    "retried": True,
                    "notes": ("retry 3",),
                },
                {"kind": "tap", "name": "note", "input_type": "str"},
                {"kind": "node", "name": "send", "input_type": "str", "output_type": "bool"},
            ),
            "edges": (
                {"source": "START", "target": "draft"},
                {
                    "source": "draft",
                    "target": "note",
                    "conditions": (("when", "long_enough"), ("map", "upper")),
                },
                {"source": "note", "target": "send"},
                {"source": "send", "target": "END"},
                {
                    "source": "draft",
                    "target": "draft",
                    "number": 1,
                    "conditions": (("on error", "OSError"), ("map", "str")),
                },
                {"source": "draft", "target": "draft", "number": 2, "conditions": (("otherwise", ""),)},
            ),
        }
    )


def test_edges_have_names():
    """The source and a number, counted from 0 for each source; a plain edge that several paths share is one edge."""
    a, b, c = steps("a b c")
    made = Strategy("shared", START >> a, a.on("b") >> b >> c >> END, a.otherwise() >> c, b >> c)
    assert [(edge.name, edge.target, edge.label) for edge in made.outline.edges] == [
        ("START:0", "a", ""), ("a:0", "b", "on 'b'"), ("b:0", "c", ""), ("c:0", "END", ""), ("a:1", "c", "otherwise"),
    ]  # fmt: skip
    assert [edge.number for edge in made.edges] == [edge.number for edge in made.outline.edges]


def test_pictures_name_each_edge():
    """An arrow and its label are a group with the name of the edge, after the path of the strategy that has it."""
    outline = nested().outline
    root = ElementTree.fromstring(outline.to_svg())
    groups = [each for each in root.iter() if each.get("data-edge")]
    arrows = [each.get("data-edge") for each in groups if each.find("{*}path") is not None]
    places = [("", outline), *((f"{path}/", each) for path, each in outline.walk())]
    assert sorted(map(str, arrows)) == sorted(f"{path}{edge.name}" for path, each in places for edge in each.edges)
    labels = {each.get("data-edge"): "".join(each.itertext()) for each in groups if each.find("{*}text") is not None}
    assert labels["all/0/mail/draft:0"] == "when long_enoughmap upper"
    assert labels["each/mail/draft:2"] == "otherwise"


@given(small_strategies())
@settings(max_examples=examples(200))
def test_it_survives_being_stored(strategy: Strategy[Any, Any]):
    """Read back from bytes or from plain data, it is equal, has the same digest, leads to the same places and draws the same."""
    outline = strategy.outline
    packed = msgspec.msgpack.decode(msgspec.msgpack.encode(outline), type=Outline)
    plain = msgspec.convert(msgspec.json.decode(msgspec.json.encode(outline)), Outline)
    for read in (packed, plain):
        assert (read, read.digest) == (outline, outline.digest)
        assert read.to_svg() == strategy.to_svg()
        assert read.to_mermaid() == strategy.to_mermaid()
    walked = [(path, element.name, element.input_type) for path, element in strategy.walk()]
    assert [(path, each.name) for path, each in packed.walk()] == [(path, name) for path, name, _ in walked]
    for path, element in packed.walk():
        assert packed.find(path) == (path, element)


def test_paths_of_runs_are_found():
    """The number of a branch is part of its path in the strategy, that of an item is not; names may be numbers."""
    outline = nested().outline
    for path, place in {
        "": "", "7/draft": "7/draft", "all/0/mail/send": "all/0/mail/send", "all/1/0/1/b": "all/1/0/1/b", "all/1/0": "all/1/0",
        "each/3/mail/note": "each/mail/note", "each/12/mail": "each/mail",
    }.items():  # fmt: skip
        found, element = outline.find(path)
        assert (found, element.name) == (place, place.rpartition("/")[2] or "nested")
    for path in (
        "x",
        "8",
        "7/draft/x",
        "all/0",
        "all/mail",
        "all/2/mail",
        "all/0/0",
        "each/3",
        "each/3/send",
        "all/1/0/b",
    ):
        with pytest.raises(LookupError, match=path):
            outline.find(path)


def test_what_begins_with_what():
    """A strategy begins with its first node, a fork with all of its branches; how many items an `each` has, nobody knows."""
    outline = nested().outline
    assert outline.begins("") == ["all"]
    assert outline.begins("all") == ["all/0/mail", "all/1/0"]
    assert outline.begins("each/4/mail") == ["each/4/mail/draft"]
    assert outline.begins("each") == outline.begins("7/draft") == []
    assert Strategy("nothing", START >> END).outline.begins("") == []


a, b, c = steps("a b c")
short = Strategy("short", START >> a >> b >> END)
choice = Strategy("choice", START >> a, a.on("x") >> b >> END, a.when(long_enough) >> b, a.otherwise() >> END)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (short, Strategy("short", START >> a.retry(attempts=2).timeout(3) >> b >> END)),
        (short, short.using(max_turns=3).retry(attempts=2)),
        (choice, Strategy("choice", START >> a, a.on("x") >> b >> END, a.when(lambda x: x) >> b, a.otherwise() >> END)),
    ],
    ids=["policies", "budgets", "a function"],
)
def test_a_run_can_change_over_to_the_same_strategy(before: Strategy[Any, Any], after: Strategy[Any, Any]):
    """Policies, budgets and the functions of conditions may change: the digest does not. The outline says so, since it is drawn."""
    assert after.outline != before.outline
    assert after.outline.digest == before.outline.digest
    assert differences(before.outline, after.outline) == []


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (short, short.named("other"), ["- strategy short: Any -> Any", "+ strategy other: Any -> Any"]),
        (
            short, Strategy("short", START >> a >> c >> END),
            ["- node b: Any -> Any", "- edge a -> b", "- edge b -> END", "+ node c: Any -> Any", "+ edge a -> c", "+ edge c -> END"],
        ),
        (short, Strategy("short", START >> a >> taps("b") >> END), ["- node b: Any -> Any", "+ tap b: object"]),
        (
            Strategy("x", START >> taps("t", str) >> a >> END), Strategy("x", START >> taps("t", int) >> a >> END),
            ["- strategy x: str -> Any", "- tap t: str", "+ strategy x: int -> Any", "+ tap t: int"],
        ),
        (
            choice, Strategy("choice", START >> a, a.on("y") >> b >> END, a.when(long_enough) >> b, a.otherwise() >> END),
            ["- edge a -> b on 'x'", "+ edge a -> b on 'y'"],
        ),
        (
            choice, Strategy("choice", START >> a, a.when(long_enough) >> b >> END, a.on("x") >> b, a.otherwise() >> END),
            ["the order of its paths"],
        ),
        (
            Strategy("x", START >> parallel(short, c) >> END), Strategy("x", START >> parallel(c, short) >> END),
            [
                "- strategy parallel/0/short: Any -> Any", "- node parallel/0/short/a: Any -> Any",
                "- node parallel/0/short/b: Any -> Any", "- node parallel/1/c: Any -> Any",
                "- edge parallel/0/short/START -> parallel/0/short/a", "- edge parallel/0/short/a -> parallel/0/short/b",
                "- edge parallel/0/short/b -> parallel/0/short/END",
                "+ node parallel/0/c: Any -> Any", "+ strategy parallel/1/short: Any -> Any",
                "+ node parallel/1/short/a: Any -> Any", "+ node parallel/1/short/b: Any -> Any",
                "+ edge parallel/1/short/START -> parallel/1/short/a", "+ edge parallel/1/short/a -> parallel/1/short/b",
                "+ edge parallel/1/short/b -> parallel/1/short/END",
            ],
        ),
    ],
    ids=["a name", "a node", "a kind", "a type", "a condition", "an order", "branches"],
)  # fmt: skip
def test_differences_are_named(before: Strategy[Any, Any], after: Strategy[Any, Any], found: list[str]):
    """What is gone, then what is new: nodes first, then edges."""
    assert after.outline.digest != before.outline.digest
    assert differences(before.outline, after.outline) == found


def test_a_copy_has_an_outline_of_its_own():
    """It is made once for a strategy, and anew for a copy that differs."""
    made = mail()
    assert made.outline is made.outline
    assert made.named("other").outline.name == "other"
    assert made.using(max_nodes=9).outline.notes == ("max 9 nodes",)
    assert made.retry(attempts=2).outline.retried
    assert not made.outline.notes


def test_a_digest_is_the_same_in_every_process():
    """It depends on nothing but the strategy, so that a run can be resumed anywhere."""
    program = "from tests.graph.test_outline import nested; print(nested().outline.digest)"
    found = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=True, cwd=ROOT, env={"PYTHONHASHSEED": seed}
        ).stdout.decode()
        for seed in ("1", "2")
    }
    assert found == {f"{nested().outline.digest}\n"}
