"""A process that is killed while it makes the file of a store leaves nothing behind for long, and disturbs no other one."""

from __future__ import annotations

import os
import subprocess
import sys

import anyio
import pytest

from graphagent.store import Put, SqliteStore
from tests import forkserver

PROGRAM = """
import os, sys
import anyio, apsw
from graphagent.store import Put, SqliteStore
from graphagent.store.sqlite import _file

def stop(*arguments):
    print("here", flush=True)
    sys.stdin.readline()

def stop_in_the_middle(connection):
    class Stopping:
        def __getattr__(self, name):
            return getattr(connection, name)
        def execute(self, statements, bindings=()):
            found = connection.execute("BEGIN IMMEDIATE; " + statements if "CREATE" in statements else statements, bindings)
            if "CREATE" in statements:
                found.fetchall()
                stop()
                connection.execute("COMMIT")
            return found
    fill(Stopping())

def stop_before(name):
    whole = getattr(_file, name)
    def stopping(*arguments):
        stop()
        return whole(*arguments)
    setattr(_file, name, stopping)

def stop_after(name):
    whole = getattr(_file, name)
    def stopping(*arguments):
        whole(*arguments)
        stop()
    setattr(_file, name, stopping)

fill = _file._fill
{"empty": lambda: stop_before("_fill"), "half made": lambda: setattr(_file, "_fill", stop_in_the_middle),
 "made": lambda: stop_before("_publish"), "published": lambda: stop_after("_publish")}[sys.argv[2]]()
anyio.run(SqliteStore(sys.argv[1]).commit, Put(("room", "child"), b"v"))
"""
MOMENTS = ["empty", "half made", "made", "published"]


def start(path, moment):
    """Start a process that makes a store, and wait until it is at a moment of that."""
    child = forkserver.Popen(
        [sys.executable, "-c", PROGRAM, path, moment], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "here\n"
    return child


def names(folder):
    return {each.name for each in folder.iterdir()}


async def use(path):
    async with SqliteStore(path) as store:
        await store.commit(Put(("room", "mine"), b"v"))
        return await store.verify()


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_a_killed_process_left_is_removed_at_the_next_open(tmp_path, moment):
    """Whenever it was killed: afterwards there is the store alone, and files of other names beside it stay."""
    (tmp_path / ".new-one").write_text("of somebody else")
    with start(tmp_path / "store.db", moment) as child:
        child.kill()
    assert any(name.startswith(".new-") for name in names(tmp_path) - {".new-one"})
    assert anyio.run(use, tmp_path / "store.db") == 1
    assert names(tmp_path) == {"store.db", ".new-one"}


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_a_living_process_is_making_stays(tmp_path, moment):
    """A store that is opened beside it, of the same name or of another, leaves its files alone; then all go on."""
    with start(tmp_path / "store.db", moment) as child:
        made = {name for name in names(tmp_path) if name.startswith(".new-")}
        assert made
        assert anyio.run(use, tmp_path / "other.db") == 1
        assert anyio.run(use, tmp_path / "store.db") == 1
        assert made <= names(tmp_path)
        child.communicate("\n")
        assert child.returncode == 0
    assert anyio.run(use, tmp_path / "store.db") == 2
    assert names(tmp_path) == {"store.db", "other.db"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_left_as_it_is(tmp_path):
    """What is left there is in nobody's way; the store can be opened as before."""
    anyio.run(use, tmp_path / "store.db")
    (tmp_path / ".new-0123456789abcdef").touch()
    tmp_path.chmod(0o500)
    try:
        assert anyio.run(SqliteStore(tmp_path / "store.db").get, ("room", "mine")) is not None
    finally:
        tmp_path.chmod(0o700)
