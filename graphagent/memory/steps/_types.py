"""The types of steps in a transcript. The file is long because it has all kinds of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias, TypeVar, cast
from weakref import ref

from graphagent._article import a, kind_of
from graphagent.llm import Image, Message, ToolCall, ToolResult, Usage
from graphagent.llm._images import images_of
from graphagent.llm._tools import fresh_ids
from graphagent.memory._blocks import KnownFact, KnownNote, facts_message, notes_message, summary_message
from graphagent.memory.transcript._prompt import Prompt

if TYPE_CHECKING:
    from graphagent.llm import ImageLike

T = TypeVar("T")

_NOT_RUN = "This call was not executed."
_SEE_FIRST = "See the first result."
_PROCEED = "Now proceed and carry out this plan."

_set = object.__setattr__
_MISSING: Any = object()
_Plain: TypeAlias = dict[str, Any]  # in the body of a class with a method of this name, `dict` means the method


@dataclass(frozen=True, slots=True)
class Timing:
    """When something began and ended, in integer milliseconds UTC."""

    started: int
    ended: int

    @property
    def duration(self) -> float:
        """Seconds between the two; never below zero, even if the clock was set back."""
        return max(self.ended - self.started, 0) / 1000


@dataclass(frozen=True, slots=True)
class StepFailure:
    """An error that a step records."""

    type: str
    """The name of the exception's class."""
    message: str

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


class StepHome(Protocol):
    """The transcript of a step, as the step sees it: `RunMemory`."""

    def expect(self, step: Step, name: str, value: object) -> None:
        """Check that a value may be assigned to a field of the step, before it is assigned."""
        ...

    def edited(self, step: Step, name: str) -> None:
        """Note that a field of the step was assigned."""
        ...


