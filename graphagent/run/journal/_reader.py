"""The journal of a run, as it is read: its entries, the state that they make, and the values in them."""

from __future__ import annotations

import sys
from bisect import bisect
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

from graphagent.codec._internal import HeldBlobs, decode, read_message, read_usage, undeclared
from graphagent.errors import DamagedStoreError, RunNotFoundError, StrategyChangedError
from graphagent.graph import Each, Node, Parallel, Tap, TapOf
from graphagent.llm import ModelResponse, ToolCalls, ToolResult, ToolResults, Usage
from graphagent.memory import RunMemory
from graphagent.run._compiled import DONE, CompiledStrategy
from graphagent.run.journal._header import RunHeader
from graphagent.run.journal._keys import check, entries_key, head_key, is_intact, parse
from graphagent.run.journal._payloads import LostPayloadError, Payloads, check_payloads
from graphagent.run.journal._transcripts import Branches, Transcript, transcripts
from graphagent.run.state._entries import (
    ABSENT,
    CACHED,
    BranchFailed,
    EffectDone,
    Finished,
    JournalEntry,
    NodeEnded,
    NodeEntry,
    Recovered,
    Resumed,
    RunEdited,
    Started,
    read_entry,
)
from graphagent.run.state._ledger import Charge
from graphagent.run.state._questions import type_of_answer
from graphagent.run.state._state import RunState

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from graphagent.codec._internal import Json
    from graphagent.memory import KnownFact, KnownNote
    from graphagent.memory._internal import Name, NoteName
    from graphagent.protocols import Store
    from graphagent.run._compiled import CompiledEdge, CompiledNode, Inside

_UNREADABLE = (LostPayloadError, ValueError, LookupError, TypeError, AttributeError)
"""The errors of reading something that is not what it should be."""


