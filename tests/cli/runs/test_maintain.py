"""`graphagent runs`: what is taken along, and what is removed."""

from __future__ import annotations

import base64
import json
import os
import re
import stat
import subprocess
import sys
import time

import anyio
import pexpect
import pytest

from graphagent._clock import clock
from graphagent.history import import_runs
from graphagent.store import MemoryStore, Put, SqliteStore, new_key
from graphagent.store._cache import Cache
from tests import forkserver

STORE = ["--store", "runs.db"]
AGENT = ["--agent", "program.py:agent", *STORE]


def _ids(run, *options):
    ended = run("runs", "list", "--json", *(options or STORE))
    assert ended.code == 0, ended.err
    return [each["run_id"] for each in json.loads(ended.out)]


def _steps(run, run_id, *options):
    return json.loads(run("runs", "show", run_id, "--json", "--entries", *(options or STORE)).out)


# ---- taken along


def test_runs_go_into_a_file_and_out_of_it(run, begun, home, monkeypatch):
    """Of all owners, without loss, readable for their owner alone; into a plain store and into a sealed one."""
    monkeypatch.setenv("TEST_KEY", new_key())
    begun("agent", "mail-1", "the party")
    begun("letters", "post-1")
    begun("agent", "secret", owner="ada")
    run("runs", "fork", "mail-1", "--after", "draft", "--run-id", "mail-2", *AGENT)
    ended = run("runs", "export", "--out", "runs.jsonl", *STORE)
    assert ended.out == ""
    assert "4 runs, " in ended.said
    assert "readable by you alone, but not sealed." in ended.said
    assert stat.S_IMODE(os.stat("runs.jsonl").st_mode) == 0o600
    assert "is not overwritten" in run("runs", "export", "--out", "runs.jsonl", *STORE).said
    for options in (["--store", "new/other.db"], ["--store", "sealed.db", "--key", "env:TEST_KEY"]):
        assert run("runs", "import", "runs.jsonl", *options).out == "4 of 4 runs were new.\n"
        assert run("runs", "import", "runs.jsonl", *options).out == "0 of 4 runs were new.\n"
        assert sorted(_ids(run, *options)) == sorted(_ids(run))
        assert _ids(run, "--owner", "ada", *options) == ["secret"]
        assert _steps(run, "mail-2", *options)["entries"] == _steps(run, "mail-2")["entries"]
        answered = run("runs", "answer", "mail-2", "yes", "--agent", "program.py:agent", *options)
        assert answered.out == "sent\n", answered.err
    assert b"party" not in (home / "sealed.db").read_bytes()


def test_runs_are_taken_along_without_what_somebody_wrote(run, begun, home):
    """What each did is read there as here; it is not a form that people read beside."""
    begun("agent", "mail-1", "the party")
    assert "party" in run("runs", "show", "mail-1", *STORE).out
    assert "1 run, " in run("runs", "export", "--redact", "--out", "runs.jsonl", *STORE).said
    assert run("runs", "import", "runs.jsonl", "--store", "other.db").out == "1 of 1 run was new.\n"
    shown = run("runs", "show", "mail-1", "--store", "other.db").out
    assert "[9 characters]" in shown
    assert "party" not in shown
    here, there = (_steps(run, "mail-1", *options)["entries"] for options in (STORE, ["--store", "other.db"]))
    assert [each["number"] for each in there] == [each["number"] for each in here]
    assert "exclude each other" in run("runs", "export", "--redact", "--plain", *STORE).said


