"""The engine's loop: it executes compiled nodes one after the other in one coroutine, and chooses the edge after each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from anyio.lowlevel import checkpoint

from graphagent.errors import (
    BudgetError,
    FeatureError,
    NodeFailedError,
    NoPathError,
    RunError,
)
from graphagent.events import NodeFailed, NodeFinished, NodeStarted, PathTaken
from graphagent.graph import Node
from graphagent.graph._internal import is_a, show
from graphagent.run._compiled import DONE
from graphagent.run.engine._final_errors import is_final
from graphagent.run.engine._middleware import pass_through
from graphagent.run.engine._suspend import Suspend

if TYPE_CHECKING:
    from graphagent.protocols import Feature
    from graphagent.run._compiled import CompiledEdge, CompiledNode
    from graphagent.run.engine._context import Context, LiveFrame

_EVERY = 127
"""After so many nodes other tasks get a turn, since nodes may never wait themselves. A mask: one less than a power of two."""


async def execute(node: CompiledNode, frame: LiveFrame, value: Any) -> Any:  # noqa: C901  the hot path: a call for each part would cost more than the part
    """Execute nodes from this one to END, and return the value that arrives there.

    However it is left, `frame.compiled` and `frame.value` are the node that comes next and its input, so that a later call
    continues there.

    Raises:
        RunError: a node failed, no edge takes an output, or a budget is used up.
        Suspend: the run waits for people, or is to pause.
    """
    runtime = frame.runtime
    meter, journal, context = frame.meter, runtime.journal, frame.context
    alone = meter.parent is None
    run_id, path, moved = runtime.run_id, frame.path, frame.moved
    started = runtime.handlers.get(NodeStarted)
    finished = runtime.handlers.get(NodeFinished)
    around = runtime.around_node
    edge: CompiledEdge | None
    returned: Any = None
    ended = False
    if frame.savepoint is not None:
        frame.memory.rewind(frame.savepoint)
    frame.node = node.name
    try:
        while node is not DONE:
            frame.compiled = node
            if node.counts:
                if alone and meter.nodes < meter.max_nodes:
                    count = meter.nodes = meter.nodes + 1
                else:
                    count = meter.count_node(runtime)
                if not count & _EVERY:
                    await checkpoint()
            if started is not None:
                event: Any = NodeStarted(run_id, path + node.name, value)
                for handler in started:
                    handler(event)
            try:
                if around is None:
                    returned = await node.call(context, value)
                else:
                    returned = await _around(node, context, value, around)
            except Exception as error:  # noqa: BLE001  raised again there, unless an error edge takes it
                edge, caught, passed = _recover(node, frame, context, error, value)
                for trust in branch_trust(frame):  # the error may tell what the branches that it ended had heard
                    frame.memory.lower(trust)
                frame.settle_calls()
                runtime.close_questions(path + node.name)
                if journal is None:
                    frame.moved(edge.target.name)
                else:
                    journal.recovered(frame, node, edge, caught, passed)
                node, value = edge.target, passed
                if journal is not None:
                    await journal.commit()
                continue
            except BaseException as interruption:
                if not _is_suspension(interruption):
                    raise
                if node.counts:
                    meter.forget_node()
                raise Suspend from None
            ended = True
            output = value if node.passes_input else returned
            if finished is not None:
                event = NodeFinished(run_id, path + node.name, output)
                for handler in finished:
                    handler(event)
            following = node.following
            if following is None:
                edge, passed = _choose(node, frame, context, output)
                following = edge.target
            else:
                edge, passed = None, output
            # The position changes before the commit: if that fails, the entry is committed later, and the node is not repeated.
            if journal is None:
                moved(following.name)
            else:
                journal.node_ended(frame, node, output, following, passed, edge)
            node, value, ended = following, passed, False
            if journal is not None:
                await journal.commit()
            if runtime.attention:
                runtime.between_nodes(root=not frame.branches)
    except BaseException:
        if ended:  # a handler that was called after the node raised: the node is not executed again
            frame.savepoint = None
            node = node.ended_with(returned)
        frame.compiled, frame.value = node, value
        raise
    frame.compiled, frame.value = DONE, value
    return value


async def _around(node: CompiledNode, context: Context[Any], value: Any, features: Sequence[Feature]) -> Any:
    """Execute a node within the middleware around nodes."""
    proceeded = False
    own: Any = None

    async def proceed(value: Any) -> Any:
        nonlocal proceeded, own
        if proceeded:
            raise FeatureError(
                f"around_node executes node {context.node!r} twice, and its effects are recorded once; "
                f"let it proceed once, and put .retry(attempts=…) on the node"
            )
        proceeded = True
        own = await node.call(context, value)
        return own

    returned = await pass_through(features, "around_node", context, value, proceed, kind=object)
    if returned is None and own is not None and isinstance(node.element, Node):
        declared = node.element.output_type
        if not is_a(None, declared):
            names = ", ".join(type(feature).__name__ for feature in features)
            raise FeatureError(
                f"around_node ({names}) returned None for node {context.node!r}, which returns {show(declared)}; "
                f"end it with: return await proceed(…)"
            )
    return returned


def branch_trust(frame: LiveFrame) -> Iterator[str]:
    """Yield the trust of what the branches inside a frame heard, as far as they have transcripts of their own."""
    for each in frame.live_frames():
        if each.memory is not frame.memory and not each.memory.quiet:
            yield each.memory.trust


def _is_suspension(error: BaseException) -> bool:
    """Return whether a run only stops here. A node's own task group may have wrapped that."""
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).split(Suspend)[1] is None
    return isinstance(error, Suspend)


