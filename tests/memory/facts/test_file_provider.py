from __future__ import annotations

import errno
import gc
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent.errors import DamagedStoreError, StoreError
from graphagent.memory import (
    EVERYTHING,
    Concept,
    FactType,
    FileMemoryProvider,
    MultipleFacts,
    Scope,
    SingleFact,
    StoreMemoryProvider,
    Subject,
)
from graphagent.memory.facts import _file_format
from graphagent.memory.facts._json import read_fact
from graphagent.store import MemoryStore
from graphagent.testing import fixed_clock, fixed_ids
from tests import forkserver
from tests.thorough import examples

USER = Subject("user", "the user", priority=1)
CITY = Concept("city", "where the user lives")
TOOLS = Concept("tools", "tools the user works with", FactType.MULTIPLE)
APP = Scope.product("my-app")


def files(root):
    """Every file of facts under a root."""
    return sorted(root.rglob("*.jsonl"))


def on_disk(root):
    """All names and bytes under a root."""
    return b"\n".join(
        str(each.relative_to(root)).encode() + b"\n" + (each.read_bytes() if each.is_file() else b"")
        for each in sorted(root.rglob("*"))
    )


async def values(provider, concept=CITY, scope=APP):
    """The values that a provider knows of a concept."""
    return [value for fact in await provider.load(concept, USER, scope) for value in fact.values]


async def test_the_files_are_readable(tmp_path):
    """One line says whose facts they are, then each fact is one line of JSON."""
    provider = FileMemoryProvider(tmp_path / "facts")
    with fixed_clock(1_700_000_000_000, step_ms=1000), fixed_ids("fact"):
        await provider.save(SingleFact(CITY, "Tromsø"), USER, APP)
        await provider.save(MultipleFacts(TOOLS, ["git", "vim"], timestamp=5), USER, APP)
    [file] = files(tmp_path)
    assert file.relative_to(tmp_path).as_posix() == (
        "facts/default/product/my-app~4c9a75cca717efb6/user~04f8996da763b7a9.jsonl"
    )
    assert file.read_text() == textwrap.dedent(
        """\
        {"graphagent":"facts","format":1,"owner":"","scope":{"kind":"product","name":"my-app"},"subject":"user","crc":"68d13b33"}
        {"keyword":"city","values":["Tromsø"],"type":"single","description":"where the user lives","timestamp":1700000000000,"version":1,"source":{"run_id":"","step":null,"origin":"","trust":""},"id":"fact-000001","after":"68d13b33","crc":"b3bf0953"}
        {"keyword":"tools","values":["git","vim"],"type":"multiple","description":"tools the user works with","timestamp":5,"version":1,"source":{"run_id":"","step":null,"origin":"","trust":""},"id":"fact-000002","after":"b3bf0953","crc":"27b06185"}
        """
    )


async def test_files_belong_to_their_user_alone(tmp_path):
    """Folders have mode 0700 and files 0600."""
    root = tmp_path / "above" / "facts"
    await FileMemoryProvider(root).save(SingleFact(CITY, "Oslo"), USER, APP, owner="ann")
    for each in (root, *root.rglob("*")):
        assert each.stat().st_mode & 0o777 == (0o700 if each.is_dir() else 0o600), each


async def test_history_decodes_the_lines_of_its_concept(tmp_path, monkeypatch):
    """However many facts a file has; also those whose keyword somebody has written with escapes, or that contains them."""
    decoded = []

    def reading(record):
        decoded.append(record["keyword"])
        return read_fact(record)

    provider = FileMemoryProvider(tmp_path)
    names = ("café", 'a "quoted" one', "back\\slash", "line\nbreak", "caf", "values")
    for number in range(50):
        await provider.save(SingleFact(Concept(f"other {number}", ""), f"caf {number}"), USER, APP)
    for name in (*names, *names):
        await provider.save(SingleFact(Concept(name, "one"), f"value of {name}"), USER, APP)
    [file] = files(tmp_path)
    lines = file.read_text().splitlines()
    place = next(place for place, line in enumerate(lines) if '"keyword":"café"' in line)
    by_hand = lines[place].replace('"keyword":"café"', '"keyword": "caf\\u00e9"')
    lines[place] = by_hand[: by_hand.index(',"crc"')] + "}"
    file.write_text("\n".join([*lines, ""]))
    await provider.load_all(USER, APP)
    monkeypatch.setattr(_file_format, "read_fact", reading)
    for name in names:
        decoded.clear()
        history = await provider.history(Concept(name, "one"), USER, APP)
        assert [(fact.value, fact.version) for fact in history] == [(f"value of {name}", 2), (f"value of {name}", 1)]
        assert len(decoded) < 20 or name == "values"  # which every line has, as a name


async def test_what_is_wrong_with_a_line_that_was_edited_by_hand_is_said(tmp_path):
    """Also with the last one, which is not taken for one that a crash has torn, and is not put aside."""
    await FileMemoryProvider(tmp_path).save(SingleFact(CITY, "Oslo"), USER, APP)
    [file] = tmp_path.rglob("*.jsonl")
    first, line = file.read_text("utf-8").splitlines()
    for date, known in (("2026-05-01", False), ("2026-05-01T00:00:00+02:00", True)):
        edited = line[: line.index(',"crc"')] + f',"valid_from":"{date}"}}'
        file.write_text(f"{first}\n{edited}\n", "utf-8")
        if known:
            assert await FileMemoryProvider(tmp_path).load(CITY, USER, APP)
            continue
        for call in (
            lambda each: each.load(CITY, USER, APP),
            lambda each: each.save(SingleFact(CITY, "Moss"), USER, APP),
        ):
            with pytest.raises(DamagedStoreError, match=r"line 2.*with an offset from UTC.*Correct this line"):
                await call(FileMemoryProvider(tmp_path))


