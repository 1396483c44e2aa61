"""The golden journals as files: read, cut after any entry, put into stores, and described through public names alone."""

from __future__ import annotations

import dataclasses
import enum
import gzip
import itertools
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
import pydantic

from graphagent.errors import RunError
from graphagent.run.durable import import_runs
from graphagent.store import MemoryStore
from graphagent.testing import fixed_clock, fixed_ids
from tests.run.golden.strategies import RUN, Scenario, answer_to
from tests.run.golden.world import World

FOLDER = Path(__file__).parent / "data"
LATER = 1_740_000_000_000
"""When runs are resumed."""
LONG = 300
"""Longer texts are described by their length and their hash."""

Records = list[dict[str, Any]]


# ---- files


def write_file(path: Path, data: bytes) -> None:
    """Write a compressed file that is the same whenever it is written."""
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def read_journal(name: str) -> Records:
    """Return the records of an export."""
    return [json.loads(line) for line in gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes()).splitlines()]


def read_expected(name: str) -> Any:
    """Return what is expected of a journal."""
    return Pool.read(json.loads(gzip.decompress((FOLDER / f"{name}.expected.json.gz").read_bytes())))


class Pool:
    """JSON data in which what occurs several times is stored once: lists and objects become references into a table."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._table: list[str] = []

    def _put(self, data: Any, depth: int = 0) -> Any:
        if isinstance(data, dict):
            data = {key: self._put(value, depth + 1) for key, value in data.items()}
        elif isinstance(data, list):
            data = [self._put(value, depth + 1) for value in data]
        else:
            return data
        text = json.dumps(data)
        if len(text) < 40 or not depth:
            return data
        number = self._numbers.setdefault(text, len(self._table))
        if number == len(self._table):
            self._table.append(text)
        return {"&": number}

    @staticmethod
    def written(data: Any) -> bytes:
        """Return data as text."""
        pool = Pool()
        top = pool._put(data)
        return json.dumps({"data": top, "table": [json.loads(each) for each in pool._table]}, indent=0).encode()

    @staticmethod
    def read(written: Any) -> Any:
        """Return the data that was written."""
        table: list[Any] = []

        def found(data: Any) -> Any:
            if isinstance(data, list):
                return [found(each) for each in data]
            if isinstance(data, dict):
                return table[data["&"]] if data.keys() == {"&"} else {key: found(each) for key, each in data.items()}
            return data

        for each in written["table"]:
            table.append(found(each))
        return found(written["data"])


def checksum(data: Any) -> str:
    """Return the checksum of a head or an entry, as docs/journal.md says."""
    return f"{zlib.crc32(orjson.dumps(data)):08x}"


# ---- cutting


def family_of(records: Records) -> list[str]:
    """Return the ids of the runs of an export."""
    return [record["run_id"] for record in records if record["type"] == "run"]


def entries_of(records: Records, run_id: str = RUN) -> dict[int, Any]:
    """Return the own entries of a run: of a fork, those after it parted."""
    return {
        record["number"]: record["entry"]
        for record in records
        if record["type"] == "entry" and record["run_id"] == run_id
    }


def cut(records: Records, number: int) -> Records:
    """Return an export as it would be if the process had been killed after an entry of the run.

    Runs of sub-agents are cut at the same moment: the clock that made the journals gave each entry another time.
    """
    moment = max(entry["at"] for n, entry in entries_of(records).items() if n <= number)
    left: Records = []
    for run_id in family_of(records):
        entries = entries_of(records, run_id)
        if run_id == RUN:
            entries = {n: entry for n, entry in entries.items() if n <= number}
        else:  # what a stop says was said is numbered before it, and has a later time
            entries = dict(itertools.takewhile(lambda item: item[1]["at"] <= moment, entries.items()))
        if not entries:
            continue
        for record in records:
            if record["run_id"] != run_id:
                continue
            if record["type"] == "run":
                head = _head_at(record["head"], entries)
                left.append({**record, "last": max(entries), "head": head, "crc": checksum(head)})
            elif record["type"] == "payload" or record["number"] in entries:
                left.append(record)
    return left


def _head_at(head: Mapping[str, Any], entries: Mapping[int, Any]) -> dict[str, Any]:
    last = entries[max(entries)]
    kind = last["t"]
    changed = {**head, "status": last["status"] if kind == "stop" else "done" if kind == "final" else "running"}
    if "last" in changed:
        changed["last"] = max(entries)
    changed.pop("reason", None)
    if kind == "stop" and isinstance(last.get("reason"), str):
        changed["reason"] = last["reason"]
    if not any(entry.get("key") == "not learned" for entry in entries.values()):
        changed.pop("unlearned", None)
    return changed


TAG = re.compile(r"E:[0-9a-f]{10}")


def recorded(records: Records) -> Counter[str]:
    """Return how often each effect is in the entries of the runs, under its tag."""
    found: Counter[str] = Counter()
    for record in records:
        if record["type"] == "entry" and record["entry"]["t"] == "effect":
            found.update(set(TAG.findall(json.dumps(record["entry"]))))
    return found


# ---- descriptions


def described(value: object) -> Any:
    """Return plain JSON data that says what a value is: its type, and what is in it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return {"enum": f"{type(value).__name__}.{value.name}"}
    if isinstance(value, str):
        return value if len(value) <= LONG else {"text": len(value), "hash": hash_of(value.encode())}
    if isinstance(value, int):
        return value if abs(value) < 2**53 else {"int": str(value)}
    if isinstance(value, float):
        return {"float": repr(value)} if not math.isfinite(value) else value
    if isinstance(value, bytes):
        return {"bytes": len(value), "hash": hash_of(value)}
    if isinstance(value, BaseException):
        return {"error": type(value).__name__, "text": described(str(value))}
    if isinstance(value, Mapping):
        return {"map": [[described(key), described(each)] for key, each in value.items()]}
    if isinstance(value, set | frozenset):
        return {type(value).__name__: sorted(map(described, value), key=repr)}
    if isinstance(value, pydantic.BaseModel):
        return {
            "class": type(value).__name__,
            **{name: described(getattr(value, name)) for name in type(value).model_fields},
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value) if each.compare and each.name != "provider"]
        return {"class": type(value).__name__, **{name: described(getattr(value, name)) for name in names}}
    if isinstance(value, list):
        return [described(each) for each in value]
    if isinstance(value, tuple):
        return {"tuple": [described(each) for each in value]}
    return {type(value).__name__: repr(value)}


