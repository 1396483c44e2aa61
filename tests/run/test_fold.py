"""Reading the entries of a run gives the state that the run had, after every entry.

A store describes the run in each commit, through `live_state.py`; afterwards the state is read from the entries up to there. The two
are the same, with these exceptions and no others. `expected_after` makes them out of what the run was:

1. **What a node adds to a transcript** is written when the node ends (`node`, `recovered`), when it is tried again (`again`), and when
   it fails in a branch whose failure is collected (`failed`); everything else that changes a transcript is in `edit` and `final`.
   Until then the entries tell the transcript as it was.
2. **What an interrupted node had added** is in `said` entries before the `stop`. It is read until an entry of another kind than
   SAYS_NOTHING follows, in any branch. It is not read where the node had changed other steps as well, nor at the end of a strategy.
3. **What was spent** (`spent`, `charges`, `own`) is that of the moment of the last entry that has it. A node is counted when it
   begins, so the run is ahead by the nodes that are being executed. Entries of nodes inside of a strategy alone have its `own`; a node
   that waits is taken off `spent` by the `stop`, and not off `own`.
4. **Questions** are written by the `stop` of a run that waits. One that is paused or fails while questions are open has none: they are
   asked again when it is resumed.
5. **A strategy or a branch that has begun** and has no entry is not there: it is before its first node, and nothing was done in it. Its
   transcript is the one from which it begins.
6. **What is about to be done** (`intent`) and what was answered (`resume`) is written before the node can see it. Where a store breaks
   right after it took an intent, the process itself never knows of it.
7. **When the whole strategy is tried again**, its first node has the `execution` of the first attempt; in the process itself it has
   that of the last node that was executed.
8. **The error of a branch whose failure is collected** is read without its cause.
9. **What a cancelled branch did last** may be committed together with the next entry of another one. Then only the state after the
   later of the two is compared.
"""

from __future__ import annotations

import random

import anyio
import orjson
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from graphagent.errors import JournalError, NodeFailedError, RunNotFoundError, StoreError
from graphagent.memory import FinalAnswerStep
from graphagent.store import MemoryStore
from graphagent.testing import fixed_clock
from tests.run.live_state import described_live, described_recorded, first_of, recorded_runs, runs_of
from tests.run.lives import Life
from tests.run.test_resume import MANY
from tests.run.wider import WideLife, edit, wide_parts
from tests.run.worlds import answer_to, parts
from tests.thorough import examples, some

QUICK = {**MANY, "phases": (Phase.explicit, Phase.generate), "report_multiple_bugs": False}
"""Examples are small, and to shrink one takes minutes."""
NOTHING = [0, 0, [0, 0, 0, 0, "0"]]
SAYS_NOTHING = frozenset(("stop", "resume", "effect", "intent", "spent", "said"))
"""The kinds of entries after which what was said before them still is."""
TRANSCRIPT = frozenset(("start", "node", "recovered", "again", "failed", "edit", "final"))
"""The kinds of entries that tell what was added to a transcript."""


class Watching(MemoryStore):
    """A store that describes the run in each commit of its entries; after some commits, something happens to the run."""

    def __init__(self):
        super().__init__()
        self.run = None
        self.broken = False
        """Whether nothing can be committed."""
        self.seen = []
        """For each commit of entries: their run, the entries by their numbers, and how the run was."""
        self.happens = {}
        """By the number of a commit: what happens in it."""
        self.commits = 0

    async def commit(self, *changes):
        if self.broken:
            raise StoreError("the disk is full")
        entries = [
            (change.key[3], change.key[-1], orjson.loads(change.value[8:]))
            for change in changes
            if change.key[:1] == ("runs",) and change.key[2] == 1 and isinstance(change.key[-1], int)
        ]
        live = {}
        if entries:
            live = {run.run_id: run for run in runs_of(self.run)}
        found = []
        for run_id, run in live.items():
            written = {number: entry for id_, number, entry in entries if id_ == run_id}
            if written:
                found.append((run, written, described_live(run)))
        await super().commit(*changes)
        self.seen += found
        if entries:
            self.commits += 1
            happens = self.happens.pop(self.commits, None)
            if happens is not None:
                happens()


