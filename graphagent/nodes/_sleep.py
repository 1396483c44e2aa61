"""A tap that waits for a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from graphagent.graph import Tap
from graphagent.run._internal import check_duration

if TYPE_CHECKING:
    from graphagent.run import Context


@dataclass(frozen=True, slots=True)
class _Sleep:
    seconds: float | timedelta

    async def __call__(self, ctx: Context, _: Any) -> None:
        await ctx.sleep(self.seconds)


def sleep(seconds: float | timedelta, *, name: str = "sleep") -> Tap:
    """Make a tap that waits for so long. The run is suspended meanwhile, and continues when it is resumed after that.

    `result.due` says when. No process need be alive until then; see `Context.sleep`.

    Args:
        seconds: For how long: a number of seconds, or a timedelta.
        name: How the tap is called.

    Raises:
        TypeError: `seconds` is neither.
        ValueError: it is negative, or longer than a thousand years.
    """
    check_duration(f"{name!r}: seconds", seconds)
    return Tap(_Sleep(seconds), name=name)
