"""Answers over Responses: the JSON of a whole answer, or of the events of a streamed one, becomes a response or an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from graphagent._details import Usage
from graphagent._openai_http import safe_codes
from graphagent.errors import ModelRequestError, TruncatedError
from graphagent.llm._endpoint import request_error
from graphagent.llm._messages import Message, ModelResponse, Part, Reasoning, ToolCall
from graphagent.llm._responses_items import part_of, pieces_of, text_of
from graphagent.llm._wire import mapping, money, number, paired

_STATUSES = {"rate_limit_exceeded": 429, "server_error": 500}
"""The HTTP statuses of failures that are reported within an answer, so that retries recognise them."""
_REASONS = {"max_output_tokens": "length"}
_UNFINISHED = ("queued", "in_progress")
"""The states of a response that is still being made, which this client does not wait for."""


def from_body(data: object, server: str, family: str, limit: object = None) -> ModelResponse:
    """Read a server's JSON answer.

    Args:
        data: The answer.
        server: Says in errors who answered.
        family: Names the data that the server wants back.
        limit: How many tokens it may have, of a server that may cut it off and say that it was completed, as llama.cpp does.

    Raises:
        ModelRequestError: it is an error, is not finished, or is not the protocol.
    """
    body = mapping(data)
    status, output, usage = body.get("status"), body.get("output"), read_usage(body.get("usage"))
    error = _error_in(body, server)
    if error is not None:
        error.usage = usage if usage != Usage() else None
        raise error
    if not isinstance(output, list):
        raise ModelRequestError(
            f"{server} answered without an output; if it speaks Chat Completions only, use protocol='chat'"
        )
    parts: list[Part] = []
    refused = reasoned = False
    for each in map(mapping, cast("list[object]", output)):
        part = part_of(each, family, reasoned=reasoned)
        if part != Reasoning(""):  # nothing of it is shown, and nothing can be returned
            parts.append(part)
        refused = refused or _is_refusal(each)
        reasoned = reasoned or each.get("type") == "reasoning"
    message = Message("assistant", tuple(parts))
    if not message.text and not any(isinstance(part, Reasoning | ToolCall) for part in parts):
        message = Message("assistant", ())
    if status == "incomplete":
        reason = _reason_in(body)
        reason = _REASONS.get(reason, reason)
    elif limit and usage.output_tokens == (body.get("max_output_tokens") or limit):
        reason = "length"
    elif message.tool_calls:
        reason = "tool_calls"
    else:
        reason = "refusal" if refused else "stop"
    if reason == "length" and not message.parts:
        raise TruncatedError(
            f"{server} stopped at its limit of tokens before it said anything (status {status!r}): allow it more, by "
            f"parameters={{'max_completion_tokens': …}}",
            output="",
            usage=usage,
        )
    return ModelResponse(message, usage, reason, str(body.get("model") or ""))


def _reason_in(body: Mapping[str, Any]) -> str:
    return str(mapping(body.get("incomplete_details")).get("reason") or "length")


def _error_in(body: Mapping[str, Any], server: str) -> ModelRequestError | None:
    """Return the error in a response, if it has one instead of an answer."""
    status = body.get("status")
    if body.get("error") or status in ("failed", "cancelled"):
        return _failure(mapping(body.get("error")), server, str(status or ""))
    if status in _UNFINISHED:
        return ModelRequestError(
            f"the answer of {server} broke off before its end (status {status!r}), and one that is made in the background is not waited "
            f"for; try again"
        )
    if status == "incomplete" and _reason_in(body) == "content_filter":
        why = {"code": "content_filter", "content_filters": body.get("content_filters")}
        return request_error(f"{server} withheld its answer", detail=json.dumps(why, ensure_ascii=False))
    return None


def _is_refusal(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "message" and any(
        mapping(each).get("type") == "refusal" for each in pieces_of(item.get("content"))
    )


def _failure(error: Mapping[str, Any], server: str, state: str = "failed") -> ModelRequestError:
    code = error.get("code")
    status = _STATUSES.get(code) if isinstance(code, str) else None
    what = "cancelled its answer" if state == "cancelled" else "failed while it answered"
    text = f"{server} {what}{safe_codes(code, error.get('type'))}"
    return request_error(text, status=status, detail=json.dumps(dict(error), ensure_ascii=False)[:2_000])


def read_usage(said: object) -> Usage:
    """Read the tokens that a server counted; missing counts are 0.

    A total larger than its parts includes tokens that these leave out, such as reasoning, which counts as output.
    """
    usage = mapping(said)
    given = number(usage.get("input_tokens"))
    return Usage(
        given,
        max(number(usage.get("output_tokens")), number(usage.get("total_tokens")) - given),
        number(mapping(usage.get("input_tokens_details")).get("cached_tokens")),
        number(mapping(usage.get("output_tokens_details")).get("reasoning_tokens")),
        money(usage.get("cost")),
    )


class ResponseEvents:
    """A streamed answer: events go in as they come, and it becomes the JSON of a whole answer."""

    def __init__(self) -> None:
        self.finished = False
        """Whether there is an answer to read: one that has ended, or that says in which state it was left."""
        self.last = False
        """Whether the answer has ended, so that nothing relevant follows."""
        self._response: Mapping[str, Any] = {}
        self._items: dict[int, Mapping[str, Any]] = {}
        self._heard: list[str] = []

    def add(self, event: object, server: str) -> str:
        """Accept one event, and return the text in it. What follows the end of the answer is none of it.

        Raises:
            ModelRequestError: it is an error, or begins another answer in the middle of this one.
        """
        data = mapping(event)
        if self.last:
            return ""
        match data.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                text = str(data.get("delta") or "")
                self._heard.append(text)
                return text
            case "response.output_item.done":
                item, place = mapping(data.get("item")), data.get("output_index")
                if not isinstance(place, int) or place in self._items:
                    place = max(self._items, default=-1) + 1
                self._items[place] = item
                return self._unheard([item])
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                done = list(self._items.values())
                self._response, self.finished, self.last = mapping(data.get("response")), True, True
                return self._unheard([item for item in self._output() if item not in done])
            case "response.created" | "response.queued" | "response.in_progress":
                begun = mapping(data.get("response"))
                if self._response.get("id") and begun.get("id") and self._response["id"] != begun["id"]:
                    raise ModelRequestError(f"{server} began another answer before the end of the first; try again")
                self._response, self.finished = begun, True
            case "error":
                raise _failure(mapping(data.get("error")) or {**data, "type": None}, server)
            case _ if data.get("error"):
                raise _failure(mapping(data["error"]), server)
            case _:  # progress of no consequence to the answer
                pass
        return ""

    def _unheard(self, items: list[Mapping[str, Any]]) -> str:
        """Return the rest of the text of messages that have ended, of which some servers stream only the beginning, or nothing."""
        messages = [item for item in items if item.get("type") == "message"]
        if not messages:
            return ""
        heard = paired("".join(self._heard))
        self._heard = []
        text = "".join(text_of(piece) for item in messages for piece in pieces_of(item.get("content")))
        return text[len(heard) :] if text.startswith(heard) else ""

    def _output(self) -> list[Mapping[str, Any]]:
        """Return the items as they were reported as done, and the others, such as items that were cut off, as they are in the end of the stream.

        Items reported as done have their whole encrypted reasoning, and some servers leave these items out at the end.
        """
        given = self._response.get("output")
        output = [mapping(each) for each in cast("list[object]", given)] if isinstance(given, list) else []
        if len(output) <= len(self._items):
            return [self._items[place] for place in sorted(self._items)]
        ids = {item.get("id") for item in output}
        named = {item.get("id"): item for item in self._items.values() if item.get("id")}
        unnamed = {place: item for place, item in self._items.items() if item.get("id") not in ids - {None}}
        return [named.get(item.get("id")) or unnamed.get(place, item) for place, item in enumerate(output)]

    def body(self) -> dict[str, Any]:
        """Return the whole response, as if it had not been streamed."""
        output, state = self._output(), self._response.get("status")
        if not self.last and state not in _UNFINISHED:
            state = "in_progress"
        return {**self._response, "status": state, "output": output or self._response.get("output")}
