"""Runs to look at, and a browser without scripts that reads pages."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from html.parser import HTMLParser
from urllib.parse import urlencode

import httpx2

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import NodeFailedError
from graphagent.inspect import Inspector
from graphagent.llm import ToolCall
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

HOSTILE = '<script>alert(1)</script><img src=x onerror=alert(2)>" onload="alert(3)\u202e'


@tool
def look(place: str) -> str:
    """Look.

    Args:
        place: Where.
    """
    if place == "nowhere":
        raise ValueError(f"no such place {HOSTILE}")
    return f"saw {place}"


@node
async def fetch(ctx: Context, task: str) -> str:
    """Fetch something that is not there."""
    raise LookupError(f"order {task} is not there")


@node
async def approve(ctx: Context, task: str) -> str:
    """Ask a person."""
    return await ctx.ask(f"May I {task}?", about={"amount": 20})


def assistant(store, *replies):
    """Return an agent with a tool, whose model answers so."""
    return Agent(single_run(), model=ScriptedModel(replies), tools=[look], store=store)


async def filled(store=None):
    """Return a store with a run of each kind: one that is done, one that failed, one that waits, and those of a thread and of an owner."""
    store = store or MemoryStore()
    calls = [ToolCall("look", {"place": "nowhere"}), ToolCall("look", {"place": HOSTILE})]
    await assistant(store, calls, HOSTILE).run(f"Find {HOSTILE}", run_id="found")
    failing = Agent(Strategy("orders", START >> fetch >> END), store=store)
    with suppress(NodeFailedError):
        await failing.run("17", run_id="../fails & more")
    asking = Agent(Strategy("desk", START >> approve >> END), store=store)
    await asking.run("refund it", run_id="asks")
    for number in (1, 2):
        await assistant(store, f"Hello {number}").run(
            f"Question {number}", run_id=f"chat-{number}", thread="ada & co", owner="ada"
        )
    return store


@asynccontextmanager
async def looking(store, prefix="", base="http://127.0.0.1:8766", *, options=None, **app):
    """Yield a client of the pages of a store."""
    served = Inspector(store, **(options or {})).app(prefix=prefix, **app)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(served), base_url=base) as client:
        yield client


def address(view, **query):
    """Return the address of a view."""
    return f"/{view}?{urlencode(query)}"


class Page(HTMLParser):
    """A page as a browser reads it: its elements, its text, and what it would load."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.loaded, self.text, self.ids = [], [], [], "", []
        self.attributes = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        self.attributes |= given.keys()
        self.ids += [given["id"]] if "id" in given else []
        if tag == "a":
            self.links.append(given["href"])
        self.loaded += [given[name] for name in ("src", "srcset", "data") if name in given]
        if tag == "link":
            self.loaded.append(given["href"])

    def handle_data(self, data):
        self.text += data


async def read(client, path):
    """Return a page that is there."""
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return Page(answer.text)
