"""The runs that a command works on: their store, owner and agent, and abbreviated ids."""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_args

import anyio
import typer

from graphagent.cli import _output, _stores
from graphagent.cli._options import (
    AnchorPlace,
    argument,
    file_option,
    flag,
    key_option,
    key_shown,
    option,
    owner_option,
)
from graphagent.cli._phrases import others, whose
from graphagent.cli._store_place import StorePlace
from graphagent.cli.runs._completion import run_ids, thread_names
from graphagent.errors import RunError, RunNotFoundError, StoreError

if TYPE_CHECKING:
    from graphagent import Agent
    from graphagent.history import StoredRun
    from graphagent.protocols import Store
    from graphagent.run import Question, RunHeader

T = TypeVar("T")

# Options of several commands.

Which = Annotated[str, argument("RUN", "The id of a run, or its beginning.", autocompletion=run_ids)]
WhichOrNewest = Annotated[
    str | None,
    argument("RUN", "The id of a run, or its beginning. Default: the newest run.", autocompletion=run_ids),
]
NewId = Annotated[str | None, option("--run-id", "ID", "The id of the new run.")]
AllowChanged = Annotated[
    bool, flag("--allow-changed", text="Continue although the strategy has changed, if the journal still fits it.")
]
InStates = Annotated[
    list[str] | None,
    option(
        "--status",
        "STATUS",
        "Only runs that are done, ended, failed, cancelled, paused, waiting, sleeping, queued, interrupted, damaged or running; can be repeated.",
    ),
]
InThread = Annotated[
    str | None, option("--thread", "NAME", "Only the runs of this thread.", autocompletion=thread_names)
]
_AgentsOrNamed = Annotated[StorePlace | None, file_option("runs", first="that of the agent, if it has one")]


@dataclass(frozen=True, slots=True)
class RunsStore:
    """The store of the runs."""

    store: Annotated[StorePlace | None, file_option("runs")] = None
    key: Annotated[str | None, key_option("Open an encrypted store")] = None
    anchor: AnchorPlace = None

    def given(self) -> list[str]:
        """Return the options as they were given, for a command that is printed."""
        options = (("--store", self.store), ("--key", self.key), ("--anchor", self.anchor))
        return [each for name, value in options if value is not None for each in (name, str(value))]

    def use(self, work: Callable[[Store], Awaitable[T]], *, new: bool = False) -> T:
        """Open the store, await `work` with it, close it, and return the result of `work`. `new` creates a missing store."""
        return _stores.with_store("runs", self.store, self.key, work, anchor=self.anchor, new=new)


@dataclass(frozen=True, slots=True)
class AgentStore(RunsStore):
    """The store of the runs of an agent."""

    store: _AgentsOrNamed = None


@dataclass(frozen=True, slots=True)
class RunsTarget(RunsStore):
    """The runs of one owner; without a name, those without an owner."""

    owner: Annotated[str, owner_option("Whose runs. Default: those without an owner.")] = ""

    async def owners(self, store: Store, *, everybody: bool) -> list[str]:
        """Return the selected owners of runs."""
        from graphagent.history import run_owners

        return await run_owners(store) if everybody else [self.owner]

    def say_whose(self, *, everybody: bool) -> None:
        """Say that a list has only the runs without an owner, if no owner was named."""
        if not (self.owner or everybody):
            _output.aside("Runs with an owner are listed with --owner NAME or --all-owners.")


