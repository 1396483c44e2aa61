"""Forms for answers, from their JSON schema, and answers from forms that were sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs

from graphagent._html import Child, Html, tag, visible
from graphagent.inspect._values import as_json
from graphagent.llm import Approve, Deny

if TYPE_CHECKING:
    from graphagent.inspect._layout import Site
    from graphagent.run import Question

VALUE = "value"
"""The name of the field with the answer; those of an object's fields follow it after a dot."""
_VERDICTS = ("approval", "in_flight")
"""The kinds of questions that are answered by yes or no."""
_SCALARS = ("string", "integer", "number", "boolean")
_PICKED = ("date", "time")
"""The formats of texts for which a browser has a field whose text Python reads."""
_SHORT = 5
"""Choices up to this number are shown side by side."""


class FormError(ValueError):
    """A form lacks something, or has something invalid."""


class ConflictError(FormError):
    """The run, the fact or the note is in a state in which the change is not possible."""


def parsed(body: bytes) -> dict[str, str]:
    """Return the fields of a form that was sent; of several with one name, the first."""
    return {
        name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True).items()
    }


def hidden(fields: Mapping[str, str | int]) -> list[Html]:
    """Return fields that a form sends without showing them; empty ones are left out."""
    return [tag("input", type="hidden", name=name, value=value) for name, value in fields.items() if value != ""]


def search(site: Site, view: str, q: str, hint: str, label: str, *more: Child, class_: str | None = None) -> Html:
    """Return the form in which a page is searched."""
    field = tag("input", type="search", name="q", value=q, placeholder=hint, aria_label=label)
    return tag("form", field, more, role="search", action=site.url(view), method="get", class_=class_)


def form(site: Site, action: str, fields: Mapping[str, str | int], *children: Child) -> Html:
    """Return a form that changes something. It sends the hidden fields, and the token of the server."""
    sent = hidden({"form": site.form, **fields})
    return tag("form", sent, children, method="post", action=site.url(action))


def refusal(why: str) -> Html | None:
    """Return the message of a form that was sent and refused; None without a reason."""
    return tag("p", why, class_="error", role="alert") if why else None


def text_form(
    site: Site, action: str, fields: Mapping[str, str | int], label: str, text: str, button: str, *about: Child
) -> Html:
    """Return a form in which a person edits a text. `text_sent` reads it."""
    lost = (
        "It has characters that act on the text around them. They are shown as �, and saved so if you change the text."
    )
    return form(
        site, action, fields, area("text", label, text),
        tag("p", lost, class_="why waiting") if visible(text) != text.replace("\r\n", "\n") else None,
        about, tag("p", tag("button", button, type="submit", class_="main")),
    )  # fmt: skip


def text_sent(fields: Mapping[str, str], before: str) -> str:
    """Return the text of a `text_form`; the stored text if the shown one was not changed."""
    text = fields.get("text", "").replace("\r\n", "\n")
    return before if text == visible(before) else text


def fields_of(question: Question) -> Html:
    """Return the fields for the answer to a question."""
    if question.kind in _VERDICTS:
        call = question.call
        return tag("div", [
            area("arguments", "Arguments, which you can change", as_json(call.arguments)) if call is not None else None,
            tag("label", "Reason, if you refuse ", tag("input", name="reason", type="text")),
        ])  # fmt: skip
    schema = question.json_schema
    known: Mapping[str, Any] = schema.get("$defs", {})
    return tag("div", _field(VALUE, "Your answer", schema, known, required=True))


def buttons_of(question: Question) -> list[Child]:
    """Return the buttons that send the answer."""
    if question.kind in _VERDICTS:
        said = (("approve", "Approve"), ("deny", "Refuse"))
    else:
        said = (("answer", "Answer"), ("deny", "Decline"))
    return [
        tag("button", label, type="submit", name="do", value=value, class_="main" if place == 0 else None, formnovalidate=value == "deny")
        for place, (value, label) in enumerate(said)
    ]  # fmt: skip


def answer_of(question: Question, fields: Mapping[str, str], by: str) -> object:
    """Return the answer in a form. Whether it fits the question is checked by the run.

    Raises:
        FormError: a field is missing or invalid.
    """
    done = fields.get("do")
    if done == "deny":
        return Deny(fields.get("reason", ""), by=by)
    if done == "approve" and question.kind in _VERDICTS:
        arguments = None
        if question.call is not None and "arguments" in fields:
            given = _json(fields["arguments"], "Arguments")
            if not isinstance(given, dict):
                raise FormError('The arguments are a JSON object, such as {"name": "Ada"}.')
            arguments = None if given == question.call.arguments else cast("dict[str, Any]", given)
        return Approve(by=by) if arguments is None else Approve(arguments=arguments, by=by)
    if done == "answer" and question.kind not in _VERDICTS:
        schema = question.json_schema
        return _value(VALUE, schema, schema.get("$defs", {}), fields)
    raise FormError("This form does not say what to do; load the page again.")


