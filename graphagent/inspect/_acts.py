"""Resuming, pausing and ending a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio
from starlette.responses import RedirectResponse

from graphagent._html import Child, Html, tag
from graphagent.history import end_run, pause_run, resume_run, run_head
from graphagent.inspect._forms import ConflictError, form
from graphagent.inspect._layout import url_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from graphagent.inspect._inspected import Changes, Inspected
    from graphagent.inspect._layout import Site
    from graphagent.run import RunHeader

_RESUMED = ("failed", "cancelled", "interrupted", "paused", "sleeping", "queued")
ENDED = (*_RESUMED, "waiting", "running")
"""The states in which a run can be ended."""
_PATIENCE = 5.0
"""Seconds for which a page waits until a worker has stopped a run."""


def run_actions(inspected: Inspected, site: Site, head: RunHeader, *, asked: bool = False) -> Html | None:
    """Return the forms that resume, pause and end a run, given whether it was asked to stop. A change that is not possible here is greyed out, with the reason."""
    if not site.form or head.parent or head.status not in ENDED:
        return None
    held, shown, note = _held(head), list[Child](), ""
    if head.status == "queued":
        shown.append(_form(site, head, "resume", "Execute it here", _not_executed(inspected, head), main=True))
    elif head.status == "sleeping":
        if inspected.executes(head.strategy):
            shown.append(_form(site, head, "resume", "Wake it here when it is due", main=True))
        else:
            note = "A worker wakes it when it is due."
    elif head.status in _RESUMED:
        shown.append(_form(site, head, "resume", "Resume", main=True))
        if not inspected.executes(head.strategy):
            note = "Resume only queues it; start graphagent worker to execute it."
    if head.status == "running":
        shown.append(_form(site, head, "pause", "Pause", held))
        note = "It was asked to stop, and does so before its next effect or node." if asked else ""
    said = (
        "Nothing of it is executed any more, its questions are withdrawn, and it cannot be resumed. It can be forked."
    )
    reason = tag("label", "Reason", tag("input", name="reason", type="text", autocomplete="off"))
    ends = _form(site, head, "end", "End this run", held, reason)
    shown.append(
        tag(
            "details",
            tag("summary", "End…", class_="button"),
            tag("div", tag("p", said, class_="sub"), ends, class_="over"),
        )
    )
    shown.append(tag("p", note, class_="sub") if note else None)
    return tag("div", shown, class_="acts")


def _form(
    site: Site, head: RunHeader, what: str, label: str, why_not: str = "", *more: Child, main: bool = False
) -> Html:
    """Return a form with one button, which is greyed out if there is a reason why it cannot be used."""
    button = tag("button", label, type="submit", class_="main" if main else None)
    return form(
        site, what, {"id": head.run_id, "owner": head.owner}, tag("fieldset", more, button, disabled=bool(why_not)),
        tag("p", why_not, class_="sub") if why_not else None,
    )  # fmt: skip


def _held(head: RunHeader) -> str:
    """Return why a run cannot be stopped here: a process that is not a worker executes it; empty if it can."""
    if head.status != "running" or head.queue or head.claim is None:
        return ""
    return f"It is executed by {head.claim.holder}, which is not a worker: stop it there."


def _not_executed(inspected: Inspected, head: RunHeader) -> str:
    """Return why a run that waits for a worker is not executed here; empty if it can be."""
    if inspected.executes(head.strategy):
        return ""
    if inspected.executing is None or head.strategy not in inspected.agents:
        return "It waits for a worker. Start one with graphagent worker, or restart this page with --agent."
    return "It waits for a worker: its agent takes deps, and has no deps_factory=."


async def resume_here(inspected: Inspected, head: RunHeader) -> str:
    """Have a run continue: in this process, or in a worker. Return what was done.

    Raises:
        ConflictError: it cannot be resumed in its state, or not here.
        StrategyChangedError, RunClaimedError, StoreError: as `RunHandle.resume` and `resume_run`.
    """
    if head.status == "waiting":
        raise ConflictError(f"Run {head.run_id!r} waits for an answer, and goes on once it has one.")
    if head.status not in _RESUMED:
        raise ConflictError(f"Run {head.run_id!r} is {head.status}, so there is nothing to resume.")
    if head.status == "queued" and (why_not := _not_executed(inspected, head)):
        raise ConflictError(why_not)
    agent = inspected.agents.get(head.strategy)
    if head.status != "queued" and agent is not None:
        await agent.handle(head.run_id, owner=head.owner).resume()
    elif head.status != "queued":
        await resume_run(inspected.runs, head.run_id, owner=head.owner)
    inspected.go_on(head)
    return "resumed" if inspected.executes(head.strategy) else "a worker is to continue it"


async def end_here(inspected: Inspected, head: RunHeader, reason: str) -> str:
    """End a run where it is, with its agent if it is here. Return what was done.

    Raises:
        ConflictError: it is over.
        RunClaimedError, StoreError: as `RunHandle.end` and `end_run`.
    """
    if head.status not in ENDED:
        raise ConflictError(f"Run {head.run_id!r} is {head.status}, so there is nothing to end.")
    agent = inspected.agents.get(head.strategy)
    with anyio.move_on_after(_PATIENCE):
        if agent is None:
            await end_run(inspected.runs, head.run_id, reason, owner=head.owner)
        else:
            await agent.handle(head.run_id, owner=head.owner).end(reason)
        return "ended"
    return "its worker was asked to end it, and does so before the next effect or node"


async def resume(inspected: Inspected, request: Request, fields: Mapping[str, str]) -> Response:
    """Resume a run."""
    head = await _head(inspected, fields)
    await resume_here(inspected, head)
    await inspected.begun(await _head(inspected, fields))
    return _shown(inspected, request, head)


async def pause(inspected: Inspected, request: Request, fields: Mapping[str, str]) -> Response:
    """Have a run stop before its next effect or node."""
    head = await _head(inspected, fields)
    if head.status != "running":
        raise ConflictError(f"Run {head.run_id!r} is {head.status}, so there is nothing to pause.")
    if held := _held(head):
        raise ConflictError(held)
    with anyio.move_on_after(_PATIENCE) as waiting:
        await pause_run(inspected.runs, head.run_id, owner=head.owner)
    return _shown(inspected, request, head, asked=waiting.cancelled_caught)


async def end(inspected: Inspected, request: Request, fields: Mapping[str, str]) -> Response:
    """End a run."""
    head = await _head(inspected, fields)
    said = await end_here(inspected, head, fields.get("reason", ""))
    return _shown(inspected, request, head, asked=said != "ended")


async def _head(inspected: Inspected, fields: Mapping[str, str]) -> RunHeader:
    run_id, owner = inspected.named(fields)
    return await run_head(inspected.runs, run_id, owner=owner)


def _shown(inspected: Inspected, request: Request, head: RunHeader, *, asked: bool = False) -> Response:
    return RedirectResponse(url_of(inspected.site(request), head, asked="1" if asked else ""), 303)


CHANGES: Changes = (("resume", resume), ("pause", pause), ("end", end))
