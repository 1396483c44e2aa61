"""Questions to a model about notes. No operation on notes fails because the model does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from graphagent._raised import awaited
from graphagent.errors import GraphAgentError, OutputError
from graphagent.events import InferenceFailed
from graphagent.llm import structured
from graphagent.store._cache import Asker, asker

if TYPE_CHECKING:
    from graphagent.events import Event
    from graphagent.llm import Message, OutputFormat
    from graphagent.protocols import Model

_log = logging.getLogger("graphagent.memory")
_DOING = {
    "save": "inferring details of saved notes; the notes are kept without them",
    "consolidate": "comparing a saved note with others like it; all of them are kept",
    "extract": "splitting a text into statements; it is taken as a whole",
    "query": "analysing a question; it is searched for as it stands",
    "explore": "looking further for a question; what was found so far is given",
    "learn": "working with lessons; none is kept or applied",
}
"""The request to the model for each task, and the consequence of a missing answer."""

PATIENCE = 120.0
"""After how many seconds without an answer a question is given up."""


class NoAnswerError(GraphAgentError):
    """A model gave no usable answer. The caller continues as without a model."""

    def __init__(self, reason: str, *, spoke: bool) -> None:
        self.spoke = spoke
        """Whether it answered at all. If so, other questions may work."""
        super().__init__(reason)


class ModelClient:
    """Asks a model, and emits an event if its answer is not usable."""

    def __init__(self, model: Model, emit: Callable[[Event], object], owner: str) -> None:
        self._model = model
        self._owner = owner
        self._emit = emit

    async def ask(self, task: str, messages: Sequence[Message], form: OutputFormat[Any], *, attempts: int = 2) -> Any:
        """Return the model's answer to one task. An answer that does not fit its form is asked for again, as by `structured`.

        Raises:
            NoAnswerError: the answer is missing or not usable. This is logged and emitted.
        """
        token = asker.set(Asker(self._owner))
        try:
            with anyio.fail_after(PATIENCE):
                asked = structured(self._model.respond, messages, form, attempts=attempts)
                return await awaited(asked, f"model {self._model.name!r}")
        except OutputError as error:
            raise self.failed(task, str(error), spoke=True) from error
        except Exception as error:  # a user's own model may raise anything, and no note may be lost by that
            reason = str(error) if isinstance(error, GraphAgentError) else ""
            reason = f"{type(error).__name__}{': ' if reason else ''}{reason}"
            raise self.failed(task, reason, spoke=False) from error
        finally:
            asker.reset(token)

    def failed(self, task: str, reason: str, *, spoke: bool = True) -> NoAnswerError:
        """Log and emit that a usable answer is missing, and return the error to raise."""
        _log.warning("the model failed while %s: %s", _DOING.get(task, f"it was asked for {task!r}"), reason)
        self._emit(InferenceFailed("", task, reason))
        return NoAnswerError(reason, spoke=spoke)
