"""Questions that a run waits for, and the JSON schemas of their answers: what a log says of a type that only the code of a node knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any, cast

from graphagent._article import a, counted, kind_of
from graphagent.errors import AnswerError, ToolError
from graphagent.graph._types import show
from graphagent.llm import Approve, Deny, ToolCall, ToolResult
from graphagent.llm._images import with_images
from graphagent.llm._validation_messages import problems
from graphagent.run._times import moment_of

if TYPE_CHECKING:
    from graphagent.log._log import Log
    from graphagent.log._state import OpenQuestion, QuestionKind


_PLAIN: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": type(None),
    "object": dict,
    "array": list,
}
_LIMITS: Any = (
    ("minimum", (int, float), ge, "must be at least", ""),
    ("maximum", (int, float), le, "must be at most", ""),
    ("exclusiveMinimum", (int, float), gt, "must be more than", ""),
    ("exclusiveMaximum", (int, float), lt, "must be less than", ""),
    ("minLength", (str,), ge, "must have at least", "character"),
    ("maxLength", (str,), le, "must have at most", "character"),
    ("minItems", (list,), ge, "must have at least", "item"),
    ("maxItems", (list,), le, "must have at most", "item"),
)
"""Of a JSON schema: the name of a limit, which values it is for, the relation to it, and the message where that does not hold."""


def schema_of(kind: QuestionKind, type_: Any) -> dict[str, Any]:
    """Return the JSON schema of an answer; empty where anything may be answered, or the type has none."""
    if kind in ("approval", "in_flight"):
        return {"type": "boolean"}
    if kind == "result" or type_ in (None, Any, object):
        return {}
    from pydantic import PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(type_).json_schema()
    except PydanticUserError:
        return {}


def misfits(value: Any, schema: Mapping[str, Any], known: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Yield each place where JSON data has not the form of a JSON schema, whose references are to `known` ones, and what must be there.

    Formats, patterns and multiples are not looked at.
    """
    if "$ref" in schema:
        yield from misfits(value, known.get(schema["$ref"].rpartition("/")[2], {}), known, place)
        return
    choices, kind = schema.get("anyOf", schema.get("oneOf")), schema.get("type")
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    wanted = ""
    if choices is not None:
        if all(any(misfits(value, each, known)) for each in choices):
            wanted = "has none of the forms that may be answered"
    elif values is not None:
        if not any(type(value) is type(each) and value == each for each in values):
            wanted = f"must be {' or '.join(map(repr, values))}"
    elif kind == "object" and isinstance(value, dict):
        yield from _of_fields(cast("Mapping[str, Any]", value), schema, known, f"{place}." if place else "")
    elif kind == "array" and isinstance(value, list):
        yield from _of_items(cast("Sequence[Any]", value), schema, known, f"{place}." if place else "")
    elif isinstance(value, bool) and kind in _PLAIN:  # which is an int to Python
        wanted = "" if kind == "boolean" else f"must be of type {kind}"
    elif isinstance(kind, str) and not isinstance(value, _PLAIN.get(kind, object)):
        wanted = f"must be of type {kind}"
    if wanted := wanted or _beyond(value, schema):
        yield f"{place or 'all of it'}: {wanted}"


def _beyond(value: Any, schema: Mapping[str, Any]) -> str:
    """Return which limit a number, the length of a text or that of a list is beyond; empty if none."""
    for name, kinds, holds, said, what in _LIMITS:
        limit = schema.get(name)
        if type(value) in kinds and isinstance(limit, int | float) and not holds(len(value) if what else value, limit):
            return f"{said} {counted(limit, what) if what else limit}"
    return ""


def _of_fields(
    value: Mapping[str, Any], schema: Mapping[str, Any], known: Mapping[str, Any], under: str
) -> Iterator[str]:
    fields, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    yield from (f"{under}{name}: is missing" for name in schema.get("required", ()) if name not in value)
    for name, each in value.items():
        if name in fields or others is not False:
            yield from misfits(each, fields.get(name, {} if others is True else others), known, f"{under}{name}")
        else:
            yield f"{under}{name}: is not asked for"


def _of_items(value: Sequence[Any], schema: Mapping[str, Any], known: Mapping[str, Any], under: str) -> Iterator[str]:
    first = schema.get("prefixItems", [])
    kinds = first + [schema.get("items", {})] * (len(value) - len(first))
    for number, (each, kind) in enumerate(zip(value, kinds, strict=False)):
        yield from misfits(each, kind, known, f"{under}{number}")


VERDICT: Any = bool | Approve | Deny
"""The type of the answer to whether something may be done."""
_TYPES: Mapping[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool}