class JournalReader:
    """The entries of a run, up to one of them."""

    def __init__(self, header: RunHeader, packed: list[bytes], blobs: Mapping[str, bytes]) -> None:
        self.header = header
        self.packed = packed
        """The bytes of the entries, number 1 first."""
        self.blobs: HeldBlobs = Payloads(blobs, header.run_id)
        self.compiled: CompiledStrategy | None = None
        """The strategy by whose declared types values are read; None: values of declared types are returned as plain data."""
        self.input_type: Any = Any
        """The declared type of the task."""
        self.output_type: Any = Any
        """The declared type of the answer."""
        self.current: dict[Branches, Any] = {}
        """The current values of the run and of its branches."""
        self.facts: Mapping[Name, KnownFact] = {}
        """The facts to which the entries refer, as far as they were looked up."""
        self.notes: Mapping[NoteName, KnownNote] = {}
        """The notes to which they refer."""
        self.identity = object()
        """Identifies the journal in the steps that are stored in it."""
        self._entries: list[JournalEntry | None] = [None] * len(packed)
        self._data: dict[int, dict[str, Any]] = {}
        self._values: dict[int, Any] = {}
        self._passed: dict[int, Any] = {}
        self._transcripts: dict[Branches, Transcript] | None = None
        self._state: RunState | None = None
        self._starts: list[int] | None = None
        """The numbers of the first entries of the runs whose transcript this one continues."""
        self._same: list[bool] = []
        """Whether the strategy of each was the same one."""
        self._known = self._unknown = self
        """Readers for those runs: with the strategy, and without it."""

    def read_for(self, compiled: CompiledStrategy, input_type: Any, output_type: Any) -> JournalReader:
        """Read values as a strategy declares them."""
        self.compiled, self.input_type, self.output_type = compiled, input_type, output_type
        return self

    @property
    def first(self) -> int:
        """The number of the entry with which the run begins; those before are of the runs whose transcript it continues."""
        return self.header.first

    @property
    def last(self) -> int:
        """The number of the last entry."""
        return len(self.packed)

    @property
    def numbers(self) -> range:
        """The numbers of the entries of the run."""
        return range(self.first, self.last + 1)

    def entry(self, number: int) -> JournalEntry:
        """Return an entry.

        Raises:
            DamagedStoreError: it cannot be read.
        """
        found = self._entries[number - 1]
        if found is None:
            try:
                found = self._entries[number - 1] = read_entry(self.data(number))
            except ValueError as error:
                raise self._damaged(number, error) from None
        return found

    def data(self, number: int) -> dict[str, Any]:
        """Return an entry as plain JSON data.

        Raises:
            DamagedStoreError: it cannot be read.
        """
        return parse(self.packed[number - 1], self.what(number))

    def what(self, number: int) -> str:
        """Return the name of an entry for error messages."""
        return f"entry {number} of run {self.header.run_id!r}"

    def until(self, number: int) -> JournalReader:
        """Return a reader of the entries up to this one."""
        earlier = JournalReader(self.header, self.packed[:number], self.blobs.held)
        earlier._entries = self._entries[:number]
        earlier.compiled, earlier.input_type, earlier.output_type = self.compiled, self.input_type, self.output_type
        earlier.facts, earlier.notes = self.facts, self.notes
        return earlier

    def show_with(self, facts: Mapping[Name, KnownFact], notes: Mapping[NoteName, KnownNote]) -> None:
        """Show facts and notes in transcripts as they were looked up."""
        if facts or self.facts or notes or self.notes:
            self.facts, self.notes, self._transcripts = facts, notes, None

    @contextmanager
    def reading(self, number: int) -> Generator[None]:
        """Name an entry in the error when something in it cannot be read.

        Raises:
            DamagedStoreError: it cannot.
        """
        try:
            yield
        except _UNREADABLE as error:
            raised = error
        else:
            return
        raise self._damaged(number, raised)

    def _damaged(self, number: int, error: Exception) -> DamagedStoreError:
        """Return the error of an entry in which something cannot be read."""
        if isinstance(error, LostPayloadError):
            return DamagedStoreError(self.what(number), error.reason)
        reason = str(error) if type(error) is ValueError else f"it lacks something ({type(error).__name__})"
        return DamagedStoreError(self.what(number), reason)

    # ---- the state

    @property
    def state(self) -> RunState:
        """The state of the run after the last entry.

        Raises:
            DamagedStoreError: an entry cannot be read.
        """
        if self._state is None:
            state, number, raised = RunState(before=self.first - 1), 0, None
            try:
                for number in self.numbers:
                    state.apply(self._entries[number - 1] or self.entry(number))
            except _UNREADABLE as error:
                raised = error
            if raised is not None:
                raise self._damaged(number, raised)
            self._state = state
        return self._state

    def usage(self) -> Usage:
        """Return the tokens and the money that the run had spent."""
        spent = self.state.spent
        with self.reading(self.last):
            return Usage() if isinstance(spent, int) else read_usage(list(spent[2:]))

    def charges(self) -> list[Charge]:
        """Return what was spent, row by row.

        Raises:
            DamagedStoreError: an entry cannot be read.
        """
        found: list[Charge] = []
        for number in self.numbers:
            entry = self.entry(number)
            with self.reading(number):
                found += [Charge.read(row) for row in entry.charges]
                if isinstance(entry, EffectDone) and entry.response is not None:
                    usage = read_usage(entry.response["usage"])
                    found.append(Charge(entry.path + entry.node, entry.key, entry.response["model"], usage))
        return found

    def charged(self, run_id: str) -> Usage:
        """Return what is counted here for the run of a sub-agent."""
        name = run_id.encode()
        numbers = (number for number, data in enumerate(self.packed, 1) if name in data)
        rows = (Charge.read(row) for number in numbers for row in self.entry(number).charges)
        return sum((row.usage for row in rows if row.run_id == run_id), Usage())

    # ---- where it is in its strategy

    def next_of(self, number: int, path: str) -> tuple[CompiledNode, Any]:
        """Return the node before which an entry put the frame of a path, and the value there.

        Raises:
            StrategyChangedError: there is no such node any more.
        """
        entry = self.entry(number)
        if isinstance(entry, BranchFailed):
            return DONE, self.value(number)
        name: str = getattr(entry, "following", None) or ""
        strategy = self._strategy_of(path)
        node = (DONE if not name else None) if strategy is None else strategy.node(name)
        if node is None:
            raise self._changed(f"- node {path + name!r}, which the run has come to")
        edge = self._edge(entry)
        if edge is not None and edge.target is not node and isinstance(entry, NodeEntry):
            raise self._changed(f"- the way from node {path + entry.node!r} to {node.name or 'END'!r}")
        return node, self.passed(number)

    def passed(self, number: int) -> Any:
        """Return the value that an entry passed on: what the edge made of the output. Always the same object.

        Raises:
            StrategyChangedError: there is no such edge any more.
        """
        entry = self.entry(number)
        edge = self._edge(entry)
        if edge is None or not edge.changes:
            return self.value(number)
        if number not in self._passed:
            if isinstance(entry, Recovered) and entry.value is not ABSENT:
                value = self._decoded(number, entry.value, edge.value_type)
            else:
                value = self.value(number)
                for rule in edge.rules:
                    value = value if rule.change is None else rule.change(value)
            self._passed[number] = value
        return self._passed[number]

    def _edge(self, entry: JournalEntry) -> CompiledEdge | None:
        """Return the edge that was taken, where there was a choice."""
        if self.compiled is None or not isinstance(entry, NodeEnded | Recovered) or entry.edge is None:
            return None
        path = entry.path + entry.node
        node = self.node(path)
        edges = {edge.number: edge for edge in (*node.edges, *node.error_edges)} if node is not None else {}
        edge = edges.get(entry.edge)
        if edge is None or bool(edge.errors) != isinstance(entry, Recovered):
            raise self._changed(f"- the way out of node {path!r} to {entry.following or 'END'!r}")
        return edge

    def _changed(self, difference: str) -> StrategyChangedError:
        return StrategyChangedError(self.header.run_id, [difference])

    def node(self, path: str) -> CompiledNode | None:
        """Return the node at a path; None: there is none.

        Raises:
            StrategyChangedError: there is nothing inside a node on the way.
        """
        try:
            return self.compiled.find(path) if self.compiled is not None else None
        except LookupError as error:
            raise self._changed(f"- {error.args[0]!r}, inside of which the run is") from None

    def inside(self, path: str) -> Inside | None:
        """Return the strategy, or the branches, inside the node at a path; None: there is no such node."""
        node = self.node(path)
        return node.inside if node is not None else None

    def _strategy_of(self, path: str) -> CompiledStrategy | None:
        """Return the strategy that is executed in the frame of a path."""
        if self.compiled is None:
            return None
        try:
            inside = self.compiled.inside(path.split("/")[:-1])
        except LookupError as error:
            raise self._changed(f"- {error.args[0]!r}, inside of which the run is") from None
        return inside if isinstance(inside, CompiledStrategy) else None

    # ---- values

    def value(self, number: int) -> Any:
        """Return the value of an entry: always the same object.

        Raises:
            DamagedStoreError: it cannot be read.
            StrategyChangedError: it is of another type than the strategy declares now.
        """
        if number not in self._values:
            with self.reading(number):
                self._values[number] = self._read_value(number)
        return self._values[number]

    def has_value(self, number: int) -> bool:
        """Return whether an entry has a value."""
        entry = self.entry(number)
        if isinstance(entry, Recovered) or (isinstance(entry, EffectDone) and entry.response is not None):
            return True
        return getattr(entry, "value", ABSENT) is not ABSENT

    def effect(self, number: int, answer: int) -> Any:
        """Return the outcome of an effect, or an answer in an entry, by the type that the node which asked declares.

        Raises:
            DamagedStoreError: it cannot be read.
            StrategyChangedError: it is of another type than the strategy declares now.
        """
        if answer < 0:
            return self.value(number)
        entry = self.entry(number)
        assert isinstance(entry, Resumed)
        with self.reading(number):
            given, node = entry.answers[answer], None
            with suppress(StrategyChangedError):  # without the node, the answer need not be of a declared type
                node = self.node(given.get("in", "") + given["node"])
            kind = type_of_answer(given["key"], node.element if node is not None else None)
            return self._decoded(number, given["value"], kind)

    def _read_value(self, number: int) -> Any:
        entry = self.entry(number)
        if isinstance(entry, EffectDone) and entry.response is not None:
            response = entry.response
            message = read_message(response["message"], self.blobs)
            return ModelResponse(message, read_usage(response["usage"]), response["finish"], response["model"])
        if isinstance(entry, Recovered) and not entry.passed:
            edge = self._edge(entry)
            kind = edge.errors[0] if edge is not None else None
            return _error(self._decoded(number, entry.error, kind or Any), kind)
        data: Json = getattr(entry, "value", None)
        data = None if data is ABSENT else data
        if _has_key(data, "$at"):
            return self.at(data)
        if _has_key(data, "$") and data["$"] == "joined":
            return self._joined(number, entry, data["v"])
        return self._decoded(number, data, self._type_of(entry))

    def _decoded(self, number: int, data: Json, kind: Any) -> Any:
        try:
            return decode(data, self.blobs, kind)
        except ValueError as error:
            if self.compiled is None:
                return decode(undeclared(data), self.blobs, Any)
            reason = str(error)
        # The entry is what was written, so the declared type is another one.
        entry = self.entry(number)
        node = f"node {entry.path + entry.node!r}" if isinstance(entry, NodeEntry) else self.what(number)
        raise self._changed(f"- the type of the value of {node}: {reason}")

    def _joined(self, number: int, entry: JournalEntry, parts: list[Json]) -> Any:
        """Return the results of the branches of a fork."""
        node = self.node(entry.path + entry.node) if isinstance(entry, NodeEntry) else None
        element = node.element if node is not None else None
        found: list[Any] = []
        for place, each in enumerate(parts):
            if _has_key(each, "$at"):
                found.append(self.at(each))
                continue
            kind = Any
            if isinstance(element, Parallel | Each):
                kind = element.branches[place if isinstance(element, Parallel) else 0].output_type
            found.append(self._decoded(number, each, kind))
        return found if isinstance(element, Each) else tuple(found)

    def place_of(self, number: int) -> dict[str, Any]:
        """Return the reference to the value of an entry: to the entry, or to the one that has the value."""
        data = getattr(self.entry(number), "value", None)
        return data if _has_key(data, "$at") else {"$at": [number]}

    def type_of(self, number: int) -> Any:
        """Return the declared type of the value of an entry; of another one's value, its type there."""
        number, *part = self.place_of(number)["$at"]
        if part == ["handed"]:
            return self.type_passed(number)
        return self._type_of(self.entry(number)) if type(number) is int else Any

    def type_passed(self, number: int) -> Any:
        """Return the declared type of the value that an entry passed on."""
        edge = self._edge(self.entry(number))
        return edge.value_type if edge is not None else Any

    def _type_of(self, entry: JournalEntry) -> Any:
        """Return the declared type of the value of an entry."""
        if self.compiled is None:
            return Any
        if isinstance(entry, NodeEnded | Recovered) and entry.like is not None:
            number, *part = entry.like
            edge = self._edge(self.entry(number)) if part == ["handed"] else None
            return edge.value_type if edge is not None else self._type_of(self.entry(number))
        if isinstance(entry, Started):
            return self.input_type
        if isinstance(entry, Finished):
            return self.output_type
        if isinstance(entry, RunEdited):
            return self.type_before(entry.path, entry.following or "")
        node = None
        if isinstance(entry, NodeEnded) or (isinstance(entry, EffectDone) and entry.key == CACHED):
            node = self.node(entry.path + entry.node)
        return node.element.output_type if node is not None and isinstance(node.element, Node) else Any

    def type_before(self, path: str, name: str) -> Any:
        """Return the declared type of the value before a node, or before the END of the strategy in the frame of a path."""
        if name:
            node = self.node(path + name)
            return node.element.input_type if node is not None and isinstance(node.element, Node | Tap | TapOf) else Any
        if not path:
            return self.output_type
        around = self.node(path[:-1])
        return around.element.output_type if around is not None and isinstance(around.element, Node) else Any

    def at(self, reference: Mapping[str, Any]) -> Any:
        """Return the value to which a reference refers."""
        place: Sequence[Any] = reference["$at"]
        number = place[1] if place[0] == "results" else place[0]
        if number < self.first:
            return self._earlier(number).at(reference)
        if place[0] == "results":
            return ToolResults([self._result(number) for number in place[1:]])
        number, *part = place
        if not part:
            return self.value(number)
        if part[0] == "handed":
            return self.passed(number)
        if part[0] == "answers":
            entry = self.entry(number)
            assert isinstance(entry, Resumed)
            return self._decoded(number, entry.answers[part[1]]["value"], str)  # only texts are referred to
        message = self.value(number).message
        if part[0] == "message":
            return message
        return ToolCalls(message.tool_calls, message.text) if part[0] == "calls" else message.text

    def _earlier(self, number: int) -> JournalReader:
        """Return a reader for an entry before the first one of this run, which is of a run whose transcript this one continues."""
        if self._starts is None:
            own = self._started(self.first).outline.digest
            self._starts = [start for start in range(1, self.first) if isinstance(self.entry(start), Started)]
            self._same = [self._started(start).outline.digest == own for start in self._starts]
            self._unknown = self.until(self.first - 1)
            self._unknown.header = replace(self.header, first=1)
            self._known = self._unknown.until(self.first - 1)
            # Another strategy may declare other types, and its edges may have changed values in another way.
            self._unknown.compiled = None
        return self._known if self._same[bisect(self._starts, number) - 1] else self._unknown

    def about(self, question: Mapping[str, Any]) -> Any:
        """Return the value that a question is about."""
        data = question["about"]
        return self.at(data) if _has_key(data, "$at") else decode(data, self.blobs)

    def _result(self, number: int) -> ToolResult:
        found = self.value(number)
        if not isinstance(found, ToolResult):
            raise TypeError
        return found

    # ---- transcripts

    def memory(self, branches: Branches = ()) -> RunMemory:
        """Return the transcript of the run, or of a branch. Its steps are read when someone looks at them."""
        first = self._started(self.first)
        with self.reading(self.first):
            begun, system = first.begun, decode(first.system, self.blobs)
        inherited = self.transcripts()[branches].inherited if branches else begun
        return RunMemory.deferred(system, begun, inherited, lambda memory: self._fill(memory, branches))

    def _started(self, number: int) -> Started:
        entry = self.entry(number)
        if isinstance(entry, Started):
            return entry
        raise self._damaged(number, ValueError("it is not the one with which a run begins"))

    def has_transcript(self, branches: Branches) -> bool:
        """Return whether a branch has a transcript of its own."""
        return branches in self.transcripts()

    def _fill(self, memory: RunMemory, branches: Branches) -> None:
        transcript = self.transcripts()[branches]
        memory.steps.extend(transcript.steps)
        memory.lower(transcript.floor)
        awaited, asked = transcript.heard
        heard: dict[str, Any] = {}
        if awaited:
            heard["awaited"] = self.value(self.first)
        if asked and branches in self.current:
            heard["asked"] = self.current[branches]
        memory.restore(turn=transcript.open, prompt=transcript.reader.prompt, **heard)
        memory.written_heard = transcript.heard

    def transcripts(self) -> dict[Branches, Transcript]:
        """Return the transcripts of the run and of its branches, without the drafts of interrupted nodes."""
        if self._transcripts is None:
            self._transcripts = transcripts(self, drafts_from=sys.maxsize)
        return self._transcripts

    def shown(self) -> RunMemory:
        """Return the transcript for people: with the drafts of interrupted nodes, and results of a turn that is still open."""
        drafts = self.state.drafts
        self._transcripts = transcripts(self, drafts_from=drafts[0] if drafts else sys.maxsize)
        memory = self.memory()
        done = [
            self.value(effect.number)
            for frame in self.state.root.frames()
            for key, effect in (frame.effects or {}).items()
            if effect.answer < 0 and key.startswith("call:")
        ]
        memory.arrived = [each for each in done if isinstance(each, ToolResult)]
        return memory


