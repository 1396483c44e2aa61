"""The timeline of a run: a row for each span, with its bar and its duration. The spans inside of a span stand below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from graphagent._article import counted
from graphagent._html import Child, Html, tag
from graphagent.inspect import _words
from graphagent.inspect._layout import Site, nothing, pages, url_of
from graphagent.inspect._spans import WAITS, Span
from graphagent.inspect._time import Scale
from graphagent.inspect._tokens import cache_lost

if TYPE_CHECKING:
    from graphagent.run import RunHeader

_ROOM = 60.0
"""The last place, in per cent, with room for a duration after a bar."""
_CHOICES = (("", "All"), ("steps", "Model and tools"), ("problems", "Problems"))
_LEGEND = (
    ("model", "model"),
    ("tool", "tool, sub-agent"),
    ("memory", "memory"),
    ("node", "code"),
    ("failed", "failed"),
    ("person", "waits"),
)


def timeline(site: Site, head: RunHeader, spans: Sequence[Span], *, first: int, show: str, chosen: int) -> Html:
    """Return the timeline.

    Args:
        site: The server, or the file.
        head: The run.
        spans: The spans of the run.
        first: The first row that is shown.
        show: Which rows: all, `steps` for the model, tools and people, or `problems`.
        chosen: The number of the entry whose step is shown beside it; 0 is none.
    """
    total = sum(_fits(each, show) for each in spans)
    choices = [
        tag("a", word, href=url_of(site, head, show=name), aria_current="true" if name == show else None)
        for name, word in _CHOICES
    ]
    bar = tag(
        "div", tag("h2", "Timeline"), tag("span", counted(total, "row"), class_="sub"),
        None if site.is_file else tag("nav", choices, class_="chips", aria_label="Rows"), class_="bar",
    )  # fmt: skip
    rows = table(site, head, spans, first=first, show=show, chosen=chosen)
    more = pages(site, head, "spans", first, total, show=show)
    return tag(
        "section", bar, rows if total else nothing("No row is of this kind."), more, legend(), class_="when",
    )  # fmt: skip


def legend(what: str = "") -> Html:
    """Return the meanings of the colours, after the name of the picture if one is given."""
    shown = [tag("li", word, class_=f"kind of-{name}") for name, word in _LEGEND]
    return tag("ul", tag("li", what) if what else None, shown, class_="legend sub")


def table(site: Site, head: RunHeader, spans: Sequence[Span], *, first: int, show: str, chosen: int = 0) -> Html:
    """Return the rows of the timeline, as `timeline` has them."""
    scale = Scale(spans)
    shown = [each for each in spans if _fits(each, show)][first : first + site.rows]
    return tag(
        "table",
        tag("caption", "The work of the run over time", class_="unseen"),
        tag("thead", tag("tr", tag("th", "What", scope="col"), tag("th", _axis(site, scale), scope="col"))),
        tag("tbody", [_row(site, head, each, scale, chosen) for each in shown]),
        class_="timeline",
    )


def _fits(span: Span, show: str) -> bool:
    if show == "problems":
        return bool(span.failures)
    return show != "steps" or span.kind in ("model", "tool", "agent", *WAITS)


def _axis(site: Site, scale: Scale) -> Html:
    """Return the marks of time, and the lines of each row as a symbol."""
    ticks = list(scale.ticks())
    lines = [tag("line", x1=f"{at}%", x2=f"{at}%", y1="0", y2="100%") for at, _ in ticks]
    silent = [
        tag("rect", x=f"{scale.at(begin)}%", width=f"{scale.at(end) - scale.at(begin):.3f}%", height="100%")
        for begin, end in scale.silences
    ]
    hatch = tag(
        "pattern", tag("rect", width="3", height="6"), id=f"{site.ids}hatch", class_="hatch", width="6", height="6", patternUnits="userSpaceOnUse", patternTransform="rotate(45)",
    )  # fmt: skip
    free, texts = -1.0, list[Html]()
    for begin, end in scale.silences:
        middle = (scale.at(begin) + scale.at(end)) / 2
        edge = middle > 88
        texts.append(tag("text", _words.duration((end - begin) / 1000), x="100%" if edge else f"{middle:.3f}%", y="17", text_anchor="end" if edge else "middle", class_="silent"))  # fmt: skip
    taken = [(scale.at(begin) - 7, scale.at(end) + 3) for begin, end in scale.silences]
    for at, seconds in ticks:
        if at >= free and at < 94 and not any(left < at < right for left, right in taken):
            texts.append(
                tag(
                    "text",
                    "0" if not seconds else _words.duration(seconds).replace(".0 ", " "),
                    x=f"{at}%",
                    dx="3",
                    y="17",
                )
            )
            free = at + 9
    return tag(
        "svg",
        tag("defs", hatch, tag("g", silent, lines, id=f"{site.ids}lines", class_="lines")),
        texts,
        class_="lane axis",
        aria_hidden="true",
    )


def _row(site: Site, head: RunHeader, span: Span, scale: Scale, chosen: int) -> Html:
    entry = span.entry or span.begun
    name, second = span.names
    label: Child = [name, tag("span", f" {second}", class_="sub") if second else None]
    if site.is_file:
        link = tag("a", label, href=url_of(site, head, "entry", n=entry))
    else:
        of = "" if span.entry else span.path  # an entry may begin several
        link = tag("a", label, href=f"{url_of(site, head, step=entry, of=of)}#step", data_step=url_of(site, head, "entry", n=entry, of=of, step=1))  # fmt: skip
    lost = span.turn is not None and cache_lost(span.turn, span.turn_before)
    said = f"{said_of(span)}{' · cache lost' if lost else ''}"
    kind = "failed" if span.problem else span.kind
    return tag(
        "tr", tag("th", link, scope="row", class_=f"at{min(span.depth, 6)} kind of-{kind}", title=span.path),
        tag("td", tag("svg", tag("use", href=f"#{site.ids}lines"), _bars(site, span, scale, said, "lost" if lost else None), class_="lane", aria_hidden="true"), tag("span", said, class_="unseen")),
        class_=" ".join(filter(None, ("problem" if span.problem else "", "chosen" if entry == chosen else ""))) or None,
        data_row=None if site.is_file else span.key,
    )  # fmt: skip


def said_of(span: Span) -> str:
    """Return the text at the bar of a span: its duration, its tokens, its problem."""
    took = _words.duration(span.seconds)
    if span.kind in WAITS:
        lasts, over = ("waits,", "waited") if span.kind == "person" else ("sleeps,", "slept")
        return f"{over if span.entry else lasts} {took}"
    parts = [took]
    if len(span.attempts) > 1 and span.failures:
        parts.append(counted(len(span.attempts), "try"))
    if span.tokens:
        parts.append(f"{span.tokens:,} tok")
    if span.problem:
        parts.append(span.problem)
    elif not span.entry:
        parts.append("not ended")
    return " · ".join(parts)


def _bars(site: Site, span: Span, scale: Scale, said: str, mark: str | None) -> Iterator[Html]:
    pale = bool(span.inside)
    for part in span.attempts:
        x, width = scale.bar(part, 0.6)
        kind = "failed" if part.problem else span.kind
        fill = f"url(#{site.ids}hatch)" if span.kind in WAITS else None
        yield tag("rect", x=f"{x}%", width=f"{width}%", y="7", height="13", rx="2", class_=f"of-{kind} of-around" if pale else f"of-{kind}", fill=fill)  # fmt: skip
    begin, _ = scale.bar(span.attempts[0], 0.6)
    last, width = scale.bar(span.attempts[-1], 0.6)
    end, of = last + width, "failed" if span.problem else mark
    if end <= _ROOM:
        yield tag("text", said, x=f"{end:.3f}%", dx="6", y="17", class_=of)
    elif begin >= 100 - _ROOM:
        yield tag("text", said, x=f"{begin}%", dx="-6", y="17", text_anchor="end", class_=of)
    else:
        inside = "hatched" if span.kind in WAITS else of if pale else "within"
        yield tag("text", said, x=f"{end:.3f}%", dx="-6", y="17", text_anchor="end", class_=inside)
