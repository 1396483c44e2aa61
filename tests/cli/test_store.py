"""`graphagent backup`, `restore`, `verify` and `store copy`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphagent.store import new_key

KEY = ("--key", "file:key")


@pytest.fixture
def kept(run, home):
    """Facts, notes, runs and conversations in the default folder: readable facts, and sealed notes."""
    Path("key").write_text(new_key())
    Path("key").chmod(0o600)
    assert run("facts", "set", "city", "Oslo").code == 0
    assert run("notes", "remember", "the betel shop", *KEY).code == 0
    assert run("run", "personal", "My dog is called Rex.", "--model", "offline", "--store", "home").code == 0
    return home / "home"


def test_everything_is_backed_up_damaged_verified_and_restored(run, kept):
    """One command each, whatever is kept; damage is one line and exit code 1."""
    before = run("verify", *KEY)
    assert before.code == 0, before.said
    for line in ("memory: sound; ", "notes.db: sound; 1 note", "runs.db: sound; 1 run"):
        assert line in before.out
    ended = run("backup", str(kept), "away")
    assert ended.out.startswith("Backed up: 2 stores and 2 files of readable facts"), ended.said
    (kept / "config").write_text("")
    assert "'config'" in run("backup", str(kept), "away").said
    assert json.loads(run("verify", "away", "--json", *KEY).out).popitem()[1]["runs"] >= 1

    content = bytearray((kept / "notes.db").read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    (kept / "notes.db").write_bytes(content)
    ended = run("verify", *KEY)
    assert ended.code == 1
    assert "notes.db is damaged" in ended.said
    assert "runs.db: sound" in ended.out
    assert run("restore", "away/notes.db", str(kept / "notes.db")).code == 1
    ended = run("restore", "away/notes.db", str(kept / "notes.db"), "--replace")
    assert ended.out == "Restored: 1 store.\n"
    assert "forgotten since then is back" in ended.said
    assert run("verify", *KEY).out == before.out


def test_a_store_is_copied_under_another_key(run, kept):
    """Notes are found there with the new key alone; an interrupted copy is continued, and has another name until then."""
    Path("new").write_text(new_key())
    Path("new").chmod(0o600)
    command = ("store", "copy", str(kept / "notes.db"), "copy.db", *KEY, "--new-key", "file:new")
    assert run(*command).out == "Copied: 4 items.\n"
    assert run("verify", "copy.db", "--key", "file:new").out == "copy.db: sound; 1 note\n"
    assert run("verify", "copy.db", *KEY).code != 0
    assert "betel" in run("notes", "recall", "betel", "--store", "copy.db", "--key", "file:new").out
    assert not Path("copy.db.part").exists()
    Path("copy.db").rename("copy.db.part")  # as a process leaves it that is killed before the last step
    assert run(*command).code == 0
    Path("copy.db").rename("copy.db.part")
    assert run("notes", "remember", "Another one.", "--store", str(kept), *KEY).code == 0
    assert "copy.db.part exists already" in run(*command).said
    Path("copy.db.part").unlink()
    assert run(*command).code == 0
    ended = run(*command)
    assert ended.code == 1
    assert "copy.db exists already" in ended.said


def test_what_cannot_be_backed_up_says_what_to_do(run, kept):
    """A store that does not exist, a target that exists; nothing is made."""
    assert "there is no store" in run("backup", "typo.db", "x").said
    assert "has nothing that is kept" in run("verify", "typo.db").said
    assert "itself" in run("backup", str(kept / "notes.db"), str(kept / "notes.db")).said
    assert not Path("x").exists()


def test_every_store_of_a_folder_is_found_whatever_its_name(run, kept):
    """The store of a program is verified, has its keys listed and is forgotten with those that commands made; other files are not."""
    (kept / "notes.db").rename(kept / "assistant.db")
    (kept / "config.db").write_text("colour = blue")
    (kept / "config.sqlite").write_bytes(b"")
    assert "assistant.db: sound; 1 note\n" in run("verify", *KEY).out
    assert "assistant.db" in run("keys", "list", *KEY).out
    assert "--store home/assistant.db" in run("facts", "list", "--store", "home", "--owner", "nobody").said
    assert "1 note" in run("forget", "--all", "--yes", *KEY).out
    assert "1 note" not in run("verify", *KEY).out
    assert "has no sealed store" in run("anchor", "show", "--store", str(kept / "memory"), *KEY, "--anchor", "a").said
