"""The messages of validation errors of pydantic, in our own words and without the data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_MOST = 8
_IN_OUR_WORDS = {
    "missing": "is missing",
    "missing_argument": "is missing",
    "extra_forbidden": "is not one of the fields",
    "unexpected_keyword_argument": "is not one of the fields",
    "uuid_parsing": "must be a valid UUID",
}
_OF_JSON = {
    "list_type", "tuple_type", "set_type", "frozen_set_type", "dict_type", "mapping_type", "model_type", "dataclass_type", "model_attributes_type",
}  # fmt: skip
"""The types of errors for values that must be an array or an object."""
# "Input should be …", "Decimal input should have …", and the message of a validator of the user.
_BEGINNING = re.compile(r"^(?:\w+ )?\w+ should |^(?:Value error|Assertion failed), ")


def problems(error: ValidationError) -> list[str]:
    """Return the place of each of the first problems, and the expected value there."""
    found = error.errors(include_url=False)
    lines = [f"{'.'.join(map(str, each['loc'])) or 'all of it'}: {_said(each)}" for each in found[:_MOST]]
    return lines + ([f"and {len(found) - _MOST} more"] if len(found) > _MOST else [])


def _said(problem: ErrorDetails) -> str:
    context = problem.get("ctx", {})
    if problem["type"] == "union_tag_invalid":
        return f"{context['discriminator'].strip(chr(39))} must be one of {context['expected_tags']}"
    if problem["type"] == "union_tag_not_found":
        return f"{context['discriminator'].strip(chr(39))} is missing"
    said = _IN_OUR_WORDS.get(problem["type"], problem["msg"])
    said = _BEGINNING.sub(lambda found: "must " if "should" in found[0] else "", said)
    return f"{said}, not a text" if isinstance(problem["input"], str) and problem["type"] in _OF_JSON else said


def no_json_form(error: Exception) -> str:
    """Return why pydantic has no JSON schema for a type."""
    said = str(error).partition("\n")[0]
    unknown = re.search(r"schema for (?:<class '(?:.*\.)?(\w+)'>|(.+?))\. Set ", said)
    if unknown:
        return f"JSON has no {unknown[1] or unknown[2]}"
    kind = re.search(r"core_schema\.(\w+)Schema", said)
    return f"JSON has no {kind[1].lower()}" if kind else said