def test_an_export_may_go_through_a_pipe(run, begun, home):
    """Some runs, or all; as JSON lines."""
    begun("agent", "mail-1")
    begun("agent", "mail-2")
    command = f"{sys.executable} -m graphagent runs"
    piped = f"{command} export mail-1 --store runs.db | {command} import - --store other.db"
    ended = subprocess.run(piped, shell=True, cwd=home, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("1 of 1 run was new.\n", "")
    assert _ids(run, "--store", "other.db") == ["mail-1"]
    unknown = run("runs", "export", "x", *STORE)
    assert unknown.code == 1
    assert "there is no run 'x'" in unknown.said


def _with_data(text, old, new):
    """Give an export with other bytes in its rows."""
    records = [json.loads(line) for line in text.splitlines()]
    found = [base64.b64decode(each["data"]) for each in records]
    assert any(old in data for data in found)
    changed = [base64.b64encode(data.replace(old, new)).decode() for data in found]
    return "".join(json.dumps({**each, "data": data}) + "\n" for each, data in zip(records, changed, strict=True))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: _with_data(text, b"Dear all", b"Dear ill"), "its data was changed; nothing was imported"),
        (lambda text: text[: len(text) // 2], "is not a JSON object; nothing was imported"),
        (lambda text: "".join(text.splitlines(keepends=True)[:-1]), "lacks a row; nothing was imported"),
        (lambda text: text + "[]\n", "line 5, is not a JSON object; nothing was imported"),
        (
            lambda text: text.replace('"format":1', '"format":2', 1),
            "its format is not known here; nothing was imported",
        ),
    ],
)
def test_a_damaged_export_is_refused(run, begun, home, damage, said):
    """In one line, and nothing of it is taken in."""
    begun("agent", "mail-1")
    run("runs", "export", "--out", "runs.jsonl", *STORE)
    path = home / "runs.jsonl"
    path.write_text(damage(path.read_text()))
    ended = run("runs", "import", "runs.jsonl", "--store", "other.db")
    assert ended.code == 1
    assert said in ended.said
    assert ended.err.count("\n") == 1
    assert not os.path.exists("other.db") or _ids(run, "--store", "other.db") == []


def test_no_byte_of_an_export_may_be_another(run, begun, home):
    """Whatever is read from a changed one is refused: also where a sub-agent stands, and bits that decoding would ignore."""
    begun("letters", "post-1", "xx")
    run("runs", "export", "--out", "runs.jsonl", *STORE)
    text = (home / "runs.jsonl").read_bytes()
    *_, agent = text.splitlines(keepends=True)
    assert agent.startswith(b'{"type":"agent"')
    number = len(text) - len(agent) + agent.index(b'"number":') + len(b'"number":')
    ends = [found.start() for found in re.finditer(rb'.=*"}', text)]
    places = {number, *ends, *range(0, len(text), 61)}

    async def refused(place):
        changed = text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :]
        try:
            records = [json.loads(line) for line in changed.splitlines()]
        except ValueError:
            return True
        store = MemoryStore()
        try:
            await import_runs(store, records)
        except ValueError as error:
            return "nothing was imported" in str(error) and not [item async for item in store.scan(())]
        return False

    async def accepted():
        return [place for place in sorted(places) if not await refused(place)]

    assert anyio.run(accepted) == []


def test_an_export_that_breaks_off_leaves_no_file(run, begun, home):
    """What cannot be read is named, and nobody takes half of it for the whole."""
    begun("agent", "mail-1")

    async def damage():
        async with SqliteStore("runs.db") as store:
            await store.commit(Put(("runs", "", 1, "mail-1", "mail-1", 2), b"nonsense"))

    anyio.run(damage)
    ended = run("runs", "export", "--out", "runs.jsonl", *STORE)
    assert ended.code == 1
    assert "entry 2 of run 'mail-1'" in ended.said
    assert not os.path.exists("runs.jsonl")
    assert run("runs", "show", "mail-1", *STORE).code == 1


def test_a_reader_that_goes_away_is_no_error(begun, home):
    """As in `graphagent runs export | head -1`: nothing is complained of."""
    for number in range(40):
        begun("agent", f"mail-{number}", "x" * 5000)
    command = f"{sys.executable} -m graphagent runs export --store runs.db | head -1"
    ended = subprocess.run(command, shell=True, cwd=home, capture_output=True, text=True, check=False)
    assert ended.stdout.startswith('{"type":"run"')
    assert ended.stderr == ""


