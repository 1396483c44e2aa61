"""`graphagent draw`: the format of a drawing, and its file."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import typer

from graphagent.errors import StoreError

_FORMS = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid", ".md": "mermaid", ".txt": "mermaid"}
"""The format for each ending of a file name."""


def form_of(form: str | None, out: Path | None, target: str) -> str:
    """Return `svg` or `mermaid`: the given format, or that of the file name.

    Raises:
        BadParameter: the file name has another format, or one that cannot be drawn.
    """
    suffix = out.suffix.lower() if out is not None else ""
    if out is None or not suffix:
        return form or "mermaid"
    svg = out.with_suffix(".svg")
    if suffix not in _FORMS:
        convert = shlex.join(["rsvg-convert", str(svg), "-o", str(out.with_suffix(".png"))])
        raise typer.BadParameter(
            f"{str(out)!r}: a strategy is drawn as SVG ({_endings('svg')}) or Mermaid ({_endings('mermaid')}). "
            f"To have a PNG, convert an SVG: {shlex.join(['graphagent', 'draw', target, '--out', str(svg)])}, "
            f"then for example {convert}",
            param_hint="--out",
        )
    if form not in (None, _FORMS[suffix]):
        raise typer.BadParameter(
            f"the suffix of {str(out)!r} does not fit the format {form!r}; use {_endings(str(form))}, or leave out --format",
            param_hint="--out",
        )
    return _FORMS[suffix]


def write(text: str, out: Path | None) -> None:
    """Write a drawing to a file or to standard output; to a Markdown file as a block of Mermaid.

    Raises:
        StoreError: the file cannot be written.
    """
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(f"```mermaid\n{text.rstrip()}\n```\n" if out.suffix.lower() == ".md" else text, "utf-8")
    except OSError as error:
        raise StoreError(f"{str(out)!r} cannot be written: {error.strerror}") from None


def _endings(form: str) -> str:
    return ", ".join(suffix for suffix, each in _FORMS.items() if each == form)
