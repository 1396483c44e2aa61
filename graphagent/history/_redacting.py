"""Exported runs without the words of people, models and tools, to show to others.

The parts that the library and the strategy made stay: names of nodes, tools and agents, kinds, types of errors, times, sizes and
counts. A field that is not listed here is replaced or left out, so a new field is redacted until somebody lists it.
"""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from graphagent._article import counted
from graphagent.codec._errors import as_list
from graphagent.log._bytes import plain
from graphagent.log._header import RunHeader
from graphagent.store._items import checked

if TYPE_CHECKING:
    from collections.abc import Callable

_Data = Any
"""Data of an entry, without types."""
_STAY = frozenset(
    {
        "type", "at", "first", "firsts", "trust", "to", "policy", "name", "status", "kind", "tool", "ruled", "finish", "server", "node",
        "source", "items", "strategy", "of",
    }
)  # fmt: skip
"""The fields of entries that stay, besides numbers and flags: names of the strategy's parts and of the library."""
_VALUES = ("value", "about")
"""The fields of entries that have values of users' types."""
_HEADER = frozenset(
    {
        "run_id", "strategy", "strategy_digest", "version", "started", "updated", "last", "written", "turns", "tokens", "cost", "seconds",
        "previous", "first", "place", "payloads", "parent", "origin", "due", "queue", "priority", "deaths",
    }
)  # fmt: skip
"""The fields of headers that stay."""
_STEP = frozenset({"kind", "step_number", "timing", "token_usage", "covers", "keeps", "left_out", "at"})
"""The fields of steps that stay."""
_OURS = frozenset(
    {"system_prompt", "task", "message", "facts", "notes", "planning", "summary", "action", "final_answer"}
)
"""The kinds of steps that the library has."""
_ROLES = ("system", "user", "assistant", "tool")
_LISTS = ("tuple", "set", "frozenset")
_FRAME = re.compile(r'  File "([^"\n]+)", line (\d+), in ([\w.<>]+)')
_PLACE = re.compile(r"  ([^\n]+):(\d+) in ([\w.<>]+)")
_RAISED = re.compile(r"(?:from |while handling )?[A-Za-z_]\w*")
_LIBRARY = Path(__file__).parents[1].as_posix()
_INSTALLED = re.compile(r"/(site-packages|lib/python[\d.]+)/(?!.*/site-packages/).*")
_EFFECTS = ("ask", "model", "call", "turn", "tool", "decision", "answer", "results", "plan", "approve", "step")
"""The words with which keys of effects begin."""


def redact_runs(records: Iterable[Mapping[str, object]]) -> Iterator[dict[str, object]]:
    """Yield exported runs without texts and values, as records that `import_runs` takes.

    Names of strategies, nodes, tools and agents, kinds, types of errors, times, sizes and counts stay, and so do the ids of runs. Owners
    and threads, tasks, prompts, answers, arguments, results, facts, notes, questions and the texts of errors do not. Of a traceback, the names
    of functions and of files, without their folders, and the numbers of lines stay.

    Args:
        records: The records that `export_runs` yields. A run that has not begun is left out.
    """
    runs: dict[object, list[Mapping[str, object]]] = defaultdict(list)
    for record in records:
        runs[record["owner"], record["run_id"]].append(record)
    owners, threads = _Numbered("owner"), _Numbered("thread")
    for found in runs.values():
        if all(each["type"] != "submitted" for each in found):
            yield from _run(found, owners, threads)


