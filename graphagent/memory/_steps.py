"""What happened in a run: its steps, and the messages that a model is sent, which are derived from them alone."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from graphagent.llm import Image, Message, ToolCall, ToolResult, ToolResults, Usage
from graphagent.memory._prompt import facts_message

if TYPE_CHECKING:
    from graphagent.memory._facts import Fact, Scope, Subject

_NOT_RUN = "This call was not executed."
_SEE_FIRST = "See the first result."


@dataclass(frozen=True, slots=True)
class Timing:
    """When something began and ended, in integer milliseconds UTC."""

    started: int
    ended: int

    @property
    def duration(self) -> float:
        """Seconds between the two."""
        return (self.ended - self.started) / 1000


@dataclass(frozen=True, slots=True)
class StepFailure:
    """An error that a step records."""

    type: str
    """The name of the exception's class."""
    message: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SentPrompt:
    """What a model was sent, told as the difference to what it was sent before: constant space a turn."""

    previous: SentPrompt | None
    kept: int
    """How many messages of the previous prompt, counted from its beginning, it begins with."""
    added: tuple[Message, ...]
    """The messages behind those."""

    @staticmethod
    def of(messages: Sequence[Message], previous: SentPrompt | None) -> SentPrompt:
        """Tell messages as the difference to the previous prompt."""
        before = previous.messages() if previous else ()
        kept = len(before)
        if tuple(messages[:kept]) != before:  # tuples compare what is the same object without a look inside
            differing = (n for n, pair in enumerate(zip(before, messages, strict=False)) if pair[0] != pair[1])
            kept = next(differing, min(kept, len(messages)))
        return SentPrompt(previous, kept, tuple(messages[kept:]))

    def messages(self) -> tuple[Message, ...]:
        """Give the whole prompt."""
        parts: list[tuple[Message, ...]] = []
        prompt: SentPrompt | None = self
        wanted: int | None = None
        while prompt is not None:
            count = prompt.kept + len(prompt.added) if wanted is None else wanted
            if count > prompt.kept:
                parts.append(prompt.added[: count - prompt.kept])
            wanted = min(count, prompt.kept)
            prompt = prompt.previous if wanted else None
        return tuple(message for part in reversed(parts) for message in part)

    def __repr__(self) -> str:
        return f"<prompt of {self.kept + len(self.added)} messages, {self.kept} of them as before>"


@dataclass(slots=True)
class SystemPromptStep:
    """The rules that the model is given. It stands beside the list of steps."""

    system_prompt: str

    def to_messages(self) -> list[Message]:
        """Give it as the model sees it."""
        return [Message.system(self.system_prompt)] if self.system_prompt else []


@dataclass(slots=True)
class TaskStep:
    """What a run was given. A task that is neither text nor a Message is kept here, and not shown to the model."""

    task: Any
    task_images: tuple[Image, ...] = ()

    def to_messages(self) -> list[Message]:
        """Give it as the model sees it."""
        images = [Message.user(*self.task_images)] if self.task_images else []
        if isinstance(self.task, Message):
            return [self.task, *images]
        return [Message.user(self.task, *self.task_images)] if isinstance(self.task, str) else images


@dataclass(slots=True)
class MessageStep:
    """A message that a node added."""

    message: Message

    def to_messages(self) -> list[Message]:
        """Give it as the model sees it."""
        return [self.message]


@dataclass(frozen=True, slots=True)
class KnownFact:
    """A fact with the place where it is kept."""

    fact: Fact
    subject: Subject
    scope: Scope


@dataclass(slots=True)
class FactsStep:
    """Facts that were put before the model."""

    facts: tuple[KnownFact, ...]

    def to_messages(self) -> list[Message]:
        """Give them as the model sees them: one frame of escaped data."""
        return [facts_message(self.facts)] if self.facts else []


