"""Middleware: the methods of features that are wrapped around runs, requests to models, tool calls and nodes.

A run without middleware pays nothing for it: it asks once, when it begins, which of its features define one of these methods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from graphagent._article import a, kind_of
from graphagent._error_source import note_source
from graphagent._raised import awaited, translate
from graphagent.errors import FeatureError, ToolError
from graphagent.graph import Node
from graphagent.graph._types import is_a, show
from graphagent.log._entries import NodeSkipped
from graphagent.run._effects import Effects
from graphagent.run._final_errors import Suspend, stops

if TYPE_CHECKING:
    from graphagent.protocols import Feature
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._compiled import CompiledNode
    from graphagent.run._walk import Walk

R = TypeVar("R")

Method: TypeAlias = Literal["around_model", "around_tool", "around_node"]
Proceed: TypeAlias = Callable[[Any], Awaitable[Any]]


async def pass_through(
    features: Sequence[Feature],
    method: Method,
    effects: Effects,
    value: Any,
    proceed: Proceed,
    *,
    kind: type[R],
    kept_on: tuple[type[BaseException], ...] = (),
) -> R:
    """Return the result of passing a value through features: the first is the outermost.

    Args:
        features: Those that define the method.
        method: The name of the method.
        effects: The effects whose `Context` they get.
        value: The request, the tool call, or the input of the node.
        proceed: Does what they are wrapped around.
        kind: The type of what each of them returns.
        kept_on: If one of these ends the features, what `proceed` returned is recorded, and is not done again when the run is
            resumed. A `ToolError` is not among them: it is an outcome, and may withhold the result.
    """
    raised: list[BaseException] = []
    done: list[Any] = []
    recorded = 0

    async def watched(passed: Any) -> Any:
        nonlocal recorded
        if raised:
            _stop(raised, effects)
        found = effects.find("proceed", f"{effects.scope}{len(done) + 1}") if kept_on else None
        if found is not None:
            recorded += 1
            done.append(found.value)
            return done[-1]
        try:
            try:
                returned = await proceed(passed)
            except BaseException as error:
                await translate(error, f"node {effects.node!r}")
                raise
        except (Exception, Suspend) as error:
            raised.append(error)
            raise
        done.append(returned)
        return returned

    passing: Proceed = watched
    ctx = effects.context()
    for feature in reversed(features):
        passing = _around(feature, method, ctx, passing, kind, raised)
    try:
        returned: R = await passing(value)
    except (Exception, Suspend) as error:
        if isinstance(error, kept_on) and not isinstance(error, ToolError):
            for number in range(recorded, len(done)):
                await effects.record_object("proceed", f"{effects.scope}{number + 1}", done[number])
        _stop(raised, effects)  # what a feature raised instead could be caught, or be shown to a model
        raise
    if raised:  # a feature that catches everything
        _stop(raised, effects)
    return returned


async def execute_around(node: CompiledNode, walk: Walk, value: Any, features: Sequence[Feature]) -> Any:
    """Execute a node within the middleware around nodes."""
    proceeded, failed = False, True
    own: Any = None
    effects = Effects(walk)

    async def proceed(value: Any) -> Any:
        nonlocal proceeded, failed, own
        if proceeded:
            raise FeatureError(
                f"around_node executes node {effects.node!r} twice, and its effects are recorded once; "
                f"let it proceed once, and put .retry(attempts=…) on the node"
            )
        proceeded = True
        own = await node.call(walk, value)
        failed = False
        return own

    returned = await pass_through(features, "around_node", effects, value, proceed, kind=object)
    if failed:
        walk.run.log.append(NodeSkipped(at=walk.frame.path, failed=proceeded))
    if returned is not own and isinstance(node.element, Node):
        declared = node.element.output_type
        if not is_a(returned, declared):
            names = ", ".join(type(feature).__name__ for feature in features)
            raise FeatureError(
                f"around_node ({names}) returned {kind_of(returned)} for node {effects.node!r}, which returns {show(declared)}; "
                f"end it with: return await proceed(…)"
            )
    return returned


def _stop(raised: Sequence[BaseException], effects: Effects) -> None:
    """Raise the first of some errors that stops the run, if one does."""
    for error in raised:
        if stops(error, effects.run.lineage):
            raise error


def _around(
    feature: Feature,
    method: Method,
    ctx: Any,
    proceed: Proceed,
    kind: type[Any],
    raised: Sequence[BaseException],
) -> Proceed:
    """Return what passes a value through one feature; `raised` has the errors that come from inside all of them."""

    async def call(value: Any) -> Any:
        returned: object
        try:
            try:
                returned = await getattr(feature, method)(ctx, value, proceed)
            except BaseException as error:
                await translate(error, _source(feature, method))
                raise
        except Exception as error:
            if not any(error is each for each in raised):
                note_source(error, _source(feature, method))
            raise
        if iscoroutine(returned):  # an `await` was forgotten; for a node, any object would do
            returned.close()
        elif isinstance(returned, kind):
            return returned
        raise FeatureError(
            f"{_source(feature, method)} returned {kind_of(returned)} and not "
            f"{'the output' if kind is object else a(kind.__name__)}; end it with: return await proceed(…)"
        )

    return call


def _source(feature: Feature, method: str) -> str:
    return f"{type(feature).__name__}.{method}"


async def around_run(run: AgentRun, execute: Callable[[], Awaitable[R]]) -> R:
    """Return the result of executing a run within the features that define `around_run`: the first is the outermost."""
    results: list[R] = []

    async def proceed() -> None:
        results.append(await execute())

    passing: Callable[[], Awaitable[None]] = proceed
    ctx = Effects(run.walk()).context()
    for feature in reversed(run.plan.around_run):
        passing = _around_run(feature, ctx, passing)
    await passing()
    if len(results) != 1:
        names = ", ".join(type(feature).__name__ for feature in run.plan.around_run)
        raise FeatureError(
            f"around_run ({names}) executed the run {len(results)} times; write `await proceed()` once, and let pass what it raises"
        )
    return results[0]


def _around_run(feature: Feature, ctx: Any, proceed: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    async def call() -> None:
        await awaited(feature.around_run(ctx, proceed), _source(feature, "around_run"))

    return call
