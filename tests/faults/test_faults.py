"""A share of the campaign of faults, and what it found."""

from __future__ import annotations

import copy
import errno
from dataclasses import replace

import pytest

from graphagent.errors import StoreError
from tests.faults import campaign, crashes, processes
from tests.faults.calls import Fault
from tests.faults.disk import Durable, Files
from tests.faults.oracle import COLUMNS, Tally, after_crash, expected
from tests.faults.subjects import OURS, SUBJECTS, closed
from tests.thorough import SEED, THOROUGH, some

SHARE = 0.04 if THOROUGH else 0.01
NAMED = [subject for subject in OURS if subject.name in {"SqliteStore", "FileMemoryProvider"}]
OF_A_LOG = some(
    [subject for subject in OURS if subject.name in {"EncryptedStore", "Notes", "Notes, sealed"}], 1, salt="log"
)


@pytest.mark.parametrize("subject", OURS, ids=lambda subject: subject.name)
def test_no_fault_loses_or_invents_anything(subject):
    """A share of all faults, others for each commit: nothing acknowledged is lost, nothing is read wrongly, no store is unusable after.

    `make faults` tries all of them.
    """
    todo = [task for task in campaign.tasks(SEED, SHARE, stores=subject.name) if task.store == subject.name]
    todo = [task for task in todo if campaign.KINDS[task.kind].run not in (processes.traced, processes.crowd)]
    check(some(todo, 2, salt=subject.name))


@pytest.mark.parametrize("kind", ["killed at a system call, by strace", "one of eight processes killed"])
def test_a_process_that_is_killed_loses_nothing(kind):
    """At a system call, or among other processes that write, read, forget, back up and rotate keys: of one kind of store for each commit."""
    [task] = some(campaign.tasks(SEED, SHARE, kind), 1, thorough=1)
    check([replace(task, share=0.25 if "eight" in kind else SHARE)])


@pytest.mark.parametrize(
    ("kind", "column"), [("killed at a call", "unusable"), ("half of a write", "unusable"), ("a bit flipped", "wrong")]
)
def test_faults_go_wrong_where_nothing_is_done_against_them(kind, column):
    """A naive file of JSON loses its records, or reads others: so there is something to be found."""
    [task, *_] = campaign.tasks(SEED, 0.5, kind, "JSON")
    assert task.run().counts[column] > 0


async def test_whatever_call_fails_is_an_error_of_graphagent(tmp_path):
    """Looking for a store that does not exist yet, making it and opening it included."""
    subject = SUBJECTS["EncryptedMemoryProvider"]
    for at in range(1, 20):
        _, raised = await crashes.recorded(subject, str(tmp_path / "at"), Fault(errno.EIO, at))
        assert raised is None or isinstance(raised, StoreError), at


class _FullFromSync(Fault):
    """A disk that is full from a sync on, for 30 calls."""

    def __init__(self, at):
        super().__init__(errno.ENOSPC, at, calls=30)

    def meets(self, kind):
        """Return whether this call fails."""
        return (self.met or kind == "sync") and super().meets(kind)


@pytest.mark.parametrize("subject", OF_A_LOG, ids=lambda subject: subject.name)
async def test_a_save_that_raised_does_not_come_back_once_it_was_forgotten(subject, tmp_path):
    """All of its commit may be in SQLite's log, but for the sync, and the forget finds nothing that it could delete."""
    tally = Tally()
    async for at, made, _ in crashes.failures(subject, str(tmp_path / "at"), campaign.Share(), _FullFromSync):
        marks = [call[1:] for call in made if call[0] == "mark"]
        if ("ack", "save 4") not in marks:  # a save before the forget has failed
            await after_crash(subject, str(tmp_path / "at"), marks, f"full from sync {at}", tally)
    assert tally.counts["faults"] > 10
    assert not any(tally.counts[column] for column in COLUMNS[1:]), tally.shown


async def test_a_commit_whose_sync_failed_is_not_there_after_the_process_is_killed(tmp_path):
    """What it wrote is in SQLite's log, and would be read as committed, had nothing been written over it."""
    subject, folder, tried = SUBJECTS["SqliteStore"], str(tmp_path / "at"), 0
    async for _, made, _ in crashes.failures(subject, folder, campaign.Share(), crashes.SyncFault):
        files, marks = Files(), []
        for call in made:
            if call[0] != "mark":
                files.apply(call)
            elif call[1] == "begin" and marks and marks[-1][0] == "begin":
                break  # the step before has raised an error
            else:
                marks.append(call[1:])
        if marks[-1][0] == "ack" or not marks[-1][1].startswith("save"):
            continue
        files.put(folder)
        tried += 1
        async with closed(subject, folder) as store:
            assert await subject.records(store) == expected(marks)[0]
    assert tried > 5


def check(todo):
    """Do tasks, of which no fault may go wrong that is promised not to."""
    outcome = campaign.Outcome()
    for task in todo:
        outcome.add(task, task.run())
    found = outcome.of(stores=campaign.OUR_NAMES)
    assert not any(found.counts[column] for column in COLUMNS[1:]), found.shown


@pytest.mark.parametrize("subject", NAMED, ids=lambda subject: subject.name)
async def test_names_are_durable_before_anything_is_acknowledged(subject, tmp_path):
    """A save returns only after the names of its file and of each folder above are synced: also if a sync of one failed before."""
    failed = 0
    async for _, calls, _ in crashes.failures(subject, str(tmp_path / "at"), campaign.Share(), crashes.SyncFault):
        _check_names(calls, Files(), Durable())
        failed += 1
    assert failed > 10


@pytest.mark.parametrize("subject", NAMED, ids=lambda subject: subject.name)
async def test_names_that_a_killed_process_made_are_synced_by_the_next(subject, tmp_path):
    """It may have died between making a file or a folder and syncing the folder above."""
    folder = str(tmp_path / "at")
    calls, _ = await crashes.recorded(subject, folder)
    changing = [call for call in calls if call[0] != "mark"]
    for at in some(range(len(changing)), 20):
        files, durable = Files(), Durable()
        for call in changing[:at]:
            files.apply(call), durable.apply(call)
        _check_names(await crashes.process_after(subject, folder, files, "", Tally()), copy.deepcopy(files), durable)


def _check_names(calls, files, durable):
    """Check that whatever has a name has a durable one whenever something is acknowledged."""
    for call in calls:
        if call[0] != "mark":
            files.apply(call), durable.apply(call)
        elif call[1] == "ack":
            assert {name for name in files.names if not name.startswith("at/.")} <= durable.files.names.keys()
