"""Writes the section about entries in `docs/journal.md` from the classes of entries and the docstrings of their fields.

`python -m scripts.journal` does it, and so does `make format`. A test fails where the page is not what would be written.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import MISSING, fields
from pathlib import Path

from graphagent.run.state import _entries
from graphagent.run.state._entries import JournalEntry, NodeEntry

FILE = Path(__file__).parents[1] / "docs" / "journal.md"
BEGIN = "<!-- written by scripts/journal.py from the classes of entries -->\n"
END = "<!-- until here -->\n"


def section() -> str:
    """Write about all entries: first what they have in common, then each kind."""
    docstrings = _docstrings()
    kinds = [kind for kind in vars(_entries).values() if isinstance(kind, type) and issubclass(kind, JournalEntry)]
    parts = [
        "Each entry is a JSON object. `t` names its kind. A field is left out where it has nothing to say, unless it is always there.\n",
        _about("Every entry", "", JournalEntry, docstrings),
        _about("Entries of a node", f"{_names(kinds, NodeEntry)} also have:", NodeEntry, docstrings),
    ]
    for kind in kinds:
        if kind not in (JournalEntry, NodeEntry):
            said = _plain(inspect.getdoc(kind) or "")
            parts.append(_about(f"`{kind.tag}`: {_spaced(kind.__name__)}", said, kind, docstrings))
    return "\n".join(parts)


def _about(title: str, said: str, kind: type[JournalEntry], docstrings: dict[tuple[str, str], str]) -> str:
    inherited = {each.name for base in kind.__mro__[1:] if issubclass(base, JournalEntry) for each in fields(base)}
    rows = [
        f"| `{each.metadata.get('json', each.name)}` | {'always' if each.default is MISSING else ''} | "
        f"{docstrings.get((kind.__name__, each.name), '')} |\n"
        for each in fields(kind)
        if each.name not in inherited
    ]
    parts = [f"### {title}\n", f"{said}\n" if said else ""]
    if rows:
        parts.append(f"| field | | meaning |\n|---|---|---|\n{''.join(rows)}")
    return "\n".join(filter(None, parts))


def _names(kinds: list[type[JournalEntry]], base: type[JournalEntry]) -> str:
    tags = [f"`{kind.tag}`" for kind in kinds if issubclass(kind, base) and kind is not base]
    return f"{', '.join(tags[:-1])} and {tags[-1]}"


def _spaced(name: str) -> str:
    """Return the name of a class as words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def _docstrings() -> dict[tuple[str, str], str]:
    """Return the docstrings of all fields, by class and name."""
    found: dict[tuple[str, str], str] = {}
    for part in ast.parse(inspect.getsource(_entries)).body:
        if isinstance(part, ast.ClassDef):
            for declared, said in zip(part.body, part.body[1:], strict=False):
                match declared, said:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(value=str(text))):
                        found[part.name, name] = _plain(text).replace("|", "\\|")
    return found


def _plain(text: str) -> str:
    """Return a docstring as one line in which kinds of entries are called by their tags."""
    for name, kind in vars(_entries).items():
        if isinstance(kind, type) and issubclass(kind, JournalEntry):
            text = re.sub(rf"\b{name}\b", f"`{getattr(kind, 'tag', 'all entries of a node')}`", text)
    return re.sub(r"\s+", " ", text).replace("`all entries of a node`", "all entries of a node")


def page(text: str) -> str:
    """Return the page with the section as it would be written now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{section()}\n{END}{after}"


if __name__ == "__main__":
    written = page(FILE.read_text("utf-8"))
    if written != FILE.read_text("utf-8"):
        FILE.write_text(written, "utf-8")
        sys.stdout.write(f"{FILE.name} was written\n")
