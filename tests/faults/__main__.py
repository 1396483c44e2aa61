"""`make faults`: try all faults, print what came of them, and write it into the documentation."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

from tests.faults.campaign import KINDS, OUR_NAMES, Outcome, tasks
from tests.faults.oracle import COLUMNS
from tests.faults.subjects import OTHERS, OURS
from tests.thorough import SEED

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
BEGIN, END = "<!-- the table of make faults -->\n", "<!-- its end -->\n"
HEAD = "| | faults | acknowledged records lost | wrong values | undetected damage | unusable stores |\n|---|--:|--:|--:|--:|--:|\n"


def main():
    """Run the campaign."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--seed", default=SEED, help="what is chosen by chance follows from it (the commit)")
    parser.add_argument("--share", type=float, default=1.0, help="how much of the campaign (1: all of it)")
    parser.add_argument("--kind", default="", help="only kinds of faults with this in their names")
    parser.add_argument("--store", default="", help="only stores and providers with this in their names")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", type=int, default=3, help="how many of each that went wrong are shown")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/faults.md")
    given = parser.parse_args()
    began = time.monotonic()
    outcome = run(tasks(given.seed, given.share, given.kind, given.store), given.processes)
    title = heading(given.seed, time.monotonic() - began, outcome)
    tables = (
        "\n\n".join(
            (
                title,
                by_store(outcome),
                "The same by kinds of faults, of graphagent alone:",
                by_kind(outcome),
                "What is not promised:",
                not_promised(outcome),
            )
        ).rstrip()
        + "\n"
    )
    print(tables)
    if given.write:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{tables}\n{END}{rest.partition(END)[2]}", "utf-8")
    wrong = outcome.of(stores=OUR_NAMES)
    for (kind, store), tally in outcome.tallies.items():
        if (
            tally.shown
            and store in OUR_NAMES
            and store not in next(each for each in KINDS if each.name == kind).without
        ):
            print(f"\n{store}, {kind}:", *tally.shown[: given.show], sep="\n  ")
    sys.exit(bool(outcome.undone) or any(wrong.counts[column] for column in COLUMNS[1:]))


def run(todo, processes):
    """Return the outcome of tasks, the longest first."""
    outcome, done = Outcome(), 0
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(task.run): task for task in sorted(todo, key=lambda task: -KINDS[task.kind].parts)}
        for future in as_completed(running):
            try:
                outcome.add(running[future], future.result())
            except Exception:
                print(f"{running[future]} could not be done:", traceback.format_exc(), sep="\n")
                outcome.undone += 1
            done += 1
            if sys.stderr.isatty():
                faults = sum(tally.counts["faults"] for tally in outcome.tallies.values())
                print(f"\r{done} of {len(todo)} parts, {faults:,} faults", end="", file=sys.stderr, flush=True)
    return outcome


def heading(seed, seconds, outcome):
    """Return when, of which commit and where the faults were tried."""
    total = sum(tally.counts["faults"] for tally in outcome.tallies.values())
    return f"{total:,} faults on {datetime.now(UTC):%d %B %Y}, seed and commit `{seed}`, in {seconds / 60:.0f} minutes on {machine()}."


def machine():
    """Return what kind of computer this is."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "an unknown processor"
    )
    return f"{os.cpu_count()} cores of {model}, files in memory"


def row(name, counts):
    """Return a row of a table."""
    return f"| {name} | {' | '.join(f'{counts[column]:,}' for column in COLUMNS)} |\n"


def by_store(outcome):
    """Return a table of the stores and providers, then of the others."""
    rows = {subject.name: outcome.of(stores=[subject.name]).counts for subject in OURS}
    rows["**all of graphagent**"] = outcome.of(stores=OUR_NAMES).counts
    rows |= {subject.name: outcome.of(stores=[subject.name]).counts for subject in OTHERS}
    return HEAD + "".join(row(name, counts) for name, counts in rows.items() if counts["faults"])


def by_kind(outcome):
    """Return a table of the kinds of faults."""
    rows = []
    for kind in KINDS:
        ours = outcome.of(kind.name, OUR_NAMES).counts
        if ours["faults"]:
            rows.append(row(kind.name, ours))
    return HEAD + "".join(rows)


def not_promised(outcome):
    """Return a table of what no store promises to notice."""
    rows = []
    for kind in KINDS:
        for store in kind.without:
            if store in OUR_NAMES and (counts := outcome.of(kind.name, [store], promised=False).counts)["faults"]:
                rows.append(row(f"{kind.name}: {store}", counts))
    return HEAD + "".join(rows)


if __name__ == "__main__":
    main()
