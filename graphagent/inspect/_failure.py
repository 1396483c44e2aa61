"""The failure of a run: its error, the lines of the user's own code, the input, and the way on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from graphagent._article import counted
from graphagent._html import Child, Html, tag
from graphagent.inspect._values import given, text_of
from graphagent.inspect._words import command

if TYPE_CHECKING:
    from graphagent.history import StoredRun
    from graphagent.inspect._layout import Site

_PACKAGE = Path(__file__).parents[1].as_posix()
_FRAME = re.compile(r'  File "(.*)", line (\d+)(?:, in (.*))?\n?')
_INPUT = 2000
"""Characters of an input that are shown at once."""


class Frame(NamedTuple):
    """A line of code that was being executed, or text between such lines."""

    path: str
    """Empty for text."""
    line: str
    name: str
    """Of the function."""
    code: str

    @property
    def library(self) -> str:
        """The name of the library that has the code; empty for the user's own."""
        path = self.path.replace("\\", "/")
        if path.startswith(f"{_PACKAGE}/"):
            return "graphagent"
        if "/site-packages/" in path:
            return path.rpartition("/site-packages/")[2].partition("/")[0].removesuffix(".py")
        return "Python" if re.search(r"/lib/python|^<frozen ", path) else ""


def failure(site: Site, stored: StoredRun) -> Html | None:
    """Return the section about the failure of a run; None if it did not fail."""
    error = stored.failure
    if error is None:
        return None
    said = tag("p", tag("b", error.type), f": {error.message}" if error.message else "", class_="error")
    places = [tag("code", each) for each in stored.at]
    inputs: list[Child] = []
    for path in stored.at:
        value = text_of(given(stored, path))
        shown = value if len(value) <= _INPUT else f"{value[:_INPUT]}…"
        inputs.append(tag("div", tag("h3", "Input of ", tag("code", path)), tag("pre", shown or "nothing")))
    line = tag("code", command("resume", stored.head))
    again = [each for place, one in enumerate(places) for each in ((", ", one) if place else (one,))]
    what = ["tries ", again, " again, with the same input"] if places else "goes on after the last entry"
    return tag(
        "section", tag("h2", "Why it failed"), said, tag("p", "At ", again, class_="sub") if places else None,
        tag("ol", frames_of(error.traceback), class_="frames"), inputs,
        None if stored.head.parent else tag("p", "Resuming ", what, "; nodes that ended are not executed again: ", line),
        class_="problem", tabindex="-1",
    )  # fmt: skip


def frames_of(traceback: str) -> Iterator[Html]:
    """Yield a traceback as items of a list: the user's own code plain, that of libraries folded, and the line that raised marked."""
    frames = [*_frames(traceback)]
    last = len(frames) - 1
    if not frames:  # that of a group of errors has another form
        yield tag("li", tag("pre", traceback))
    for library, some in groupby(enumerate(frames), key=lambda each: each[1].library):
        listed = list(some)
        if library and listed[-1][0] != last:
            summary = tag("summary", f"{counted(len(listed), 'line')} of {library}")
            yield tag("li", tag("details", summary, [_shown(each) for _, each in listed]), class_="pale")
        else:
            for place, each in listed:
                yield tag("li", _shown(each), class_="raised" if place == last else None)


def _shown(frame: Frame) -> Child:
    if not frame.path:
        return tag("pre", frame.code, class_="pale")
    name = frame.path.replace("\\", "/").rpartition("/")[2]
    where = tag("p", f"{name}:{frame.line}", f" in {frame.name}" if frame.name else "", class_="sub", title=frame.path)
    return where, tag("pre", frame.code) if frame.code else None


def _frames(traceback: str) -> Iterable[Frame]:
    """Yield the frames of a traceback, without its first line and the error at its end, and the text between the tracebacks of errors that led to others."""
    path = line = name = ""
    code, between = list[str](), list[str]()
    for each in traceback.splitlines():
        if (found := _FRAME.fullmatch(each)) is not None or not each.startswith("    "):
            if path:
                yield Frame(path, line, name, "\n".join(code))
            path, code = "", []
        if found is not None:
            if text := "\n".join(between).strip():
                yield Frame("", "", "", text)
            path, line, name = found[1], found[2], found[3] or ""
            between = []
        elif path:
            if set(each.strip()) - set("^~"):
                code.append(each.strip())
        elif each != "Traceback (most recent call last):":
            between.append(each)
    if path:
        yield Frame(path, line, name, "\n".join(code))