class Step:
    """One entry of a transcript. Its parts are immutable; assign a field to change the step, and the transcript records the change.

    Your own type is a dataclass derived from this one. Its body has `kind = "…"`, the name of the type in stored data, and
    `to_messages` if a model shall see such steps.
    """

    __slots__ = ("_home", "_id")

    kind: ClassVar[str] = ""
    """The name of the type in stored data."""
    kinds: ClassVar[MutableMapping[str, type[Step]]] = {}
    """All types, by their kinds."""

    def __init_subclass__(cls) -> None:
        kind = cls.__dict__.get("kind")
        if not isinstance(kind, str) or not kind:
            raise TypeError(f"the step type {cls.__name__!r} has no kind; write kind = '…' in its body")
        there = Step.kinds.get(kind)
        if there is not None and (there.__module__, there.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"the kind {kind!r} of {cls.__name__!r} is that of {there.__name__!r}; choose another")
        Step.kinds[kind] = cls

    def __setattr__(self, name: str, value: Any) -> None:
        home: ref[StepHome] | None = getattr(self, "_home", None)
        steps = home() if home is not None else None
        if steps is not None:
            steps.expect(self, name, value)
        try:
            _set(self, name, value)
        except AttributeError:
            raise AttributeError(_unassignable(type(self), name)) from None
        if steps is not None:
            steps.edited(self, name)

    def __copy__(self) -> Self:
        copied = object.__new__(type(self))
        for name in field_names(type(self)):
            value = getattr(self, name, _MISSING)
            if value is not _MISSING:
                _set(copied, name, value)
        return copied

    def __getstate__(self) -> _Plain:
        return {name: getattr(self, name) for name in field_names(type(self)) if hasattr(self, name)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            _set(self, name, value)

    def to_messages(self) -> list[Message]:
        """Return the messages that a model receives for this step: none, unless the type overrides this method."""
        return []

    def dict(self) -> _Plain:
        """Return the step as plain JSON data, as `RunMemory.full_steps()` does: `kind`, and all its fields."""
        from graphagent.memory.steps._dump import plain_steps

        return plain_steps([self])[0]


def _slot(step: Step, name: str) -> Any:
    """Return the value in a slot of a step, or None if it was not set, without `__getattr__`."""
    try:
        return object.__getattribute__(step, name)
    except AttributeError:
        return None


def _unassignable(kind: type[Step], name: str) -> str:
    if name in ("model_output", "tool_calls"):
        return (
            f"the {name} of {a(kind.__name__)} is part of what the model said: "
            f"assign step.model_output_message = Message.assistant(text, calls)"
        )
    if name == "model_input_messages":
        return f"{name} of {a(kind.__name__)} records the request that the model was sent, and cannot be assigned"
    fields = ", ".join(each.removeprefix("_") for each in sorted(fields_of(kind), key=lambda each: each.strip("_")))
    return f"{a(kind.__name__)} has no field {name!r} to assign; it has {fields}"


def by_class(function: Callable[[type[Step]], T]) -> Callable[[type[Step]], T]:
    """Cache a function of types of steps. The cast is for mypy, to which a class is as little hashable as its objects."""
    return cast("Callable[[type[Step]], T]", cache(function))


@by_class
def field_names(kind: type[Step]) -> tuple[str, ...]:
    """Return the names of the fields of a type of steps."""
    return tuple(fields_of(kind))


@by_class
def fields_of(kind: type[Step]) -> dict[str, type[Step]]:
    """Return the names of the fields of a type of steps, with the class that defines each."""
    found: dict[str, type[Step]] = {}
    for base in reversed(kind.__mro__):
        if base is Step or not issubclass(base, Step):
            continue
        slots: str | Iterable[str] = base.__dict__.get("__slots__", ())
        # A dataclass without slots has fields too.
        for name in (*((slots,) if isinstance(slots, str) else slots), *base.__dict__.get("__dataclass_fields__", ())):
            if not name.startswith("__") and name != "kind":
                found.setdefault(name, base)
    return found


@dataclass(slots=True)
class SystemPromptStep(Step):
    """The rules for the model. This step is not in the list of steps."""

    kind: ClassVar[str] = "system_prompt"

    system_prompt: str

    def to_messages(self) -> list[Message]:
        """Return the messages that a model is sent for it."""
        return [Message.system(self.system_prompt)] if self.system_prompt else []


@dataclass(slots=True, init=False)
class TaskStep(Step):
    """The task of a run. A task that is neither text nor a Message is kept here, and not shown to the model.

    `task_images` may contain anything that `graphagent.llm.Image` accepts; None means no images.

    Raises:
        TypeError, ValueError, OSError: as `Image` raises them.
    """

    kind: ClassVar[str] = "task"

    task: Any
    task_images: tuple[Image, ...]
    at: int | None = None
    """When the task was given, in integer milliseconds UTC, in a step from elsewhere. For a run here, the log has the time."""

    def __init__(self, task: Any, task_images: Iterable[ImageLike] | None = (), *, at: int | None = None) -> None:
        # Every run makes one, and one FinalAnswerStep: this is faster than assignment, which notifies the transcript.
        _set(self, "task", task)
        _set(self, "task_images", images_of(task_images, "task_images") if task_images != () else ())
        _set(self, "at", at)

    def __setattr__(self, name: str, value: Any) -> None:
        Step.__setattr__(self, name, images_of(value, name) if name == "task_images" else value)

    def to_messages(self) -> list[Message]:
        """Return the messages that a model is sent for it."""
        images = [Message.user(*self.task_images)] if self.task_images else []
        if isinstance(self.task, Message):
            return [self.task, *images]
        return [Message.user(self.task, *self.task_images)] if isinstance(self.task, str) else images


@dataclass(slots=True)
class MessageStep(Step):
    """A message that a node added, or that came from elsewhere."""

    kind: ClassVar[str] = "message"

    message: Message
    at: int | None = field(default=None, kw_only=True)
    """When the message was sent, as in a TaskStep."""

    def to_messages(self) -> list[Message]:
        """Return the messages that a model is sent for it."""
        return [self.message]


@dataclass(slots=True)
class FactsStep(Step):
    """Facts that were shown to the model. The stored step refers to the facts, so a forgotten fact is gone here too."""

    kind: ClassVar[str] = "facts"

    facts: tuple[KnownFact, ...]
    left_out: int = 0
    """How many more facts are known, but did not fit."""

    def to_messages(self) -> list[Message]:
        """Return the messages that a model is sent for them: one block of escaped data."""
        return [facts_message(self.facts, self.left_out)] if self.facts else []


@dataclass(slots=True)
class NotesStep(Step):
    """Notes that were shown to the model. The stored step refers to the notes, so a forgotten note is gone here too."""

    kind: ClassVar[str] = "notes"

    notes: tuple[KnownNote, ...]

    def to_messages(self) -> list[Message]:
        """Return the messages that a model is sent for them: one block of escaped data."""
        return [notes_message(self.notes)] if self.notes else []


@dataclass(slots=True, init=False)
class PlanningStep(Step):
    """A plan that the model made for itself.

    Raises:
        ValueError: `prompt` and `model_input_messages` are both given, and differ.
    """

    kind: ClassVar[str] = "planning"

    plan: str
    model_output_message: Message | None
    """The model's whole message."""
    prompt: Prompt | None
    timing: Timing | None
    token_usage: Usage | None

    def __init__(
        self,
        plan: str,
        model_output_message: Message | None = None,
        prompt: Prompt | None = None,
        timing: Timing | None = None,
        token_usage: Usage | None = None,
        *,
        model_input_messages: Iterable[Message] | None = None,
    ) -> None:
        _set(self, "plan", plan)
        _set(self, "model_output_message", model_output_message)
        _set(self, "prompt", _prompt_of(prompt, model_input_messages, PlanningStep))
        _set(self, "timing", timing)
        _set(self, "token_usage", token_usage)

    @property
    def model_input_messages(self) -> tuple[Message, ...]:
        """What the model was sent."""
        return self.prompt.messages() if self.prompt else ()

    def to_messages(self) -> list[Message]:
        """Return the messages that a model receives for this step: the plan, and the request to carry it out."""
        return [Message.assistant(self.plan.strip()), Message.user(_PROCEED)]


def _prompt_of(prompt: Prompt | None, messages: Iterable[Message] | None, kind: type[Step]) -> Prompt | None:
    """Return the prompt given for a step, or one made of the messages given for it."""
    if messages is None:
        return prompt
    sent = tuple(messages)
    for each in sent:
        if not isinstance(each, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"the model_input_messages of {a(kind.__name__)} are Messages, with {kind_of(each)} in them"
            )
    if prompt is None:
        return Prompt.of(sent) if sent else None
    if prompt.messages() != sent:
        raise ValueError(f"{a(kind.__name__)} is given prompt= and other model_input_messages=; leave one of them out")
    return prompt


def _message_of(message: Message | None, text: str | None, calls: Iterable[ToolCall] | None) -> Message | None:
    """Return the message of a model turn, given whole or as its text and tool calls."""
    made = () if calls is None else tuple(calls)
    for each in made:
        if not isinstance(each, ToolCall):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the tool_calls of an ActionStep are ToolCalls, with {kind_of(each)} in them")
    if text is not None and not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the model_output of an ActionStep is text or None, not {kind_of(text)}")
    if message is None:
        return Message.assistant(text or "", fresh_ids(made)) if text is not None or made else None
    if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the model_output_message of an ActionStep is a Message or None, not {kind_of(message)}")
    for name, given, said in (
        ("model_output", text, message.text),
        ("tool_calls", None if calls is None else made, message.tool_calls),
    ):
        if given is not None and given != said:
            raise ValueError(f"an ActionStep is given model_output_message= and another {name}=; leave one of them out")
    return message


@dataclass(slots=True)
class SummaryStep(Step):
    """Replaces the steps before it in prompts. Those stay in the transcript, but are not sent to the model any more."""

    kind: ClassVar[str] = "summary"

    summary: str
    covers: int
    """How many earlier steps it replaces. The last task and messages that set rules are still sent."""
    keeps: int = field(default=0, kw_only=True)
    """How many steps right before it stay as they are; the replaced steps come before these."""
    facts: tuple[KnownFact, ...] = ()
    """The facts that were saved."""
    timing: Timing | None = None
    token_usage: Usage | None = None

    def to_messages(self) -> list[Message]:
        """Return the messages that a model receives for this step: a block of escaped data."""
        shown = [summary_message(self.summary)] if self.summary else []
        return [*shown, facts_message(self.facts)] if self.facts else shown


class ActionStep(Step):
    """One model turn: the prompt, the model's answer, its tool calls and their results.

    A step can be made of the text and the tool calls of the answer (`model_output`, `tool_calls`), or of its whole message. Tool
    calls without an id, or with the id of another call, get a new id.

    Raises:
        TypeError: `tool_calls`, `model_input_messages` or `observations_images` contain values of another type.
        ValueError: `model_output_message` or `prompt` contradicts the other arguments, or an image cannot be used.
    """

    __slots__ = (
        "__answered", "__called", "_observations", "_observations_images", "action_output", "code_action", "error",
        "model_output_message", "prompt", "results", "step_number", "timing", "token_usage",
    )  # fmt: skip

    kind: ClassVar[str] = "action"

    def __init__(
        self,
        *,
        step_number: int = 0,
        model_output_message: Message | None = None,
        model_output: str | None = None,
        tool_calls: Iterable[ToolCall] | None = None,
        results: Iterable[ToolResult] = (),
        observations: str | None = None,
        observations_images: Iterable[ImageLike] | None = None,
        action_output: Any = None,
        code_action: str | None = None,
        error: StepFailure | None = None,
        timing: Timing | None = None,
        token_usage: Usage | None = None,
        prompt: Prompt | None = None,
        model_input_messages: Iterable[Message] | None = None,
    ) -> None:
        _set(self, "step_number", step_number)
        if model_output is not None or tool_calls is not None:
            model_output_message = _message_of(model_output_message, model_output, tool_calls)
        _set(self, "model_output_message", model_output_message)
        _set(self, "results", tuple(results))
        _set(self, "action_output", action_output)
        _set(self, "code_action", code_action)
        _set(self, "error", error)
        _set(self, "timing", timing)
        _set(self, "token_usage", token_usage)
        _set(self, "prompt", _prompt_of(prompt, model_input_messages, ActionStep))
        _set(self, "_observations", observations)
        images = None if observations_images is None else images_of(observations_images, "observations_images")
        _set(self, "_observations_images", images)

    step_number: int
    """1 for the first model turn of a transcript; 0 in a step that was not made by a model turn."""
    model_output_message: Message | None
    """The model's whole message; None in a step made by hand without an answer, and in a failed turn."""
    results: tuple[ToolResult, ...]
    """A result for each tool call, in the order of the calls; empty while the calls are being executed."""
    action_output: Any
    """The output of a model turn without tool calls."""
    code_action: str | None
    """Code that the model wrote to be executed, in a step from elsewhere."""
    error: StepFailure | None
    timing: Timing | None
    token_usage: Usage | None
    prompt: Prompt | None

    @property
    def model_output(self) -> str | None:
        """The text of the model's answer."""
        return self.model_output_message.text if self.model_output_message else None

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in the order of the answer."""
        return self._calls()[1]

    @property
    def call_ids(self) -> frozenset[str]:
        """The ids of the tool calls."""
        return self._calls()[2]

    @property
    def is_answered(self) -> bool:
        """Whether any tool call has a result."""
        return _slot(self, "_ActionStep__answered") is not None or bool(self.results)

    @property
    def model_input_messages(self) -> tuple[Message, ...]:
        """What the model was sent."""
        return self.prompt.messages() if self.prompt else ()

    @property
    def observations(self) -> str | None:
        """The results of the tools, as one text. Assign a text to show the model that text instead."""
        if self._observations is not None:
            return self._observations
        return "\n".join(result.content for result in self.results) if self.results else None

    @observations.setter
    def observations(self, text: str | None) -> None:
        self._observations = text

    @property
    def observations_images(self) -> tuple[Image, ...]:
        """The images that the tools returned. Assign a list to show the model those images instead.

        The list may contain anything that `graphagent.llm.Image` accepts; files are read, and Pillow images encoded, at once.

        Raises:
            TypeError, ValueError, OSError: as `Image` raises them.
        """
        if self._observations_images is not None:
            return self._observations_images
        return tuple(image for result in self.results for image in result.images)

    @observations_images.setter
    def observations_images(self, images: Iterable[ImageLike] | None) -> None:
        self._observations_images = images_of(images, "observations_images")

    _observations: str | None
    _observations_images: tuple[Image, ...] | None
    __answered: tuple[ActionStep, tuple[ToolResult, ...]]
    """The version before the last results, and these results, until somebody reads them."""
    __called: tuple[Message | None, tuple[ToolCall, ...], frozenset[str]]
    """The last return value of `_calls`."""

    def with_results(self, results: Iterable[ToolResult]) -> ActionStep:
        """Return this turn with further results of its calls."""
        found = object.__new__(ActionStep)
        for name in field_names(ActionStep):
            if name != "results":
                _set(found, name, getattr(self, name))
        _set(found, "_ActionStep__called", self._calls())
        _set(found, "_ActionStep__answered", (self, tuple(results)))
        return found

    def __getattr__(self, name: str) -> Any:
        # A turn of many calls gets their results one by one. The tuple of all results is made when it is read, not per version.
        if name != "results" or _slot(self, "_ActionStep__answered") is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        before, given = self, dict[str, ToolResult]()
        while (earlier := _slot(before, "results")) is None:
            before, later = before.__answered
            for result in reversed(later):
                given.setdefault(result.call_id, result)
        given = {result.call_id: result for result in earlier} | given
        found = tuple([given[call.id] for call in self.tool_calls if call.id in given])
        _set(self, "results", found)
        object.__delattr__(self, "_ActionStep__answered")
        return found

    def _calls(self) -> tuple[Message | None, tuple[ToolCall, ...], frozenset[str]]:
        """Return the message, its tool calls and their ids, which are computed once."""
        message = self.model_output_message
        found: tuple[Message | None, tuple[ToolCall, ...], frozenset[str]] | None = _slot(self, "_ActionStep__called")
        if found is None or found[0] is not message:
            calls = message.tool_calls if message else ()
            found = message, calls, frozenset([call.id for call in calls])
            _set(self, "_ActionStep__called", found)
        return found

    def to_messages(self) -> list[Message]:
        """Return the messages that a model receives for this step in later turns: its own answer, then a result for every call."""
        found: list[Message] = []
        if self.model_output_message and self.model_output_message.parts:
            found.append(self.model_output_message)
        shown, images = self._observations, self._observations_images
        given = {result.call_id: result for result in self.results}
        for number, call in enumerate(self.tool_calls):
            result = given.get(call.id) or ToolResult(call.id, call.name, _NOT_RUN, is_error=shown is None)
            if shown is not None:
                text = shown if number == 0 else _SEE_FIRST
                result = replace(result, content=text)
            if images is not None:
                result = replace(result, images=())
            found.append(Message.tool(result))
        beside: list[str | Image] = []
        if shown is not None and not self.tool_calls:
            beside.append(f"Observation:\n{shown}")
        failed_to_answer = self.prompt is not None and self.model_output_message is None
        if self.error is not None and not self.is_answered and not failed_to_answer:
            beside.append(f"Error:\n{self.error.type}: {self.error.message}")
        beside.extend(images or ())
        return [*found, Message.user(*beside)] if beside else found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ActionStep):
            return NotImplemented
        return all(
            getattr(self, name) == getattr(other, name) for name in field_names(ActionStep) if name != "prompt"
        ) and (self.model_input_messages == other.model_input_messages)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        calls = ", ".join(call.name for call in self.tool_calls)
        return f"ActionStep(step_number={self.step_number}, tool_calls=[{calls}], error={self.error is not None})"


@dataclass(slots=True, init=False)
class FinalAnswerStep(Step):
    """The output of a run. In a later run, a text that the model did not write itself is shown to it as its own."""

    kind: ClassVar[str] = "final_answer"

    output: Any

    def __init__(self, output: Any) -> None:
        _set(self, "output", output)

    def to_messages(self) -> list[Message]:
        """Return the messages that a model is sent for it."""
        return [Message.assistant(self.output)] if isinstance(self.output, str) else []
