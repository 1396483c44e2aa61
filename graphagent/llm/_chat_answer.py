"""Answers over Chat Completions: the JSON of a whole answer, or the chunks of a streamed one, become a response, or an error."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, cast

from graphagent._details import MONEY, Usage
from graphagent._openai_http import safe_codes
from graphagent.errors import ContentFilterError, ModelRequestError
from graphagent.llm._content_filter import categories_of, objection
from graphagent.llm._endpoint import DONE, request_error
from graphagent.llm._messages import Message, ModelResponse, Part, ProviderData, Reasoning, Text, ToolCall
from graphagent.llm._wire import mapping, money, number, read_arguments

if TYPE_CHECKING:
    from graphagent.llm._families import ModelFamily


def from_body(data: object, server: str, family: ModelFamily | None = None) -> ModelResponse:
    """Read a server's JSON answer; `server` says in errors who answered, `family` the data that it wants back.

    Raises:
        ModelRequestError: it is an error, was broken off, or is not the protocol.
    """
    body = mapping(data)
    choices = body.get("choices")
    choice = mapping(cast("list[object]", choices)[0] if isinstance(choices, list) and choices else None)
    check_error(body, server)
    check_error(choice, server)
    if not choices or not isinstance(choices, list):
        raise ModelRequestError(f"{server} answered without a choice; is it an OpenAI-compatible server?")
    usage, stated = read_usage(usage_in(body, choice)), str(choice.get("finish_reason") or "stop")
    # Gemini adds the objection of its filter to the reason: "content_filter: PROHIBITED_CONTENT".
    reason, _, why = stated.partition(": ")
    reason = _REASONS.get(reason.lower(), stated)
    said = mapping(choice.get("message"))
    categories = categories_of([choice.get("content_filter_results"), body.get("prompt_filter_results")])
    if reason == "content_filter" or (not said and categories):
        categories = (*categories, why) if why else categories
        text = f"{server} withheld its answer; {objection(categories)}"
        raise ContentFilterError(text, categories=categories, usage=usage)
    if reason in _BROKEN_OFF:
        error = ModelRequestError(f"{server} broke off its answer (finish_reason {reason!r}); try again")
        error.usage = usage
        raise error
    if not isinstance(choice.get("message"), Mapping):
        raise ModelRequestError(
            f"{server} answered with a choice that has no message; is it an OpenAI-compatible server?"
        )
    message = _message(said, family)
    if message.tool_calls and reason in ("stop", "function_call"):
        reason = "tool_calls"
    elif reason == "stop" and said.get("refusal") and not said.get("content"):
        reason = "refusal"
    return ModelResponse(message, usage, reason, str(body.get("model") or ""))


_REASONS = {
    **dict.fromkeys(("eos", "eos_token", "end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(("max_tokens", "model_length"), "length"),
    **dict.fromkeys(("tool_use", "tool_calls"), "tool_calls"),
    **dict.fromkeys(("content_filter", "safety", "sensitive"), "content_filter"),
}
"""The names that servers and the models behind them have for the reasons of the protocol."""
_BROKEN_OFF = ("abort", "aborted", "cancelled", "error", "insufficient_system_resource", "network_error")
"""Reasons of answers that are not finished: of OpenRouter, vLLM, DeepSeek, GLM."""


def check_error(said: Mapping[str, Any], server: str) -> None:
    """Check that no error is in a whole answer, a chunk or a choice, whatever the status.

    Raises:
        ModelRequestError: the answer has an error. Its status is that of the error, if it has one.
    """
    found = said if said.get("object") == "error" else said.get("error")
    if not found and mapping(said.get("base_resp")).get("status_code"):  # MiniMax, whose codes are its own; 0 is none
        found = said["base_resp"]
    error = mapping(found)
    # Servers in Go send an empty object in the place of no error.
    if not found or (error and not any(error.values())):
        return
    codes = [error.get(name) for name in ("code", "status", "status_code")]
    statuses = [int(str(code)) for code in codes if re.fullmatch("[45][0-9]{2}", str(code))]
    raise request_error(
        f"{server} answered with an error{safe_codes(error.get('code'), error.get('type'), error.get('status_code'))}",
        status=next(iter(statuses), None),
        detail=json.dumps(found, ensure_ascii=False)[:2_000],
    )


def _message(said: Mapping[str, Any], family: ModelFamily | None) -> Message:
    text, thought = read_content(said.get("content") or said.get("refusal") or "")
    shown = (said.get(name) for name in reasoning_fields(family))
    thought = next((each for each in shown if isinstance(each, str) and each), "") + thought
    details = said.get("reasoning_details")
    if not thought and isinstance(details, list):
        each = [mapping(detail) for detail in cast("list[object]", details)]
        told = [str(detail.get("text") or detail.get("summary") or "") for detail in each]
        thought = "\n\n".join(filter(None, told))
    kept = _reasoning(said, thought, family)
    others = _others(said, family, MESSAGE_FIELDS)
    if others and not text:
        kept = ProviderData(others.family, {**(kept.data if kept else {}), **others.data})
    parts: list[Part] = []
    if thought or kept:
        parts.append(Reasoning(thought, provider=kept))
    if text:
        parts.append(Text(text, provider=others))
    calls, legacy = said.get("tool_calls"), mapping(said.get("function_call"))
    if isinstance(calls, list):
        parts.extend(_call(mapping(each), family) for each in cast("list[object]", calls))
    if not calls and legacy.get("name"):
        parts.append(_call({"function": legacy}, family))
    return Message("assistant", tuple(parts))


MESSAGE_FIELDS = frozenset(("role", "content", "refusal", "tool_calls", "function_call", "audio", "index"))
"""The fields of a message that are read, besides its reasoning."""
CALL_FIELDS = frozenset(("id", "type", "function", "index"))
"""The fields of a tool call that are read."""


def reasoning_fields(family: ModelFamily | None) -> tuple[str, ...]:
    """Return the fields that may have the text of reasoning."""
    return tuple(dict.fromkeys((*(family.reasoning if family else ()), "reasoning_content", "reasoning")))


def _reasoning(said: Mapping[str, Any], thought: str, family: ModelFamily | None) -> ProviderData | None:
    """Return the field with the reasoning. If it equals the text of the part, its value is None."""
    for name in family.reasoning if family is not None else ():
        value = said.get(name)
        if family is not None and value is not None:
            # DeepSeek wants an empty one back, too: github.com/Oaklight/llm-rosetta/issues/356
            names = family.reasoning if family.every else (name,)
            return ProviderData(family.name, dict.fromkeys(names, None if value == thought else value))
    return None


def _others(said: Mapping[str, Any], family: ModelFamily | None, known: AbstractSet[str]) -> ProviderData | None:
    """Return the other fields that the family wants back: the one with a signature, or all that are not understood."""
    if family is None:
        return None
    known = {*known, *reasoning_fields(family), "reasoning_details"}
    kept = {
        name: value
        for name, value in said.items()
        if value and (name == family.signature or (family.whole and name not in known))
    }
    return ProviderData(family.name, kept) if kept else None


def read_content(content: object) -> tuple[str, str]:
    """Return text and reasoning; some servers send a list of chunks instead of a string."""
    if not isinstance(content, list):
        return str(content), ""
    text, thought = "", ""
    for each in map(mapping, cast("list[object]", content)):
        if each.get("type") == "thinking":
            thought += "".join(read_content(each.get("thinking") or ""))
        else:
            text += str(each.get("text") or "")
    return text, thought


def _call(said: Mapping[str, Any], family: ModelFamily | None) -> ToolCall:
    function = mapping(said.get("function"))
    name, identity = str(function.get("name") or ""), str(said.get("id") or "")
    arguments, malformed = read_arguments(function.get("arguments"))
    return ToolCall(name, arguments, identity, malformed, provider=_others(said, family, CALL_FIELDS))


def usage_in(body: Mapping[str, Any], choice: Mapping[str, Any]) -> Any:
    """Return the usage in a whole answer or a chunk: of the protocol, of Moonshot's streams, or of Groq's."""
    return body.get("usage") or choice.get("usage") or mapping(body.get("x_groq")).get("usage")


def read_usage(said: object) -> Usage:
    """Read the tokens that a server counted; missing counts are 0.

    If its total exceeds the tokens of prompt and answer, the rest was billed too: audio of the prompt (Mistral), or reasoning (xAI,
    Gemini). OpenRouter and xAI say what they cost (openrouter.ai/docs/use-cases/usage-accounting; docs.x.ai: 10 ** 10 ticks are
    a dollar).
    """
    usage = mapping(said)
    prompt, completion = mapping(usage.get("prompt_tokens_details")), mapping(usage.get("completion_tokens_details"))
    sent, answered = number(usage.get("prompt_tokens")), number(usage.get("completion_tokens"))
    reasoning = number(completion.get("reasoning_tokens") or usage.get("reasoning_tokens"))
    more = max(0, number(usage.get("total_tokens")) - sent - answered)
    if more and more == number(prompt.get("audio_tokens")) and more != reasoning:
        sent += more
    elif more:
        answered, reasoning = answered + more, reasoning or more
    cached = prompt.get("cached_tokens") or usage.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")
    ticks = money(usage.get("cost_in_usd_ticks"))
    return Usage(
        sent, answered, number(cached), reasoning, MONEY.scaleb(ticks, -10) if ticks else money(usage.get("cost"))
    )


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
            # Snowflake gives no reason. If others give none, they broke off, which shows in half a call.
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