def _has_key(data: Json, key: str) -> TypeGuard[dict[str, Any]]:
    return isinstance(data, dict) and key in data


def _error(stored: object, kind: type[Exception] | None) -> Any:
    """Return an error of a class: as it was stored, or made of its text without its constructor."""
    if kind is None or isinstance(stored, Exception):
        return stored
    try:
        error = kind.__new__(kind)
    except TypeError:  # a group cannot be made without its errors
        error = kind.__new__(kind, str(stored), [RuntimeError(str(stored))])
    error.args = (str(stored),)
    return error


async def read_header(store: Store, owner: str, run_id: str) -> tuple[RunHeader, int]:
    """Return the header of a run, and its version.

    Raises:
        RunNotFoundError: there is no such run.
        StoreError: it cannot be read.
    """
    item = await store.get(head_key(owner, run_id))
    if item is None:
        raise RunNotFoundError(run_id, owner)
    return RunHeader.unpack(item.value, run_id), item.version


async def read_own_entries(store: Store, owner: str, run_id: str, first: int) -> tuple[list[bytes], dict[str, bytes]]:
    """Return the entries of a run that no other run has, from number `first` on, and its payloads by their hashes.

    Raises:
        DamagedStoreError: an entry is missing or is not what was written.
        StoreError: the store cannot be read.
    """
    packed: list[bytes] = []
    payloads: dict[str, bytes] = {}
    async for item in store.scan(entries_key(owner, run_id)):
        name = item.key[-1]
        if isinstance(name, str):
            payloads[name] = item.value
            continue
        if name != first + len(packed):
            raise DamagedStoreError(f"run {run_id!r}", f"its entry {first + len(packed)} is missing")
        if not is_intact(item.value):
            check(item.value, f"entry {name} of run {run_id!r}")
        packed.append(item.value)
    return packed, payloads


