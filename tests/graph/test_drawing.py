"""Strategies are drawn as Mermaid text and as SVG, whatever their nodes are called."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from graphagent.graph import END, START, Strategy, each, parallel, race
from tests.counting import calls
from tests.graph.parts import step, steps, taps

ROOT = Path(__file__).parents[2]
TAKEN = ("START", "END", "first")
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    '"quoted"', "end", "END ", "[x](y)", "subgraph", "<script>alert(1)", "<b>bold<b>", "日本語 🙂", "a & b", "1. list", "- item",
    "`code`", "#35;", "%%{init}%%", "click", "graph", "o--o", "x---x", "A-->B", "'; drop", "]]>", "&lt;", "{{x}}", "a|b", "a:::b",
    "style: #fff;", "__init__", "*em*", "a\\nb", "$1", "n1", "START ", "ℝ̃", "<!--", "1) list", "+ x", "~~~",
]  # fmt: skip


class ToolCalls: ...


def long_enough(value: Any) -> bool:
    return True


def loop() -> Strategy[Any, Any]:
    recall, learn = taps("recall"), taps("learn", str)
    ask, act = step("ask", str, str | ToolCalls).retry(attempts=3).timeout(5), step("act", ToolCalls, str)
    return Strategy("loop", START >> recall >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> learn >> END)


def nested() -> Strategy[Any, Any]:
    a, b, c = steps("a b c")
    fork = parallel(loop(), b, race(a, c), failures="collect", limit=2, name="all")
    return Strategy(
        "nested",
        START >> loop().using(max_nodes=50) >> fork >> each(b) >> c,
        c.when(long_enough) >> c,
        c.on_error(ValueError).map(str) >> a >> END,
        c.otherwise() >> END,
    )


def line_of(names: list[str]) -> Strategy[Any, Any]:
    path: Any = START
    for name in names:
        path = path >> step(name)
    return Strategy("line", path >> END)


def test_a_loop_in_mermaid():
    """Nodes are boxes, taps are rounded, ways out are labels, policies stand under the name."""
    assert loop().to_mermaid() == snapshot("""\
flowchart TD
    START(("START"))
    n1("recall"):::tap
    n2["ask<br/>retry 3, timeout 5 s"]
    n3["act"]
    n4("learn"):::tap
    END((("END")))
    START --> n1
    n1 --> n2
    n2 -->|"on ToolCalls"| n3
    n3 --> n2
    n2 -->|"on str"| n4
    n4 --> END
    classDef tap stroke-dasharray: 4 3
""")


def test_a_nest_in_mermaid():
    """Subgraphs and forks are frames with a begin and an end of their own; error ways are dotted."""
    assert nested().to_mermaid() == snapshot("""\
flowchart TD
    START(("START"))
    subgraph n1["loop<br/>max 50 nodes"]
        n1_START((" "))
        n1_n1("recall"):::tap
        n1_n2["ask<br/>retry 3, timeout 5 s"]
        n1_n3["act"]
        n1_n4("learn"):::tap
        n1_END(((" ")))
        n1_START --> n1_n1
        n1_n1 --> n1_n2
        n1_n2 -->|"on ToolCalls"| n1_n3
        n1_n3 --> n1_n2
        n1_n2 -->|"on str"| n1_n4
        n1_n4 --> n1_END
    end
    subgraph n2["all<br/>parallel, limit 2, collect failures"]
        n2_START((" "))
        subgraph n2_n1["loop"]
            n2_n1_START((" "))
            n2_n1_n1("recall"):::tap
            n2_n1_n2["ask<br/>retry 3, timeout 5 s"]
            n2_n1_n3["act"]
            n2_n1_n4("learn"):::tap
            n2_n1_END(((" ")))
            n2_n1_START --> n2_n1_n1
            n2_n1_n1 --> n2_n1_n2
            n2_n1_n2 -->|"on ToolCalls"| n2_n1_n3
            n2_n1_n3 --> n2_n1_n2
            n2_n1_n2 -->|"on str"| n2_n1_n4
            n2_n1_n4 --> n2_n1_END
        end
        n2_START --> n2_n1_START
        n2_n1_END --> n2_END
        n2_n2["b"]
        n2_START --> n2_n2
        n2_n2 --> n2_END
        subgraph n2_n3["race"]
            n2_n3_START((" "))
            n2_n3_n1["a"]
            n2_n3_START --> n2_n3_n1
            n2_n3_n1 --> n2_n3_END
            n2_n3_n2["c"]
            n2_n3_START --> n2_n3_n2
            n2_n3_n2 --> n2_n3_END
            n2_n3_END(((" ")))
        end
        n2_START --> n2_n3_START
        n2_n3_END --> n2_END
        n2_END(((" ")))
    end
    subgraph n3["each<br/>limit 8"]
        n3_START((" "))
        n3_n1["b"]
        n3_START --> n3_n1
        n3_n1 --> n3_END
        n3_END(((" ")))
    end
    n4["c"]
    n5["a"]
    END((("END")))
    START --> n1_START
    n1_END --> n2_START
    n2_END --> n3_START
    n3_END --> n4
    n4 -->|"when long_enough"| n4
    n4 -.->|"on error ValueError, map str"| n5
    n5 --> END
    n4 -->|"otherwise"| END
    classDef tap stroke-dasharray: 4 3
