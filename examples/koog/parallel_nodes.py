"""Koog's parallel nodes, and what becomes of the results: fold, selectBy, selectByMax, selectByIndex.

python examples/koog/parallel_nodes.py
python examples/koog/parallel_nodes.py --model llama3.2 --base-url http://localhost:11434/v1
"""

from __future__ import annotations

from index import agent, show

from graphagent import END, START, Context, Strategy, node, parallel
from graphagent.nodes import choose


@node
async def fair(ctx: Context, topic: str) -> str:
    return f"A joke about {topic}."


@node
async def better(ctx: Context, topic: str) -> str:
    return f"A better joke, about {topic}."


@node
async def long(ctx: Context, topic: str) -> str:
    return f"A joke about {topic} that is so long that nobody remembers how it began."


jokes = parallel(fair, better, long, name="jokes")


async def fold() -> object:
    """A function makes one value of all results."""

    def joined(found: tuple[str, str, str]) -> str:
        return " / ".join(each[:8] for each in found)

    return (await agent(Strategy("s", START >> jokes, jokes.map(joined) >> END)).run("cats")).output


async def select_by() -> object:
    """The first result that a test accepts; if there is none, the error says so."""

    def first_better(found: tuple[str, str, str]) -> str:
        return next(each for each in found if "better" in each)

    return (await agent(Strategy("s", START >> jokes, jokes.map(first_better) >> END)).run("cats")).output


async def select_by_max() -> object:
    """The largest by some measure."""

    def longest(found: tuple[str, str, str]) -> str:
        return max(found, key=len)

    return (await agent(Strategy("s", START >> jokes, jokes.map(longest) >> END)).run("cats")).output


async def select_by_index() -> object:
    """The one that a model prefers; it joins the transcript, and the others do not."""
    strategy = Strategy("s", START >> jokes, jokes.map(list[str]) >> choose("The funniest.") >> END)
    return (await agent(strategy, {"value": 2}).run("cats")).output


if __name__ == "__main__":
    show(fold, select_by, select_by_max, select_by_index)
