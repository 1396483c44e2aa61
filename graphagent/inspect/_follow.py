"""What a page hears of a run while it is executed: server-sent events, each with the number of the last entry."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from graphagent.errors import GraphAgentError
from graphagent.history import follow_run, run_head
from graphagent.inspect import _words
from graphagent.inspect._inspected import number

if TYPE_CHECKING:
    from starlette.requests import Request

    from graphagent.inspect._inspected import Inspected, Views
    from graphagent.protocols import Store


async def events(store: Store, run_id: str, owner: str, seen: int) -> AsyncIterator[str]:
    """Yield an event for each time that entries were written, and one when nobody executes the run any more. Only new entries are read.

    Args:
        store: Where the run is.
        run_id: Which.
        owner: Whose.
        seen: The number of the last entry that a browser which connects again knows; 0 if it knows none.
    """
    last = seen
    try:
        async for each in follow_run(store, run_id, owner=owner):
            if each.number > last:
                last = each.number
                told = {
                    "entry": last, "at": each.at, "worked": _words.duration(each.seconds), "turns": f"{each.turns:,}",
                    "tokens": f"{each.usage.total_tokens:,}", "cost": _words.money(each.usage.cost),
                }  # fmt: skip
                yield f"id: {last}\ndata: {json.dumps(told)}\n\n"
    except GraphAgentError:  # it was removed, or the store cannot be read: the page that is loaded again says so
        pass
    yield f"id: {last}\nevent: over\ndata: {{}}\n\n"


async def follow(inspected: Inspected, request: Request) -> Response:
    """Return the events of the run that the address names, from where a browser that connects again had seen it."""
    run_id, owner = inspected.named(request.query_params)
    await run_head(inspected.runs, run_id, owner=owner)
    seen = number(request.headers.get("last-event-id"))
    return StreamingResponse(events(inspected.runs, run_id, owner, seen), media_type="text/event-stream")


VIEWS: Views = (("follow", follow),)
