"""The policies of a node: a time limit, retries, and the cache of its output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from anyio.lowlevel import current_token

from graphagent.codec._internal import outline
from graphagent.errors import CacheError
from graphagent.events import CacheUsed, NodeFailed
from graphagent.graph import CachePolicy, Node, Retry, Timeout
from graphagent.llm import ModelResponse
from graphagent.run._compiled import Call, counts
from graphagent.run.engine._cache import CacheEntry
from graphagent.run.engine._execute import matching
from graphagent.run.engine._final_errors import is_final
from graphagent.run.state._entries import CACHED

if TYPE_CHECKING:
    from graphagent.graph._internal import Element
    from graphagent.run.engine._context import Context, LiveFrame


def with_policies(call: Call, element: Element, path: str) -> Call:
    """Return a call of an element with its policies around it, the first innermost; `path` is that of its declaration."""
    for number, policy in enumerate(element.policies):
        if isinstance(policy, Timeout):
            call = _with_timeout(call, policy)
        elif isinstance(policy, CachePolicy):
            assert isinstance(element, Node)
            call = _with_cache(call, policy, element, path)
        else:
            call = _with_retry(call, policy, element, number)
    return call


def _with_timeout(call: Call, policy: Timeout) -> Call:
    seconds = policy.seconds

    async def limited(ctx: Context[Any], value: Any) -> Any:
        # Does what `anyio.fail_after` does, at half the cost: that is a generator, and looks up the event loop three times.
        runtime = ctx.__frame__.runtime
        backend = runtime.backend
        if backend is None:
            backend = runtime.backend = current_token().backend_class
        scope = backend.create_cancel_scope(deadline=backend.current_time() + seconds)
        scope.__enter__()
        try:
            returned = await call(ctx, value)
        except BaseException as error:
            if scope.__exit__(type(error), error, error.__traceback__):
                # Not after a `with`, since the context of this error, the cancellation, shows where the node waited.
                raise TimeoutError  # noqa: B904  as with `fail_after`, it has a context and no cause
            raise
        scope.__exit__(None, None, None)
        return returned

    return limited


def _with_retry(call: Call, policy: Retry, element: Element, number: int) -> Call:
    counted = counts(element)
    name_inside, name_whole = str(number), f"all:{number}"

    async def retrying(ctx: Context[Any], value: Any) -> Any:
        frame = ctx.__frame__
        # The agent's own strategy is executed in the same frame as its nodes, and is not one of them.
        compiled = frame.compiled
        whole = compiled is None or compiled.element is not element
        name = name_whole if whole else name_inside
        while True:
            # Looked up anew each time: recording an entry replaces the dictionary.
            attempt = frame.attempts.get(name, 1) if frame.attempts is not None else 1
            try:
                returned = await call(ctx, value)
            except Exception as error:
                runtime = frame.runtime
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
            frame.settle_calls()
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


def _with_cache(call: Call, policy: CachePolicy, element: Node[Any, Any], path: str) -> Call:
    taken, returned = element.input_type, element.output_type
    identity = ["node", {"key": policy.key} if policy.key else path, outline(taken), outline(returned)]

    async def cached(ctx: Context[Any], value: Any) -> Any:
        frame = ctx.__frame__
        runtime = frame.runtime
        entry = CacheEntry(runtime, policy, identity, value, taken, what=f"node {frame.node_path!r}")

        async def find_or_compute() -> Any:
            found = await entry.get(returned)
            if found is not None:
                runtime.emit(CacheUsed(runtime.run_id, frame.node_path))
                return found[0]
            output = await call(ctx, value)
            _check_silent(frame)
            await entry.put(output, returned)
            return output

        # One effect, of whichever it was, so that a run that is resumed or executed again does not ask the cache a second time.
        return await frame.once(CACHED, find_or_compute)

    return cached


def _check_silent(frame: LiveFrame) -> None:
    """Check that a cached node did nothing that would be missing in a run that finds its output.

    Raises:
        CacheError: it added to the transcript, or asked a model or a person.
    """
    if frame.savepoint is not None and frame.savepoint.added:
        what = "adds to the transcript"
    elif any(isinstance(effect.value, ModelResponse) for effect in (frame.effects or {}).values()):
        what = "asks a model"
    elif any(effect.answer >= 0 for effect in (frame.effects or {}).values()):
        what = "asks a person"
    else:
        return
    raise CacheError(frame.node_path, what)
