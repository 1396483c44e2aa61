"""What a page hears of a run while it is executed: server-sent events, each with the number of the last entry."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from graphagent.errors import GraphAgentError
from graphagent.history import follow_run
from graphagent.inspect import _words

if TYPE_CHECKING:
    from graphagent.protocols import Store


async def events(store: Store, run_id: str, owner: str, seen: int) -> AsyncIterator[str]:
    """Yield an event for each time that entries were written, and one when nobody executes the run any more. Only new entries are read.

    Args:
        store: Where the run is.
        run_id: Which.
        owner: Whose.
        seen: The number of the last entry that a browser which connects again knows; 0 if it knows none.
    """
    number = seen
    try:
        async for each in follow_run(store, run_id, owner=owner):
            if each.number > number:
                number = each.number
                told = {
                    "entry": number, "at": each.at, "worked": _words.duration(each.seconds), "turns": f"{each.turns:,}",
                    "tokens": f"{each.usage.total_tokens:,}", "cost": _words.money(each.usage.cost),
                }  # fmt: skip
                yield f"id: {number}\ndata: {json.dumps(told)}\n\n"
    except GraphAgentError:  # it was removed, or the store cannot be read: the page that is loaded again says so
        pass
    yield f"id: {number}\nevent: over\ndata: {{}}\n\n"
