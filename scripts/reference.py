"""Writes the names of each module into its page of the reference, `docs/api/*.md`, from the docstrings, for who reads them as files.

`python -m scripts.reference` does it, and so does `make format`. A test fails where a page is not what would be written.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

import griffe

HOME = Path(__file__).parents[1]
PAGES = sorted((HOME / "docs" / "api").glob("*.md"))
BEGIN = "<!-- written by scripts/reference.py from the docstrings -->\n"
END = "<!-- until here -->\n"
_WRITTEN = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}\n", re.DOTALL)
_MODULE = re.compile(r"^::: (?P<path>\S+)\n(?!    options:)", re.MULTILINE)
_SENTENCE = re.compile(r".*?\.(?=\s[A-Z`]|$)")


def page(text: str) -> str:
    """Return a page as it would be written now, with the names before each module."""
    return _MODULE.sub(
        lambda found: f"{BEGIN}\n{_names(found['path'])}\n{END}\n{found[0]}",
        _WRITTEN.sub("", text),
    )


@cache
def _package(name: str) -> griffe.Object | griffe.Alias:
    extensions = griffe.load_extensions(str(HOME / "docs" / "doors.py"))
    return griffe.load(name, search_paths=[str(HOME), str(HOME / "strategies")], extensions=extensions)


def _names(path: str) -> str:
    """Return a table of the names that a page shows of a module, in the order of the code."""
    package, _, inside = path.partition(".")
    module = _package(package)[inside] if inside else _package(package)
    members = {name: each for name, each in module.members.items() if not name.startswith("_")}
    shown = [(name, _target(each)) for name, each in members.items() if each.is_public and not each.is_module]
    rows = [f"| `{name}` | {_summary(each)} | {_members(each)} |" for name, each in shown]
    return "\n".join(["| name | meaning | members |", "|---|---|---|", *rows, ""])


def _target(each: griffe.Object | griffe.Alias) -> griffe.Object:
    return each.final_target if isinstance(each, griffe.Alias) else each


def _summary(each: griffe.Object) -> str:
    """Return the first sentence of a docstring."""
    text = " ".join((each.docstring.value if each.docstring else "").split("\n\n")[0].split())
    sentence = _SENTENCE.match(text)
    return (sentence[0] if sentence else text).replace("|", "\\|")


def _members(each: griffe.Object) -> str:
    if not each.is_class:
        return ""
    names = [name for name, member in each.all_members.items() if member.is_public and not name.startswith("_")]
    return " ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    for file in PAGES:
        written = page(file.read_text("utf-8"))
        if written != file.read_text("utf-8"):
            file.write_text(written, "utf-8")
            sys.stdout.write(f"{file.name} was written\n")
