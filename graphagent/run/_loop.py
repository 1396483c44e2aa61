"""The engine's loop: it executes the nodes of a frame one after the other in one coroutine, and chooses the edge after each."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast, final

from graphagent._error_source import note_source
from graphagent._raised import translate
from graphagent.errors import NodeFailedError, NoPathError, RunError, SerializationError
from graphagent.events import NodeFailed as NodeFailedEvent
from graphagent.events import NodeFinished as NodeFinishedEvent
from graphagent.events import NodeStarted, PathTaken, RunAnswered
from graphagent.graph._types import is_a
from graphagent.log._entries import NO_VALUE, NodeFailed, NodeFinished
from graphagent.log._visits import Visit
from graphagent.run._compiled import DONE, wrong_output
from graphagent.run._context import Context
from graphagent.run._final_errors import Suspend, matching
from graphagent.run._middleware import execute_around
from graphagent.run._rules import check_rules

if TYPE_CHECKING:
    from graphagent.graph._node import Rule
    from graphagent.run._compiled import CompiledEdge, CompiledNode
    from graphagent.run._walk import Walk

_HEARD = (NodeStarted, NodeFinishedEvent, PathTaken, RunAnswered)
"""The events that come with a node that does what it is to do."""
_REFUSED: Any = object()
"""An edge does not take an output."""


@final
class _Listeners:
    """Those who listen to the nodes of a frame: to their starts and ends, to the edges, and to the answer."""

    __slots__ = ("_answers", "_finished", "_path", "_run", "_started", "_takes", "_walk")

    def __init__(self, walk: Walk) -> None:
        run = walk.run
        self._walk, self._run, self._path = walk, run, run.path_of(walk.frame)
        self._started, self._finished = NodeStarted in run.handlers, NodeFinishedEvent in run.handlers
        self._takes = PathTaken in run.handlers
        self._answers = RunAnswered in run.handlers and walk.frame is run.frame and not run.plan.checks_answer

    def started(self, node: CompiledNode, value: Any) -> None:
        """Emit that a node begins."""
        if self._started:
            self._run.emit(NodeStarted(self._run.run_id, self._path + node.name, value))

    def finished(self, node: CompiledNode, output: Any, edge: CompiledEdge | None = None) -> None:
        """Emit that a node ended, and the edge that was taken, where there was a choice."""
        if self._finished:
            self._run.emit(NodeFinishedEvent(self._run.run_id, self._path + node.name, output))
        if self._takes and edge is not None:
            _report_path(node, self._walk, edge)

    def follows(self, node: CompiledNode, value: Any) -> None:
        """Emit the answer, if the next node and all that follow pass it on."""
        if self._answers and node.only_taps:
            self._run.report_answer(value)


def _listeners(walk: Walk) -> _Listeners | None:
    """Return those who listen to the nodes of a frame; None: nobody does."""
    handlers = walk.run.handlers
    return _Listeners(walk) if handlers and any(kind in handlers for kind in _HEARD) else None


def execute(walk: Walk) -> Awaitable[Any]:
    """Execute the nodes of a frame from its current one to END, and return the value that arrives there.

    Raises:
        RunError: a node failed, no edge takes an output, or a budget is used up.
        Suspend: the run waits for people, or is to pause.
    """
    return _execute_durably(walk) if walk.run.log.durable else _execute_in_memory(walk)


async def _execute_in_memory(walk: Walk) -> Any:  # noqa: C901  long because each call out of it would cost every node
    """Execute the nodes of a frame in a run without a store.

    The place of a node in the budgets is kept for the next one, and a node that left nothing in the log leaves nothing to forget, so
    its end is a few fields of the frame.
    """
    run, frame, limits, deadline = walk.run, walk.frame, walk.limits, walk.deadline
    session, log, around, recorded = run.session, run.log, run.plan.around_node, run.session.recorded
    told, alone, counted, state = _listeners(walk), not around, limits.frame, log.state
    visits, visit = frame.visits, frame.visit
    node = walk.strategy.node(visit.node or "")
    value: Any = walk.input()
    assert node is not None
    following = cast("CompiledNode | None", None)
    number, latest, source = state.number if frame.is_new else -1, visit.latest, visit.source
    counts_too = () if frame.activation is not None else tuple(frame.counted_around())
    watched = told is not None or recorded is not None
    limits.count_running(1)
    try:
        while node is not DONE:
            if deadline is not None:
                await walk.stop_if_late(deadline)
            function = node.function if alone else None
            if function is None and node.rules:
                check_rules(walk, node.rules)
            if counted.nodes >= limits.until:
                await limits.enter_next_node(node.counts)
            taken: CompiledEdge | None = None
            if function is None and not node.counts:  # the nodes inside have places of their own
                limits.count_running(-1)
            try:
                if told is not None:
                    told.started(node, value)
                try:
                    try:
                        if function is not None:
                            returned = await function(Context(walk, visit, latest), value)
                        else:
                            returned = await (
                                execute_around(node, walk, value, around) if around else node.call(walk, value)
                            )
                    except BaseException as raised:
                        await translate(raised, f"node {run.node_of(frame)!r}")
                        raise
                    if type(returned) is not node.kind and node.kinds and not isinstance(returned, node.kinds):
                        raise wrong_output(node.declared, returned)
                except Exception as error:  # noqa: BLE001  raised again there, if no edge takes it
                    following, passed = _after_error(node, walk, error, value)
                    returned = None
                    visit, ended = frame.visit, False
                    number, latest, source = state.number, visit.latest, visit.source
                except BaseException as interruption:
                    _interrupted(node, walk, interruption)
                    raise
                else:
                    if node.passes_input:
                        returned = value
                    passed = returned
                    following, ended = node.following, True
                    if following is None:
                        try:
                            for taken in node.edges:
                                test = taken.test
                                if test is None:
                                    passed = _offer(taken, walk, returned)
                                    if passed is not _REFUSED:
                                        break
                                else:
                                    try:
                                        if test(returned):
                                            passed = returned
                                            break
                                    except Exception as error:
                                        raise _rule_failed(taken, taken.rules[0], walk, error) from error
                            else:
                                raise _no_path(node, walk, returned)
                        except BaseException as error:
                            _failed(node, walk, error)
                            if told is not None:
                                with limits.without_one():
                                    told.finished(node, returned)
                            raise
                        following = taken.target
                    if state.number == number:
                        state.number = latest = number = number + 1
                        frame.nodes += 1
                        if counts_too:
                            for each in counts_too:
                                each.nodes += 1
                        name = following.name
                        frame.visit = visit = Visit(name, passed, source, number, number, number)
                        if name:
                            visits[name] += 1
                        else:
                            frame.ended = number
                    else:
                        tap = node.passes_input and (taken is None or not taken.changes)
                        log.finish_node(frame, following.name, passed, None, tap, node.counts)
                        visit = frame.visit
                        number, latest, source = state.number, visit.latest, visit.source
            finally:
                if function is None and not node.counts:
                    limits.count_running(1)
            if watched or session.attention:
                with limits.without_one():
                    if told is not None and ended:
                        told.finished(node, returned, taken)
                    if recorded is not None:
                        recorded.left(frame, node.name)
                    if session.attention:
                        run.between_nodes(frame)
                        told = _listeners(walk)
                        watched = told is not None or recorded is not None
                    if told is not None:
                        told.follows(following, passed)
            node, value = following, passed
    finally:
        limits.count_running(-1)
    return value


async def _execute_durably(walk: Walk) -> Any:
    """Execute the nodes of a frame in a run with a store: each gets its input from the bytes in the log, and is committed at its end."""
    run, frame, limits, deadline = walk.run, walk.frame, walk.limits, walk.deadline
    log, session, recorded, told = run.log, run.session, run.session.recorded, _listeners(walk)
    node, value = walk.strategy.node(frame.visit.node or ""), walk.input()
    assert node is not None
    while node is not DONE:
        if deadline is not None:
            await walk.stop_if_late(deadline)
        if node.rules:
            check_rules(walk, node.rules)
        if node.counts:
            if limits.frame.nodes >= limits.looks:
                await limits.let_others()
            limits.enter_node()
        name = node.name
        node, value = await _execute_node(node, walk, told, value)
        if recorded is not None:
            recorded.left(frame, name)
        # The end of the run is committed together with the end of its last node, unless somebody looks in between.
        if node is not DONE or frame is not session.run.frame:
            await log.commit()
            value = walk.input()
        elif session.stops_soon or run.plan.checks_answer:
            await log.commit()
        if session.attention:
            run.between_nodes(frame)
            told = _listeners(walk)
        if told is not None:
            told.follows(node, value)
    return value


async def _execute_node(
    node: CompiledNode, walk: Walk, told: _Listeners | None, value: Any
) -> tuple[CompiledNode, Any]:
    """Execute a node of a run with a store, and record its end. Return the next node, and the value that it gets."""
    around, frame = walk.run.plan.around_node, walk.frame
    output, ended = value, False
    try:
        try:
            if told is not None:
                told.started(node, value)
            try:
                try:
                    if around:
                        returned = await execute_around(node, walk, value, around)
                    elif node.function is not None:
                        returned = await node.function(Context(walk, frame.visit, frame.visit.latest), value)
                    else:
                        returned = await node.call(walk, value)
                except BaseException as raised:
                    await translate(raised, f"node {walk.run.node_of(frame)!r}")
                    raise
                if node.declared is not Any and not is_a(returned, node.declared):
                    raise wrong_output(node.declared, returned)
            except Exception as error:  # noqa: BLE001  raised again there, if no edge takes it
                return _after_error(node, walk, error, value)
            except BaseException as interruption:
                _interrupted(node, walk, interruption)
                raise
            output, ended = value if node.passes_input else returned, True
            following, passed, taken = _leave(node, walk, output)
        finally:
            if node.counts:
                walk.limits.count_running(-1)
    except BaseException:
        if ended and told is not None:
            told.finished(node, output)
        raise
    # The state has changed before: what a handler raises ends the run, and the node is not executed again.
    if told is not None:
        told.finished(node, output, taken)
    return following, passed


def _leave(node: CompiledNode, walk: Walk, output: Any) -> tuple[CompiledNode, Any, CompiledEdge | None]:
    """Record that a node ended. Return the next one, the value that it gets, and the edge, where there was a choice.

    Raises:
        RunError: no edge takes the output, a condition raised, or the value cannot be stored.
    """
    run, frame = walk.run, walk.frame
    following, passed, taken = node.following, output, cast("CompiledEdge | None", None)
    try:  # no error edge of the node takes what goes wrong after it
        if following is None:
            taken, passed = _chosen(node, walk, output)
            following = taken.target
        mapped = taken is not None and taken.changes
        kind = taken.value_type if taken is not None and mapped else node.output_type
        number = None if taken is None else taken.number
        tap = node.passes_input and not mapped
        run.log.finish_node(frame, following.name, passed, kind, tap, node.counts, number, mapped)
    except SerializationError as error:
        failed = run.of_run(NodeFailedError(run.path_of(frame) + node.name, error))
        _failed(node, walk, failed)
        raise failed from error
    except BaseException as error:
        _failed(node, walk, error)
        raise
    return following, passed, taken


def _chosen(node: CompiledNode, walk: Walk, output: Any) -> tuple[CompiledEdge, Any]:
    """Return the first edge that takes an output, and the value that it passes on.

    Raises:
        NodeFailedError: a condition or a change raised.
    """
    for edge in node.edges:
        passed = _offer(edge, walk, output)
        if passed is not _REFUSED:
            return edge, passed
    raise _no_path(node, walk, output)


def _no_path(node: CompiledNode, walk: Walk, output: Any) -> NoPathError:
    run, labels = walk.run, [edge.label for edge in node.edges]
    return run.of_run(NoPathError(run.path_of(walk.frame) + node.name, output, labels))


def _after_error(node: CompiledNode, walk: Walk, error: Exception, given: Any) -> tuple[CompiledNode, Any]:
    """Record that an error of a node was caught by one of its edges. Return the next node, and the value that it gets."""
    log = walk.run.log
    if log.stale is not None:
        raise error
    edge, caught, passed = _recover(node, walk, error, given)
    log.append(_recovered(node, walk, edge, caught, passed))
    return edge.target, passed


def _interrupted(node: CompiledNode, walk: Walk, interruption: BaseException) -> None:
    """Record that a node was cancelled.

    Raises:
        Suspend: the run only stops here.
    """
    if isinstance(interruption, Suspend):
        raise Suspend from None
    _failed(node, walk, interruption)


def _recovered(node: CompiledNode, walk: Walk, edge: CompiledEdge, caught: Exception, passed: Any) -> NodeFinished:
    log, frame = walk.run.log, walk.frame
    value: Any = NO_VALUE
    tap = node.passes_input and not edge.changes
    if not tap:
        kind = edge.value_type if edge.changes else edge.errors[0]
        try:
            value = log.keep(passed, kind)
        except SerializationError as error:
            if edge.changes:
                failed = walk.run.of_run(NodeFailedError(walk.run.path_of(frame) + node.name, error))
                _failed(node, walk, failed)
                raise failed from error
            value = log.keep(str(caught))  # an error is made of it when it is read
    return NodeFinished(
        at=frame.path, to=edge.target.name, value=value, tap=tap, edge=edge.number, mapped=True,
        error=(type(caught).__name__, str(caught)), nodes=node.counts,
    )  # fmt: skip


def _failed(node: CompiledNode, walk: Walk, error: BaseException) -> None:
    """Record that a node failed, or was cancelled. The next commit makes the entry durable."""
    log = walk.run.log
    if log.stale is None and walk.run.log.state.frames.get(walk.frame.path) is walk.frame:
        text = str(error) if isinstance(error, RunError) else ""
        log.append(
            NodeFailed(
                at=walk.frame.path, error=(type(error).__name__, text), nodes=node.counts,
                cancelled=not isinstance(error, Exception),
            )
        )  # fmt: skip


def _offer(edge: CompiledEdge, walk: Walk, output: Any) -> Any:
    """Return the value that an edge passes on for an output; `_REFUSED` if it does not take the output.

    Raises:
        NodeFailedError: a condition or a change raised.
    """
    value = output
    for rule in edge.rules:
        try:
            if rule.change is not None:
                value = rule.change(value)
            elif rule.takes_context:
                visit = walk.frame.visit
                context = Context(walk, visit, visit.latest, None, visit.latest)
                if rule.test is not None and not rule.test(context, value):
                    return _REFUSED
            elif rule.test is not None and not rule.test(value):
                return _REFUSED
        except Exception as error:
            raise _rule_failed(edge, rule, walk, error) from error
    return value


def _rule_failed(edge: CompiledEdge, rule: Rule, walk: Walk, error: Exception) -> NodeFailedError:
    run = walk.run
    note_source(error, f".{rule.verb}({rule.what or '…'}) before {edge.target.name or 'END'!r}")
    return run.of_run(NodeFailedError(run.node_of(walk.frame), error))


def _report_path(node: CompiledNode, walk: Walk, edge: CompiledEdge) -> None:
    run = walk.run
    if PathTaken in run.handlers:
        path = run.path_of(walk.frame) + node.name
        run.emit(PathTaken(run.run_id, path, edge.label, edge.target.name or "END"))


def _recover(node: CompiledNode, walk: Walk, error: Exception, given: Any) -> tuple[CompiledEdge, Exception, Any]:
    """Return the error edge for an error, the part of the error that it takes, and the value that it passes on.

    The edge of a tap passes on the input of the tap.
    """
    run = walk.run
    path = run.path_of(walk.frame) + node.name
    if NodeFailedEvent in run.handlers:
        run.emit(NodeFailedEvent(run.run_id, path, error))
    for edge in node.error_edges:
        caught = matching(error, edge.errors, run.lineage)
        if caught is not None:
            passed = _offer(edge, walk, given if node.passes_input else caught)
            if passed is not _REFUSED:
                _report_path(node, walk, edge)
                return edge, caught, passed
    _failed(node, walk, error)
    if isinstance(error, RunError) and error.run_id in run.lineage:
        raise error
    raise run.of_run(NodeFailedError(path, error)) from error
