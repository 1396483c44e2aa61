"""The fold is the live state: what a store has of a run is compared with the state that the run has, after every commit.

`compare(log)` reads the rows of a log again, folds what was appended since on top, and compares everything that a state contains.
"""

from __future__ import annotations

from typing import Any

from graphagent.codec._blobs import HeldBlobs
from graphagent.codec._values import encode
from graphagent.log._bytes import row_of
from graphagent.log._log import Log
from graphagent.log._segments import read_segments
from graphagent.log._state import State
from graphagent.log._visits import UNSET, Activation, Frame, Visit
from graphagent.memory.transcript._fields import write_step
from graphagent.memory.transcript._prompt import Versions
from graphagent.memory.transcript._transcript import Transcript

DERIVED = frozenset(
    (
        "_begun",
        "_of",
        "_projection",
        "_prompted",
        "_ranges",
        "_settled",
        "_shared",
        "_summaries",
        "_visible",
        "_ends",
        "_indexed",
        "_latest",
        "_messages",
        "_numbers",
        "_rules",
        "made",
    )
)
"""Of a transcript and its versions: the messages that were derived, and whether another transcript has the same lists."""


class _Target:
    """Writes steps as the log does, with references to facts and notes."""

    refers = ("fact", "note")
    rules = None

    def __init__(self, versions: Versions) -> None:
        self.blobs, self.versions = HeldBlobs(), versions


async def compare(log: Log) -> None:
    """Check that the rows of a log fold to the state that it has."""
    assert log.store is not None
    read = Log(log.store, log.header, types=log.codec.types)
    read.codec.keeps_values = log.codec.keeps_values
    segments = await read_segments(log.store, log.header)
    pending = list(log._new)
    if pending:
        segments[-1].rows.append((log._first, row_of(log.state.time, log.state.ran, pending)))
        read.codec.blobs.stored |= log.codec.blobs.new
    read.fold(segments, until=log.state.number)  # another process may have gone on since
    assert described(read.state) == described(log.state)


def described(state: State) -> dict[str, Any]:
    """Return everything that a state contains, as data that can be compared."""
    transcripts: dict[int, str] = {}
    names = [name for name in State.__slots__ if name not in ("frames", "root", "run")]
    return {
        **{name: _plain(getattr(state, name)) for name in names},
        "root": _frame(state.root, transcripts),
        "run": _activation(state.run),
        "frames": {path: frame in state.root.frames() for path, frame in sorted(state.frames.items())},
    }


def _frame(frame: Frame, transcripts: dict[int, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in Frame.__slots__:
        value = getattr(frame, name)
        if name == "parent":
            found[name] = None if value is None else value.path
        elif name == "transcript":
            found[name] = _transcript(value, transcripts)
        elif name == "visit":
            found[name] = _visit(value, transcripts)
        elif name == "activation":
            found[name] = None if value is None else value.path
        else:
            found[name] = _plain(value)
    return found


def _visit(visit: Visit, transcripts: dict[int, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in Visit.__struct_fields__:
        value = getattr(visit, name)
        if name == "inside":
            found[name] = {key: [_frame(each, transcripts) for each in frames] for key, frames in value.items()}
        elif name == "effects":
            found[name] = {place: _plain(each) for place, each in value.items()}
        elif name in ("started", "attempts"):
            found[name] = dict(value)
        else:
            found[name] = _plain(value)
    return found


def _activation(activation: Activation) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in Activation.__slots__:
        value = getattr(activation, name)
        if name == "frame":
            found[name] = value.path
        elif name == "parent":
            found[name] = None if value is None else value.path
        elif name == "children":
            found[name] = [_activation(each) for each in value]
        else:
            found[name] = _plain(value)
    return found


def _transcript(transcript: Transcript, transcripts: dict[int, str]) -> Any:
    known = transcripts.get(id(transcript))
    if known is not None:
        return known
    transcripts[id(transcript)] = f"transcript {len(transcripts)}"
    versions = transcript.versions
    names = [name for name in Transcript.__slots__ if name not in (*DERIVED, "versions")]
    return {
        **{name: _plain(getattr(transcript, name)) for name in names},
        **{name: _plain(getattr(versions, name)) for name in Versions.__slots__ if name not in DERIVED},
        "versions": [_step(step, versions) for step in versions],
    }


def _step(step: Any, versions: Versions) -> Any:
    try:
        return write_step(step, _Target(versions))
    except Exception:  # a value of a user's type, whose class only the strategy declares
        shown = {name: repr(getattr(step, name, None)) for name in ("task", "output", "action_output")}
        return type(step).__name__, shown


def _plain(value: Any) -> Any:
    if value is UNSET:
        return "unset"
    if type(value).__name__ == "Raw":
        return bytes(value)
    if type(value) is list or isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    try:
        return repr(encode(value, HeldBlobs()))
    except Exception:
        return repr(value)