def hash_of(data: bytes) -> str:
    """Return a short hash."""
    return blake2b(data, digest_size=8).hexdigest()


def shortened(data: Any) -> Any:
    """Return plain JSON data without times of tools, and with long texts as hashes."""
    if isinstance(data, dict):
        return {key: shortened(value) for key, value in data.items() if key != "seconds"}
    if isinstance(data, list | tuple):
        return [shortened(each) for each in data]
    return described(data)


def described_memory(memory: Any) -> Any:
    """Describe a transcript: all that its steps say, what the model would be sent next, and how far it can be trusted."""
    return {
        "system": memory.system_prompt.system_prompt,
        "trust": memory.trust,
        "steps": [shortened(step) for step in memory.full_steps()],
        "messages": [described(message) for message in memory.to_messages()],
    }


def described_usage(usage: Any) -> Any:
    """Describe what was spent."""
    return [usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens, str(usage.cost)]


def described_questions(questions: Iterable[Any], *, ids: bool = True) -> Any:
    """Describe open questions."""
    return [
        {
            **({"id": each.id, "run": each.run_id} if ids else {}),
            "question": each.question,
            "node": each.node,
            "kind": each.kind,
            "about": described(each.about),
            "schema": each.json_schema,
        }
        for each in questions
    ]


def described_entry(entry: Any) -> Any:
    """Describe an entry of a history.

    Not its `answers`: reading those that have a type of their own raises today.
    """
    return {
        "number": entry.number, "kind": entry.kind, "at": entry.at, "node": entry.node, "where": entry.where,
        "next": entry.next, "key": entry.key, "value": described(entry.value),
    }  # fmt: skip


def described_state(snapshot: Any) -> Any:
    """Describe how a run stood after an entry."""
    return {
        "number": snapshot.number,
        "places": {path: described(value) for path, value in sorted(snapshot.places.items())},
        "value": described(snapshot.value),
        "questions": described_questions(snapshot.questions),
        "nodes": snapshot.nodes,
        "turns": snapshot.turns,
        "usage": described_usage(snapshot.usage),
        "memory": described_memory(snapshot.memory),
    }


def described_error(error: BaseException | None) -> Any:
    """Describe an error by its type and those of its causes."""
    found = []
    while error is not None:
        found.append(type(error).__name__)
        error = error.__cause__
    return found


def described_result(result: Any, *, ids: bool = True) -> Any:
    """Describe what a run has come to."""
    rows = [
        [row.node, row.what, row.model, bool(row.run_id), described_usage(row.usage)] for row in result.ledger.charges
    ]
    return {
        "status": result.status,
        "output": described(result.output) if result.done else None,
        "questions": described_questions(result.questions, ids=ids),
        "nodes": result.nodes,
        "turns": result.turns,
        "usage": described_usage(result.usage),
        "finish": result.finish_reason,
        "ledger": sorted(rows, key=repr),
        "children": sorted([child.result.status, described_memory(child.memory)["trust"]] for child in result.children),
        "memory": described_memory(result.memory),
    }


# ---- lives of the runs


async def stored(records: Records, store: Any = None) -> Any:
    """Return a store that has the runs of an export."""
    store = store or MemoryStore()
    await import_runs(store, records)
    return store


