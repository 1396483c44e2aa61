"""The policies of a node: a time limit, retries, the cache of its output, and whether it only learns after the end of the run.

Cached outputs of nodes and results of tools are in the store of a run, where later runs of the same owner find them.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any, final

import anyio
import orjson

from graphagent._raised import awaited, translate
from graphagent.codec._blobs import HeldBlobs
from graphagent.codec._typed_objects import outline
from graphagent.codec._values import decode, encode
from graphagent.errors import CacheError, FeatureError, ModelError, NodeTimeoutError, NoteError, StoreError
from graphagent.events import CacheUsed, ExtractionFailed, NodeFailed
from graphagent.graph import CachePolicy, Node, Retry
from graphagent.graph._policies import Timeout
from graphagent.log._entries import EffectRecorded, LearningDue, NodeRetried
from graphagent.log._header import header_key
from graphagent.run._compiled import Call, counts
from graphagent.run._final_errors import Suspend, matching
from graphagent.run._walk import REPEATED, HeldBack, earlier
from graphagent.store._cache import Cache

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphagent.codec._values import Json
    from graphagent.graph._strategy import Element
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._walk import Walk


_FORMAT = 1
"""The format of stored values; a part of the hash, so that values of another format are not found."""


def no_store(what: str) -> FeatureError:
    """Return the error of a cached node in a run without a store, with the line to write."""
    return FeatureError(
        f"{what} is cached, and the agent has no store to keep it in; write Agent(strategy, store=SqliteStore('runs.db')), "
        f"or store=MemoryStore() for this process alone"
    )


@final
class CacheEntry:
    """The place of one value in the store of a run: the value computed from one input for one owner."""

    __slots__ = ("_cache", "_head", "_name")

    def __init__(self, run: AgentRun, policy: CachePolicy, identity: Json, value: Any, kind: Any, *, what: str) -> None:
        """Find the place of what `identity` computes from a value of a declared type; errors name it as `what`.

        Raises:
            SerializationError: the input cannot be stored.
        """
        if run.log.store is None:
            raise no_store(what)
        self._cache = Cache(run.log.store, "run", run.owner, policy.ttl)
        self._head = header_key(run.owner, run.session.run_id)
        blobs = HeldBlobs()
        parts = [_FORMAT, identity, policy.version, encode(value, blobs, kind)]
        # In full, since the hashes of blobs are too short to tell apart inputs that someone chose to be mistaken.
        parts.append([hashlib.sha256(data).hexdigest() for data in blobs.held.values()])
        self._name = hashlib.sha256(orjson.dumps(parts)).hexdigest()

    async def get(self, kind: Any) -> tuple[Any] | None:
        """Return the stored value; None if there is none, it has expired, or it cannot be read as that type.

        Raises:
            StoreError: the store cannot be read.
        """
        data = await self._cache.get(self._name)
        if data is None:
            return None
        try:
            value, blobs = orjson.loads(data)
            return (decode(value, HeldBlobs({name: base64.b64decode(text) for name, text in blobs.items()}), kind),)
        except (AttributeError, TypeError, ValueError):
            return None

    async def put(self, value: Any, kind: Any) -> None:
        """Store a value, unless the run was forgotten meanwhile: then what it knew is not kept.

        Raises:
            SerializationError: it cannot be stored.
            StoreError: the store cannot be written.
        """
        blobs = HeldBlobs()
        encoded = encode(value, blobs, kind)
        record = [encoded, {name: base64.b64encode(data).decode() for name, data in blobs.held.items()}]
        await self._cache.put(self._name, orjson.dumps(record), self._head)


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


FAILURES = (ModelError, StoreError, NoteError, OSError)
"""The errors of a model or a memory that fails. Time limits raise an OSError too, and so do users' own memories."""
_FAILED = "not learned"
"""The key under which a tap records that it failed, so that no later visit tries again unasked."""


def learning(call: Call) -> Call:
    """Return a call of a tap that may fail: it reports that the model or the memory failed, and raises nothing.

    Errors that an error edge of the tap takes are raised all the same, and so is the end of a budget. If a feature that the tap
    needs learns in the background, it is only noted that the tap is to learn.
    """

    async def learn(walk: Walk, value: Any) -> None:
        run, frame = walk.run, walk.frame
        if ("once", _FAILED) in frame.visit.effects:
            return
        recorded = run.session.recorded
        if recorded is not None and recorded.knows(frame, "once", _FAILED):
            entry = recorded.entry(run.log, frame, "once", _FAILED)
            assert entry is not None
            run.log.append(entry)
            return
        path = run.node_of(frame)
        if _may_wait(walk) and _waits(walk):
            if recorded is None or recorded.is_after_all(frame):
                run.log.append(LearningDue(at=frame.path, node=path))
            return
        try:
            await awaited(call(walk, value), f"node {path!r}")
        except FAILURES as error:
            if run.log.stale is not None or matching(error, FAILURES, run.lineage) is None or _is_taken(walk, error):
                raise
            run.log.append(EffectRecorded(at=frame.path, kind="once", key=_FAILED, value=run.log.keep(None)))
            if _may_wait(walk):
                run.log.append(LearningDue(at=frame.path, node=path))
            await run.log.commit()
            report(run, path, error)

    return learn


def report(run: AgentRun, path: str, error: Exception) -> None:
    """Report that somebody failed to learn from a run."""
    run.emit(ExtractionFailed(run.run_id, path, str(error) or type(error).__name__))


def _may_wait(walk: Walk) -> bool:
    """Return whether a tap can learn after the end of the run: the transcript of a branch or of a sub-agent may be gone then."""
    run = walk.run
    return run.parent is None and walk.frame.transcript is run.frame.transcript


def _waits(walk: Walk) -> bool:
    """Return whether a tap learns in the background. One with an error edge does not: somebody waits for what it raises."""
    node, features = walk.node, walk.run.features
    if node is None or node.element is None or node.error_edges:
        return False
    return any(getattr(features.get(kind), "background", False) for kind in node.element.needs)


def _is_taken(walk: Walk, error: Exception) -> bool:
    """Return whether an error edge of the tap takes an error."""
    node = walk.node
    edges = node.error_edges if node is not None else ()
    kinds = tuple(kind for edge in edges for kind in edge.errors)
    return matching(error, kinds, walk.run.lineage) is not None