def branch_of(entry):
    """Return the prefix of the branch to whose transcript an entry belongs."""
    if "of" in entry:
        return entry["of"][-1][0] if entry["of"] else ""
    path = entry.get("in", "").split("/")
    last = max((place for place, part in enumerate(path) if part.isdecimal()), default=-1)
    return "".join(f"{part}/" for part in path[: last + 1])


def expected_after(written, live, before):
    """Return how a run is to be read after some entries: as it was, with the exceptions that this file begins with."""
    expected = dict(live)
    if before is None:
        before = {
            "own": {},
            "transcripts": {},
            "said": {},
            "told": set(),
            "anew": False,
            "begun": set(),
            **{name: live[name] for name in ("spent", "charges")},
        }
    intents = [entry for entry in written.values() if entry["t"] == "intent"]
    expected["begun"] = before["begun"] | {(entry.get("in", ""), f"begun:{entry['key']}") for entry in intents}
    for entry in written.values():
        if entry["t"] == "resume":
            for prefix, key, value in live["answers"]:
                live["frames"][prefix]["effects"][key] = value
    expected["questions"] = live["questions"] if [*written.values()][-1].get("status") == "waiting" else []
    if not any("spent" in entry for entry in written.values()):
        expected["spent"], expected["charges"] = before["spent"], before["charges"]
    of_nodes = [entry for entry in written.values() if "node" in entry and entry["t"] != "said"]
    expected["own"] = {
        where: spent
        if any(entry.get("in", "").startswith(f"{where}/") for entry in of_nodes)
        else before["own"].get(where, NOTHING)
        for where, spent in live["own"].items()
    }
    told = {branch_of(entry) for entry in written.values() if entry["t"] in TRANSCRIPT}
    expected["told"] = (before["told"] | told) & live["transcripts"].keys()
    expected["added"] = live["said"]
    expected["transcripts"], expected["said"] = {}, said_after(written, live, before["said"])
    expected["anew"] = begins_anew(written, before["anew"])
    for branch, now in live["transcripts"].items():
        if branch in told:
            expected["transcripts"][branch] = now
        elif branch in before["told"]:
            expected["transcripts"][branch] = before["transcripts"][branch]
        else:
            inherited = now["steps"][: now["inherited"]]
            expected["transcripts"][branch] = {**now, "steps": inherited, "open": None, "heard": None, "trust": None}
    return expected


def begins_anew(written, before):
    """Tell whether the whole strategy is tried again, and its first node has not ended yet."""
    for entry in written.values():
        if entry["t"] == "again" and not entry["node"] and not entry.get("in"):
            before = True
        elif entry["t"] in ("node", "recovered", "edit") and "next" in entry and not entry.get("in"):
            before = False
    return before


def said_after(written, live, before):
    """Return the transcripts that show what was said by nodes that were interrupted; None where they changed other steps, too."""
    kinds = {entry["t"] for entry in written.values()}
    if "said" in kinds:
        found = {}
        for entry in written.values():
            where = live["frames"].get(entry.get("in", ""), {}).get("node")
            if entry["t"] == "said" and where == entry["node"]:
                # If its own commit failed, the run may have been edited before the commit in which it was seen.
                plain = "resume" not in kinds and all(
                    "kind" in each or "$at" in each or "shut" in each or "trust" in each for each in entry["steps"]
                )
                found[branch_of(entry)] = live["transcripts"].get(branch_of(entry)) if plain else None
        return found
    return before if kinds <= SAYS_NOTHING else {}


def differences(read, live, path=""):
    """Return where two descriptions differ, each with what is read and what was."""
    if isinstance(read, dict) and isinstance(live, dict):
        found = [differences(read.get(name), live.get(name), f"{path}.{name}") for name in {**read, **live}]
    elif isinstance(read, list) and isinstance(live, list) and len(read) == len(live):
        found = [differences(*each, f"{path}[{place}]") for place, each in enumerate(zip(read, live, strict=True))]
    else:
        return [] if read == live else [(path, read, live)]
    return [each for inner in found for each in inner]


