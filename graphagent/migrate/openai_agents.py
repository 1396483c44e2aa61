"""Reads the sessions of the OpenAI Agents SDK 0.x: the file of `SQLiteSession`, and the result of `get_items()`. The SDK does not have to be installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from graphagent._options import check_path, check_text
from graphagent.errors import StoreNotFoundError
from graphagent.llm import Image, Part, Reasoning, Text, ToolResult
from graphagent.llm._responses_items import part_of
from graphagent.migrate._conversation import (
    Conversation,
    WrongMessage,
    call_of,
    image_from,
    messages_of,
    text_of,
    time_of,
)
from graphagent.migrate._records import loaded

if TYPE_CHECKING:
    from graphagent.memory import RunMemory

_REMEDY = "give the result of session.get_items(), or its JSON"
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_ROLES = ("user", "assistant", "system", "developer")
_LEFT_OUT = ("additional_tools", "compaction_trigger", "configuration_update", "item_reference")
"""The types of items that say nothing, or nothing outside of the conversation that a server of OpenAI stores."""
_FAKE_ID = "__fake_id__"
"""The id of items that came of Chat Completions."""
_AT = " at"
"""The field of an item with the time at which the session stored it. No item of the SDK has it."""


def load_items(items: Sequence[Mapping[str, Any]] | str | bytes) -> RunMemory:
    """Return the items of a session as a transcript: to read, to write into a thread with `graphagent.history.import_thread`, or to begin a run with.

    Items have no times; `load_sessions` reads the times in a file. Messages of the system and of developers before all others are
    the system prompt of the transcript, later ones stay in their places. The items of one answer are one model turn. What they have
    for servers of OpenAI, such as encrypted reasoning, is kept and returned to these alone; so are calls of tools that these servers
    execute, which no message shows otherwise, and which are logged as a warning. So are files and audio, which are replaced by a text
    that says so, and results whose call is missing.

    Args:
        items: The result of `await session.get_items()`, or its JSON.

    Raises:
        ValueError: `items` is something else. The message names the invalid item and contains none of its values.
    """
    reader = _Reader(Conversation("the OpenAI Agents SDK"))
    return reader.conversation.read(messages_of(items, _REMEDY), reader.item)


def load_sessions(path: str | PathLike[str], *, messages_table: str = "agent_messages") -> dict[str, RunMemory]:
    """Return the sessions in a file of `SQLiteSession` as transcripts, by their ids, as `load_items` does, with the times of their items.

    The call blocks while the file is read. The file is not changed.

    Args:
        path: The file.
        messages_table: The name of the table with the items, if the session was given another one.

    Raises:
        StoreNotFoundError: The file does not exist.
        ValueError: The file is not an SQLite database, is damaged, lacks the table, or contains an invalid item.
    """
    import apsw

    check_path("load_sessions: ", path, "'conversations.db'")
    check_text("messages_table=", messages_table)
    name = fspath(path)
    if not Path(name).is_file():
        raise StoreNotFoundError("file of sessions", name, "give the path that SQLiteSession was given")
    found: dict[str, list[object]] = {}
    try:
        connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            run = cast("Callable[[str], Iterable[tuple[Any, ...]]]", getattr(connection, "execute"))  # noqa: B009  its own type has unknown parts
            tables = [str(row[0]) for row in run("SELECT name FROM sqlite_master WHERE type = 'table'")]
            if messages_table in tables:
                quoted = messages_table.replace('"', '""')
                query = f'SELECT session_id, message_data, created_at FROM "{quoted}" ORDER BY id'  # noqa: S608  it is quoted
                for session, data, created in run(query):
                    found.setdefault(str(session), []).append(_stored(data, created))
        finally:
            connection.close()
    except apsw.Error as error:
        reason = type(error).__name__.removesuffix("Error")
    else:
        if messages_table in tables:
            return {session: _session(session, items) for session, items in found.items()}
        reason = f"it has no table {messages_table!r}, but {', '.join(map(repr, tables)) or 'none at all'}"
    raise ValueError(f"{name!r} is not a file of SQLiteSession that can be read: {reason}")


def _session(name: str, items: list[object]) -> RunMemory:
    try:
        return load_items(cast("Any", items))
    except ValueError as error:
        raise ValueError(f"session {name!r}: {error}") from None


def _stored(data: object, created: object) -> object:
    """Return an item as the session stored it, with its time; None if it is not one."""
    try:
        item = loaded(data)
    except (TypeError, ValueError):
        return None
    return {**cast("Mapping[str, Any]", item), _AT: created} if isinstance(item, Mapping) else item


@dataclass(slots=True)
class _Reader:
    """Reads items in order, which says which of them belong to one answer."""

    conversation: Conversation
    reasoned: bool = False
    """Whether the answer began with reasoning. Without it, servers of OpenAI refuse the ids of the items after it."""

    def item(self, item: Mapping[str, Any]) -> None:
        """Add an item."""
        conversation = self.conversation
        at, item = time_of(item.get(_AT)), {name: value for name, value in item.items() if name != _AT}
        if "__enc__" in item:
            raise WrongMessage("it is encrypted; give the result of get_items() of its EncryptedSession")
        kind, role = item.get("type") or "message", item.get("role")
        if not isinstance(kind, str) or (kind == "message" and role not in _ROLES):
            raise WrongMessage(f"it has no type, and no role of a message; {_REMEDY}")
        if kind in _LEFT_OUT:
            conversation.leave_out(kind)
        elif kind in _OUTPUTS:
            self.reasoned = False
            conversation.answered(_result(conversation, item), at)
        elif kind != "message" or role == "assistant":
            self._answer(item, kind, at)
        else:
            self.reasoned = False
            add = conversation.user if role == "user" else conversation.system
            add(_content(conversation, item["content"]), at)

    def _answer(self, item: dict[str, Any], kind: str, at: int | None) -> None:
        """Add an item of an answer of the model."""
        part: Part
        if kind == "custom_tool_call":
            part = call_of(item["name"], {"input": item["input"]}, item["call_id"])
        else:
            part = part_of({**item, "type": kind}, "openai", reasoned=self.reasoned)
            invented = "provider_data" in item or item.get("id") in (None, _FAKE_ID)  # by an adapter to another server
            if invented and not isinstance(part, Image | ToolResult):
                part = replace(part, provider=None)
        self.reasoned = self.reasoned or kind == "reasoning"
        if isinstance(part, Reasoning) and not part.text:
            self.conversation.leave_out("reasoning without text" if kind == "reasoning" else kind)
        if part != Reasoning(""):
            self.conversation.joined(part, at, apart=kind == "message")


def _result(conversation: Conversation, item: Mapping[str, Any]) -> ToolResult:
    parts = [*_content(conversation, item["output"])]
    text = "\n".join(part.text for part in parts if isinstance(part, Text))
    images = tuple(part for part in parts if isinstance(part, Image))
    return ToolResult(
        text_of(item["call_id"]), item.get("name") or "", text, item.get("status") == "incomplete", images
    )


def _content(conversation: Conversation, content: object) -> Iterator[Part]:
    """Yield the parts of a message that is not from the model, or of the output of a tool."""
    if not isinstance(content, str | list):
        raise WrongMessage("its content is neither text nor a list")
    for piece in [content] if isinstance(content, str) else cast("Iterable[Any]", content):
        if isinstance(piece, str):
            yield Text(piece)
        elif piece["type"] in ("input_text", "output_text", "text"):
            yield Text(text_of(piece["text"]))
        elif piece["type"] == "input_image":
            yield image_from(url=piece.get("image_url")) or conversation.stand_in("an image that cannot be read")
        else:
            yield conversation.stand_in(str(piece["type"]))
