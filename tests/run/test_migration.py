"""Runs of an earlier version of a strategy continue in a later one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import MigrationError, StrategyChangedError
from graphagent.history import read_run, run_head
from graphagent.run import Migration
from graphagent.store import MemoryStore, SqliteStore

CALLS = []


@dataclass
class Draft:
    text: str
    words: int = 0


@node
async def write(ctx: Context, topic: str) -> str:
    return f"about {topic}"


@node(name="check")
async def check_text(ctx: Context, text: str) -> str:
    CALLS.append(await ctx.once("counted", lambda: counted(text)))
    return f"{text}: {await ctx.ask('Is it right?', bool)}"


@node(name="review")
async def check_draft(ctx: Context, draft: Draft) -> str:
    CALLS.append(await ctx.once("counted", lambda: counted(draft.text)))
    return f"{draft.text} in {draft.words}: {await ctx.ask('Is it right?', bool)}"


@node
async def to_draft(ctx: Context, text: str) -> Draft:
    return Draft(text)


async def counted(text):
    CALLS.append("live")
    return len(text)


FIRST = Strategy("letter", START >> write >> check_text >> END)
SECOND = Strategy("letter", START >> write >> to_draft >> check_draft >> END)


def as_draft(text):
    return {"text": text, "words": len(text.split())}


RENAMED = Migration("1", "2", nodes={"check": "review"}, inputs={"review": as_draft})


@pytest.fixture(autouse=True)
def fresh():
    CALLS.clear()


async def begun(store, run_id="letter-1"):
    agent = Agent(FIRST, store=store, version="1")
    result = await agent.run("rain", run_id=run_id)
    assert result.status == "waiting"
    CALLS.clear()


async def test_a_run_continues_at_the_node_of_the_later_version_with_what_it_has_done(tmp_path):
    """The node has another name and another input; what it has done is not done again, and another process sees the same."""
    store = SqliteStore(tmp_path / "runs.db")
    await begun(store)
    agent = Agent(SECOND, store=store, version="2", migrations=[RENAMED])
    looked = await agent.read("letter-1")
    assert [question.node for question in looked.questions] == ["review"]
    assert (await run_head(store, "letter-1")).version == "1"
    result = await agent.resume("letter-1", answer=True)
    assert result.output == "about rain in 2: True"
    assert "live" not in CALLS
    assert (await run_head(store, "letter-1")).version == "2"
    assert [entry.node for entry in (await read_run(store, "letter-1")).entries][-2:-1] == ["review"]
    again = await Agent(SECOND, store=SqliteStore(tmp_path / "runs.db"), version="2").read("letter-1")
    assert again.result.output == result.output


async def test_a_run_that_is_answered_for_a_worker_has_moved_with_its_answer():
    """Whoever continues it finds the answer, and the version, at the node of the later version."""
    store = MemoryStore()
    await begun(store)
    agent = Agent(SECOND, store=store, version="2", migrations=[RENAMED])
    await agent.handle("letter-1").answer(True)
    assert (await run_head(store, "letter-1")).version == "2"
    assert (await agent.resume("letter-1")).output == "about rain in 2: True"


async def test_a_run_goes_through_each_version_to_the_last_one():
    """Migrations lead from one version to the next; each function gets what the one before returned."""
    store = MemoryStore()
    await begun(store)
    seen = []
    chain = [
        Migration("1", "1.5", inputs={"check": lambda text: seen.append(text) or text.upper()}),
        Migration("1.5", "2", nodes={"check": "review"}, inputs={"review": as_draft}),
    ]
    result = await Agent(SECOND, store=store, version="2", migrations=chain).resume("letter-1", answer=False)
    assert (seen, result.output) == (["about rain"], "ABOUT RAIN in 2: False")


async def test_without_a_migration_a_run_waits_for_its_version():
    """The versions are named, nothing is executed or written, and the run continues with the code that it began with."""
    store = MemoryStore()
    await begun(store)
    before = (await run_head(store, "letter-1")).updated
    with pytest.raises(StrategyChangedError, match="- version '1'") as caught:
        await Agent(SECOND, store=store, version="2").resume("letter-1", answer=True)
    assert "+ version '2'" in caught.value.differences
    assert (await run_head(store, "letter-1")).updated == before
    assert (await Agent(FIRST, store=store, version="1").resume("letter-1", answer=True)).output == "about rain: True"


@pytest.mark.parametrize("given", ["digest", "named"])
async def test_an_agent_that_gets_a_version_later_continues_its_runs(given):
    """Runs of an agent without a version continue with one of the same strategy; of another one by their digest."""
    store = MemoryStore()
    result = await Agent(FIRST, store=store).run("rain", run_id="letter-1")
    assert result.status == "waiting"
    if given == "named":
        agent = Agent(FIRST, store=store, version="1")
    else:
        moved = Migration(FIRST.outline.digest, "2", nodes={"check": "review"}, inputs={"review": as_draft})
        agent = Agent(SECOND, store=store, version="2", migrations=[moved])
    assert (await agent.resume("letter-1", answer=True)).status == "done"


@pytest.mark.parametrize("wrong", ["raises", "returns"])
async def test_a_migration_that_fails_says_so_and_changes_nothing(wrong):
    """The error names the run, the versions and the node, and no value; mended, the run continues."""
    store = MemoryStore()
    await begun(store)

    def broken(text):
        if wrong == "raises":
            raise LookupError(text)
        return {"words": text}

    moved = Migration("1", "2", nodes={"check": "review"}, inputs={"review": broken})
    with pytest.raises(MigrationError, match=r"from version '1' to '2': .*the function for 'review'") as caught:
        await Agent(SECOND, store=store, version="2", migrations=[moved]).resume("letter-1", answer=True)
    assert "rain" not in str(caught.value)
    assert caught.value.run_id == "letter-1"
    agent = Agent(SECOND, store=store, version="2", migrations=[RENAMED])
    assert (await agent.resume("letter-1", answer=True)).status == "done"


async def test_a_migration_that_does_not_fit_is_refused():
    """A run whose node is not in the later version under the name that the migration has says where it is."""
    store = MemoryStore()
    await begun(store)
    with pytest.raises(StrategyChangedError, match="- 'check', where the run is"):
        await Agent(SECOND, store=store, version="2", migrations=[Migration("1", "2")]).resume("letter-1", answer=True)


async def test_a_fork_moves_too():
    """A fork of a run of an earlier version begins in the later one, and the origin stays as it is."""
    store = MemoryStore()
    await begun(store)
    agent = Agent(SECOND, store=store, version="2", migrations=[RENAMED])
    entries = (await read_run(store, "letter-1")).entries
    fork = await agent.fork("letter-1", at=entries[-1].number, run_id="letter-2")
    assert fork.status == "waiting"
    assert (await agent.resume("letter-2", answer=True)).output == "about rain in 2: True"
    assert (await run_head(store, "letter-1")).version == "1"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (lambda: Migration("", "2"), "before is the name of a version"),
        (lambda: Migration("1", "2", nodes={"a/b": "c/b"}), "moves a node to another subgraph"),
        (lambda: Migration("1", "2", inputs={"a": 3}), "is a function of the input"),
        (lambda: Agent(FIRST, version="3", migrations=[Migration("1", "2")]), "leads to '2', and not to version '3'"),
        (
            lambda: Agent(FIRST, version="2", migrations=[Migration("1", "2")] * 2),
            "two migrations begin with version '1'",
        ),
        (
            lambda: Agent(FIRST, version="3", migrations=[Migration("1", "2"), Migration("2", "1")]),
            "not to version '3'",
        ),
        (lambda: Agent(FIRST, version="2", migrations=["1"]), "one of it is"),
        (
            lambda: Agent(SECOND, version="2", migrations=[Migration("1", "2", nodes={"check": "reviw"})]),
            r"Migration\('1', '2'\): node='reviw' is not known; did you mean 'review'\?",
        ),
        (
            lambda: Agent(SECOND, version="2", migrations=[Migration("1", "2", inputs={"x": as_draft})]),
            "node='x' is not known; there are 'write', 'to_draft' and 'review'",
        ),
    ],
)
def test_wrong_migrations_are_refused(given, text):
    """A migration, and those of an agent together, are checked where they are declared."""
    with pytest.raises((TypeError, ValueError), match=text):
        given()
