"""The arguments of a tool that is a function: their schema from its parameters and docstring, and their values from a call."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any

from graphagent._annotations import names_around
from graphagent.errors import ArgumentsError
from graphagent.llm._json_text import check_finite, read_json
from graphagent.llm._validation_messages import no_json_form, problems

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, eq=False)
class ToolArguments:
    """The parameters of a function, as a pydantic model in which each has an alias that cannot clash."""

    tool: str
    model: type[BaseModel]
    names: tuple[str, ...]
    context: str | None
    """The parameter for the run's Context."""
    context_type: Any
    needs_context: bool
    of_method: bool
    """Whether `self` is not yet bound."""

    @staticmethod
    def of(function: Callable[..., Any], tool: str, descriptions: Mapping[str, str]) -> ToolArguments:
        from pydantic import ConfigDict, Field, create_model
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

        parameters = list(inspect.signature(function).parameters.values())
        of_method = bool(parameters) and parameters[0].name == "self"
        parameters = parameters[1:] if of_method else parameters
        hints = _hints(function, tool, parameters)
        contexts = [each for each in parameters if _is_context(hints[each.name])]
        taken = [each for each in parameters if each not in contexts]
        fields: dict[str, Any] = {}
        for index, parameter in enumerate(taken):
            hint = hints[parameter.name]
            said = getattr(hint, "__metadata__", ())
            options: dict[str, Any] = {"alias": parameter.name}
            if parameter.name in descriptions and not any(getattr(each, "description", None) for each in said):
                options["description"] = descriptions[parameter.name]
            if parameter.default is not parameter.empty:
                options["default"] = parameter.default
            if parameter.default is None:
                hint = _or_none(hint)
            fields[f"p{index}"] = (hint, Field(**options))
        try:
            model = create_model(tool, __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields)
            arguments = ToolArguments(
                tool,
                model,
                tuple(each.name for each in taken),
                contexts[0].name if contexts else None,
                hints[contexts[0].name] if contexts else None,
                bool(contexts) and contexts[0].default is inspect.Parameter.empty,
                of_method,
            )
            arguments.schema()
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            raise TypeError(
                f"tool {tool!r} has a parameter that JSON cannot fill{_unfillable(hints)}: {no_json_form(error)}; take text, numbers, "
                f"lists, a dataclass or a pydantic model, and clients from ctx.deps"
            ) from error
        return arguments

    def schema(self) -> dict[str, Any]:
        from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

        class Plain(GenerateJsonSchema):
            """Without titles, which only repeat the names, and without defaults that JSON cannot show."""

            ignored_warning_kinds: set[JsonSchemaWarningKind] = {"non-serializable-default"}  # noqa: RUF012  as in its base class

            def field_title_should_be_set(self, schema: Any) -> bool:
                return False

        schema = self.model.model_json_schema(schema_generator=Plain)
        schema.pop("title", None)
        schema.setdefault("properties", {})
        return schema

    def checked(self, given: Mapping[str, Any]) -> BaseModel:
        from pydantic import ValidationError
        from pydantic_core import PydanticSerializationError, to_json

        try:
            # By way of JSON, so that strict types too are read as JSON has them: a date from text, a tuple from a list.
            sent = to_json(given)
            made = self.model.model_validate_json(sent)
            check_finite(sent, made, self.model.model_dump)
        except ValidationError as error:
            raise ArgumentsError(self.tool, problems(error)) from None
        except OverflowError as error:
            raise ArgumentsError(self.tool, [f"all of it: {error}"]) from None
        except PydanticSerializationError:
            raise ArgumentsError(self.tool, ["all of it: is not JSON"]) from None
        return made

    def read(self, given: Mapping[str, Any], context: Any) -> dict[str, Any]:
        """Return the keyword arguments, without those that the model left out and that have a default."""
        if self.of_method:
            raise TypeError(
                f"tool {self.tool!r} is an unbound method: pass the agent the method of an instance, not of the class"
            )
        model = self.checked(given)
        keywords = {
            name: getattr(model, f"p{index}")
            for index, name in enumerate(self.names)
            if f"p{index}" in model.model_fields_set
        }
        if self.context is not None and (context is not None or self.needs_context):
            if context is None:
                raise TypeError(f"tool {self.tool!r} needs the run's Context: call it inside a run, or with context=")
            keywords[self.context] = context
        return keywords


