"""The progress of a run for its page: server-sent events, each with the number of the last entry."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import anyio
from starlette.responses import Response, StreamingResponse

from graphagent import _clock
from graphagent.errors import GraphAgentError, RunNotFoundError
from graphagent.history import follow_run, run_head
from graphagent.inspect import _words
from graphagent.inspect._inspected import number
from graphagent.inspect._spans import Spans
from graphagent.inspect._timeline import table

if TYPE_CHECKING:
    from starlette.requests import Request

    from graphagent.inspect._inspected import Inspected, Views
    from graphagent.protocols import Store
    from graphagent.run import RunHeader


_PAUSE = 1.0
"""Seconds between two events."""


async def events(
    store: Store, head: RunHeader, seen: int, rows: Callable[[Spans, int], str] | None = None
) -> AsyncIterator[str]:
    """Yield an event when entries were written, and a last one: `over` when the run has stopped and is not queued, or `lost` if it cannot be read.

    Only new entries are read, at most once a second.

    Args:
        store: Where the run is.
        head: Its header.
        seen: The number of the last entry that a browser which connects again knows; 0 if it knows none.
        rows: Makes the rows of the timeline until a time; None: events do not have rows.
    """
    last, spans, outcome = seen, Spans(head.started), "over"
    try:
        while (await run_head(store, head.run_id, owner=head.owner)).status == "queued":  # noqa: ASYNC110  another process may begin it
            await anyio.sleep(_PAUSE)
        async for each in follow_run(store, head.run_id, owner=head.owner):
            for entry in each.entries:
                spans.add(entry)
            if each.number != last:  # also if a browser knows a number that this run does not have
                last = each.number
                told = {
                    "entry": last, "at": each.at, "worked": _words.duration(each.seconds), "turns": f"{each.turns:,}",
                    "tokens": f"{each.usage.total_tokens:,}", "cost": _words.money(each.usage.cost),
                } | ({} if rows is None else {"rows": rows(spans, _clock.now())})  # fmt: skip
                yield f"id: {last}\ndata: {json.dumps(told)}\n\n"
            await anyio.sleep(_PAUSE)
    except RunNotFoundError:  # it was removed, as the page says when it is loaded again
        pass
    except GraphAgentError:  # the store cannot be read, maybe for a while
        outcome = "lost"
    yield f"id: {last}\nevent: {outcome}\ndata: {{}}\n\n"


async def follow(inspected: Inspected, request: Request) -> Response:
    """Return the events of the run that the address names, after the last one that a browser has seen before it connected again.

    Events of a whole run have the rows of the timeline that the page of the run shows: from the row `spans` on, chosen by `show`.
    """
    run_id, owner = inspected.named(request.query_params)
    head = await run_head(inspected.runs, run_id, owner=owner)
    if request.method == "HEAD":  # the server does not send the events, but would wait for the last one
        return Response(media_type="text/event-stream")
    site, query = inspected.site(request), request.query_params
    first, show = number(query.get("spans")), query.get("show", "")

    def rows(spans: Spans, now: int) -> str:
        return table(site, head, spans.until(now), first=first, show=show).text

    seen = number(request.headers.get("last-event-id"))
    told = events(inspected.runs, head, seen, None if head.parent else rows)
    return StreamingResponse(told, media_type="text/event-stream")


VIEWS: Views = (("follow", follow),)
