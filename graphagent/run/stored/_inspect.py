"""A run as its store has it: read without its agent, to be looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import anyio

from graphagent.codec._internal import decode, read_usage
from graphagent.llm import Usage
from graphagent.run.journal._keys import check, entries_key, parse
from graphagent.run.journal._reader import read_header, read_journal
from graphagent.run.journal._references import look_up
from graphagent.run.state._entries import NodeEnded, Resumed, Started, read_entry
from graphagent.run.state._questions import Question
from graphagent.run.stored._history import Diff, Entry, compare, entries

if TYPE_CHECKING:
    from graphagent.graph import Outline
    from graphagent.graph._internal import Kind
    from graphagent.memory import RunMemory
    from graphagent.protocols import Feature, Store
    from graphagent.run.journal._header import RunHeader
    from graphagent.run.journal._reader import JournalReader
    from graphagent.run.state._entries import JournalEntry
    from graphagent.run.state._state import Frame


@dataclass(frozen=True, slots=True)
class Stand:
    """A node of a run's strategy, and what the run did with it."""

    path: str
    """Its path in the strategy, such as `each/send`: without the numbers of the items of an `each`."""
    kind: Kind
    """`node`, `tap`, `strategy`, `parallel`, `each` or `race`."""
    type: str
    """Its declared input and output, such as `str -> int`; empty for taps."""
    depth: int
    """How many strategies and forks it is inside of."""
    ended: int
    """How many times it was executed to its end."""
    here: bool
    """Whether the run is there: it comes next, or is being executed."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What a node raised, or the run itself."""

    type: str
    """The name of its class."""
    message: str = field(repr=False)
    traceback: str = field(repr=False)
    """As Python prints it, without the values of variables."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as its store has it. Values of declared types are plain data here, since the strategy is not at hand."""

    head: RunHeader
    """What is said of it at a glance."""
    memory: RunMemory
    """The transcript, with what a node said that was broken off."""
    entries: tuple[Entry, ...]
    """Its journal."""
    questions: tuple[Question, ...]
    """What it waits for; the types of the answers are not known here."""
    at: tuple[str, ...]
    """The paths of the nodes that come next, or are being executed; none where it has ended."""
    strategy: Outline
    """The strategy with which it was begun or resumed last. `strategy.to_svg()` draws it."""
    nodes: int
    """How many nodes were executed, each attempt counted."""
    turns: int
    usage: Usage
    seconds: float
    """For how long it was executed."""
    failure: Failure | None = None
    """Why it failed, where that was the last that happened."""

    @property
    def graph(self) -> list[Stand]:
        """Its strategy, with what it did."""
        return list(_stands(self.strategy, self.entries, self.at))


async def read_run(
    store: Store, run_id: str, *, owner: str = "", features: Mapping[type[Any], Feature] | None = None
) -> StoredRun:
    """Return a run as its store has it, without its agent.

    Args:
        store: Where it is kept.
        run_id: Which.
        owner: Whose.
        features: Those of the agent, `agent.features`, where facts shall be looked up; else they show as `[kept elsewhere]`.

    Raises:
        RunNotFoundError: there is no such run.
        DamagedStoreError: it is not what was written, or has steps of types that were not imported.
        StoreError: the store cannot be read.
    """
    journal = await read_journal(store, owner, run_id)
    if features:
        await look_up(journal, features)
    state = journal.state
    return StoredRun(
        journal.header, journal.shown(), tuple(entries(journal)), _questions(journal), _at(journal), state.strategy,
        state.nodes, state.turns, journal.usage(), state.seconds, _failure(journal),
    )  # fmt: skip


async def compare_runs(store: Store, a: str, b: str, *, owner: str = "") -> Diff:
    """Compare two runs without their agent: what they have in common, and what each did then.

    Raises:
        RunNotFoundError: there is no such run.
        StoreError: the store cannot be read.
    """
    return compare(await read_journal(store, owner, a), await read_journal(store, owner, b))


@dataclass(frozen=True, slots=True)
class Moment:
    """How far a run is."""

    at: str
    """The path of the node that was begun, or was at work, last."""
    turns: int
    usage: Usage
    seconds: float
    """For how long it was executed until the last entry."""
    written: int
    """When the last entry was written, in milliseconds UTC."""


