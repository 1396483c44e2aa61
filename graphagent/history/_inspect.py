"""A run as its store has it: read without its agent, to be looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from graphagent._article import counted
from graphagent._features import Features
from graphagent.errors import DamagedStoreError, RunNotFoundError
from graphagent.history._entries import Entry, innermost, questions_of, read_stored
from graphagent.history._runs import run_head
from graphagent.log._bytes import plain
from graphagent.log._changes import Changes
from graphagent.log._header import OVER, child_header, child_of, rows_key
from graphagent.log._segments import read_header, root_of
from graphagent.memory.steps._render import stopped_text
from graphagent.memory.steps._types import FinalAnswerStep
from graphagent.memory.transcript._memory import Detached, RunMemory
from graphagent.run._reading import look_up_references
from graphagent.run._result import with_runs
from graphagent.store._bulk import collect
from graphagent.store._items import is_intact

if TYPE_CHECKING:
    from graphagent.graph import Outline
    from graphagent.graph._outline import Kind
    from graphagent.llm import Usage
    from graphagent.log._bytes import EntryCodec
    from graphagent.log._header import RunHeader
    from graphagent.log._log import Log
    from graphagent.log._state import State
    from graphagent.log._visits import Activation, Frame
    from graphagent.protocols import Feature, Store
    from graphagent.run._questions import Question


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node of a run's strategy, and how often the run executed it."""

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
    """The error of a node, or of the run itself."""

    type: str
    """The name of its class."""
    message: str = field(repr=False)
    traceback: str = field(repr=False)
    """As Python prints it, without the values of variables."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as its store has it. Values of declared types are plain data here, since the strategy is not at hand."""

    head: RunHeader
    """Its header."""
    memory: RunMemory
    """The transcript."""
    entries: tuple[Entry, ...]
    """What happened in it."""
    questions: tuple[Question, ...]
    """What it waits for; the types of the answers are not known here."""
    at: tuple[str, ...]
    """The paths of the nodes that come next, or are being executed; none where it has ended."""
    strategy: Outline
    """The strategy with which it was begun or resumed last. `strategy.to_svg()` draws it without the run."""
    nodes: int
    """How many nodes were executed, each attempt counted."""
    turns: int
    usage: Usage
    seconds: float
    """For how long it was executed."""
    failure: Failure | None = None
    """Why it failed, where that was the last that happened."""
    children: tuple[StoredRun, ...] = field(default=(), repr=False)
    """The runs of sub-agents that it began, in their order."""

    @property
    def graph(self) -> list[NodeStatus]:
        """Its strategy, with what it did."""
        return list(_node_statuses(self.strategy, self.entries, self.at))

    @property
    def taken(self) -> Counter[str]:
        """How often each edge of its strategy was taken, by the name that it has in the drawing, such as `ask:1` or `gather/START:0`."""
        return _edges_taken(self.strategy, self.entries)

    def to_svg(self) -> str:
        """Draw its strategy as an SVG picture, with a strong path, pale nodes that it did not reach, and a mark where the run is."""
        from graphagent.graph.drawing._svg import to_svg

        return to_svg(self.strategy, self._path)

    def to_text(self, *, detailed: bool = False) -> str:
        """Return the transcript as text, with those of sub-agents inside of their calls or after it, and why the run did not end."""
        inside = [(each.head.run_id, each.head.status, each.to_text(detailed=detailed)) for each in self.children]
        text, status = with_runs(self.memory, inside, detailed=detailed), self.head.status
        if status in ("done", "running") or self.head.parent:
            return text
        failure = None if self.failure is None else (self.failure.type, self.failure.message)
        return f"{text}\n\n{stopped_text(status, self._reason, failure)}"

    @property
    def _path(self) -> str:
        """The rules for the look of its path in the drawing."""
        from graphagent.history._drawing import path_rules

        return path_rules(((each.path, each.ended > 0, each.here) for each in self.graph), self.taken, self.head.status)

    @property
    def _reason(self) -> str:
        return self.head.reason or "the process that executed it died"

    def _repr_html_(self) -> str:
        from graphagent._html import Html
        from graphagent.graph.drawing._svg import to_html
        from graphagent.memory.steps._render import spent
        from graphagent.run._cards import run_card, stopped

        head, failure = self.head, self.failure
        error = None if failure is None else (failure.type, failure.message)
        ends = [step.output for step in self.memory.run_steps if isinstance(step, FinalAnswerStep)]
        return run_card(
            head.run_id, head.status, title=head.title, output=ends[-1] if ends and head.status == "done" else None, questions=self.questions,
            about=(head.strategy, counted(self.nodes, "node"), counted(self.turns, "turn"), *spent(self.seconds, self.usage)),
            why=stopped(head.status, error, self._reason, "" if failure is None else failure.traceback),
            graph=Html(to_html(self.strategy, self._path)), transcript=self.to_text(),
        )  # fmt: skip