class ActionStep:
    """One model turn: what the model was sent and said, its tool calls and their results."""

    __slots__ = (
        "_observations", "_observations_images", "action_output", "error", "model_output_message", "prompt",
        "results", "step_number", "timing", "token_usage",
    )  # fmt: skip

    def __init__(
        self,
        *,
        step_number: int = 0,
        model_output_message: Message | None = None,
        results: Iterable[ToolResult] = (),
        observations: str | None = None,
        observations_images: Iterable[Image] | None = None,
        action_output: Any = None,
        error: StepFailure | None = None,
        timing: Timing | None = None,
        token_usage: Usage | None = None,
        prompt: SentPrompt | None = None,
    ) -> None:
        self.step_number = step_number
        """1 for the first model turn of a transcript; 0 in a step that no model turn made."""
        self.model_output_message = model_output_message
        """The model's whole message; None in a step that was made by hand."""
        self.results = tuple(results)
        """A result for each tool call, in the order of the calls; empty while they are being executed."""
        self.action_output = action_output
        """What the model turn gave, where it called no tools."""
        self.error = error
        self.timing = timing
        self.token_usage = token_usage
        self.prompt = prompt
        self._observations = observations
        self._observations_images = None if observations_images is None else tuple(observations_images)

    @property
    def model_output(self) -> str | None:
        """The text that the model said."""
        return self.model_output_message.text if self.model_output_message else None

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in the model's order."""
        return self.model_output_message.tool_calls if self.model_output_message else ()

    @property
    def model_input_messages(self) -> tuple[Message, ...]:
        """What the model was sent."""
        return self.prompt.messages() if self.prompt else ()

    @property
    def observations(self) -> str | None:
        """What the tools gave, as one text. Assign it, and the model sees that instead."""
        if self._observations is not None:
            return self._observations
        return "\n".join(result.content for result in self.results) if self.results else None

    @observations.setter
    def observations(self, text: str | None) -> None:
        self._observations = text

    def take(self, results: Iterable[ToolResult]) -> None:
        """Put results in the place of those that the calls of this turn have."""
        given = {result.call_id: result for result in (*self.results, *results)}
        self.results = tuple(given[call.id] for call in self.tool_calls if call.id in given)

    @property
    def observations_images(self) -> tuple[Image, ...]:
        """The images that the tools gave. Assign it, and the model sees those instead."""
        if self._observations_images is not None:
            return self._observations_images
        return tuple(image for result in self.results for image in result.images)

    @observations_images.setter
    def observations_images(self, images: Iterable[Image] | None) -> None:
        self._observations_images = tuple(images or ())

    def to_messages(self) -> list[Message]:
        """Give the turn as the model sees it in later turns: its own message, then a result for every call."""
        found: list[Message] = []
        if self.model_output_message and self.model_output_message.parts:
            found.append(self.model_output_message)
        shown, images = self._observations, self._observations_images
        given = {result.call_id: result for result in self.results}
        for number, call in enumerate(self.tool_calls):
            result = given.get(call.id) or ToolResult(call.id, call.name, _NOT_RUN, is_error=True)
            if shown is not None:
                text = shown if number == 0 else _SEE_FIRST
                result = replace(result, content=text)
            if images is not None:
                result = replace(result, images=())
            found.append(Message.tool(result))
        beside: list[str | Image] = []
        if shown is not None and not self.tool_calls:
            beside.append(f"Observation:\n{shown}")
        if self.error is not None and not self.results:
            beside.append(f"Error:\n{self.error.type}: {self.error.message}")
        beside.extend(images or ())
        return [*found, Message.user(*beside)] if beside else found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ActionStep):
            return NotImplemented
        return all(
            getattr(self, name) == getattr(other, name) for name in ActionStep.__slots__ if name != "prompt"
        ) and (self.model_input_messages == other.model_input_messages)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        calls = ", ".join(call.name for call in self.tool_calls)
        return f"ActionStep(step_number={self.step_number}, tool_calls=[{calls}], error={self.error is not None})"


@dataclass(slots=True)
class FinalAnswerStep:
    """What a run gave. In a later run, text that the model did not say itself is shown to it as said."""

    output: Any

    def to_messages(self) -> list[Message]:
        """Give it as the model sees it."""
        return [Message.assistant(self.output)] if isinstance(self.output, str) else []


Step = TaskStep | MessageStep | FactsStep | ActionStep | FinalAnswerStep


_NOTHING = object()


