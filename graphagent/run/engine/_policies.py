"""The policies of a node: a time limit, and retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from graphagent.events import NodeFailed
from graphagent.graph import Retry, Timeout
from graphagent.run._compiled import Call, counts
from graphagent.run.engine._execute import is_final, matching

if TYPE_CHECKING:
    from graphagent.graph._internal import Element
    from graphagent.run.engine._context import Context


def with_policies(call: Call, element: Element) -> Call:
    """Return a call of an element with its policies around it, the first innermost."""
    for number, policy in enumerate(element.policies):
        if isinstance(policy, Timeout):
            call = _with_timeout(call, policy)
        else:
            call = _with_retry(call, policy, element, number)
    return call


def _with_timeout(call: Call, policy: Timeout) -> Call:
    async def limited(ctx: Context[Any], value: Any) -> Any:
        with anyio.fail_after(policy.seconds):
            return await call(ctx, value)

    return limited


def _with_retry(call: Call, policy: Retry, element: Element, number: int) -> Call:
    counted = counts(element)

    async def retrying(ctx: Context[Any], value: Any) -> Any:
        frame = ctx.__frame__
        runtime = frame.runtime
        # The agent's own strategy is executed in the same frame as its nodes, and is not one of them.
        whole = frame.compiled is None or frame.compiled.element is not element
        name = f"all:{number}" if whole else str(number)
        while True:
            # Looked up anew each time: recording an entry replaces the dictionary.
            attempt = frame.attempts.get(name, 1) if frame.attempts is not None else 1
            try:
                returned = await call(ctx, value)
            except Exception as error:
                caught = matching(error, policy.errors, runtime.run_id)
                if caught is None or attempt >= policy.attempts:
                    # A run that is resumed after a final error continues this attempt; after others it has all attempts again.
                    if frame.attempts is not None and not is_final(error, runtime.run_id):
                        frame.attempts.pop(name, None)
                    raise
                wait = policy.pause(attempt, caught)
                runtime.emit(NodeFailed(runtime.run_id, frame.node_path, error))
            else:
                if frame.attempts is not None:
                    frame.attempts.pop(name, None)
                return returned
            frame.attempts = {**(frame.attempts or {}), name: attempt + 1}
            runtime.close_questions("" if whole else frame.node_path)
            if whole:
                frame.compiled = None
            if runtime.journal is not None:
                await runtime.journal.retried(frame, value, whole=whole)
            elif whole:
                frame.restarted("")
            else:
                frame.retried()
            await anyio.sleep(wait)
            if counted:
                frame.meter.count_node(runtime)

    return retrying
