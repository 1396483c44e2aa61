"""What a stored run has executed of what rules name. Its log has where each node is declared, so the rules may be newer than the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent.log._executed import scope_of
from graphagent.log._replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from graphagent.graph import Outline
    from graphagent.log._executed import Executed, RuleScope
    from graphagent.log._log import Watch
    from graphagent.log._replay import Begun
    from graphagent.log._visits import Activation, Frame
    from graphagent.run._compiled import KnownAs


class Past:
    """Follows a run while its log is read, and notes what it executes of what rules name.

    Args:
        ruled: Returns what rules name in the run of an agent; None if that is not known.
    """

    def __init__(self, ruled: Callable[[Activation], KnownAs | None]) -> None:
        self.replay = Replay(self._names)
        self._ruled = ruled
        self._ruled_in: dict[str, KnownAs] = {}
        """What it returned, by the paths of the agents."""
        self._places: dict[tuple[str, str], str] = {}

    @property
    def watch(self) -> Watch:
        """What is to see each entry."""
        return self.replay.watch

    def _names(self, executed: Executed, begun: Begun) -> list[tuple[RuleScope, str]]:
        """Return the names that rules have for something that begins."""
        agent, place = begun.frame.agent, "" if begun.called else self._place(begun.frame, begun.path)
        names = begun.known_as or frozenset([agent.declared.get(place, "")])
        found: list[tuple[RuleScope, str]] = []
        for each in _around(begun.frame):
            ruled = self._known_as(each.agent)
            around = self._place(each, each.path.rstrip("/")) if ruled else ""
            for (strategy, wanted), known_as in ruled.items():
                # A sub-agent is at no place of the strategy of its caller.
                is_there = bool(place) and each.agent is agent and place == f"{around}{wanted}".lstrip("/")
                if strategy == around and (is_there or not known_as.isdisjoint(names)):
                    found.append((scope_of(each), wanted))
        return [each for each in found if each not in begun.within]

    def _known_as(self, agent: Activation) -> KnownAs:
        """Return what rules name in the run of an agent. Of one that a node runs by itself, its log says that."""
        if agent.path not in self._ruled_in:
            known = self._ruled(agent)
            self._ruled_in[agent.path] = {each: frozenset(each[1:]) for each in agent.ruled} if known is None else known
        return self._ruled_in[agent.path]

    def _place(self, frame: Frame, path: str) -> str:
        """Return the path in the strategy of its agent of a place in the run."""
        agent = frame.agent
        key = agent.path, path[len(agent.frame.path) :]
        if key not in self._places:
            self._places[key] = place_of(agent.strategy, key[1])
        return self._places[key]


def _around(frame: Frame | None) -> Iterator[Frame]:
    while frame is not None:
        yield frame
        frame = frame.parent


def place_of(strategy: Outline | None, path: str) -> str:
    """Return the path in a strategy of a place in a run; `?` if nothing is there."""
    try:
        return strategy.find(path)[0] if strategy is not None else "?"
    except LookupError:
        return "?"
