"""The handlers of events: checked when they are registered, found by the type of an event, called in order."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast, final

from graphagent._article import kind_of
from graphagent.errors import HandlerError
from graphagent.events import Event, OutputStreamed, TextStreamed

Handler = Callable[[Any], None]
Handlers = Mapping[type[Event], tuple[Handler, ...]]
"""The handlers of each concrete type of event, in the order of their registration."""


@final
class AnswerHandler:
    """A handler of TextStreamed or OutputStreamed that hears the answer of its own run alone."""

    __slots__ = ("_handler",)

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def __call__(self, event: TextStreamed | OutputStreamed) -> None:
        if event.output == "answer":
            self._handler(event)


@dataclass(frozen=True, slots=True)
class Listener:
    """A handler, the type of events that it listens to, and how much of the text of models it hears."""

    event: type[Event]
    handler: Handler
    all_text: bool = False

    def of(self, kind: type[Event]) -> tuple[Handler, ...]:
        """Return the function to call with an event of a type, or None if no handler listens."""
        if not issubclass(kind, self.event):
            return ()
        heard_alone = issubclass(kind, TextStreamed | OutputStreamed) and not self.all_text
        return (AnswerHandler(self.handler) if heard_alone else self.handler,)


def listener(event: Any, handler: Any, call: str, *, all_text: bool = False) -> Listener:
    """Return the listener that `on` adds. Errors show it as `call`.

    Raises:
        TypeError: see `check_handler`; or `all_text` is given for an event without the text of models.
    """
    check_handler(event, handler, call, "NodeFinished")
    if all_text and not (issubclass(TextStreamed, event) or issubclass(OutputStreamed, event)):
        raise TypeError(f"all_text=True is for TextStreamed and OutputStreamed; leave it out for {event.__name__}")
    return Listener(event, ending(handler), all_text)


def by_type(listeners: Iterable[Listener], known: Handlers | None = None) -> Handlers:
    """Return the handlers of each concrete type of event: the existing ones, then those of the listeners."""
    known, listeners = known or {}, tuple(listeners)
    kinds: list[type[Event]] = [Event]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    found = {kind: (*known.get(kind, ()), *(told for each in listeners for told in each.of(kind))) for kind in kinds}
    return {kind: handlers for kind, handlers in found.items() if handlers}


def handlers_of_child(around: Handlers, own: Handlers, *, speaks: bool = False) -> Handlers:
    """Return the handlers of a sub-agent: the listeners of the run around, unless they hear only its answer, then the sub-agent's own.

    A sub-agent that `speaks` says a part of the answer.
    """
    heard = {
        kind: tuple(each for each in around[kind] if speaks or not isinstance(each, AnswerHandler)) for kind in around
    }
    found = {kind: (*heard.get(kind, ()), *own.get(kind, ())) for kind in dict.fromkeys((*heard, *own))}
    return {kind: handlers for kind, handlers in found.items() if handlers}


def check_handler(event: Any, handler: Any, call: str, example: str) -> None:
    """Check the arguments of `on`. Errors show it as `call`, with an example of an event.

    Raises:
        TypeError: the type is not an event, or the handler is async or cannot be called.
    """
    if not (isinstance(event, type) and issubclass(event, Event)):
        raise TypeError(
            f"on() takes an event type of graphagent.events and a handler, not {kind_of(cast('object', event))}; write "
            f"{call}({example}, handler)"
        )
    name = event.__name__
    if not callable(handler):
        raise TypeError(f"the handler of {name} is a function, not {kind_of(handler)}; write {call}({name}, handler)")
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
        raise TypeError(f"the handler of {name} is async; events are delivered at once, so it must be a plain function")


def ending(handler: Callable[[Any], object]) -> Handler:
    """Return a handler that raises HandlerError, with the cause, if the given handler raises."""

    def tell(event: Event) -> None:
        try:
            handler(event)
        except Exception as error:
            failed = HandlerError(getattr(handler, "__qualname__", repr(handler)), type(event).__name__, error)
            failed.run_id = event.run_id
            raise failed from error

    return tell