def compare(run, written, expected, read):
    """See that a run is read as it was."""
    number, entry = [*written.items()][-1]
    found = frame_differences(run, expected, read)
    for name in ("spent", "charges", "questions"):
        found += differences(read[name], expected[name], name)
    for path, spent in read["own"].items():
        found += differences(spent, expected["own"].get(path), f"own.{path}")
    for branch, transcript in read["transcripts"].items():
        told = expected["said"].get(branch, expected["transcripts"][branch])
        if told is not None:
            known = {name for name, value in told.items() if value is not None or name == "open"}
            for name in known:
                found += differences(transcript[name], told[name], f"transcripts.{branch}.{name}")
    for branch, told in read["said"].items():
        if entry["t"] == "stop" and expected["said"].get(branch) is not None:
            found += differences(told, expected["added"].get(branch), f"said.{branch}")
    where = f"after entry {number} of run {run.run_id!r}: {entry['t']} {entry.get('in', '')}{entry.get('node', '')}"
    assert not found, "\n".join([where, *(f"{path}: read {a!r}, was {b!r}" for path, a, b in found)])


def frame_differences(run, expected, read):
    """Return where what is being executed differs."""
    found = []
    there = {prefix: frame for prefix, frame in expected["frames"].items() if prefix in read["frames"]}
    for prefix in expected["frames"].keys() - there.keys():
        frame = expected["frames"][prefix]
        if frame["effects"] or frame["attempts"] or frame["node"] != first_of(run, prefix):
            found.append((f"frames.{prefix}", None, frame))
    for prefix, key in expected["begun"]:
        if prefix in there and key in read["frames"][prefix]["effects"]:
            there[prefix]["effects"][key] = True
    if expected["anew"]:
        first = read["frames"][""]["execution"]
        for prefix, frame in read["frames"].items():
            if frame["execution"] == first and prefix in there:
                frame["execution"] = there[prefix]["execution"]
    return found + differences(read["frames"], there, "frames")


async def folded(store):
    """Compare what was seen of the runs with what is read of them."""
    recordings, before = {}, {}
    for run, written, live in store.seen:
        if run.run_id not in recordings:
            recordings[run.run_id] = await recorded_runs(store, run)
        expected = expected_after(written, live, before.get(run.run_id))
        compare(run, written, expected, described_recorded(run, recordings[run.run_id], max(written)))
        before[run.run_id] = expected


async def seen_whole(built):
    """Execute a run to its end, and answer its questions."""
    with fixed_clock(step_ms=0):
        life, store = Life(built), Watching()
        await lived(life, store, random.Random(1), calm=True)
        await folded(store)


async def seen_wild(built, seed):
    """Execute a run to which all kinds of things happen."""
    with fixed_clock(step_ms=0):
        life, store = WideLife(built, again=seed % 3 == 0), Watching()
        await lived(life, store, random.Random(seed), calm=seed % 5 == 0)
        await folded(store)


async def lived(life, store, chance, *, calm):
    """Resume a run until it has ended or failed for good, in this process or in another one each time."""
    failures = 0
    for turn in range(60):
        if store.run is None or chance.random() < 0.5:
            agent = life.agent(store)
            try:
                store.run = await agent.read("r")
            except RunNotFoundError:
                store.run = agent.start("the task", run_id="r")
        run = store.run
        if not calm and turn:
            happen(store, chance)
            if chance.random() < 0.3 and run.status != "ready":
                edited(run, chance.randrange(6))
        if run.questions:
            asked = run.questions if chance.random() < 0.5 else run.questions[:1]
            run.answer(answers={each.id: answer_to(each) for each in asked})
        failures += await gone_on(store)
        if run.done or failures > 2:
            return
    raise AssertionError("the run does not end")


def edited(run, how):
    """Change the transcript of a run, unless that is of no consequence, or branches have begun from it.

    Behind the answer nothing is written any more. And a branch that has begun, and of which no entry tells anything yet, is told today
    as if it had begun with the transcript as it was changed.
    """
    answered = isinstance(run.memory.steps[-1], FinalAnswerStep)
    if not answered and described_live(run)["transcripts"].keys() == {""}:
        edit(run.memory, how)


