"""Bytes that changed on the disk, rows and lines that somebody moved, and files from earlier."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from tests.faults.crashes import fresh
from tests.faults.oracle import READ, after_damage, contents, restore
from tests.faults.subjects import closed, do

FORGED = ("exchanged", "put back", "removed", "renamed", "changed", "added", "of another store", "of another version")


async def made(subject, folder):
    """Make a sound store that nobody has open. Return its files, and what each read returns."""
    fresh(folder)
    await _do(subject, folder, subject.steps)
    return contents(folder), await _read(subject, folder)


async def _do(subject, folder, steps):
    async with closed(subject, folder) as handle:
        for step in steps:
            await do(subject, handle, step)


async def _read(subject, folder):
    async with closed(subject, folder) as handle:
        return [await read() for read in subject.reads(handle, READ)]


async def flipped(subject, folder, chance, share, tally):
    """A bit of a byte of a file."""
    files, sound = await made(subject, folder)
    for name, data in files.items():
        path = Path(folder, name)
        for place in range(len(data)):
            if not share.takes():
                continue
            bit = 1 << chance.randrange(8)
            _overwrite(path, place, bytes([data[place] ^ bit]))
            await after_damage(subject, folder, sound, f"{name}: bit {bit} of byte {place}", tally)
            _overwrite(path, place, data[place : place + 1])
            if contents(folder) != files:  # opening it may have rewritten it
                restore(folder, files)


def _overwrite(path, place, data):
    file = os.open(path, os.O_RDWR)
    try:
        os.pwrite(file, data, place)
    finally:
        os.close(file)


async def cut(subject, folder, chance, share, tally):
    """A file that ends early, at any length."""
    files, sound = await made(subject, folder)
    for name, data in files.items():
        for size in range(len(data)):
            if share.takes():
                restore(folder, {**files, name: data[:size]})
                await after_damage(subject, folder, sound, f"{name} cut off at {size}", tally)


async def blocks(subject, folder, chance, many, tally):
    """Sectors and pages that were zeroed, exchanged or written to another place, and bytes at the end."""
    files, sound = await made(subject, folder)
    for _ in range(round(many)):
        name = chance.choice([name for name, data in files.items() if data])
        data, size = bytearray(files[name]), chance.choice((512, 4096))
        places = range(0, len(data), size)
        one, other = chance.choice(places), chance.choice(places)
        how = chance.choice(("zeroed", "exchanged", "written elsewhere", "added"))
        first, second = data[one : one + size], data[other : other + size]
        if how == "zeroed":
            data[one : one + size] = bytes(len(first))
        elif how == "added":
            data += chance.randbytes(chance.choice((1, 100, 512, 4096)))
        elif len(first) == len(second):
            data[other : other + size] = first
            if how == "exchanged":
                data[one : one + size] = second
        if data != files[name]:
            restore(folder, {**files, name: bytes(data)})
            await after_damage(subject, folder, sound, f"{name}: {size} bytes at {one} {how} ({other})", tally)


async def forged(subject, folder, chance, many, tally):
    """Rows of a sealed store that were exchanged, put back, removed, renamed, changed or added, by someone without its key."""
    strange, older = [await _rows_after(subject, folder, subject.steps[:3]) for _ in range(2)]  # with other keys
    await _do(subject, folder, subject.steps[3:])
    files = contents(folder)
    file = next(name for name in files if name.endswith(".db"))
    sound = await _read(subject, folder)
    rows = _rows(Path(folder, file))
    for _ in range(round(many)):
        how = chance.choice(FORGED)
        changed = _forge(dict(rows), how, chance, older, strange)
        if changed != rows:
            restore(folder, files)
            _put_rows(Path(folder, file), changed)
            places = [key for key in {*rows, *changed} if rows.get(key) != changed.get(key)]
            await after_damage(subject, folder, sound, f"a row {how}: {places}", tally)


async def _rows_after(subject, folder, steps):
    fresh(folder)
    await _do(subject, folder, steps)
    file = next(name for name in contents(folder) if name.endswith(".db"))
    return _rows(Path(folder, file))


def _forge(rows, how, chance, older, strange):
    """Return rows of which one or two were changed in a way."""
    key, other = chance.choice(list(rows)), chance.choice(list(rows))
    version, value = rows[key]
    if how == "exchanged":
        rows[key], rows[other] = rows[other], rows[key]
    elif how == "put back" and (back := [each for each in older if older[each] != rows.get(each)]):
        place = chance.choice(back)
        rows[place] = older[place]
    elif how == "removed":
        del rows[key]
    elif how == "renamed":
        place = chance.randrange(len(key))
        rows[key[:place] + bytes([key[place] ^ 1 << chance.randrange(8)]) + key[place + 1 :]] = rows.pop(key)
    elif how == "changed":
        place = chance.randrange(len(value) or 1)
        rows[key] = version, value[:place] + chance.randbytes(1) + value[place + 1 :]
    elif how == "added":
        rows[key[:-1] + chance.randbytes(1)] = version, value
    elif how == "of another store":
        rows[key] = chance.choice(list(strange.values()))
    elif how == "of another version":
        rows[key] = version + chance.choice((-1, 1)), value
    return rows


def _rows(path):
    """Return the rows of a store, as somebody without its key finds them."""
    connection = apsw.Connection(str(path))
    try:
        statement = "SELECT key, version, ifnull(items.value, apart.value) FROM items LEFT JOIN apart ON id = apart"
        return {key: (version, value) for key, version, value in connection.execute(statement)}
    finally:
        connection.close()


def _put_rows(path, rows):
    connection = apsw.Connection(str(path))
    try:
        connection.execute("BEGIN; DELETE FROM items; DELETE FROM apart")
        for key, (version, value) in rows.items():
            connection.execute(
                "INSERT OR REPLACE INTO items (key, version, value, apart) VALUES (?, ?, ?, NULL)",
                (key, max(1, version), value),
            )
        connection.execute("COMMIT")
    finally:
        connection.close()


async def lines(subject, folder, chance, many, tally):
    """Lines of readable files that were exchanged, doubled, moved, removed or edited, but for the last line."""
    files, sound = await made(subject, folder)
    for _ in range(round(many)):
        name = chance.choice([name for name in files if name.endswith(".jsonl")])
        found = files[name].splitlines(keepends=True)
        if len(found) < 3:
            continue
        one, other = sorted(chance.sample(range(1, len(found)), 2))
        how = chance.choice(("exchanged", "doubled", "removed", "edited", "of another file"))
        changed = list(found)
        if how == "exchanged":
            changed[one], changed[other] = found[other], found[one]
        elif how == "doubled":
            changed.insert(other, found[one])
        elif how == "removed":
            del changed[one]
        elif how == "edited":
            changed[one] = found[one].replace(b"pear", b"plum", 1)
        else:
            changed[0] = found[0].replace(b"app", b"apq", 1)
        if changed != found:
            restore(folder, {**files, name: b"".join(changed)})
            await after_damage(subject, folder, sound, f"{name}: line {one} {how} ({other})", tally)


async def older(subject, folder, chance, many, tally):
    """A copy of the files from earlier, put in their place: at least one, however small a share is tried."""
    for number in range(max(1, round(many))):
        steps = chance.randint(1, len(subject.steps) - 1)
        fresh(folder)
        await _do(subject, folder, subject.steps[:steps])
        copied = {name: data for name, data in contents(folder).items() if not name.startswith("anchor")}
        await _do(subject, folder, subject.steps[steps:])
        sound = await _read(subject, folder)
        elsewhere = {name: data for name, data in contents(folder).items() if name.startswith("anchor")}
        restore(folder, {**copied, **elsewhere})
        await after_damage(subject, folder, sound, f"{number}: as after step {steps}", tally)


async def log(subject, folder, chance, share, tally):
    """The log (`-wal`) that a killed process left: removed, cut off, or with a bit flipped."""
    fresh(folder)
    handle = subject.open(folder)
    for step in subject.steps:
        await do(subject, handle, step)
    files = contents(folder)
    await subject.close(handle)
    sound = await _read(subject, folder)
    name = next((name for name, data in files.items() if name.endswith("-wal") and data), None)
    if name is None:
        return
    data = files[name]
    for place in range(len(data)):
        if share.takes():
            bit = 1 << chance.randrange(8)
            restore(folder, {**files, name: data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]})
            await after_damage(subject, folder, sound, f"bit {bit} of byte {place} of the log", tally)
        if share.takes():
            restore(folder, {**files, name: data[:place]})
            await after_damage(subject, folder, sound, f"the log cut off at {place}", tally)
