"""Commands on a store in a PostgreSQL database, as `--store` and arguments name it."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import anyio
import pytest

from graphagent.errors import StoreError
from graphagent.store import EncryptedStore, Put, SqliteStore, backup, copy_store, new_key, restore
from graphagent.store.postgres import PostgresStore
from tests import postgres

KEY, NEW = ("--key", "file:key"), ("--key", "file:new")


@pytest.fixture(autouse=True)
def key_files(home):
    """The files of two keys."""
    for name in ("key", "new"):
        Path(name).write_text(new_key())
        Path(name).chmod(0o600)


@pytest.mark.parametrize("key", [(), KEY], ids=["plain", "sealed"])
@pytest.mark.one_value("key")
def test_every_command_that_takes_a_store_takes_a_database(run, postgres_dsn, key, monkeypatch):
    """Facts, notes, runs and threads are in one database, in the schema that is named, by its DSN or by the variable that has it."""
    monkeypatch.setenv("ELSEWHERE", postgres_dsn)
    dsn, variable = f"{postgres_dsn}&schema=mine", "env:ELSEWHERE?schema=mine"

    def out(*words, store=variable, stdin=""):
        ended = run(*words, "--store", store, *key, stdin=stdin)
        assert ended.code == 0, ended.said
        return ended.out

    for words in (("runs", "list"), ("notes", "list"), ("facts", "list"), ("forget", "--all", "--yes")):
        assert "there is no store 'mine' in 'env:ELSEWHERE?schema=mine'" in run(*words, "--store", variable, *key).said
    out("notes", "remember", "the betel shop", store=dsn)
    assert "betel" in out("notes", "recall", "betel")
    out("facts", "set", "city", "Oslo")
    assert "Oslo" in out("facts", "list", store=dsn)
    out("run", "personal", "My dog is called Rex.", "--model", "offline")
    [head] = json.loads(out("runs", "list", "--json", store=dsn))
    assert head["status"] == "done"
    out("chat", "--model", "offline", "--thread", "monday", stdin="My cat is called Tom.\n")
    assert "monday" in out("runs", "threads")
    assert "Tom" in out("facts", "list")
    assert "sound; " in run("verify", variable, *key).out
    if key:
        for wrong in ((), NEW):
            for words in ("notes list", "facts list", "runs list", "forget --all --yes"):
                assert run(*words.split(), "--store", dsn, *wrong).code != 0
        assert "this one" in out("keys", "list")
        out("keys", "rotate", "--data", "--new-key", "file:new")
        key = NEW
    assert "1 note" in out("forget", "--all", "--yes")
    assert f"{variable}: sound; empty\n" in run("verify", variable, *key).out


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
@pytest.mark.one_value("sealed")
def test_growing_is_one_command_and_so_is_the_way_back(run, postgres_dsn, sealed):
    """All items come with their versions, under another key where there is one; who was interrupted gives the same command again."""
    old, new = (KEY, ("--new-key", "file:new")) if sealed else ((), ())
    keys = [each.read_text() for each in (Path("key"), Path("new"))]

    def opened(store, key):
        return EncryptedStore(store, keys[key]) if sealed else store

    async def fill():
        async with SqliteStore("small.db") as store:
            for number in range(30):
                await opened(store, 0).commit(
                    *(Put(("things", each % 3, number, each), b"%d" % each * 4000) for each in range(20)),
                    Put(("things", "counter"), b""),
                )

    async def items(store, key):
        async with store:
            return [item async for item in opened(store, key).scan(())]

    async def interrupted():
        async with SqliteStore("small.db") as source, PostgresStore(postgres_dsn) as target:
            target.commit = ends_after(target.commit, 3)
            with pytest.raises(StoreError, match="killed"):
                await copy_store(opened(source, 0), opened(target, 1))

    anyio.run(fill)
    anyio.run(interrupted)
    copy = ("store", "copy", "small.db", postgres_dsn)
    ended = run(*copy, *old, *new)
    assert ended.out == "Copied: 601 items.\n", ended.said
    back = run(
        "store",
        "copy",
        postgres_dsn,
        "back.db",
        *(NEW if sealed else ()),
        *(("--new-key", "file:key") if sealed else ()),
    )
    assert back.out == "Copied: 601 items.\n", back.said
    first = anyio.run(items, SqliteStore("small.db"), 0)
    assert {item.version for item in first} == {1, 30}
    assert anyio.run(items, PostgresStore(postgres_dsn), 1) == first == anyio.run(items, SqliteStore("back.db"), 0)
    assert run("notes", "remember", "new", "--store", postgres_dsn, *(NEW if sealed else ())).code == 0
    assert "it is not a copy of FROM" in run(*copy, *old, *new).said
    assert "TO is the same as FROM" in run("store", "copy", postgres_dsn, postgres_dsn).said


def ends_after(commit, count):
    """Return the method `commit` of a store whose process is killed after so many commits."""

    async def counted(*changes):
        nonlocal count
        if not count:
            raise StoreError("killed")
        count -= 1
        await commit(*changes)

    return counted


SECRET = "woodruff"


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://ada:{SECRET}@127.0.0.1/db", f"postgres://ada:p@{SECRET}@127.0.0.1/db", f"postgresql://:{SECRET}@/db",
        f"postgresql://127.0.0.1/db?sslmode=require&password={SECRET}", f"postgresql://127.0.0.1/db?sslpassword={SECRET}",
        f"dbname=db host=127.0.0.1 password={SECRET}", f"password = 'a \\' {SECRET}' user=ada",
        f"postgresql://ada:a?{SECRET}@127.0.0.1/db", f"postgresql://[::1{SECRET}:x@/db",
        f" postgresql://ada:{SECRET}@127.0.0.1/db", f"connect_timeout=2 host=127.0.0.1 password={SECRET}",
    ],
    ids=range(11),
)  # fmt: skip
def test_a_password_in_an_argument_is_refused(run, dsn):
    """It would be seen in the list of processes; the error names the places for it, and does not repeat it."""
    for command in (
        ("notes", "list", "--store", dsn), ("backup", dsn, "x"), ("restore", "x", dsn), ("verify", dsn),
        ("store", "copy", "a", dsn), ("forget", "--all", "--store", dsn), ("run", "single_run", "Hi.", "--store", dsn),
    ):  # fmt: skip
        ended = run(*command)
        assert ended.code == 2, ended.said
        for place in ("~/.pgpass", "PGPASSWORD", "service=", "env:NAME"):
            assert place in ended.said
        assert SECRET not in ended.said + ended.out


@pytest.mark.parametrize(
    "dsn",
    ["postgresql://ada:@127.0.0.1:1/db?password=", "host=127.0.0.1 port=1 password='' user=ada", "host=127.0.0.1 port=1 password="],
)  # fmt: skip
def test_an_empty_password_is_none(run, dsn):
    """To libpq there is no password then, and it looks for one elsewhere."""
    assert "refused" in run("verify", dsn).said


@pytest.mark.parametrize(
    ("dsn", "told"),
    [
        ("env:NOT_SET", "NOT_SET"), ("mysql://127.0.0.1/db", "PostgreSQL database"), ("service=nobody", "nobody"),
        ("postgresql:///nothing?host=/nowhere", "nowhere"), ("env:FAULTY", "DSN"),
        ("postgresql:///db?schema=pg_mine", "pg_mine"),
    ],
    ids=["unset", "mysql", "service", "down", "faulty", "schema"],
)  # fmt: skip
def test_a_database_that_cannot_be_used_says_why(run, dsn, told, monkeypatch):
    """Not with frames, and without the password that a variable has."""
    monkeypatch.setenv("FAULTY", f"postgresql://ada:{SECRET}@[/db")
    for command in (("notes", "list", "--store", dsn), ("verify", dsn)):
        ended = run(*command)
        assert ended.code in (1, 2)
        assert told in ended.said
        assert SECRET not in ended.said
        assert "Traceback" not in ended.said


def test_the_tools_of_the_server_are_named_for_backups(run, postgres_dsn, monkeypatch):
    """What is printed backs up and restores all that is kept, and has no password; an anchor tells that a restored store is older."""
    monkeypatch.setenv("PATH", str(postgres.programs()), prepend=":")
    monkeypatch.setenv("ELSEWHERE", postgres_dsn.replace("graphagent@", f"graphagent:{SECRET}@"))
    where = ("--store", f"{postgres_dsn}&schema=Mine", *KEY, "--anchor", "anchor")

    def command(*words):
        ended = run(*words)
        assert ended.code == 1
        assert SECRET not in ended.said
        return shlex.split(ended.said.partition(" for this: ")[2].partition(". They ask")[0])

    assert run("notes", "remember", "the betel shop", *where).code == 0
    subprocess.run(command("backup", "env:ELSEWHERE?schema=Mine", "saved"), check=True)
    assert run("notes", "remember", "the old shop", *where).code == 0
    again = command("restore", "saved", f"{postgres_dsn}&schema=Mine")
    assert subprocess.run(again, check=False, capture_output=True).returncode != 0
    assert "2 notes" in run("verify", where[1], *where[2:]).out
    subprocess.run(command("restore", "saved", f"{postgres_dsn}&schema=Mine", "--replace"), check=True)
    assert "graphagent anchor reset" in run("notes", "list", *where).said
    assert "older than its anchor" in run("anchor", "show", *where).out
    assert "Accepted: 1 store." in run("anchor", "reset", "--yes", *where).out
    assert run("notes", "list", "--json", *where).out.count("betel") == 1
    assert "1 note" in run("verify", where[1], *where[2:]).out


async def test_a_library_call_names_the_same_tools():
    """`backup` and `restore` take what `PostgresStore` takes, and what else they were given goes into the command."""
    with pytest.raises(StoreError, match=r"pg_dump .*--schema=graphagent .*--file=saved '--dbname=host=h user=a'"):
        await backup(f"host=h password={SECRET} user=a", "saved")
    with pytest.raises(StoreError, match=r"pg_restore .*--dbname=postgresql://ada@h/db saved"):
        await restore("saved", f"postgresql://ada:{SECRET}@h/db")
