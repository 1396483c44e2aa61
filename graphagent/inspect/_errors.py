"""Errors of runs in words, with the line of code that raised them, and their tracebacks with the lines of libraries folded."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from graphagent._article import counted
from graphagent._html import Child, Html, tag
from graphagent.llm import ToolResult

if TYPE_CHECKING:
    from graphagent.history import Entry, StoredRun

_OURS = re.compile(r"(?:.*/)?(graphagent|graphagent_strategies)/(.+)")
"""The path of a file of this library, in this installation or in another one."""
_FRAME = re.compile(
    r'  File "(?P<path>.*)", line (?P<line>\d+)(?:, in (?P<name>.*))?|  (?P<file>.*):(?P<at>\d+) in (?P<function>.*)'
)
"""A line as Python prints it, and as it is stored of tools."""


@cache
def _files() -> frozenset[str]:
    package = Path(__file__).parents[1]
    return frozenset(each.relative_to(package).as_posix() for each in package.rglob("*.py"))


class Frame(NamedTuple):
    """A line of code that was being executed, or text between such lines."""

    path: str
    """Empty for text."""
    line: str
    name: str
    """Of the function."""
    code: str

    @property
    def file(self) -> str:
        """The name of the file, without its folders."""
        return self.path.replace("\\", "/").rpartition("/")[2]

    @property
    def library(self) -> str:
        """The name of the library that has the code; empty for the user's own."""
        path = self.path.replace("\\", "/")
        if (found := _OURS.fullmatch(path)) is not None and (found[1] != "graphagent" or found[2] in _files()):
            return found[1]
        if "/site-packages/" in path:
            return path.rpartition("/site-packages/")[2].partition("/")[0].removesuffix(".py")
        return "Python" if re.search(r"/lib/python|^<frozen ", path) else ""


class Problem(NamedTuple):
    """An error of a run."""

    type: str
    """The name of its class; empty where it is not known."""
    message: str
    traceback: str = ""

    @property
    def place(self) -> str:
        """The last line of the user's own code in the traceback, such as `make.py:14`; empty if there is none."""
        own = [each for each in _frames(self.traceback) if each.path and not each.library]
        return f"{own[-1].file}:{own[-1].line}" if own else ""

    def __str__(self) -> str:
        said = ": ".join(filter(None, (self.type, self.message)))
        return f"{said} ({place})" if (place := self.place) else said

    def html(self) -> Html:
        """Return it as a paragraph."""
        place = f" ({place})" if (place := self.place) else ""
        return tag(
            "p", tag("b", self.type or "Error"), f": {self.message}" if self.message else "", place, class_="error"
        )


def problem_of(entries: Sequence[Entry], entry: Entry) -> Problem | None:
    """Return the error of an entry, given all entries of its run: that of a node, of an effect, of a tool, or the one with which the run stopped."""
    failure = entry.data.get("failure") if entry.kind == "stopped" else None
    if failure:
        return Problem(*failure)
    if entry.error is not None:
        return _of_run(entries, entry, entry.error[0]) or Problem(*entry.error)
    value = entry.value if entry.effect == "tool" else None
    return problem_of_tool(value) if isinstance(value, ToolResult) and value.is_error else None


def problem_of_run(stored: StoredRun) -> Problem | None:
    """Return why a run failed; None if it did not."""
    error = stored.failure
    return None if error is None else Problem(error.type, error.message, error.traceback)


def problem_of_tool(result: ToolResult) -> Problem:
    """Return the error that is the result of a call of a tool."""
    name = result.traceback.partition("\n")[0]
    return Problem(name, result.content.removeprefix("Error: ").removeprefix(name).removeprefix(": "), result.traceback)


def _of_run(entries: Sequence[Entry], entry: Entry, name: str) -> Problem | None:
    """Return the error with which a run stopped, where it is that of a node: the entry of the node has its type alone."""
    if entry.kind != "failed":
        return None
    place = bisect_left(entries, entry.number, key=lambda each: each.number)
    since = list(takewhile(lambda each: each.kind != "stopped", reversed(entries[:place])))
    until = list(takewhile(lambda each: each.kind != "stopped", entries[place + 1 :]))
    stop = entries[place + 1 + len(until)] if place + 1 + len(until) < len(entries) else None
    failure = None if stop is None else stop.data.get("failure")
    if not failure or failure[0] != name:
        return None
    alike = (
        each for each in (*since, *until) if each.kind == "failed" and each.error is not None and each.error[0] == name
    )
    return None if any(alike) else Problem(*failure)


def frames_of(traceback: str) -> Html | None:
    """Return a traceback as a list: the user's own code plain, its last line marked, and that of libraries folded; None if it has no lines."""
    frames = [*_frames(traceback)]
    if not frames:
        return None
    last = max((place for place, each in enumerate(frames) if each.path and not each.library), default=-1)
    items: list[Html] = []
    for library, some in groupby(enumerate(frames), key=lambda each: each[1].library):
        listed = list(some)
        if library:
            summary = tag("summary", f"{counted(len(listed), 'line')} of {library}")
            items.append(tag("li", tag("details", summary, [_shown(each) for _, each in listed]), class_="pale"))
        else:
            items += [tag("li", _shown(each), class_="raised" if place == last else None) for place, each in listed]
    return tag("ol", items, class_="frames")


def _shown(frame: Frame) -> Child:
    if not frame.path:
        return tag("pre", frame.code, class_="pale")
    where = tag(
        "p", f"{frame.file}:{frame.line}", f" in {frame.name}" if frame.name else "", class_="sub", title=frame.path
    )
    return where, tag("pre", frame.code) if frame.code else None


def _lines(traceback: str) -> Iterator[str]:
    """Yield the lines of a traceback; those of the errors of a group without what draws the group."""
    is_group = "Exception Group Traceback" in traceback
    for each in traceback.splitlines():
        if not is_group:
            yield each
        elif not each.lstrip().startswith("+"):
            yield re.sub(r"^ *\| ?", "", each)


def _frames(traceback: str) -> Iterator[Frame]:
    """Yield the frames of a traceback, without its first line and the error at its end, and the text between the tracebacks of errors that led to others."""
    frame: Frame | None = None
    code, between = list[str](), list[str]()
    for place, each in enumerate(_lines(traceback)):
        if (found := _FRAME.fullmatch(each)) is not None or not each.startswith("    "):
            if frame is not None:
                yield frame._replace(code="\n".join(code))
            frame, code = None, []
        if found is not None:
            if text := "\n".join(between).strip():
                yield Frame("", "", "", text)
            frame = Frame(
                found["path"] or found["file"],
                found["line"] or found["at"],
                found["name"] or found["function"] or "",
                "",
            )
            between = []
        elif frame is not None:
            if set(each.strip()) - set("^~"):
                code.append(each.strip())
        elif place and each != "Traceback (most recent call last):":
            between.append(each)
    if frame is not None:
        yield frame._replace(code="\n".join(code))
