"""Middleware: the methods of features that are wrapped around requests to models, tool calls and nodes.

Who has none pays for none: a run asks once, when it begins, which of its features define one of these methods.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from graphagent._article import a, kind_of
from graphagent._features import implementing
from graphagent.errors import FeatureError, ToolError, note_source
from graphagent.run.engine._final_errors import stops
from graphagent.run.engine._suspend import Suspend

if TYPE_CHECKING:
    from graphagent.protocols import Feature

R = TypeVar("R")

Method: TypeAlias = Literal["around_model", "around_tool", "around_node"]
Proceed: TypeAlias = Callable[[Any], Awaitable[Any]]


def wrapping(features: Mapping[type[Any], Feature], method: Method) -> tuple[Feature, ...] | None:
    """Return the features that define such a method, in the order of their installation; None if there are none."""
    return tuple(implementing(features, method)) or None if features else None


async def pass_through(
    features: Sequence[Feature],
    method: Method,
    ctx: Any,
    value: Any,
    proceed: Proceed,
    *,
    kind: type[R],
    kept_on: tuple[type[BaseException], ...] = (),
) -> R:
    """Return what comes out of the features when a value is passed through them: the first is the outermost.

    Args:
        features: Those that define the method.
        method: The name of the method.
        ctx: The `Context` that they get.
        value: The request, the tool call, or the input of the node.
        proceed: Does what they are wrapped around.
        kind: The type of what each of them returns.
        kept_on: If one of these ends the features, what `proceed` returned is recorded, and is not done again when the run is resumed.
            A `ToolError` is not among them: it is an outcome, and may withhold the result.

    Raises:
        FeatureError: one returned something of another type.
        Exception: as a feature or `proceed` raises it. The error of a feature names it, in a note. An error of `proceed` that
            stops the run is raised whatever the features make of it.
    """
    raised: list[BaseException] = []
    done: list[Any] = []
    frame = ctx.__frame__
    recorded = 0

    async def watched(passed: Any) -> Any:
        if raised:
            _stop(raised, ctx.run_id)
        nonlocal recorded
        key = _key(len(done))
        if kept_on and frame.has_outcome(key):
            recorded += 1
            done.append(await frame.once(key, partial(proceed, passed)))
            return done[-1]
        try:
            done.append(await proceed(passed))
        except (Exception, Suspend) as error:
            raised.append(error)
            raise
        return done[-1]

    passing: Proceed = watched
    for feature in reversed(features):
        passing = _around(feature, method, ctx, passing, kind, raised)
    try:
        returned: R = await passing(value)
    except (Exception, Suspend) as error:
        if isinstance(error, kept_on) and not isinstance(error, ToolError):
            for number in range(recorded, len(done)):
                await frame.record(_key(number), done[number])
        _stop(raised, ctx.run_id)  # what a feature raised instead could be caught, or be shown to a model
        raise
    if raised:  # a feature that catches everything
        _stop(raised, ctx.run_id)
    return returned


def _key(number: int) -> str:
    return f"proceed:{number + 1}"


def _stop(raised: Sequence[BaseException], run_id: str) -> None:
    """Raise the first of some errors that stops the run, if one does."""
    for error in raised:
        if stops(error, run_id):
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
            returned = await getattr(feature, method)(ctx, value, proceed)
        except Exception as error:
            if not any(error is each for each in raised):
                note_source(error, f"{type(feature).__name__}.{method}")
            raise
        if iscoroutine(returned):  # whoever forgot `await`; for a node, any object would do
            returned.close()
        elif isinstance(returned, kind):
            return returned
        raise FeatureError(
            f"{type(feature).__name__}.{method} returned {kind_of(returned)} and not "
            f"{'the output' if kind is object else a(kind.__name__)}; end it with: return await proceed(…)"
        )

    return call