def test_a_file_that_cannot_be_read_is_named(run):
    """And no store is made for it."""
    ended = run("runs", "import", "nowhere.jsonl", "--store", "other.db")
    assert ended.code == 1
    assert ended.err.startswith("error: there is no file 'nowhere.jsonl'; its folder ")
    assert not os.path.exists("other.db")


# ---- removed


def test_runs_are_pruned(run, begun):
    """By status, age, number or name, with the runs of sub-agents; a fork of one that goes stays whole."""
    for name in ("mail-1", "mail-2", "mail-3"):
        begun("agent", name)
    begun("letters", "post-1")
    run("runs", "answer", "mail-1", "yes", *AGENT)
    run("runs", "fork", "mail-1", "--before", "ask_human", "--run-id", "fork", *AGENT)
    before = _steps(run, "fork")["entries"]

    def prune(*options):
        ended = run("runs", "prune", "--yes", *options, *STORE)
        assert ended.code == 0, ended.err
        return ended

    assert "No run fits, so nothing was removed." in prune("--older-than", "30d").err
    assert prune("--status", "done").out.startswith("Removed: 1 run, ")
    assert _steps(run, "fork")["entries"] == before
    assert prune("post-1").out.startswith("Removed: 2 runs, ")
    assert _ids(run) == ["fork", "mail-3", "mail-2"]
    assert prune("--keep", "2").out.startswith("Removed: 1 run, ")
    assert prune("--older-than", "0s").out.startswith("Removed: 2 runs, ")
    assert _ids(run) == []


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], 2, "select the runs: name them, or pass --older-than, --status, --thread or --keep"),
        (["--older-than", "soon"], 2, "'soon' is not a time; write a number and s, m, h, d or w: 30d"),
        (["--older-than", "9" * 20 + "w"], 2, "is too long ago to be a time"),
        (["--status", "old"], 2, "'old' is not a status"),
        (["x"], 1, "there is no run 'x'"),
        (["post-1/"], 2, "is a part of run 'post-1', and goes with it"),
    ],
)
def test_what_cannot_be_pruned_is_refused(run, begun, options, code, said):
    """And nothing is removed."""
    begun("letters", "post-1")
    ended = run("runs", "prune", "--yes", *options, *STORE)
    assert ended.code == code
    assert said in ended.said
    assert len(_ids(run)) == 2


def test_threads_are_listed_pruned_and_forgotten(run, begun):
    """Their runs alone, each time; what is no thread is refused."""
    assert "There are no threads" in run("runs", "threads", "--store", begun("reader", "alone") or "runs.db").said
    for number in range(3):
        begun("reader", f"talk-{number}", f"message {number}", thread="monday")
    begun("reader", "hers", thread="monday", owner="ada")
    listed = run("runs", "threads", *STORE).out.splitlines()
    assert listed[0].split("\t") == ["thread", "began with", "runs", "status", "last written"]
    assert listed[1].split("\t")[:4] == ["monday", "message 0", "3", "done"]
    [found] = json.loads(run("runs", "threads", "--json", *STORE).out)
    assert (found["thread"], found["runs"], found["last"]["run_id"]) == ("monday", 3, "talk-2")
    assert _ids(run, "--thread", "monday", *STORE)[0] == "talk-2"
    shown = run("runs", "show", "talk-1", *STORE).out
    assert "monday" in shown
    assert "continues" in shown
    assert run("runs", "prune", "--thread", "monday", "--keep", "1", "--yes", *STORE).out.startswith(
        "Removed: 2 runs, "
    )
    assert "message 0" in run("runs", "show", "talk-2", *STORE).out
    asked = run("runs", "forget", "--thread", "monday", *STORE, stdin="y\n")
    assert "Forget all 1 run of thread 'monday' without an owner for good?" in asked.out
    assert "Forgotten: 1 run, " in asked.out
    assert "there are no runs of a thread 'monday'" in run("runs", "forget", "--thread", "monday", "--yes", *STORE).said
    assert _ids(run) == ["alone"]
    assert _ids(run, "--owner", "ada", *STORE)[0] == "hers"


