"""Steps as plain JSON data, and back, without loss. The values in them are those of `_values`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from graphagent._article import a
from graphagent.codec._internal import (
    DecodeError,
    HeldBlobs,
    as_int,
    as_list,
    as_str,
    decode,
    defaults_of,
    encode,
    hash_of,
    hints,
    made,
    message_json,
    read_message,
    read_usage,
    readable,
    usage_json,
)
from graphagent.errors import SerializationError
from graphagent.llm import Image, Message, Text, ToolResult
from graphagent.memory._blocks import (
    FORGOTTEN,
    FactsMessage,
    KnownFact,
    KnownNote,
    NotesMessage,
    facts_message,
    notes_message,
)
from graphagent.memory.facts._references import Name, fact_json, read_fact_json
from graphagent.memory.steps._note_references import NoteName, note_json, read_note_json
from graphagent.memory.steps._prompt_delta import SentPrompt
from graphagent.memory.steps._types import (
    ActionStep,
    FactsStep,
    FinalAnswerStep,
    MessageStep,
    NotesStep,
    PlanningStep,
    Step,
    StepFailure,
    SummaryStep,
    SystemPromptStep,
    TaskStep,
    Timing,
    fields_of,
)

if TYPE_CHECKING:
    from graphagent.codec._internal import Blobs, Json

OWN = (
    ActionStep, FactsStep, FinalAnswerStep, MessageStep, NotesStep, PlanningStep, SummaryStep, SystemPromptStep, TaskStep,
)  # fmt: skip
"""The types whose fields are written here; of any other type the declared types of its fields decide."""


def message_hash(message: Message) -> str:
    """Return the hash of the JSON data of a message, which identifies it."""
    return hash_of(orjson.dumps(message_json(message, HeldBlobs())))


class StepWriter:
    """Writes steps."""

    def __init__(
        self,
        blobs: Blobs,
        *,
        known: Callable[[object], Json | None] = lambda _: None,
        values: bool = True,
        note_texts: bool = True,
    ) -> None:
        self.blobs = blobs
        self._known = known
        """Returns the reference to an object that is stored elsewhere, or None."""
        self._values = values
        """Whether facts are written with their values, and not as references alone."""
        self._note_texts = note_texts
        """The same for notes."""
        self._prompt: SentPrompt | None = None
        self.careful = False
        """Whether messages that models were sent are written in full, since the steps that they came from changed since."""
        self.derived: Collection[str] | None = None
        """The hashes of the messages that the steps make, if others may have been sent; those are written in full."""

    def step(self, step: Step) -> dict[str, Json]:
        """Return a step as JSON data: its kind, and each field that has not its initial value.

        Raises:
            SerializationError: a value in it cannot be kept; the error names the step's type and the field.
        """
        kind = type(step)
        fields = fields_of(kind)
        beside = getattr(step, "__dict__", {}).keys() - fields.keys()
        if beside:
            raise SerializationError(
                f"{a(kind.__name__)} holds {min(beside)!r}, which is no field of it; declare it as one"
            )
        return {"kind": kind.kind, **self.fields(step, fields)}

    def fields(self, step: Step, names: Iterable[str], *, empty: bool = False) -> dict[str, Json]:
        """Return some fields of a step as JSON data; initial values in our own types are left out, unless `empty`.

        Raises:
            SerializationError: as for `step`.
        """
        kind = type(step)
        fields = fields_of(kind)
        found: dict[str, Json] = {}
        for name in sorted(names):
            own = fields[name] in OWN
            try:
                value = getattr(step, name)
                if not own:
                    found[name] = encode(value, self.blobs, hints(kind).get(name, Any))
                elif empty or not _is_start(name, value):
                    found[name] = self._field(name, value)
            except SerializationError as error:
                text = str(error)
            except AttributeError:
                text = "it was never set"
            else:
                continue
            raise SerializationError(f"the {name} of {a(kind.__name__)}: {text}")
        return found

    def _field(self, name: str, value: Any) -> Json:
        if value is None:
            return None
        known = self._known(value)
        if known is not None:
            return known
        writer = _WRITERS.get(name)
        return writer(self, value) if writer is not None else encode(value, self.blobs)

    @property
    def last(self) -> SentPrompt | None:
        """The prompt that was written last."""
        return self._prompt

    def follow(self, prompt: SentPrompt | None) -> None:
        """Take a prompt for the one that was written last."""
        self._prompt = prompt

    def write_prompt(self, prompt: SentPrompt) -> Json:
        """Return a prompt as the difference to the last one, and remember it as the last one."""
        whole = prompt if prompt.previous is self._prompt else prompt.since(None)
        self._prompt = prompt
        added = [
            self._sent(message, in_full=self.careful or place in whole.written)
            for place, message in enumerate(whole.added)
        ]
        return [whole.kept, added]

    def _sent(self, message: Message, *, in_full: bool) -> Json:
        """Return a message of a prompt. If facts or notes are references, neither their text nor a hash of it is written, since a hash would confirm a guess."""
        if isinstance(message, FactsMessage) and not self._values and any(known.kept for known in message.facts):
            return {"facts": [self.write_fact(known) for known in message.facts]}
        if isinstance(message, NotesMessage) and not self._note_texts and any(note.kept for note in message.notes):
            return {"notes": [self.write_note(note) for note in message.notes]}
        if in_full:
            return message_json(message, self.blobs)
        name = message_hash(message)
        return message_json(message, self.blobs) if self.derived is not None and name not in self.derived else name

    def write_message(self, message: Message) -> Json:
        """Return a message as JSON data; if a text that is stored elsewhere is all of it, with the reference to that text."""
        if len(message.parts) == 1 and type(message.parts[0]) is Text:
            known = self._known(message.parts[0].text)
            # What a way out handed on is made again by its code, and who reads the steps may not have that.
            if known is not None and "handed" not in known["$at"]:
                return {"role": message.role, "parts": [known]}
        return message_json(message, self.blobs)

    def write_results(self, results: Iterable[ToolResult]) -> Json:
        """Return tool results as JSON data, or the references to them."""
        return [self._known(each) or encode(each, self.blobs) for each in results]

    def write_fact(self, known: KnownFact) -> Json:
        """Return a fact as JSON data; as a reference if it can be looked up again."""
        return fact_json(known, values=self._values)

    def write_note(self, known: KnownNote) -> Json:
        """Return a note as JSON data; as a reference if it can be looked up again."""
        return note_json(known, values=self._note_texts)


_STARTS: dict[str, Any] = {
    "covers": 0,
    "keeps": 0,
    "facts": (),
    "notes": (),
    "plan": "",
    "results": (),
    "step_number": 0,
    "summary": "",
    "system_prompt": "",
    "task_images": (),
}
"""As what fields of our own types begin; any other begins as None."""


def _is_start(name: str, value: object) -> bool:
    start = _STARTS.get(name)
    return type(value) is type(start) and value == start


_WRITERS: dict[str, Callable[[StepWriter, Any], Json]] = {
    "error": lambda writer, error: [encode(error.type, writer.blobs), encode(error.message, writer.blobs)],
    "facts": lambda writer, facts: [writer.write_fact(each) for each in facts],
    "message": lambda writer, message: writer.write_message(message),
    "notes": lambda writer, notes: [writer.write_note(each) for each in notes],
    "model_output_message": lambda writer, message: message_json(message, writer.blobs),
    "prompt": lambda writer, prompt: writer.write_prompt(prompt),
    "results": lambda writer, results: writer.write_results(results),
    "task_images": lambda writer, images: [encode(each, writer.blobs) for each in images],
    "_observations_images": lambda writer, images: [encode(each, writer.blobs) for each in images],
    "timing": lambda _, timing: [timing.started, timing.ended],
    "token_usage": lambda _, usage: usage_json(usage),
}


class Told:
    """Messages that models were sent, found by their hashes."""

    def __init__(self) -> None:
        self._unread: list[Message] = []
        self._read: dict[str, Message] = {}

    def note(self, messages: Iterable[Message]) -> None:
        """Take up messages as a step gives them."""
        self._unread.extend(messages)

    def find(self, name: str) -> Message:
        """Return a message, or one that says that it was forgotten."""
        if self._unread:
            for message in self._unread:
                self._read[message_hash(message)] = message
            self._unread.clear()
        return self._read.get(name) or Message.user(FORGOTTEN)


class StepReader:
    """Reads what a StepWriter wrote, in the same order."""

    def __init__(
        self,
        blobs: Blobs,
        *,
        resolve: Callable[[Json], Any] | None = None,
        told: Told | None = None,
        facts: Mapping[Name, KnownFact] | None = None,
        notes: Mapping[NoteName, KnownNote] | None = None,
    ) -> None:
        self.blobs = blobs
        self.facts = facts
        """What facts say to which references are written."""
        self.notes = notes
        """What notes say to which references are written."""
        self.resolve = resolve
        """Returns the object to which a reference refers."""
        self.told = told or Told()
        """Messages that steps gave, to read prompts with."""
        self.prompt: SentPrompt | None = None
        """The prompt that was read last."""

    def step(self, data: Mapping[str, Json]) -> Step:
        """Return a step.

        Raises:
            ValueError: it is none. No value stands in the text.
        """
        name = data.get("kind") if isinstance(data, dict) else None
        kind = Step.kinds.get(name) if isinstance(name, str) else None
        if kind is None:
            raise ValueError(f"{name!r} is no kind of step that is known here; import what defines it first")
        step = object.__new__(kind)
        self.fill(step, {field: value for field, value in data.items() if field != "kind"})
        for field, owner in fields_of(kind).items():
            if field in data:
                continue
            if field == "message" or owner not in OWN:
                value = made(kind, field, defaults_of(kind))
            else:
                value = _STARTS.get(field)
            object.__setattr__(step, field, value)
        return step

    def fill(self, step: Step, data: Mapping[str, Json]) -> None:
        """Set fields of a step, without its noticing.

        Raises:
            ValueError: they are not those of such a step. No value stands in the text.
        """
        kind = type(step)
        fields = fields_of(kind)
        for name, part in data.items():
            if name not in fields:
                raise ValueError(f"{a(kind.__name__)} has no field {name!r}")
            try:
                if fields[name] in OWN:
                    value = self._field(name, part)
                else:
                    value = decode(part, self.blobs, hints(kind).get(name, Any))
            except ValueError as error:
                reason = str(error)
            else:
                object.__setattr__(step, name, value)
                continue
            raise ValueError(f"the {name} of {a(kind.__name__)}: {reason}")

    @readable
    def _field(self, name: str, data: Json) -> Any:
        if data is None and name not in _STARTS and name != "message":
            return None
        if self.resolve is not None and isinstance(data, dict) and "$at" in data:
            return self.resolve(data)
        reader = _READERS.get(name)
        return reader(self, data) if reader is not None else decode(data, self.blobs)

    def read_prompt(self, data: Json) -> SentPrompt:
        """Return a prompt; its messages are looked up when they are first accessed.

        Raises:
            ValueError: it is none.
        """
        kept, parts = as_int(data[0]), as_list(data[1])
        before = self.prompt if kept else None
        if not 0 <= kept <= (before.size if before else 0):
            raise DecodeError("what was kept has a prompt that begins with more than there is")

        def messages() -> tuple[Message, ...]:
            return tuple(self._sent(each) for each in parts)

        written = frozenset(place for place, each in enumerate(parts) if not isinstance(each, str))
        self.prompt = SentPrompt(before, kept, messages, size=kept + len(parts), written=written)
        return self.prompt

    def _sent(self, data: Json) -> Message:
        if isinstance(data, str):
            return self.told.find(data)
        if "notes" in data:
            return notes_message(self.read_notes(data["notes"]))
        return facts_message(self.read_facts(data["facts"])) if "facts" in data else read_message(data, self.blobs)

    @readable
    def read_facts(self, data: Json) -> tuple[KnownFact, ...]:
        """Return facts."""
        return tuple(read_fact_json(each, self.facts) for each in data)

    @readable
    def read_notes(self, data: Json) -> tuple[KnownNote, ...]:
        """Return notes."""
        return tuple(read_note_json(each, self.notes) for each in as_list(data))

    def read_message(self, data: Json) -> Message:
        """Return a message."""
        parts = data["parts"]
        if self.resolve is not None and len(parts) == 1 and isinstance(parts[0], dict) and "$at" in parts[0]:
            return read_message({**data, "parts": [as_str(self.resolve(parts[0]))]}, self.blobs)
        return read_message(data, self.blobs)

    def read_results(self, data: Json) -> tuple[ToolResult, ...]:
        """Return tool results."""
        return tuple(self._one(each, ToolResult) for each in data)

    def read_images(self, data: Json) -> tuple[Image, ...]:
        """Return images."""
        return tuple(self._one(each, Image) for each in data)

    def _one(self, data: Json, kind: type[Any]) -> Any:
        resolve = self.resolve
        found = resolve(data) if resolve is not None and "$at" in data else decode(data, self.blobs)
        if not isinstance(found, kind):
            raise DecodeError(f"what was kept has something else where {a(kind.__name__)} belongs")
        return found

    def read_text(self, data: Json) -> str:
        """Return text."""
        return as_str(decode(data, self.blobs))


def _read_timing(data: Json) -> Timing:
    started, ended = data
    return Timing(as_int(started), as_int(ended))


def _read_failure(reader: StepReader, data: Json) -> StepFailure:
    kind, message = data
    return StepFailure(reader.read_text(kind), reader.read_text(message))


_READERS: dict[str, Callable[[StepReader, Any], Any]] = {
    "code_action": lambda reader, data: reader.read_text(data),
    "covers": lambda _, data: as_int(data),
    "keeps": lambda _, data: as_int(data),
    "error": _read_failure,
    "facts": lambda reader, data: reader.read_facts(data),
    "message": lambda reader, data: reader.read_message(data),
    "model_output_message": lambda reader, data: read_message(data, reader.blobs),
    "notes": lambda reader, data: reader.read_notes(data),
    "_observations": lambda reader, data: reader.read_text(data),
    "_observations_images": lambda reader, data: reader.read_images(data),
    "plan": lambda reader, data: reader.read_text(data),
    "prompt": lambda reader, data: reader.read_prompt(data),
    "results": lambda reader, data: reader.read_results(data),
    "step_number": lambda _, data: as_int(data),
    "summary": lambda reader, data: reader.read_text(data),
    "system_prompt": lambda reader, data: reader.read_text(data),
    "task_images": lambda reader, data: reader.read_images(data),
    "timing": lambda _, data: _read_timing(data),
    "token_usage": lambda _, data: read_usage(data),
}
