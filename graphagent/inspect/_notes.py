"""The page of notes: the tree of scopes, and the notes of a scope or the matches of a question, with the parts of their scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from graphagent._html import Child, Html, tag
from graphagent.errors import EmbedderError, RerankerError
from graphagent.inspect import _words
from graphagent.inspect._forms import hidden, search
from graphagent.inspect._inspected import number
from graphagent.inspect._layout import Site, column, next_link, nothing, page, table
from graphagent.inspect._note import Seen, note_owners, note_parts, notes_of, notes_url
from graphagent.memory._note_values import SCORES

if TYPE_CHECKING:
    from starlette.requests import Request

    from graphagent.inspect._inspected import Inspected, Views
    from graphagent.memory import Match, Record, ScopeTree

_LISTED, _FOUND = 50, 20
"""Notes on a page: without a question, and for one."""
_SCOPES = 200
"""Of more scopes, only those beside the way to the chosen one are shown."""
_BEGINNING = 240
"""Characters of a note in a list."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The choice of notes of a page, all of which is in its address."""

    owner: str
    scope: str
    q: str
    """The question."""
    source: str
    """The source whose private notes are shown, too."""

    def url(self, site: Site, **more: str | int) -> str:
        """Return the address of the page, with another choice."""
        given: dict[str, str | int] = {"q": self.q, "scope": self.scope, "source": self.source, **more}
        return site.url("notes", **{"owner": self.owner, **given})


async def notes(inspected: Inspected, request: Request) -> str:
    """Return the page of notes. Its address has `owner`; `scope`; `q`, a question; `source`; `from`, the first row; `note`, the chosen one.

    Raises:
        LookupError: notes are not shown.
        NoteError: the address names no scope, or no source, or no question.
        StoreError: they cannot be read.
    """
    site, query = inspected.site(request), request.query_params
    owners = await note_owners(inspected)
    chosen = _Chosen(
        query.get("owner", owners[0] if owners else ""), query.get("scope", ""), query.get("q", ""), query.get("source", "")
    )  # fmt: skip
    seen = await notes_of(inspected, chosen.owner, chosen.source)
    tree, first, how = await seen.view.tree(), number(query.get("from")), seen.how
    found, records = list["Match"](), list["Record"]()
    if chosen.q.strip():
        found, how = await _recalled(seen, chosen)
    else:
        records = await seen.view.list_records(chosen.scope or None, _LISTED + 1, first)
    record = await seen.view.get(query["note"]) if query.get("note") else None
    if found:
        main: Child = [_matches(site, chosen, found, query.get("note", found[0].record.id)), _legend(found, how)]
    elif records:
        main = [_records(site, chosen, records[:_LISTED], query.get("note", "")), _more(site, chosen, records, first)]
    else:
        main = nothing(_why_none(tree, chosen, how))
    columns: list[Child] = [_tree(site, chosen, tree), tag("div", main)]
    if record is not None:
        columns.append(tag("aside", await note_parts(site, seen, record), id="note", aria_label="The chosen note"))
    return page(
        site, "Notes", _head(site, chosen, owners), tag("div", columns, class_="memory three" if record else "memory"),
        view="notes",
    )  # fmt: skip


async def _recalled(seen: Seen, chosen: _Chosen) -> tuple[list[Match], str]:
    """Return the matches of a question, and how they were found: by words alone if the embedder or the reranker fails. A model is never asked."""
    asked: dict[str, Any] = {"scope": chosen.scope or None, "limit": _FOUND, "depth": "shallow"}
    try:
        return await seen.view.recall(chosen.q, **asked), seen.how
    except (EmbedderError, RerankerError) as error:
        return await seen.words.recall(chosen.q, **asked), f"Found by words alone, since something failed: {error}"


def _why_none(tree: ScopeTree, chosen: _Chosen, how: str) -> str:
    if not tree.record_count:
        return "There are no notes yet. Notes that agents write or you add appear here."
    return f"No note fits the question. {how}" if chosen.q.strip() else "No note is in this scope."


def _head(site: Site, chosen: _Chosen, owners: Sequence[str]) -> Html:
    kept = hidden({"owner": chosen.owner, "scope": chosen.scope})
    source = tag("label", "Source of the private notes", tag("input", name="source", value=chosen.source))
    said = f"With private notes of {chosen.source}" if chosen.source else "Private notes…"
    more = tag(
        "details", tag("summary", said, class_="button"), tag("div", source, tag("button", "Show"), class_="over")
    )
    asked = search(site, "notes", chosen.q, "A question, or some words", "Recall notes", kept, more, class_="recall")
    whose = None
    if len(owners) > 1:
        links = [
            tag("a", each or "nobody", href=notes_url(site, each), aria_current="true" if each == chosen.owner else None)
            for each in owners
        ]  # fmt: skip
        whose = tag(
            "details",
            tag("summary", f"Notes of {chosen.owner or 'nobody'}", class_="button"),
            tag("div", links, class_="choices over"),
        )
    return tag("div", tag("h1", "Notes"), asked, whose, class_="head")


def _tree(site: Site, chosen: _Chosen, tree: ScopeTree) -> Html:
    shown = [
        tag("li", tag(
            "a", tag("span", each.path.rpartition("/")[2] or "/"), tag("span", f"{each.record_count:,}", class_="number"),
            href=chosen.url(site, scope="" if each.path == "/" else each.path), title=each.path,
            aria_current="true" if each.path == (chosen.scope or "/") else None,
        ), class_=f"deep{min(depth, 6)}")
        for each, depth in _opened(tree, chosen.scope or "/")
    ]  # fmt: skip
    return tag("nav", tag("h2", "Scopes"), tag("ul", shown), class_="tree", aria_label="Scopes")


