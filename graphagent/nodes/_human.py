"""Nodes that wait for a person."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from graphagent.graph import Node, is_type
from graphagent.run import Question

if TYPE_CHECKING:
    from graphagent.run import Context

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _AskHuman:
    question: str | Callable[[Any], str]
    asks: Any
    """The type of the answer."""

    async def __call__(self, ctx: Context, value: Any) -> Any:
        text: object = self.question(value) if callable(self.question) else self.question
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            said = type(text).__name__
            raise TypeError(f"the question of node {ctx.node!r} is text, or a function that gives text, not a {said}")
        return await ctx.ask(Question(ctx.execution, text, ctx.node, about=value, type=self.asks))


@overload
def ask_human(question: str | Callable[[Any], str], kind: type[T], *, name: str = "ask_human") -> Node[object, T]: ...
@overload  # a union or a Literal, which is no class
def ask_human(question: str | Callable[[Any], str], kind: Any, *, name: str = "ask_human") -> Node[object, Any]: ...
def ask_human(question: str | Callable[[Any], str], kind: Any, *, name: str = "ask_human") -> Node[object, Any]:
    """Make a node that asks a person, and gives the answer. The run is suspended until there is one, days if need be.

    `result.pending` is the question; `agent.resume(run_id, answer=…)` goes on, in any process.

    Args:
        question: What is asked, or a function that makes it of the node's input.
        kind: The type of the answer, which is checked before anything is written.
        name: How the node is called.

    Raises:
        TypeError: the question is an async function, or `kind` is no type.
    """
    if inspect.iscoroutinefunction(question):
        raise TypeError(f"the question of {name!r} is an async function; make the text in a node before it")
    if not is_type(kind) and kind is not Any:
        raise TypeError(
            f"{name!r} asks for an answer of a type, such as bool or Literal['yes', 'no'], and {kind!r} is none"
        )
    return Node(_AskHuman(question, kind), name=name, takes=object, gives=kind)
