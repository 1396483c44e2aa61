"""A tap that waits for a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from graphagent.graph import Tap

if TYPE_CHECKING:
    from graphagent.run import Context


_LONGEST = timedelta(days=1000 * 366)


@dataclass(frozen=True, slots=True)
class _Sleep:
    time: timedelta

    async def __call__(self, ctx: Context, _: Any) -> None:
        await ctx.sleep(self.time)


def sleep(seconds: float | timedelta, *, name: str = "sleep") -> Tap:
    """Make a tap that waits for some time. The run is suspended meanwhile, and continues when it is resumed after that time.

    `result.due` says when. No process need be alive until then; see `Context.sleep`.

    Args:
        seconds: The time to wait: a number of seconds, or a timedelta.
        name: The name of the tap.

    Raises:
        TypeError: `seconds` is neither.
        ValueError: the time is negative, or longer than a thousand years.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float | timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name!r} sleeps for a number of seconds, or a timedelta, not a {type(seconds).__name__}")
    try:
        time = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        time = timedelta.max
    if not timedelta() <= time <= _LONGEST:
        raise ValueError(f"{name!r} sleeps for {seconds!r} seconds; give 0 or more, up to a thousand years")
    return Tap(_Sleep(time), name=name)