async def follow_run(
    store: Store, run_id: str, *, owner: str = "", every: float = 0.2, last: int | None = None
) -> AsyncIterator[Moment]:
    """Yield the progress of a run, again and again, until no process executes it. Only new entries are read.

    Args:
        store: Where it is kept.
        run_id: Which.
        owner: Whose.
        every: Seconds between two looks.
        last: The entry behind which to begin; None means that of its head.

    Raises:
        RunNotFoundError: there is no such run.
        DamagedStoreError: an entry is not what was written.
        StoreError: the store cannot be read.
    """
    header, _ = await read_header(store, owner, run_id)
    last = max(header.last - 1, 0) if last is None else last
    at, turns, usage, ran, written = "", header.turns, Usage(), header.seconds, header.updated
    while header.running:
        while (item := await store.get((*entries_key(owner, run_id), last + 1))) is not None:
            last += 1
            what = f"entry {last} of run {run_id!r}"
            check(item.value, what)
            entry = read_entry(parse(item.value, what))
            since = 0 if isinstance(entry, Started | Resumed) else max(entry.at - written, 0)
            ran = (ran * 1000 + since if entry.ran is None else entry.ran) / 1000
            at, written = _at_work(entry) or at, entry.at
            if entry.spent is not None and not isinstance(entry.spent, int):
                turns, usage = entry.spent[1], read_usage(list(entry.spent[2:]))
        yield Moment(at, turns, usage, ran, written)
        await anyio.sleep(every)
        header, _ = await read_header(store, owner, run_id)


def _at_work(entry: JournalEntry) -> str:
    """Return the path of the node that was begun, or was being executed, at an entry."""
    path, following = getattr(entry, "path", ""), getattr(entry, "following", None)
    if following:
        return f"{path}{following}"
    return path.rstrip("/") if isinstance(entry, NodeEnded) else f"{path}{getattr(entry, 'node', '')}"


async def run_head(store: Store, run_id: str, *, owner: str = "") -> RunHeader:
    """Return the header of a run.

    Raises:
        RunNotFoundError: there is no such run.
        StoreError: the store cannot be read.
    """
    return (await read_header(store, owner, run_id))[0]


def _failure(journal: JournalReader) -> Failure | None:
    failure = journal.state.failure
    if failure is None:
        return None
    with journal.reading(journal.last):
        return Failure(*(decode(failure[name], journal.blobs) for name in ("type", "message", "traceback")))


def _questions(journal: JournalReader) -> tuple[Question, ...]:
    return tuple(
        Question(each["id"], decode(each["question"], journal.blobs), each["node"], each["kind"], journal.about(each))
        for each in journal.state.questions
    )


def _at(journal: JournalReader) -> tuple[str, ...]:
    """Return the paths of the nodes that come next, as far as the journal tells."""
    state = journal.state
    if not journal.last or state.status == "done":
        return ()
    paths = {question["node"] for question in state.questions}
    paths.update(_next(state.root, state.strategy.inside, state.strategy.first))
    return tuple(sorted(path for path in paths if not any(other.startswith(f"{path}/") for other in paths)))


def _next(frame: Frame, inside: Sequence[Outline], first: str) -> Iterator[str]:
    """Yield the paths of the nodes that come next in a frame and the frames inside it.

    Args:
        frame: The frame of a strategy or a branch.
        inside: The nodes of the strategy, or the node of the branch.
        first: The name of the node with which it begins.
    """
    node = frame.node if frame.number else first
    if node:
        yield frame.path + node
    elements = {each.name: each for each in inside}
    for name, inner in (frame.inside or {}).items():
        element = elements.get(name)
        if element is None:
            continue  # the strategy was changed since
        if element.kind == "strategy":
            yield from _next(inner, element.inside, element.first)
            continue
        for number, branch in (inner.inside or {}).items():
            for each in element.inside if element.kind == "each" else element.inside[int(number) :][:1]:
                yield from _next(branch, (each,), each.name)


def _stands(strategy: Outline, journal: tuple[Entry, ...], at: tuple[str, ...]) -> Iterator[Stand]:
    @cache
    def place(path: str) -> str:
        """Return a path of the run as the strategy has it, unless that was changed since."""
        with suppress(LookupError):
            return strategy.find(path)[0]
        return path

    ended = Counter(place(entry.node) for entry in journal if entry.node)
    here = set(map(place, at))
    around: list[str] = []
    for path, each in strategy.walk():
        while around and not path.startswith(around[-1]):
            around.pop()
        shown = each.type if each.output_type else ""
        yield Stand(path, each.kind, shown, len(around), ended[path], path in here)
        if each.is_frame:
            around.append(f"{path}/")