@dataclass(frozen=True, slots=True)
class Question:
    """Something that a run waits for: an answer, an approval, or the result of a tool call that comes from outside."""

    id: str
    """Identifies it among the open questions of the run: the id of the call for tools."""
    question: str
    """The text of the question."""
    node: str
    """The path of the node that asks."""
    kind: QuestionKind = "question"
    """`question`; `approval` of a tool call or of a value; the `result` of a deferred call; or what was `in_flight` when a process
    died, and may be done again."""
    about: Any = field(default=None, repr=False)
    """The subject: the node's input; for tools the ToolCall. What cannot be stored is its text."""
    type: Any = field(default=None, compare=False)
    """The type of the answer; for approvals `bool | Approve | Deny`. Any where the code that asked does not say it to
    this process, as in `ctx.ask`: then `json_schema` says what fits."""
    run_id: str = ""
    """The run of the sub-agent that asks; empty where the run itself does."""
    asked: datetime | None = None
    """When it was asked, in UTC."""
    json_schema: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False, compare=False)
    """The JSON schema of the answer, for a web form; empty where anything may be answered. For approvals it is a boolean."""
    deadline: datetime | None = None
    """Until when it can be answered at least, in UTC: until the run goes on without an answer. None: for as long as it takes."""

    @property
    def call(self) -> ToolCall | None:
        """The tool call that it is about."""
        return self.about if isinstance(self.about, ToolCall) else None

    def check(self, answer: object) -> object:
        """Return an answer in the form of its type, or `Deny`, which declines whatever is asked.

        Raises:
            AnswerError: it does not fit. The text says which field and why, without the answer.
        """
        if isinstance(answer, Deny):
            return answer
        if self.kind in ("approval", "in_flight"):
            return self._verdict(answer)
        if self.kind == "result":
            return self._result(answer)
        if self.type not in (None, Any, object):
            return self._typed(answer)
        return self._as_schema_says(answer) if self.json_schema else answer

    def _verdict(self, answer: object) -> object:
        call = self.call
        if isinstance(answer, Approve) and answer.arguments is not None and call is None:
            raise AnswerError(
                self.id, f"question {self.id!r} is about no tool call, so Approve(…) has no arguments= to change"
            )
        if isinstance(answer, Approve):
            return answer
        if isinstance(answer, bool):
            return Approve() if answer else Deny()
        approve = "Approve()" if call is None else "Approve(arguments=…)"
        given = "a text; a reason for a no is Deny('…')" if isinstance(answer, str) else a(type(answer).__name__)
        raise AnswerError(
            self.id,
            f"question {self.id!r} asks for a yes or no; answer True, False, {approve} or Deny(reason), not {given}",
        )

    def _result(self, answer: object) -> object:
        """Return the result of a call: a ToolResult where it is an error."""
        call = self.call
        if isinstance(answer, ToolError) and call is not None:
            return ToolResult.error(call, str(answer))
        if isinstance(answer, Approve | BaseException):
            raise AnswerError(
                self.id,
                f"question {self.id!r} asks for the result of a call that is made elsewhere; answer with the result, "
                f"ToolError(reason) if the call failed, or Deny(reason) if it is not made, not with {a(type(answer).__name__)}",
            )
        try:
            return with_images(answer)
        except ValueError as error:
            raise AnswerError(self.id, f"the answer to {self.id!r} cannot be kept: {error}") from None

    def _typed(self, answer: object) -> object:
        import json

        from pydantic import TypeAdapter, ValidationError

        adapter: TypeAdapter[Any] = TypeAdapter(self.type)
        try:
            return adapter.validate_python(answer, strict=True)
        except ValidationError as error:
            wrong = error
        try:
            return adapter.validate_json(json.dumps(answer), strict=True)
        except ValidationError as error:
            wrong = error
        except (TypeError, ValueError, RecursionError):  # not JSON
            pass
        raise self._unfitting(show(self.type), answer, problems(wrong))

    def _as_schema_says(self, answer: object) -> object:
        """Return an answer as JSON has it. Its type is known to the node, which makes it of the answer."""
        from pydantic_core import PydanticSerializationError, to_jsonable_python

        try:
            plain = to_jsonable_python(answer)
            found = [*misfits(plain, self.json_schema, self.json_schema.get("$defs", {}))]
        except (PydanticSerializationError, ValueError, RecursionError):
            plain, found = None, ["is not JSON"]
        if not found:
            return plain
        raise self._unfitting(
            self.json_schema.get("title") or self.json_schema.get("type", "what its json_schema describes"),
            answer,
            found,
        )

    def _unfitting(self, wanted: str, answer: object, found: Sequence[str]) -> AnswerError:
        found = [each.removeprefix("all of it: ") for each in found]
        said = f"question {self.id!r} asks for {wanted}, and the answer, {kind_of(answer)}, does not fit"
        return AnswerError(self.id, f"{said}: {'; '.join(found)}", found)


def open_question(log: Log, run_id: str, stored: OpenQuestion, type_: Any, input_type: Any) -> Question:
    """Return an open question as a log has it.

    Args:
        log: The log.
        run_id: The run that it is of.
        stored: The question in its state.
        type_: The type of the answer, if that is known; otherwise Any: then the schema may say it.
        input_type: The type of the input of the node, which the question may be about.
    """
    child = log.state.frames[stored.at].agent.path
    run_id = f"{run_id}/{child}" if child else ""
    asked = datetime.fromtimestamp(stored.asked / 1000, UTC)
    schema: dict[str, Any] = log.take(stored.schema) or {}
    if stored.kind in ("approval", "in_flight"):
        type_, schema = VERDICT, schema_of(stored.kind, VERDICT)
    elif stored.kind == "result":
        type_ = Any
    elif type_ is Any and schema.keys() == {"type"}:
        type_ = _TYPES.get(schema["type"], Any)
    about = log.take_if_fits(stored.about, input_type)
    deadline = moment_of(stored.deadline) if stored.deadline else None
    return Question(stored.id, stored.text, stored.node, stored.kind, about, type_, run_id, asked, schema, deadline)


def stored_answer_type(kind: QuestionKind, type_: Any, *, declined: bool = False) -> Any:
    """Return the type by which the answer to a question is stored that asks for a type, or was declined."""
    if declined or kind in ("approval", "in_flight"):
        return Approve | Deny
    return type_ if kind == "question" else Any


def answer_type(element: object) -> Any:
    """Return the declared type of the answers that a node asks for; Any if it declares none, or is not known any more."""
    return getattr(getattr(element, "function", None), "asks", Any)