async def test_a_line_may_be_edited_by_hand(tmp_path):
    """Whoever takes the crc out of a line may change it; an editor that drops the last line break does no harm."""
    provider = FileMemoryProvider(tmp_path)
    await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
    [file] = files(tmp_path)
    text = file.read_text()
    head, line = text.splitlines()
    edited = line.replace("Oslo", "Bergen")[: line.index(',"crc"') + 2] + "}"
    file.write_text(f"{head}\n{edited}")
    other = FileMemoryProvider(tmp_path)
    assert await values(provider) == await values(other) == ["Bergen"]
    await provider.save(SingleFact(CITY, "Moss"), USER, APP)
    assert await values(other) == ["Moss"]
    history = await FileMemoryProvider(tmp_path).history(CITY, USER, APP)
    assert [(fact.value, fact.version) for fact in history] == [("Moss", 2), ("Bergen", 1)]
    file.write_text(file.read_text().replace("Bergen", "Odda"))
    assert [fact.value for fact in await provider.history(CITY, USER, APP)] == ["Moss", "Odda"]
    await provider.save(SingleFact(CITY, "Molde"), USER, APP)
    file.write_text(file.read_text().replace("Moss", "Rome"))
    with pytest.raises(
        DamagedStoreError, match=r'line 3 is damaged: its bytes do not match its crc.*remove "crc" from this'
    ):
        await values(provider)


@pytest.mark.parametrize(
    "name",
    [
        "../../escape",
        "/absolute",
        "a\0b",
        "CON",
        "é" * 1000,
        ".",
        "..",
        "a/b",
        "A",
        "a",
        "\n",
        " ",
        "~",
        "default",
        "é",
        "漢" * 99,
    ],
)
async def test_no_name_leaves_the_folder(tmp_path, name):
    """A name that would be dangerous as a path is kept and found again, and nothing appears outside."""
    root = tmp_path / "inside"
    provider = FileMemoryProvider(root)
    await provider.save(SingleFact(Concept(name), name), Subject(name), Scope.product(name), owner=name)
    for handle in (provider, FileMemoryProvider(root)):
        [fact] = await handle.load_all(Subject(name), Scope.product(name), owner=name)
        assert fact.value == name
    assert list(tmp_path.iterdir()) == [root]
    assert len(files(root)) == 1


async def test_names_that_look_alike_are_kept_apart(tmp_path):
    """Upper and lower case, and names with one readable part, have files of their own."""
    provider = FileMemoryProvider(tmp_path)
    names = ["a", "A", "a ", "a/", "default", "ä", "a\u0301"]
    for name in names:
        await provider.save(SingleFact(CITY, name), USER, Scope.agent(name), owner=name)
    for name in names:
        assert [fact.value for fact in await provider.load_all(USER, Scope.agent(name), owner=name)] == [name]
    assert len({file.parent.as_posix().lower() for file in files(tmp_path)}) == len(names)