@dataclass(frozen=True, slots=True)
class ReadTarget(RunsTarget):
    """Runs to read, with an agent that knows their facts and step types."""

    store: _AgentsOrNamed = None
    agent: Annotated[
        str | None,
        option("--agent", "MODULE:AGENT", "The agent, if the run has step types of your own, or facts."),
    ] = None

    def answer(self, run_id: str, questions: Sequence[Question]) -> str:
        """Return the command that answers the questions of a run."""
        several = (shlex.quote(f"{each.id}=ANSWER") for each in questions)
        words = "ANSWER" if len(questions) == 1 else " ".join(several)
        return self.command(f"answer {shlex.quote(run_id)} {words}")

    def command(self, words: str) -> str:
        """Return a command that works on the same runs. It does not contain a key."""
        options = (
            ("--agent", self.agent or "MODULE:AGENT"),
            ("--store", self.store and str(self.store)),
            ("--key", key_shown(self.key)),
            ("--anchor", self.anchor),
            ("--owner", self.owner),
        )
        named = " ".join(f"{name} {shlex.quote(value)}" for name, value in options if value)
        return f"graphagent runs {words} {named}"

    async def taken(self, agent: Agent[Any, Any], run_id: str) -> RunError:
        """Return the error for a new run whose id is taken, which describes the existing run."""
        resume, answer, show = (self.command(f"{word} {shlex.quote(run_id)}") for word in ("resume", "answer", "show"))
        return await taken(agent, self.owner, run_id, resume=resume, answer=answer, show=show)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[tuple[Store, Agent[Any, Any] | None]]:
        """Open the named store or that of the agent, and yield the store with the agent."""
        agent = None
        if self.agent is not None:
            from graphagent.cli._user_code import agent_at

            agent = agent_at(self.agent)
        if agent is not None and agent.store is not None and self.store is None:
            if self.key is not None:
                raise typer.BadParameter(
                    "the agent has a store of its own, and opens it itself; --key goes with --store"
                )
            yield agent.store, agent
            return
        async with _stores.open_store("runs", self.store, self.key, self.anchor) as store:
            if agent is not None:
                agent.store = store
            yield store, agent

    def read(self, run: str | None, *, first: Callable[[Store, str], Awaitable[None]] | None = None) -> StoredRun:
        """Return the named run, with the facts known to its agent.

        Args:
            run: An id, its beginning, or None for the newest run.
            first: Called and awaited with the store and the id before the run is read.
        """
        from graphagent.history import read_run

        async def main() -> StoredRun:
            async with self.open() as (store, agent):
                run_id = await run_named(store, self.owner, run)
                if first is not None:
                    await first(store, run_id)
                features = agent.features if agent is not None else None
                return await read_run(store, run_id, owner=self.owner, features=features)

        return anyio.run(main)


@dataclass(frozen=True, slots=True)
class ExecuteTarget(ReadTarget):
    """Runs to execute, which takes an agent."""

    agent: Annotated[
        str,
        typer.Option(
            "--agent",
            metavar="MODULE:AGENT",
            help="A module or file, and the name of an agent in it, or of a function that returns one.",
        ),
    ] = cast("str", ...)  # makes it a required option


@dataclass(frozen=True, slots=True)
class ContinueTarget(ReadTarget):
    """Runs to continue: here by an agent, or by a worker."""

    agent: Annotated[
        str | None,
        option(
            "--agent",
            "MODULE:AGENT",
            "A module or file, and the name of an agent in it, or of a function that returns one, which continues the run here. Default: a "
            "worker continues it.",
        ),
    ] = None


async def run_of_anybody(store: Store, text: str | None) -> tuple[str, str]:
    """Return the owner and the id of a run, named as in `run_named`, whoever has it.

    Raises:
        BadParameter: Several owners have such a run, or one has several.
        RunNotFoundError: The run does not exist.
        StoreError: No run was named, and there is none.
    """
    from graphagent.history import run_head, run_owners

    found: list[tuple[str, str]] = []
    for owner in await run_owners(store):
        with suppress(RunNotFoundError):
            found.append((owner, await run_named(store, owner, text)))
    if not found:
        return "", await run_named(store, "", text)
    if text is None:
        heads = [await run_head(store, run_id, owner=owner) for owner, run_id in found]
        newest = max(heads, key=lambda head: head.started)
        return newest.owner, newest.run_id
    whole = [each for each in found if each[1] == text] or found
    if len(whole) > 1:
        owners = ", ".join(repr(owner) for owner, _ in whole[:4])
        raise typer.BadParameter(f"{len(whole)} owners have a run {text!r}: {owners}; say whose with --owner NAME")
    return whole[0]


