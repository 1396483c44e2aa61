"""A whole transcript as text, and back, without loss."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

import orjson

from graphagent.codec._internal import (
    DecodeError,
    HeldBlobs,
    as_str,
    decode,
    encode,
    hash_of,
    message_json,
    read_message,
    readable,
)
from graphagent.errors import SerializationError
from graphagent.memory.facts._types import TRUST_LEVELS
from graphagent.memory.steps._json import StepReader, StepWriter, message_hash
from graphagent.memory.steps._prompt_delta import SentPrompt
from graphagent.memory.steps._transcript import RunMemory
from graphagent.memory.steps._types import ActionStep, Step

if TYPE_CHECKING:
    from graphagent.codec._internal import Json
    from graphagent.llm import Message

_FORMAT = "graphagent steps"
_VERSION = 1


def to_json(memory: RunMemory) -> str:
    """Save a transcript without loss.

    The text is one JSON object: `format`, `version`, a checksum `sum` (it finds accidents, it is no seal), and `transcript`.
    Large payloads stand in it once, under their hashes; each message that a model was sent stands in it once, in the step that
    gave it or beside the steps; and each prompt is told as the difference to another one. So its size is that of what was said.

    Raises:
        SerializationError: something in it is of a type that cannot be saved; it names the step.
    """
    blobs = HeldBlobs()
    prompts = _Prompts(memory, blobs)
    writer = StepWriter(blobs, known=prompts.known)
    steps: list[Json] = []
    for place, step in enumerate([*memory.steps, *_open(memory)]):
        try:
            steps.append(writer.step(step))
        except SerializationError as error:
            raise SerializationError(f"step {place}: {error}") from error
    transcript = {
        "system_prompt": encode(memory.system_prompt.system_prompt, blobs),
        "open": steps.pop() if memory.open else None,
        "steps": steps,
        "prompts": prompts.written,
        "messages": prompts.beside,
        **({"trust": memory.floor} if memory.floor != "trusted" else {}),
        "blobs": {name: base64.b64encode(data).decode() for name, data in blobs.held.items()},
    }
    saved = {"format": _FORMAT, "version": _VERSION, "sum": _checksum(transcript), "transcript": transcript}
    return orjson.dumps(saved).decode()


def from_json(text: str | bytes) -> RunMemory:
    """Load what `to_json` saved.

    Raises:
        ValueError: it is not that, or not all of it. No value stands in the text.
    """
    try:
        saved = orjson.loads(text)
    except ValueError:
        saved = None
    # Outside, since the error that it stands for holds the text.
    if not isinstance(saved, dict) or cast("dict[str, Json]", saved).get("format") != _FORMAT:
        raise ValueError("this is no saved transcript, or not all of it; RunMemory.to_json() makes one")
    found = cast("dict[str, Json]", saved)
    if found.get("version") != _VERSION:
        raise ValueError(f"this transcript is of another version than {_VERSION}, which is all that this release reads")
    if found.keys() != {"format", "version", "sum", "transcript"} or found["sum"] != _checksum(found["transcript"]):
        raise ValueError("this transcript is not what was saved: its checksum does not fit it")
    return _read(found["transcript"])


@readable
def _read(transcript: Mapping[str, Json]) -> RunMemory:
    blobs = HeldBlobs({name: base64.b64decode(data, validate=True) for name, data in transcript["blobs"].items()})
    beside: Mapping[str, Json] = transcript["messages"]
    prompts: list[SentPrompt] = []

    def prompt_of(place: Mapping[str, Json]) -> SentPrompt:
        number = place["$at"]
        if type(number) is not int or not 0 <= number < len(prompts):
            raise DecodeError("what was kept refers to a prompt that is not there")
        return prompts[number]

    reader = StepReader(blobs, resolve=prompt_of)
    for before, kept, names in transcript["prompts"]:
        reader.prompt = None if before is None else prompt_of({"$at": before})
        prompts.append(reader.read_prompt([kept, [beside.get(name, name) for name in names]]))
    steps = [reader.step(each) for each in transcript["steps"]]
    turn = reader.step(transcript["open"]) if transcript["open"] is not None else None
    if turn is not None and not isinstance(turn, ActionStep):
        raise DecodeError("what was kept has something else where a model turn belongs")
    memory = RunMemory(as_str(decode(transcript["system_prompt"], blobs)), steps)
    if turn is not None:
        memory.open = turn
        memory.sent(turn.prompt)
    floor = as_str(transcript.get("trust", "trusted"))
    if floor not in TRUST_LEVELS:
        raise DecodeError("what was kept has a trust that is not known here")
    memory.lower(floor)
    for message in beside.values():
        read_message(message, blobs)  # what cannot be read is told now, and not when someone looks at a prompt
    reader.told.note(_given(memory))
    return memory


def _checksum(transcript: Json) -> str:
    return hash_of(orjson.dumps(transcript, option=orjson.OPT_SORT_KEYS))


def _open(memory: RunMemory) -> list[Step]:
    return [memory.open] if memory.open else []


def _given(memory: RunMemory) -> Iterator[Message]:
    """Yield all messages of the steps."""
    for step in (memory.system_prompt, *memory.steps, *_open(memory)):
        yield from step.to_messages()


class _Prompts:
    """The prompts of a transcript, each written as the difference to one that was written before."""

    def __init__(self, memory: RunMemory, blobs: HeldBlobs) -> None:
        self.written: list[Json] = []
        """The number of the prompt before, how many of its messages are kept, and the hashes of the others."""
        self.beside: dict[str, Json] = {}
        """The messages that stand in no step, under their hashes."""
        self._blobs = blobs
        self._told = {message_hash(message) for message in _given(memory)}
        self._numbers: dict[int, int] = {}

    def known(self, value: object) -> Json | None:
        """Write a prompt, and give what stands for it in its step."""
        if not isinstance(value, SentPrompt):
            return None
        number = self._numbers.get(id(value))
        if number is None:
            number = self._write(value)
        return {"$at": number}

    def _write(self, prompt: SentPrompt) -> int:
        before = prompt.previous
        while before is not None and id(before) not in self._numbers:
            before = before.previous
        told = prompt if before is prompt.previous else prompt.since(before)
        names = [self._name(message) for message in told.added]
        base = self._numbers[id(before)] if before is not None and told.kept else None
        self.written.append([base, told.kept, names])
        self._numbers[id(prompt)] = len(self.written) - 1
        return len(self.written) - 1

    def _name(self, message: Message) -> str:
        name = message_hash(message)
        if name not in self._told and name not in self.beside:
            self.beside[name] = message_json(message, self._blobs)
        return name