@pytest.mark.parametrize("level", range(5))
async def test_a_planted_link_is_not_followed(tmp_path, level):
    """A link in the place of a folder or a file is an error, for reading and for writing, and its target stays as it was."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    await FileMemoryProvider(root).save(SingleFact(CITY, "Oslo"), USER, APP)
    [file] = files(root)
    parts = [root / ".lock", *reversed(file.parents[:3]), file]
    parts[level].rename(outside)
    parts[level].symlink_to(outside)
    before = on_disk(outside) if outside.is_dir() else outside.read_bytes()
    with pytest.raises(StoreError, match=r"cannot (read|write).*(link|folder)"):
        await FileMemoryProvider(root).load(CITY, USER, APP)
    with pytest.raises(StoreError, match="cannot write"):
        await FileMemoryProvider(root).save(SingleFact(CITY, "Bergen"), USER, APP)
    assert (on_disk(outside) if outside.is_dir() else outside.read_bytes()) == before


async def test_a_file_where_a_folder_should_be_is_named(tmp_path):
    """A root that is a file, and a folder where a file should be, are StoreErrors for reading and for writing."""
    (tmp_path / "root").write_text("a file")
    with pytest.raises(StoreError, match="where a folder should be"):
        await FileMemoryProvider(tmp_path / "root").load(CITY, USER, APP)
    with pytest.raises(StoreError, match="where a folder should be"):
        await FileMemoryProvider(tmp_path / "root").save(SingleFact(CITY, "Oslo"), USER, APP)
    await FileMemoryProvider(tmp_path / "other").save(SingleFact(CITY, "Oslo"), USER, APP)
    [file] = files(tmp_path / "other")
    file.unlink()
    file.mkdir()
    for call in (
        lambda: FileMemoryProvider(tmp_path / "other").load(CITY, USER, APP),
        lambda: FileMemoryProvider(tmp_path / "other").save(SingleFact(CITY, "Oslo"), USER, APP),
    ):
        with pytest.raises(StoreError, match="where a file should be"):
            await call()


async def test_an_absent_root_is_empty(tmp_path):
    """Reading what was never written gives nothing, and makes no folder."""
    provider = FileMemoryProvider(tmp_path / "none")
    assert await provider.load_all(USER, APP) == await provider.history(CITY, USER, APP) == []
    assert (await provider.forget(everything=True)).facts == 0
    assert [record async for record in provider.export()] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", [0, 20])
async def test_a_file_of_which_nothing_or_a_part_of_the_first_line_is_left_can_be_forgotten(tmp_path, left):
    """It is damaged, so nothing can be read or saved, and forgetting is the way out."""
    provider = FileMemoryProvider(tmp_path)
    await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
    [file] = files(tmp_path)
    file.write_bytes(file.read_bytes()[:left])
    with pytest.raises(DamagedStoreError):
        await provider.save(SingleFact(CITY, "Bergen"), USER, APP)
    receipt = await provider.forget(subject=USER)
    assert (receipt.facts, files(tmp_path)) == (0, [])
    await provider.save(SingleFact(CITY, "Bergen"), USER, APP)
    assert await provider.verify() == 1


async def test_forgotten_bytes_are_overwritten(tmp_path):
    """The blocks that a removed line stood in hold zeros, as seen by whoever had the file open."""
    provider = FileMemoryProvider(tmp_path)
    await provider.save(SingleFact(CITY, "secret-value"), USER, APP)
    [file] = files(tmp_path)
    with file.open("rb") as still_open:
        await provider.forget(subject=USER)
        assert still_open.read().strip(b"\0") == b""


async def test_a_damaged_file_can_be_forgotten_whole(tmp_path):
    """Whoever must be forgotten is, even where the file is damaged; a concept cannot be picked out of it."""
    provider = FileMemoryProvider(tmp_path)
    await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
    await provider.save(SingleFact(CITY, "Moss"), USER, APP)
    [file] = files(tmp_path)
    damaged = file.read_bytes().replace(b"Oslo", b"Olso")
    file.write_bytes(damaged)
    with pytest.raises(DamagedStoreError):
        await provider.forget(concept=CITY)
    assert file.read_bytes() == damaged
    assert (await provider.forget(subject=USER)).facts == 2
    assert files(tmp_path) == []


async def _small_file(root):
    provider = FileMemoryProvider(root)
    for number in range(4):
        await provider.save(SingleFact(CITY, f"city-{number}"), USER, APP)
    [file] = files(root)
    return file, file.read_bytes()


async def test_a_torn_last_line_is_cut_and_nothing_else(tmp_path):
    """Cut at every length of its last line, the file gives what was acknowledged before, and takes the next fact."""
    file, whole = await _small_file(tmp_path)
    before = whole.rindex(b"\n", 0, -1) + 1
    provider = FileMemoryProvider(tmp_path)
    for length in range(before, len(whole)):
        file.write_bytes(whole[:length])
        expected = "city-3" if length == len(whole) - 1 else "city-2"
        assert await values(FileMemoryProvider(tmp_path)) == [expected]
        assert await values(provider) == [expected]
        await provider.save(SingleFact(CITY, "next"), USER, APP)
        for handle in (provider, FileMemoryProvider(tmp_path)):
            assert [fact.value for fact in await handle.history(CITY, USER, APP)][:2] == ["next", expected]
        assert await provider.verify() == (5 if length == len(whole) - 1 else 4)


async def test_every_flipped_byte_is_noticed(tmp_path):
    """Whichever byte before the last line rots, the file is damaged by name and line; nothing reads as another value."""
    file, whole = await _small_file(tmp_path)
    for place in range(whole.rindex(b"\n", 0, -1) + 1):
        for bit in (1, 32):
            flipped = bytearray(whole)
            flipped[place] ^= bit
            file.write_bytes(flipped)
            with pytest.raises(DamagedStoreError) as raised:
                await FileMemoryProvider(tmp_path).load(CITY, USER, APP)
            line = whole[:place].count(b"\n") + 1
            assert f"{file}, line " in str(raised.value)
            assert f"line {line} " in str(raised.value)
            assert "city-" not in str(raised.value)
    file.write_bytes(whole)
    assert await FileMemoryProvider(tmp_path).verify() == 4


def torn(whole):
    """A file with its last line damaged in every way that a power loss or a bad sector leaves, up to line breaks in the middle."""
    start = whole.rindex(b"\n", 0, -1) + 1
    for size, step, filler in (
        (1, 2, b"\0"),
        (1, 3, b"\n"),
        (1, 5, b"~"),
        (32, 32, b"\0"),
        (32, 32, b"old\n"),
        (100, 100, b"{\t}"),
        (len(whole), 1, b"\0"),
    ):
        for place in {*range(start, len(whole), step), len(whole) - 1} if size < len(whole) else [start]:
            end = min(place + size, len(whole))
            damaged = whole[:place] + (filler * size)[: end - place] + whole[end:]
            if damaged != whole:
                yield damaged, whole[:start], damaged[start:]


async def test_a_torn_last_line_costs_no_other(tmp_path, caplog):
    """Whatever the last save left of its line, what was saved before is found, as it was, and this is logged without values."""
    file, whole = await _small_file(tmp_path)
    provider = FileMemoryProvider(tmp_path)
    for number, (damaged, _, _) in enumerate(torn(whole)):
        file.write_bytes(damaged)
        caplog.clear()
        assert await values(FileMemoryProvider(tmp_path)) == ["city-2"]
        if number % 11:
            continue
        assert await values(provider) == ["city-2"]
        for record in caplog.records:
            assert str(file) in record.getMessage()
            assert record.getMessage().startswith("line 5 of ")
            assert "city-" not in record.getMessage()
        with pytest.raises(DamagedStoreError, match=r"line 5 is damaged: the last line is torn.*intact"):
            await provider.verify()
        assert len(caplog.records) == 3
        assert len([record async for record in provider.export()]) == 3
        assert file.read_bytes() == damaged


async def test_a_torn_last_line_is_put_aside_by_the_next_save(tmp_path, caplog):
    """The next save succeeds; the damaged bytes are then in a file of their own, which `verify` names until it is removed."""
    file, whole = await _small_file(tmp_path)
    provider = FileMemoryProvider(tmp_path)
    for damaged, sound, left in list(torn(whole))[::11]:
        file.write_bytes(damaged)
        caplog.clear()
        await provider.save(SingleFact(CITY, "next"), USER, APP)
        assert file.read_bytes().startswith(sound)
        [aside] = file.parent.glob("*.torn-*")
        assert aside.read_bytes() == left
        assert aside.stat().st_mode & 0o777 == 0o600
        assert f"was moved from the end of {str(file)!r} to {aside.name!r}" in caplog.text
        assert "city-" not in caplog.text
        history = await FileMemoryProvider(tmp_path).history(CITY, USER, APP)
        assert [(fact.value, fact.version) for fact in history[:2]] == [("next", 4), ("city-2", 3)]
        with pytest.raises(DamagedStoreError, match=r"torn line.*moved here.*remove this file") as raised:
            await provider.verify()
        assert raised.value.where == str(aside)
        aside.unlink()
        assert await provider.verify() == 4


async def test_an_import_puts_a_torn_last_line_aside(tmp_path):
    """Facts that are imported into a file with a damaged last line are added to those before it."""
    file, whole = await _small_file(tmp_path)
    provider = FileMemoryProvider(tmp_path)
    records = [record async for record in provider.export()]
    file.write_bytes(whole[:-20] + bytes(10) + whole[-10:])
    assert await provider.import_(records) == 1
    assert await values(FileMemoryProvider(tmp_path)) == ["city-3"]
    assert len(list(file.parent.glob("*.torn-*"))) == 1


async def test_several_facts_are_never_appended(tmp_path, monkeypatch):
    """An import of several facts writes the file anew, so that a power loss tears one line at most."""
    source, target = FileMemoryProvider(tmp_path / "source"), FileMemoryProvider(tmp_path / "target")
    await target.save(SingleFact(CITY, "Oslo"), USER, APP)
    for number in range(3):
        await source.save(MultipleFacts(TOOLS, [f"tool-{number}"]), USER, APP)
    synced = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    assert await target.import_([record async for record in source.export()]) == 3
    assert synced == []
    assert await FileMemoryProvider(tmp_path / "target").verify() == 4


async def test_torn_bytes_are_forgotten(tmp_path):
    """Forgetting the subject, the owner or any concept of it also removes its torn lines, put aside or not."""
    for fits in ({"subject": USER}, {"scope": APP}, {"concept": CITY}, {"concept": Concept("none")}):
        provider = FileMemoryProvider(tmp_path)
        await provider.save(MultipleFacts(TOOLS, ["git"]), USER, APP, owner="ann")
        [file] = files(tmp_path)
        for value in ("secret-1", "secret-2"):
            await provider.save(SingleFact(CITY, value), USER, APP, owner="ann")
            file.write_bytes(file.read_bytes()[:-3] + b"\0\0\n")
        assert len(list(file.parent.iterdir())) == 2
        assert on_disk(tmp_path).count(b"secret") == 2
        await provider.forget(**fits, owner="ann")
        assert b"secret" not in on_disk(tmp_path)
        left = await provider.load_all(USER, APP, owner="ann")
        assert [fact.concept.keyword for fact in left] == (["tools"] if "concept" in fits else [])
        assert await provider.verify() == len(left)
        await provider.forget(subject=USER, owner="ann")


def test_a_process_killed_while_putting_a_torn_line_aside_loses_nothing(tmp_path):
    """A crash after the torn bytes have their file leaves the file as it was; the next save ends it, with one such file."""
    crash = """
    async def main():
        for city in ("Oslo", "Moss"):
            await provider.save(SingleFact(CITY, city), USER, APP)
        [file] = __import__("pathlib").Path(sys.argv[1]).rglob("*.jsonl")
        file.write_bytes(file.read_bytes()[:-1] + b"\\0")
        rename = os.rename

        def renamed(one, two, **options):
            if two == file.name:
                os.kill(os.getpid(), signal.SIGKILL)
            rename(one, two, **options)

        os.rename = renamed
        await provider.save(SingleFact(CITY, "Odda"), USER, APP)

    anyio.run(main)
    """
    process = start(crash, tmp_path)
    _, err = process.communicate(timeout=600)
    assert process.returncode == -signal.SIGKILL, err
    assert len(list(tmp_path.rglob("*.torn-*"))) == 1

    async def check():
        provider = FileMemoryProvider(tmp_path)
        assert await values(provider) == ["Oslo"]
        await provider.save(SingleFact(CITY, "Odda"), USER, APP)
        [aside] = tmp_path.rglob("*.torn-*")
        assert b"Moss" in aside.read_bytes()
        assert [fact.value for fact in await provider.history(CITY, USER, APP)] == ["Odda", "Oslo"]
        assert not list(tmp_path.rglob("*.tmp"))

    anyio.run(check)


async def _mixed_lines(root, *, owner=""):
    """The lines of a file with facts of several concepts."""
    provider = FileMemoryProvider(root)
    for number in range(4):
        await provider.save(SingleFact(CITY, f"city-{number}"), USER, APP, owner=owner)
        await provider.save(MultipleFacts(TOOLS, [f"tool-{number}"]), USER, APP, owner=owner)
    [file] = files(root)
    return file, file.read_bytes().splitlines(keepends=True)


def changed_lines(lines, other):
    """Lists of lines of which some were removed, copied, moved or edited, and the number of the line that shows it."""
    count = len(lines)
    for place in range(1, count):
        if place < count - 1:
            yield "removed", [*lines[:place], *lines[place + 1 :]], place + 1
            yield "edited", [*lines[:place], lines[place].replace(b"-", b"_", 1), *lines[place + 1 :]], place + 1
            yield "swapped", [*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]], place + 1
        yield "replaced by that of another file", [*lines[:place], other[place], *lines[place + 1 :]], place + 1
        for to in range(1, count + 1):
            yield "copied", [*lines[:to], lines[place], *lines[to:]], to + (2 if to == place else 1)
            yield "copied from another file", [*lines[:to], other[place], *lines[to:]], to + 1


async def test_every_changed_line_is_noticed(tmp_path):
    """Lines that were removed, copied, moved or edited make the file damaged, by the line that shows it, and nothing is lost."""
    file, lines = await _mixed_lines(tmp_path / "one")
    _, other = await _mixed_lines(tmp_path / "two", owner="ann")
    for what, changed, line in changed_lines(lines, other):
        file.write_bytes(b"".join(changed))
        provider = FileMemoryProvider(tmp_path / "one")
        with pytest.raises(DamagedStoreError) as raised:
            await provider.load(CITY, USER, APP)
        assert raised.value.where == f"{file}, line {line}", what
        assert "crc" in str(raised.value)
        assert "city-" not in str(raised.value)
        with pytest.raises(DamagedStoreError):
            await provider.save(SingleFact(CITY, "next"), USER, APP)
        assert file.read_bytes() == b"".join(changed)


async def test_whoever_changes_lines_on_purpose_removes_a_crc(tmp_path):
    """A line that is removed by hand is accepted once the crc of the line after it is removed; more is not asked."""
    file, lines = await _mixed_lines(tmp_path)
    provider = FileMemoryProvider(tmp_path)
    assert await values(provider) == ["city-3"]
    after = lines[3][: lines[3].index(b',"crc"')] + b"}\n"
    file.write_bytes(b"".join([lines[0], lines[2], lines[3], *lines[4:]]))
    with pytest.raises(DamagedStoreError, match="line 2"):
        await values(provider)
    file.write_bytes(b"".join([*lines[:2], after, *lines[4:]]))
    assert await values(provider) == ["city-3"]
    await provider.save(SingleFact(CITY, "city-4"), USER, APP)
    assert await FileMemoryProvider(tmp_path).verify() == 8


async def test_a_change_of_what_was_read_is_noticed(tmp_path):
    """A handle that has read a file reads it anew when an earlier line changes, also where no length does."""
    file, whole = await _small_file(tmp_path)
    provider = FileMemoryProvider(tmp_path)
    assert await values(provider) == ["city-3"]
    file.write_bytes(whole.replace(b"city-0", b"city-9"))
    with pytest.raises(DamagedStoreError, match="line 2"):
        await values(provider)
    file.write_bytes(whole)
    assert await values(provider) == ["city-3"]


async def test_a_damaged_file_is_not_written(tmp_path):
    """Saving into a damaged file is refused, and changes no byte of it."""
    file, whole = await _small_file(tmp_path)
    damaged = whole.replace(b"city-1", b"city-9")
    file.write_bytes(damaged)
    provider = FileMemoryProvider(tmp_path)
    with pytest.raises(DamagedStoreError, match="line 3"):
        await provider.save(SingleFact(CITY, "next"), USER, APP)
    with pytest.raises(DamagedStoreError, match="line 3"):
        await provider.verify()
    with pytest.raises(DamagedStoreError, match="line 3"):
        _ = [record async for record in provider.export()]
    assert file.read_bytes() == damaged


async def test_an_import_into_a_damaged_file_keeps_nothing_anywhere(tmp_path):
    """Of several files that an import adds to, one is damaged: no byte of the others is changed, no file is made."""
    source, target = FileMemoryProvider(tmp_path / "source"), FileMemoryProvider(tmp_path / "target")
    subjects = [USER, Subject("first"), Subject("second"), Subject("zeta")]
    for subject in subjects:
        await source.save(SingleFact(CITY, "Oslo"), subject, APP)
    for subject in subjects[:3]:
        await target.save(MultipleFacts(TOOLS, ["git"]), subject, APP)
        await target.save(MultipleFacts(TOOLS, ["vim"]), subject, APP)
    damaged = files(tmp_path / "target")[1]
    whole = damaged.read_bytes()
    damaged.write_bytes(whole.replace(b"git", b"tig"))
    before = on_disk(tmp_path / "target")
    records = [record async for record in source.export()]
    for order in (records, records[::-1]):
        with pytest.raises(DamagedStoreError, match="line 2"):
            await target.import_(order)
        assert on_disk(tmp_path / "target") == before
    damaged.write_bytes(whole)
    assert await target.import_(records) == 4


async def test_a_moved_file_is_noticed(tmp_path):
    """Facts put in the place of another subject are refused, not taken for that subject's."""
    provider = FileMemoryProvider(tmp_path)
    await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
    [mine] = files(tmp_path)
    await provider.save(SingleFact(CITY, "Rome"), EVERYTHING, APP)
    [other] = [each for each in files(tmp_path) if each != mine]
    other.replace(mine)
    with pytest.raises(DamagedStoreError, match="line 1 is damaged: these are the facts of another"):
        await FileMemoryProvider(tmp_path).load(CITY, USER, APP)
    with pytest.raises(DamagedStoreError, match="line 1"):
        await FileMemoryProvider(tmp_path).verify()


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\n", b"[]\n", b'{"graphagent":"facts","format":2}\n', b"\xff\n"])
async def test_a_file_without_its_first_line_is_damaged(tmp_path, content):
    """A file that does not say whose facts it has never reads as empty."""
    file, _ = await _small_file(tmp_path)
    file.write_bytes(content)
    provider = FileMemoryProvider(tmp_path)
    for call in (
        lambda: provider.load(CITY, USER, APP),
        lambda: provider.save(SingleFact(CITY, "next"), USER, APP),
        provider.verify,
    ):
        with pytest.raises(DamagedStoreError, match="line 1"):
            await call()
    assert file.read_bytes() == content


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_a_failing_disk_loses_nothing(tmp_path, monkeypatch, call, code):
    """Where writing or syncing fails, save raises, the file is as it was, and the next save works."""
    file, whole = await _small_file(tmp_path)
    provider = FileMemoryProvider(tmp_path)
    assert await values(provider) == ["city-3"]
    real = getattr(os, call)

    def fails(*args):
        if call == "pwrite":
            real(args[0], bytes(args[1])[:10], args[2])
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(StoreError, match=f"cannot write .*{os.strerror(code)}") as raised:
        await provider.save(SingleFact(CITY, "secret"), USER, APP)
    assert "secret" not in str(raised.value)
    monkeypatch.undo()
    assert file.read_bytes() == whole
    assert await values(provider) == ["city-3"]
    await provider.save(SingleFact(CITY, "city-4"), USER, APP)
    assert await values(FileMemoryProvider(tmp_path)) == ["city-4"]


