"""Notes in files that people write: tables with a header, and Markdown."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from graphagent._article import kind_of

if TYPE_CHECKING:
    from graphagent.migrate._records import Numbered

_TEXTS = ("content", "text")
"""The fields that may have the text of a note; the first that there is has it."""
_FIELDS = (
    "id", "owner", "scope", "categories", "importance", "metadata", "source", "private", "at", "created_at", "updated_at",
    "speaker", "role", "session",
)  # fmt: skip
_TIMES = ("at", "created_at", "updated_at")
_BOOLS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")


def decoded(text: str | bytes) -> str:
    """Return a text in UTF-8 without a byte order mark, with the line breaks of Unix.

    Raises:
        ValueError: The text is not UTF-8.
        TypeError: it is neither text nor bytes.
    """
    if not isinstance(text, str | bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"expected the text of a file, or its bytes, not {kind_of(text)}")
    try:
        text = text.decode("utf-8") if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ValueError(f"line {line} is not text in UTF-8") from None
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def rows_of(text: str) -> Numbered:
    """Return the rows of a table by the names in its header, without empty cells. Cells are separated by `,`, `;` or tabs.

    Raises:
        ValueError: the header has no column for the text of a note, or a row has more cells than the header.
    """
    header = text.partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text), delimiter=max(",;\t", key=header.count), strict=True)
    found: Numbered = []
    before = csv.field_size_limit(max(len(text), 1))  # a note may be longer than the module allows at first
    try:
        names = [name.strip().casefold() for name in reader.fieldnames or ()]
        if text.strip() and not set(_TEXTS) & set(names):
            there = ", ".join(map(repr, names))
            raise ValueError(f"line 1 is not a header with a column 'content' or 'text'; its columns are {there}")
        reader.fieldnames = names
        for row in reader:
            if row.pop(None, None):  # pyright: ignore[reportArgumentType]  values beyond the header
                raise ValueError(f"line {reader.line_num} has more cells than the header")
            cells = {name: cell.strip() for name, cell in row.items() if cell and cell.strip()}
            if cells:
                found.append((f"line {reader.line_num}", _typed(f"line {reader.line_num}", cells)))
    except csv.Error as error:
        raise ValueError(f"line {reader.reader.line_num} is not a row: {error}") from None
    finally:
        csv.field_size_limit(before)
    return found


def _typed(place: str, cells: dict[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = dict(cells)
    if "categories" in cells:
        row["categories"] = [each.strip() for each in re.split(r"[;,]", cells["categories"]) if each.strip()]
    if "importance" in cells:
        try:
            row["importance"] = float(cells["importance"])
        except ValueError:
            raise ValueError(f"{place}: importance is a number from 0 to 1") from None
    if "private" in cells:
        if cells["private"].casefold() not in _BOOLS:
            raise ValueError(f"{place}: private is true or false")
        row["private"] = _BOOLS[cells["private"].casefold()]
    return row


def note_of(data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a note; all others are its metadata.

    Raises:
        ValueError: The note has no text, or a time is not valid.
    """
    rest = {name: value for name, value in data.items() if value is not None}
    text = next((rest.pop(name) for name in _TEXTS if name in rest), None)
    if text is None:
        raise ValueError("it has no 'content' and no 'text'")
    note: dict[str, Any] = {name: rest.pop(name) for name in _FIELDS if name in rest}
    if type(note.get("id")) is int:
        note["id"] = str(note["id"])
    for name in _TIMES:
        if isinstance(note.get(name), str):
            note[name] = _time(name, note[name])
    if isinstance(note.get("categories"), str):
        note["categories"] = [note["categories"]]
    given = note.get("metadata", {})
    if rest and isinstance(given, dict):
        note["metadata"] = {**rest, **given}
    return {"content": text, **note}


def _time(name: str, text: str) -> str:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"its {name} has to be a time such as '2026-01-31' or '2026-01-31T12:00:00+00:00'") from None
    return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).isoformat()


def sections_of(path: str, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a note for each section of a Markdown file that has text, with its place.

    A note begins with the title of the file and the headings above it. Its scope is the folder of the file, its source the path.
    `tags` of the front matter are its categories, `date` is when it was said, and the rest is its metadata.
    """
    *folders, name = path.split("/")
    front, body, line = _front_matter(text)
    title = front.pop("title", name.rpartition(".")[0])
    tags = [*_listed(front.pop("tags", "")), *_listed(front.pop("categories", ""))]
    common: dict[str, Any] = {
        "scope": "/" + "/".join(folders),
        "source": path,
        "categories": [tag.lstrip("#") for tag in tags],
    }
    if date := front.pop("date", None):
        common["at"] = _time("date", str(date))
    for number, headings, said in _sections(body, line):
        above = [str(title), *(each for place, each in enumerate(headings) if place or each != title)]
        metadata = {**front, **({"heading": headings[-1]} if headings else {})}
        yield f"{path!r}, line {number}", {**common, "content": f"{' > '.join(above)}\n\n{said}", "metadata": metadata}


def _front_matter(text: str) -> tuple[dict[str, Any], str, int]:
    """Return the front matter, lines `name: value` and lists, the text after it, and the number of its first line."""
    found = re.match(r"---[ \t]*\n(.*?\n)?---[ \t]*(?:\n|$)", text, re.DOTALL)
    if found is None:
        return {}, text, 1
    front: dict[str, Any] = {}
    name = ""
    for line in (found[1] or "").splitlines():
        if (item := re.fullmatch(r"\s*-\s+(.*)", line)) and name:
            front[name] = [*_listed(front[name]), item[1].strip().strip("\"'")]
        elif pair := re.fullmatch(r"([\w-]+):\s*(.*)", line):
            name, value = pair[1].casefold(), pair[2].strip().strip("\"'")
            front[name] = _listed(value) if value.startswith("[") else value
    return {name: value for name, value in front.items() if value}, text[found.end() :], found[0].count("\n") + 1


def _listed(value: str | list[str]) -> list[str]:
    """Return the parts of a list such as `[a, b]`, `a, b` or `a`."""
    if isinstance(value, list):
        return value
    return [part for each in value.strip("[]").split(",") if (part := each.strip().strip("\"'"))]


def _sections(text: str, first: int) -> Iterator[tuple[int, list[str], str]]:
    """Yield the sections that have text, each with its first line and the headings that it is under. Code has no headings."""
    levels: list[tuple[int, str]] = []
    lines: list[str] = []
    began, fence = first, ""
    for number, line in enumerate(text.split("\n"), first):
        if mark := _FENCE.match(line):
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        heading = None if fence else _HEADING.match(line)
        if heading is None:
            lines.append(line)
            continue
        if said := "\n".join(lines).strip():
            yield began, [name for _, name in levels], said
        levels = [(level, name) for level, name in levels if level < len(heading[1])] + [
            (len(heading[1]), heading[2].strip().rstrip("#").strip())
        ]
        lines, began = [], number
    if said := "\n".join(lines).strip():
        yield began, [name for _, name in levels], said