async def read_journal(store: Store, owner: str, run_id: str, *, until: int | None = None) -> JournalReader:
    """Return a reader of the entries of a run, up to `until` where that is given.

    Raises:
        RunNotFoundError: there is no such run.
        DamagedStoreError: an entry or a payload is missing or is not what was written.
        StoreError: the store cannot be read.
    """
    header, _ = await read_header(store, owner, run_id)
    # From the run itself to the one with which its thread, or its line of forks, begins.
    line, origin = [(run_id, until)], header.origin
    while origin is not None:
        line.append(origin)
        origin = (await read_header(store, owner, origin[0]))[0].origin
    packed: list[bytes] = []
    blobs: dict[str, bytes] = {}
    for place in range(len(line) - 1, -1, -1):
        source, end = line[place]
        own, payloads = await read_own_entries(store, owner, source, len(packed) + 1)
        packed += own
        blobs.update(payloads)
        last = max(header.last, len(packed)) if end is None else end
        if len(packed) < last:
            raise DamagedStoreError(f"run {source!r}", f"its entry {len(packed) + 1} is missing")
        del packed[last:]
    if until is None:
        check_payloads(run_id, packed, blobs)
    reader = JournalReader(header, packed, blobs)
    if until is not None and until < header.first:  # of an earlier run of a thread, which was removed
        first = next(number for number in range(until, 0, -1) if isinstance(reader.entry(number), Started))
        reader.header = replace(header, first=first)
    return reader