def _opened(tree: ScopeTree, path: str) -> list[tuple[ScopeTree, int]]:
    """Return the scopes that are shown, with their depths: all, or if they are many those beside the way to the chosen one."""
    every = list(_below(tree, 0))
    if len(every) <= _SCOPES:
        return every

    def is_near(each: ScopeTree) -> bool:
        above = each.path.rpartition("/")[0]
        return f"{path.rstrip('/')}/".startswith(f"{above}/")

    return [pair for pair in every if is_near(pair[0])][:_SCOPES]


def _below(tree: ScopeTree, depth: int) -> Iterator[tuple[ScopeTree, int]]:
    yield tree, depth
    for each in tree.children:
        yield from _below(each, depth + 1)


def _records(site: Site, chosen: _Chosen, records: Sequence[Record], note: str) -> Html:
    rows = [
        tag("tr", tag("td", _line(site, chosen, each)), tag("td", _words.when(each.at or each.created_at), class_="n"), class_=_row_class(each, note))
        for each in records
    ]  # fmt: skip
    return table("Notes, the newest first", ("Note", column("Said or saved", class_="n")), rows, "notes")


def _matches(site: Site, chosen: _Chosen, found: Sequence[Match], note: str) -> Html:
    scale = max((sum(value for _, value in _parts(each) if value > 0) for each in found), default=0) or 1
    rows = [
        tag(
            "tr", tag("td", f"{each.score:.2f}", class_="score n"),
            tag("td", _line(site, chosen, each.record), _waterfall(each, scale) if each.record.id == note else _bar(each, scale)),
            tag("td", f"{sum(value for _, value in _parts(each)):.2f}", class_="n"), class_=_row_class(each.record, note),
        )
        for each in found
    ]  # fmt: skip
    columns = (column("Score", class_="n"), "Note", column("Sum", class_="n"))
    return table("The matches of the question, the best first", columns, rows, "notes")


def _row_class(record: Record, note: str) -> str | None:
    marks = ["untrusted"] if record.trust == "untrusted" else []
    return " ".join([*marks, *(["chosen"] if record.id == note else [])]) or None


def _line(site: Site, chosen: _Chosen, record: Record) -> list[Child]:
    text = _words.beginning(record.content, _BEGINNING)
    link = tag("a", text, href=f"{chosen.url(site, note=record.id)}#note", class_="title")
    below: list[Child] = [tag("code", record.scope), _words.trust(record.trust), record.speaker or record.source]
    below.append(tag("span", "private", class_="tag") if record.private else None)
    return [link, tag("div", below, class_="sub")]


def _parts(match: Match) -> list[tuple[str, float]]:
    """Return the parts of the sum that ranks a match, the largest first, and deductions last."""
    return sorted(
        ((name, value) for name, value in match.parts.items() if name not in SCORES), key=lambda part: -part[1]
    )


def _waterfall(match: Match, scale: float) -> Html:
    parts = _parts(match)
    ends = list(accumulate((value for _, value in parts), initial=0.0))
    rows: list[Child] = []
    for (name, value), begin, end in zip(parts, ends, ends[1:], strict=False):
        bar = _rect(min(begin, end), abs(value), scale, "taken" if value < 0 else "part")
        rows += [
            tag("svg", bar, aria_hidden="true"),
            tag("span", name),
            tag("span", _amount(value), class_="n error" if value < 0 else "n"),
        ]
    return tag("div", rows, class_="waterfall")


def _bar(match: Match, scale: float) -> Html:
    parts = _parts(match)
    added = [value for _, value in parts if value > 0]
    bars = [
        _rect(begin, value, scale, f"part part{min(place, 3)}")
        for place, (begin, value) in enumerate(zip(accumulate(added, initial=0.0), added, strict=False))
    ]
    words: list[Child] = []
    for name, value in parts:
        words += [" · " if words else None, tag("span", f"{name} {_amount(value)}", class_="error" if value < 0 else None)]  # fmt: skip
    return tag("div", tag("svg", bars, aria_hidden="true"), tag("div", words, class_="sub"), class_="summed")


def _rect(begin: float, width: float, scale: float, kind: str) -> Html:
    x, wide = max(begin, 0.0) / scale * 100, max(width / scale * 100, 0.3)
    return tag("rect", x=f"{x:.2f}%", width=f"{wide:.2f}%", y="1", height="6", class_=kind)


def _amount(value: float) -> str:
    return f"+{value:.2f}" if value >= 0 else f"−{-value:.2f}"


def _legend(found: Sequence[Match], how: str) -> Html:
    ranked = (
        "Ranked by the reranker, which read the notes beside the question"
        if any("reranker" in each.parts for each in found)
        else "Ranked by the sum on the right, which compares the notes of one question"
    )
    return nothing(
        f"{ranked}. The score on the left says how well a note fits, and compares between questions, so a lower score may stand above a "
        f"higher one. {how}"
    )


def _more(site: Site, chosen: _Chosen, records: Sequence[Record], first: int) -> Html | None:
    if len(records) <= _LISTED:
        return None
    return next_link("Older", chosen.url(site, **{"from": first + _LISTED}))


VIEWS: Views = (("notes", notes),)
