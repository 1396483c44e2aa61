"""Elements of HTML and SVG. All text is escaped here, so a page cannot forget to escape it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias, final

_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
"""Characters that browsers drop or refuse, or that change the direction of the text around them."""
_EMPTY = frozenset({"input", "link", "meta", "br", "img"})


@final
class Html:
    """Finished HTML. Only `tag`, `join` and `style` make it."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


Child: TypeAlias = "Html | str | int | Iterable[Child] | None"
"""The contents of an element; None stands for nothing."""


def visible(text: str) -> str:
    """Return a text as browsers are to show it, with `�` for each character that acts on the text around it."""
    return _ACTING.sub("\ufffd", text.replace("\r\n", "\n"))


def escape(text: str) -> str:
    """Return a `visible` text, escaped for an element or a quoted attribute."""
    return visible(text).translate(_ESCAPED)


def join(children: Child) -> Html:
    """Return children, one after the other."""
    if isinstance(children, Html):
        return children
    if children is None:
        return Html("")
    if isinstance(children, str | int):
        return Html(escape(str(children)))
    return Html("".join(join(each).text for each in children))


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """Return an element.

    Args:
        name: Its name.
        children: Its contents.
        attributes: Its attributes; `class_` is `class`, and other underscores are hyphens. None and False leave one out; True gives no value.
    """
    given = "".join(
        f" {key}" if value is True else f' {key}="{escape(str(value))}"'
        for key, value in ((each.rstrip("_").replace("_", "-"), value) for each, value in attributes.items())
        if value is not None and value is not False
    )
    return Html(f"<{name}{given}>" if name in _EMPTY else f"<{name}{given}>{join(children).text}</{name}>")


def style(css: str) -> Html:
    """Return a style sheet of this library, which is not escaped: browsers read the text of the element as it is."""
    return Html(f"<style>{css}</style>")