class RunMemory:
    """The transcript of a run: the system prompt, and the steps in the order in which they happened."""

    __slots__ = ("_asked", "_awaited", "begun", "inherited", "open", "steps", "system_prompt")

    def __init__(self, system_prompt: str = "", steps: Iterable[Step] = ()) -> None:
        self.system_prompt = SystemPromptStep(system_prompt)
        """The rules that the model is given."""
        self.steps: list[Step] = list(steps)
        """What happened."""
        self.begun = len(self.steps)
        """How many steps stood here before the run began."""
        self.inherited = len(self.steps)
        """How many steps stood here before the run, or the branch, began."""
        self.open: ActionStep | None = None
        """The model turn whose tool calls are being executed; it joins the steps when all have their results."""
        self._awaited: Any = _NOTHING
        self._asked: Any = _NOTHING

    def begin(self, task: Any, images: Iterable[Image] = ()) -> None:
        """Begin a run with what it was given."""
        self.steps.append(TaskStep(task, tuple(images)))
        self._awaited = task

    def hear(self, said: str | Message | ToolResults) -> None:
        """Take up what reaches the model.

        The task is there already while it arrives as the same object, once; so is what was taken up before, and got no
        answer. Results of tool calls are what the model sees of those calls, whoever made them.
        """
        if said is self._asked:
            self.close()
            return
        if isinstance(said, ToolResults):
            self.observe(self.open or self.last_action, said)
            return
        self.close()
        self._asked = said
        if said is self._awaited:
            self._awaited = _NOTHING
        else:
            self.steps.append(MessageStep(said if isinstance(said, Message) else Message.user(said)))

    def observe(self, turn: ActionStep | None, results: ToolResults) -> None:
        """Take up the results of a turn's tool calls."""
        if turn is not None:
            turn.take(results)
        self._asked = results
        self.close()

    def answer(self, turn: ActionStep) -> None:
        """Take up a model turn. One with tool calls stays open until they have their results."""
        self.close()
        self._asked = _NOTHING
        if turn.tool_calls:
            self.open = turn
        else:
            self.steps.append(turn)

    def turn_of(self, calls: Iterable[ToolCall]) -> ActionStep | None:
        """Give the last model turn, if it made these calls."""
        turn = self.open or self.last_action
        made = {call.id for call in turn.tool_calls} if turn is not None else set[str]()
        return turn if made.issuperset(call.id for call in calls) else None

    def close(self) -> None:
        """Let the open model turn join the steps. Calls without a result are shown to the model as not executed."""
        if self.open is not None:
            self.steps.append(self.open)
            self.open = None

    def to_messages(self) -> list[Message]:
        """Derive what a model is sent. Facts that were loaded before the first model turn stand before the task."""
        found = self.system_prompt.to_messages()
        early: set[int] = set()
        for place, step in enumerate(self.steps):
            if isinstance(step, TaskStep):
                for later in range(place + 1, len(self.steps)):
                    following = self.steps[later]
                    if isinstance(following, ActionStep | TaskStep):
                        break
                    if isinstance(following, FactsStep):
                        early.add(later)
                        found.extend(following.to_messages())
            if isinstance(step, FinalAnswerStep) and isinstance(step.output, str):
                said = next((each for each in reversed(found) if each.role == "assistant"), None)
                if said is None or said.text != step.output:
                    found.append(Message.assistant(step.output))
            elif place not in early:
                found.extend(step.to_messages())
        return found

    def fork(self) -> RunMemory:
        """Give a transcript that begins with the same steps and then goes its own way."""
        steps = self.steps if self.open is None else [*self.steps, self.open]
        # Turns are copied: their results may be taken up, or edited, in the branch alone.
        other = RunMemory(
            self.system_prompt.system_prompt,
            [copy.copy(step) if isinstance(step, ActionStep) else step for step in steps],
        )
        other.begun = self.begun
        other._awaited, other._asked = self._awaited, self._asked
        return other

    def join(self, branch: RunMemory) -> None:
        """Take over what happened in a transcript that forked from this one."""
        self.close()
        branch.close()
        self.steps.extend(branch.steps[branch.inherited :])

    @property
    def last_action(self) -> ActionStep | None:
        """The last model turn, or a step in the place of one."""
        return next((step for step in reversed(self.steps) if isinstance(step, ActionStep)), None)

    @property
    def last_prompt(self) -> SentPrompt | None:
        """What a model was sent in the last turn that was one."""
        return next(
            (step.prompt for step in reversed(self.steps) if isinstance(step, ActionStep) and step.prompt), None
        )

    @property
    def turns(self) -> int:
        """The number of the last model turn; 0 where there was none."""
        return next(
            (step.step_number for step in reversed(self.steps) if isinstance(step, ActionStep) and step.step_number), 0
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RunMemory):
            return NotImplemented
        return self.system_prompt == other.system_prompt and self.steps == other.steps

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<transcript of {len(self.steps)} steps>"
