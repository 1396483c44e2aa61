"""The failure of a run: its error, the lines of the user's own code, the input, and the way on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from graphagent._article import counted
from graphagent._html import Child, Html, tag
from graphagent.errors import BudgetError
from graphagent.inspect._errors import Problem, frames_of, problem_of_run, problem_of_tool
from graphagent.inspect._layout import Site, url_of
from graphagent.inspect._values import call_of, given, text_of
from graphagent.inspect._words import beginning, command
from graphagent.llm import ToolResult

if TYPE_CHECKING:
    from graphagent.history import Entry, StoredRun

_INPUT = 2000
"""Characters of an input that are shown at once."""


def failure(site: Site, stored: StoredRun) -> Html | None:
    """Return the section about the failure of a run; None if it did not fail."""
    problem = problem_of_run(stored)
    if problem is None:
        return None
    inputs: list[Child] = []
    for path in stored.at:
        shown = beginning(text_of(given(stored, path)), _INPUT)
        inputs.append(tag("div", tag("h3", "Input of ", tag("code", path)), tag("pre", shown or "nothing")))
    line = tag("code", command(site.options, "resume", stored.head))
    again = [each for place, path in enumerate(stored.at) for each in ((", " if place else ""), tag("code", path))]
    what = ["tries ", again, " again, with the same input"] if again else "goes on after the last entry"
    return tag(
        "section", tag("h2", "Why it failed"), [_tool(site, stored, each) for each in failing_tools(stored)], problem.html(),
        tag("p", "At ", again, class_="sub") if again else None, frames_of(problem.traceback), inputs,
        None if stored.head.parent else tag("p", "Resuming ", what, "; nodes that ended are not executed again: ", line),
        class_="problem", tabindex="-1",
    )  # fmt: skip


class FailingTool(NamedTuple):
    """Calls of a tool that failed in the same way, in a run that used up a budget."""

    tool: str
    failed: int
    calls: int
    """How often it was called."""
    problem: Problem
    last: Entry
    """The entry of the last of these calls."""

    def __str__(self) -> str:
        return f"{self.tool} failed {self.failed} of {counted(self.calls, 'time')}: {self.problem}"


def failing_tools(stored: StoredRun) -> list[FailingTool]:
    """Return the failures of tools in a run that used up a budget, the most frequent first, since a model may have repeated a call in vain."""
    if stored.failure is None or stored.failure.type != BudgetError.__name__:
        return []
    failed: dict[tuple[str, str], list[Entry]] = {}
    calls = Counter[str]()
    for entry in stored.entries:
        value: Any = entry.value if entry.kind == "effect" and entry.effect == "tool" else None
        if isinstance(value, ToolResult):
            calls[value.name] += 1
            if value.is_error:
                failed.setdefault((value.name, str(problem_of_tool(value))), []).append(entry)
    found = [
        FailingTool(name, len(each), calls[name], problem_of_tool(each[-1].value), each[-1])
        for (name, _), each in failed.items()
    ]
    return sorted(found, key=lambda each: each.failed, reverse=True)


def _tool(site: Site, stored: StoredRun, each: FailingTool) -> Child:
    link = tag("a", tag("code", each.tool), href=f"{url_of(site, stored.head, step=each.last.number)}#{site.ids}step")
    call = call_of(stored.entries, each.last)
    given = None if call is None else tag("p", "Called with ", tag("code", text_of(call)), class_="sub")
    return tag("p", link, str(each).removeprefix(each.tool), class_="error"), given
