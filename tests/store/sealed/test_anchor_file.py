"""The file of an anchor on a disk that loses power: what is read afterwards was written, and not before what was synced last."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path

import pytest

from graphagent.errors import AnchorError
from graphagent.store.sealed import _anchor_file
from graphagent.store.sealed._anchor_file import AnchorFile
from tests.thorough import examples

SLOT = 4096


class Disk:
    """What of a file is on the disk: what it was when it was synced last, and of each slot perhaps what was written since."""

    def __init__(self, path):
        self.path = path
        self.durable = b""
        self.since = []

    def sync(self, number):
        self.durable, self.since = os.pread(number, 2 * SLOT, 0), []

    def wrote(self):
        self.since.append(self.path.read_bytes())

    def after_a_loss_of_power(self, chance):
        """Give a file that may be left: each slot as it was at some moment since, or half of one and half of another."""
        moments = [self.durable, *self.since]
        left = b""
        for slot in (0, 1):
            part = slice(slot * SLOT, (slot + 1) * SLOT)
            old, new = sorted(chance.choices(range(len(moments)), k=2))
            cut = chance.choice([0, SLOT, 512, chance.randrange(200)])
            left += moments[new][part][:cut] + moments[old][part][cut:]
        return left


@pytest.mark.parametrize("seed", range(examples(40, 4)))
def test_a_loss_of_power_leaves_an_anchor_that_was_written(tmp_path, monkeypatch, seed):
    """Two processes write, with a sync once in a while: whichever writes the disk has, torn ones included, one slot is whole."""
    chance = random.Random(seed)
    path = tmp_path / "a.anchor"
    disk, now = Disk(path), itertools.count()
    clock = {"now": 0.0}
    monkeypatch.setattr(_anchor_file.time, "monotonic", lambda: clock["now"])
    written = [b"anchor %d" % next(now)]
    AnchorFile(path).update(lambda _: written[0], make=True)
    monkeypatch.setattr(_anchor_file.os, "fsync", disk.sync)
    disk.durable = path.read_bytes()
    synced = 0
    files = [AnchorFile(path), AnchorFile(path)]
    for _ in range(40):
        clock["now"] += chance.choice([0.01, 0.3, 1.2])
        if chance.random() < 0.1:
            files[chance.randrange(2)] = AnchorFile(path)
        content = b"anchor %d" % next(now) + bytes(chance.randrange(600))
        before = disk.durable
        chance.choice(files).update(lambda _, content=content: content)
        if disk.durable != before:
            synced = len(written) - 1
        written.append(content)
        disk.wrote()
        assert AnchorFile(path).read() == content
        for _ in range(20):
            left = tmp_path / "left.anchor"
            left.write_bytes(disk.after_a_loss_of_power(chance))
            assert written.index(AnchorFile(left).read()) >= synced


def test_a_file_that_is_no_anchor_is_left_alone(tmp_path):
    """What is no anchor is neither read nor written as one; a missing one is made where it is asked for, for this user alone."""
    path = tmp_path / "letter.txt"
    path.write_text("Dear Ada")
    with pytest.raises(AnchorError, match="damaged, or is not an anchor"):
        AnchorFile(path).update(lambda _: b"new")
    with pytest.raises(AnchorError, match="remove it"):
        AnchorFile(path).update(lambda _: b"new", make=True)
    assert path.read_text() == "Dear Ada"
    with pytest.raises(AnchorError, match="cannot be written: the file does not exist"):
        AnchorFile(tmp_path / "none").update(lambda _: b"new")
    with pytest.raises(AnchorError, match=r"cannot be made: there is no folder .*unplugged"):
        AnchorFile(tmp_path / "unplugged" / "a.anchor").update(lambda _: b"new", make=True)
    AnchorFile(tmp_path / "new").update(lambda _: b"new", make=True)
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0
    assert sorted(each.name for each in Path(tmp_path).iterdir()) == ["letter.txt", "new"]