async def run_named(store: Store, owner: str, text: str | None) -> str:
    """Return the id of a run named in full, by the beginning of its id, or not at all, which means the newest run.

    Raises:
        BadParameter: The ids of several runs begin with the text.
        RunNotFoundError: The run does not exist.
        StoreError: No run was named, and the owner has none.
    """
    from graphagent.history import run_head
    from graphagent.run import list_runs

    if text is not None:
        try:
            return (await run_head(store, text, owner=owner)).run_id
        except RunNotFoundError:
            pass
    heads = await list_runs(store, owner=owner)
    if text is None:
        newest = next((head.run_id for head in heads if not head.parent), None)
        if newest is None:
            raise StoreError(await no_runs(store, owner))
        return newest
    fits = [head.run_id for head in heads if head.run_id.startswith(text)]
    whole = [each for each in fits if "/" not in each[len(text) :]]  # without the runs of its sub-agents
    fits = whole if len(whole) == 1 else fits
    if len(fits) > 1:
        more = " …" if len(fits) > 4 else ""
        raise typer.BadParameter(f"{text!r} is the beginning of {len(fits)} runs: {', '.join(fits[:4])}{more}")
    if not fits:
        raise RunNotFoundError(text, owner)
    return fits[0]


async def taken(agent: Agent[Any, Any], owner: str, run_id: str, *, resume: str, answer: str, show: str) -> RunError:
    """Return the error for a new run whose id is taken, which describes the existing run and the command for it.

    Args:
        agent: Has the run in its store.
        owner: The owner of the run.
        run_id: The id of the run.
        resume: The command that resumes it.
        answer: The command that answers its questions.
        show: The command that shows it.
    """
    from graphagent.history import run_head

    assert agent.store is not None
    head = await run_head(agent.store, run_id, owner=owner)
    error = RunError(
        f"there is a run {run_id!r} already: {_output.shortened(head.title)!r}, {head.status}, of the strategy {head.strategy!r}, "
        f"begun {_output.moment(head.started)}; give another --run-id"
    )
    if head.status == "running":
        error.add_note(f"Watch it with: {show} --follow")
    elif head.status in ("done", "ended", "damaged") or head.strategy != agent.strategy.name:
        error.add_note(f"Read it with: {show}")
    else:
        error.add_note(f"Answer with: {answer}" if head.status == "waiting" else f"Resume it with: {resume}")
    return error


async def no_runs(store: Store, owner: str) -> str:
    """Return a sentence that says that an owner has no runs, and names the owners who do."""
    from graphagent.history import run_owners

    return f"There are no runs{whose(owner)} here.{others(await run_owners(store), owner, 'runs')}"


def states(status: Collection[str] | None) -> Collection[Any] | None:
    """Return the states of `--status`; None: all.

    Raises:
        BadParameter: A state does not exist.
    """
    from graphagent.run import Status

    existing = get_args(Status)
    for each in status or ():
        if each not in existing:
            raise typer.BadParameter(
                f"{each!r} is not a status; there are {', '.join(existing[1:])}", param_hint="--status"
            )
    return status or None


def with_parts(
    head: RunHeader, parts: Mapping[str, list[RunHeader]], depth: int = 0
) -> Iterator[tuple[RunHeader, int]]:
    """Yield a run, and then its parts, as `family` returns them, each with its depth."""
    yield head, depth
    for part in parts.get(head.run_id, ()):
        yield from with_parts(part, parts, depth + 1)


def plain(head: RunHeader) -> dict[str, object]:
    """Return the columns of a run in a list as JSON data."""
    return {
        "run_id": head.run_id, "owner": head.owner, "strategy": head.strategy, "version": head.version, "status": head.status, "reason": head.damaged or head.reason,
        "title": head.title, "started": head.started, "updated": head.updated, "turns": head.turns, "tokens": head.tokens,
        "cost": head.cost, "seconds": head.seconds, "parent": head.parent, "thread": head.thread, "continues": head.previous, "origin": list(head.origin) if head.origin else None,
        "due": head.due, "queue": head.queue,
        "executed_by": head.claim.holder if head.claim is not None and head.running else None,
    }  # fmt: skip
