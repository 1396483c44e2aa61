"""The progress of a run: one live line on a terminal, occasional plain lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.live import Live
from rich.text import Text

from graphagent._article import counted
from graphagent.cli import _output
from graphagent.events import ModelResponded, NodeFailed, NodeFinished, NodeStarted, ToolCalled, ToolReturned

if TYPE_CHECKING:
    from graphagent import Agent

_SECONDS = 1.0
"""The shortest time between two plain lines."""
_REFRESHES = 8


class LiveLine:
    """Shows on standard error, within a `with` block, the present node or call of a run, and its costs."""

    def __init__(self, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self.at = ""
        """The node or call in execution."""
        self.turns = 0
        self.tokens = 0
        self.cost = Decimal(0)
        self._clock = clock
        self._since = clock()
        self._told: tuple[str, float] = "", float("-inf")
        console = _output.screen(err=True)
        self._spinner = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" if console.encoding.lower().startswith("utf") else "|/-\\"
        self._live = Live(
            console=console, get_renderable=self._picture, refresh_per_second=_REFRESHES, transient=True
        ) if console.is_terminal else None  # fmt: skip

    def __enter__(self) -> Self:
        self.show()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()

    def show(self) -> None:
        """Show the live line, if there is a terminal."""
        if self._live is not None:
            self._live.start()

    def hide(self) -> None:
        """Remove the live line."""
        if self._live is not None:
            self._live.stop()

    def changed(self) -> None:
        """Without a terminal, print a line if the node or call differs from that of the last line, unless `quiet`."""
        at, when = self._told
        now = self._clock()
        if not self._quiet and self._live is None and self.at != at and now - when >= _SECONDS:
            self._told = self.at, now
            _output.aside(self.line())

    def line(self) -> str:
        """Return the node or call in execution, with the turns, tokens, money and time spent."""
        return " · ".join(filter(None, (*spent(self.turns, self.tokens, self.cost, self.elapsed), self.at)))

    @property
    def elapsed(self) -> float:
        """The seconds for which the run has been executed."""
        return self._clock() - self._since

    @elapsed.setter
    def elapsed(self, seconds: float) -> None:
        self._since = self._clock() - seconds

    def say(self, text: str) -> None:
        """Print something above the live line."""
        if self._live is None:
            _output.aside(text)
        else:
            self._live.console.print(Text(_output.shown(text), style="dim"))

    def _picture(self) -> Text:
        picture = self._spinner[int(self._clock() * _REFRESHES) % len(self._spinner)]
        return Text(_output.shown(f"{picture} {self.line()}"), no_wrap=True, overflow="ellipsis")


def live_progress(agent: Agent[Any, Any], *, quiet: bool = False) -> LiveLine:
    """Return the progress of an agent's runs, including those of its sub-agents. With `quiet`, only a terminal shows it."""
    progress = LiveLine(quiet=quiet)
    doing: dict[tuple[str, str, str], str] = {}

    def began(run_id: str, node: str, call: str, what: str) -> None:
        around = next((at for (run, _, _), at in reversed(doing.items()) if run_id.startswith(f"{run}/")), "")
        doing[run_id, node, call] = f"{around} > {what}" if around else what
        tell()

    def ended(run_id: str, node: str, call: str = "") -> None:
        doing.pop((run_id, node, call), None)
        tell()

    def tell() -> None:
        run = agent.last
        if run is not None:
            result = run.result
            progress.turns, progress.tokens, progress.cost = result.turns, result.usage.total_tokens, result.usage.cost
            progress.elapsed = result.seconds
        if doing:
            progress.at = next(reversed(doing.values()))
        progress.changed()

    agent.on(NodeStarted, lambda event: began(event.run_id, event.node, "", event.node))
    agent.on(NodeFinished, lambda event: ended(event.run_id, event.node))
    agent.on(NodeFailed, lambda event: ended(event.run_id, event.node))
    agent.on(ModelResponded, lambda _: tell())
    agent.on(
        ToolCalled, lambda event: began(event.run_id, event.node, event.call.id, f"{event.node}: {event.call.name}")
    )
    agent.on(ToolReturned, lambda event: ended(event.run_id, event.node, event.result.call_id))
    return progress


def spent(turns: int, tokens: int, cost: Decimal | str, seconds: float) -> list[str]:
    """Return the turns, tokens, money and time spent as phrases, without those that are zero."""
    money = Decimal(cost)
    told = [counted(turns, "turn")] if turns else []
    told += [counted(tokens, "token")] if tokens else []
    told += [f"cost {money.normalize():f}"] if money else []
    return [duration(seconds), *told]


def duration(seconds: float) -> str:
    """Return a duration as people read it."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
