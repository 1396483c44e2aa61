"""Conversations: each turn is a note that knows its place, and what comes later goes on behind the last one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from graphagent._article import a
from graphagent.errors import ConflictError, NoteError
from graphagent.memory.notes._types import Note, Turn
from graphagent.memory.notes.index import _chunks, _storage
from graphagent.memory.notes.index._embeddings import AGAIN
from graphagent.store import Put

if TYPE_CHECKING:
    from graphagent.memory.notes._engine import Engine
    from graphagent.memory.notes._scopes import Bounds
    from graphagent.memory.notes._types import Record

_MESSAGE = "{'role': 'user', 'content': 'hi'}"
_PART = "{'type': 'text', 'text': 'hi'}"


async def keep_turns(
    engine: Engine,
    bounds: Bounds,
    turns: Iterable[Turn | Mapping[str, Any]],
    *,
    session: str,
    categories: Sequence[str] | None,
    keep: Callable[..., Awaitable[list[Record]]],
) -> list[Record]:
    """Keep the turns of a conversation, all or none, behind those of it that are there.

    Args:
        engine: What the views share.
        bounds: Of the view.
        turns: What was said.
        session: The name of the conversation.
        categories: Of all turns.
        keep: Keeps notes, given their `places` and what is committed `beside` them.

    Raises:
        NoteError: there is no session, or a turn cannot be kept, and which.
        TypeError: one is no turn, and which.
        PermissionError: the view is read-only.
        ConflictError: others went on with it again and again.
        StoreError: the store cannot be read.
    """
    if not _storage.name("session", session):
        raise NoteError("a conversation has a session: a name of your own, by which its turns belong together")
    bounds.writing()
    given = [turn for place, each in enumerate(turns, 1) if (turn := _turn(place, each)) is not None]
    notes = [Note(turn.text, None, categories or (), None, {}, turn.source, at=turn.at) for turn in given]
    book, key = engine.book, _storage.session_key(bounds.owner, session)
    left = AGAIN
    while True:
        item = await book.store.get(key)
        last = await book.last_place(bounds.owner, session)
        places = [
            {"session": session, "place": place, "speaker": turn.speaker, "role": turn.role}
            for place, turn in enumerate(given, last + 1)
        ]
        alone = Put(key, b"", expected=item.version if item is not None else 0)
        try:
            return await keep(notes, places=places, beside=[alone])
        except ConflictError as error:  # others went on with it meanwhile
            left -= 1
            if error.key != key or not left:
                raise


def _turn(place: int, given: object) -> Turn | None:
    """Give a turn, or a message as chat APIs have them as one; None for a message without any text."""
    if isinstance(given, Mapping):
        message = cast("Mapping[str, Any]", given)
        if "content" not in message or not isinstance(message.get("role"), str):
            raise NoteError(
                f"turn {place} is a dict without 'role' and 'content'; give {_MESSAGE}, or Turn('hi', 'Ana')"
            )
        text = _text(place, message["content"])
        given = Turn(text, speaker=message.get("name") or "", role=message["role"]) if text.strip() else None
    elif not isinstance(given, Turn):
        raise TypeError(f"turn {place} is {a(type(given).__name__)}; give Turn('hi', 'Ana'), or {_MESSAGE}")
    if given is not None:
        try:
            _chunks.checked(given.text)
        except NoteError as error:
            raise NoteError(f"turn {place}: {error}") from None
    return given


def _text(place: int, content: object) -> str:
    """Give the text of a message: its content, or that of its parts which have some."""
    if content is None or isinstance(content, str):
        return content or ""
    parts: Sequence[object] = cast("list[object]", content) if isinstance(content, list | tuple) else (content,)
    if not all(isinstance(part, str | Mapping) for part in parts):
        raise NoteError(f"the 'content' of turn {place} is neither a text nor a list of parts such as {_PART}")
    texts = [cast("Mapping[str, object]", part).get("text") if isinstance(part, Mapping) else part for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str))
