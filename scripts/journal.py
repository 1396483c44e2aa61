"""Writes the section about entries in `docs/journal.md` from the classes of entries and the docstrings of their fields.

`python -m scripts.journal` does it, and so does `make format`. A test fails where the page is not what would be written.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import get_args

from msgspec.structs import fields

from graphagent.log import _entries
from graphagent.log._entries import AnyEntry, Entry

FILE = Path(__file__).parents[1] / "docs" / "journal.md"
BEGIN = "<!-- written by scripts/journal.py from the classes of entries -->\n"
END = "<!-- until here -->\n"
KINDS: dict[str, type[Entry]] = {kind.__name__: kind for kind in get_args(AnyEntry)}


def section() -> str:
    """Write about all entries: their kinds, and the fields of each."""
    docstrings = _docstrings()
    rows = [
        f"| **`{_tag(kind)}`** | | {_plain(inspect.getdoc(kind) or '')} |\n"
        + "".join(
            f"| `{field.name}` | {'always' if field.required else ''} | {docstrings.get((kind.__name__, field.name), '')} |\n"
            for field in fields(kind)
            if field.name != "at"
        )
        for kind in KINDS.values()
    ]
    return f"| kind, field | | meaning |\n|---|---|---|\n{''.join(rows)}"


def _tag(kind: type[Entry]) -> str:
    return str(kind.__struct_config__.tag)


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
    """Return a docstring as one line in which entries are called by their kinds."""
    for name, kind in KINDS.items():
        text = re.sub(rf"\b{name}\b", f"`{_tag(kind)}`", text)
    return re.sub(r"\s+", " ", text)


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