def _resolved(schema: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema with its reference resolved, and without the alternative of null."""
    if "$ref" in schema:
        return _resolved(known.get(str(schema["$ref"]).rpartition("/")[2], {}), known)
    others = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    return _resolved(others[0], known) if len(others) == 1 and len(schema["anyOf"]) == 2 else schema


def _choices(schema: Mapping[str, Any]) -> Sequence[Any]:
    return [schema["const"]] if "const" in schema else schema.get("enum", ())


def _field(name: str, label: str, schema: Mapping[str, Any], known: Mapping[str, Any], *, required: bool) -> Html:
    """Return the field or fields of a value."""
    kind = _resolved(schema, known)
    hint = (
        tag("span", str(about), class_="sub")
        if (about := schema.get("description") or kind.get("description"))
        else None
    )
    given = schema.get("default")
    if choices := _choices(kind):
        return _radios(
            name, label, [(as_json(each, indent=None), str(each)) for each in choices], given, hint, required=required
        )
    if kind.get("type") == "boolean":
        return _radios(name, label, [("true", "yes"), ("false", "no")], given, hint, required=required)
    if kind.get("type") == "object" and kind.get("properties"):
        inside = [
            _field(
                f"{name}.{each}", str(part.get("title", each)), part, known, required=each in kind.get("required", ())
            )
            for each, part in kind["properties"].items()
        ]
        return tag("fieldset", tag("legend", label), hint, inside)
    shown = {} if given is None else {"value": given if isinstance(given, str) else as_json(given, indent=None)}
    if kind.get("type") in ("integer", "number"):
        step = "1" if kind["type"] == "integer" else "any"
        field = tag(
            "input",
            type="number",
            name=name,
            step=step,
            min=kind.get("minimum"),
            max=kind.get("maximum"),
            required=required,
            **shown,
        )
        return tag("label", label, " ", field, hint)
    if kind.get("type") == "string" and kind.get("format") in _PICKED:
        seconds = "1" if kind["format"] == "time" else None
        field = tag("input", type=kind["format"], name=name, step=seconds, required=required, **shown)
        return tag("label", label, " ", field, hint)
    return area(
        name,
        f"{label}{'' if kind.get('type') in (None, 'string') else ', as JSON'}",
        str(shown.get("value", "")),
        hint,
        required=required,
    )


def area(name: str, label: str, text: str, hint: Html | None = None, *, required: bool = False) -> Html:
    """Return a field of several lines."""
    rows = min(max(text.count("\n") + 1, 2), 12)
    return tag("label", label, hint, tag("textarea", f"\n{text}", name=name, rows=rows, required=required))


def _radios(
    name: str, label: str, choices: Sequence[tuple[str, str]], given: Any, hint: Html | None, *, required: bool
) -> Html:
    default = None if given is None else as_json(given, indent=None)
    shown = [
        tag("label", tag("input", type="radio", name=name, value=value, required=required, checked=value == default), f" {text}", class_="choice")
        for value, text in choices
    ]  # fmt: skip
    return tag(
        "fieldset", tag("legend", label), hint, shown, class_="radios" if len(shown) <= _SHORT else "radios many"
    )


def _value(name: str, schema: Mapping[str, Any], known: Mapping[str, Any], fields: Mapping[str, str]) -> Any:
    kind = _resolved(schema, known)
    text = fields.get(name, "")
    type_ = kind.get("type")
    if _choices(kind) or type_ == "boolean":
        return _json(text, name)
    if type_ == "object" and kind.get("properties"):
        return dict(_parts(name, kind, known, fields))
    if type_ in ("integer", "number"):
        return _json(text, name)
    if type_ == "string":
        return text.replace("\r\n", "\n")
    if type_ is None:  # anything may be answered: JSON where it is, or else text
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text.replace("\r\n", "\n")
    return _json(text, name)


def _parts(
    name: str, schema: Mapping[str, Any], known: Mapping[str, Any], fields: Mapping[str, str]
) -> Iterator[tuple[str, Any]]:
    for each, part in schema["properties"].items():
        field = f"{name}.{each}"
        is_left = not any(given == field or given.startswith(f"{field}.") for given, text in fields.items() if text)
        if each in schema.get("required", ()) or not is_left:
            yield each, _value(field, part, known, fields)


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        label = name.removeprefix(f"{VALUE}.")
        raise FormError(
            f"{'Your answer' if label == VALUE else label} {'is not given' if not text else 'is not valid JSON'}."
        ) from None
