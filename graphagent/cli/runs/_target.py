"""Where the runs of a command come from: a store, an agent, and the ids that people abbreviate."""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_args

import anyio
import typer

from graphagent.cli import _options
from graphagent.cli._phrases import others, whose
from graphagent.errors import RunNotFoundError, StoreError
from graphagent.run import Status, list_runs
from graphagent.run.durable import read_run, run_head, run_owners

if TYPE_CHECKING:
    from graphagent import Agent
    from graphagent.protocols import Store
    from graphagent.run import Head, Question
    from graphagent.run.durable import StoredRun

T = TypeVar("T")
STATES = (*get_args(Status), "interrupted", "damaged")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the runs and the agent of a command are."""

    file: Path | None
    key: str | None
    owner: str
    agent: str | None = None

    def answer(self, run_id: str, questions: Sequence[Question]) -> str:
        """Give the command that answers a run."""
        several = (shlex.quote(f"{each.id}=ANSWER") for each in questions)
        words = "ANSWER" if len(questions) == 1 else " ".join(several)
        return self.command(f"answer {shlex.quote(run_id)} {words}")

    def command(self, words: str) -> str:
        """Give a command that works on the same runs."""
        shown = self.key if self.key and self.key.startswith(("env:", "file:")) else self.key and "KEY"
        options = (
            ("--agent", self.agent or "MODULE:AGENT"),
            ("--store", self.file and str(self.file)),
            ("--key", shown),
            ("--owner", self.owner),
        )
        named = " ".join(f"{name} {shlex.quote(value)}" for name, value in options if value)
        return f"graphagent runs {words} {named}"


def with_store(file: Path | None, key: str | None, work: Callable[[Store], Awaitable[T]], *, new: bool = False) -> T:
    """Open a store, do something with it, and close it; `new` makes one that is not there."""

    async def main() -> T:
        async with _options.store("runs", file, key, new=new) as store:
            return await work(store)

    return anyio.run(main)


def read_stored(
    place: Place, run: str | None, *, first: Callable[[Store, str], Awaitable[None]] | None = None
) -> StoredRun:
    """Read a run that a person names, with the facts that its agent knows, if one is named; something may be done first."""

    async def main() -> StoredRun:
        async with opened(place) as (store, agent):
            run_id = await found(store, place.owner, run)
            if first is not None:
                await first(store, run_id)
            features = agent.features if agent is not None else None
            return await read_run(store, run_id, owner=place.owner, features=features)

    return anyio.run(main)


@asynccontextmanager
async def opened(place: Place) -> AsyncGenerator[tuple[Store, Agent[Any, Any] | None]]:
    """Open the store that is named, or that of the agent, and give the agent with it."""
    agent = None
    if place.agent is not None:
        from graphagent.cli._user_code import agent_at

        agent = agent_at(place.agent)
    if agent is not None and agent.store is not None and place.file is None:
        if place.key is not None:
            raise typer.BadParameter("the agent has a store of its own, and opens it itself; --key goes with --store")
        yield agent.store, agent
        return
    async with _options.store("runs", place.file, place.key) as store:
        if agent is not None:
            agent.store = store
        yield store, agent


async def found(store: Store, owner: str, text: str | None) -> str:
    """Give the id of the run that a person names: in full, by its beginning, or not at all, which means the newest.

    Raises:
        BadParameter: several begin with that.
        RunNotFoundError: there is none.
    """
    if text is not None:
        try:
            return (await run_head(store, text, owner=owner)).run_id
        except RunNotFoundError:
            pass
    heads = await list_runs(store, owner=owner)
    if text is None:
        newest = next((head.run_id for head in heads if not head.parent), None)
        return newest if newest is not None else await _nothing(store, owner)
    fits = [head.run_id for head in heads if head.run_id.startswith(text)]
    whole = [each for each in fits if "/" not in each[len(text) :]]  # without the parts of the one that is meant
    fits = whole if len(whole) == 1 else fits
    if len(fits) > 1:
        more = " …" if len(fits) > 4 else ""
        raise typer.BadParameter(f"{text!r} is the beginning of {len(fits)} runs: {', '.join(fits[:4])}{more}")
    if not fits:
        raise RunNotFoundError(text, owner)
    return fits[0]


async def _nothing(store: Store, owner: str) -> NoReturn:
    raise StoreError(await nothing_there(store, owner))


async def nothing_there(store: Store, owner: str) -> str:
    """Say that an owner has no runs, and who has some."""
    return f"There are no runs{whose(owner)} here.{others(await run_owners(store), owner, 'runs')}"


def states(status: Collection[str] | None) -> Collection[Any] | None:
    """Give the states that were named.

    Raises:
        BadParameter: one is none.
    """
    for each in status or ():
        if each not in STATES:
            raise typer.BadParameter(f"{each!r} is no status; there are {', '.join(STATES[1:])}", param_hint="--status")
    return status or None


def plain(head: Head) -> dict[str, object]:
    """Give what is said of a run at a glance as plain JSON data."""
    return {
        "run_id": head.run_id, "owner": head.owner, "strategy": head.strategy, "status": head.state, "reason": head.damaged or head.reason,
        "title": head.title, "started": head.started, "updated": head.updated, "turns": head.turns, "tokens": head.tokens,
        "cost": head.cost, "seconds": head.seconds, "parent": head.parent, "origin": list(head.origin) if head.origin else None,
        "executed_by": head.claim.holder if head.claim is not None and head.running else None,
    }  # fmt: skip
