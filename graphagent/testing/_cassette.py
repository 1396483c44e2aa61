"""A model that replays the answers of a real model from a file."""

from __future__ import annotations

import difflib
import json
import os
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphagent._article import counted
from graphagent.errors import OutputError, ScriptError
from graphagent.llm._json_form import dumps, read_response, request_json, response_json
from graphagent.llm._whole import empty_answer
from graphagent.llm._wrappers import tells_cost
from graphagent.testing._model import words

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from graphagent.llm import ModelRequest, ModelResponse
    from graphagent.protocols import Model

_FORMAT = 1
_SHOWN = 40
"""Lines of a difference that an error shows."""
_LONGEST = 200
"""Characters of such a line."""


class RecordedModel:
    """A model for tests that replays answers from a file: `RecordedModel("tests/oslo.json", OpenAIModel("gpt-5-mini"))`.

    Without recording, which is the default, no model is asked: a request that is not in the file raises a ScriptError, which shows
    what differs from the nearest one that is. With `record=True`, or GRAPHAGENT_RECORD=1 in the environment, the model is asked for
    requests that are not in the file, and the answers are added. To record everything anew, delete the file.

    Requests are the same if everything in them is that the model sees. Equal requests are answered in the order in which they were
    recorded. Streamed text comes word by word. The file is JSON, for people to read and to review; it contains neither keys nor
    headers, and images of requests by their hash. It is replaced as a whole after each recorded answer. Several objects, threads and
    processes may record into one file; each replays what was there when it was made, and what it has recorded itself.
    """

    def __init__(self, path: str | os.PathLike[str], model: Model | None = None, *, record: bool | None = None) -> None:
        """Read the file, if there is one.

        Args:
            path: The file, such as `tests/recorded/oslo.json`. Its folder is made when something is recorded.
            model: The model that is asked when something is recorded. If it is given, only answers of a model of its name count.
            record: Whether to record; None to follow GRAPHAGENT_RECORD.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not a file of a RecordedModel.
        """
        self.path = Path(path)
        """The file."""
        self.model = model
        """The model that is asked when something is recorded."""
        self.record = os.environ.get("GRAPHAGENT_RECORD", "0") not in ("", "0") if record is None else record
        """Whether requests that are not in the file are recorded."""
        self.requests: list[ModelRequest] = []
        """The requests, in order."""
        self._recorded = _read(self.path)
        self._used: set[int] = set()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name of the model, or else of the one that was recorded first."""
        if self.model is not None:
            return self.model.name
        return self._recorded[0]["name"] if self._recorded else "recorded"

    @property
    def tells_cost(self) -> bool:
        """Whether the answers of the model say what they cost; without a model, whether the recorded answers do."""
        return self.model is None or tells_cost(self.model)

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Return the recorded answer; or ask the model, if requests are recorded.

        Raises:
            ModelRequestError: as the model raises it; that is not recorded.
            OSError: the file cannot be written.
            ScriptError: the request is not in the file, and is not recorded.
        """
        from anyio import to_thread
        from anyio.lowlevel import checkpoint

        await checkpoint()
        self.requests.append(request)
        asked: dict[str, Any] = json.loads(dumps(request_json(request)))
        found = self._find(asked)
        if found is not None:
            response = read_response(found["response"])
            if on_text is not None:
                for piece in words(response.message.text):
                    on_text(piece)
                    await checkpoint()
            return response
        if not self.record or self.model is None:
            raise ScriptError(self._not_recorded(asked))
        try:
            response = await self.model.respond(request, on_text)
        except OutputError as error:  # recorded too, since the model is asked again
            response = empty_answer(error)
        entry = {"name": self.model.name, "request": asked, "response": json.loads(dumps(response_json(response)))}
        with self._lock:
            self._used.add(len(self._recorded))
            self._recorded.append(entry)
        await to_thread.run_sync(_add, self.path, entry)
        return response

    def _find(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        """Return the first recording of a request that was not replayed yet, and count it as replayed."""
        with self._lock:
            for number, each in enumerate(self._recorded):
                if number not in self._used and self._is_same(each, asked):
                    self._used.add(number)
                    return each
        return None

    def _is_same(self, each: dict[str, Any], asked: dict[str, Any]) -> bool:
        return each["request"] == asked and (self.model is None or each["name"] == self.model.name)

    def _not_recorded(self, asked: dict[str, Any]) -> str:
        """Return the message about a request that is not in the file."""
        what = f"request {len(self.requests)} is not recorded in {self.path}"
        how = "To record it, set GRAPHAGENT_RECORD=1 or pass record=True, with a model: RecordedModel(path, model, record=True)"
        if not self._recorded:
            return f"{what}, which {'is empty' if self.path.exists() else 'does not exist'}. {how}"
        times = sum(self._is_same(each, asked) for each in self._recorded)
        if times:
            return f"{what} once more: it is there {counted(times, 'time')}, and each answer was replayed. {how}"
        lines = _lines(asked)
        others = [_lines(each["request"]) for each in self._recorded]
        likeness = [difflib.SequenceMatcher(None, other, lines, autojunk=False).ratio() for other in others]
        nearest = max(range(len(others)), key=likeness.__getitem__)
        if likeness[nearest] == 1:
            name = self._recorded[nearest]["name"]
            return f"{what}: it is there, but was answered by model {name!r}, and not by {self.name!r}. {how}"
        changes = list(difflib.unified_diff(others[nearest], lines, "recorded", "asked", n=1, lineterm=""))
        shown = [line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…" for line in changes[:_SHOWN]]
        more = [f"… {len(changes) - _SHOWN} more lines"] if len(changes) > _SHOWN else []
        return "\n".join(
            [f"{what}. The nearest is number {nearest + 1} there, which differs in this:", *shown, *more, how]
        )

    def __repr__(self) -> str:
        how = "recording" if self.record else "replaying"
        return f"<RecordedModel {how} {str(self.path)!r}>"


_writing = threading.Lock()
"""Held while a thread of this process replaces a file."""


def _add(path: Path, entry: dict[str, Any]) -> None:
    """Replace the file by one with a further recording, so that it is whole whenever the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _writing, _locked(path.parent):
        # Read again, since others may have recorded into it.
        content = dumps({"format": _FORMAT, "recorded": [*_read(path), entry]}, indent=2) + b"\n"
        beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            beside.write_bytes(content)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Keep other processes from replacing files of the folder, which leaves no lock file beside those that are committed."""
    if sys.platform == "win32":  # a folder cannot be opened there
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(path: Path) -> list[dict[str, Any]]:
    """Return the recordings of a file; none if it does not exist."""
    try:
        data: Any = json.loads(path.read_bytes())
        if data["format"] != _FORMAT:
            raise ValueError(f"its format is {data['format']!r}, not {_FORMAT}")
        recorded: list[dict[str, Any]] = data["recorded"]
        for each in recorded:
            read_response(each["response"])
            if not isinstance(each["request"], dict) or not isinstance(each["name"], str):
                raise ValueError("a recording has no request or no name")  # noqa: TRY004  the file is wrong, not a type
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = str(error) if type(error) is ValueError else type(error).__name__
        raise ValueError(
            f"{path} is not a file of a RecordedModel ({reason}); restore it, or delete it and record anew"
        ) from None
    return recorded


def _lines(request: dict[str, Any]) -> list[str]:
    return dumps(request, indent=2).decode().splitlines()
