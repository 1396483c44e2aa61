"""Shared by models around models: the check of their arguments, the properties of the inner model, and who has received text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphagent._options import check_can, check_respond

if TYPE_CHECKING:
    from graphagent.protocols import Model, Store


class TextRelay:
    """Passes streamed text on, and knows whether any text has arrived, since text that a reader has seen cannot be taken back."""

    __slots__ = ("_on_text", "has_heard")

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self.has_heard = False

    def __call__(self, text: str) -> None:
        if text:
            self.has_heard = True
        self._on_text(text)


def check_model(wrapper: str, model: object, example: str) -> None:
    """Check that the argument of a wrapper is a model.

    Raises:
        TypeError: it is not a model; `example` shows a correct call.
    """
    check_can("respond", model, f"{wrapper} takes a model", example)
    check_respond(model)


def tells_cost(model: Model) -> bool:
    """Return whether the answers of a model say what they cost: by its `tells_cost`, or else by that of the models that it wraps."""
    own = getattr(model, "tells_cost", None)
    inner = _wrapped(model)
    return bool(own) if own is not None or not inner else all(map(tells_cost, inner))


def inner_models(model: Model) -> list[Model]:
    """Return the models at the bottom of wrappers, in the order in which they are asked; a model that wraps no other is returned itself."""
    inner = _wrapped(model)
    return [leaf for each in inner for leaf in inner_models(each)] if inner else [model]


def stores_of(model: Model | None) -> list[Store]:
    """Return the stores that have answers of a model, or of the models that it wraps."""
    if model is None:
        return []
    own: Any = getattr(model, "store", None)
    return [own] * callable(getattr(own, "commit", None)) + [
        store for each in _wrapped(model) for store in stores_of(each)
    ]


def _wrapped(model: Model) -> list[Model]:
    """Return the models that a wrapper asks; for other models, an empty list."""
    found: Any = getattr(model, "models", None) or [getattr(model, "model", None)]
    return [each for each in found if callable(getattr(each, "respond", None))]
