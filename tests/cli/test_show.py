"""`graphagent show`."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from graphagent.memory import Notes
from graphagent.store import new_key

KEY = ("--key", "file:key")


@pytest.fixture
def kept(run, begun, home):
    """Readable facts of two owners, sealed notes, and runs, in one folder."""
    Path("key").write_text(new_key())
    Path("key").chmod(0o600)
    for words in (("city", "Oslo"), ("city", "Bergen"), ("city", "Rome", "--owner", "ada")):
        assert run("facts", "set", *words, "--store", "data").code == 0
    for text, scope in (("a word", "/project/db"), ("another word", "/project/db"), ("a word", "/people")):
        assert run("notes", "remember", text, "--scope", scope, "--store", "data", *KEY).code == 0
    begun("agent", "mail-1")
    begun("agent", "mail-2", owner="ada", thread="monday")
    Path("runs.db").rename("data/runs.db")
    return home / "data"


def _files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix == ""}, {
        *folder.rglob("*")
    }


def test_everything_in_a_folder_is_counted_and_nothing_is_written(run, kept):
    """Facts, notes and runs with owners, scopes, keys, anchors, sizes and formats; no text, no value, no new file."""
    before = _files(kept)
    ended = run("show", "data", *KEY)
    assert ended.code == 0, ended.said
    assert _files(kept) == before
    said = ended.out
    for part in (
        "data: readable facts, ",
        "facts    2 in 3 versions; of 2 owners: without an owner 1, ada 1\n",
        "data/notes.db: sealed, SQLite, format 3, ",
        "keys     main (key, given)\n",
        "anchor   none\n",
        "notes    3 in 2 scopes: /project/db 2, /people 1\n",
        "data/runs.db: SQLite, format 3, ",
        "runs     2: 2 waiting; of 2 owners: without an owner 1, ada 1\n",
        "1 thread\n",
    ):
        assert part in said
    assert not any(value in said for value in ("Oslo", "Rome", " word", "the task"))
    memory, notes, runs = json.loads(run("show", "data", *KEY, "--json").out)
    assert (memory["facts"]["owners"], notes["notes"]["scopes"]) == (
        {"": 1, "ada": 1},
        {"/project/db": 2, "/people": 1},
    )
    assert (runs["runs"]["status"], runs["runs"]["threads"], runs["sealed"]) == ({"waiting": 2}, 1, False)


def test_what_cannot_be_read_is_named_and_the_rest_is_shown(run, kept):
    """A sealed store without its key or with another one, a damaged file, and a file that is not a store."""
    Path("other").write_text(new_key())
    Path("other").chmod(0o600)
    ended = run("show", "data")
    assert ended.code == 0
    assert "it is sealed, and its contents (1 part) cannot be read without a key: --key" in ended.out
    assert "runs     2: 2 waiting" in ended.out
    assert "problem" in run("show", "data/notes.db", "--key", "file:other").out
    content = bytearray((kept / "runs.db").read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    (kept / "runs.db").write_bytes(content)
    said = run("show", "data", *KEY).out
    assert "runs.db is damaged" in said
    assert "notes    3 in 2 scopes" in said, said
    assert "key: no store, " in run("show", "key").out


def test_where_nothing_is_kept_it_says_what_keeps_something(run, home):
    """A folder without anything, the default folder before the first use, and a path that does not exist."""
    Path("empty").mkdir()
    ended = run("show", "empty")
    assert (ended.code, ended.out) == (0, "Nothing is kept in 'empty' yet.\n")
    assert "graphagent chat --store empty" in ended.said
    assert run("show").code == 0
    ended = run("show", "typo.db")
    assert ended.code == 1
    assert "there is no store or folder 'typo.db'" in ended.said
    assert {path.name for path in home.iterdir()} == {"empty"}


def test_a_plain_store_is_counted_by_its_keys(run, home):
    """Long values, vectors and the search index of a store of a program; a name from elsewhere does not act on a terminal."""

    class Embedder:
        name = "mine"

        async def embed(self, texts):
            return [[1.0, float(len(text))] for text in texts]

    async def keep():
        async with Notes("own.db", embedder=Embedder(), owner="a\x1b[31mb") as notes:
            await notes.remember_many(["x" * 5000, "short"], scope="/long")

    anyio.run(keep)
    said = run("show", "own.db").out
    assert "notes    2 in 1 scope: /long 2; of 1 owner: a�[31mb 2\n" in said
    assert "; the index is stored with them; 2 vectors of mine\n" in said


def test_a_database_is_counted(run, postgres_dsn, begun, home, monkeypatch):
    """Facts, notes and runs are together there; the size is that of its tables."""
    monkeypatch.setenv("DATABASE", postgres_dsn)
    assert run("facts", "set", "city", "Oslo", "--store", "env:DATABASE").code == 0
    assert run("notes", "remember", "betel " * 3000, "--store", "env:DATABASE").code == 0
    ended = run("show", "env:DATABASE")
    assert "env:DATABASE: PostgreSQL, " in ended.out, ended.said
    assert "facts    1\n" in ended.out
    assert "notes    1 in 1 scope: / 1\n" in ended.out
    [found] = json.loads(run("show", "env:DATABASE", "--json").out)
    assert found["notes"]["bytes"] > 18_000
