"""The data exchanged with models: messages with parts, tool calls, requests, responses, usage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

from graphagent._article import kind_of
from graphagent._details import FailedRequest, Usage
from graphagent.llm._images import Image, image_of, images_of

if TYPE_CHECKING:
    from graphagent.llm._images import ImageLike
    from graphagent.llm._output import OutputFormat
    from graphagent.llm._tools import Tool

Role = Literal["system", "user", "assistant", "tool"]
_ROLES = frozenset(get_args(Role))
_UNSEEN = {"seen": False}
"""Marks the fields of a part that no model is sent."""
_LONGEST = 2_000
"""The number of characters of an error that a model sees: enough to correct a call, too few to flood a prompt."""


@dataclass(frozen=True, slots=True)
class ProviderData:
    """Data that a server attached to a part of its answer, and that it wants back with that part in later requests.

    It is opaque: a signature, encrypted reasoning, an id. It is journaled with the part, and sent to servers of the same family
    and to no others. A part that is made anew, because its text was edited, has none.
    """

    family: str
    """The family of servers that understand it, such as `openai` or `google`."""
    data: Mapping[str, Any]
    """JSON data."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text in a message."""

    text: str
    provider: ProviderData | None = field(default=None, repr=False, kw_only=True)
    """The data that the server expects back with it."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The reasoning before an answer, as far as the server shows it. The text may be empty if `provider` is not."""

    text: str
    provider: ProviderData | None = field(default=None, repr=False, kw_only=True)
    """The data that the server expects back with it. Reasoning without such data is not sent back."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to call a tool."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: str = ""
    """Names the call in its result. Empty and repeated ids get fresh ones before a call is run."""
    malformed: str = ""
    """The arguments as they arrived, if they are not a JSON object; `arguments` is empty then."""
    provider: ProviderData | None = field(default=None, repr=False, kw_only=True)
    """The data that the server expects back with it, such as a signature."""

    def __post_init__(self) -> None:
        if isinstance(self.name, str) and isinstance(self.arguments, Mapping) and isinstance(self.id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            return
        name, arguments, id_ = kind_of(self.name), kind_of(self.arguments), kind_of(self.id)
        raise TypeError(
            f"a ToolCall takes a name, a dict of arguments and an id, not {name}, {arguments} and {id_}; write "
            f"ToolCall('search', {{'query': '…'}}, id='1')"
        )


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of one tool call, as the model sees it. `images` takes anything that is accepted as an image."""

    call_id: str
    name: str
    content: str
    """The result as text: a string as it is, anything else as JSON."""
    is_error: bool = False
    images: tuple[Image, ...] = ()
    value: Any = field(default=None, compare=False, repr=False, metadata=_UNSEEN)
    """The result of the tool, or the exception that it raised, in this process."""
    full: str = field(default="", metadata=_UNSEEN)
    """The whole result, if `content` is only part of it."""
    seconds: float = field(default=0.0, compare=False, metadata=_UNSEEN)
    """How long the call took."""
    run_id: str = field(default="", metadata=_UNSEEN)
    """The run of the sub-agent that produced it, if one did."""
    traceback: str = field(default="", compare=False, repr=False, metadata=_UNSEEN)
    """Where the tool raised, if it did: the type of the exception and its frames, without its message and without values."""

    def __post_init__(self) -> None:
        if self.images:
            object.__setattr__(self, "images", images_of(self.images, "images"))

    @staticmethod
    def error(call: ToolCall, reason: str) -> ToolResult:
        """Return the result of a call that was refused, or whose outcome is unknown, as the model sees it."""
        text = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]} …"
        return ToolResult(call.id, call.name, sendable(f"Error: {text}"), is_error=True)