def _or_none(hint: Any) -> Any:
    """Return the type of a parameter whose default is None, as `year: int = None` is meant: None fits, whether it says so or not."""
    if typing.get_origin(hint) is typing.Annotated:
        return typing.Annotated[(_or_none(hint.__origin__), *hint.__metadata__)]
    return hint if hint in (Any, object) else typing.Optional[hint]  # noqa: UP045 — some types have no `|`


def why_malformed(text: str) -> str:
    """Return why a text is not the arguments of a call, for the model that wrote it."""
    try:
        value = read_json(text)
    except ValueError:
        return "the arguments are not a JSON object"
    if isinstance(value, dict):
        return "the arguments contain a number that is too large for a float"
    return f"the arguments are {'text' if isinstance(value, str) else 'JSON'}, and not a JSON object"


def _unfillable(hints: Mapping[str, Any]) -> str:
    """Return the name of the first parameter whose type has no JSON schema, for the error."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    for name, hint in hints.items():
        try:
            TypeAdapter(hint).json_schema()
        except PydanticUserError:
            if not _is_context(hint):
                return f", {name!r}"
    return ""


def _hints(function: Callable[..., Any], tool: str, parameters: Iterable[inspect.Parameter]) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"tool {tool!r} takes {parameter}, which a model cannot name; write each parameter out")
        if parameter.annotation is parameter.empty:
            raise TypeError(f"tool {tool!r} has a parameter {parameter.name!r} without a type; annotate it")
        written[parameter.name] = parameter.annotation
    known, local = getattr(inspect.unwrap(function), "__globals__", {}), names_around(function)
    try:
        return typing.get_type_hints(SimpleNamespace(__annotations__=written), known, local, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"tool {tool!r} has a parameter with a type that is not known here ({error}); "
            f"import or define it above the tool, not only under TYPE_CHECKING"
        ) from None


def _is_context(hint: Any) -> bool:
    # A mark, not a class: the run's Context is made in a room that builds on this one.
    origin = typing.get_origin(hint)
    if origin in (typing.Union, UnionType, typing.Annotated):
        return any(map(_is_context, typing.get_args(hint)))
    return getattr(origin or hint, "__graphagent_context__", False) is True


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the first paragraph, and the text of each parameter, as Google, NumPy or Sphinx have it."""
    first = re.split(r"\n[ \t]*\n|\n(?=:\w+[^:\n]*:)", text.strip(), maxsplit=1)[0]
    google = re.search(r"^(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t]+.*(?:\n|$)|[ \t]*\n)+)", text, re.MULTILINE)
    numpy = re.search(
        r"^(?:Other )?Parameters[ \t]*\n-{3,}[ \t]*\n((?:(?!.*\n-{3,}[ \t]*$).*(?:\n|$))*)", text, re.MULTILINE
    )
    if google is not None:
        found = _entries(google[1], r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")
    elif numpy is not None:
        found = _entries(numpy[1], r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?()$")
    else:
        found = _entries(text, r":(?:param|parameter|arg|argument|key|keyword)\s(?:[^:]*\s)?\*{0,2}(\w+):\s*(.*)")
    return " ".join(first.split()), found


def _entries(section: str, entry: str) -> dict[str, str]:
    """Return the text of each parameter in a section: an entry has one name or more, and the indented lines below are its text."""
    lines = [line for line in section.splitlines() if line.strip()]
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    found: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        begun = re.match(entry, line.strip()) if len(line) - len(line.lstrip()) <= indent else None
        if begun is None and not line.startswith(":"):  # which begins another field of Sphinx
            found.update({name: f"{found[name]} {line.strip()}".strip() for name in names})
            continue
        names = re.findall(r"\w+", begun[1]) if begun else []
        found.update({name: begun[2].strip() for name in names if begun})
    return found
