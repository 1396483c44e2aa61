"""Streamed answers over Chat Completions: chunks become the JSON of a whole answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from graphagent.llm._chat_answer import (
    CALL_FIELDS,
    MESSAGE_FIELDS,
    check_error,
    read_content,
    reasoning_fields,
    usage_in,
)
from graphagent.llm._content_filter import categories_of
from graphagent.llm._endpoint import DONE
from graphagent.llm._wire import mapping

if TYPE_CHECKING:
    from graphagent.llm._families import ModelFamily


class Chunks:
    """A streamed answer: chunks go in as they come, and it becomes the JSON of a whole answer."""

    last = False
    """Always False: usage and the marker `[DONE]` follow the end of an answer."""

    def __init__(self, family: ModelFamily | None = None) -> None:
        self.finished = False
        """Whether the server announced the end of the answer."""
        self._is_over = False
        """Whether another answer has begun, which was not asked for."""
        self._body: dict[str, Any] = {}
        self._index: object = None
        """The index of the choice that is read, which is the first to be heard of."""
        self._finish: tuple[str, object] = "", None
        """The reason why it ended, and the id of the chunk that said so."""
        self._filtered: dict[str, Any] = {}
        self._reasoning = reasoning_fields(family)
        self._texts: dict[str, list[str]] = {"content": [], "refusal": []}
        self._details: list[dict[str, Any]] = []
        self._others: dict[str, Any] = {}
        self._calls: list[dict[str, Any]] = []
        self._arguments: list[list[str]] = []
        self._at_index: dict[str, int] = {}

    def add(self, event: object, server: str) -> str:
        """Accept one chunk, or the marker of the end, and return the text in it.

        Raises:
            ModelRequestError: it is an error.
        """
        if event == DONE:
            # Snowflake gives no reason. Where others give none, they broke off, which shows in half a call.
            self.finished = self.finished or (self._index is not None and self._are_calls_whole())
            self._is_over = True
            return ""
        chunk = mapping(event)
        given = chunk.get("choices")
        choices = [mapping(each) for each in cast("list[object]", given)] if isinstance(given, list) else []
        # The id alone says nothing: Groq's compound models give each chunk one of its own, Azure's late annotations have none.
        if self.finished and choices and chunk.get("id") not in (None, "", self._finish[1]):
            self._is_over = True
        if self._is_over:
            return ""
        check_error(chunk, server)
        for choice in choices:
            check_error(choice, server)
        if choices and self._index is None:
            self._index = choices[0].get("index", 0)
        choice = next((each for each in choices if each.get("index", self._index) == self._index), mapping(None))
        kept = {"model": chunk.get("model"), "usage": usage_in(chunk, choice)}
        kept["system_fingerprint"] = chunk.get("system_fingerprint")
        self._body.update({name: value for name, value in kept.items() if value})
        filtered = categories_of([choice.get("content_filter_results"), chunk.get("prompt_filter_results")])
        self._filtered.update({name: {"filtered": True} for name in filtered})
        if choice.get("finish_reason"):
            self.finished, self._finish = True, (str(choice["finish_reason"]), chunk.get("id") or self._finish[1])
        return self._add_delta(mapping(choice.get("delta")))

    def _add_delta(self, delta: Mapping[str, Any]) -> str:
        text, thought = read_content(delta.get("content") or "")
        refusal = str(delta.get("refusal") or "")
        self._texts["content"].append(text)
        self._texts["refusal"].append(refusal)
        for name in self._reasoning:
            if isinstance(delta.get(name), str):
                self._texts.setdefault(name, []).append(delta[name])
        if thought:
            self._texts.setdefault("reasoning_content", []).append(thought)
        details = delta.get("reasoning_details")
        for each in cast("list[object]", details) if isinstance(details, list) else []:
            self._add_detail(mapping(each))
        for name, value in delta.items():
            if value and name not in MESSAGE_FIELDS and name not in (*self._reasoning, "reasoning_details"):
                known = self._others.get(name)
                self._others[name] = [*known, *value] if isinstance(known, list) and isinstance(value, list) else value
        calls, legacy = delta.get("tool_calls"), mapping(delta.get("function_call"))
        for each in cast("list[object]", calls) if isinstance(calls, list) else []:
            self._add_call(mapping(each))
        if not calls and any(legacy.values()):
            self._add_call({"index": "function_call", "function": legacy})
        return text or refusal

    def _add_detail(self, said: Mapping[str, Any]) -> None:
        """Accept a piece of OpenRouter's and MiniMax's reasoning, which continues the last one if it has the same type and index."""
        known = self._details[-1] if self._details else {}
        if not known or any(known.get(name) != said.get(name) for name in ("type", "index")):
            self._details.append(dict(said))
            return
        for name, value in said.items():
            if name in ("text", "summary") and isinstance(value, str):
                known[name] = str(known.get(name) or "") + value
            elif value is not None:
                known[name] = value

    def _add_call(self, said: Mapping[str, Any]) -> None:
        function = mapping(said.get("function"))
        index, identity, name = str(said.get("index")), said.get("id"), function.get("name")
        at = self._at_index.get(index)
        # Some servers leave the index out, or use the same one for every call: then a new id with a name begins a call.
        known = self._calls[at]["id"] if at is not None else ""
        if at is None or (identity and name and identity != known):
            at = self._at_index[index] = len(self._calls)
            self._calls.append({"id": identity or "", "function": {"name": name or "", "arguments": ""}})
            self._arguments.append([])
        elif identity and not known:
            self._calls[at]["id"] = identity
        self._calls[at].update({name: value for name, value in said.items() if value and name not in CALL_FIELDS})
        given = function.get("arguments")
        if isinstance(given, Mapping):
            given = json.dumps(given, ensure_ascii=False)
        self._arguments[at].append(str(given or ""))

    def _are_calls_whole(self) -> bool:
        try:
            return all(isinstance(json.loads("".join(pieces)), dict) for pieces in self._arguments)
        except ValueError:
            return False

    def body(self) -> dict[str, Any]:
        """Return the whole response, as if it had not been streamed."""
        message: dict[str, Any] = {key: "".join(pieces) for key, pieces in self._texts.items()}
        for call, pieces in zip(self._calls, self._arguments, strict=True):
            call["function"]["arguments"] = "".join(pieces)
        message |= self._others
        if self._details:
            message["reasoning_details"] = self._details
        message["tool_calls"] = self._calls
        choice = {"message": message, "finish_reason": self._finish[0], "content_filter_results": self._filtered}
        return {**self._body, "choices": [choice]}
