"""Notes, turns, records and matches as text, and as what may get into a log."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime

from graphagent.memory import Match, Note, Notes, Record, Turn
from graphagent.store import MemoryStore

RECORD = Record("a1", "The office closes at six.", "/office")
MATCH = Match(RECORD, 0.48374, ("lexical",), {"lexical": 1.0}, gaps=("who said six",))


class Printer:
    """What IPython hands to `_repr_pretty_`, as far as it is used."""

    def __init__(self):
        self.said = ""

    def text(self, said):
        self.said += said


def glance(given):
    printer = Printer()
    given._repr_pretty_(printer, cycle=False)
    return printer.said


def test_a_match_is_printed_with_its_score_its_scope_and_its_text():
    """`print(match)` shows what was found, and a record what it says and where."""
    assert str(MATCH) == "0.48 /office The office closes at six."
    assert str(RECORD) == "/office The office closes at six."
    assert str(replace(RECORD, speaker="Ann")) == "/office Ann: The office closes at six."


def test_a_repr_has_no_text():
    """Neither the text, nor what is said beside it, nor what a model made of a question stands in a repr, or in a log of a list."""
    record = replace(RECORD, metadata={"by": "the office"})
    given = [record, replace(MATCH, record=record), Note("office", metadata={"a": "office"}), Turn("office")]
    said = repr(given) + logging.LogRecord("x", 20, "x", 1, "%s", (given,), None).getMessage()
    assert "office" not in said.replace("scope='/office'", "")
    assert "six" not in said


def test_a_repr_tells_what_is_not_as_usual():
    """Ids and scopes are told always, other fields where they are not as they are by default, times in ISO 8601."""
    assert repr(RECORD) == "Record(id='a1', scope='/office')"
    assert repr(Record("a1", "x")) == "Record(id='a1', scope='/')"
    assert repr(MATCH) == "Match(Record(id='a1', scope='/office'), score=0.4837, reasons=('lexical',))"
    said = replace(RECORD, at=datetime(2026, 5, 3, tzinfo=UTC), source="ann", private=True, version=2)
    assert repr(said) == (
        "Record(id='a1', scope='/office', at=2026-05-03T00:00:00+00:00, source='ann', private=True, version=2)"
    )
    assert repr(Note("x")) == "Note()"
    assert repr(Note("x", "/a", importance=0.0)) == "Note(scope='/a', importance=0.0)"
    assert repr(Turn("x", "Ann", source="D1:2")) == "Turn(speaker='Ann', source='D1:2')"


async def test_what_is_kept_and_found_has_a_short_repr():
    """A list of matches is told in a line or two, whatever the notes say."""
    notes = Notes(MemoryStore())
    await notes.remember("The office closes at six. " * 100, scope="/office")
    found = await notes.recall("office")
    assert repr(found) == (
        f"[Match(Record(id={found[0].record.id!r}, scope='/office'), score={round(found[0].score, 4)}, reasons=('lexical',))]"
    )


def test_a_notebook_shows_the_beginning_of_the_text():
    """A cell that ends with a list shows each match in one line, of 200 characters at most."""
    assert glance(MATCH) == str(MATCH)
    assert glance(replace(RECORD, content="one\n\n  two")) == "/office one two"
    long = glance(replace(MATCH, record=replace(RECORD, content="pear " * 10_000)))
    assert len(long) == 200
    assert long.startswith("0.48 /office pear pear ")
    assert long.endswith("…")
