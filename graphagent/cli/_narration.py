"""Shows a run to a person at a terminal: text as it is written, and the tools that are called."""

from __future__ import annotations

import re
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from graphagent.cli import _output
from graphagent.cli.runs._progress import live_progress
from graphagent.events import (
    ModelResponded,
    NodeFailed,
    NodeFinished,
    NodeStarted,
    TextStreamed,
    ToolCalled,
    ToolReturned,
)
from graphagent.graph import Strategy
from graphagent.graph._types import fits
from graphagent.llm import ToolCalls

if TYPE_CHECKING:
    from graphagent import Agent

_LONGEST = 300
"""The number of characters shown of a value."""
_BRANCH = re.compile(r"/\d+(?=/)")
"""The number of a branch in the path of a node."""


class Narration:
    """Prints what the runs of an agent do: the text on standard output, everything else on standard error.

    A terminal also has a live line with the node or call in execution, except while text is written.

    The text of nodes that answer with text outside of branches is printed as it is written; branches write at the same time. The
    output of all other nodes is printed, shortened, when they end.
    """

    def __init__(self, agent: Agent[Any, Any]) -> None:
        self.said = ""
        """The text that was printed last, as a whole."""
        self._flow = _output.Flow(_output.screen())
        self._progress = live_progress(agent, quiet=True)
        strategy: Strategy[Any, Any] = agent.strategy
        elements = {_BRANCH.sub("", f"/{path}"): element for path, element in strategy.walk()}
        self._asking = {path: element for path, element in elements.items() if element.asks_model}
        self._parts = {path for path, element in strategy.elements_by_name.items() if isinstance(element, Strategy)}
        agent.on(NodeStarted, self._on_node)
        agent.on(ModelResponded, lambda _: self._end_text())
        agent.on(TextStreamed, self._on_text)
        agent.on(NodeFinished, self._on_output)
        agent.on(NodeFailed, lambda event: self.say(f"  {event.node} failed: {type(event.error).__name__}"))
        agent.on(ToolCalled, lambda event: self.say(f"  {_output.value_text(event.call)}"))
        agent.on(ToolReturned, lambda event: self.say(f"  {event.result.name} returned {event.result.content}"))

    def __enter__(self) -> Self:
        self._progress.show()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flow.end()
        self._progress.hide()

    def say(self, text: str) -> None:
        """Print a remark, in one line."""
        self._end_text()
        self._progress.hide()
        indent = text[: len(text) - len(text.lstrip())]
        _output.aside(indent + _output.shortened(text, _LONGEST))
        self._progress.show()

    def _end_text(self) -> None:
        self._flow.end()
        self._progress.show()

    def _is_text(self, node: str) -> bool:
        """Return whether a node answers with text outside of branches; drafts are not answers."""
        element = self._asking.get(f"/{node}")
        purpose = getattr(getattr(element, "function", None), "purpose", "answer")
        return element is not None and purpose == "answer" and fits(str, getattr(element, "output_type", object))

    def _on_node(self, event: NodeStarted) -> None:
        if event.node in self._parts:
            self.say(f"  {event.node}")

    def _on_text(self, event: TextStreamed) -> None:
        if not self._is_text(event.node):
            return
        if not self._flow.begun:
            self.said = ""
            self._progress.hide()
        self.said += event.text
        self._flow.add(event.text)

    def _on_output(self, event: NodeFinished) -> None:
        told = isinstance(event.output, ToolCalls) or self._is_text(event.node)
        if not told and _BRANCH.sub("", f"/{event.node}") in self._asking:
            self.say(f"  {event.node}: {_output.value_text(event.output)}")
