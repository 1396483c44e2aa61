"""The journal of a run, as it is read: where the run stands, what was said, and what every entry holds."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from graphagent.codec._internal import HeldBlobs, decode, read_message, read_usage, undeclared
from graphagent.errors import DamagedStoreError, RunNotFoundError, StrategyChangedError
from graphagent.graph import Each, Node, Parallel, Tap, TapOf
from graphagent.llm import ModelResponse, ToolCalls, ToolResult, ToolResults, Usage
from graphagent.memory import RunMemory
from graphagent.run._head import Head
from graphagent.run._keys import check, entries_key, head_key, parse
from graphagent.run._ledger import Charge
from graphagent.run._payloads import LostPayloadError, Payloads, check_payloads
from graphagent.run._places import Place, places
from graphagent.run._plan import DONE, Plan
from graphagent.run._said import said_last
from graphagent.run._transcripts import Branches, Transcript, transcripts

if TYPE_CHECKING:
    from collections.abc import Generator

    from graphagent.memory import KnownFact, KnownNote
    from graphagent.memory._internal import Name, NoteName
    from graphagent.protocols import Store
    from graphagent.run._plan import Slot, Way


class Recording:
    """The entries of a run up to one of them."""

    def __init__(self, head: Head, entries: list[bytes], blobs: Mapping[str, bytes]) -> None:
        self.head = head
        self.entries = entries
        """The bytes of the entries, number 1 first."""
        self.blobs: HeldBlobs = Payloads(blobs, head.run_id)
        self.plan: Plan | None = None
        """The strategy that the values are read for; None: values of declared types are given as plain data."""
        self.takes: Any = Any
        """The declared type of the task."""
        self.gives: Any = Any
        """The declared type of the answer."""
        self.standing: dict[Branches, Any] = {}
        """The values that stand where the run and its branches are."""
        self.facts: Mapping[Name, KnownFact] = {}
        """What was found of the facts to which the entries refer."""
        self.notes: Mapping[NoteName, KnownNote] = {}
        """What was found of the notes to which they refer."""
        self.mark = object()
        """Names the journal in the steps that stand in it."""
        self._parsed: list[dict[str, Any] | None] = [None] * len(entries)
        self._values: dict[int, Any] = {}
        self._handed: dict[int, Any] = {}
        self._told: dict[Branches, Transcript] | None = None

    def read_for(self, plan: Plan, takes: Any, gives: Any) -> Recording:
        """Have values read as a strategy declares them."""
        self.plan, self.takes, self.gives = plan, takes, gives
        return self

    @property
    def last(self) -> int:
        """The number of the last entry."""
        return len(self.entries)

    def entry(self, number: int) -> dict[str, Any]:
        """Give an entry.

        Raises:
            DamagedStoreError: it is none.
        """
        found = self._parsed[number - 1]
        if found is None:
            found = self._parsed[number - 1] = parse(self.entries[number - 1], self.what(number))
        return found

    def what(self, number: int) -> str:
        """Name an entry in an error."""
        return f"entry {number} of run {self.head.run_id!r}"

    def until(self, number: int) -> Recording:
        """Give the recording as it was behind an entry."""
        earlier = Recording(self.head, self.entries[:number], self.blobs.held)
        earlier.plan, earlier.takes, earlier.gives = self.plan, self.takes, self.gives
        earlier.facts, earlier.notes = self.facts, self.notes
        return earlier

    def tell_with(self, facts: Mapping[Name, KnownFact], notes: Mapping[NoteName, KnownNote]) -> None:
        """Have transcripts show facts and notes as they were found."""
        if facts or self.facts or notes or self.notes:
            self.facts, self.notes, self._told = facts, notes, None

    @contextmanager
    def reading(self, number: int) -> Generator[None]:
        """Name an entry where something of it cannot be read.

        Raises:
            DamagedStoreError: it cannot.
        """
        try:
            yield
        except LostPayloadError as error:
            reason = error.reason
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            reason = str(error) if type(error) is ValueError else f"it lacks something ({type(error).__name__})"
        else:
            return
        raise DamagedStoreError(self.what(number), reason)

    # ---- where it stands

    def places(self) -> dict[str, Place]:
        """Give where the run stands: its own strategy under the empty prefix, and what stands inside of what it is at."""
        return places(self.entry, self.last)

    def next_of(self, number: int, prefix: str) -> tuple[Slot, Any]:
        """Give the place to which an entry brought a strategy, and the value that stands there.

        Raises:
            StrategyChangedError: there is no such place any more.
        """
        entry = self.entry(number)
        if entry["t"] == "failed":
            return DONE, self.value(number)
        name, plan = entry["next"], self._plan_of(prefix)
        slot = (DONE if not name else None) if plan is None else plan.slot(name)
        if slot is None:
            raise self._changed(f"- node {prefix + name!r}, which the run has come to")
        way = self._way(entry)
        if way is not None and way.target is not slot:
            raise self._changed(f"- the way from node {prefix + entry['node']!r} to {slot.name!r}")
        return slot, self.handed(number)

    def handed(self, number: int) -> Any:
        """Give what a way out handed on: what its changes make of the output. Always the same object.

        Raises:
            StrategyChangedError: there is no such way any more.
        """
        entry = self.entry(number)
        way = self._way(entry)
        if way is None or not any(rule.change for rule in way.rules):
            return self.value(number)
        if number not in self._handed:
            if "value" in entry and entry["t"] == "recovered":
                value = self._decoded(number, entry["value"], _kind_behind(way))
            else:
                value = self.value(number)
                for rule in way.rules:
                    value = value if rule.change is None else rule.change(value)
            self._handed[number] = value
        return self._handed[number]

    def _way(self, entry: Mapping[str, Any]) -> Way | None:
        """Give the way out that was taken, where there was a choice."""
        if "way" not in entry or self.plan is None:
            return None
        path = entry.get("in", "") + entry["node"]
        slot = self.slot(path)
        ways = {way.number: way for way in (*slot.ways, *slot.errors)} if slot is not None else {}
        way = ways.get(entry["way"])
        if way is None or any(rule.error for rule in way.rules) != (entry["t"] == "recovered"):
            raise self._changed(f"- the way out of node {path!r} to {entry['next'] or 'END'!r}")
        return way

    def _changed(self, difference: str) -> StrategyChangedError:
        return StrategyChangedError(self.head.run_id, [difference])

    def slot_at(self, path: str) -> Plan | tuple[Slot, ...] | None:
        """Give what stands inside the node at a path; None where there is no such node."""
        slot = self.slot(path)
        return slot.inside if slot is not None else None

    def _plan_of(self, prefix: str) -> Plan | None:
        inside = self._inside(prefix.split("/")[:-1]) if self.plan is not None else None
        return inside if isinstance(inside, Plan) else None

    def _inside(self, parts: list[str]) -> Plan | tuple[Slot, ...]:
        at: Plan | tuple[Slot, ...] = self.plan if self.plan is not None else ()
        for part in parts:
            if isinstance(at, Plan):
                slot = at.slot(part)
            else:
                slot = None
                if part.isdecimal() and at:
                    slot = at[min(int(part), len(at) - 1)]
                    at = Plan(slot, {slot.name: slot})
                    continue
            if slot is None or not slot.inside:
                raise self._changed(f"- {'/'.join(parts)!r}, inside of which the run is")
            at = slot.inside
        return at

    def slot(self, path: str) -> Slot | None:
        """Give the place at a path; None where there is no such node."""
        *around, name = path.split("/")
        at = self._inside(around)
        return at.slot(name) if isinstance(at, Plan) else None

    # ---- values

    def value(self, number: int) -> Any:
        """Give the value of an entry: always the same object.

        Raises:
            DamagedStoreError: it cannot be read.
            StrategyChangedError: it is of another type than the strategy declares now.
        """
        if number not in self._values:
            with self.reading(number):
                self._values[number] = self._read_value(number)
        return self._values[number]

    def effect(self, number: int, answered: int, kind: Any) -> Any:
        """Give what an entry says that a node did, or was answered, which is of a declared type.

        Raises:
            DamagedStoreError: it cannot be read.
            StrategyChangedError: it is of another type than the strategy declares now.
        """
        if answered < 0:
            return self.value(number)
        with self.reading(number):
            return self._decoded(number, self.entry(number)["answers"][answered]["value"], kind)

    def _read_value(self, number: int) -> Any:
        entry = self.entry(number)
        if "response" in entry:
            said = entry["response"]
            message = read_message(said["message"], self.blobs)
            return ModelResponse(message, read_usage(said["usage"]), said["finish"], said["model"])
        if entry["t"] == "recovered" and "passed" not in entry:
            way = self._way(entry)
            kind = next(rule.error for rule in way.rules if rule.error is not None) if way is not None else None
            return _error(self._decoded(number, entry["error"], kind or Any), kind)
        data = entry.get("value")
        if isinstance(data, dict):
            tagged = cast("dict[str, Any]", data)
            if "$at" in tagged:
                return self.at(tagged)
            if tagged.get("$") == "joined":
                return self._joined(number, entry, tagged["v"])
        return self._decoded(number, data, self._kind_of(entry))

    def _decoded(self, number: int, data: Any, kind: Any) -> Any:
        try:
            return decode(data, self.blobs, kind)
        except ValueError as error:
            if self.plan is None:
                return decode(undeclared(data), self.blobs, Any)
            reason = str(error)
        # The entry is what was written, so it is the type that is another one.
        where = self.entry(number).get("in", "") + self.entry(number).get("node", "")
        raise self._changed(f"- the type of the value of {f'node {where!r}' if where else self.what(number)}: {reason}")

    def _joined(self, number: int, entry: Mapping[str, Any], parts: list[Any]) -> Any:
        slot = self.slot(entry.get("in", "") + entry["node"]) if self.plan is not None else None
        element = slot.element if slot is not None else None
        found: list[Any] = []
        for place, each in enumerate(parts):
            if isinstance(each, dict) and "$at" in each:
                found.append(self.at(cast("dict[str, Any]", each)))
                continue
            kind = Any
            if isinstance(element, Parallel | Each):
                kind = element.branches[place if isinstance(element, Parallel) else 0].output_type
            found.append(self._decoded(number, each, kind))
        return found if isinstance(element, Each) else tuple(found)

    def place_of(self, number: int) -> dict[str, Any]:
        """Give what refers to the value of an entry: the entry, or where it has the value from."""
        data = self.entry(number).get("value")
        return cast("dict[str, Any]", data) if isinstance(data, dict) and "$at" in data else {"$at": [number]}

    def kind_of(self, number: int) -> Any:
        """Give the declared type of the value of an entry; where that is another one's value, as it is declared there."""
        number, *part = self.place_of(number)["$at"]
        if part == ["handed"]:
            return self.kind_handed(number)
        return self._kind_of(self.entry(number)) if type(number) is int else Any

    def kind_handed(self, number: int) -> Any:
        """Give the declared type of what a way out handed on."""
        way = self._way(self.entry(number))
        return _kind_behind(way) if way is not None else Any

    def _kind_of(self, entry: Mapping[str, Any]) -> Any:
        """Give the declared type of the value of an entry."""
        if self.plan is None:
            return Any
        if "like" in entry:
            number, *part = entry["like"]
            way = self._way(self.entry(number)) if part == ["handed"] else None
            return _kind_behind(way) if way is not None else self._kind_of(self.entry(number))
        kind, prefix = entry["t"], entry.get("in", "")
        if kind in ("start", "final"):
            return self.takes if kind == "start" else self.gives
        if kind == "edit":
            return self.kind_at(prefix, entry["next"])
        slot = self.slot(prefix + entry["node"]) if kind == "node" else None
        return slot.element.output_type if slot is not None and isinstance(slot.element, Node) else Any

    def kind_at(self, prefix: str, name: str) -> Any:
        """Give the declared type of what stands before a node, or before the end of a strategy."""
        if name:
            slot = self.slot(prefix + name)
            return slot.element.input_type if slot is not None and isinstance(slot.element, Node | Tap | TapOf) else Any
        around = self.slot(prefix[:-1]) if prefix else None
        if not prefix:
            return self.gives
        return around.element.output_type if around is not None and isinstance(around.element, Node) else Any

    def at(self, reference: Mapping[str, Any]) -> Any:
        """Give what a reference refers to."""
        place: list[Any] = reference["$at"]
        if place[0] == "results":
            return ToolResults([self._result(number) for number in place[1:]])
        if len(place) == 1:
            return self.value(place[0])
        if place[1] == "handed":
            return self.handed(place[0])
        if place[1] == "answers":
            return self.effect(place[0], place[2], str)
        message = cast("ModelResponse", self.value(place[0])).message
        if place[1] == "message":
            return message
        return ToolCalls(message.tool_calls, message.text) if place[1] == "calls" else message.text

    def about(self, question: Mapping[str, Any]) -> Any:
        """Give what a question is about."""
        data = question["about"]
        return (
            self.at(cast("dict[str, Any]", data))
            if isinstance(data, dict) and "$at" in data
            else decode(data, self.blobs)
        )

    def _result(self, number: int) -> ToolResult:
        found = self.value(number)
        if not isinstance(found, ToolResult):
            raise TypeError
        return found

    # ---- what was spent

    def spent(self) -> tuple[int, int, Usage, float]:
        """Give how many nodes and model turns there were, what they cost, and for how many seconds the run was executed."""
        seconds = self._ran() / 1000
        for number in range(self.last, 0, -1):
            entry = self.entry(number)
            if "spent" in entry:
                with self.reading(number):
                    spent = entry["spent"]
                    if isinstance(spent, int):
                        return spent, 0, Usage(), seconds
                    return spent[0], spent[1], read_usage(spent[2:]), seconds
        return 0, 0, Usage(), seconds

    def _ran(self) -> int:
        """Give for how many milliseconds the run was executed: what was said last of it, and the time since then."""
        for number in range(self.last, 0, -1):
            if number > 1 and b'"ran":' not in self.entries[number - 1]:
                continue
            with self.reading(number):
                entry = self.entry(number)
                if "ran" in entry or number == 1:
                    return int(entry.get("ran", 0)) + max(int(self.entry(self.last)["at"]) - int(entry["at"]), 0)
        return 0

    def charges(self) -> list[Charge]:
        """Give what was spent, row by row.

        Raises:
            DamagedStoreError: an entry cannot be read.
        """
        found: list[Charge] = []
        for number in range(1, self.last + 1):
            entry = self.entry(number)
            with self.reading(number):
                found += [Charge.read(row) for row in entry.get("charges", ())]
                if "response" in entry:
                    said = entry["response"]
                    node = entry.get("in", "") + entry["node"]
                    found.append(Charge(node, entry["key"], said["model"], read_usage(said["usage"])))
        return found

    def charged(self, run_id: str) -> Usage:
        """Give what is counted here of a sub-agent's run."""
        name = run_id.encode()
        rows = (
            Charge.read(row)
            for number, data in enumerate(self.entries, 1)
            if name in data
            for row in self.entry(number).get("charges", ())
        )
        return sum((row.usage for row in rows if row.run_id == run_id), Usage())

    # ---- what was said

    def memory(self, branches: Branches = ()) -> RunMemory:
        """Give the transcript of the run, or of a branch, whose steps are read when someone looks at them."""
        with self.reading(1):
            first = self.entry(1)
            begun, system = first["begun"], decode(first["system"], self.blobs)
        inherited = self._transcripts()[branches].inherited if branches else begun
        return RunMemory.deferred(system, begun, inherited, lambda memory: self._tell(memory, branches))

    def said_in(self, branches: Branches) -> bool:
        """Tell whether something was said in a branch."""
        return branches in self._transcripts()

    def _tell(self, memory: RunMemory, branches: Branches) -> None:
        told = self._transcripts()[branches]
        memory.steps.extend(told.steps)
        memory.lower(told.floor)
        awaited, asked = told.heard
        heard: dict[str, Any] = {}
        if awaited:
            heard["awaited"] = self.value(1)
        if asked and branches in self.standing:
            heard["asked"] = self.standing[branches]
        memory.restore(turn=told.open, prompt=told.reader.prompt, **heard)
        memory.written_heard = told.heard

    def _transcripts(self) -> dict[Branches, Transcript]:
        if self._told is None:
            self._told = transcripts(self, shown=sys.maxsize)
        return self._told

    def shown(self) -> RunMemory:
        """Give the transcript with what a node said that was broken off, for people: it is said again when the run goes on."""
        said = said_last(self)
        self._told = transcripts(self, shown=said[0] if said else sys.maxsize)
        memory = self.memory()
        done = [
            number
            for place in self.places().values()
            for key, (number, answered) in place.effects.items()
            if answered < 0 and key.startswith("call:")
        ]
        memory.arrived = [each for each in map(self.value, done) if isinstance(each, ToolResult)]
        return memory


