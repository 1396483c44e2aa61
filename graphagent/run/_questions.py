"""Questions that a run waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphagent._article import a, kind_of
from graphagent.errors import AnswerError

if TYPE_CHECKING:
    from graphagent.llm import ToolCall
    from graphagent.log._internal import QuestionKind


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
    """`question`; `approval` of a tool call; the `result` of a deferred one; or a call that was `in_flight` when a process died."""
    about: Any = field(default=None, repr=False)
    """The subject: the node's input; for tools the ToolCall."""
    type: Any = field(default=None, compare=False)
    """The type of the answer; for approvals `bool | str | Approve | Deny`."""
    run_id: str = ""
    """The run of the sub-agent that asks; empty where the run itself does."""

    @property
    def call(self) -> ToolCall | None:
        """The tool call that it is about."""
        from graphagent.llm import ToolCall

        return self.about if isinstance(self.about, ToolCall) else None

    @property
    def json_schema(self) -> dict[str, Any]:
        """The JSON schema of the answer, for a web form; empty where anything may be answered.

        For approvals it is a yes or no, or a text that says why not.

        Raises:
            TypeError: the type of the answer has no JSON schema.
        """
        if self.kind in ("approval", "in_flight"):
            return {"anyOf": [{"type": "boolean"}, {"type": "string"}]}
        if self.kind == "result" or self.type in (None, Any, object):
            return {}
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        from graphagent.llm._internal import no_json_form

        try:
            return TypeAdapter(self.type).json_schema()
        except PydanticUserError as error:
            raise TypeError(f"the answer to question {self.id!r} has no JSON schema: {no_json_form(error)}") from error

    def check(self, answer: object) -> object:
        """Return an answer in the form of its type.

        Raises:
            AnswerError: it does not fit. The text says which field and why, without the answer.
        """
        if self.kind in ("approval", "in_flight"):
            return self._verdict(answer)
        if self.kind == "result":
            from graphagent.llm._internal import with_images

            try:
                return with_images(answer)
            except ValueError as error:
                raise AnswerError(self.id, f"the answer to {self.id!r} cannot be kept: {error}") from None
        if self.type in (None, Any, object):
            return answer
        return self._typed(answer)

    def _verdict(self, answer: object) -> object:
        from graphagent.llm import Approve, Deny

        if isinstance(answer, Approve | Deny):
            return answer
        if isinstance(answer, bool):
            return Approve() if answer else Deny()
        if isinstance(answer, str):
            return Deny(answer)
        raise AnswerError(
            self.id,
            f"question {self.id!r} asks whether a tool may be called; answer True, False, Approve(arguments=…) or "
            f"Deny(reason), not {a(type(answer).__name__)}",
        )

    def _typed(self, answer: object) -> object:
        import json

        from pydantic import TypeAdapter, ValidationError

        from graphagent.graph._internal import show
        from graphagent.llm._internal import problems

        adapter: TypeAdapter[Any] = TypeAdapter(self.type)
        try:
            return adapter.validate_python(answer, strict=True)
        except ValidationError as error:
            wrong = error
        try:
            return adapter.validate_json(json.dumps(answer), strict=True)
        except ValidationError as error:
            wrong = error
        except (TypeError, ValueError, RecursionError):  # it is no JSON
            pass
        found = [each.removeprefix("all of it: ") for each in problems(wrong)]
        said = f"question {self.id!r} asks for {show(self.type)}, and the answer, {kind_of(answer)}, does not fit"
        raise AnswerError(self.id, f"{said}: {'; '.join(found)}", found)


def answer_type(element: object) -> Any:
    """Return the declared type of the answers that a node asks for; Any if it declares none, or is not known any more."""
    return getattr(getattr(element, "function", None), "asks", Any)
