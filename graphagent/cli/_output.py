"""The output of commands: tables and messages, plain in a pipe, and without control characters from stored text."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table
from rich.text import Text

_WIDEST = 100
_UNUSUAL = re.compile(r"[^\x20-\x7e\n\t]")
"""Characters that may act on a terminal; most are only letters of other scripts."""
_NARROWEST = 20
"""The smallest width of the second column of a table on a terminal."""


def is_plain() -> bool:
    """Return whether the person wants neither colours nor other styles: see no-color.org."""
    return bool(os.environ.get("NO_COLOR"))


def screen(*, err: bool = False) -> Console:
    """Return the console for standard output, or for standard error."""
    stream = sys.stderr if err else sys.stdout
    console = Console(
        stderr=err, highlight=False, soft_wrap=not stream.isatty(), color_system=None if is_plain() else "auto"
    )
    console.width = min(console.width, _WIDEST)
    return console


def complain(text: str) -> None:
    """Print an error in one line."""
    screen(err=True).print(Text(f"error: {shown(' '.join(text.split()))}", style="red"), soft_wrap=True)


def fail(text: str) -> NoReturn:
    """Print an error in one line, and end the command with exit code 1."""
    complain(text)
    raise typer.Exit(1)


def aside(text: str) -> None:
    """Print a remark on standard error, dimmed."""
    screen(err=True).print(Text(shown(text), style="dim"), soft_wrap=True)


def say(text: str) -> None:
    """Print something on standard error that the person needs to read."""
    screen(err=True).print(Text(shown(text)), soft_wrap=True)


def for_output(text: str) -> str:
    """Return a text for standard output: unchanged for a pipe, without characters that act on a terminal for a terminal."""
    return shown(text) if sys.stdout.isatty() else text


def plain(value: object) -> Any:
    """Return any value as JSON data."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=str, serialize_unknown=True)


def value_text(value: object) -> str:
    """Return any value as text: text unchanged, tool calls with their arguments, other values as JSON."""
    from graphagent.llm import ToolCall, ToolCalls, ToolResults

    if isinstance(value, str):
        return value
    if isinstance(value, ToolCall):
        return f"{value.name}({json.dumps(plain(value.arguments), ensure_ascii=False)})"
    if isinstance(value, ToolCalls):
        return ", ".join(filter(None, (value.text, *map(value_text, value.calls))))
    if isinstance(value, ToolResults):
        return ", ".join(f"{result.name}: {result.content}" for result in value)
    text = getattr(value, "text", None) or getattr(value, "content", None)
    return text if isinstance(text, str) else json.dumps(plain(value), ensure_ascii=False)


def shown(text: str) -> str:
    """Replace all characters that could move the cursor of a terminal, hide text or change the direction of writing."""
    return _UNUSUAL.sub(lambda found: "�" if _acts(found[0]) else found[0], text)


def _acts(character: str) -> bool:
    return character != "\u200d" and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co")


def json_text(data: object) -> str:
    """Return JSON data as text that does not act on a terminal."""
    return harmless(json.dumps(data, ensure_ascii=False, indent=2, default=str))


def harmless(text: str) -> str:
    """Escape all characters of a JSON text that act on a terminal. The result is the same data."""
    return _UNUSUAL.sub(lambda found: json.dumps(found[0])[1:-1] if _acts(found[0]) else found[0], text)


def shortened(text: str, length: int = 60) -> str:
    """Return a text in one line, and cut it after a number of characters."""
    line = shown(" ".join(text.split()))
    return line if len(line) <= length else f"{line[: length - 1]}…"