def _kind_behind(way: Way) -> Any:
    """Give the declared type of what the last change of a way out gives."""
    return next((rule.value for rule in reversed(way.rules) if rule.change is not None), Any)


def _error(kept: object, kind: type[Exception] | None) -> Any:
    """Give an error of a class: as it was kept, or made of its text without its constructor."""
    if kind is None or isinstance(kept, Exception):
        return kept
    try:
        error = kind.__new__(kind)
    except TypeError:  # a group, which is not made without its errors
        error = kind.__new__(kind, str(kept), [RuntimeError(str(kept))])
    error.args = (str(kept),)
    return error


async def read_head(store: Store, owner: str, run_id: str) -> tuple[Head, int]:
    """Give the head of a run, and its version.

    Raises:
        RunNotFoundError: there is no such run.
        StoreError: it cannot be read.
    """
    item = await store.get(head_key(owner, run_id))
    if item is None:
        raise RunNotFoundError(run_id, owner)
    return Head.unpack(item.value, run_id), item.version


async def read_recording(store: Store, owner: str, run_id: str, *, until: int | None = None) -> tuple[Recording, int]:
    """Give the recording of a run, and the version of its head.

    Raises:
        RunNotFoundError: there is no such run.
        DamagedStoreError: an entry or a payload is missing or is not what was written.
        StoreError: the store cannot be read.
    """
    head, version = await read_head(store, owner, run_id)
    entries: list[bytes] = []
    blobs: dict[str, bytes] = {}
    if head.origin is not None:
        origin, _ = await read_recording(store, owner, head.origin[0], until=head.origin[1])
        entries += origin.entries
        blobs.update(origin.blobs.held)
    async for item in store.scan(entries_key(owner, run_id)):
        name = item.key[-1]
        if isinstance(name, str):
            blobs[name] = item.value
            continue
        if name != len(entries) + 1:
            raise DamagedStoreError(f"run {run_id!r}", f"its entry {len(entries) + 1} is missing")
        check(item.value, f"entry {name} of run {run_id!r}")
        entries.append(item.value)
    wanted = head.last if until is None else until
    if len(entries) < wanted:
        raise DamagedStoreError(f"run {run_id!r}", f"its entry {len(entries) + 1} is missing")
    entries = entries if until is None else entries[:until]
    if until is None:
        check_payloads(run_id, entries, blobs)
    return Recording(head, entries, blobs), version
