"""The tokens of a model turn as one bar, and where a turn could not use the model's cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._html import Html, tag
from graphagent.inspect._origins import sent

if TYPE_CHECKING:
    from graphagent.llm import Usage
    from graphagent.memory import ActionStep


def tokens(usage: Usage) -> Html:
    """Return tokens in words and as a bar: from the cache, new, and of the answer."""
    fresh, total = usage.input_tokens - usage.cached_tokens, usage.total_tokens
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    said = f"tokens: {usage.input_tokens:,} in{cached}, {usage.output_tokens:,} out"
    at, parts = 0.0, list[Html]()
    for kind, count in (("cached", usage.cached_tokens), ("fresh", fresh), ("out", usage.output_tokens)):
        width = 100 * count / max(total, 1)
        parts.append(tag("rect", x=f"{at:.2f}%", width=f"{width:.2f}%", height="6", class_=f"of-{kind}"))
        at += width
    bar = tag("svg", parts, class_="tokens", aria_hidden="true")
    return tag("div", tag("span", said, class_="sub"), bar, class_="spent")


def cache_lost(step: ActionStep, before: ActionStep | None) -> str:
    """Return from which message on a turn could not use the model's cache, and why; empty if it could, or if that is not known."""
    if before is None or before.prompt is None or step.prompt is None:
        return ""
    kept = step.prompt.kept_of(before.prompt)
    if kept < len(before.prompt.messages()):
        messages = sent(step.prompt)
        where = f"message {kept + 1}, from {messages[kept].said}" if kept < len(messages) else "its end"
        return f"The prompt differs from that of the turn before from {where}, so nothing from there on can come from the model's cache."
    usage, earlier = step.token_usage, before.token_usage
    if usage is not None and earlier is not None and usage.cached_tokens < earlier.cached_tokens // 2:
        return "The prompt begins like that of the turn before, and the server had less of it in its cache."
    return ""