def test_a_person_is_asked_before_runs_go(run, begun, home):
    """What would go is counted; without a yes nothing does."""
    begun("agent", "mail-1")
    begun("letters", "post-1")
    assert run("runs", "prune", "--status", "waiting", *STORE).code == 1
    assert run("runs", "forget", *STORE).code == 1
    assert len(_ids(run)) == 3
    for words, asked, said in (
        ("prune --status waiting", "Remove 2 runs (2 waiting) with 1 run of sub-agents for good?", "Removed: 3 runs"),
        ("forget", "Forget all 0 runs without an owner for good?", "there are no runs, so nothing was forgotten"),
    ):
        child = forkserver.terminal(
            f"{sys.executable} -m graphagent runs {words} --store runs.db", cwd=str(home), encoding="utf-8", timeout=600
        )
        child.expect_exact(asked)
        child.sendline("y")
        child.expect_exact(said)
        child.expect(pexpect.EOF)


def test_an_owner_is_forgotten(run, begun, home):
    """All runs of that owner are gone from the disk, and those of others stay."""
    begun("agent", "mail-1", "the party")
    begun("agent", "mail-1", "a secret that is to go", owner="ada")
    ended = run("runs", "forget", "--owner", "ada", "--yes", *STORE)
    assert ended.out.startswith("Forgotten: 1 run, ")
    assert _ids(run, "--owner", "ada", *STORE) == []
    assert _ids(run) == ["mail-1"]
    everything = b"".join(path.read_bytes() for path in home.glob("runs.db*"))
    assert b"a secret that is to go" not in everything
    assert b"the party" in everything
    again = run("runs", "forget", "--owner", "ada", "--yes", *STORE)
    assert again.code == 1
    assert again.err == "error: there are no runs of owner 'ada', so nothing was forgotten\n"


def test_a_run_that_is_forgotten_breaks_off(run, begun, home):
    """Its process is told when it goes on, and nothing of it comes back."""
    begun("agent", "seed")
    process = forkserver.Popen(
        [sys.executable, "begin.py", "waits", "w", "x", "ada"], cwd=home, stdout=subprocess.PIPE, text=True
    )
    while not (home / "effects.log").exists() or "slow" not in (home / "effects.log").read_text():
        time.sleep(0.02)
    assert run("runs", "prune", "--older-than", "0s", "--owner", "ada", "--yes", *STORE).out == ""
    assert run("runs", "forget", "--owner", "ada", "--yes", *STORE).code == 0
    (home / "go").touch()
    out, _ = process.communicate(timeout=600)
    assert out == "RunNotFoundError\n"
    assert _ids(run, "--owner", "ada", *STORE) == []
    assert "last" not in (home / "effects.log").read_text()


def test_cached_values_are_cleared(run, home):
    """Those of one owner; with --expired only those whose time is over."""

    async def keep():
        async with SqliteStore(home / "runs.db") as store:
            for owner, ttl in (("", 10), ("", None), ("ada", None)):
                await Cache(store, "run", owner, ttl).put(f"{ttl}", b"[]")
            await Cache(store, "model", "", None).put("x", b"{}")

    token = clock.set(lambda: 1_000_000)
    try:
        anyio.run(keep)
    finally:
        clock.reset(token)
    for options, said in ((["--expired"], "1 cached value"), ([], "2 cached values"), ([], "0 cached values"),
                          (["--owner", "ada"], "1 cached value")):  # fmt: skip
        ended = run("runs", "clear-cache", *options, *STORE)
        assert (ended.code, ended.out) == (0, f"Removed: {said}.\n"), ended.err
