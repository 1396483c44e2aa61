"""`graphagent notes browse`, with a pilot that presses keys. Textual runs on asyncio alone."""

from __future__ import annotations

import re
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pexpect
import pytest
from textual.widgets import TextArea

from graphagent.cli.notes._browser import Browser
from graphagent.memory import Notes
from graphagent.store import SqliteStore, new_key
from graphagent.store.postgres import PostgresStore

pytestmark = [pytest.mark.parametrize("anyio_backend", ["asyncio"]), pytest.mark.usefixtures("anyio_backend")]
HOSTILE = "[INFO] It said [/x], [red]no[/red] and \x1b[31mstop\x1b]0;title\x07."
PLAIN = "[INFO] It said [/x], [red]no[/red] and �[31mstop�]0;title�."


@asynccontextmanager
async def browsing(*, size=(130, 40), unread=()):
    """Open the browser over the store in this folder, and yield it with its pilot and the notes."""
    async with SqliteStore("notes.db") as store, Notes(store) as notes:
        app = Browser(notes, [store, notes], name="notes.db", sealed=False, unread=unread)
        async with app.run_test(size=size, notifications=True) as pilot:
            await settled(pilot)
            yield app, pilot, notes


async def settled(pilot):
    """Wait until everything is shown."""
    for _ in range(2):
        await pilot.pause()
        await pilot.app.workers.wait_for_complete()
    await pilot.pause()


async def press(pilot, *keys):
    """Press keys, and wait for what they do."""
    await pilot.press(*keys)
    await settled(pilot)


def seen(app):
    """Return all that is on the screen in one line, without the lines between panes."""
    rows = [strip.text for strip in app.screen._compositor.render_strips()]
    return " ".join(re.sub(r"[│▕▏▌▐]", " ", " ".join(rows)).split())


def remove():
    """Remove the store from the disk."""
    for each in Path().glob("notes.db*"):
        each.unlink()


async def keep(*texts, scope="/"):
    """Save notes."""
    async with Notes("notes.db") as notes:
        return [await notes.remember(text, scope, infer="never") for text in texts]


async def test_foreign_text_is_shown_as_it_is_and_acts_on_nothing():
    """In the list, the note, the tree, the editor, the question before forgetting, and in what a search did not find."""
    await keep(HOSTILE, scope="/[bold]s")
    async with browsing(size=(100, 40)) as (app, pilot, _):
        assert seen(app).count("[INFO] It said [/x]") == 2
        assert PLAIN in seen(app)
        assert "[bold]s 1" in seen(app)
        await press(pilot, "e")
        assert PLAIN in seen(app)
        assert app.screen.query_one(TextArea).text == HOSTILE
        await press(pilot, "escape", "f")
        assert seen(app).count(PLAIN) == 1
        await press(pilot, "escape", "slash", *"[/zebra]", "enter")
        assert "No note in / fits '[/zebra]'." in seen(app)


async def test_a_search_shows_scores_with_their_parts_within_the_scope():
    """The best first, beside what each reason added; Esc goes back to all notes."""
    await keep("The office closes at six.", "Ana leads the migration.", scope="/office")
    await keep("The office of Bo is upstairs.", scope="/people")
    async with browsing() as (app, pilot, notes):
        assert "3 notes · notes.db" in seen(app)
        await press(pilot, "slash", *"office", "enter")
        [best, *_] = await notes.recall("office")
        assert f"{best.score:.2f}" in seen(app)
        assert re.search(r"lexical +\d+\.\d\d ━+", seen(app))
        assert "Ana leads" not in seen(app)
        await press(pilot, "shift+tab", "down")  # to the scope /office
        assert "upstairs" not in seen(app)
        await press(pilot, "tab", "escape")
        assert "Ana leads" in seen(app)
        await press(pilot, "slash", *"zebra", "enter")
        assert "No note in /office fits 'zebra'." in seen(app)


async def test_a_note_is_edited_and_its_history_shown():
    """Ctrl-S saves a version, and Esc leaves an unsaved text only when it is pressed twice."""
    [record] = await keep("We chose SQLite.")
    async with browsing(size=(60, 24)) as (app, pilot, notes):
        await press(pilot, "e", "backspace", *" for tests.", "escape")
        assert "Your text is not saved." in seen(app)
        await press(pilot, "ctrl+s")
        assert (await notes.get(record.id)).content == "We chose SQLite for tests."
        assert "1, updated" in seen(app)
        await press(pilot, "e", "x", "escape", "escape")
        assert (await notes.get(record.id)).version == 2


