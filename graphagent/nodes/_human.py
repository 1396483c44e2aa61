"""Nodes that wait for a person."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, overload

from graphagent.graph import Node

if TYPE_CHECKING:
    from graphagent.memory.notes import NoteMemory, NoteView
    from graphagent.run import Context

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _AskHuman:
    question: str | Callable[[Any], str]
    asks: Any
    """The type of the answer."""
    lessons: NoteMemory | None = field(default=None)
    """Where lessons are kept."""

    async def __call__(self, ctx: Context, value: Any) -> Any:
        if self.lessons is None:
            return await self._answer(ctx, value)
        from graphagent.memory.notes import apply_lessons, learn_lessons

        notes, output = self.lessons.bind(ctx), value if isinstance(value, str) else ""
        model = notes.asks
        if model is not None and output:

            async def apply() -> str:
                return await apply_lessons(notes, output, model)

            value = await ctx.once("lessons", apply)
        answer = await self._answer(ctx, value)
        if model is not None and isinstance(answer, str) and output:
            # A person said it, and the model that takes a lesson from it reads nothing that came from outside.
            seen = value if ctx.memory.trust != "untrusted" else ""

            async def learn() -> int:
                return len(await learn_lessons(notes.vouched(), seen, answer, model, run_id=ctx.run_id))

            await ctx.once("learned", learn)
        return answer

    async def _answer(self, ctx: Context, value: Any) -> Any:
        text: object = self.question(value) if callable(self.question) else self.question
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            said = type(text).__name__
            raise TypeError(f"the question of node {ctx.node!r} is text, or a function that gives text, not a {said}")
        return await ctx.ask(text, self.asks, about=value)


@overload
def ask_human(
    question: str | Callable[[Any], str], kind: type[T], *, learn: NoteView | None = None, name: str = "ask_human"
) -> Node[object, T]: ...
@overload  # a union or a Literal, which is no class
def ask_human(
    question: str | Callable[[Any], str], kind: Any, *, learn: NoteView | None = None, name: str = "ask_human"
) -> Node[object, Any]: ...
def ask_human(
    question: str | Callable[[Any], str], kind: Any, *, learn: NoteView | None = None, name: str = "ask_human"
) -> Node[object, Any]:
    """Make a node that asks a person, and gives the answer. The run is suspended until there is one, days if need be.

    `result.pending` is the question; `agent.resume(run_id, answer=…)` continues, in any process.

    Args:
        question: What is asked, or a function that makes it of the node's input.
        kind: The type of the answer, which is checked before anything is written.
        learn: Notes from which lessons are applied, by the model of the run, to a text before a person sees it (`question` gets it,
            and `result.pending.about` is it), and in which the lessons of what that person answers are kept.
        name: How the node is called.

    Raises:
        TypeError: the question is neither text nor a plain function, or `kind` is no type.
    """
    if not (isinstance(question, str) or callable(question)):
        raise TypeError(f"the question of {name!r} is text, or a function that makes it, not {type(question).__name__}")
    if inspect.iscoroutinefunction(question):
        raise TypeError(f"the question of {name!r} is an async function; make the text in a node before it")
    lessons: NoteMemory | None = None
    if learn is not None:
        from graphagent.memory.notes import NoteMemory

        lessons = NoteMemory(learn, recall=False, learn=False, tools=False)
    return Node(_AskHuman(question, kind, lessons), name=name, input_type=object, output_type=kind)
