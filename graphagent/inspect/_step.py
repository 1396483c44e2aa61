"""One step of a run, beside its timeline: a model turn, a tool call, a question, or the execution of a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from graphagent._article import counted
from graphagent._html import Child, Html, tag
from graphagent.inspect import _words
from graphagent.inspect._errors import frames_of, problem_of
from graphagent.inspect._layout import Site, told, url_of
from graphagent.inspect._origins import sent
from graphagent.inspect._spans import WAITS, Span
from graphagent.inspect._timeline import said_of
from graphagent.inspect._tokens import cache_lost, tokens
from graphagent.inspect._transcript import answer_of, message_of, place_of, result_of
from graphagent.inspect._values import as_json, call_of, given, text_of
from graphagent.llm import ToolResult
from graphagent.memory import ActionStep

if TYPE_CHECKING:
    from graphagent.history import Entry, StoredRun
    from graphagent.memory.transcript._prompt import Prompt
    from graphagent.run import RunHeader


def step(site: Site, stored: StoredRun, spans: Sequence[Span], at: int, of: str = "", *, link: Html) -> Html | None:
    """Return the step that an entry ended or began; None if the run does not have the entry.

    Args:
        site: The server.
        stored: The run.
        spans: The spans of the run.
        at: The number of the entry.
        of: The path of a node, where the entry began several.
        link: The link at the end, to the page that has more of the entry.
    """
    place = next((place for place, each in enumerate(stored.entries) if each.number == at), None)
    if place is None:
        return None
    span = min((each for each in spans if at in each.numbers and of in ("", each.path)), key=lambda each: each.entry != at, default=None)  # fmt: skip
    if span is not None and span.entry:
        place = next(place for place, each in enumerate(stored.entries) if each.number == span.entry)
    entry = stored.entries[place]
    name, second = (entry.where or entry.kind, "") if span is None else span.names
    kind = "node" if span is None else "failed" if span.problem else span.kind
    about = tag("span", f" · {second}", class_="sub") if second else None
    numbers: list[tuple[str, Child]] = [] if span is None else [("took", said_of(span))]
    if model := next((each["model"] for each in entry.data.get("charges", ()) if each.get("model")), ""):
        numbers.append(("model", model))
    why = (
        None
        if stored.failure is None
        else tag("a", "Why the run failed", href=f"{url_of(site, stored.head)}#{site.ids}step")
    )
    return tag(
        "section",
        tag("h2", tag("span", name, class_=f"kind of-{kind}"), about, " ", tag("span", f"entry {at}", class_="tag")),
        told(numbers) if numbers else None,
        [*_said(site, stored, entry, span)],
        tag("p", link, why, class_="more"),
        class_="chosen-step", aria_label=f"Step {name}",
    )  # fmt: skip


def state_link(site: Site, head: RunHeader, at: int) -> Html:
    """Return the link to the state after an entry."""
    return tag("a", "State after it", href=url_of(site, head, "entry", n=at), class_="button", data_key="s")


def _said(site: Site, stored: StoredRun, entry: Entry, span: Span | None) -> Iterator[Child]:
    value: Any = entry.value
    if (problem := problem_of(stored.entries, entry)) is not None and not isinstance(value, ToolResult):
        yield problem.html()
        yield frames_of(problem.traceback)
    if isinstance(value, ActionStep):
        yield from _turn(site, stored, entry, value)
    elif isinstance(value, ToolResult) or (span is not None and span.kind in ("tool", "agent")):
        call = call_of(stored.entries, entry)
        if call is not None:
            yield tag("h3", "Arguments"), tag("pre", call.malformed or as_json(call.arguments), class_="box")
        yield result_of(value) if isinstance(value, ToolResult) else tag("p", "It has no result yet.", class_="sub")
        if span is not None and span.kind == "agent":
            run = next((each.head for each in stored.children if each.head.run_id.endswith(f"/{span.label}/{_begun(stored, span)}")), None)  # fmt: skip
            yield None if run is None else tag("p", tag("a", "The run of the sub-agent", href=url_of(site, run)))
    elif span is not None and span.kind in WAITS:
        asked = next((each for each in stored.entries if each.number == span.begun), entry)
        if asked.kind == "asked":
            yield tag("p", str(asked.data.get("text", "")), class_="question")
            yield tag("h3", "Answer") if span.entry else tag("p", "It waits for an answer.", class_="sub")
        yield tag("pre", text_of(value), class_="box") if span.entry else None
    else:
        path = entry.node or entry.where
        input_ = None if span is None else given(stored, path, span.begun + 1)
        if input_ is not None:
            yield tag("h3", "Input"), tag("pre", text_of(input_), class_="box")
        if value is not None:
            yield tag("h3", "Output" if entry.kind == "finished" else "Value"), tag("pre", text_of(value), class_="box")


def _turn(site: Site, stored: StoredRun, entry: Entry, turn: ActionStep) -> Iterator[Child]:
    earlier = (each.value for each in reversed(stored.entries) if each.number < entry.number and each.effect == "turn" and each.begun_at == entry.begun_at)  # fmt: skip
    before: ActionStep | None = next((each for each in earlier if isinstance(each, ActionStep) and each.prompt), None)
    if turn.token_usage is not None:
        yield tokens(turn.token_usage)
        if turn.token_usage.cost:
            yield tag("p", f"cost {_words.money(turn.token_usage.cost)}", class_="sub")
    if lost := cache_lost(turn, before):
        yield tag("p", tag("b", "Cache lost. "), lost, class_="lost")
    if turn.prompt is not None:
        messages = sent(turn.prompt)
        kept = 0 if before is None else turn.prompt.kept_of(before.prompt)
        said = "Prompt" if before is None else f"New since turn {before.step_number}"
        yield tag("h3", said, " ", _prompt_link(site, stored, turn.prompt))
        if kept:
            yield tag("p", f"{counted(kept, 'message')} as in the turn before", class_="sub")
        yield tag(
            "div",
            [message_of(site, stored, each) for each in messages[kept:]],
            class_="new" if kept else None,
            tabindex="-1" if kept else None,
            data_key="d" if kept else None,
        )
    yield tag("h3", "Answer")
    yield answer_of(turn)


def _prompt_link(site: Site, stored: StoredRun, prompt: Prompt) -> Html | None:
    """Return a link to the page of a prompt, of the run or of a sub-agent in it."""
    found = place_of(stored, prompt)
    if found is None:
        return None
    run, place = found
    return tag("a", "whole prompt", href=url_of(site, run.head, "prompt", step=place), data_key="p")


def _begun(stored: StoredRun, span: Span) -> int:
    """Return the number of the entry with which a sub-agent began."""
    return next((each.number for each in stored.entries if each.number >= span.begun and each.kind == "agent started" and each.where == span.path), 0)  # fmt: skip
