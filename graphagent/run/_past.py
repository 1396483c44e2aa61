"""What a stored run has executed of things that its log does not note, since no rule named them then.

The log has for each node where it is declared, and when it began and ended. So a run can be continued under rules that are newer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphagent.log._executed import scope_of
from graphagent.log._replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from graphagent.graph import Outline
    from graphagent.log._log import Watch
    from graphagent.log._replay import Called
    from graphagent.log._state import Occurrences, RuleScope, State
    from graphagent.log._visits import Activation, Frame
    from graphagent.run._compiled import KnownAs


class Past:
    """What a run executed of things that rules name, collected while its log is read."""

    def __init__(self, ruled: Callable[[Activation], KnownAs]) -> None:
        self._replay = Replay(self._names)
        self._ruled = ruled
        """Returns what rules name in the run of an agent."""
        self._ruled_in: dict[str, KnownAs] = {}
        """What it returned, by the paths of the agents."""
        self._places: dict[tuple[str, str], str] = {}

    @property
    def watch(self) -> Watch:
        """What is to see each entry."""
        return self._replay.watch

    def _names(self, run: Replay, frame: Frame, number: int, called: Called | None) -> list[tuple[RuleScope, str]]:
        """Return the names that rules have for something that begins."""
        agent, place = frame.agent, "" if called is not None else self._place(frame, frame.node_path)
        names = frozenset([agent.declared.get(place, "")]) if called is None else called.known_as
        within = () if called is None else called.within
        found: list[tuple[RuleScope, str]] = []
        for each in _around(frame):
            path = each.agent.path
            ruled = self._ruled_in[path] = self._ruled_in[path] if path in self._ruled_in else self._ruled(each.agent)
            around = self._place(each, each.path.rstrip("/")) if ruled else ""
            for (strategy, wanted), known_as in ruled.items():
                # A sub-agent is at no place of the strategy of its caller.
                is_there = bool(place) and each.agent is agent and place == f"{around}{wanted}".lstrip("/")
                if strategy == around and (is_there or not known_as.isdisjoint(names)):
                    found.append((scope_of(each), wanted))
        return [each for each in found if each not in within]

    def _place(self, frame: Frame, path: str) -> str:
        """Return the path in the strategy of its agent of a place in the run."""
        agent = frame.agent
        key = agent.path, path[len(agent.frame.path) :]
        if key not in self._places:
            self._places[key] = place_of(agent.strategy, key[1])
        return self._places[key]

    def visits(self, state: State) -> Iterator[tuple[str, str, Occurrences]]:
        """Yield what was executed that the log does not note, each with the path of the frame of the strategy that has the rules.

        Args:
            state: The state at the end.
        """
        self._replay.end(state)
        for scope, found in self._replay.executed.items():
            frame = state.frames.get(scope[0])
            if frame is not None and scope_of(frame) == scope:
                around = self._place(frame, frame.path.rstrip("/"))
                noted = frame.agent.ruled
                yield from ((scope[0], name, found[name]) for name in found if (around, name) not in noted)


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


def new_rules(
    ruled: tuple[tuple[str, str], ...], declared: Mapping[str, str], state: State, past: Past | None
) -> dict[str, Any]:
    """Return the fields of the entry `resumed` that are about rules: what the log did not note so far, and notes from now on.

    Args:
        ruled: What rules name now.
        declared: The names of the declarations of the strategy as it is now.
        state: The state of the run.
        past: What the run executed; None if no rule names anything.
    """
    run = state.run
    return {
        "declared": dict(declared) if dict(declared) != run.declared else None,
        "ruled": ruled if ruled != run.ruled else None,
        "executed": tuple(past.visits(state)) if past is not None else (),
    }
