"""What is to hold whatever happens: judged by what runs said at their end, and by the marks that they left outside of the store."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.many.marks import Mark

COUNTS = (
    "runs", "killed", "stopped", "cut", "restarted", "ended", "did not end", "lost", "wrong", "doubled", "begun twice",
)  # fmt: skip
WRONG = ("did not end", "lost", "wrong", "doubled")


@dataclass
class Tally:
    """What was counted."""

    counts: dict = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    longest: float = 0.0
    """Seconds for which something waited beyond the time at which it was due, those of outages left out."""
    shown: list = field(default_factory=list)
    """What went wrong, in words."""

    def add(self, count, number=1, said=None):
        """Count something."""
        self.counts[count] += number
        if said is not None:
            self.shown.append(f"{count}: {said}")

    def update(self, other):
        """Add what another one has."""
        for count, number in other.counts.items():
            self.counts[count] += number
        self.longest = max(self.longest, other.longest)
        self.shown += other.shown


def judge(runs, marks, outages, allowed, tally):
    """Count how runs ended, which effects were done twice, and how long anything waited."""
    of = defaultdict(list)
    for mark in marks:
        of[mark.run].append(mark)
    for run in runs:
        tally.add("runs")
        mine = of[run.run_id]
        if run.gone:
            tally.add("lost", said=f"{run.run_id} is not in the store: its last marks are {_told(mine[-5:])}")
        if not run.over:
            tally.add("did not end", said=f"{run.run_id}: its last marks are {_told(mine[-5:])}")
        else:
            tally.add("ended")
            if run.wrong:
                tally.add("wrong", said=f"{run.run_id}: {run.wrong}")
            _effects(run, mine, tally)
        _keys(run, mine, tally)
        _order(run, of, tally)
        _waits(run, of, outages, allowed, tally)


def _effects(run, marks, tally):
    """Check that nothing was begun after the execution that is recorded was done; what was begun before is counted apart."""
    for name, recorded in run.recorded().items():
        begun = [at for at, mark in enumerate(marks) if mark.what == "begins" and mark.about == name]
        done = next((at for at, mark in enumerate(marks) if mark.what == "has done" and mark.token == recorded), None)
        if done is None:
            if begun:
                tally.add("wrong", said=f"{run.run_id}: {name} is recorded as {recorded}, which was not done")
            continue
        after = [marks[at] for at in begun if at > done]
        tally.add("begun twice", len(begun) - 1 - len(after))
        if after:
            tally.add("doubled", len(after), f"{run.run_id}: {name} is recorded as {recorded}: {_told(marks)}")


def _keys(run, marks, tally):
    """Check that calls of a tool that are made again have the same key."""
    keys = defaultdict(set)
    for mark in marks:
        if mark.what == "has key":
            keys[mark.about].add(mark.token)
    for name, each in keys.items():
        if len(each) > 1:
            tally.add("wrong", said=f"{run.run_id}: {name} has the keys {sorted(each)}")


def _order(run, of, tally):
    """Check that the runs of a thread are executed one after the other."""
    first = _first(of[run.run_id])
    for before in run.before[-1:]:
        last = max((mark.at for mark in of[before.run_id] if mark.what == "ends"), default=None)
        if first is not None and (last is None or last > first):
            tally.add("wrong", said=f"{run.run_id} begins before {before.run_id} has ended")


def _waits(run, of, outages, allowed, tally):
    """Note for how long the run waited for nothing: between two marks, from when the first of them let the second one be expected."""
    marks = list(of[run.run_id])
    if run.before and marks:  # it waits for the one before it
        held = max((mark.at for mark in of[run.before[-1].run_id] if mark.what == "ends"), default=None)
        if held is not None:
            marks = sorted([*marks, Mark(held, run.run_id, "may begin")])
    due, answered, waited = None, False, []
    for mark in marks:
        if due is not None and mark.at > due:
            down = sum(max(0, min(mark.at, end) - max(due, begin)) for begin, end in outages)
            waited.append((mark.at - due - down, mark))
        answered = answered or mark.what == "answered"
        seconds = 0 if mark.what == "asks" and answered else mark.due
        due = None if seconds is None else mark.at + seconds
        if (
            run.before
            and mark.what == "submitted"
            and not any(each.what == "may begin" and each.at <= mark.at for each in marks)
        ):
            due = None
    if waited:
        longest, mark = max(waited)
        tally.longest = max(tally.longest, longest)
        if longest > allowed:
            tally.shown.append(
                f"late: {run.run_id} by {longest:.1f} s before {_told([mark])}, after {_told([each for each in marks if each.at < mark.at][-3:])}"
            )


def _first(marks):
    return min((mark.at for mark in marks if mark.what not in ("submitted", "answered", "seen")), default=None)


def _told(marks):
    return ", ".join(
        f"{mark.at:.2f} {mark.what} {mark.about}{' ' if mark.about else ''}{mark.token}".rstrip() for mark in marks
    )
