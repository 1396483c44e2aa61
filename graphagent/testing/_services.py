"""The refusals of real services, word for word, and the data that they attach to their answers for this purpose.

Their messages and codes are those that users of the services have reported.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

Service: TypeAlias = Literal["openai", "deepseek", "google", "mistral"]
"""A service that the server can be as strict as."""

Json: TypeAlias = dict[str, Any]

_SKIPPED = "skip_thought_signature_validator"
"""The signature that Google accepts for a call of another model."""
_MESSAGE_FIELDS = {
    "system": "content role name",
    "developer": "content role name",
    "user": "content role name",
    "assistant": "content role name audio function_call refusal tool_calls",
    "tool": "content role tool_call_id",
}
_ITEM_FIELDS = {
    "message": "type id role content status phase",
    "function_call": "type id call_id name arguments status namespace caller async",
    "function_call_output": "type id call_id output status name namespace caller",
    # The types of the official client have a status, too, which the service refuses.
    "reasoning": "type id summary content encrypted_content",
    "item_reference": "type id",
}
_ID_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
_MISTRAL_PARAMETERS = (
    "model messages temperature top_p max_tokens stream stream_options stop random_seed response_format tools tool_choice n prediction "
    "presence_penalty frequency_penalty parallel_tool_calls prompt_mode reasoning_effort metadata safe_prompt"
)
_MISTRAL_ID = "[a-zA-Z0-9]{9}"
_MISTRAL_FIELDS = {
    "system": "content role",
    "user": "content role",
    "assistant": "content role prefix tool_calls",
    "tool": "content role tool_call_id name",
}


class RefusedError(Exception):
    """The answer of the server to a refused request."""

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None, body: object = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = body or {
            "error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}
        }


def check_chat(service: Service, body: Mapping[str, Any], key: str) -> None:
    """Refuse a request that the service refuses on Chat Completions.

    Raises:
        RefusedError: it would not take the request.
    """
    _CHAT_CHECKS[service](body, key)


def finish_chat(service: Service, message: Json, body: Mapping[str, Any], number: int, key: str) -> None:
    """Attach the data of the service to the message of an answer, and leave out fields that it does not show."""
    calls = message.get("tool_calls") or ()
    for at, call in enumerate(calls):
        if service == "mistral" and re.fullmatch(_MISTRAL_ID, call["id"]) is None:
            call["id"] = f"{number:07d}{at:02d}"
        call["id"] = call["id"] or f"call_{number:06d}{at:02d}"
    if service == "deepseek" and _deepseek_thinks(body):
        message.setdefault("reasoning_content", "Let me think.")
    else:
        message.pop("reasoning_content", None)
    if service == "google" and calls:
        # Of the calls of one answer, the first has it.
        calls[0]["extra_content"] = {"google": {"thought_signature": seal(f"answer {number}", key)}}


def check_responses(
    body: Mapping[str, Any],
    items: Sequence[Mapping[str, Any]],
    stored: Collection[str],
    thoughts: Mapping[str, str],
    key: str,
) -> None:
    """Refuse a request that OpenAI refuses on Responses.

    Args:
        body: The request.
        items: Its items, those of earlier responses that it continues included.
        stored: The ids of the items that the server has stored.
        thoughts: The id of the reasoning item that led to an item or a call, by the id of that.
        key: Of the client, for which its encrypted reasoning was made.

    Raises:
        RefusedError: it would not take the request.
    """
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    _check_known(body, ResponseCreateParamsStreaming.__annotations__)
    _check_sampling(body, _at(body, "reasoning", "effort"))
    for at, tool in enumerate(body.get("tools") or ()):
        if tool.get("strict"):
            _check_schema(tool["parameters"], f"function '{tool['name']}'", f"tools[{at}].parameters")
    wanted = _at(body, "text", "format")
    if _at(wanted, "strict"):
        _check_schema(wanted["schema"], f"response_format '{wanted['name']}'", "text.format.schema")
    for at, item in enumerate(items):
        _check_item(at, item)
    _check_calls(items)
    _check_reasoning(items, stored, thoughts, key)


def _at(value: Any, *path: str) -> Any:
    """Return the value at a path, or None if a part of the path is missing or null."""
    for name in path:
        if value is None:
            return None
        value = value.get(name)
    return value


def _check_known(given: Iterable[str], known: Collection[str], path: str = "") -> None:
    for name in given:
        if name not in known:
            param = f"{path}{name}"
            raise RefusedError(f"Unknown parameter: '{param}'.", param=param, code="unknown_parameter")


def _check_sampling(body: Mapping[str, Any], effort: str | None) -> None:
    if effort == "none":
        return
    for name in ("temperature", "top_p"):
        if body.get(name) not in (None, 1):
            text = f"Unsupported parameter: '{name}' is not supported with this model."
            raise RefusedError(text, param=name, code="unsupported_parameter")


def _check_schema(schema: object, owner: str, param: str) -> None:
    """Refuse a strict schema with an object that allows additional fields, or does not require all of its own."""
    if not isinstance(schema, dict):
        for each in cast("list[object]", schema) if isinstance(schema, list) else ():
            _check_schema(each, owner, param)
        return
    found = cast("dict[str, Any]", schema)
    fields = found.get("properties")
    if fields is not None:
        problem = ""
        missing = [name for name in fields if name not in found.get("required", ())]
        if missing:
            problem = f"'required' is required to be supplied and to be an array including every key in properties. Missing '{missing[0]}'."
        if found.get("additionalProperties") is not False:
            problem = "'additionalProperties' is required to be supplied and to be false."
        if problem:
            raise RefusedError(f"Invalid schema for {owner}: In context=(), {problem}", param=param)
    for name, value in found.items():
        if name in ("properties", "$defs"):
            value = list(value.values())
        if name not in ("enum", "const", "default", "required"):
            _check_schema(value, owner, param)


def _check_item(at: int, item: Mapping[str, Any]) -> None:
    kind = item.get("type", "message")
    _check_known(item, _ITEM_FIELDS.get(kind, "").split(), f"input[{at}].")
    identity, prefix = item.get("id"), _ID_PREFIXES.get(kind, "")
    if identity and not identity.startswith(prefix):
        raise RefusedError(
            f"Invalid 'input[{at}].id': '{identity}'. Expected an ID that begins with '{prefix}'.",
            param=f"input[{at}].id",
            code="invalid_value",
        )
    if item.get("role") == "assistant" and not isinstance(item["content"], str):
        for place, part in enumerate(item["content"]):
            if part["type"] not in ("output_text", "refusal"):
                raise RefusedError(
                    f"Invalid value: '{part['type']}'. Supported values are: 'output_text' and 'refusal'.",
                    param=f"input[{at}].content[{place}]",
                    code="invalid_value",
                )


def _check_calls(items: Sequence[Mapping[str, Any]]) -> None:
    waiting: dict[str, None] = {}
    for item in items:
        if item.get("type") == "function_call":
            waiting[item["call_id"]] = None
        elif item.get("type") == "function_call_output" and waiting.pop(item["call_id"], 0) == 0:
            text = f"No tool call found for function call output with call_id {item['call_id']}."
            raise RefusedError(text, param="input")
    for call_id in waiting:
        raise RefusedError(f"No tool output found for function call {call_id}.", param="input")


def _check_reasoning(
    items: Sequence[Mapping[str, Any]], stored: Collection[str], thoughts: Mapping[str, str], key: str
) -> None:
    users = [at for at, item in enumerate(items) if item.get("role") == "user"]
    turn = users[-1] if users else -1
    given: set[str] = set()
    for at, item in enumerate(items):
        kind, identity = item.get("type", "message"), item.get("id", "")
        if identity and identity in given:
            text = f"Duplicate item found with id {identity}. Remove duplicate items from your input and try again."
            raise RefusedError(text, param="input")
        if kind == "reasoning":
            identity = _reasoning_id(item, stored, key)
            after = next((each for each in items[at + 1 :] if each.get("type") != "reasoning"), None)
            if after is None or (after.get("role") != "assistant" and after.get("type") != "function_call"):
                text = f"Item '{identity}' of type 'reasoning' was provided without its required following item."
                raise RefusedError(text, param="input")
        # The service knows an item by its id alone. In the current turn, the server knows calls without ids, too: nothing
        # would be refused then, but the model would have to think anew.
        needed = thoughts.get(identity) or (thoughts.get(item.get("call_id", "")) if at > turn else None)
        if needed and needed not in given and kind in ("message", "function_call"):
            text = f"Item '{identity or item['call_id']}' of type '{kind}' was provided without its required 'reasoning' item: '{needed}'."
            raise RefusedError(text, param="input")
        if identity:
            given.add(identity)


def _reasoning_id(item: Mapping[str, Any], stored: Collection[str], key: str) -> str:
    identity, content = str(item.get("id", "")), item.get("encrypted_content")
    if not content:
        if identity not in stored:
            raise not_found(identity)
        return identity
    try:
        found = opened(content, key)
    except ValueError:
        reason = "Encrypted content could not be decrypted or parsed."
    else:
        if identity in ("", found):
            return found
        reason = "Encrypted content item_id did not match the target item id."
    raise RefusedError(
        f"The encrypted content for item {identity} could not be verified. Reason: {reason}",
        code="invalid_encrypted_content",
    )


def not_found(identity: str) -> RefusedError:
    """Return the refusal of an id that the server has not stored."""
    return RefusedError(
        f"Item with id '{identity}' not found. Items are not persisted when `store` is set to false. Try again with "
        "`store` set to true, or remove this item from your input.",
        status=404,
        param="input",
    )


def _unpaired(messages: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]] | None:
    """Return where a result follows no call, with no ids, or where results of calls are missing, with the ids of the calls."""
    waiting: list[str] = []
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return at, []
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return at, waiting
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    return (len(messages), waiting) if waiting else None


_UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
)


def _check_openai(body: Mapping[str, Any], key: str) -> None:
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    _check_known(body, CompletionCreateParamsStreaming.__annotations__)
    messages, effort = body["messages"], body.get("reasoning_effort")
    for at, message in enumerate(messages):
        _check_known(message, _MESSAGE_FIELDS[message["role"]].split(), f"messages[{at}].")
        for number, call in enumerate(message.get("tool_calls") or ()):
            _check_known(call, ("id", "type", "function"), f"messages[{at}].tool_calls[{number}].")
    _check_sampling(body, effort)
    if body.get("max_tokens") is not None:
        text = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        raise RefusedError(text, param="max_tokens", code="unsupported_parameter")
    unpaired = _unpaired(messages)
    if unpaired:
        at, ids = unpaired
        text = f"{_UNANSWERED} The following tool_call_ids did not have response messages: {', '.join(ids)}"
        if not ids:
            text = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        raise RefusedError(text, param=f"messages.[{at}].role")
    for at, tool in enumerate(body.get("tools") or ()):
        function = tool["function"]
        if function.get("strict"):
            _check_schema(function["parameters"], f"function '{function['name']}'", f"tools[{at}].function.parameters")
    wanted = _at(body, "response_format", "json_schema")
    if _at(wanted, "strict"):
        _check_schema(wanted["schema"], f"response_format '{wanted['name']}'", "response_format")
    if body.get("tools") and effort != "none":
        raise RefusedError(
            f"Function tools with reasoning_effort are not supported for {body['model']} in /v1/chat/completions. To use "
            "function tools, use /v1/responses or set reasoning_effort to 'none'.",
            param="reasoning_effort",
        )


def _deepseek_thinks(body: Mapping[str, Any]) -> bool:
    return bool(_at(body, "thinking", "type") != "disabled")


def _check_deepseek(body: Mapping[str, Any], key: str) -> None:
    if _at(body, "response_format", "type") == "json_schema":
        raise RefusedError("This response_format type is unavailable now", code="invalid_request_error")
    unpaired = _unpaired(body["messages"])
    if unpaired:
        text = f"{_UNANSWERED} (insufficient tool messages following tool_calls message)"
        if not unpaired[1]:
            text = "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
        raise RefusedError(text, code="invalid_request_error")
    for message in body["messages"]:
        if (
            message.get("tool_calls")
            and _deepseek_thinks(body)
            and not isinstance(message.get("reasoning_content"), str)
        ):
            text = "The `reasoning_content` in the thinking mode must be passed back to the API."
            raise RefusedError(text, code="invalid_request_error")


def _google_error(message: str, violations: Sequence[str] = ()) -> RefusedError:
    error: Json = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
    if violations:
        found = [{"description": each} for each in violations]
        error["details"] = [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": found}]
    return RefusedError(message, body=[{"error": error}])


def _check_google(body: Mapping[str, Any], key: str) -> None:
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

    known = {*CompletionCreateParamsStreaming.__annotations__, "extra_body"}
    unknown = [
        f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
        for name in body
        if name not in known
    ]
    if unknown:
        raise _google_error("\n".join(unknown), unknown)
    messages = [message for message in body["messages"] if message["role"] not in ("system", "developer")]
    if _unpaired(messages):
        raise _google_error(
            "Please ensure that the number of function response parts is equal to the number of function call parts of the "
            "function call turn."
        )
    users = [at for at, message in enumerate(messages) if message["role"] == "user"]
    for at, message in enumerate(messages):
        # Only the calls since the last message of the user have to be signed, and of several in one message the first.
        if not message.get("tool_calls") or (users and at < users[-1]):
            continue
        call = message["tool_calls"][0]
        signature = _at(call, "extra_content", "google", "thought_signature")
        if not signature:
            raise _google_error(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
                "correctly, and missing thought_signature may lead to degraded model performance. Additional data, function "
                f"call `default_api:{call['function']['name']}` , position {at + 1}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )
        if signature != _SKIPPED:
            try:
                opened(signature, key)
            except ValueError:
                raise _google_error("Invalid thought signature.") from None


def _check_mistral(body: Mapping[str, Any], key: str) -> None:
    extra: list[Json] = []

    def check(given: Mapping[str, Any], known: str, *place: str | int) -> None:
        for name in given:
            if name not in known.split():
                found = {"type": "extra_forbidden", "loc": ["body", *place, name], "input": given[name]}
                extra.append({**found, "msg": "Extra inputs are not permitted"})

    check(body, _MISTRAL_PARAMETERS)
    for at, message in enumerate(body["messages"]):
        role = message["role"]
        check(message, _MISTRAL_FIELDS[role], "messages", at, role)
        for number, call in enumerate(message.get("tool_calls") or ()):
            check(call, "id type function index", "messages", at, role, "tool_calls", number)
    error: Json = {"object": "error", "type": "invalid_request_error", "param": None, "code": None}
    if extra:
        raise RefusedError("Extra inputs", status=422, body={**error, "message": {"detail": extra}})
    for message in body["messages"]:
        for call in message.get("tool_calls") or ():
            if re.fullmatch(_MISTRAL_ID, call["id"]) is None:
                text = f"Tool call id was {call['id']} but must be a-z, A-Z, 0-9, with a length of 9."
                changed = {"type": "invalid_function_call", "message": text, "code": "3280"}
                raise RefusedError(text, body={**error, **changed})
    if _unpaired(body["messages"]):
        text = "Not the same number of function calls and responses"
        changed = {"type": "invalid_request_message_order", "message": text, "code": "3230"}
        raise RefusedError(text, body={**error, **changed})


_CHAT_CHECKS: dict[Service, Callable[[Mapping[str, Any], str], None]] = {
    "openai": _check_openai,
    "deepseek": _check_deepseek,
    "google": _check_google,
    "mistral": _check_mistral,
}


def seal(identity: str, key: str) -> str:
    """Return a stand-in for encrypted reasoning with that id, bound to the key."""
    return base64.urlsafe_b64encode(_code(identity, key) + identity.encode()).decode()


def opened(content: str, key: str) -> str:
    """Return the id with which `seal` was called.

    Raises:
        ValueError: it was not made for this key.
    """
    try:
        read = base64.b64decode(content, altchars=b"-_", validate=True)
        identity = read[32:].decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError("it is nothing that was sealed") from None
    if not hmac.compare_digest(read[:32], _code(identity, key)):
        raise ValueError("it was sealed for another key")
    return identity


def _code(identity: str, key: str) -> bytes:
    return hmac.digest(key.encode(), identity.encode(), "sha256")
