"""What reaches the terminal: lines that end between words, and no character that acts."""

from __future__ import annotations

import io
import os
import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from graphagent.cli import _output
from tests import forkserver


def _flowed(pieces, width=20, *, terminal=True):
    file = io.StringIO()
    flow = _output.Flow(Console(file=file, force_terminal=terminal, width=width))
    for piece in pieces:
        flow.add(piece)
    flow.end()
    return file.getvalue()


def test_a_stream_breaks_between_words():
    """Pieces that cut words anywhere give the same lines as the whole."""
    text = "The quick brown fox jumps over the lazy dog, and more.\n- a list\n"
    whole = _flowed([text])
    assert whole == _flowed(text)
    lines = [line.rstrip() for line in whole.splitlines()]
    assert lines == ["The quick brown fox", "jumps over the lazy", "dog, and more.", "- a list"]
    assert "".join(whole.split()) == "".join(text.split())


def test_a_pipe_gets_the_text_as_it_is():
    """Lines are not broken where nobody sees them."""
    assert _flowed(["word " * 50], terminal=False) == "word " * 50 + "\n"


@given(st.lists(st.text(max_size=40), max_size=8), st.integers(10, 40))
def test_no_word_is_lost(pieces, width):
    """Whatever comes, in whatever pieces, all its letters are shown in their order."""
    text = _output.shown("".join(pieces))
    assert "".join(_flowed(pieces, width).split()) == "".join(text.split())


@given(st.text())
def test_what_is_shown_cannot_act(text):
    """No control, no change of direction, nothing invisible but the joiner that emoji need."""
    for character in _output.shown(text):
        assert character in "\n\t\u200d" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co")


def test_a_table_says_once_what_is_the_same_everywhere(home):
    """On a terminal, columns with one value stand above; markup in values is text."""
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    for number in (1, 2):
        words = f"-m graphagent facts set fact-{number} [bold]value-{number}[/bold]".split()
        forkserver.terminal(sys.executable, words, cwd=home, env=environment).wait()
    child = forkserver.terminal(
        f"{sys.executable} -m graphagent facts list",
        cwd=str(home),
        env=environment,
        dimensions=(24, 80),
        encoding="utf-8",
    )
    shown = child.read()
    assert shown.count("agent:chat") == 1
    assert "[bold]value-1[/bold]" in shown
