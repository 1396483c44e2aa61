"""Nodes around notes. All pass their input on unchanged."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphagent.graph import Tap
from graphagent.llm import Message
from graphagent.memory import TaskStep

if TYPE_CHECKING:
    from graphagent.run import Context


@dataclass(frozen=True, slots=True)
class _Recall:
    query: str | Callable[[Any], str] | None
    scope: str | None
    categories: tuple[str, ...] | None
    limit: int | None
    characters: int | None

    async def __call__(self, ctx: Context, value: Any) -> None:
        from graphagent.memory.notes import NoteMemory

        query = self.query(value) if callable(self.query) else self.query
        if query is None:
            query = _text(value) or _task(ctx)
        if not isinstance(query, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the query of node {ctx.node!r} returned {type(query).__name__}, not text")
        await ctx.feature(NoteMemory).recall_to_agent(
            query, scope=self.scope, categories=self.categories, limit=self.limit, characters=self.characters
        )


@dataclass(frozen=True, slots=True)
class _Remember:
    content: Callable[[Any], Any] | None
    scope: str | None
    categories: tuple[str, ...] | None

    async def __call__(self, ctx: Context, value: Any) -> None:
        from graphagent.memory.notes import NoteMemory

        memory = ctx.feature(NoteMemory)
        if self.content is None:
            await memory.learn_from_history(scope=self.scope, categories=self.categories)
            return
        await memory.remember_many(self.content(value), scope=self.scope, categories=self.categories)


def recall_notes(
    query: str | Callable[[Any], str] | None = None,
    *,
    scope: str | None = None,
    categories: Sequence[str] | None = None,
    limit: int | None = None,
    characters: int | None = None,
    name: str = "recall_notes",
) -> Tap:
    """Make a tap that puts the notes that fit best before the model; those that it sees already are left out.

    Args:
        query: The text to search for, or a function that makes it from the tap's input; by default the input if it is text, or
            else the task.
        scope: The scope to search, with all scopes below it; by default the whole installed view.
        categories: Only notes that have one of these.
        limit: The largest number of notes; by default that of the installed NoteMemory.
        characters: The largest length of their text; by default that of the installed NoteMemory.
        name: The name of the tap.

    Raises:
        TypeError: the query is neither text nor a plain function, or a scope or category is not text.
        ValueError: `limit` or `characters` is not a number of 1 or more.
    """
    from graphagent.memory.notes import NoteMemory

    if query is not None and not (isinstance(query, str) or callable(query)):
        raise TypeError(f"the query of {name!r} is text, or a function that makes it, not {type(query).__name__}")
    for option, given in (("limit", limit), ("characters", characters)):
        if given is not None and (type(given) is not int or given < 1):
            raise ValueError(f"{name!r}: {option}={given!r} is not a limit; give a whole number of at least 1, or None")

    if inspect.iscoroutinefunction(query):
        raise TypeError(f"the query of {name!r} is an async function; make the text in a node before it")
    found = _Recall(query, _scope(scope, name), _names(categories, name), limit, characters)
    return Tap(found, name=name, needs=(NoteMemory,))


def remember_notes(
    content: Callable[[Any], Any] | None = None,
    *,
    scope: str | None = None,
    categories: Sequence[str] | None = None,
    name: str = "remember_notes",
) -> Tap:
    """Make a tap that keeps its input, or the statements of the run so far, as notes. The transcript is not changed.

    Args:
        content: A function that returns a text, or several, for the tap's input; `str` keeps a text as it is. Left out, a model
            splits the conversation of the run so far into statements.
        scope: The scope in which the notes are kept; by default the home of the installed view.
        categories: The categories of the notes; by default they are inferred if the notes have a model.
        name: The name of the tap.

    Raises:
        TypeError: the content is an async function, or not a function; or a scope or category is not text.
    """
    from graphagent.memory.notes import NoteMemory

    if inspect.iscoroutinefunction(content):
        raise TypeError(f"the content of {name!r} is an async function; make the text in a node before it")
    if content is not None and not callable(content):
        raise TypeError(f"the content of {name!r} is a function of its input, such as str, not {content!r}")
    return Tap(_Remember(content, _scope(scope, name), _names(categories, name)), name=name, needs=(NoteMemory,))


def _scope(given: str | None, node: str) -> str | None:
    if given is not None and not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{node!r}: scope= is a path, such as '/project/alpha', not {type(given).__name__}")
    return given


def _names(given: Sequence[str] | None, node: str) -> tuple[str, ...] | None:
    if given is None or isinstance(given, str):
        return None if given is None else (given,)
    if not isinstance(given, Iterable) or not all(isinstance(each, str) for each in given):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{node!r}: categories= is a list of texts, such as ['travel']")
    return tuple(given)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else value.text if isinstance(value, Message) else ""


def _task(ctx: Context) -> str:
    return _text(next((step.task for step in ctx.memory.run_steps if isinstance(step, TaskStep)), ""))
