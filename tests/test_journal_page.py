"""The page about the journal says what the classes of entries say."""

from __future__ import annotations

from graphagent.run.state._entries import TAGS
from scripts import journal


def test_the_page_is_what_the_script_writes():
    """A field that is added, or explained anew, is on the page."""
    text = journal.FILE.read_text("utf-8")
    assert journal.page(text) == text, "python -m scripts.journal writes docs/journal.md"


def test_every_kind_of_entry_has_a_heading_and_every_field_a_meaning():
    """Nothing is listed without a word about it."""
    section = journal.section()
    assert [line.split("`")[1] for line in section.splitlines() if line.startswith("### `")] == list(TAGS)
    assert not [line for line in section.splitlines() if line.startswith("| `") and line.endswith("|  |")]
