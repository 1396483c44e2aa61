"""Saving conversations: each turn is a note with its place, and later turns follow the last one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from graphagent._article import kind_of
from graphagent.errors import ConflictError, NoteError
from graphagent.memory._note_values import Note, Turn
from graphagent.memory.notes import _validation
from graphagent.memory.notes.index import _storage
from graphagent.memory.notes.index._embeddings import ATTEMPTS
from graphagent.store import Put

if TYPE_CHECKING:
    from graphagent.memory._note_values import Record
    from graphagent.memory.notes._service import NoteService
    from graphagent.memory.notes._visibility import Visibility
    from graphagent.memory.notes.write._save import SaveRequest

_MESSAGE = "{'role': 'user', 'content': 'hi'}"
_TIMES = ("at", "created_at", "timestamp")
"""The fields in which a message may say when it was said; the first that it has counts."""
_PART = "{'type': 'text', 'text': 'hi'}"


async def save_conversation(
    service: NoteService,
    visibility: Visibility,
    turns: Iterable[Turn | Mapping[str, Any]],
    session: str,
    categories: Sequence[str],
    request: SaveRequest,
) -> list[Record]:
    """Save the turns of a conversation after the stored ones, all or none, and return their records.

    Args:
        service: The service that the views share.
        visibility: The visibility of the view.
        turns: The turns.
        session: The name of the conversation.
        categories: The categories of all turns.
        request: How to save them, without notes.

    Raises:
        NoteError: no session is given, or a turn cannot be saved; the message says which.
        ConflictError: others continued the conversation again and again.
    """
    if not _validation.name("session", session):
        raise NoteError("a conversation has a session: a name of your own, by which its turns belong together")
    visibility.check_writable()
    given = [turn for place, each in enumerate(turns, 1) if (turn := _turn(place, each)) is not None]
    notes = [Note(turn.text, None, categories, None, {}, turn.source, at=turn.at) for turn in given]
    repository, key = service.repository, _storage.session_key(visibility.owner, session)
    attempts = ATTEMPTS
    while True:
        item = await repository.store.get(key)
        last = await repository.last_place(visibility.owner, session)
        places = [
            {"session": session, "place": place, "speaker": turn.speaker, "role": turn.role}
            for place, turn in enumerate(given, last + 1)
        ]
        # Each commit of turns puts this item, so that two processes cannot give the same places to their turns.
        fence = Put(key, b"", expected=item.version if item is not None else 0)
        try:
            return await service.save(visibility, replace(request, notes=notes, places=places, also=[fence]))
        except ConflictError as error:
            attempts -= 1
            if error.key != key or not attempts:
                raise


def _turn(place: int, given: object) -> Turn | None:
    """Return a turn, also of a message as in chat APIs; None for a message without any text."""
    if isinstance(given, Mapping):
        message = cast("Mapping[str, Any]", given)
        if "content" not in message or not isinstance(message.get("role"), str):
            raise NoteError(
                f"turn {place} is a dict without 'role' and 'content'; give {_MESSAGE}, or Turn('hi', 'Ana')"
            )
        text, at = _text(place, message["content"]), _time(place, message)
        given = Turn(text, speaker=message.get("name") or "", role=message["role"], at=at) if text.strip() else None
    elif not isinstance(given, Turn):
        raise TypeError(f"turn {place} is {kind_of(given)}; give Turn('hi', 'Ana'), or {_MESSAGE}")
    if given is not None:
        try:
            _validation.content(given.text)
        except NoteError as error:
            raise NoteError(f"turn {place}: {error}") from None
    return given


def _time(place: int, message: Mapping[str, Any]) -> datetime | None:
    """Return when a message was said: a datetime, text as in ISO 8601, or seconds since 1970, as chat APIs have it."""
    name = next((name for name in _TIMES if message.get(name) is not None), "")
    given: object = message.get(name)
    try:
        if isinstance(given, str):
            given = datetime.fromisoformat(given)
        elif isinstance(given, int | float) and not isinstance(given, bool):
            given = datetime.fromtimestamp(given, UTC)
        return None if given is None else _validation.time(cast("datetime", given), name)
    except (NoteError, ValueError, OverflowError, OSError):
        raise NoteError(
            f"the {name!r} of turn {place} is not a time with a zone: a datetime, a text such as '2026-01-31T12:00:00+00:00', or "
            f"seconds since 1970"
        ) from None


def _text(place: int, content: object) -> str:
    """Return the text of a message: its content, or the texts of its parts."""
    if content is None or isinstance(content, str):
        return content or ""
    parts: Sequence[object] = cast("list[object]", content) if isinstance(content, list | tuple) else (content,)
    if not all(isinstance(part, str | Mapping) for part in parts):
        raise NoteError(f"the 'content' of turn {place} is neither a text nor a list of parts such as {_PART}")
    texts = [cast("Mapping[str, object]", part).get("text") if isinstance(part, Mapping) else part for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str))
