"""What mypy and pyright must refuse of what `blocking` gives: each line marked E, and no other. Checked, never executed."""

# pyright: strict

from __future__ import annotations

from graphagent import END, START, Agent, Context, Strategy, blocking, node
from graphagent.memory import EVERYTHING, Concept, Notes, Scope, StoreMemoryProvider
from graphagent.store import MemoryStore


@node
async def count(ctx: Context, text: str) -> int:
    return len(text)


plain = blocking(Notes("plain.db"))
agent = blocking(Agent(Strategy("count", START >> count >> END)))
provider = blocking(StoreMemoryProvider(MemoryStore()))


def misspelt() -> None:
    plain.recal("x")  # E: a method
    plain.scope("/a").remembers("x")  # E: of a view
    plain.scope("/a").aclose()  # E: a view has nothing to close
    agent.runs("hi")  # E: of an agent
    agent.start("hi").steps()  # E: of a run
    print(agent.run("hi").outputs)  # E: of a result
    provider.loads(Concept("a", "b"), EVERYTHING, Scope.agent("a"))  # E: of a provider
    print(plain.recall("x")[0].content)  # E: the text stands in its record


def wrong_arguments() -> None:
    plain.remember(5)  # E: a text
    plain.remember("x", importance="high")  # E: a number
    plain.forget("/office")  # E: a keyword
    plain.recall("x", max=3)  # E: it is called limit
    plain.recall("x", depth="deeper")  # E: there are three depths
    plain.forget(ids=5)  # E: several
    agent.run(5)  # E: the strategy takes text
    agent.run()  # E: the strategy takes something
    agent.resume("r", onwer="ada")  # E: it is called owner
    provider.save("Oslo", EVERYTHING, Scope.agent("a"))  # E: a fact


def results() -> None:
    print(plain.get("x").content)  # E: there may be none
    first: str = plain.recall("x")[0]  # E: a match
    print(first)
    output: str = agent.run("hi").output  # E: a number
    print(output)
    kept: str = plain.remember("x")  # E: a record
    print(kept)
    print(agent.start("hi").step().model_turn)  # E: None, where it has ended


def notes_themselves() -> None:
    plain.scopes = ("/a",)  # E: what is set here is not set there
    with agent.run_sync("hi"):  # E: a result is not a context manager
        pass
    for each in plain:  # E: notes are no iterator
        del each
    Notes().recall("x")[0]  # E: without blocking it is awaited


async def awaited() -> None:
    await plain.recall("x")  # E: it waits itself
    async with plain:  # E: it is `with`
        pass