async def test_a_note_that_was_changed_meanwhile_is_not_overwritten_silently():
    """The other text is shown, and the own one stays; only a second Ctrl-S replaces the other, which is in the history."""
    [record] = await keep("We chose SQLite")
    async with browsing() as (app, pilot, notes):
        await press(pilot, "e", *"!")
        async with Notes("notes.db") as others:
            await others.update(record.id, content="We chose [b]DuckDB")
        await press(pilot, "ctrl+s")
        assert "changed meanwhile, so this was not saved" in seen(app)
        assert "We chose [b]DuckDB" in seen(app)
        assert app.screen.query_one(TextArea).text == "We chose SQLite!"
        assert (await notes.get(record.id)).content == "We chose [b]DuckDB"
        await press(pilot, "ctrl+s")
        assert (await notes.get(record.id)).content == "We chose SQLite!"
        assert (await notes.history(record.id))[0].record.content == "We chose [b]DuckDB"
        await press(pilot, "e", *"?")
        await notes.forget(ids=[record.id])
        await press(pilot, "ctrl+s")
        assert "forgotten meanwhile" in seen(app)
        assert app.screen.query_one(TextArea).text == "We chose SQLite!?"


async def test_before_forgetting_it_is_shown_where_a_note_has_been():
    """What is chosen goes with it; the receipt says how much; places that could not be opened are named."""
    first, second, third = await keep("The office closes at six.", "It is said: The office closes at six.", "Bo left.")
    async with browsing(unread=["runs.db: it is sealed"]) as (app, pilot, notes):
        await press(pilot, "end", "f")
        assert f"[ ] note {second.id}: its text stands there word for word: It is said" in seen(app)
        assert "Not looked at: runs.db: it is sealed" in seen(app)
        await press(pilot, "escape")
        assert await notes.get(first.id) is not None
        await press(pilot, "f", "space", "y")
        assert "Forgotten: 2 notes, " in seen(app)
        assert [each.id for each in await notes.list_records()] == [third.id]
        await press(pilot, "f")
        await notes.update(third.id, content="Bo came back.")
        await press(pilot, "y")
        assert "changed meanwhile, and was not forgotten" in seen(app)
        await press(pilot, "y")
        assert "No notes are kept here yet." in seen(app)


async def test_a_store_that_is_gone_is_an_error_in_the_app():
    """A text that cannot be saved stays in the editor; an empty store says what saves a note."""
    async with browsing() as (app, pilot, _):
        assert "No notes are kept here yet." in seen(app)
        assert "graphagent notes remember" in seen(app)
        await press(pilot, "e", "f")
    await keep("We chose SQLite")
    async with browsing() as (app, pilot, _):
        await press(pilot, "e", *"!")
        remove()
        await press(pilot, "ctrl+s")
        assert "This was not saved: " in seen(app)
        assert app.screen.query_one(TextArea).text == "We chose SQLite!"
        await press(pilot, "escape", "escape", "r")
        assert "It failed" in seen(app)


async def test_more_notes_are_listed_when_the_end_is_reached():
    """A hundred at a time."""
    async with Notes("notes.db") as notes:
        await notes.remember_many([f"Note number {number}." for number in range(120)], infer="never")
    async with browsing() as (app, pilot, _):
        await press(pilot, "end")
        assert "Note number 19." in seen(app)
        await press(pilot, "end")
        assert "Note number 0." in seen(app)


async def test_the_notes_of_a_database_are_browsed(postgres_dsn):
    """Found, edited and forgotten as those of a file."""
    async with PostgresStore(postgres_dsn) as store, Notes(store) as notes:
        record = await notes.remember("The office closes at six", infer="never")
        app = Browser(notes, [store, notes], name="env:DATABASE", sealed=False)
        async with app.run_test(notifications=True) as pilot:
            await settled(pilot)
            await press(pilot, "slash", *"office", "enter")
            await press(pilot, "e", "!", "ctrl+s")
            assert (await notes.get(record.id)).content == "The office closes at six!"
            await press(pilot, "f", "y")
            assert "Forgotten: 1 note, 25 bytes." in seen(app)


async def test_an_unexpected_error_prints_no_value(capsys):
    """It ends the browser with a traceback, in which Textual alone would print the texts of notes."""
    await keep("mulp"[::-1])

    def fail(content):
        raise ZeroDivisionError(len(content))

    with pytest.raises(ZeroDivisionError):
        async with browsing() as (app, pilot, notes):
            [record] = await notes.list_records()
            app.call_later(fail, record.content)
            await pilot.pause()
    said = capsys.readouterr().err
    assert "ZeroDivisionError" in said
    assert "mulp"[::-1] not in said


def test_the_command_browses_a_sealed_store_on_a_terminal(run, home, monkeypatch):
    """What else is in the folder is looked at before a note is forgotten. Without a terminal, it says so."""
    monkeypatch.setenv("KEY", new_key())
    said = run("run", "personal", "The office closes at six.", "--model", "offline", "--store", home / "home")
    assert said.code == 0
    assert run("notes", "remember", "The office closes at six.", "--key", "env:KEY").code == 0
    ended = run("notes", "browse", "--key", "env:KEY")
    assert ended.code == 2
    assert "it needs a terminal" in ended.said
    child = pexpect.spawn(sys.executable, ["-m", "graphagent", "notes", "browse", "--key", "env:KEY"], timeout=60)
    child.setwinsize(24, 80)
    child.expect("The office closes at six")
    child.send("f")
    child.expect("word for word")
    child.send("y")
    child.expect("No notes are kept here yet")
    child.send("q")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
