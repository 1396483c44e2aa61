"""A run as its store has it: read without its agent, to be looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    """Its path, with 0 for all branches of an `each`."""
    kind: str
    """`node`, `tap`, `strategy`, `parallel`, `each` or `race`."""
    type: str
    """What it takes and gives, as it was declared; empty for taps."""
    depth: int
    """In how many others it stands."""
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
    strategy: tuple[str, ...]
    """The strategy as it went on with it last, a line for each node and edge."""
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
    strategy = tuple(state.strategy)
    return StoredRun(
        journal.header, journal.shown(), tuple(entries(journal)), _questions(journal), _at(journal), strategy, state.nodes,
        state.turns, journal.usage(), state.seconds, _failure(journal),
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
    """Return the paths of the nodes that come next, as far as the journal and the lines of its strategy tell."""
    state = journal.state
    if not journal.last or state.status == "done":
        return ()
    frames = {_path(state.strategy, frame) for frame in state.root.frames() if not _is_fork(frame)}
    paths = frames | {question["node"] for question in state.questions}
    return tuple(sorted(path for path in paths if path and not any(other.startswith(f"{path}/") for other in paths)))


def _is_fork(frame: Frame) -> bool:
    """Return whether a frame only contains the branches of a fork."""
    return not frame.number and frame.inside is not None and all(name.isdecimal() for name in frame.inside)


def _path(strategy: Sequence[str], frame: Frame) -> str:
    """Return the path of the current node of a frame; empty if it came to END."""
    if frame.number:
        return frame.path + frame.node if frame.node else ""
    first = f"edge {frame.path}START -> "
    path = next((line[len(first) :].partition(" ")[0] for line in strategy if line.startswith(first)), "")
    return path or _branch(strategy, frame.path)


def _branch(strategy: Sequence[str], prefix: str) -> str:
    """Return the path of the node of a branch, such as `each/7/`."""
    around, _, number = prefix.rstrip("/").rpartition("/")
    before = f"branch {_general(around, strategy)}/"
    names = [line[len(before) :].partition(":")[0].partition("/")[2] for line in strategy if line.startswith(before)]
    names = [name for name in names if "/" not in name]
    return f"{prefix}{names[min(int(number), len(names) - 1)]}" if names and number.isdecimal() else prefix.rstrip("/")


def _general(path: str, strategy: Sequence[str]) -> str:
    """Return a path as the strategy has it: with 0 for all branches of an `each`."""
    parts = path.split("/")
    for place in range(1, len(parts)):
        around = "/".join(parts[:place])
        if parts[place].isdecimal() and any(line.startswith(f"each {around}:") for line in strategy):
            parts[place] = "0"
    return "/".join(parts)


def _stands(strategy: Sequence[str], journal: tuple[Entry, ...], at: tuple[str, ...]) -> Iterator[Stand]:
    ended: dict[str, int] = {}
    known: dict[str, str] = {}
    for entry in journal:
        if entry.node:
            path = known.get(entry.node) or known.setdefault(entry.node, _general(entry.node, strategy))
            ended[path] = ended.get(path, 0) + 1
    standing = {_general(path, strategy) for path in at}
    told = set[str]()
    for line in strategy[1:]:
        kind, _, rest = line.partition(" ")
        path, _, types = rest.partition(": ")
        if kind == "edge" or path in told:
            continue
        told.add(path)
        depth = sum(not part.isdecimal() for part in path.split("/")) - 1
        yield Stand(path, "node" if kind == "branch" else kind, types, depth, ended.get(path, 0), path in standing)