def sendable(text: str) -> str:
    """Return a text with escapes for halves of surrogate pairs, as in odd file names, which cannot be sent or stored as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


Part = Text | Image | Reasoning | ToolCall | ToolResult
PART_KINDS: Mapping[str, type[Part]] = {
    "text": Text,
    "image": Image,
    "reasoning": Reasoning,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
}
"""The kinds of parts, under the names that they have in JSON. A cache, a recording, an export and the codec derive their forms from
the fields of each; only the form for a protocol or a reader is written for each kind."""


def part_fields(part: Part) -> dict[str, Any]:
    """Return the kind of a part as `type`, and the fields that a model sees unless they have their default."""
    kind = next(kind for kind, owner in PART_KINDS.items() if isinstance(part, owner))
    return {"type": kind} | {name: value for name, default in _SEEN[kind] if (value := getattr(part, name)) != default}


_SEEN = {
    kind: [
        (each.name, each.default if each.default_factory is MISSING else each.default_factory())
        for each in fields(owner)
        if each.metadata.get("seen", True)
    ]
    for kind, owner in PART_KINDS.items()
}


@dataclass(frozen=True, slots=True)
class Message:
    """One message: who speaks, and its parts in order. An assistant's text, reasoning and tool calls are one message."""

    role: Role
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        parts: Any = self.parts
        are_parts = type(parts) is tuple or (isinstance(parts, Iterable) and not isinstance(parts, str | Mapping))
        if self.role not in _ROLES or not are_parts:
            raise TypeError(
                "a Message has a role, one of 'system', 'user', 'assistant' and 'tool', and a tuple of parts; write "
                "Message.user('…') for text"
            )

    def __eq__(self, other: object) -> bool:
        return (self.role, self.parts) == (other.role, other.parts) if isinstance(other, Message) else NotImplemented

    @staticmethod
    def system(text: str) -> Message:
        """A message that sets the rules."""
        return Message("system", (Text(text),))

    @staticmethod
    def user(*parts: str | ImageLike) -> Message:
        """Return a message of the user. A `str` is text; any other value that is accepted as an image is an image.

        Raises:
            TypeError, ValueError, OSError: as `Image` raises them.
        """
        return Message(
            "user",
            tuple(
                Text(part) if isinstance(part, str) else image_of(part, f"part {number} of the message")
                for number, part in enumerate(parts, 1)
            ),
        )

    @staticmethod
    def assistant(text: str = "", calls: Iterable[ToolCall] = ()) -> Message:
        """A message of the model: text, tool calls, or both."""
        return Message("assistant", ((Text(text),) if text else ()) + tuple(calls))

    @staticmethod
    def tool(result: ToolResult) -> Message:
        """The result of one tool call."""
        return Message("tool", (result,))

    @property
    def text(self) -> str:
        """All text of the message, including tool results but not reasoning."""
        return "".join(
            part.text if isinstance(part, Text) else part.content
            for part in self.parts
            if isinstance(part, Text | ToolResult)
        )

    @property
    def reasoning(self) -> str:
        """The reasoning of the model, as far as its server shows it."""
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))

    @property
    def images(self) -> tuple[Image, ...]:
        """The images of the message."""
        return tuple([part for part in self.parts if isinstance(part, Image)])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the message, in the model's order."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The tool results of the message."""
        return tuple([part for part in self.parts if isinstance(part, ToolResult)])


@dataclass(frozen=True, slots=True)
class ToolCalls(Sequence[ToolCall]):
    """The tool calls of one model turn, with the text of the same turn."""

    calls: Sequence[ToolCall]
    text: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "calls", tuple(self.calls))

    @overload
    def __getitem__(self, index: int) -> ToolCall: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ToolCall]: ...
    def __getitem__(self, index: int | slice) -> ToolCall | Sequence[ToolCall]:
        return self.calls[index]

    def __len__(self) -> int:
        return len(self.calls)


@dataclass(frozen=True, slots=True)
class ToolResults(Sequence[ToolResult]):
    """The results of one turn's tool calls, in the order of the calls."""

    results: Sequence[ToolResult]

    def __post_init__(self) -> None:
        object.__setattr__(self, "results", tuple(self.results))

    @overload
    def __getitem__(self, index: int) -> ToolResult: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ToolResult]: ...
    def __getitem__(self, index: int | slice) -> ToolResult | Sequence[ToolResult]:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Everything a model is sent for one answer."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the one tool to call."""
    output: OutputFormat[Any] | None = None
    """The format of the answer, if it must be JSON."""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Passed on as they are, such as `temperature`, `max_completion_tokens`, `seed`."""


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """A model's answer."""

    message: Message
    usage: Usage = Usage()  # noqa: RUF009  it is frozen
    finish_reason: str = "stop"
    """Why the model stopped: `stop`, `tool_calls`, `length` (at its limit of tokens, so the answer is cut off), `content_filter` (the
    server withheld it), `refusal` (the model says why it does not answer), or another reason that the server states."""
    model: str = ""
    """The model that answered, as the server names it."""
    failed: tuple[FailedRequest, ...] = field(default=(), compare=False, repr=False)
    """The requests that failed before this answer arrived. They are reported as events and not journaled."""
