"""Steps as text, for people and for other agents.

Headings begin at the left margin, and the lines below them are indented. So no content of a step can look like a heading, and no
character in it can move a terminal's cursor, hide, or change the direction of text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from graphagent._article import counted
from graphagent.llm import Image, Message, Reasoning, Text, ToolCall, ToolResult, Usage
from graphagent.memory._blocks import FORGOTTEN, KnownFact, KnownNote
from graphagent.memory.steps._dump import plain, shown_fields
from graphagent.memory.steps._types import (
    ActionStep,
    FactsStep,
    FinalAnswerStep,
    MessageStep,
    NotesStep,
    PlanningStep,
    Step,
    SummaryStep,
    SystemPromptStep,
    TaskStep,
    Timing,
)

if TYPE_CHECKING:
    from graphagent.memory.transcript._prompt import Prompt

_INDENT = "    "
_JOINERS = "\u200c\u200d"
"""Invisible characters that some scripts, and emoji of people, need."""
_LONGEST_ADDRESS = 100


_NO_RUNS: Mapping[str, str] = {}


def to_text(
    system_prompt: SystemPromptStep,
    steps: Iterable[Step],
    waiting: ActionStep | None,
    *,
    detailed: bool = False,
    inside: Mapping[str, str] = _NO_RUNS,
) -> str:
    """Return a transcript as text: the task, the messages and tool calls of each step, errors, times, tokens, the answer.

    The turn that is `waiting` for the results of its tool calls comes last. `detailed` adds the system prompt, the new messages
    that the model was sent in each turn, and times. `inside` has the texts of sub-agents' runs, which are placed below their calls.
    """
    blocks = [step_text(system_prompt)] if detailed and system_prompt.system_prompt else []
    before: Prompt | None = None
    for step in (*steps, waiting) if waiting is not None else steps:
        blocks.append("\n".join(_lines(step, detailed=detailed, before=before, inside=inside)))
        before = getattr(step, "prompt", None) or before
    if waiting is not None:
        left = "other " if waiting.results else ""
        blocks.append(f"Waiting for the results of its {left}tool calls.")
    return "\n\n".join(blocks)


def stopped_text(status: str, reason: str, error: tuple[str, str] | None = None) -> str:
    """Return the last part of the text of an unfinished run: its status, and the type and text of its error."""
    shown = "" if error is None or error[1] in reason else f"{error[0]}: {error[1]}"
    return "\n".join(_under(status.capitalize(), [*_said(reason), *_said(shown)]))


def step_text(step: Step, *, detailed: bool = False) -> str:
    """Return one step as text; `detailed` adds all messages that the model was sent, and times."""
    return "\n".join(_lines(step, detailed=detailed))


def value_text(value: Any) -> str:
    """Return any value as text: JSON, unless it is a text or a message."""
    return "\n".join(_value(value))


def _lines(
    step: Step, *, detailed: bool = False, before: Prompt | None = None, inside: Mapping[str, str] = _NO_RUNS
) -> Iterator[str]:
    title, body = _body(step, inside)
    timing: Timing | None = getattr(step, "timing", None)
    usage: Usage | None = getattr(step, "token_usage", None)
    about = list(spent(None if timing is None else timing.duration, usage))
    if detailed and timing is not None:
        about = [*_moment(timing.started), *about]
    prompt: Prompt | None = getattr(step, "prompt", None)
    sent = _sent(prompt, before) if detailed and prompt is not None else ()
    yield from _under(f"{title} ({'; '.join(about)})" if about else title, [*sent, *body])


def _body(step: Step, inside: Mapping[str, str]) -> tuple[str, Iterable[str]]:
    """Return the heading of a step, and the lines below it."""
    match step:
        case SystemPromptStep():
            return "System prompt", _said(step.system_prompt)
        case TaskStep():
            return "Task", [*_value(step.task), *_images(step.task_images)]
        case MessageStep():
            return f"Message from the {step.message.role}", _parts(step.message)
        case FactsStep():
            return "Facts", _facts(step.facts)
        case NotesStep():
            return "Notes", _notes(step.notes)
        case PlanningStep():
            return "Plan", _said(step.plan)
        case SummaryStep():
            title = f"Summary of the {step.covers} steps before" if step.covers != 1 else "Summary of the step before"
            if step.keeps:
                title += f" the last {step.keeps}" if step.keeps != 1 else " the last"
            return title, [*_said(step.summary), *_facts(step.facts)]
        case ActionStep():
            return f"Step {step.step_number}" if step.step_number else "Step", _turn(step, inside)
        case FinalAnswerStep():
            return "Final answer", _value(step.output)
        case _:
            return type(step).__name__, _fields(step, shown_fields(type(step)))


def _turn(step: ActionStep, inside: Mapping[str, str]) -> Iterator[str]:
    message = step.model_output_message
    if message is not None:
        yield from _part("Thought", _said(message.reasoning))
        yield from _part("Said", _said(message.text))
        yield from _images(message.images)
    if step.code_action and not any(step.code_action in call.arguments.values() for call in step.tool_calls):
        yield from _part("Code", _said(step.code_action))
    # If the model sees something other than the results, the text shows that instead of the results.
    text = "\n".join(result.content for result in step.results) if step.results else None
    images = tuple(image for result in step.results for image in result.images)
    as_given, images_as_given = step.observations == text, step.observations_images == images
    given = {result.call_id: result for result in step.results}
    for call in step.tool_calls:
        result = given.get(call.id)
        failed = ", which failed" if result is not None and result.is_error else ""
        content = _said(result.content) if result is not None and as_given else ()
        pictures = _images(result.images) if result is not None and images_as_given else ()
        run = inside.get(result.run_id, "") if result is not None else ""
        below = _under(f"Run {_line(result.run_id)}", run.split("\n")) if result is not None and run else ()
        yield from _under(f"Called {_call(call)}{failed}", [*below, *content, *pictures])
    if not as_given:
        yield from _under("Observed", _said(step.observations or ""))
    if not images_as_given:
        yield from _images(step.observations_images)
    if step.error is not None:
        yield from _part("Error", _said(f"{step.error.type}: {step.error.message}"))
    if message is None or step.action_output != message.text:
        yield from _part("Output", _value(step.action_output))
    yield from _fields(step, shown_fields(type(step))[len(shown_fields(ActionStep)) :])


def _call(call: ToolCall) -> str:
    import json

    arguments = call.malformed or json.dumps(plain(call.arguments), ensure_ascii=False)
    return f"{_line(call.name)}({_line(arguments)})"


def _facts(facts: Iterable[KnownFact]) -> Iterator[str]:
    for known in facts:
        value = FORGOTTEN if known.forgotten else ", ".join(known.fact.values)
        yield f"{_line(known.subject.name)}, {_line(known.fact.concept.keyword)}: {_line(value)}"


def _notes(notes: Iterable[KnownNote]) -> Iterator[str]:
    for note in notes:
        about = ", ".join(_line(each) for each in (note.scope, note.speaker or note.source, note.date) if each)
        yield f"{about}: {_line(note.content)}" if about else _line(note.content)


def _sent(prompt: Prompt, before: Prompt | None) -> Iterator[str]:
    """Return the prompt that the model was sent, without the beginning that it shares with the prompt before."""
    messages, kept = prompt.messages(), prompt.kept_of(before)
    new, count = messages[kept:], counted(len(messages), "message")
    as_before = f", of which the first {kept} as before" if kept else ""
    yield f"The model was sent {count}{as_before}:"
    for message in new:
        yield from _indented(_under(f"{message.role}", _parts(message)))


def _parts(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text():
                yield from _said(part.text)
            case Image():
                yield from _images((part,))
            case Reasoning():
                yield from _under("thought", _said(part.text))
            case ToolCall():
                yield f"call of {_call(part)}"
            case ToolResult():
                yield from _under(f"result of {_line(part.name)}", [*_said(part.content), *_images(part.images)])


def _fields(step: Step, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield from _under(name, _value(getattr(step, name, None)))


def _under(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Return a heading, and lines below it."""
    held = list(lines)
    yield f"{title}:" if held else title
    yield from _indented(held)


