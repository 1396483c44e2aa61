"""How objects are shown in a notebook: as cards in the colours of its page, which change nothing else there and load nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from graphagent._html import Child, Html, tag

Mood = Literal["good", "bad", "open", ""]
"""The kind of a state: done, failed, waiting for somebody, or neutral."""
_MOST = 20_000
"""How many characters of a text are shown at most, since a notebook saves all of them."""
_STYLE = Html(
    """<style>
.graphagent-card{box-sizing:border-box;max-width:60em;margin:.3em 0;padding:.6em .9em;border:1px solid;border-radius:8px;
border-color:color-mix(in srgb,currentColor 22%,transparent);font:13px/1.45 ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
.graphagent-card .head{display:flex;flex-wrap:wrap;gap:.2em .7em;align-items:baseline}
.graphagent-card .head b{font-weight:600;overflow-wrap:anywhere}
.graphagent-card .pale{opacity:.72;overflow-wrap:anywhere}
.graphagent-card p{margin:.35em 0 0}
.graphagent-card pre{margin:.35em 0 0;padding:0;border:0;background:none;color:inherit;max-height:32em;overflow:auto;white-space:pre-wrap;
overflow-wrap:anywhere;font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.graphagent-card pre.text{font:14px/1.5 ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
.graphagent-card .mood{border-radius:1em;padding:0 .6em;background:color-mix(in srgb,currentColor 10%,transparent)}
.graphagent-card .good{color:color-mix(in srgb,#16863f 72%,currentColor)}
.graphagent-card .bad{color:color-mix(in srgb,#d9473e 72%,currentColor)}
.graphagent-card .open{color:color-mix(in srgb,#b8790f 72%,currentColor)}
.graphagent-card section{margin:.6em 0 0;padding:.1em 0 .1em .8em;border-left:3px solid color-mix(in srgb,currentColor 25%,transparent)}
.graphagent-card section.bad-edge{border-color:#d9473e}
.graphagent-card section.open-edge{border-color:#b8790f}
.graphagent-card details{margin:.6em 0 0}
.graphagent-card summary{cursor:pointer}
.graphagent-card ul{margin:.45em 0 0;padding:0;list-style:none;display:flex;flex-wrap:wrap;gap:.15em 1.4em}
.graphagent-card li{margin:0;display:flex;gap:.5em;align-items:center;font-variant-numeric:tabular-nums}
.graphagent-card i{display:inline-block;width:5em;height:.5em;border-radius:.25em;background:color-mix(in srgb,currentColor 12%,transparent)}
.graphagent-card i i{display:block;height:100%;background:#4d77d8}
.graphagent-card svg{max-width:100%;height:auto;margin:.5em 0 0}
</style>"""
)


def card(title: str, *body: Child, state: str = "", mood: Mood = "", about: Iterable[str] = ()) -> str:
    """Return the HTML of an object.

    Args:
        title: Its name.
        body: The contents of its card.
        state: A word for its state.
        mood: Whether the state is good.
        about: Short texts beside its name.
    """
    said = tag("span", state, class_=f"mood {mood}".rstrip()) if state else None
    head = tag(
        "div",
        said,
        tag("b", title) if title else None,
        [tag("span", each, class_="pale") for each in about],
        class_="head",
    )
    return tag("div", _STYLE, head, *body, class_="graphagent-card").text


def text(content: str, *, prose: bool = False) -> Html:
    """Return the beginning of a text, with its line ends; `prose` is not set in the type of code."""
    return tag("pre", _beginning(content), class_="text" if prose else None)


def steps(content: str) -> Html:
    """Return a text in which the lines at the left margin are headings, as transcripts have it."""
    lines = _beginning(content).split("\n")
    made = [tag("b", line) if line and not line[0].isspace() else line for line in lines]
    return tag("pre", [[each, "\n"] for each in made])


def section(heading: str, *body: Child, mood: Mood = "") -> Html:
    """Return a part with a heading."""
    said = tag("b", heading, class_=mood or None)
    return tag("section", said, *body, class_=f"{mood}-edge" if mood else None)


def folded(heading: str, *body: Child) -> Html:
    """Return a part that opens at a click."""
    return tag("details", tag("summary", heading), *body)


def bars(values: Sequence[tuple[str, float]]) -> Html | None:
    """Return numbers with their names, and bars in proportion to the largest number."""
    largest = max((abs(value) for _, value in values), default=0.0) or 1.0
    rows = [
        tag("li", tag("span", name), tag("i", tag("i", style=f"width:{100 * max(value, 0.0) / largest:.0f}%")), f"{value:.3f}")
        for name, value in values
    ]  # fmt: skip
    return tag("ul", rows) if rows else None


def line(*parts: str) -> Html:
    """Return short texts side by side, as one line."""
    return tag("p", " · ".join(filter(None, parts)), class_="pale")


def _beginning(content: str) -> str:
    left = len(content) - _MOST
    return content if left <= 0 else f"{content[:_MOST]}…\n{left:,} more characters are not shown."
