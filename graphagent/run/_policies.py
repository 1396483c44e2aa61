"""The policies of a node: a time limit, retries, and the cache of its output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from graphagent._raised import translate
from graphagent.codec._typed_objects import outline
from graphagent.errors import CacheError, NodeTimeoutError
from graphagent.events import CacheUsed, NodeFailed
from graphagent.graph import CachePolicy, Node, Retry
from graphagent.graph._policies import Timeout
from graphagent.log._entries import EffectRecorded, NodeRetried
from graphagent.run._cached import CacheEntry
from graphagent.run._compiled import Call, counts
from graphagent.run._deadlines import earlier
from graphagent.run._final_errors import matching
from graphagent.run._held_back import REPEATED, HeldBack
from graphagent.run._suspend import Suspend

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphagent.graph._strategy import Element
    from graphagent.run._walk import Walk


def with_policies(call: Call, element: Element, path: str, *, whole: bool = False) -> Call:
    """Return a call of an element with its policies around it, the first innermost; `path` is that of its declaration.

    The `whole` strategy of an agent is executed in the same frame as its nodes.
    """
    for number, policy in enumerate(element.policies):
        if isinstance(policy, Timeout):
            call = _with_timeout(call, policy, element.name)
        elif isinstance(policy, CachePolicy):
            assert isinstance(element, Node)
            call = _with_cache(call, policy, element, path)
        else:
            call = _with_retry(call, policy, element, f"all:{number}" if whole else str(number), whole=whole)
    return call


def _with_timeout(call: Call, policy: Timeout, name: str) -> Call:
    seconds = policy.seconds

    async def limited(walk: Walk, value: Any) -> Any:
        # Does what `anyio.fail_after` does, at half the cost: that is a generator, and looks up the event loop three times.
        backend, around = walk.run.session.backend, walk.deadline
        deadline = backend.current_time() + seconds
        scope = backend.create_cancel_scope(deadline=deadline)
        scope.__enter__()
        walk.deadline = earlier(around, deadline)
        try:
            try:
                returned = await call(walk, value)
            except BaseException as raised:
                await translate(raised, f"node {name!r}")
                raise
        except BaseException as error:
            if scope.__exit__(type(error), error, error.__traceback__):
                # Not after a `with`, since the context of this error, the cancellation, shows where the node waited.
                # As with `fail_after`, it has a context and no cause.
                raise NodeTimeoutError(name, seconds)  # noqa: B904
            raise
        finally:
            walk.deadline = around
        scope.__exit__(None, None, None)
        if backend.current_time() >= deadline:  # it blocked the event loop, so nothing could cancel it
            raise NodeTimeoutError(name, seconds)
        return returned

    return limited


def _with_retry(call: Call, policy: Retry, element: Element, name: str, *, whole: bool) -> Call:
    counted = counts(element)

    async def retrying(walk: Walk, value: Any) -> Any:
        run, frame = walk.run, walk.frame
        log, around = run.log, walk.held_back
        given: Callable[[], Any] = walk.stored_input(value) if log.durable and not whole else lambda: value
        while True:
            attempt = 1 + frame.visit.attempts.get(name, 0)
            # What an attempt says is said again by the next one, so nobody hears it before it is known whether there is one.
            held_back = walk.held_back = HeldBack(around, REPEATED if attempt < policy.attempts else ())
            try:
                try:
                    returned = await call(walk, value)
                except BaseException as raised:
                    await translate(raised, f"node {run.node_of(frame)!r}")
                    raise
            except Exception as error:
                caught = matching(error, policy.errors, run.lineage)
                may_repeat = attempt < policy.attempts and log.stale is None
                wait = None if caught is None or not may_repeat else policy.pause(attempt, caught)
                if caught is None or wait is None:
                    held_back.release()
                    raise
                run.emit(NodeFailed(run.run_id, run.node_of(frame), error))
                text = str(caught)
            except Suspend:
                held_back.release()
                raise
            else:
                held_back.release()
                return returned
            finally:
                walk.held_back = around
            first = walk.strategy.first.name if whole else ""
            log.append(
                NodeRetried(
                    at=frame.path, policy=name, error=(type(caught).__name__, text), wait=wait, first=first, nodes=counted,
                )
            )  # fmt: skip
            if log.durable:
                await log.commit()
                value = given()
            await anyio.sleep(wait)
            if counted:
                await walk.limits.enter_next_node(counted)

    return retrying


def _with_cache(call: Call, policy: CachePolicy, element: Node[Any, Any], path: str) -> Call:
    taken, returned = element.input_type, element.output_type
    identity = ["node", {"key": policy.key} if policy.key else path, outline(taken), outline(returned)]

    async def cached(walk: Walk, value: Any) -> Any:
        run, frame = walk.run, walk.frame
        effect = frame.visit.effects.get(("cached", ""))
        if effect is not None:
            return run.log.take(effect.value, returned)
        again = run.session.recorded
        known = None if again is None else again.entry(run.log, frame, "cached", "")
        if known is not None:
            run.log.append(known)
            return run.log.take(frame.visit.effects["cached", ""].value, returned)
        if run.session.attention:
            run.session.stop_if_due()
        entry = CacheEntry(run, policy, identity, value, taken, what=f"node {run.node_of(frame)!r}")
        found = await entry.get(returned)
        if found is not None:
            run.emit(CacheUsed(run.run_id, run.node_of(frame)))
            output = found[0]
        else:
            output = await call(walk, value)
            _check_silent(walk)
            await entry.put(output, returned)
        # One effect, whichever it was, so that a run that is resumed does not ask the cache a second time.
        run.log.append(EffectRecorded(at=frame.path, kind="cached", key="", value=run.log.keep(output, returned)))
        await run.log.commit()
        return output

    return cached


def _check_silent(walk: Walk) -> None:
    """Check that a cached node did nothing that would be missing in a run that finds its output."""
    kinds = {kind for kind, _ in walk.frame.visit.effects}
    if kinds & {"add", "edit"}:
        what = "adds to the transcript"
    elif kinds & {"turn", "decision"}:
        what = "asks a model"
    elif "answer" in kinds:
        what = "asks a person"
    else:
        return
    raise CacheError(walk.run.node_of(walk.frame), what)