def moment(milliseconds: int | None) -> str:
    """Return a time in the zone of this machine, to the minute."""
    if milliseconds is None:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def seconds(milliseconds: int) -> str:
    """Return the time of day in the zone of this machine, to the second."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone().strftime("%H:%M:%S")


def bytes_text(number: int) -> str:
    """Return a number of bytes in a fitting unit, such as `4.2 kB`."""
    amount = float(number)
    for unit in ("bytes", "kB", "MB"):
        if amount < 1000:
            return f"{number:,} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} GB"


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, fold: bool = True, essential: Collection[str] = ()
) -> None:
    """Print a table whose second column may be long. In a pipe, cells are complete and separated by tabs.

    On a terminal, a column after the second that has the same value in all rows is left out, and its value is printed once
    above the table. Text that is too long is wrapped, or cut off without `fold`.

    Args:
        heads: The name of each column.
        rows: The cells of each row.
        fold: Whether to wrap text that is too long.
        essential: The columns to show on a terminal that is too narrow for all.
    """
    console = screen()
    if not console.is_terminal:
        for row in (heads, *rows):
            print("\t".join(shown(cell).replace("\t", " ").replace("\n", " ") for cell in row))
        return
    same = [place for place in range(2, len(heads)) if len({row[place] for row in rows}) == 1]
    said = " · ".join(f"{heads[place]} {shown(rows[0][place])}" for place in same if rows[0][place])
    if said:
        console.print(Text(said, style="dim"))
    grid = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    widths = [max(cell_len(shown(row[place])) for row in (heads, *rows)) for place in range(len(heads))]
    kept = [place for place in range(len(heads)) if place not in same]
    least = _NARROWEST
    if essential and _room(console, widths, kept) < _NARROWEST:
        kept, least = [place for place in kept if heads[place] in essential], _NARROWEST // 2
    for place in kept:
        grid.add_column(heads[place], no_wrap=not fold or place != 1, overflow="fold" if place == 1 else "ellipsis")
    for row in rows:
        cells = [shown(row[place]) for place in kept]
        if not fold and 1 in kept:
            text = kept.index(1)
            cells[text] = beginning(cells[text], max(_room(console, widths, kept), least))
        grid.add_row(*map(escape, cells))
    console.print(grid)


def _room(console: Console, widths: Sequence[int], kept: Sequence[int]) -> int:
    """Return the width that is left for the second column of a table on a terminal."""
    return console.width - sum(2 + widths[place] for place in kept if place != 1)


def beginning(line: str, width: int) -> str:
    """Return the beginning of a line that fits into a number of columns."""
    return line if cell_len(line) <= width else f"{set_cell_size(line, width - 1).rstrip()}…"


def ending(line: str, width: int) -> str:
    """Return the end of a line that fits into a number of columns."""
    return line if cell_len(line) <= width else f"…{set_cell_size(line[::-1], width - 1).rstrip()[::-1]}"


class Flow:
    """Prints text that arrives in pieces, wrapped between words, and on a terminal shows the reason for which the command waits."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._width = console.width if console.is_terminal else 1 << 30
        self._word = ""
        self._column = 0
        self.begun = False

    def wait(self, text: str) -> None:
        """Show on a terminal why the command waits, until text arrives or ends."""
        if self._console.is_terminal and self._status is None and not self.begun:
            self._status = self._console.status(Text(text, style="dim"), spinner="dots")
            self._status.start()

    def add(self, piece: str) -> None:
        """Add a piece, and print the words that are complete."""
        self._stop_waiting()
        self.begun = True
        for character in shown(piece).replace("\t", "    "):
            if character.isspace():
                self._put(character)
            else:
                self._word += character

    def end(self) -> None:
        """Print the rest, and end the line."""
        self._stop_waiting()
        self._put("")
        if self._column:
            self._out("\n")
        self._column = 0
        self.begun = False

    def _stop_waiting(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _put(self, space: str) -> None:
        word, self._word = self._word, ""
        width = Text(word).cell_len
        if word and self._column and self._column + width >= self._width:
            self._out("\n")
            self._column = 0
        if word:
            self._out(word)
            self._column += width
        if space == "\n" or (space and self._column + 1 < self._width):
            self._out(space)
            self._column = 0 if space == "\n" else self._column + 1

    def _out(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()
