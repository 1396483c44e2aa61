"""The keys of sealed stores at the command line: every kind of key, in one store and in all of a folder."""

from __future__ import annotations

import json
import re
import sys

import pytest

from tests import forkserver

pexpect = pytest.importorskip("pexpect")


@pytest.fixture
def key(run):
    """Make a key file: `key("name")` gives what `--key` takes."""

    def key(name):
        assert run("keys", "new", "--out", name).code == 0
        return f"file:{name}"

    return key


def listed(run, *words):
    """Give the name, the kind and whether it is the given one of each key."""
    ended = run("keys", "list", "--json", *words)
    assert ended.code == 0, ended.err
    return [(each["name"], each["kind"], each["current"]) for each in json.loads(ended.out)]


def test_a_key_of_everything_in_a_folder_is_rotated(run, home, key):
    """Facts, notes and runs in one folder with one key get another one by one command, and the old one says that it was removed."""
    old, new, where = key("old"), key("new"), ("--store", "data")
    (home / "data").mkdir()
    assert run("facts", "set", "city", "Oslo", *where, "--key", old).code == 0
    assert run("notes", "remember", "We chose PostgreSQL.", *where, "--key", old).code == 0
    run("run", "personal", "Hello.", "--model", "offline", *where, "--key", old)
    assert listed(run, *where, "--key", old) == [("main", "key", True)] * 3
    assert run("keys", "rotate", *where, "--key", old, "--new-key", new, "--data").code == 0
    assert listed(run, *where, "--key", new) == [("main", "key", True)] * 3
    assert "Oslo" in run("facts", "list", *where, "--key", new).out
    assert "PostgreSQL" in run("notes", "list", *where, "--key", new).out
    for words in (("facts", "list"), ("notes", "list"), ("runs", "list"), ("keys", "list")):
        ended = run(*words, *where, "--key", old)
        assert ended.code == 1
        assert "'main', and was removed on" in ended.said


def test_pass_phrases_and_recovery_keys(run, key, monkeypatch):
    """A pass phrase from a variable opens what a key file has sealed; a recovery key is printed once and opens it too."""
    file = key("key")
    run("facts", "set", "city", "Oslo", "--key", file)
    monkeypatch.setenv("MY_WORDS", "CANARY correct horse\n")
    words = "passphrase:env:MY_WORDS"
    assert run("keys", "add", "words", "--new-key", words, "--key", file).code == 0
    ended = run("keys", "add", "recovery", "--recovery", "--key", words)
    recovery = ended.out.strip()
    assert re.fullmatch(r"([0-9A-Z]{4}-){8}[0-9A-Z]{4}", recovery)
    assert "once" in ended.said
    assert "Oslo" in run("facts", "list", "--key", recovery.lower()).out
    mistyped = recovery[:-6] + ("X" if recovery[-6] != "X" else "Y") + recovery[-5:]
    ended = run("facts", "list", "--key", mistyped)
    assert (ended.code, "checksum" in ended.said, mistyped in ended.said) == (2, True, False)
    assert run("keys", "remove", "main", "--key", recovery).code == 0
    assert listed(run, "--key", words) == [("words", "passphrase", True), ("recovery", "recovery", False)]
    assert "CANARY" not in run("keys", "list", "--key", words).out
    monkeypatch.delenv("MY_WORDS")
    ended = run("facts", "list", "--key", words)
    assert (ended.code, "MY_WORDS" in ended.said) == (1, True)


def test_a_pass_phrase_is_typed_unseen(home):
    """At a terminal the pass phrase is asked for: twice when a store is made with it, once after that; it is not shown."""

    def command(*words, answers):
        child = forkserver.terminal(
            sys.executable, ["-m", "graphagent", "facts", *words, "--key", "passphrase"], cwd=str(home),
            dimensions=(24, 200), encoding="utf-8", timeout=600,
        )  # fmt: skip
        said = ""
        for prompt, answer in answers:
            child.expect_exact(prompt)
            said += child.before
            child.sendline(answer)
        child.expect(pexpect.EOF)
        child.close()
        return child.exitstatus, said + child.before

    twice = (("The pass phrase> ", "CANARY words"), ("The same again> ", "CANARY words"))
    code, said = command("set", "city", "Oslo", answers=twice)
    assert (code, "keys add recovery" in said, "CANARY" in said) == (0, True, False)
    code, said = command("list", answers=twice[:1])
    assert (code, "Oslo" in said, "CANARY" in said) == (0, True, False)
    code, said = command("forget", "city", "--yes", answers=twice[:1])  # which looks into several stores
    assert (code, "Forgotten" in said or "Forgot" in said) == (0, True), said
    code, said = command("list", answers=(("The pass phrase> ", "other words"),))
    assert (code, "another key" in said) == (1, True)


def test_a_pass_phrase_needs_a_terminal_or_a_place(run):
    """Without a terminal, the error says how a script gives a pass phrase."""
    ended = run("facts", "set", "city", "Oslo", "--key", "passphrase")
    assert ended.code == 2
    assert "passphrase:env:NAME" in ended.said


def test_a_store_is_destroyed_only_by_who_types_it(run, key):
    """What is destroyed is named, a word is to be typed, and then no key opens the store."""
    file = key("key")
    run("facts", "set", "city", "Oslo", "--key", file)
    for typed in ("", "y\n", "yes\n"):
        ended = run("keys", "destroy", "--key", file, stdin=typed)
        assert ended.code == 1
        assert "facts.db is destroyed: no one can read it again" in ended.said
    assert "Oslo" in run("facts", "list", "--key", file).out
    assert run("keys", "destroy", "--key", file, stdin="destroy\n").code == 0
    for words in (("facts", "list"), ("keys", "list"), ("facts", "set", "city", "Rome")):
        ended = run(*words, "--key", file)
        assert ended.code == 1
        assert "were destroyed on" in ended.said


def test_wrong_calls(run, home, key):
    """Each says what is missing; nothing is changed, and no store is made."""
    file = key("key")
    run("facts", "set", "city", "Oslo", "--key", file)
    for code, said, words in (
        (2, "name the key that opens the store", ("list",)),
        (1, "there is no store", ("list", "--store", "nowhere", "--key", file)),
        (1, "another key", ("list", "--key", key("other"))),
        (2, "name the new key", ("rotate", "--key", file)),
        (2, "give --new-key too", ("rotate", "--data", "--name", "laptop", "--key", file)),
        (2, "leave out --new-key", ("add", "x", "--recovery", "--new-key", file, "--key", file)),
        (2, "as 'main'", ("add", "x", "--new-key", file, "--key", file)),
        (2, "there is no key 'x'", ("remove", "x", "--key", file)),
        (2, "not in both", ("new", "--out", "f", "--keyring", "s/n")),
    ):
        ended = run("keys", *words)
        assert (ended.code, said in ended.said) == (code, True), ended.said
    assert not (home / "nowhere").exists()
    assert not (home / "f").exists()
    assert listed(run, "--key", file) == [("main", "key", True)]
    run("facts", "set", "city", "Oslo", "--store", "plain")
    ended = run("keys", "list", "--store", "plain", "--key", file)
    assert (ended.code, "has no store" in ended.said) == (1, True)
