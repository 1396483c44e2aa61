"""A model that is asked about notes: what it answers is used or not, but nothing fails because it does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from graphagent.errors import GraphAgentError, OutputError
from graphagent.events import InferenceFailed
from graphagent.llm import structured

if TYPE_CHECKING:
    from graphagent.events import Event
    from graphagent.llm import Message, OutputFormat
    from graphagent.protocols import Model

_log = logging.getLogger("graphagent")
_DOING = {
    "save": "inferring details of saved notes; the notes are kept without them",
    "consolidate": "comparing a saved note with others like it; all of them are kept",
    "extract": "splitting a text into statements; it is taken as a whole",
    "query": "analysing a question; it is searched for as it stands",
    "explore": "looking further for a question; what was found so far is given",
    "learn": "working with lessons; none is kept or applied",
}
"""What it was asked for, by its task, and what is done instead."""

PATIENCE = 120.0
"""Seconds after which a model that has not answered is not waited for."""


class NoAnswerError(GraphAgentError):
    """A model gave no usable answer; whoever asked goes on as without a model."""

    def __init__(self, reason: str, *, spoke: bool) -> None:
        self.spoke = spoke
        """Whether it answered at all: asking it about something else may work."""
        super().__init__(reason)


class Asker:
    """Asks a model, and tells who listens where that gave nothing."""

    def __init__(self, model: Model, tell: Callable[[Event], object]) -> None:
        self._model = model
        self._tell = tell

    async def ask(self, task: str, messages: Sequence[Message], form: OutputFormat[Any], *, attempts: int = 2) -> Any:
        """Give the model's answer to one task; an answer that does not fit is asked for again, as `structured` does.

        Raises:
            NoAnswerError: there is none; it is logged, and told to who listens.
        """
        try:
            with anyio.fail_after(PATIENCE):
                return await structured(self._model.respond, messages, form, attempts=attempts)
        except OutputError as error:
            raise self.failed(task, str(error), spoke=True) from error
        except Exception as error:  # a model of one's own may raise anything, and no note may be lost by that
            reason = str(error) if isinstance(error, GraphAgentError) else ""
            reason = f"{type(error).__name__}{': ' if reason else ''}{reason}"
            raise self.failed(task, reason, spoke=False) from error

    def failed(self, task: str, reason: str, *, spoke: bool = True) -> NoAnswerError:
        """Log and tell that an answer cannot be used, and give the error that says so."""
        _log.warning("the model failed while %s: %s", _DOING.get(task, f"it was asked for {task!r}"), reason)
        self._tell(InferenceFailed("", task, reason))
        return NoAnswerError(reason, spoke=spoke)
