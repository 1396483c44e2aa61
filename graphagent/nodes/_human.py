"""Nodes that wait for a person."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from graphagent.graph import Node, type_hints
from graphagent.llm import Approve, Deny
from graphagent.nodes._verify import V
from graphagent.run import Deadline

if TYPE_CHECKING:
    from datetime import timedelta

    from graphagent.memory.notes import NoteMemory, NoteView
    from graphagent.run import Context

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Approved(Generic[V]):
    """A value that a person approved. For type checkers, a plain `Approved` has a text as its value."""

    value: V
    """The value that the person was asked about."""
    by: str = ""
    """Who approved the value, if the answer said so: `Approve(by=…)`."""
    at: datetime | None = None
    """When."""


@dataclass(frozen=True, slots=True)
class Denied(Generic[V]):
    """A value that a person did not approve. For type checkers, a plain `Denied` has a text as its value."""

    value: V
    """The value that the person was asked about."""
    reason: str = ""
    """The reason; empty if the person gave none."""
    by: str = ""
    """Who denied the value, if the answer said so: `Deny(…, by=…)`."""
    at: datetime | None = None
    """When."""

    def to_prompt(self) -> str:
        """Return the reason as a message to the model that made the value."""
        why = self.reason or "no reason was stated"
        return (
            f"A person did not approve this: {why}\n\nMend that, and answer with the whole, not only with what changed."
        )


@dataclass(frozen=True, slots=True)
class _AskHuman:
    question: str | Callable[[Any], str]
    asks: Any
    """The type of the answer."""
    until: Deadline
    lessons: NoteMemory | None = field(default=None)
    """The notes in which lessons are kept."""

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
            # A person said it, and the model that derives a lesson from it reads no text from outside.
            seen = value if ctx.memory.trust != "untrusted" else ""

            async def learn() -> int:
                return len(await learn_lessons(notes.vouched(), seen, answer, model, run_id=ctx.run_id))

            await ctx.once("learned", learn)
        return answer

    async def _answer(self, ctx: Context, value: Any) -> Any:
        text, until = _text(ctx, self.question, value), self.until
        return await ctx.ask(text, self.asks, about=value, deadline=until.when, default=until.default)


@dataclass(frozen=True, slots=True)
class _Approval:
    question: str | Callable[[Any], str]
    until: Deadline
    asks: ClassVar[Any] = bool | Approve | Deny

    async def __call__(self, ctx: Context, value: Any) -> Approved[Any] | Denied[Any]:
        text = _text(ctx, self.question, value)
        verdict = await ctx.ask(text, kind="approval", about=value, deadline=self.until.when)
        if isinstance(verdict, Deny):
            return Denied(value, verdict.reason, verdict.by, verdict.at)
        return Approved(value, verdict.by, verdict.at)


def _text(ctx: Context, question: str | Callable[[Any], str], value: Any) -> str:
    """Return the text of the question."""
    text: object = question(value) if callable(question) else question
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        said = type(text).__name__
        raise TypeError(f"the question of node {ctx.node!r} is text, or a function that gives text, not a {said}")
    return text


def _check_plain(question: object, name: str) -> None:
    if inspect.iscoroutinefunction(question):
        raise TypeError(f"the question of {name!r} is an async function; make the text in a node before it")
    if not (isinstance(question, str) or callable(question)):
        raise TypeError(f"the question of {name!r} is text, or a function that makes it, not {type(question).__name__}")


@overload
def ask_human(
    question: str | Callable[[Any], str], kind: type[T], *, learn: NoteView | None = None,
    deadline: timedelta | datetime | None = None, default: T = ..., name: str = "ask_human",
) -> Node[object, T]: ...  # fmt: skip
@overload  # a union or a Literal, which is not a class
def ask_human(
    question: str | Callable[[Any], str], kind: Any, *, learn: NoteView | None = None,
    deadline: timedelta | datetime | None = None, default: Any = ..., name: str = "ask_human",
) -> Node[object, Any]: ...  # fmt: skip
def ask_human(
    question: str | Callable[[Any], str], kind: Any, *, learn: NoteView | None = None,
    deadline: timedelta | datetime | None = None, default: Any = ..., name: str = "ask_human",
) -> Node[object, Any]:  # fmt: skip
    """Make a node that asks a person, and returns the answer. The run is suspended until the person answers, for days if necessary.

    `result.pending` is the question; `agent.resume(run_id, answer=…)` continues, in any process.

    Args:
        question: The question, or a function that makes it from the node's input.
        kind: The type of the answer, which is checked before anything is written.
        learn: Notes from which lessons are applied, by the model of the run, to a text before a person sees it (`question` gets it,
            and `result.pending.about` is it), and in which the lessons of what that person answers are kept.
        deadline: How long it can be answered, as a timedelta, or until when, as a datetime with a time zone. After that, resuming
            the run continues it without an answer.
        default: The output after the deadline. Without a default, the node raises QuestionExpiredError; continue with
            `.on_error(QuestionExpiredError)`.
        name: The name of the node.

    Raises:
        TypeError: the question is neither text nor a plain function, or `kind` is not a type; or the deadline is neither, or the default
            is not of the type, or without a deadline.
        ValueError: the deadline has no time zone.
    """
    _check_plain(question, name)
    until = Deadline(deadline, default)
    until.check(repr(name), "question", kind)
    lessons: NoteMemory | None = None
    if learn is not None:
        from graphagent.memory.notes import NoteMemory

        lessons = NoteMemory(learn, recall=False, learn=False, tools=False)
    return Node(_AskHuman(question, kind, until, lessons), name=name, input_type=object, output_type=kind)


@overload
def approval(
    question: str, *, deadline: timedelta | datetime | None = None, name: str = "approval"
) -> Node[str, Approved[str] | Denied[str]]: ...
@overload
def approval(
    question: str, kind: type[T], *, deadline: timedelta | datetime | None = None, name: str = "approval"
) -> Node[T, Approved[T] | Denied[T]]: ...
@overload
def approval(
    question: Callable[[T], str], kind: type[T] | None = None, *, deadline: timedelta | datetime | None = None,
    name: str = "approval",
) -> Node[T, Approved[T] | Denied[T]]: ...  # fmt: skip
def approval(
    question: str | Callable[[Any], str], kind: Any = None, *, deadline: timedelta | datetime | None = None,
    name: str = "approval",
) -> Node[Any, Approved[Any] | Denied[Any]]:  # fmt: skip
    """Make a node that asks a person whether its input may go on, and returns `Approved(value)` or `Denied(value, reason)`.

    ```text
    draft >> approve
    approve.on(Approved).map(lambda approved: approved.value) >> send
    approve.on(Denied).map(Denied.to_prompt) >> draft
    ```

    The run is suspended until there is an answer: True, False, `Approve(by="ada")` or `Deny("why not")`.

    Args:
        question: The question, or a function that makes it from the node's input, which `result.pending.about` is, too.
        kind: The type of the input; by default text, or the type that the function takes.
        deadline: How long it can be answered, as a timedelta, or until when, as a datetime with a time zone. After that, the node raises
            QuestionExpiredError when the run is resumed: `.on_error(QuestionExpiredError)` is the way on.
        name: The name of the node.

    Raises:
        TypeError: the question is neither text nor a plain function, or `kind` is not a type; or the deadline is neither.
        ValueError: the deadline has no time zone.
    """
    _check_plain(question, name)
    until = Deadline(deadline)
    until.check(repr(name), "approval", kind)
    if kind is None:
        kind = str
        if callable(question):
            kind = type_hints(question).get(next(iter(inspect.signature(question).parameters), ""), Any)
    output: Any = Approved[kind] | Denied[kind]
    return Node[Any, Any](_Approval(question, until), name=name, input_type=kind, output_type=output)
