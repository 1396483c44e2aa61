"""Runs in a notebook, with their texts: the reader asked for them. Their reprs, which may get into a log, have none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from graphagent import _notebook as shown
from graphagent.log._header import MOODS
from graphagent.memory.steps._render import value_text

if TYPE_CHECKING:
    from graphagent._html import Child, Html
    from graphagent.log._header import Status
    from graphagent.run._questions import Question


def run_card(
    run_id: str, status: Status, *, about: Iterable[str], transcript: str, title: str = "", output: Any = None, why: Html | None = None,
    questions: Sequence[Question] = (), graph: Html | None = None,
) -> str:  # fmt: skip
    """Return the HTML of a run.

    Args:
        run_id: Its id.
        status: Its status.
        about: Short texts beside its name, such as its costs.
        transcript: Its transcript, as text.
        title: The beginning of its task.
        output: Its output.
        why: The reason why it stopped before its end.
        questions: The questions that it waits for.
        graph: Its strategy.
    """
    body: list[Child] = [
        shown.text(value_text(output), prose=isinstance(output, str)) if output is not None else None,
        why if not questions else None,
        [_question(each) for each in questions],
        shown.line(*about),
        shown.folded("Graph", graph) if graph is not None else None,
        shown.folded("Transcript", shown.steps(transcript)) if transcript else None,
    ]
    return shown.card(title, body, state=status, mood=MOODS.get(status, ""), about=[f"run {run_id}"])


def stopped(status: Status, error: tuple[str, str] | None, why: str, traceback: str = "") -> Html | None:
    """Return the reason why a run stopped before its end; None if it did not."""
    if status in ("new", "queued", "running", "done"):
        return None
    said = "" if error is None or error[1] in why else f"{error[0]}: {error[1]}"
    told = shown.text("\n".join(filter(None, (value_text(why), value_text(said)))))
    more = shown.folded("Traceback", shown.text(value_text(traceback))) if traceback else None
    return shown.section(
        "Why it failed" if status == "failed" else "Why it stopped", told, more, mood=MOODS.get(status, "")
    )


def _question(asked: Question) -> Html:
    until = "" if asked.deadline is None else f"until {asked.deadline:%Y-%m-%d %H:%M} UTC"
    return shown.section(
        "It waits for you",
        shown.text(value_text(asked.question), prose=True),
        shown.text(value_text(asked.about)) if asked.about not in (None, "") else None,
        shown.line(f"asked by {asked.node}", f"id {asked.id}", until),
        mood="open",
    )
