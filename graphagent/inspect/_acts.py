"""What a person does with a run: ending it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from graphagent._html import Html, tag
from graphagent.history import end_run, run_head

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from graphagent.inspect._inspected import Changes, Inspected
    from graphagent.inspect._layout import Site
    from graphagent.run import RunHeader


def end_form(site: Site, head: RunHeader) -> Html | None:
    """Return the form that ends a run where it is, unless nothing may be changed."""
    if not site.form:
        return None
    hidden = [
        tag("input", type="hidden", name=name, value=value)
        for name, value in (("form", site.form), ("run", head.run_id), ("owner", head.owner))
    ]
    said = "It is ended where it is: nothing of it is executed any more, its questions are withdrawn, and it cannot be resumed; it can be forked."
    reason = tag("label", "Reason ", tag("input", name="reason", type="text", autocomplete="off"))
    return tag(
        "details", tag("summary", "End this run"), tag("p", said, class_="sub"),
        tag("form", hidden, reason, tag("button", "End it", type="submit"), method="post", action=site.url("end")),
    )  # fmt: skip


async def end(inspected: Inspected, request: Request, fields: Mapping[str, str]) -> Response:
    """End a run: by its agent, which a worker may have to hear, or else in the store."""
    run_id, owner = inspected.named(fields, "run")
    agent = inspected.agents.get((await run_head(inspected.runs, run_id, owner=owner)).strategy)
    if agent is None:
        await end_run(inspected.runs, run_id, fields.get("reason", ""), owner=owner)
    else:
        await agent.handle(run_id, owner=owner).end(fields.get("reason", ""))
    return RedirectResponse(inspected.site(request).url("run", id=run_id, owner=owner), 303)


CHANGES: Changes = (("end", end),)
