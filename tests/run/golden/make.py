"""Writes the golden journals and what is expected of them: `python -m tests.run.golden.make [name …]`.

The journals of 0.1 are never written again: they are what users have. What is expected of them may be, with `--expected`, where a
change of behaviour is wanted; `git diff --stat` then says which scenarios it concerned.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any
from unittest.mock import patch

import anyio

from graphagent.run.durable import export_runs
from graphagent.store import MemoryStore
from graphagent.testing import fixed_clock, fixed_ids
from tests.run.golden import journals
from tests.run.golden.strategies import SCENARIOS, Scenario, play_to_the_end


async def journal_of(scenario: Scenario) -> journals.Records:
    """Play a scenario, and return the export of its runs."""
    world = await journals.world_of(scenario, first=True)
    store = MemoryStore()

    def make() -> Any:
        return scenario.make(world, store)

    with fixed_clock(), fixed_ids(), patch.object(time, "perf_counter", lambda: 0.0):
        if scenario.play is None:
            await play_to_the_end(make(), world, scenario.task)
        else:
            await scenario.play(make, world)
        return [without_times(record) async for record in export_runs(store, run_ids=scenario.runs)]


def without_times(record: Any) -> Any:
    """Return a record without what depends on the machine: for how long it executed the run, and where its files are."""
    record = json.loads(json.dumps(record))
    if record["type"] == "run":
        if "seconds" in record["head"]:
            record["head"]["seconds"] = 0.5
        record["crc"] = journals.checksum(record["head"])
    elif record["type"] == "entry":
        entry = record["entry"]
        if "ran" in entry:
            entry["ran"] = 5 * record["number"]
        if "failure" in entry:
            entry["failure"]["traceback"] = f"Traceback …\n{entry['failure']['message']}"
        record["crc"] = journals.checksum(entry)
    return record


async def expected_of(scenario: Scenario, records: journals.Records) -> Any:
    """Return what is expected of a journal: its history, each state, and what comes of resuming, forking and rerunning it."""
    store = await journals.stored(records)
    whole = await journals.read_whole(scenario, store)
    numbers = [entry["number"] for entry in whole["history"]]
    return {
        **whole,
        "states": {str(n): await journals.state_after(scenario, store, n) for n in numbers},
        "resumed": {str(n): await journals.resumed_after(scenario, records, n) for n in journals.entries_of(records)},
        "forked": {
            name: await journals.forked_from(scenario, records, place)
            for name, place in journals.places_of(records, whole["history"]).items()
        },
        "rerun": {
            str(n): await journals.rerun_of(scenario, records, n)
            for n in (None, *numbers)
            if n is None or scenario.reruns_everywhere
        },
    }


async def main(names: list[str]) -> None:
    """Write the files."""
    journals.FOLDER.mkdir(exist_ok=True)
    again = "--expected" in names
    wanted = [name for name in names if not name.startswith("-")]
    for scenario in SCENARIOS:
        if wanted and scenario.name not in wanted:
            continue
        if not again:
            records = await journal_of(scenario)
            text = "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)
            journals.write_file(journals.FOLDER / f"{scenario.name}.jsonl.gz", text.encode())
        records = journals.read_journal(scenario.name)
        expected = await expected_of(scenario, records)
        journals.write_file(journals.FOLDER / f"{scenario.name}.expected.json.gz", journals.Pool.written(expected))
        kinds = sorted({entry["kind"] for entry in expected["history"]})
        again_done = {n: each["again"] for n, each in expected["resumed"].items() if each["again"]}
        print(scenario.name, len(expected["history"]), kinds, expected["read"]["status"], again_done or "")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
