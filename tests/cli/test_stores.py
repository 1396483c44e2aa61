"""Where commands look for facts, notes and runs: `--store`, and what it says when nothing is there."""

from __future__ import annotations

import re

import pytest

READING = (
    "facts list",
    "facts show city",
    "facts verify",
    "facts export",
    "notes list",
    "notes verify",
    "runs list",
    "runs verify",
)


@pytest.mark.parametrize("words", READING)
def test_a_path_that_does_not_exist_is_refused_and_what_is_beside_it_is_named(run, home, words):
    """The likeliest name first, and what to write; nothing is created."""
    for name in ("data", "other", "dat.db"):
        (home / name).mkdir()
    ended = run(*words.split(), "--store", "dta")
    assert ended.code == 2
    assert re.search(r"there is no .* 'dta'; its folder has 'data/', 'dat.db/', 'other/'; .*--store PATH", ended.said)
    assert sorted(each.name for each in home.iterdir()) == ["dat.db", "data", "other"]


def test_one_folder_has_facts_notes_and_runs(run, home):
    """Each command finds its own in the folder that all are told, and a run of `personal` keeps its facts there."""
    where = ("--store", "data")
    assert run("facts", "set", "city", "Oslo", *where).code == 0
    assert run("notes", "remember", "We chose PostgreSQL.", *where).code == 0
    run("run", "personal", "My dog is called Rex.", "--model", "offline", "--run-id", "first", *where)
    assert {"notes.db", "runs.db"} <= {each.name for each in (home / "data").iterdir()}
    known = run("facts", "list", *where).out
    assert "Oslo" in known
    assert "Rex" in known
    assert "PostgreSQL" in run("notes", "list", *where).out
    assert "first" in run("runs", "list", *where).out


def test_a_file_is_refused_for_facts(run):
    """Also one that does not exist yet, by its ending."""
    ended = run("facts", "set", "city", "Oslo", "--store", "notes.db")
    assert (ended.code, "is the name of a file, and facts are in a folder" in " ".join(ended.said.split())) == (2, True)


@pytest.mark.parametrize("words", ["", "facts", "facts list", "facts set", "runs", "run", "notes recall"])
def test_help_names_no_types(run, words):
    """As in other command lines, where `--help` stands beside its text, and an argument beside its own."""
    assert not re.search("<(bool|str|path)>", run(*words.split(), "--help").out)