class _Numbered:
    """Numbered names that stand in the place of others."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._names = {"": ""}

    def __call__(self, name: str) -> str:
        return self._names.setdefault(name, f"{self._kind}-{len(self._names)}")


def _run(records: list[Mapping[str, object]], owners: _Numbered, threads: _Numbered) -> Iterator[dict[str, object]]:
    data = {number: base64.b64decode(str(each["data"])) for number, each in enumerate(records)}
    payloads = {
        str(each["number"]): data[number][4:] for number, each in enumerate(records) if each["type"] == "payload"
    }
    rows = {number: plain(data[number]) for number, each in enumerate(records) if each["type"] == "row"}
    redactor = _Redactor(payloads, _words(entry for _, _, entries in rows.values() for entry in entries))
    for number, record in enumerate(records):
        match record["type"]:
            case "run":
                redacted, record = _header(data[number], record, owners, threads), {**record, "payloads": 0}
            case "agent":
                redacted = _header(data[number], record, owners, threads)
            case "row":
                time, ran, entries = rows[number]
                redacted = checked(msgspec.msgpack.encode((time, ran, [redactor.entry(each) for each in entries])))
            case _:  # nothing refers to payloads any more
                continue
        yield {**record, "owner": owners(str(record["owner"])), "data": base64.b64encode(redacted).decode()}


def _header(data: bytes, record: Mapping[str, object], owners: _Numbered, threads: _Numbered) -> bytes:
    header = RunHeader.unpack(data, str(record["run_id"]), child=record["type"] == "agent")
    kept = {name: getattr(header, name) for name in _HEADER}
    return RunHeader(
        **kept, owner=owners(header.owner), thread=threads(header.thread), title=_said(header.title), reason=_said(header.reason),
    ).pack()  # fmt: skip


def _said(text: str) -> str:
    """Return the length of a text, which stands in its place; empty for an empty text."""
    return f"[{counted(len(text), 'character')}]" if text else ""


def _words(entries: Iterable[Mapping[str, _Data]]) -> frozenset[str]:
    """Return the names of nodes, agents, tools and effects, which may be parts of keys and names of calls."""
    found = {*_EFFECTS}
    for entry in entries:
        found |= {str(entry[name]) for name in ("kind", "tool", "name") if entry.get(name)}
        found |= {*_named(entry.get("strategy"))}
    return frozenset(found)


def _fields(data: _Data) -> Mapping[str, _Data]:
    """Return the fields of data that has some."""
    return cast("dict[str, _Data]", data) if isinstance(data, dict) else {}


def _named(outline: _Data) -> Iterator[str]:
    if outline:
        yield outline["name"]
        for each in outline.get("inside", ()):
            yield from _named(each)


class _Redactor:
    """Redacts the entries of one run, whose ids are numbered."""

    def __init__(self, payloads: Mapping[str, bytes], words: frozenset[str]) -> None:
        self._payloads, self._words = payloads, words
        self._ids, self._keywords, self._subjects = _Numbered("id"), _Numbered("fact"), _Numbered("subject")
        self._fields: dict[str, Callable[[_Data], _Data]] = {
            "value": self._value, "about": self._value, "held": self._held, "results": self._held, "step": self._step, "task": self._step,
            "steps": lambda steps: [self._step(each) for each in steps], "rules": self._text, "reason": self._text, "text": self._text,
            "key": self._id, "id": self._id, "call": self._id, "error": self._error, "failure": self._error,
            "charges": lambda charges: [{**each, "what": self._id(each["what"])} for each in charges],
        }  # fmt: skip

    def entry(self, entry: Mapping[str, _Data]) -> dict[str, _Data]:
        """Return an entry as it may be shown to others."""
        found: dict[str, _Data] = {}
        for name, data in entry.items():
            is_number = isinstance(data, bool | int | float) and (name not in _VALUES or entry.get("kind") == "sleep")
            if data is None or is_number or name in _STAY:
                found[name] = data
            elif name in self._fields:
                found[name] = self._fields[name](data)
        return found

    def _text(self, data: _Data) -> str:
        """Return the length of a text or of another value, which stands in its place."""
        if isinstance(data, str):
            return _said(data)
        fields = _fields(data)
        payload = self._payloads.get(fields.get("b", "")) if "$" in fields else None
        return _said(json.dumps(data, default=str) if payload is None else payload.decode(errors="replace"))

    def _id(self, text: str) -> str:
        """Return an id or a key, in which a number stands for each part that is not a number or a known name."""

        def numbered(part: re.Match[str]) -> str:
            known = part[0] in self._words or re.fullmatch(r"[\d.]+", part[0])
            return part[0] if known else self._ids(part[0])

        return re.sub("[^:/]+", numbered, text)

    def _error(self, error: list[str]) -> list[str]:
        kind, text, *traceback = error
        frames = (_frame(*each.groups()) for each in map(_FRAME.match, "".join(traceback).splitlines()) if each)
        shown = ["Traceback (most recent call last):", *frames, f"{kind}: {_said(text)}\n"]
        return [kind, _said(text), *(["\n".join(shown)] if traceback else [])]

    def _value(self, data: _Data) -> _Data:
        """Return the stand-in of a value: lists stay lists, since branches have their items, and text stays text."""
        if data is None or isinstance(data, str):
            return data if data is None else _said(data)
        if isinstance(data, list):
            return [self._value(each) for each in as_list(data)]
        tag = _fields(data).get("$")
        if tag in _LISTS:
            return {"$": "tuple", "v": self._value(data["v"])}
        if tag in ("str", "surrogates"):
            return self._text(data)
        return self._part(data) if tag in _PARTS else [self._text(data)]

    def _part(self, data: _Data) -> _Data:
        """Return a message, a part of one, or calls and results, with the names and sizes that it has."""
        if isinstance(data, str):
            return _said(data)
        match data.get("$"):
            case "tool_call":
                arguments = {"[arguments]": self._text(data["arguments"])} if data.get("arguments") else {}
                malformed = {"malformed": self._text(data["malformed"])} if data.get("malformed") else {}
                return {
                    "$": "tool_call",
                    "name": self._name(data["name"]),
                    "arguments": arguments,
                    "id": self._id(data.get("id", "")),
                    **malformed,
                }
            case "tool_result":
                places = "\n".join(_places(str(data.get("traceback", ""))))
                kept = {name: data[name] for name in ("is_error", "seconds", "run_id") if name in data}
                return {
                    "$": "tool_result", "call_id": self._id(data["call_id"]), "name": self._name(data["name"]), "content": self._text(data["content"]),
                    **kept, **({"traceback": places} if places else {}),
                }  # fmt: skip
            case "calls" | "results" as tag:
                text = {"text": self._text(data.get("text", ""))} if tag == "calls" else {}
                return {"$": tag, "v": [self._part(each) for each in data["v"]], **text}
            case "message":
                return {"$": "message", **self._message(data)}
            case "reasoning" as tag:
                return {"$": tag, "text": self._text(data["text"])}
            case "text":
                return self._text(data["text"])
            case _:  # an image
                return self._text(data)

    def _name(self, name: str) -> str:
        """Return the name of a tool. The name of an unknown tool is replaced: a model made it up, or it is not a name."""
        return name if name in self._words else _said(name)

    def _held(self, data: _Data) -> _Data:
        if "$response" not in _fields(data):
            return self._value(data)
        message, *more = cast("list[_Data]", data["$response"])
        return {"$response": [self._part(message), *more]}

    def _message(self, data: Mapping[str, _Data]) -> dict[str, _Data]:
        if "role" not in data:  # facts or notes
            lists = {name: [known(each) for each in data[name]] for name, known in self._known if name in data}
            return {**lists, **({"left_out": data["left_out"]} if "left_out" in data else {})}
        return {
            "role": data["role"] if data["role"] in _ROLES else "user",
            "parts": [self._part(each) for each in data["parts"]],
        }

    @property
    def _known(self) -> tuple[tuple[str, Callable[[Mapping[str, _Data]], _Data]], ...]:
        return ("facts", self._fact), ("notes", self._note)

    def _fact(self, data: Mapping[str, _Data]) -> dict[str, _Data]:
        """Return a fact as a reference that leads nowhere, with its trust. Facts contradict each other where they did."""
        subject, _, priority, kind, scope = data["place"]
        record = data.get("fact")
        if record is None:
            (_, version), (concept, form), trust, at = data["ref"], data["concept"], data["source"][-1], data["at"]
        else:
            version, concept, form, at = (record[name] for name in ("version", "keyword", "type", "timestamp"))
            trust = record["source"].get("trust", "") if isinstance(record["source"], dict) else record["source"][-1]
        keyword = self._keywords(concept)
        return {
            "place": [self._subjects(subject), "", priority, kind, _said(scope)], "ref": [keyword, version], "concept": [keyword, form],
            "source": ["", None, "", trust], "at": at,
        }  # fmt: skip

    def _note(self, data: Mapping[str, _Data]) -> dict[str, _Data]:
        """Return a note as a reference that leads nowhere, with its trust."""
        id_, version, trust, cut = data.get(
            "noted", (data.get("id", ""), data.get("version", 0), data.get("trust", ""), 0)
        )
        return {"noted": [self._id(id_), version, trust, cut]}

    def _step(self, data: Mapping[str, _Data]) -> dict[str, _Data]:
        kind = data["kind"]
        if kind not in _OURS:  # its fields are of users' types
            said = f"a step of the kind {kind}, {self._text(data)}"
            return {"kind": "message", "message": {"role": "user", "parts": [said]}}
        found: dict[str, _Data] = {}
        for name, each in data.items():
            if each is None or name in _STEP:
                found[name] = each
            elif name in ("task_images", "_observations_images"):
                continue
            elif name in ("message", "model_output_message"):
                found[name] = self._message(each)
            elif name == "prompt":
                found[name] = self._prompt(each)
            elif name == "results":
                found[name] = [self._part(one) for one in each]
            elif name == "error":
                found[name] = self._error([one if isinstance(one, str) else self._text(one) for one in each])
            elif name in ("facts", "notes"):
                found |= self._message({name: each})
            else:
                found[name] = self._value(each)
        return found

    def _prompt(self, data: list[_Data]) -> list[_Data]:
        rules, as_of, ranges, *parts = data
        shown: list[_Data] = [
            [self._message(_fields(each)) if isinstance(each, dict) else each for each in cast("list[_Data]", part)]
            for part in parts
        ]
        return [None if rules is None else self._text(rules), as_of, ranges, *shown]


_PARTS = frozenset({"tool_call", "tool_result", "calls", "results", "message"})
"""The forms of values that are kept, with their contents replaced."""


def _places(traceback: str) -> Iterator[str]:
    """Yield the lines of the traceback of a tool: types of errors, and where they were raised."""
    for line in traceback.splitlines():
        if found := _PLACE.fullmatch(line):
            yield f"  {_file(found[1])}:{found[2]} in {found[3]}"
        elif _RAISED.fullmatch(line):
            yield line


def _frame(file: str, line: str, function: str) -> str:
    return f'  File "{_file(file)}", line {line}, in {function}'


def _file(name: str) -> str:
    """Return the name of a file, without its folders unless they are those of a package that is installed, or of Python."""
    path = name.replace("\\", "/")
    if path.startswith(f"{_LIBRARY}/"):
        path = f"/site-packages{path.removeprefix(_LIBRARY.rpartition('/')[0])}"
    found = _INSTALLED.search(path)
    return f"…{found[0]}" if found else path.rpartition("/")[2]
