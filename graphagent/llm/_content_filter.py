"""Whether a server's content filter objected, and the categories. Each kind of server words this differently."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

from graphagent._openai_http import safe_codes
from graphagent.llm._json_text import read_json
from graphagent.llm._wire import mapping

_SAID = r"""
    "(code|type)":\ ?"(
        content_filter | ResponsibleAIPolicyViolation       # Azure, Moonshot
        | content_policy_violation | moderation_blocked     # OpenAI
        | data_inspection_failed | DataInspectionFailed     # Qwen
    )"
    | "flagged_input"                                       # OpenRouter
    | content\ violates\ usage\ guidelines                  # xAI
    | content\ exists\ risk                                 # DeepSeek
"""
"""In VERBOSE form, found in the JSON of an error."""
_REASONS = r'"reasons":\s*\[([^\]]*)\]|Failed check: (\w+)'
"""The fields in which OpenRouter and xAI name their objections."""


def filter_of(said: str) -> tuple[str, ...] | None:
    """Return the objections of a server's content filter, by the JSON of its error; None for another error."""
    if re.search(_SAID, said, re.IGNORECASE | re.VERBOSE) is None:
        return None
    try:
        found = categories_of(read_json(said))
    except ValueError:  # it was cut off
        found = ()
    if not found and (reasons := re.search(_REASONS, said)):
        found = tuple(re.findall(r"[\w/-]+", reasons[1] or reasons[2]))
    return found


def objection(categories: Iterable[str]) -> str:
    """Return the words for an error."""
    return f"its content filter objected{safe_codes(*categories)}: ask for something else, or change the filter"


def categories_of(said: object) -> tuple[str, ...]:
    """Return the categories that are marked as filtered, anywhere in an answer or an error, as Azure names them."""
    found, seen = dict[str, None](), [said]
    for each in seen:  # which grows, since servers may nest as deep as they like
        if isinstance(each, list):
            seen.extend(cast("list[object]", each))
            continue
        for name, value in mapping(each).items():
            if mapping(value).get("filtered") is True:
                found[name] = None
            else:
                seen.append(value)
    return tuple(found)
