"""The frame of all pages: the head, the bar on top, the keys at the bottom; and the parts that several pages have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlencode

from graphagent._html import Child, Html, tag

if TYPE_CHECKING:
    from graphagent.run import RunHeader

_VIEWS = (("runs", "Runs"), ("threads", "Threads"), ("inbox", "Inbox"), ("facts", "Facts"), ("notes", "Notes"))
Keys: TypeAlias = "tuple[tuple[str, str], ...]"
_KEYS: Keys = (("j k", "move"), ("Enter", "open"), ("/", "search"), ("n", "next problem"))
_GOING: Keys = (
    ("h l", "page before, after"), ("g r", "runs"), ("g t", "threads"), ("g i", "inbox"), ("g f", "facts"), ("g n", "notes"), ("?", "all keys"),
)  # fmt: skip
"""Keys that only the list of all keys names."""
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""The policy of pages, which load files of this server, and nothing else."""


Address: TypeAlias = "Callable[[str, Mapping[str, str | int]], str]"
"""Returns the address of a view, given its query."""


@dataclass(frozen=True, slots=True)
class Site:
    """The server, as a page sees it; or the file that a page is part of."""

    address: Address
    name: str
    """The name of the store, such as that of its file."""
    sealed: bool = False
    """Whether the store is encrypted."""
    facts: bool = False
    """Whether facts are shown."""
    notes: bool = False
    """Whether notes are shown."""
    form: str = ""
    """The token that forms send back, so that only pages of this server change anything; empty if nothing can be changed."""
    rows: int = 250
    """How many rows of a table, and how many steps, one page has."""
    ids: str = ""
    """The beginning of the ids of elements, where a page has several parts of a kind."""
    options: Sequence[str] = ()
    """Options that name the store, in commands."""
    is_file: bool = False
    """Whether it is a file: without forms, and with repeated parts only once."""

    def url(self, view: str, **query: str | int) -> str:
        """Return the address of a view. Ids of runs stand in queries: in a path, a browser would resolve `..`."""
        return self.address(view, {key: value for key, value in query.items() if value != ""})


def below(base: str) -> Address:
    """Return the addresses of a server; `base` is the prefix of all paths, without a slash at its end."""
    return lambda view, query: f"{base}/{view}{'?' if query else ''}{urlencode(query, errors='replace')}"


def page(site: Site, title: str, *body: Child, view: str = "", keys: Keys = ()) -> str:
    """Return a whole page; `keys` are those of its own."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · graphagent"),
        tag("link", rel="stylesheet", href=site.url("inspect.css")),
        tag("link", rel="icon", href=site.url("icon.svg")),
        tag("script", src=site.url("inspect.js"), defer=True),
    )
    views = [
        tag("a", label, href=site.url(name), aria_current="page" if name == view else None, data_view=name)
        for name, label in _VIEWS
        if (name != "facts" or site.facts) and (name != "notes" or site.notes)
    ]
    bar = tag(
        "header",
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag("a", "graphagent", href=site.url("runs"), class_="brand"),
        tag("nav", views, aria_label="Views"),
        tag(
            "span", tag("span", "sealed", class_="tag") if site.sealed else None, tag("code", site.name), class_="store"
        ),
        class_="top",
    )
    named = (*keys, *_KEYS)
    foot = tag(
        "footer",
        [*(_key(each) for each in named), tag("span", _key(("?", "all keys")), class_="last")],
        class_="keys",
        hidden=True,
    )
    listed = [tag("li", _key(each)) for each in (*named, *(each for each in _GOING if each[0] not in dict(keys)))]
    dialog = tag("dialog", tag("h2", "Keys"), tag("ul", listed), tag("p", _key(("Esc", "closes this")), class_="sub"), aria_label="Keys")  # fmt: skip
    main = tag("main", *body, id="content", tabindex="-1")
    return f"<!doctype html>\n{tag('html', head, tag('body', bar, main, foot, dialog), lang='en').text}\n"


def _key(named: tuple[str, str]) -> Html:
    pressed, what = named
    return tag("span", [tag("kbd", key) for key in pressed.split()], f" {what}", data_keys=pressed)


def url_of(site: Site, head: RunHeader, view: str = "run", **more: str | int) -> str:
    """Return the address of a run, or of a view of it."""
    return site.url(view, id=head.run_id, owner=head.owner, **more)


def run_link(site: Site, run_id: str, owner: str) -> Html:
    """Return a link to a run, named by its id."""
    return tag("a", tag("code", run_id), href=site.url("run", id=run_id, owner=owner))


def with_empty(url: str, name: str) -> str:
    """Return an address with an empty value in its query, which `Site.url` leaves out: `owner=` stands for the runs of nobody."""
    return f"{url}{'&' if '?' in url else '?'}{name}="


def crumb(*steps: Child) -> Html:
    """Return the way to a page, from the list in which it begins."""
    return tag("p", [[" / " if place else None, each] for place, each in enumerate(steps)], class_="crumb")


def run_crumb(site: Site, head: RunHeader, what: str) -> Html:
    """Return the way to a page of a run."""
    return crumb(tag("a", "Runs", href=site.url("runs")), run_link(site, head.run_id, head.owner), what)


def column(*name: Child, class_: str | None = None) -> Html:
    """Return the head of a column of a table."""
    return tag("th", *name, scope="col", class_=class_)


def table(caption: str, columns: Iterable[Html | str], rows: Child, class_: str | None = None) -> Html:
    """Return a table, given the names of its columns, or their heads made by `column`; only screen readers say its caption."""
    heads = [each if isinstance(each, Html) else column(each) for each in columns]
    said = tag("caption", caption, class_="unseen")
    return tag("table", said, tag("thead", tag("tr", heads)), tag("tbody", rows), class_=class_)


def next_link(label: str, url: str, left: str = "") -> Html:
    """Return the link to the next rows of a table, with the number of rows that are left in words."""
    return tag("p", tag("a", label, href=url, rel="next", class_="button"), f" {left}" if left else None, class_="more")


def nothing(text: str, *more: Child) -> Html:
    """Return the reason why there is nothing to show."""
    return tag("p", text, *more, class_="empty")


def reach_label(site: Site) -> str:
    """Return the label of the link from a fact or a note to the page that says where it has been, and that can forget it."""
    return "Where it has been, forget it…" if site.form else "Where it has been"


def told(pairs: list[tuple[str, Child]]) -> Html:
    """Return names with values in a row."""
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs], class_="facts")


def pages(site: Site, head: RunHeader, name: str, first: int, total: int, **more: str) -> Html | None:
    """Return the links to earlier and later rows of something of a run, whose addresses have the first row under a name; None if one page has all."""
    if total <= site.rows:
        return None
    links: list[Child] = [f"{first + 1:,} to {min(first + site.rows, total):,} of {total:,} "]
    for word, rel, other in (("Earlier", "prev", first - site.rows), ("Later", "next", first + site.rows)):
        if -site.rows < other < total:
            links.append(tag("a", word, href=site.url("run", id=head.run_id, owner=head.owner, **more, **{name: max(other, 0)}), rel=rel, class_="button"))  # fmt: skip
    return tag("p", links, class_="more")
