"""The engine's loop: it executes the nodes of a frame one after the other in one coroutine, and chooses the edge after each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from anyio.lowlevel import checkpoint

from graphagent._article import kind_of
from graphagent._error_source import note_source
from graphagent._raised import translate
from graphagent.errors import FeatureError, NodeFailedError, NoPathError, RunError, SerializationError
from graphagent.events import NodeFailed as NodeFailedEvent
from graphagent.events import NodeFinished as NodeFinishedEvent
from graphagent.events import NodeStarted, PathTaken
from graphagent.graph import Node
from graphagent.graph._internal import is_a, show
from graphagent.log._internal import NIL, NodeFailed, NodeFinished, NodeSkipped
from graphagent.run._compiled import DONE, wrong_output
from graphagent.run._context import Context
from graphagent.run._effects import Effects
from graphagent.run._final_errors import matching
from graphagent.run._middleware import pass_through
from graphagent.run._rules import check_rules
from graphagent.run._suspend import Suspend

if TYPE_CHECKING:
    from graphagent.protocols import Feature
    from graphagent.run._compiled import CompiledEdge, CompiledNode
    from graphagent.run._scope import Execution

_EVERY = 127
"""After so many nodes other tasks get a turn, since nodes may never wait themselves. A mask: one less than a power of two."""


async def execute(execution: Execution) -> Any:  # noqa: C901  the hot path: each call out of it would cost every node
    """Execute the nodes of a frame from its current one to END, and return the value that arrives there.

    Raises:
        RunError: a node failed, no edge takes an output, or a budget is used up.
        Suspend: the run waits for people, or is to pause.
    """
    run, frame, limits = execution.run, execution.frame, execution.limits
    log, top = run.log, run.top
    durable, alone = log.durable, limits.parent is None
    started, finished = run.handlers.get(NodeStarted), run.handlers.get(NodeFinishedEvent)
    around, reports_path, recorded = run.around_node, PathTaken in run.handlers, top.recorded
    node, deadline = execution.strategy.node(frame.node or ""), execution.deadline
    assert node is not None
    value, following = execution.input(), cast("CompiledNode | None", None)
    while node is not DONE:
        if deadline is not None:
            await execution.stop_if_late(deadline)
        if node.rules:
            check_rules(execution, node.rules)
        if node.counts:
            if alone and limits.frame.nodes + limits.running < limits.max_nodes:
                limits.running += 1
            else:
                limits.enter_node()
            if top.frame.nodes & _EVERY == _EVERY:
                await checkpoint()
        if started is not None:
            event: Any = NodeStarted(run.run_id, run.path_of(frame) + node.name, value)
            for handler in started:
                handler(event)
        try:
            try:
                if around is not None:
                    returned = await _around(node, execution, value, around)
                elif node.function is not None:
                    returned = await node.function(Context(execution), value)
                else:
                    returned = await node.call(execution, value)
            except BaseException as raised:
                await translate(raised, f"node {run.node_of(frame)!r}")
                raise
            if durable:
                if node.declared is not Any and not is_a(returned, node.declared):
                    raise wrong_output(node.declared, returned)
            elif node.kinds and not isinstance(returned, node.kinds):
                raise wrong_output(node.declared, returned)
        except Exception as error:
            if node.counts:
                limits.count_running(-1)
            if log.stale is not None:
                raise
            edge, caught, passed = _recover(node, execution, error, value)
            following = edge.target
            log.append(_recovered(node, execution, edge, caught, passed))
        except BaseException as interruption:
            if node.counts:
                limits.count_running(-1)
            if isinstance(interruption, Suspend):
                raise Suspend from None
            _failed(node, execution, interruption)
            raise
        else:
            if node.counts:
                if alone:
                    limits.running -= 1
                else:
                    limits.count_running(-1)
            if node.passes_input:
                returned = value
            taken: CompiledEdge | None = None
            try:  # no error edge of the node takes what goes wrong after it
                following, passed = node.following, returned
                if following is not None:
                    log.finish_node(frame, following.name, returned, node.output_type, node.passes_input, node.counts)
                else:
                    chosen = _choose(node.edges, execution, frame.latest, returned)
                    if chosen is None:
                        labels = [edge.label for edge in node.edges]
                        raise run.of_run(NoPathError(run.path_of(frame) + node.name, returned, labels))
                    taken, passed = chosen
                    following, mapped = taken.target, taken.changes
                    log.finish_node(
                        frame, following.name, passed, taken.value_type if mapped else node.output_type,
                        node.passes_input and not mapped, node.counts, taken.number, mapped,
                    )  # fmt: skip
            except SerializationError as error:
                failed = run.of_run(NodeFailedError(run.path_of(frame) + node.name, error))
                _failed(node, execution, failed)
                _report_end(node, execution, returned)
                raise failed from error
            except BaseException as error:
                _failed(node, execution, error)
                _report_end(node, execution, returned)
                raise
            # The state has changed before: what a handler raises ends the run, and the node is not executed again.
            if finished is not None:
                _report_end(node, execution, returned)
            if taken is not None and reports_path:
                _report_path(node, execution, taken)
        if recorded is not None:
            recorded.left(frame, node.name)
        node = following
        if not durable:
            value = passed
        elif node is DONE and frame is top.frame:
            # The end of the run is committed together with the end of its last node, unless somebody looks in between.
            if top.stops_soon or run.checks_answer:
                await log.commit()
            value = passed
        else:
            await log.commit()
            value = execution.input()
        if top.attention:
            run.between_nodes(frame)
    return value


def _recovered(
    node: CompiledNode, execution: Execution, edge: CompiledEdge, caught: Exception, passed: Any
) -> NodeFinished:
    log, frame = execution.run.log, execution.frame
    value: Any = NIL
    tap = node.passes_input and not edge.changes
    if not tap:
        kind = edge.value_type if edge.changes else edge.errors[0]
        try:
            value = log.keep(passed, kind)
        except SerializationError as error:
            if edge.changes:
                failed = execution.run.of_run(NodeFailedError(execution.run.path_of(frame) + node.name, error))
                _failed(node, execution, failed)
                raise failed from error
            value = log.keep(str(caught))  # an error is made of it when it is read
    return NodeFinished(
        at=frame.path, to=edge.target.name, value=value, tap=tap, edge=edge.number, mapped=True,
        error=(type(caught).__name__, str(caught)), nodes=node.counts,
    )  # fmt: skip


def _failed(node: CompiledNode, execution: Execution, error: BaseException) -> None:
    """Record that a node failed, or was cancelled. It is durable with what is committed next."""
    log = execution.run.log
    if log.stale is None and execution.run.log.state.frames.get(execution.frame.path) is execution.frame:
        text = str(error) if isinstance(error, RunError) else ""
        log.append(
            NodeFailed(
                at=execution.frame.path, error=(type(error).__name__, text), nodes=node.counts,
                cancelled=not isinstance(error, Exception),
            )
        )  # fmt: skip


async def _around(node: CompiledNode, execution: Execution, value: Any, features: Sequence[Feature]) -> Any:
    """Execute a node within the middleware around nodes."""
    proceeded, failed = False, True
    own: Any = None
    effects = Effects(execution)

    async def proceed(value: Any) -> Any:
        nonlocal proceeded, failed, own
        if proceeded:
            raise FeatureError(
                f"around_node executes node {effects.node!r} twice, and its effects are recorded once; "
                f"let it proceed once, and put .retry(attempts=…) on the node"
            )
        proceeded = True
        own = await node.call(execution, value)
        failed = False
        return own

    returned = await pass_through(features, "around_node", effects, value, proceed, kind=object)
    if failed:
        execution.run.log.append(NodeSkipped(at=execution.frame.path, failed=proceeded))
    if returned is not own and isinstance(node.element, Node):
        declared = node.element.output_type
        if not is_a(returned, declared):
            names = ", ".join(type(feature).__name__ for feature in features)
            raise FeatureError(
                f"around_node ({names}) returned {kind_of(returned)} for node {effects.node!r}, which returns {show(declared)}; "
                f"end it with: return await proceed(…)"
            )
    return returned


def _choose(
    edges: Sequence[CompiledEdge], execution: Execution, position: int, output: Any
) -> tuple[CompiledEdge, Any] | None:
    """Return the first edge that takes an output, and the value that it passes on; None if none does."""
    context = None
    for edge in edges:
        value = output
        for rule in edge.rules:
            try:
                if rule.test is not None:
                    context = context or Context(execution, None, position)
                    if not rule.test(context, value):
                        break
                elif rule.change is not None:
                    value = rule.change(value)
            except Exception as error:
                run = execution.run
                note_source(error, f".{rule.verb}({rule.what or '…'}) before {edge.target.name or 'END'!r}")
                raise run.of_run(NodeFailedError(run.node_of(execution.frame), error)) from error
        else:
            return edge, value
    return None


def _report_end(node: CompiledNode, execution: Execution, output: Any) -> None:
    run = execution.run
    if NodeFinishedEvent in run.handlers:
        run.emit(NodeFinishedEvent(run.run_id, run.path_of(execution.frame) + node.name, output))


def _report_path(node: CompiledNode, execution: Execution, edge: CompiledEdge) -> None:
    run = execution.run
    if PathTaken in run.handlers:
        path = run.path_of(execution.frame) + node.name
        run.emit(PathTaken(run.run_id, path, edge.label, edge.target.name or "END"))


def _recover(
    node: CompiledNode, execution: Execution, error: Exception, given: Any
) -> tuple[CompiledEdge, Exception, Any]:
    """Return the error edge for an error, the part of the error that it takes, and the value that it passes on.

    The edge of a tap passes on the input of the tap.

    Raises:
        Exception: the error, if there is no such edge.
    """
    run, frame = execution.run, execution.frame
    path = run.path_of(frame) + node.name
    if NodeFailedEvent in run.handlers:
        run.emit(NodeFailedEvent(run.run_id, path, error))
    for edge in node.error_edges:
        caught = matching(error, edge.errors, run.lineage)
        if caught is not None:
            chosen = _choose((edge,), execution, frame.latest, given if node.passes_input else caught)
            if chosen is not None:
                _report_path(node, execution, edge)
                return edge, caught, chosen[1]
    _failed(node, execution, error)
    if isinstance(error, RunError) and error.run_id in run.lineage:
        raise error
    raise run.of_run(NodeFailedError(path, error)) from error