@pytest.mark.parametrize("call", ["pwrite", "fsync", "rename"])
async def test_a_failing_disk_forgets_all_or_nothing(tmp_path, monkeypatch, call):
    """Where a file cannot be rewritten, forgetting raises, and the file is as it was or as it should be."""
    file, whole = await _small_file(tmp_path)
    provider = FileMemoryProvider(tmp_path)
    await provider.save(MultipleFacts(TOOLS, ["git"]), USER, APP)

    def fails(*args, **kwargs):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(StoreError, match="cannot write"):
        await provider.forget(concept=TOOLS)
    monkeypatch.undo()
    assert file.read_bytes().startswith(whole)
    assert not list(tmp_path.rglob("*.tmp"))
    assert (await provider.forget(concept=TOOLS)).facts == 1
    assert file.read_bytes() == whole


async def test_bytes_are_synced_before_they_are_named(tmp_path, monkeypatch):
    """A new file is synced before it gets its name, and its folder after; an addition is synced before save returns."""
    provider = FileMemoryProvider(tmp_path)
    await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
    await provider.save(MultipleFacts(TOOLS, ["git"]), USER, APP)
    calls = []

    def recorded(name):
        real = getattr(os, name)

        def call(*args, **kwargs):
            is_folder = name == "fsync" and Path(f"/proc/self/fd/{args[0]}").is_dir()
            calls.append("fsync folder" if is_folder else name)
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    for name in ("pwrite", "fsync", "fdatasync", "rename", "mkdir"):
        recorded(name)
    await provider.save(SingleFact(CITY, "Moss"), USER, APP)
    assert calls == ["pwrite", "fdatasync"]
    calls.clear()
    await provider.forget(concept=TOOLS)
    assert calls == ["pwrite", "fsync", "rename", "fsync folder", "pwrite", "fsync"]
    calls.clear()
    await provider.save(SingleFact(CITY, "Moss"), USER, Scope.product("other"))
    named = [call for call, _ in itertools.groupby(calls)]  # with the names of the folders above
    assert named == ["mkdir", "fsync folder", "pwrite", "fsync", "rename", "fsync folder"]