def _part(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Return lines below a heading; nothing without lines."""
    held = list(lines)
    if held:
        yield from _under(title, held)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield _INDENT + line if line else line


def _value(value: Any) -> Iterator[str]:
    import json

    if isinstance(value, Message):
        yield from _parts(value)
    elif value is not None:
        yield from _said(value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False, indent=2))


def _said(text: str) -> Iterator[str]:
    """Return the lines of a text."""
    if text:
        yield from map(_clean, text.replace("\r\n", "\n").split("\n"))


def _line(text: str) -> str:
    """Return a text as one line."""
    return _clean(text).replace("\n", "\\n").replace("\t", "\\t")


def _clean(text: str) -> str:
    """Return a text with every character escaped that would not be shown as itself."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character in "\n\t" or character in _JOINERS:
        return character
    # Cc, Cf: control and format characters, such as bidirectional ones; Cs, Co: characters that are not text;
    # Zl, Zp: line separators.
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
        return character.encode("unicode_escape").decode()
    return character


def _images(images: Iterable[Image]) -> Iterator[str]:
    for image in images:
        what = _line(image.url)[:_LONGEST_ADDRESS] if image.url and not image.data else size_text(len(image.data))
        yield f"[image: {_line(image.media_type)}, {what}]"


def size_text(count: int) -> str:
    """Return a number of bytes for people."""
    if count < 1000:
        return counted(count, "byte")
    return f"{count / 1000:.0f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def _moment(milliseconds: int) -> Iterator[str]:
    try:
        yield datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OSError, OverflowError, ValueError):  # beyond the years of the calendar
        return


def spent(seconds: float | None, usage: Usage | None) -> Iterator[str]:
    """Yield the known costs of something, for people: time, tokens and money."""
    if seconds is not None:
        yield f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"
    if usage is not None and usage.total_tokens:
        more = [f"{usage.input_tokens:,} in", f"{usage.output_tokens:,} out"]
        more += [f"{usage.cached_tokens:,} cached"] if usage.cached_tokens else []
        more += [f"{usage.reasoning_tokens:,} for reasoning"] if usage.reasoning_tokens else []
        yield f"{counted(usage.total_tokens, 'token')}: {', '.join(more)}"
    if usage is not None and usage.cost:
        yield f"cost {usage.cost.normalize():f}"
