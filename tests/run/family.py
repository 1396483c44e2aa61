"""Agents that call agents, with models that answer by what they are asked: every life of a program does the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import repeat

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.llm import Approve, PricedModel, Prices, ToolCall, ToolCalls
from graphagent.log._bytes import plain
from graphagent.log._header import ROWS
from graphagent.nodes import ask_human, execute_tools, llm_request
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel

PRICES = Prices("1.5", "7", cached="0.25")


def react(name, limit=1):
    """Give a strategy that calls tools until there is text."""
    ask, act = llm_request(), execute_tools(limit=limit)
    return Strategy(name, START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)


def said(request):
    """Give the first thing that a user said in a request."""
    return next(message.text for message in request.messages if message.role == "user")


def results(request):
    """Give what the tools gave, as one text."""
    return "; ".join(message.text for message in request.messages if message.role == "tool")


def question(task):
    """Ask for the page of a book."""
    return f"Which page of {task}?"


@dataclass
class Page:
    """A typed answer."""

    of: str


@dataclass
class Family:
    """A chief who asks two researchers at once; each looks something up, and has a reader read a book.

    What readers ask a person: `""` nothing, `words` and `typed` for the page, `approval` before they open the book. What
    happened in this life of the program is counted.
    """

    store: object = None
    asks: str = ""
    looked: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    chief: Agent = field(init=False)
    researcher: Agent = field(init=False)
    reader: Agent = field(init=False)

    def __post_init__(self):
        @tool
        async def look(what: str) -> str:
            """Look something up."""
            self.looked.append(what)
            return f"{what} is green"

        @tool(approve=True)
        async def open_book(name: str) -> str:
            """Open a book."""
            self.looked.append(name)
            return f"page of {name}"

        @node
        async def text(ctx: Context, page: Page) -> str:
            return page.of

        def reader(request):
            last = request.messages[-1]
            if self.asks == "approval" and last.role == "user":
                return ToolCall("open_book", {"name": last.text}, "c1")
            return f"read {last.text}"

        def researcher(request):
            if request.messages[-1].role == "tool":
                return results(request)
            what = said(request)
            return ToolCalls(
                [ToolCall("look", {"what": what}, "c1"), ToolCall("reader", {"task": f"the {what}"}, "c2")]
            )

        def chief(request):
            if request.messages[-1].role == "tool":
                return results(request)
            return ToolCalls([ToolCall("researcher", {"task": what}, what) for what in ("moss", "fern")])

        read = llm_request(tools=False)
        ways = {
            "": START >> read >> END,
            "words": START >> ask_human(question, str) >> read >> END,
            "typed": START >> ask_human(question, Page) >> text >> read >> END,
        }
        reading = react("reading") if self.asks == "approval" else Strategy("reading", ways[self.asks])
        self.reader = self._agent(reading, reader, "reader", "Reads a book.", [open_book] * (self.asks == "approval"))
        self.researcher = self._agent(react("research"), researcher, "researcher", "Finds out.", [look, self.reader])
        self.chief = self._agent(react("lead", limit=2), chief, "chief", "Leads.", [self.researcher], self.store)

    def _agent(self, strategy, rule, name, description, tools=(), store=None):
        def answer(request):
            self.asked.append(name)
            return rule(request)

        model = PricedModel(ScriptedModel(repeat(answer), name=name), PRICES)
        return Agent(strategy, model=model, tools=tools, name=name, description=description, store=store)

    async def finish(self, run_id="r", owner=""):
        """Run the chief, or go on with it, and answer whatever is asked, one question after the other."""
        try:
            result = await self.chief.resume(run_id, owner=owner)
        except LookupError:
            result = await self.chief.run("plants", run_id=run_id, owner=owner)
        while result.questions:
            asked = result.questions[-1]
            result = await self.chief.resume(run_id, answers={asked.id: self.answer(asked)}, owner=owner)
        return result

    def answer(self, asked):
        """Give the answer to a question."""
        if asked.kind == "approval":
            return Approve({"name": asked.call.arguments["name"].upper()})
        page = asked.question.removeprefix("Which page of ").removesuffix("?")
        return f"page of {page}" if self.asks == "words" else Page(f"page of {page}")


class Commits(MemoryStore):
    """A store that remembers its commits, so that it can be had as it was behind any of them."""

    def __init__(self):
        super().__init__()
        self.commits = []

    async def commit(self, *changes):
        await super().commit(*changes)
        self.commits.append(changes)

    async def after(self, count):
        """Give a store as this one was behind so many commits, for a process that knows nothing of an earlier one."""
        store = Commits()
        for changes in self.commits[:count]:
            await store.commit(*changes)
        return store

    async def effects(self, *kinds):
        """Give the effects of such kinds that the run and its sub-agents have recorded, each with the path of its frame."""
        found = []
        async for item in self.scan(("runs",)):
            if item.key[2] == ROWS and len(item.key) == 6:
                found += [each for each in plain(item.value)[2] if each["type"] == "effect" and each["kind"] in kinds]
        return [(each.get("at", ""), each) for each in found]


def rows(ledger):
    """Give the rows of a ledger without their order, which differs where things happen at once."""
    return sorted((row.node, row.what, row.model, row.usage.total_tokens, row.usage.cost) for row in ledger.charges)
