"""`make many`: eight workers, and all trouble there is; print what came of it, and write it into the documentation."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime

from tests.faults.__main__ import PAGE, machine
from tests.many.apart import run_all
from tests.many.campaign import SWEEP, TOGETHER, WORKERS, tasks
from tests.many.hosts import can_be_apart
from tests.many.oracle import COUNTS, WRONG, Tally
from tests.many.program import HEARTBEAT, LEASE
from tests.thorough import SEED

BEGIN, END = "<!-- the table of make many -->\n", "<!-- its end, too -->\n"


def main():
    """Run the campaign."""
    parser = argparse.ArgumentParser(prog="make many", description=__doc__)
    parser.add_argument("--seed", default=SEED, help="what is chosen by chance follows from it (the commit)")
    parser.add_argument("--share", type=float, default=1.0, help="how much of the campaign (1: all of it)")
    parser.add_argument("--kind", default="", help="only kinds of trouble with this in their names")
    parser.add_argument("--store", default="", choices=["", "plain", "sealed"], help="only plain or sealed stores")
    parser.add_argument("--together", type=int, default=TOGETHER, help="so many tasks side by side")
    parser.add_argument("--show", type=int, default=30, help="how many of each that went wrong are shown")
    parser.add_argument("--write", action="store_true", help="write the table into docs/faults.md")
    given = parser.parse_args()
    began, chosen = time.monotonic(), tasks(given.seed, given.share, given.kind, given.store)
    tallies = {task.name: Tally() for task in chosen}
    for number, (task, tally) in enumerate(run_all(chosen, given.together), 1):
        tallies[task.name].update(tally)
        print(
            f"{datetime.now(UTC):%H:%M:%S} {number} of {len(chosen)} parts, after {time.monotonic() - began:.0f} s: {row(task.name, tally)}",
            *(f"  {each}" for each in tally.shown[: given.show]),
            sep="\n",
            file=sys.stderr,
            flush=True,
        )
    whole = Tally()
    for tally in tallies.values():
        whole.update(tally)
    text = f"{heading(given.seed, time.monotonic() - began, whole)}\n\n{table(tallies, whole)}"
    print(text)
    if given.write:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", "utf-8")
    sys.exit(any(whole.counts[each] for each in WRONG))


def heading(seed, seconds, whole):
    """Return when, of which commit and where it was done."""
    hosts = (
        "two hosts, in namespaces of their own" if can_be_apart() else "one host, since no namespaces can be made here"
    )
    return (
        f"{whole.counts['runs']:,} runs and {WORKERS} workers on {hosts}, with a lease of {LEASE} s, a heartbeat of {HEARTBEAT} s and a look at "
        f"least every {SWEEP} s; {datetime.now(UTC):%d %B %Y}, seed and commit `{seed}`, in {seconds / 60:.0f} minutes on {machine()}."
    )


def table(tallies, whole):
    """Return a table of the kinds of trouble."""
    head = f"| | {' | '.join(COUNTS)} | longest wait beyond due |\n|---|{'--:|' * (len(COUNTS) + 1)}\n"
    rows = [row(name, tally) for name, tally in tallies.items()]
    return head + "\n".join([*rows, row("**all**", whole)]) + "\n"


def row(name, tally):
    """Return a row of it."""
    return f"| {name} | {' | '.join(f'{tally.counts[each]:,}' for each in COUNTS)} | {tally.longest:.1f} s |"


if __name__ == "__main__":
    main()