async def read_run(
    store: Store,
    run_id: str,
    *,
    owner: str = "",
    features: Mapping[type[Any], Feature] | None = None,
    until: int | None = None,
) -> StoredRun:
    """Return a run as its store has it, or that of a sub-agent in it, without its agent.

    Args:
        store: Where it is.
        run_id: Which.
        owner: Whose.
        features: Those of the agent, `agent.features`, where facts shall be looked up; else they show as `[kept elsewhere]`.
        until: The number of the entry after which the run is read; the header is always the newest. None: the last entry.

    Raises:
        RunNotFoundError: the run does not exist; or the sub-agent had not begun at that entry.
        DamagedStoreError: it is not what was written.
        StoreError: the store cannot be read, or the run has steps of types that were not imported.
    """
    known = Features(features)

    async def look_up(codec: EntryCodec, rows: Sequence[bytes]) -> None:
        await look_up_references(lambda _: known, owner, codec, rows)

    root = await root_of(store, owner, run_id)
    reader = await read_stored(store, owner, root, look_up=look_up, until=until)
    log = reader.log
    path = run_id[len(root) + 1 :]
    agent = next((each for each in log.state.activations() if each.path == path), None)
    if agent is None:
        raise RunNotFoundError(run_id, owner)
    return await _stored(store, log, reader.entries, agent)


async def read_failure(store: Store, head: RunHeader) -> Failure | None:
    """Return the error with which a run stopped, given its header; None if it did not fail. Only its last entries are read.

    Raises:
        DamagedStoreError: they are not what was written.
        StoreError: the store cannot be read.
    """
    if head.status != "failed" or head.parent:
        return None
    for key, row, _ in await collect(store.scan(rows_key(head), reverse=True, limit=1)):
        if len(key) == len(rows_key(head)) + 1:
            if not is_intact(row):
                raise DamagedStoreError(f"run {head.run_id!r}", "its last entries are not what was written")
            failure = plain(row)[2][-1].get("failure")
            return Failure(*failure) if failure else None
    return None


async def _stored(store: Store, log: Log, entries: Sequence[Entry], agent: Activation) -> StoredRun:
    state, frame, path = log.state, agent.frame, agent.frame.path
    own = tuple(each for each in entries if each.begun_at.startswith(path)) if path else tuple(entries)
    head = log.header
    if path:
        try:
            head = await run_head(store, f"{head.run_id}/{agent.path}", owner=head.owner)
        except RunNotFoundError:  # earlier versions wrote none for a fork
            head = child_of(child_header(head, agent, state.time), head)
    questions = tuple(each for each in questions_of(log) if each.node.startswith(path))
    asked = [each.node for each in state.questions.values() if state.frames[each.at].agent is agent]
    failure = None if state.failure is None or path else Failure(*state.failure)
    assert agent.strategy is not None
    return StoredRun(
        head, RunMemory(editor=Detached(frame.transcript)), own, questions, _at(state, frame, agent, asked),
        agent.strategy, frame.nodes, frame.turns, frame.usage,
        head.seconds if path else state.ran / 1000, failure,
        tuple([await _stored(store, log, entries, each) for each in agent.children]),
    )  # fmt: skip