""")


def test_hostile_names_in_mermaid():
    """No name can end a label, open a tag, begin a list or be a keyword: only harmless characters are written as they are."""
    drawn = line_of(HOSTILE).to_mermaid()
    labels = re.findall(r'^    n\d+\["(.*)"\]$', drawn, re.MULTILINE)
    assert len(labels) == len(HOSTILE)
    assert [re.sub(r"#(\d+);", lambda code: chr(int(code[1])), label) for label in labels] == HOSTILE
    assert not re.search(r"[^\w ,|=.;#-]", "".join(filter(str.isascii, "".join(labels))))
    ids = re.findall(r"^    (\S+?)[(\[]", drawn, re.MULTILINE)
    assert ids == ["START", *[f"n{number}" for number in range(1, len(HOSTILE) + 1)], "END"]


def test_hostile_labels_in_mermaid():
    """A value's text stands in a label as harmlessly as a name."""
    a = step("a", Any, str)
    drawn = Strategy("x", START >> a, a.on('"|end <b>') >> END, a.otherwise() >> END).to_mermaid()
    assert '-->|"on #39;#34;|end #60;b#62;#39;"| END' in drawn


@pytest.mark.parametrize("strategy", [loop(), nested(), line_of(HOSTILE)], ids=lambda strategy: strategy.name)
def test_an_svg_is_xml_with_every_name(strategy: Strategy[Any, Any]):
    """The picture parses, names every node by its path, and carries nothing that runs."""
    drawn = strategy.to_svg()
    root = ElementTree.fromstring(drawn)
    assert root.tag == f"{SVG}svg"
    assert [each.get("data-node") for each in root.iter() if each.get("data-node")] == [
        path for path, _ in strategy.walk()
    ]
    shown = {"".join(each.itertext()) for each in root.iter(f"{SVG}text")}
    assert {element.name for _, element in strategy.walk()} <= shown
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
        "svg", "title", "style", "g", "rect", "circle", "path", "text",
    }  # fmt: skip
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")


@given(st.text(min_size=1).filter(lambda name: name.isprintable() and "/" not in name and name not in TAKEN), st.text())
def test_any_name_and_any_label_can_be_drawn(name: str, value: str):
    """No text makes a picture that does not parse."""
    a = step(name)
    strategy = Strategy("x", START >> a.named("first") >> a, a.on(value) >> END, a.otherwise() >> END)
    root = ElementTree.fromstring(strategy.to_svg().encode())
    assert any((each.text or "").startswith(f"{name}: ") for each in root.iter(f"{SVG}title"))
    assert strategy.to_mermaid().count("\n") == 10


