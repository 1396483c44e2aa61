"""Folders that cannot be entered, and names that could not be made durable."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from graphagent.errors import StoreError
from graphagent.memory import Concept, EncryptedMemoryProvider, FileMemoryProvider, Scope, SingleFact, Subject
from graphagent.store import Put, SqliteStore

FACT = SingleFact(Concept("city", "where"), "Oslo"), Subject("user"), Scope.product("app")
NOBODY = 65534
UNSYNCED = OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def closed(tmp_path):
    """A folder that nobody may enter; root, who may enter all, is somebody else meanwhile."""
    folder = tmp_path / "mem"
    folder.mkdir(mode=0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    yield folder
    if root:
        os.seteuid(0)
    folder.chmod(0o700)


@pytest.mark.parametrize(
    "use",
    [
        lambda folder: EncryptedMemoryProvider(folder, key=b"k" * 32).save(*FACT),
        lambda folder: FileMemoryProvider(folder).save(*FACT),
        lambda folder: SqliteStore(folder / "f.db").commit(Put(("room",), b"v")),
        lambda folder: SqliteStore(folder / "f.db").get(("room",)),
        lambda folder: SqliteStore(folder / "inner" / "f.db").get(("room",)),
    ],
    ids=["sealed facts", "readable facts", "a commit", "a get", "a folder below"],
)
async def test_a_folder_that_may_not_be_entered_is_a_store_error(warm, closed, use):
    """With the path and the reason, wherever it is noticed first."""
    with pytest.raises(StoreError, match=r"mem.*Permission denied"):
        await use(closed)


@pytest.fixture
async def warm(tmp_path):
    """What is imported at the first use is imported, since another user may not read it."""
    await EncryptedMemoryProvider(tmp_path / "warm", key=b"k" * 32).save(*FACT)
    await FileMemoryProvider(tmp_path / "warm too").save(*FACT)


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: FileMemoryProvider(folder / "facts"),
        lambda folder: EncryptedMemoryProvider(folder / "facts", key=b"k" * 32),
    ],
    ids=["readable", "sealed"],
)
async def test_a_folder_whose_name_could_not_be_synced_is_synced_by_the_next_save(tmp_path, monkeypatch, make):
    """Whichever sync of a folder fails, no later save counts as durable before that folder was synced again."""
    failing = 0
    while True:
        provider, disk = make(tmp_path / str(failing)), Disk(failing)
        monkeypatch.setattr(os, "fsync", disk.fsync)
        try:
            await provider.save(*FACT)
        except StoreError:
            await provider.save(*FACT)
            assert disk.synced[0] in disk.synced[1:], failing
        else:
            break
        finally:
            monkeypatch.undo()
        failing += 1
    assert failing > 1


class Disk:
    """A disk that fails once to sync a folder."""

    def __init__(self, failing):
        self.failing, self.real = failing, os.fsync
        self.synced = []
        """The folder that failed, and those that were synced since."""

    def fsync(self, file):
        if stat.S_ISDIR(os.fstat(file).st_mode):
            folder = os.readlink(f"/proc/self/fd/{file}")
            if not self.failing and not self.synced:
                self.synced.append(folder)
                raise UNSYNCED
            self.failing -= 1
            if self.synced:
                self.synced.append(folder)
        return self.real(file)
