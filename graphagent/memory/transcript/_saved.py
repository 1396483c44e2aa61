"""A whole transcript as JSON text, and back, without loss."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, cast

import orjson

from graphagent.codec._blobs import HeldBlobs, hash_of
from graphagent.codec._errors import DecodeError, as_int, as_list, as_str, readable
from graphagent.codec._values import decode, encode
from graphagent.errors import SerializationError
from graphagent.memory.facts._types import TRUST_LEVELS
from graphagent.memory.transcript._fields import Source, read_step, write_step
from graphagent.memory.transcript._transcript import Item, Transcript

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from graphagent.codec._blobs import Blobs
    from graphagent.codec._values import Json
    from graphagent.memory.transcript._prompt import Versions

_FORMAT = "graphagent steps"
_VERSION = 2


class _Target:
    """Writes facts and notes with their texts."""

    refers: Collection[str] = ()
    rules: str | None = None

    def __init__(self, blobs: Blobs, versions: Versions) -> None:
        self.blobs, self.versions = blobs, versions


def to_json(transcript: Transcript) -> str:
    """Return a transcript as JSON text, without loss.

    The text is one JSON object: `format`, `version`, a checksum `sum` (it detects accidents, not forgery), and `transcript`.
    Every version of a step that a model was sent is written once, and prompts refer to versions, so the size is that of the
    conversation. Large payloads are written once, under their hashes.

    Raises:
        SerializationError: the type of a value cannot be stored; the error names the step.
    """
    blobs = HeldBlobs()
    target = _Target(blobs, transcript.versions)
    versions: list[Json] = []
    places = {item.version: place for place, item in enumerate(transcript.items)}
    for number, step in enumerate(transcript.versions):
        try:
            versions.append(write_step(step, target))
        except SerializationError as error:
            raise SerializationError(f"step {places.get(number, len(places))}: {error}") from error
    data = {
        "system_prompt": encode(transcript.rules, blobs),
        "versions": versions,
        "ids": transcript.versions.ids,
        "steps": [list(item) for item in transcript.items],
        "open": None if transcript.open is None else list(transcript.open),
        "begun": transcript.begun,
        **({"trust": transcript.floor} if transcript.floor != "trusted" else {}),
        "blobs": {name: base64.b64encode(data).decode() for name, data in blobs.held.items()},
    }
    saved = {"format": _FORMAT, "version": _VERSION, "sum": _checksum(data), "transcript": data}
    return orjson.dumps(saved).decode()


def from_json(text: str | bytes) -> Transcript:
    """Load a transcript from the text that `to_json` returned.

    Raises:
        ValueError: the text is not a saved transcript, or is incomplete. The error does not contain its values.
    """
    try:
        saved = orjson.loads(text)
    except ValueError:
        saved = None
    # Outside the except clause, since the caught error contains the text.
    if not isinstance(saved, dict) or cast("dict[str, Json]", saved).get("format") != _FORMAT:
        raise ValueError("this is not a saved transcript, or not all of it; RunMemory.to_json() makes one")
    found = cast("dict[str, Json]", saved)
    if found.get("version") != _VERSION:
        raise ValueError(f"this transcript is of another version than {_VERSION}, the only one that this release reads")
    if found.keys() != {"format", "version", "sum", "transcript"} or found["sum"] != _checksum(found["transcript"]):
        raise ValueError("checksum mismatch: this transcript differs from the one that was saved")
    return _read(found["transcript"])


@readable
def _read(data: Mapping[str, Any]) -> Transcript:
    blobs = HeldBlobs({name: base64.b64decode(each, validate=True) for name, each in data["blobs"].items()})
    floor = as_str(data.get("trust", "trusted"))
    if floor not in TRUST_LEVELS:
        raise DecodeError("the trust level is not known")
    transcript = Transcript(as_str(decode(data["system_prompt"], blobs)), floor=floor)
    versions, ids = transcript.versions, as_list(data["ids"])
    for number, each in enumerate(as_list(data["versions"])):
        if not -1 <= as_int(ids[number]) <= number:
            raise DecodeError("a version is of a step that does not exist")
        versions.add(read_step(each, Source(blobs, versions)), ids[number])
    transcript.items = [_item(each, len(versions)) for each in as_list(data["steps"])]
    transcript.open = None if data["open"] is None else _item(data["open"], len(versions))
    transcript.begun = transcript.inherited = as_int(data["begun"])
    return transcript


def _item(data: Any, count: int) -> Item:
    id_, version = map(as_int, as_list(data))
    if not 0 <= id_ <= version < count:
        raise DecodeError("a step refers to a version that does not exist")
    return Item(id_, version)


def _checksum(data: Json) -> str:
    return hash_of(orjson.dumps(data, option=orjson.OPT_SORT_KEYS))