def boxes(root: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    rects = [each for each in root.iter(f"{SVG}rect") if each.get("class") in ("node", "tap", "place")]
    return [
        (x, y, x + float(each.get("width", 0)), y + float(each.get("height", 0)))
        for each in rects
        for x, y in [(float(each.get("x", 0)), float(each.get("y", 0)))]
    ]


Targets = list[list[int]]


@st.composite
def graphs(draw: st.DrawFn) -> Targets:
    size = draw(st.integers(1, 12))
    return draw(st.lists(st.lists(st.integers(0, size - 1), max_size=2), min_size=size, max_size=size))


def of_targets(targets: Targets) -> Strategy[Any, Any]:
    nodes: list[Any] = steps(" ".join(f"n{number}" for number in range(len(targets))))
    paths: list[Any] = [START >> nodes[0]]
    for number, (source, out) in enumerate(zip(nodes, targets, strict=True)):
        paths += [source.when(long_enough) >> nodes[target] for target in out]
        paths.append(source.otherwise() >> [*nodes, END][number + 1])
    return Strategy("random", *paths)


@given(graphs())
def test_nothing_lies_on_a_node(targets: Targets):
    """In any graph, nodes and labels keep clear of one another, edges of foreign nodes, and all stay in the picture."""
    root = ElementTree.fromstring(of_targets(targets).to_svg())
    found = boxes(root)
    for one, other in itertools.combinations(found, 2):
        assert one[2] < other[0] or other[2] < one[0] or one[3] < other[1] or other[3] < one[1]
    left, top, width, height = map(float, (root.get("viewBox") or "").split())
    assert all(x >= left and y >= top and right <= left + width and low <= top + height for x, y, right, low in found)
    for label in (text for text in root.iter(f"{SVG}text") if "label" in (text.get("class") or "")):
        x, y = float(label.get("x", 0)), float(label.get("y", 0))
        assert not [box for box in found if box[0] < x < box[2] and box[1] < y < box[3]]
        assert left < x < left + width
        assert top < y < top + height
    for path in (part.get("d", "") for part in root.iter(f"{SVG}path") if part.get("class", "").startswith("edge")):
        for x, y in upright(path):
            assert not [box for box in found if box[0] + 0.1 < x < box[2] - 0.1 and box[1] + 0.1 < y < box[3] - 0.1]


def upright(path: str) -> list[tuple[float, float]]:
    """Give points on an edge: both ends and the middle of every upright or bent part."""
    points: list[tuple[float, float]] = []
    x = y = 0.0
    for command, text in re.findall(r"([MVC])([^MVC]*)", path):
        numbers = [float(each) for each in text.split()]
        to = (x, numbers[0]) if command == "V" else (numbers[-2], numbers[-1])
        if command == "M":
            x, y = to
            continue
        points += [(x, y), ((x + to[0]) / 2, (y + to[1]) / 2), to]
        x, y = to
    return points


def test_a_straight_line_is_drawn_straight():
    """The boxes of a chain stand under one another, and so they do beside a loop back or an error way."""
    a, b, c = steps("a b c")
    chain = Strategy("x", START >> a >> b >> c, c.otherwise() >> END)
    side = Strategy(
        "x", START >> a >> b >> c, c.when(long_enough) >> a, c.otherwise() >> END, b.on_error(OSError) >> END
    )
    for strategy in (chain, side):
        middles = [(x + right) / 2 for x, _, right, _ in boxes(ElementTree.fromstring(strategy.to_svg()))][:-1]
        assert max(middles) - min(middles) < 0.2


def test_pictures_are_the_same_in_every_process():
    """Nothing in a picture depends on hash seeds, addresses or what was drawn before."""
    program = (
        "from tests.graph.test_drawing import nested; import sys; sys.stdout.reconfigure(encoding='utf-8'); "
        "print(nested().to_svg() + nested().to_mermaid(), end='')"
    )
    drawn = {
        subprocess.run(
            [sys.executable, "-X", "utf8", "-c", program],
            capture_output=True,
            check=True,
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
        ).stdout.decode()
        for seed in ("1", "2")
    }
    assert drawn == {nested().to_svg() + nested().to_mermaid()}


def test_notebooks_show_the_picture():
    """A strategy at the end of a cell is drawn."""
    made = loop()
    assert made._repr_svg_() == made.to_svg()
    drawn, outline = made._repr_html_(), made.outline
    assert drawn == outline._repr_html_()
    assert ElementTree.fromstring(drawn).get("class") == "graphagent-drawing"
    rules = re.findall(r"^(.+?)\{", ElementTree.fromstring(drawn).findtext(f"{SVG}style"), re.MULTILINE)
    assert len(rules) > 10
    assert all(each.startswith(".graphagent-drawing") for rule in rules for each in rule.split(","))


def large(count):
    """Return a strategy of so many nodes in a row, a third of which also jump, far back or a little forward."""
    nodes: list[Any] = steps(" ".join(f"n{number}" for number in range(count)))
    paths: list[Any] = [START >> nodes[0]]
    for number, source in enumerate(nodes):
        if number % 3 == 0:
            paths.append(source.when(long_enough) >> nodes[(number * 7919) % 40 + max(0, min(number - 20, count - 50))])
        paths.append((source.otherwise() if number % 3 == 0 else source) >> [*nodes, END][number + 1])
    return Strategy("large", *paths)


def test_large_graphs_are_drawn():
    """Of four times as many nodes, with jumps; that is not much more than four times as much work."""
    few, many = large(80), large(320)
    assert many.to_svg().count('class="node"') == 320
    assert calls(many.to_svg) < 8 * calls(few.to_svg)


@pytest.mark.thorough
def test_two_thousand_nodes_are_drawn():
    """Without deep recursion."""
    assert large(2000).to_svg().count('class="node"') == 2000