async def world_of(scenario: Scenario, *, first: bool = False) -> World:
    """Return the world in which a run is read or resumed."""
    world = World(first=first)
    with fixed_clock(LATER - 10_000_000_000, 1), fixed_ids("known"):
        if scenario.prepare is not None:
            await scenario.prepare(world)
        if not first and scenario.afterwards is not None:
            await scenario.afterwards(world)
    world.done.clear()
    return world


async def read_whole(scenario: Scenario, store: Any) -> Any:
    """Describe a run as it was stored, without resuming it."""
    agent = scenario.make(await world_of(scenario), store)
    history = await agent.history(RUN)
    run = await agent.read(RUN, allow_changed=scenario.allow_changed)
    return {"history": [described_entry(entry) for entry in history], "read": described_result(run.result)}


async def state_after(scenario: Scenario, store: Any, number: int) -> Any:
    """Describe how a run stood after an entry."""
    agent = scenario.make(await world_of(scenario), store)
    return described_state(await agent.state_at(RUN, number))


async def resumed_after(scenario: Scenario, records: Records, number: int, store: Any = None) -> Any:
    """Describe a run whose process was killed after an entry: as it is read, and what comes of it when it is resumed."""
    left = cut(records, number)
    store = await stored(left, store)
    world = await world_of(scenario)
    with fixed_clock(LATER, 0), fixed_ids("later"):
        agent = scenario.make(world, store)
        run = await agent.read(RUN, allow_changed=scenario.allow_changed)
        read = described_result(run.result)
        last, error = await finished(scenario, world, store)
        ended = await ended_as(scenario, store, last)
    again = {
        tag: count
        for tag, count in (recorded(left) + world.done).items()
        if world.done[tag] and count > max(recorded(records)[tag], 1) and recorded(left)[tag]
    }
    return {
        "read": read,
        "error": error,
        "ended": ended,
        "done": sorted(world.done.elements()),
        "again": again,
    }


async def ended_as(scenario: Scenario, store: Any, last: Any) -> Any:
    """Describe what a run has come to, and see that it is read again as that."""
    after = await scenario.make(await world_of(scenario), store).read(last.run_id, allow_changed=True)
    live, read = described_result(last, ids=False), described_result(after.result, ids=False)
    if scenario.mutates:  # steps hold the very objects that nodes changed; the journal has them as they were
        live["memory"] = read["memory"]
    live["children"] = read["children"]  # a run that was resumed knows only those that it began or found open
    if scenario.afterwards is None and scenario.reads_back:
        assert {**live, "status": "", "finish": ""} == {**read, "status": "", "finish": ""}
    return live


async def finished(scenario: Scenario, world: World, store: Any) -> tuple[Any, Any]:
    """Resume a run to its end, answer its questions, and return its last result and its error."""
    for _ in range(30):
        agent = scenario.make(world, store)
        run = await agent.read(RUN, allow_changed=scenario.allow_changed)
        answers = {each.id: answer_to(each) for each in run.questions}
        try:
            result = await agent.resume(RUN, answers=answers, allow_changed=scenario.allow_changed)
        except RunError as error:
            assert agent.last is not None
            return agent.last.result, described_error(error)
        if result.status != "waiting":
            return result, None
    raise AssertionError("the run does not end")


async def forked_from(scenario: Scenario, records: Records, place: Mapping[str, Any]) -> Any:
    """Describe what comes of a fork of the whole run, which is not answered."""
    store, world = await stored(records), await world_of(scenario)
    with fixed_clock(LATER, 0), fixed_ids("fork"):
        agent = scenario.make(world, store)
        try:
            result, error = await agent.fork(RUN, **place, run_id="f", allow_changed=scenario.allow_changed), None
        except RunError as failed:
            assert agent.last is not None
            result, error = agent.last.result, described_error(failed)
        except ValueError as refused:
            return {"error": type(refused).__name__}
        done = sorted(world.done.elements())
        return {"error": error, "result": await ended_as(scenario, store, result), "done": done}


async def rerun_of(scenario: Scenario, records: Records, until: int | None) -> Any:
    """Describe what comes of executing the run again on its recorded effects."""
    store, world = await stored(records), await world_of(scenario)
    with fixed_clock(LATER, 0), fixed_ids("rerun"):
        agent = scenario.make(world, store)
        try:
            result, error = await agent.rerun(RUN, until=until), None
        except RunError as failed:
            assert agent.last is not None
            result, error = agent.last.result, described_error(failed)
        done = sorted(world.done.elements())
        return {"error": error, "result": await ended_as(scenario, store, result), "done": done}


def places_of(records: Records, history: list[Any]) -> dict[str, dict[str, Any]]:
    """Return the places where a run is forked, under their names: at every entry, before and after every node."""
    found: dict[str, dict[str, Any]] = {f"at {entry['number']}": {"at": entry["number"]} for entry in history}
    for entry in history:
        if entry["node"]:
            found[f"after {entry['node']}"] = {"after": entry["node"]}
            found[f"before {entry['node']}"] = {"before": entry["node"]}
    return found
