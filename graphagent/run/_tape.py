"""Recorded results in the place of live calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphagent.errors import DivergedError
from graphagent.llm import ModelRequest, ModelResponse, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from graphagent.llm import Usage
    from graphagent.run._context import Context


class Tape:
    """What the nodes of a run did, up to an entry of it."""

    def __init__(
        self,
        effects: Mapping[str, list[tuple[str, Any]]],
        behind: Mapping[str, int],
        charged: Callable[[str], Usage],
        *,
        live: bool,
    ) -> None:
        self._charged = charged
        """Gives what was counted of a sub-agent's run."""
        self._effects = {node: list(done) for node, done in effects.items()}
        self._behind = dict(behind)
        """How much more each node did behind that entry."""
        self._live = live
        """Whether what is behind it is done live."""

    @property
    def left(self) -> int:
        """How many results were not used yet."""
        return sum(map(len, self._effects.values()))

    def has(self, node: str, key: str, like: object) -> bool:
        """Tell whether there is a result for what a node is about to do; it is done live only behind the recorded ones.

        Raises:
            DivergedError: it does something else than what was recorded.
        """
        recorded = self._effects.get(node)
        if not recorded:
            if self._live and (self._behind.get(node) or not self.left):
                return False
            raise DivergedError(node, f"it does {key!r}, and nothing more was recorded of it")
        found = next((done for name, done in recorded if name == key), None)
        if found is None:
            raise DivergedError(node, f"it does {key!r}, and {recorded[0][0]!r} was recorded")
        if not _is_alike(like, found):
            raise DivergedError(node, f"it does {key!r} with something else")
        return True

    def answers(self, node: str, key: str) -> bool:
        """Tell whether a person's answer was recorded."""
        return any(name == key for name, _ in self._effects.get(node, ()))

    def take(self, ctx: Context, key: str) -> Any:
        """Give the result, once, and count what it cost."""
        recorded = self._effects[ctx.node]
        place = next(n for n, (name, _) in enumerate(recorded) if name == key)
        _, found = recorded.pop(place)
        if isinstance(found, ModelResponse):
            ctx.spend(found.usage, key, found.model)
        elif isinstance(found, ToolResult):
            self._leave(ctx, recorded, found)
        return found

    def _leave(self, ctx: Context, recorded: list[tuple[str, Any]], result: ToolResult) -> None:
        """Leave out what was done within a call whose result is known, and count what that cost."""
        inside = [each for each in recorded if each[0].startswith(f"{result.call_id}/")]
        recorded[:] = [each for each in recorded if not each[0].startswith(f"{result.call_id}/")]
        for key, found in inside:
            if isinstance(found, ModelResponse):
                ctx.spend(found.usage, key, found.model)
        if result.run_id:
            ctx.spend(self._charged(result.run_id), result.name, run_id=result.run_id)


def _is_alike(like: object, found: object) -> bool:
    if isinstance(like, ModelRequest):
        return isinstance(found, ModelResponse)
    if isinstance(like, ToolCall):
        return isinstance(found, ToolResult) and found.name == like.name
    return True