def _at(state: State, frame: Frame, agent: Activation, asked: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of the nodes that come next, without those around other ones."""
    if state.status in OVER or agent.status in (*OVER, "failed"):
        return ()
    paths = {each.node_path for each in innermost(frame) if each.visit.node} | {*asked}
    inside = len(frame.path)
    return tuple(sorted(path[inside:] for path in paths if not any(other.startswith(f"{path}/") for other in paths)))


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    at: str
    """The path of the node that was begun, or was at work, last."""
    turns: int
    usage: Usage
    seconds: float
    """For how long it was executed until the last entry."""
    written: int
    """When the last entry was written, in milliseconds UTC."""
    number: int
    """The number of the last entry."""
    entries: tuple[Entry, ...] = field(default=(), repr=False)
    """The entries since the progress before this."""


async def follow_run(store: Store, run_id: str, *, owner: str = "") -> AsyncIterator[Progress]:
    """Yield the progress of a run, again and again, until no process executes it. Only new entries are read.

    Args:
        store: Where it is.
        run_id: Which; of a sub-agent's run, the whole of which it is a part.
        owner: Whose.

    Raises:
        RunNotFoundError: the run does not exist.
        DamagedStoreError: an entry is not what was written.
        StoreError: the store cannot be read.
    """
    run_id = await root_of(store, owner, run_id)
    changes = Changes(store, owner, run_id, "log")
    header, _ = await read_header(store, owner, run_id)
    if not (running := header.running):
        return
    reader, at, told = await read_stored(store, owner, run_id), "", 0
    while True:
        log, found = reader.log, False
        while (row := await next_row(store, log)) is not None:
            log.fold_row(header, log.state.number + 1, row, watch=reader.watch)
            found = True
        entries, state = tuple(reader.entries[told:]), log.state
        told += len(entries)
        at = next((path for each in reversed(entries) for path in (each.begins[-1:] or (each.where,)) if path), at)
        yield Progress(at, state.root.turns, state.root.usage, state.ran / 1000, state.time, state.number, entries)
        if not running:
            return
        await changes.next(found=found)
        header, _ = await read_header(store, owner, run_id)
        running = header.running  # before the entries are read, so that the last ones are seen


async def next_row(store: Store, log: Log) -> bytes | None:
    """Return the row that follows in a log that is read, which knows its payloads then; None if there is none yet.

    Raises:
        StoreError: the store cannot be read.
    """
    key = rows_key(log.header)
    item = await store.get((*key, log.state.number + 1))
    if item is None:
        return None
    async for payload in store.scan((*key, 0)):
        if len(payload.key) > len(key) + 1:
            log.codec.blobs.read(int(payload.key[-1]), payload.value)
    return item.value


def _places(strategy: Outline) -> Callable[[str], str]:
    @cache
    def place(path: str) -> str:
        """Return a path of the run as the strategy has it, unless that was changed since."""
        with suppress(LookupError):
            return strategy.find(path)[0]
        return path

    return place


def _edges_taken(strategy: Outline, entries: Sequence[Entry]) -> Counter[str]:
    place, found = _places(strategy), Counter[str]()
    for entry in entries:
        left = entry.node if entry.node is not None or entry.kind != "finished" else entry.where  # its error was caught
        if left is not None:
            found[f"{place(left)}:{entry.edge or 0}"] += 1
        for path in entry.begins:
            frame = path.rpartition("/")[0]
            if path and (left is None or left.rpartition("/")[0] != frame) and entry.kind != "retried":
                found[f"{place(path).removesuffix(path.rpartition('/')[2])}START:0"] += 1
    return found


def _node_statuses(strategy: Outline, entries: Sequence[Entry], at: Sequence[str]) -> Iterator[NodeStatus]:
    place = _places(strategy)
    ended = Counter(place(entry.node) for entry in entries if entry.node)
    here = set(map(place, at))
    around: list[str] = []
    for path, each in strategy.walk():
        while around and not path.startswith(around[-1]):
            around.pop()
        shown = each.type if each.output_type else ""
        yield NodeStatus(path, each.kind, shown, len(around), ended[path], path in here)
        if each.is_frame:
            around.append(f"{path}/")
