"""Following a run, and finding where it breaks a rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphagent.errors import StrategyError
from graphagent.graph._check import Problem
from graphagent.graph._node import START
from graphagent.graph._outline import Outline
from graphagent.graph._rules import BrokenRule, PathRule
from graphagent.graph.rules._proof import Pattern, patterns

if TYPE_CHECKING:
    from graphagent.graph._strategy import Strategy


class _PatternWatch:
    """How far a run is with what a pattern forbids."""

    def __init__(self, rule: PathRule, pattern: Pattern) -> None:
        self.rule = rule
        self.pattern = pattern
        self.armed_by = START.name if pattern.at_start else ""
        """The path of the node after which none of `then` may be executed now; empty: there is none."""
        self.sources = set[str]()
        """The paths of those of `first` that are being executed."""
        self.guards: dict[str, bool] = {}
        """Those of `between`, each with whether all of `first` had ended when it began."""

    def over(self, path: str, place: str, *, itself: bool) -> None:
        """What is inside a node is over, and the node itself too, or not."""
        left = {each for each in self.sources if _is_inside(each, path) or (itself and each == path)}
        # A source that was tried again ends without having begun anew.
        if left or (itself and place in self.pattern.first):
            self.sources -= left
            self.armed_by = self.armed_by or min(left, default=path)
            self.guards = dict.fromkeys(self.guards, False)
        self.guards = {each: counts for each, counts in self.guards.items() if not _is_inside(each, path)}


class RunWatch:
    """Follows a run, whose reader calls its methods in the order of what happened, and collects in `broken` where it breaks rules.

    Paths are those of the run, such as `each/3/send`. Of a stored run there may be the outline alone; then rules name nodes by paths.

    Raises:
        StrategyError: a rule names a node that is not in the strategy, or one twice.
        TypeError: something in `rules` is no rule.
    """

    def __init__(self, strategy: Strategy[Any, Any] | Outline, rules: Sequence[PathRule]) -> None:
        if isinstance(rules, PathRule) or not all(isinstance(each, PathRule) for each in rules):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("rules= is a list of rules, such as [precedes(approve, send)]")
        places = list(strategy.walk())
        resolved = [(rule, patterns(rule, places)) for rule in rules]
        problems = [found for _, found in resolved if isinstance(found, Problem)]
        if problems:
            raise StrategyError(strategy.name, problems)
        self.outline = strategy if isinstance(strategy, Outline) else strategy.outline
        self.broken: list[BrokenRule] = []
        """The nodes that were executed against a rule, in the order of the run."""
        self._watches = [
            _PatternWatch(rule, each) for rule, found in resolved if not isinstance(found, Problem) for each in found
        ]
        self._found: dict[str, tuple[str, Outline]] = {}
        self._failed = set[str]()
        """The nodes that failed, and may be tried again or have been left."""

    def find(self, path: str) -> tuple[str, Outline]:
        """Return what `Outline.find` returns for a path, which occurs again and again."""
        if path not in self._found:
            self._found[path] = self.outline.find(path)
        return self._found[path]

    def begun(self, path: str, at: int) -> None:
        """A node, tap, strategy or fork was begun."""
        place = self.find(path)[0]
        frame = path.rpartition("/")[0]
        for each in [each for each in self._failed if each.rpartition("/")[0] == frame]:
            self._over(each)  # it was left, or begins anew
        for watch in self._watches:
            if place in watch.pattern.then and watch.armed_by:
                self.broken.append(BrokenRule(watch.rule, path, watch.armed_by, at))
            if place in watch.pattern.first:
                watch.armed_by = watch.armed_by or path
                watch.sources.add(path)
                watch.guards = dict.fromkeys(watch.guards, False)
            # One that is continued after an interruption has begun when it was begun first.
            if place in watch.pattern.between and path not in watch.guards:
                watch.guards[path] = not watch.sources

    def ended(self, path: str) -> None:
        """It came to its end."""
        self._failed.discard(path)
        for watch in self._watches:
            watch.over(path, self.find(path)[0], itself=True)
            if watch.guards.pop(path, False):
                watch.armed_by = ""

    def failed(self, path: str) -> None:
        """It failed. If it has a retry policy, it may be tried again, and is over only when something else follows."""
        self.left(path)
        if self.find(path)[1].retried:
            self._failed.add(path)
        else:
            self._over(path)

    def left(self, path: str) -> None:
        """What is inside it is over, while it continues itself. The empty path is the strategy as a whole."""
        place = self.find(path)[0]
        self._failed = {each for each in self._failed if not _is_inside(each, path)}
        for watch in self._watches:
            watch.over(path, place, itself=False)

    def _over(self, path: str) -> None:
        """It is over, and did not come to its end."""
        self._failed.discard(path)
        for watch in self._watches:
            watch.over(path, self.find(path)[0], itself=True)
            watch.guards.pop(path, None)


def _is_inside(path: str, around: str) -> bool:
    return not around or path.startswith(f"{around}/")