def _choose(node: CompiledNode, frame: LiveFrame, context: Context[Any], output: Any) -> tuple[CompiledEdge, Any]:
    """Return the first edge that takes an output, and the value that it passes on."""
    for edge in node.edges:
        takes, value = _through(edge, frame, context, output)
        if takes:
            return _taken(edge, frame), value
    raise frame.runtime.of_run(NoPathError(frame.node_path, output, [edge.label for edge in node.edges]))


def _through(edge: CompiledEdge, frame: LiveFrame, context: Context[Any], value: Any) -> tuple[bool, Any]:
    """Return whether an edge takes a value, and the value that it passes on."""
    try:
        for rule in edge.rules:
            if rule.test is not None:
                if not rule.test(context, value):
                    return False, None
            elif rule.change is not None:
                value = rule.change(value)
    except Exception as error:
        raise frame.runtime.of_run(NodeFailedError(frame.node_path, error)) from error
    return True, value


def _taken(edge: CompiledEdge, frame: LiveFrame) -> CompiledEdge:
    runtime = frame.runtime
    if PathTaken in runtime.handlers:
        runtime.emit(PathTaken(runtime.run_id, frame.node_path, edge.label, edge.target.name or "END"))
    return edge


def _recover(
    node: CompiledNode, frame: LiveFrame, context: Context[Any], error: Exception, given: Any
) -> tuple[CompiledEdge, Exception, Any]:
    """Return the error edge for an error, the part of the error that it takes, and the value that it passes on.

    The edge of a tap passes on the input of the tap.

    Raises:
        Exception: the error, if there is no such edge.
    """
    runtime = frame.runtime
    if NodeFailed in runtime.handlers:
        runtime.emit(NodeFailed(runtime.run_id, frame.node_path, error))
    for edge in node.error_edges:
        caught = matching(error, edge.errors, runtime.run_id)
        if caught is not None:
            takes, value = _through(edge, frame, context, given if node.passes_input else caught)
            if takes:
                return _taken(edge, frame), caught, value
    if isinstance(error, RunError) and error.run_id == runtime.run_id:
        raise error
    raise runtime.of_run(NodeFailedError(frame.node_path, error)) from error


def matching(error: Exception, kinds: tuple[type[Exception], ...], run_id: str) -> Exception | None:
    """Return the part of an error that is of one of these types: the cause of a failed node inside, otherwise the error itself.

    A used-up budget of this run is only found by its own name: a handler that catches everything must not undo a limit.
    """
    if is_final(error, run_id):
        return None
    if isinstance(error, BudgetError) and error.run_id == run_id:
        return error if any(issubclass(kind, BudgetError) for kind in kinds) else None
    if isinstance(error, NodeFailedError) and isinstance(error.__cause__, Exception) and NodeFailedError not in kinds:
        cause = matching(error.__cause__, kinds, run_id)
        if cause is not None:
            return cause
    return error if isinstance(error, kinds) else None


def ends_all(error: Exception, run_id: str) -> bool:
    """Return whether an error of one branch ends a race: an error that is final, and a used-up budget of the whole run."""
    if isinstance(error, BudgetError) and error.run_id == run_id:
        return not error.where
    return is_final(error, run_id)
