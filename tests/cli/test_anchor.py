"""Anchors at the command line: one folder elsewhere for all stores, older copies refused and accepted."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.fixture
def sealed(run):
    """Give the options of an encrypted memory with an anchor in a folder elsewhere."""
    run("keys", "new", "--out", "key")
    return ("--store", "data", "--key", "file:key", "--anchor", "elsewhere")


def states(run, *words):
    ended = run("anchor", "show", "--json", *words)
    return ended.code, {each["store"].rpartition("/")[2]: each["state"] for each in json.loads(ended.out)}


def test_an_older_copy_of_what_commands_keep_is_refused_until_it_is_accepted(run, home, sealed):
    """Facts, notes and runs of a folder each have an anchor in a folder elsewhere, which every command compares."""
    (home / "elsewhere").mkdir()
    (home / "data").mkdir()
    for words in (("facts", "set", "city", "Oslo"), ("notes", "remember", "We chose PostgreSQL.")):
        assert run(*words, *sealed).code == 0
    shutil.copytree(home / "data", home / "backup")
    assert run("facts", "set", "city", "Bergen", *sealed).code == 0
    assert run("run", "personal", "Hello.", "--model", "offline", *sealed).code == 0
    sound = "as new as its anchor"
    assert states(run, *sealed) == (0, {"facts.db": sound, "notes.db": sound, "runs.db": sound})
    assert {each.name for each in (home / "elsewhere").iterdir()} == {
        "facts.db.anchor", "notes.db.anchor", "runs.db.anchor"
    }  # fmt: skip

    shutil.copy(home / "backup" / "facts.db", home / "data" / "facts.db")
    for words in (
        ("facts", "list"),
        ("facts", "set", "city", "Rome"),
        ("forget", "--all", "--yes"),
    ):
        ended = run(*words, *sealed)
        assert ended.code == 1
        assert "graphagent anchor reset" in ended.said
    assert "graphagent anchor reset" in run("verify", "data", *sealed[2:]).said
    copied = run("store", "copy", "data/facts.db", "copied.db", "--new-key", "file:key", *sealed[2:])
    assert "graphagent anchor reset" in copied.said
    assert states(run, *sealed) == (1, {"facts.db": "older than its anchor", "notes.db": sound, "runs.db": sound})
    ended = run("anchor", "reset", "--yes", *sealed)
    assert "Accepted: 1 store." in ended.out
    assert "Oslo" in run("facts", "list", *sealed).out
    assert states(run, *sealed)[0] == 0
    assert "Accepted" not in run("anchor", "reset", *sealed).out

    (home / "elsewhere" / "notes.db.anchor").unlink()
    ended = run("notes", "list", *sealed)
    assert ended.code == 1
    assert "missing" in ended.said
    assert run("anchor", "reset", "--yes", *sealed).code == 0
    assert "PostgreSQL" in run("notes", "list", *sealed).out


def test_what_is_no_anchor_of_this_store_is_said(run, home, sealed):
    """Without a key there is no anchor; one that another store needs is not overwritten; a store that does not exist has none."""
    plain = run("facts", "set", "city", "Oslo", "--anchor", "elsewhere")
    assert plain.code == 2
    assert "--key" in plain.said
    assert run("facts", "set", "city", "Oslo", *sealed).code == 0
    before = (home / "elsewhere").read_bytes()
    ended = run("notes", "remember", "We chose PostgreSQL.", *sealed)
    assert ended.code == 1
    assert "of another store" in ended.said
    assert (home / "elsewhere").read_bytes() == before
    assert run("anchor", "show", "--store", "nowhere", *sealed[2:]).code == 1
    assert run("anchor", "show", "--store", "data", "--key", "file:key").code == 2


def test_keys_that_a_command_changed_do_not_come_back(run, home, sealed):
    """With --anchor, `keys` has the anchor know of the change: the store from before is refused, with the old key and with the new one."""
    assert run("facts", "set", "city", "Oslo", *sealed).code == 0
    shutil.copytree(home / "data", home / "before")
    run("keys", "new", "--out", "new")
    assert run("keys", "rotate", "--new-key", "file:new", *sealed).code == 0
    assert "Oslo" in run("facts", "list", "--store", "data", "--key", "file:new", *sealed[4:]).out
    shutil.rmtree(home / "data")
    (home / "before").rename(home / "data")
    for key in ("file:key", "file:new"):
        for words in (
            ("facts", "list", "--store", "data"),
            ("store", "copy", "data/facts.db", "copy.db", "--new-key", "file:new"),
        ):
            ended = run(*words, "--key", key, *sealed[4:])
            assert ended.code == 1
            assert "graphagent anchor reset" in ended.said
