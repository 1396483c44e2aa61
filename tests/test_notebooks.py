"""Objects on the last line of a cell: what a notebook shows of them, and what no text in them can do to its page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import nbformat
import pytest
from nbclient import NotebookClient

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import NodeFailedError
from graphagent.history import read_run
from graphagent.llm import ToolCall
from graphagent.memory import Concept, KnownFact, Notes, Scope, SingleFact, Subject
from graphagent.run import list_runs
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\u202e</pre></div><style>*{display:none}</style>&amp;"
SETUP = """
from graphagent import Agent, blocking
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

def agent():
    return Agent(single_run(), model=ScriptedModel(["Take <b>an umbrella</b>."]), name="guide")
"""


@node
async def refuse(ctx: Context, task: str) -> str:
    raise ValueError(f"refused: {HOSTILE}")


@node
async def approve(ctx: Context, task: str) -> str:
    return str(await ctx.ask(f"Pay? {HOSTILE}", bool))


@tool
async def look(text: str) -> str:
    """Look."""
    return text


class Elements(HTMLParser):
    """The tags of a page, the names of their attributes, and the text outside of styles."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.text, self.styles = set(), set(), "", ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        if self.cdata_elem == "style":
            self.styles += data
        else:
            self.text += data


def cells(*sources):
    """Execute cells in a kernel, and return the last output of each."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in sources])
    NotebookClient(notebook, allow_errors=True, kernel_name="python3").execute()
    return [each.outputs[-1] if each.outputs else None for each in notebook.cells]


def test_in_a_notebook_a_run_is_awaited_or_blocked_for_and_its_result_is_shown():
    """`run_sync`, which cannot work in a running loop, says in one line what to write."""
    _, strategy, awaited, sync, blocked = cells(
        SETUP, "agent().strategy", "await agent().run('x', run_id='a')", "agent().run_sync('x')", "blocking(blocking(agent()).start('x', run_id='b'))"
    )  # fmt: skip
    assert strategy["data"]["text/html"].startswith("<svg ")
    assert "Take &lt;b&gt;an umbrella&lt;/b&gt;." in awaited["data"]["text/html"]
    assert awaited["data"]["text/plain"] == "<run 'a': done, 1 node, 1 turn>"
    assert sync["ename"] == "RuntimeError"
    assert "write `await agent.run(…)`" in sync["evalue"]
    assert "\n" not in sync["evalue"]
    assert "run b" in blocked["data"]["text/html"]


async def test_no_text_in_a_card_is_more_than_text():
    """Tasks, answers, results of tools, errors, questions, notes and facts make no element, and the style of a card holds for cards alone."""
    store, notes = MemoryStore(), Notes(MemoryStore())
    model = ScriptedModel([ToolCall("look", {"text": HOSTILE}), HOSTILE])
    result = await Agent(single_run(), model=model, tools=[look], store=store).run(HOSTILE, run_id="done")
    waits = await Agent(Strategy("w", START >> approve >> END), store=store).run(HOSTILE, run_id="waits")
    failing = Agent(Strategy("f", START >> refuse >> END), store=store).start(HOSTILE, run_id="fails")
    with pytest.raises(NodeFailedError):
        await failing.finish()
    await notes.remember(HOSTILE, source=HOSTILE, categories=[HOSTILE])
    [match] = await notes.recall("script alert")
    fact = SingleFact(Concept("theme", HOSTILE), HOSTILE)
    shown = [
        result, waits, failing, result.memory, await read_run(store, "done"), await read_run(store, "fails"), *await list_runs(store),
        match, match.record, fact, KnownFact(fact, Subject(HOSTILE), Scope.agent(HOSTILE)),
    ]  # fmt: skip
    for each in shown:
        page = Elements(each._repr_html_())
        assert "<script>alert(1)</script>" in page.text, each
        assert "\u202e" not in page.text, each
        assert not page.tags & {"script", "img", "link", "iframe", "a"}, each
        assert page.attributes <= {"class", "style", "open"} | SVG, each
        rules = re.findall(r"^\.?([\w-]+)[^{}]*\{", page.styles, re.MULTILINE)
        assert all(rule.startswith(("graphagent-card", "graphagent-drawing")) for rule in rules), each
    assert "alert" not in repr([fact, result.memory])


SVG = {
    "xmlns", "role", "width", "height", "viewbox", "x", "y", "rx", "cx", "cy", "r", "d", "transform", "data-node", "data-edge",
}  # fmt: skip


def test_a_card_has_the_beginning_of_a_long_text():
    """A notebook is saved with all that it shows."""
    shown = SingleFact(Concept("pear"), "pear " * 10_000)._repr_html_()
    assert len(shown) < 25_000
    assert "30,000 more characters are not shown" in shown