async def gone_on(store):
    """Go on with the run, and tell whether one of its nodes failed."""
    with anyio.CancelScope() as store.scope:
        try:
            await store.run.finish()
        except JournalError:
            pass
        except NodeFailedError:
            return True
        finally:
            store.happens, store.broken = {}, False
    return False


def happen(store, chance):
    """Have something happen in one of the next commits."""
    how = chance.choice(["cancelled", "paused", "broken", "full", "nothing"])
    store.happens[store.commits + chance.randint(1, 9)] = happening(store, how)


def happening(store, how):
    """Return what happens in a commit, after it was made."""

    def broken():
        store.broken = True
        if how == "broken":  # or the next commit finds that
            raise StoreError("the disk is gone")

    return {
        "cancelled": lambda: store.scope.cancel(),
        "paused": lambda: store.run.pause("a break"),
        "broken": broken,
        "full": broken,
        "nothing": lambda: None,
    }[how]


async def seen_when(built, again, number, how):
    """Execute a run to which something happens in one commit; go on in this process or in another one, with an edit."""
    with fixed_clock(step_ms=0):
        life, store = WideLife(built, again=again), Watching()
        store.run = life.agent(store).start("the task", run_id="r")
        store.happens = {number: happening(store, how)}
        await gone_on(store)
        chance = random.Random(number)
        if chance.random() < 0.5 and not store.run.done:
            edited(store.run, number % 6)
        await lived(life, store, chance, calm=True)
        await folded(store)
        return store.commits


WORST = {
    "a race inside each inside a retry of the whole strategy": (
        [("each", [("race", [("says", 1), ("asks", 0)], "keep")], 2, ("keep", None), False), ("says", 4)], True
    ),
    "a retry inside a budget inside branches that fail": (
        [
            ("parallel", [[("budget", [("sub", [("says", 2), ("model", 3)], True)])], [("asks", 0), ("error", 1)]],
             ("keep", 1), True),
            ("edits", 1),
        ],
        False,
    ),
    "edits and summaries between turns in a loop of forks": (
        [("loop", [("model", 2), ("edits", 4), ("compress", 1)]), ("edits", 2)], False
    ),
    "sub-agents, retried": ([("sub", [("model", 5), ("model", 5)], True), ("human", 1)], False),
    "nodes that talk and fail": (
        [("slips", 0), ("parallel", [[("slips", 1)], [("slips", 2), ("says", 0)]], ("keep", None), False)], False
    ),
    "values changed in place, iterators and races in races": (
        [("typed", 2), ("race", [("race", [("each", [("work", 1)], 2, ("drop", 1), False)], "keep")], "keep")], True
    ),
}  # fmt: skip
"""Strategies in which what must be undone, kept and found again is nested."""


@pytest.mark.parametrize("name", WORST)
def test_interruptions_in_every_place_leave_the_state_of_the_run(name):
    """Cancelled, paused, or with a store that breaks before or after a commit, in each commit of the run."""
    built, again = WORST[name]
    whole = anyio.run(seen_when, built, again, 10**9, "paused")
    places = [(number, how) for number in range(1, whole + 1) for how in ("cancelled", "paused", "broken", "full")]
    for number, how in some(places, 6, 48, name):
        anyio.run(seen_when, built, again, number, how)


def test_the_state_is_that_of_the_run_after_each_entry():
    """Of runs to which nothing happens."""

    @settings(max_examples=examples(150, 12), **QUICK)
    @given(parts(2))
    def everywhere(built):
        anyio.run(seen_whole, built)

    everywhere()


def test_the_state_is_that_of_the_run_after_each_entry_whatever_happens():
    """Of runs that are cancelled, paused, edited and answered, and whose store breaks; resumed here and in other processes."""

    @settings(max_examples=examples(60), **QUICK)
    @given(wide_parts(2), st.integers(0, 10_000))
    def everywhere(built, seed):
        anyio.run(seen_wild, built, seed)

    everywhere()
