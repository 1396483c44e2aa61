"""The transcript of a run: its turns with their tool calls, and the prompts as they were sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from graphagent._article import counted
from graphagent._html import Child, Html, tag
from graphagent.inspect import _words
from graphagent.inspect._errors import frames_of, problem_of_tool
from graphagent.inspect._inspected import number
from graphagent.inspect._layout import Site, nothing, page, run_crumb, url_of
from graphagent.inspect._origins import Sent, Used, sent
from graphagent.inspect._tokens import tokens
from graphagent.inspect._values import as_json, text_of
from graphagent.memory import ActionStep

if TYPE_CHECKING:
    from starlette.requests import Request

    from graphagent.history import StoredRun
    from graphagent.inspect._inspected import Inspected, Views
    from graphagent.llm import ToolCall, ToolResult
    from graphagent.memory import Step
    from graphagent.memory.transcript._prompt import Prompt


def transcript(site: Site, stored: StoredRun) -> Html:
    """Return the steps of a run."""
    steps = steps_of(stored)
    shown = [
        _step(site, stored, place, step)
        for place, step in enumerate(steps[-site.rows :], max(len(steps) - site.rows, 0))
    ]
    left = len(steps) - len(shown)
    said = nothing(f"{counted(left, 'earlier step')} left out here.") if left else None
    return tag("section", tag("h2", "Transcript"), said, shown or nothing("No step has been taken yet."))


def _step(site: Site, stored: StoredRun, place: int, step: Step) -> Html:
    if isinstance(step, ActionStep):
        return _turn(site, stored, place, step)
    said = [tag("pre", text_of(message)) for message in step.to_messages()] or [
        tag("p", "Nothing of it is sent to a model.", class_="sub")
    ]
    return tag("article", tag("h3", step.kind.replace("_", " ")), said, class_=f"step {step.kind}")


def _turn(site: Site, stored: StoredRun, place: int, step: ActionStep) -> Html:
    took = None if step.timing is None else tag("span", _words.duration(step.timing.duration), class_="sub")
    prompt = (
        tag("a", "prompt as it was sent", href=url_of(site, stored.head, "prompt", step=place)) if step.prompt else None
    )
    spent = None if step.token_usage is None else tokens(step.token_usage)
    about = tag("div", tag("h3", f"turn {step.step_number}"), took, spent, prompt, class_="about")
    return tag("article", about, answer_of(step), class_="step action")


def answer_of(step: ActionStep) -> list[Child]:
    """Return the answer of a model turn: its text, its calls of tools, and their results where they are known."""
    message = step.model_output_message
    results = {each.call_id: each for each in step.results}
    body: list[Child] = []
    if message is not None:
        body += [tag("pre", message.reasoning, class_="pale")] if message.reasoning else []
        body += [tag("pre", message.text)] if message.text else []
        body += [_call(call, results.pop(call.id, None)) for call in message.tool_calls]
    body += [result_of(each) for each in results.values()]
    if step.error is not None:
        body.append(tag("p", str(step.error), class_="error problem", tabindex="-1"))
    return body


def _call(call: ToolCall, result: ToolResult | None) -> Html:
    given = tag("pre", call.malformed or as_json(call.arguments))
    return tag(
        "div",
        tag("h4", "calls ", tag("code", call.name)),
        given,
        None if result is None else result_of(result),
        class_="call",
    )


def result_of(result: ToolResult) -> Html:
    """Return the result of a call of a tool."""
    about = _words.duration(result.seconds)
    said = problem_of_tool(result).html() if result.is_error else tag("pre", result.content)
    name = "error of" if result.is_error else "result of"
    return tag(
        "div", tag("h4", f"{name} ", tag("code", result.name), tag("span", f" {about} · untrusted", class_="sub")), said, frames_of(result.traceback),
        class_="result problem" if result.is_error else "result", tabindex="-1" if result.is_error else None,
    )  # fmt: skip


async def prompt(inspected: Inspected, request: Request) -> str:
    """Return the page of a prompt, with its new messages marked.

    The address has as `step` the place of the turn in the transcript, or as `entry` the number of its entry.

    Raises:
        LookupError: the step at this place is not a model turn whose prompt is known.
    """
    site, stored, query = inspected.site(request), await inspected.read(request), request.query_params
    place, entry = number(query.get("step")), number(query.get("entry"))
    if entry:
        stored, place = _turn_of(stored, entry)
    step, parts = prompt_of(site, stored, place)
    said = f"Prompt of turn {step.step_number}"
    way = run_crumb(site, stored.head, f"p{said[1:]}")
    places = [each for each, _ in _turns(stored)]
    at = places.index(place)
    links = [
        tag("a", word, href=url_of(site, stored.head, "prompt", step=places[other]), rel=rel, class_="button")
        for word, rel, other in (("Turn before", "prev", at - 1), ("Turn after", "next", at + 1))
        if 0 <= other < len(places)
    ]
    head = tag("header", way, tag("h1", said), tag("div", links, class_="actions"), class_="runhead")
    keys = (("d", "new messages"), ("h l", "turn before, after"))
    return page(site, said, head, parts, _words.trust_legend(), keys=keys)


def _turn_of(stored: StoredRun, entry: int) -> tuple[StoredRun, int]:
    """Return the place in the transcript of the model turn of an entry, with its run: this one, or the run of a sub-agent.

    Raises:
        LookupError: the entry does not belong to a model turn.
    """
    turn = next((each.value for each in stored.entries if each.number == entry), None)
    if (
        isinstance(turn, ActionStep)
        and turn.prompt is not None
        and (found := place_of(stored, turn.prompt)) is not None
    ):
        return found
    raise LookupError(
        f"entry {entry} of run {stored.head.run_id!r} does not belong to a turn of a transcript; its page has the stored entry"
    )


def place_of(stored: StoredRun, prompt: Prompt) -> tuple[StoredRun, int] | None:
    """Return the place of the turn with a prompt in its transcript, with its run: this one, or the run of a sub-agent."""
    for run in runs_in(stored):
        for place, each in _turns(run):
            if each.prompt is prompt:
                return run, place
    return None


def steps_of(stored: StoredRun) -> list[Step]:
    """Return the steps of a run, with the one that is going on."""
    return [*stored.memory.run_steps, *filter(None, [stored.memory.open])]


def _turns(stored: StoredRun) -> list[tuple[int, ActionStep]]:
    """Return the model turns whose prompts are known, with their places in the transcript."""
    return [
        (place, each) for place, each in enumerate(steps_of(stored)) if isinstance(each, ActionStep) and each.prompt
    ]


def runs_in(stored: StoredRun) -> Iterator[StoredRun]:
    """Yield a run, and the runs of sub-agents in it."""
    yield stored
    for each in stored.children:
        yield from runs_in(each)


def prompt_of(site: Site, stored: StoredRun, place: int) -> tuple[ActionStep, list[Child]]:
    """Return the model turn at a place in the transcript, and its prompt with the new messages marked.

    Raises:
        LookupError: the step at this place is not a model turn whose prompt is known.
    """
    turns = _turns(stored)
    at = next((at for at, each in enumerate(turns) if each[0] == place), len(turns))
    if at == len(turns) or (prompt := turns[at][1].prompt) is None:
        raise LookupError(f"step {place} of run {stored.head.run_id!r} is not a model turn")
    step = turns[at][1]
    turn_before, before = (turns[at - 1][0], turns[at - 1][1].prompt) if at else (0, None)
    kept, messages = prompt.kept_of(before), sent(prompt)
    lost = before is not None and kept < len(before.messages())
    said = (
        nothing(
            "The beginning is not the same as in the turn before, so nothing after that can come from the model's cache."
        )
        if lost
        else None
    )
    same, as_before = None, f"{counted(kept, 'message')} as in the turn before"
    if kept and site.is_file:
        same = tag("p", tag("a", as_before, href=url_of(site, stored.head, "prompt", step=turn_before)))
    elif kept:
        listed = [message_of(site, stored, each) for each in messages[:kept]]
        same = tag("details", tag("summary", as_before), listed, open=kept <= site.rows)
    rules = "" if any(each.message.role == "system" for each in messages) else ", no system message"
    fresh = f", {len(messages) - kept} of them new" if at else ""
    counts = f"{counted(len(messages), 'message')}{fresh}{rules}"
    return step, [
        tag("p", counts, class_="sub"),
        said,
        same,
        tag(
            "div",
            [message_of(site, stored, each) for each in messages[kept:]],
            class_="new" if at else None,
            tabindex="-1",
            data_key="d" if at else None,
        ),
    ]


def message_of(site: Site, stored: StoredRun, each: Sent) -> Html:
    """Return a message as it was sent, in the colour of its origin, with its trust at its edge."""
    used = [
        tag("li", _link(site, stored, one), f" from {one.origin}" if one.origin else "", " ", _words.trust(one.trust))
        for one in each.used
    ]
    text: Child = text_of(each.message)
    if used:
        text = [tag("span", line, class_=f"line {trust}") if trust else line for line, trust in each.lines]
    return tag(
        "article", tag("h3", each.message.role, tag("span", f" from {each.said} ", _words.trust(each.trust), class_="sub")),
        tag("pre", text), tag("details", tag("summary", counted(len(used), each.origin.removesuffix("s"))), tag("ul", used)) if used else None,
        class_=f"message from-{each.origin} {each.trust or 'unclaimed'}",
    )  # fmt: skip


def _link(site: Site, stored: StoredRun, used: Used) -> Html:
    """Return the name of a fact or a note in a prompt, as a link if its page is here."""
    name = tag("code", used.name)
    is_here = site.facts if used.view == "fact" else site.notes
    return tag("a", name, href=site.url(used.view, **used.query, owner=stored.head.owner)) if is_here else name


VIEWS: Views = (("prompt", prompt),)
