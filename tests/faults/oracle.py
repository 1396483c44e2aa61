"""What is right after a fault, and counting what is not."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from graphagent.errors import GraphAgentError
from tests.faults.subjects import AFTER, OURS, closed, do

COLUMNS = ("faults", "lost", "wrong", "undetected", "unusable")
SHOWN = 200
READ = [0, 2, 4, 6, 8]
"""The numbers of the records that the steps leave."""


@dataclass
class Tally:
    """The outcomes of faults of one kind, of one store or provider."""

    counts: Counter = field(default_factory=Counter)
    shown: list = field(default_factory=list)
    """How some of those that went wrong come about."""

    def add(self, where, **counts):
        """Count a fault: how many acknowledged records were lost, and whether anything else went wrong."""
        self.counts["faults"] += 1
        for column, number in counts.items():
            self.counts[column] += number
            if number and len(self.shown) < SHOWN:
                self.shown.append(f"{column}: {where}")

    def update(self, other):
        """Add the outcomes of another one."""
        self.counts.update(other.counts)
        self.shown = (self.shown + other.shown)[:SHOWN]


def expected(marks):
    """Return the records that must be there, and those that may be, after what a program began and was told to be done."""
    must, may = set(), set()
    for what, step in marks:
        if step == "forget":
            odd = {number for number in must | may if number % 2}
            must -= odd
            may = may | odd if what == "begin" else may - odd
        elif step.startswith("save"):
            number = int(step.split()[1])
            (must if what == "ack" else may).add(number)
    return must, may | must


async def after_crash(subject, folder, marks, where, tally, *, verified=True):
    """Count a crash. What was acknowledged must be there and nothing that was never saved, and saving must go on."""
    must, may = expected(marks)
    try:
        async with closed(subject, folder) as handle:
            found = await subject.records(handle)
            await do(subject, handle, AFTER)
            if verified:
                await subject.verify(handle)
        async with closed(subject, folder) as handle:
            again = await subject.records(handle)
    except AssertionError as error:
        tally.add(f"{where}: {error}", wrong=1)
    except Exception as error:
        tally.add(f"{where}: {type(error).__name__}: {error}", unusable=1)
    else:
        lost, more = (must - found) | (found | {int(AFTER.split()[1])}) - again, found - may
        tally.add(f"{where}: lost {sorted(lost)}, more {sorted(more)}", lost=len(lost), wrong=len(more))


class _Warned(logging.Handler):
    """Counts the warnings of graphagent: a torn line is passed over with one."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record):
        """Count a warning."""
        self.count += 1


async def after_damage(subject, folder, sound, where, tally):
    """Count damage. Each read must return what was there, or say that something is damaged: raise, or warn."""
    said, wrong, undetected, unusable = [], 0, 0, 0
    warned, log = _Warned(), logging.getLogger("graphagent")
    propagates, log.propagate = log.propagate, False
    log.addHandler(warned)
    try:
        async with closed(subject, folder) as handle:
            for number, (read, right) in enumerate(zip(subject.reads(handle, READ), sound, strict=True)):
                try:
                    found = await read()
                except GraphAgentError:
                    continue
                except Exception as error:
                    if subject in OURS:
                        unusable = 1
                        said.append(f"read {number} raises {type(error).__name__}: {error}")
                    continue
                if found != right and not warned.count:
                    invented = _is_invented(found, right)
                    wrong, undetected = max(wrong, invented), max(undetected, not invented)
                    said.append(f"read {number} returns another result")
    except GraphAgentError:
        pass
    except Exception as error:
        if subject in OURS:
            unusable = 1
            said.append(f"{type(error).__name__}: {error}")
    finally:
        log.removeHandler(warned)
        log.propagate = propagates
    tally.add(f"{where}: {'; '.join(said)}", wrong=wrong, undetected=int(undetected and not wrong), unusable=unusable)


def _is_invented(found, right):
    """Return whether a result has something that is not in the right one: a wrong value. Otherwise it lacks something."""
    if isinstance(right, dict):
        return not isinstance(found, dict) or any(right.get(key) != each for key, each in found.items())
    if isinstance(right, list):
        return any(each not in right for each in found)
    return found is not None


def contents(folder):
    """Return the bytes of the files of a folder."""
    paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def restore(folder, files):
    """Put files into a folder, in the place of all that are there."""
    for path in Path(folder).rglob("*"):
        if path.is_file() and str(path.relative_to(folder)) not in files:
            path.unlink()
    for name, data in files.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
