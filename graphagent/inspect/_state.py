"""The state of a run after an entry: the changes by the entry, and folded the whole state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from graphagent._article import counted
from graphagent._html import Child, Html, tag
from graphagent.inspect import _words
from graphagent.inspect._layout import told
from graphagent.inspect._transcript import steps_of
from graphagent.inspect._values import given, text_of
from graphagent.memory import ActionStep

if TYPE_CHECKING:
    from graphagent.history import StoredRun
    from graphagent.memory import Step

_LINE = 400
"""Characters of a step that are shown."""


def state(before: StoredRun | None, after: StoredRun) -> Html:
    """Return the state after an entry, with its differences from the state before the entry."""
    number = after.entries[-1].number
    changed = [*_changed(before, after)]
    inside = [
        told(_totals(after)),
        tag("h3", "Where it is"),
        tag("ul", [_place(after, path) for path in after.at]) if after.at else tag("p", "It has ended.", class_="sub"),
        *([tag("h3", "It waits for"), tag("ul", [tag("li", each.question) for each in after.questions])] if after.questions else []),
        tag("h3", f"Transcript, {counted(len(steps_of(after)), 'step')}"),
        tag("ol", [tag("li", _step(each)) for each in steps_of(after)]),
    ]  # fmt: skip
    return tag(
        "section", tag("h2", f"State after entry {number}"),
        tag("ul", [tag("li", each) for each in changed], class_="changed") if changed else tag("p", "Nothing else changed.", class_="sub"),
        tag("details", tag("summary", "The whole state"), inside), class_="state-after",
    )  # fmt: skip


def _changed(before: StoredRun | None, after: StoredRun) -> Iterator[Child]:
    left: Sequence[str] = () if before is None else before.at
    for path in left:
        if path not in after.at:
            yield tag("del", "left ", tag("code", path))
    for path in after.at:
        if path not in left:
            yield tag("ins", "comes to ", tag("code", path)), _input(after, path)
    asked = {each.id for each in before.questions} if before is not None else set[str]()
    for each in after.questions:
        if each.id not in asked:
            yield tag("ins", f"waits for an answer: {each.question}")
    still = {each.id for each in after.questions}
    for each in before.questions if before is not None else ():
        if each.id not in still:
            yield tag("del", f"waits no more: {each.question}")
    known: Sequence[Step] = () if before is None else steps_of(before)
    steps = steps_of(after)
    if len(steps) > len(known):
        yield tag("ins", f"{counted(len(steps) - len(known), 'new step')} in the transcript"), tag("ol", [tag("li", _step(each)) for each in steps[len(known) :]])  # fmt: skip
    elif len(steps) < len(known):
        yield tag("del", f"{counted(len(known) - len(steps), 'step')} taken back from the transcript")
    earlier = {} if before is None else dict(_totals(before))
    for name, value in _totals(after):
        if before is not None and earlier[name] != value:
            yield f"{name}: {earlier[name]} → ", tag("b", value)


def _totals(stored: StoredRun) -> list[tuple[str, Child]]:
    return [
        ("nodes", f"{stored.nodes:,}"), ("turns", f"{stored.turns:,}"), ("tokens", f"{stored.usage.total_tokens:,}"),
        ("cost", _words.money(stored.usage.cost)),
    ]  # fmt: skip


def _place(stored: StoredRun, path: str) -> Html:
    return tag("li", tag("code", path), _input(stored, path))


def _input(stored: StoredRun, path: str) -> Html | None:
    value = text_of(given(stored, path))
    return tag("details", tag("summary", "with this input"), tag("pre", value, class_="box"), open=len(value) <= _LINE) if value else None  # fmt: skip


def _step(step: Step) -> Child:
    told = [step] if isinstance(step, ActionStep) else step.to_messages()
    said = " ".join("\n".join(map(text_of, told)).split())
    return tag("b", step.kind.replace("_", " ")), f" {_words.beginning(said, _LINE)}"