PROGRAM = """
import os, signal, sys
import anyio
from graphagent.memory import Concept, FactType, FileMemoryProvider, MultipleFacts, Scope, SingleFact, Subject

USER, APP = Subject("user", "the user", priority=1), Scope.product("my-app")
CITY = Concept("city", "where the user lives")
TOOLS = Concept("tools", "tools the user works with", FactType.MULTIPLE)
provider = FileMemoryProvider(sys.argv[1])
"""


def start(body, *args, **options):
    """Start another Python process that has a provider of its own."""
    program = PROGRAM + textwrap.dedent(body)
    return forkserver.Popen(
        [sys.executable, "-c", program, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_process_killed_while_forgetting_forgets_all_or_nothing_of_a_file(tmp_path):
    """A crash between writing the new file and naming it leaves the old one; forgetting again removes both."""
    crash = """
    import graphagent.store._durable_files as files

    async def main():
        await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
        await provider.save(MultipleFacts(TOOLS, ["secret-tool"]), USER, APP)
        os.rename = lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL)
        await provider.forget(concept=CITY)

    anyio.run(main)
    """
    process = start(crash, tmp_path)
    process.communicate(timeout=600)
    assert process.returncode == -signal.SIGKILL
    assert len(list(tmp_path.rglob("*.tmp"))) == 1

    async def check():
        provider = FileMemoryProvider(tmp_path)
        assert await provider.verify() == 2
        assert (await provider.forget(concept=TOOLS)).facts == 1
        assert b"secret" not in on_disk(tmp_path)
        assert await values(provider) == ["Oslo"]

    anyio.run(check)


def test_a_full_disk_is_a_typed_error(tmp_path):
    """Where the file may not grow, save raises a StoreError that says what to do, and earlier facts stay readable."""
    full = """
    import resource
    from graphagent.errors import StoreError

    async def main():
        await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            await provider.save(SingleFact(CITY, "x" * 2000), USER, APP)
        except StoreError as error:
            print(error)
        print((await provider.load(CITY, USER, APP))[0].value)
        await provider.save(SingleFact(CITY, "Moss"), USER, APP)
        print((await provider.load(CITY, USER, APP))[0].value)

    anyio.run(main)
    """
    process = start(full, tmp_path)
    out, err = process.communicate(timeout=600)
    message, *rest = out.splitlines()
    assert "File too large; allow larger files" in message, err
    assert rest == ["Oslo", "Moss"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_folder_of_another_user_is_a_typed_error(tmp_path):
    """A folder that this user may read but not write gives its facts; saving and forgetting are StoreErrors."""

    async def fill():
        await FileMemoryProvider(tmp_path).save(SingleFact(CITY, "Oslo"), USER, APP)

    anyio.run(fill)
    for each in (*reversed(tmp_path.parents), tmp_path, *tmp_path.rglob("*")):
        if str(each).startswith("/tmp/pytest") or each == tmp_path or tmp_path in each.parents:
            each.chmod(0o755 if each.is_dir() else 0o644)
    readonly = """
    from graphagent.errors import StoreError

    async def main():
        await provider.load(CITY, USER, APP)  # all that is imported at first use is imported now
        os.setuid(65534)
        stranger = FileMemoryProvider(sys.argv[1])
        print((await stranger.load(CITY, USER, APP))[0].value)
        for call in (lambda: stranger.save(SingleFact(CITY, "Moss"), USER, APP), lambda: stranger.forget(everything=True)):
            try:
                await call()
            except StoreError as error:
                print(error)

    anyio.run(main)
    """
    process = start(readonly, tmp_path)
    out, err = process.communicate(timeout=600)
    assert out.splitlines()[0] == "Oslo", err
    assert out.count("is read-only for this process; nothing was written") == 2


async def test_a_lock_that_is_never_given_back_is_an_error(tmp_path, monkeypatch):
    """A process that keeps the lock holds others up for a while only; then they say so."""
    await FileMemoryProvider(tmp_path).save(SingleFact(CITY, "Oslo"), USER, APP)
    monkeypatch.setattr("graphagent.store._durable_files._LOCK_SECONDS", 0.05)
    holder = start(
        """
        import fcntl, time
        lock = open(sys.argv[1] + "/.lock")
        fcntl.flock(lock, fcntl.LOCK_EX)
        print("held", flush=True)
        time.sleep(60)
        """,
        tmp_path,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match="has been locked by another process"):
            await FileMemoryProvider(tmp_path).save(SingleFact(CITY, "Moss"), USER, APP)
    finally:
        holder.kill()
        holder.communicate()
    await FileMemoryProvider(tmp_path).save(SingleFact(CITY, "Moss"), USER, APP)


async def test_saving_does_not_hold_up_the_event_loop(tmp_path, monkeypatch):
    """While a disk is slow, other tasks go on."""
    provider = FileMemoryProvider(tmp_path)
    await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
    released = []
    real = os.fdatasync

    def slow(file):
        while not released:
            pass
        real(file)

    monkeypatch.setattr(os, "fdatasync", slow)
    async with anyio.create_task_group() as group:
        group.start_soon(provider.save, SingleFact(CITY, "Moss"), USER, APP)
        await anyio.sleep(0.05)
        released.append(True)
    assert await values(provider) == ["Moss"]


def test_a_forked_process_is_not_held_up(tmp_path):
    """A process that is forked while a thread saves can use the same provider, though that thread is not there."""
    fork = """
    import threading

    async def in_child():
        await provider.save(SingleFact(CITY, "from the child"), USER, APP)
        print((await provider.load(CITY, USER, APP))[0].value, flush=True)

    anyio.run(provider.save, SingleFact(CITY, "Oslo"), USER, APP)
    with provider._files._turn():
        child = os.fork()
        if not child:
            anyio.run(in_child)
            os._exit(0)
        os.waitpid(child, 0)
    print(anyio.run(provider.load, CITY, USER, APP)[0].value)
    """
    process = start(fork, tmp_path)
    out, err = process.communicate(timeout=600)
    assert out.splitlines() == ["from the child"] * 2, err


IS_FREE = """
import fcntl

def is_free():
    with open(sys.argv[1] + "/.lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
"""

FORK = """
import threading

anyio.run(provider.save, SingleFact(CITY, "Oslo"), USER, APP)
synced, inside, on = os.fdatasync, threading.Event(), threading.Event()

def waits(file):
    inside.set()
    on.wait()
    synced(file)

os.fdatasync = waits
saving = threading.Thread(target=anyio.run, args=(provider.save, SingleFact(CITY, "Moss"), USER, APP))
saving.start()
inside.wait()
end, begin = os.pipe()
child = os.fork()
if not child:
    os.close(begin)
    os.read(end, 1)  # until its parent has ended or says so
"""


def test_a_forked_process_does_not_keep_the_lock(tmp_path):
    """A process that is forked while a thread saves does not hold the lock once that save is done."""
    rest = """
    if not child:
        os._exit(0)
    on.set()
    saving.join()
    print(is_free())
    os.close(begin)
    os.waitpid(child, 0)
    """
    process = start(IS_FREE + FORK + textwrap.dedent(rest), tmp_path)
    out, err = process.communicate(timeout=600)
    assert out == "True\n", err


def test_a_forked_process_does_not_keep_the_lock_of_a_process_that_was_killed(tmp_path):
    """Nor does it where its parent was killed in the middle of the save; it then saves what it wants itself."""
    rest = """
    if not child:
        os.fdatasync = synced
        anyio.run(provider.save, SingleFact(CITY, "Odda"), USER, APP)
        print(anyio.run(provider.load, CITY, USER, APP)[0].value, flush=True)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    process = start(FORK + textwrap.dedent(rest), tmp_path)
    out, err = process.communicate(timeout=600)
    assert out == "Odda\n", err


def test_a_forked_process_does_not_release_the_lock(tmp_path):
    """A process that is forked by the thread that holds the lock leaves the lock to its parent, however it leaves."""
    rest = """
    from graphagent.store._durable_files import locked

    with locked(sys.argv[1], make=True):
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            print(is_free())
    if not child:
        os._exit(0)
    print(is_free())
    """
    process = start(IS_FREE + textwrap.dedent(rest), tmp_path)
    out, err = process.communicate(timeout=600)
    assert out.splitlines() == ["False", "True"], err


async def test_a_cancelled_save_is_done_or_not(tmp_path):
    """Cancelled in the middle, a fact is absent or complete, and the provider goes on working."""
    provider = FileMemoryProvider(tmp_path)
    for number in range(20):
        with anyio.move_on_after(0.0001 * number):
            await provider.save(SingleFact(CITY, "x" * 1000), USER, APP)
    kept = await FileMemoryProvider(tmp_path).verify()
    await provider.save(SingleFact(CITY, "after"), USER, APP)
    assert (await values(provider), await provider.verify()) == (["after"], kept + 1)


async def test_closing_disturbs_no_save(tmp_path, monkeypatch):
    """A provider that is closed in the middle of every save saves on, and loses nothing."""
    provider, lines = FileMemoryProvider(tmp_path), _file_format.lines

    def closing(*given):
        provider._files.close()
        return lines(*given)

    monkeypatch.setattr(_file_format, "lines", closing)
    for number in range(5):
        await provider.save(SingleFact(CITY, f"{number}"), USER, APP)
    async with provider:
        assert (await values(provider), await provider.verify()) == (["4"], 5)


def counted_reads(monkeypatch):
    """The paths of files that are read, from now on."""
    read, real = [], _file_format.read_lines

    def reads(file, place, path, *rest):
        read.append(path)
        return real(file, place, path, *rest)

    monkeypatch.setattr(_file_format, "read_lines", reads)
    return read


async def test_files_that_were_not_used_for_longest_leave_the_memory(tmp_path, monkeypatch):
    """Within the budget a file is read once; beyond it, the one that was used last stays, whether it was loaded or saved."""
    provider = FileMemoryProvider(tmp_path, cache_bytes=50_000)
    for name in "abcd":
        await provider.save(SingleFact(CITY, name * 10_000), USER, Scope.agent(name))
    read = counted_reads(monkeypatch)
    assert await values(provider, scope=Scope.agent("b")) == ["b" * 10_000]
    assert read == []
    await provider.save(SingleFact(CITY, "e" * 10_000), USER, Scope.agent("e"))
    for name in "bde":
        assert await values(provider, scope=Scope.agent(name)) == [name * 10_000]
    assert read == []
    for name in "ca":
        assert await values(provider, scope=Scope.agent(name)) == [name * 10_000]
    assert len(read) == 2


async def test_a_file_larger_than_the_budget_is_still_read_once(tmp_path, monkeypatch):
    """What is known of the file that was used last is kept whatever it takes."""
    provider = FileMemoryProvider(tmp_path, cache_bytes=0)
    await provider.save(SingleFact(CITY, "x" * 10_000), USER, APP)
    read = counted_reads(monkeypatch)
    for _ in range(3):
        assert await values(provider) == ["x" * 10_000]
    assert read == []
    await provider.save(SingleFact(CITY, "y"), USER, Scope.agent("other"))
    assert await values(provider) == ["x" * 10_000]
    assert len(read) == 1


async def test_memory_does_not_grow_with_the_files(tmp_path):
    """However many files were read and written, what is kept of them takes the budget at most, and nothing once it is closed."""
    budget = 200_000
    provider = FileMemoryProvider(tmp_path, cache_bytes=budget)
    await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(100):
            for letter in "ab":
                await provider.save(SingleFact(CITY, letter * 20_000), USER, APP, owner=f"owner {number}")
        gc.collect()
        assert budget / 2 < tracemalloc.get_traced_memory()[0] - before < 1.5 * budget
        async with provider:
            pass
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < budget / 2
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("type_", "count"), [(FactType.SINGLE, 300), (FactType.MULTIPLE, 1)])
async def test_small_facts_take_about_what_is_counted(tmp_path, type_, count):
    """The budget is meant in bytes of memory, also for many small facts and for one with many values."""
    source = FileMemoryProvider(tmp_path / "source")
    await source.save(SingleFact(CITY, "Oslo"), USER, APP)
    [record] = [each async for each in source.export()]
    wanted = {"type": type_.value, "keyword": "tools"}
    records = [
        {**record, **wanted, "id": f"{number}", "keyword": f"fact {number % count}", "values": [f"some value {number}"]}
        for number in range(300)
    ]
    await FileMemoryProvider(tmp_path).import_(records)
    provider = FileMemoryProvider(tmp_path)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        assert len(await provider.load_all(USER, APP)) == count
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken / 2 < provider._files._pages._bytes < 2 * taken


@settings(max_examples=examples(60), deadline=None)
@given(st.text(min_size=1, max_size=50), st.lists(st.text(), min_size=1, max_size=4), st.text(max_size=50))
def test_any_text_comes_back(tmp_path_factory, name, texts, description):
    """Names, descriptions and values of any text are found again, by another handle too."""
    root = Path(tmp_path_factory.mktemp("facts"))
    concept = Concept(name, description, FactType.MULTIPLE)

    async def round_trip():
        await FileMemoryProvider(root).save(
            MultipleFacts(concept, texts), Subject(name), Scope.feature(name), owner=name
        )
        [fact] = await FileMemoryProvider(root).load(concept, Subject(name), Scope.feature(name), owner=name)
        assert fact.values == tuple(dict.fromkeys(texts))
        assert fact.concept.description == description

    anyio.run(round_trip)


async def test_lines_that_lost_their_breaks_are_damage_and_no_torn_line(tmp_path):
    """Where line breaks were overwritten, the rest of a file is not taken for what a crash left of its last line."""
    provider = FileMemoryProvider(tmp_path)
    for value in ("a", "b", "c", "d", "e"):
        await provider.save(SingleFact(Concept("letter"), value), Subject("user"), Scope.agent("x"))
    [file] = tmp_path.rglob("*.jsonl")
    head, *rest = file.read_bytes().split(b"\n")
    file.write_bytes(head + b"\n" + b"\xf5".join(rest))
    with pytest.raises(DamagedStoreError, match="line 2"):
        await FileMemoryProvider(tmp_path).verify()


async def _many_facts(root, count=40):
    provider = FileMemoryProvider(root)
    for number in range(count):
        await provider.save(SingleFact(CITY, f"city-{number:02}"), USER, APP)
    [file] = files(root)
    return file, file.read_bytes()


@pytest.mark.parametrize(
    ("lost", "what"),
    [
        (600, r"there are \d{3} bytes of zeros, as .*, where about [23] facts were"),
        (4096, r"there are 4,\d{3} bytes of zeros, as .*, where about 1[3-9] facts were"),
        (-1, r"bytes of zeros, as .*, where every fact of this file were"),
    ],
    ids=["600 bytes", "4 kB", "all but the first line"],
)
@pytest.mark.parametrize("filler", [b"\0", b"\xf7"])
async def test_a_lost_block_at_the_end_is_reported_with_about_how_many_facts_it_hides(
    tmp_path, caplog, lost, what, filler
):
    """Not as one torn line: `verify` and the log say it, those before are used, and the next save puts the bytes aside."""
    file, whole = await _many_facts(tmp_path)
    lost = lost if lost > 0 else len(whole) - whole.index(b"\n") - 1
    file.write_bytes(whole[:-lost] + filler * lost)
    if filler != b"\0":
        what = what.replace("bytes of zeros", "damaged bytes")
    provider = FileMemoryProvider(tmp_path)
    found = await values(provider)
    with pytest.raises(DamagedStoreError, match=what):
        await provider.verify()
    assert "is damaged: its end is lost" in caplog.text
    await provider.save(SingleFact(CITY, "next"), USER, APP)
    [aside] = file.parent.glob("*.torn-*")
    assert aside.read_bytes().endswith(filler * lost)
    left = [fact.value for fact in await provider.history(CITY, USER, APP)]
    assert left[1:2] == found


async def test_a_confirmed_line_whose_end_was_overwritten_is_no_line_that_was_never_written(tmp_path):
    """However much of the checksums at its end it is: what is left is no beginning of a line. It is reported and put aside."""
    file, whole = await _small_file(tmp_path)
    provider = FileMemoryProvider(tmp_path)
    for count in range(1, 29):
        for filler in (b"x", b" ", b"~"):
            file.write_bytes(whole[:-count] + filler * count)
            with pytest.raises(DamagedStoreError, match="the last line is torn"):
                await provider.verify()
    await provider.save(SingleFact(CITY, "next"), USER, APP)
    [aside] = file.parent.glob("*.torn-*")
    assert b"city-3" in aside.read_bytes()


async def test_no_beginning_of_a_line_is_taken_for_a_damaged_one(tmp_path):
    """Whatever characters it has, and wherever among their bytes it ends: such a line was never confirmed."""
    provider = FileMemoryProvider(tmp_path)
    concept = Concept("city", 'whëre "they" \\ live \U0001f600 \u2028', FactType.MULTIPLE)
    for value in ("Oslo", 'a "b" \\ \n é \U0001f600 ,"after":"00ab12cd","crc":"'):
        await provider.save(MultipleFacts(concept, [value]), USER, APP)
    [file] = files(tmp_path)
    whole = file.read_bytes()
    for length in range(whole.rindex(b"\n", 0, -1) + 1, len(whole)):
        file.write_bytes(whole[:length])
        assert await FileMemoryProvider(tmp_path).verify() == (2 if length == len(whole) - 1 else 1)


async def test_what_a_killed_rewrite_left_is_removed_by_the_next_save_of_its_subject(tmp_path):
    """It has facts, and nobody would read or forget it."""
    file, _ = await _small_file(tmp_path)
    left = file.with_name(f"{file.name}.tmp")
    left.write_bytes(file.read_bytes())
    await FileMemoryProvider(tmp_path).save(SingleFact(CITY, "next"), USER, APP)
    assert not left.exists()
    assert await values(FileMemoryProvider(tmp_path)) == ["next"]


@pytest.mark.parametrize("kind", ["file", "store"])
async def test_a_description_is_found_in_whatever_form_it_is_written(tmp_path, kind):
    """Composed or decomposed, in any case, in what is stored and in what is asked for."""
    provider = FileMemoryProvider(tmp_path) if kind == "file" else StoreMemoryProvider(MemoryStore())
    await provider.save(SingleFact(Concept("t", "Th\u00e8me"), "x"), USER, APP)
    await provider.save(SingleFact(Concept("u", "THE\u0300ME"), "y"), USER, APP)
    for wanted in ("the\u0300me", "th\u00e8me", "TH\u00c8ME"):
        found = await provider.load_by_description(wanted, USER, APP)
        assert [fact.value for fact in found] == ["x", "y"]
