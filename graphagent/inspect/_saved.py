"""A run as one file, which has the pages of the run one after the other."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from graphagent import _clock
from graphagent._html import Child, Html, style, tag
from graphagent._version import __version__
from graphagent.errors import RunQueuedError
from graphagent.history import export_runs, import_runs, read_run, redact_runs, run_head
from graphagent.inspect import _entry, _run
from graphagent.inspect._layout import Site
from graphagent.inspect._transcript import prompt_of, runs_in, steps_of
from graphagent.log._claim import LEASE, Claim
from graphagent.log._segments import root_of
from graphagent.memory import ActionStep
from graphagent.store import MemoryStore

if TYPE_CHECKING:
    from graphagent.history import StoredRun
    from graphagent.protocols import Store

_ROWS = (1000, 250, 60, 15)
"""How many of the last rows of each table, and of the last entries, a file has: the largest number with which it is not too large."""
_PROMPTS = 50
"""How many of the last prompts a file has at most, since each is derived from all steps before it."""
_MOST = 10_000_000
"""Characters of a file that is not too large. A file with the fewest rows can have more."""
_LEFT_OUT = "left-out"
_STYLE = re.compile("<style>(.*?)</style>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a file to which links lead."""

    view: str
    run_id: str
    number: int
    """The number of the entry, or the place of the turn in the transcript; 0 for a run."""
    title: str
    made: Callable[[Site], Sequence[Child]]

    def fragment(self, runs: Sequence[str]) -> str:
        """Return its name in the file, given the ids of all runs in the file."""
        return f"{self.view}-{runs.index(self.run_id)}-{self.number}"


async def redacted_run(store: Store, run_id: str, owner: str) -> StoredRun:
    """Return a run with its texts and values replaced by their lengths.

    Raises:
        RunNotFoundError, DamagedStoreError, StoreError: as `read_run` raises them.
    """
    head = await run_head(store, run_id, owner=owner)
    if not head.begun:
        raise RunQueuedError(run_id, head.due)
    root, copy = await root_of(store, owner, run_id), MemoryStore()
    records = list(redact_runs([each async for each in export_runs(store, owner=owner, run_ids=[root])]))
    await import_runs(copy, records)
    stored = await read_run(copy, run_id, owner=str(records[0]["owner"]))
    if head.status != "running":
        return stored
    claim = Claim(
        "", "…", "", 0, 0, until=_clock.now() + LEASE
    )  # exports have no claims, and without a claim the run would be interrupted
    return replace(stored, head=structs.replace(stored.head, claim=claim))


def saved(stored: StoredRun, *, redacted: bool, sealed: bool) -> str:
    """Return a run as a page that loads nothing, and has no script.

    Args:
        stored: The run.
        redacted: Whether the page says that texts and values were replaced.
        sealed: Whether it says that the store is encrypted, and the file is not.
    """
    found = ""
    for rows in _ROWS:
        found = _document(stored, rows, redacted=redacted, sealed=sealed)
        if len(found) <= _MOST:
            break
    return found


def _document(stored: StoredRun, rows: int, *, redacted: bool, sealed: bool) -> str:
    every = list(runs_in(stored))
    runs, prompts = every[:rows], [part for each in every for part in _prompts(each)]
    entries = [_entry_part(stored, each.number, f"{each.kind} {each.where}") for each in stored.entries]
    parts = [*map(_run_part, runs), *prompts[-min(rows, _PROMPTS) :], *entries[-rows:]]
    ids = [each.head.run_id for each in every]
    there = {(each.view, each.run_id, each.number): f"#{each.fragment(ids)}" for each in parts}
    pictures = {each.head.run_id: each.to_svg() for each in runs}

    def address(view: str, query: Mapping[str, str | int]) -> str:
        run_id = str(query.get("id", ""))
        if view == "graph.svg" and run_id in pictures:
            return f"data:image/svg+xml;base64,{base64.b64encode(pictures[run_id].encode()).decode()}"
        number = int(query.get("n", query.get("step", 0)))
        place = (view, stored.head.run_id if view == "entry" else run_id, number)
        return there.get(place, f"#{_LEFT_OUT}")

    site = Site(address, "", sealed=sealed, rows=rows, is_file=True)
    shown: dict[_Part, Html] = {}
    for each in parts:
        name = each.fragment(ids)
        shown[each] = tag("div", each.made(replace(site, ids=f"{name}-")), id=name)
    of_view = {view: [each for each in parts if each.view == view] for view in ("run", "prompt", "entry")}
    body: list[Child] = [
        *(tag("article", shown[each]) for each in of_view["run"]),
        _folded("Prompts", of_view["prompt"], shown),
        _folded("Entries", of_view["entry"], shown),
        _left_out(len(every) - len(runs), len(prompts) - len(of_view["prompt"]), len(entries) - len(of_view["entry"])),
    ]
    return _page(stored, body, list(pictures.values()), redacted=redacted, sealed=sealed)


def _run_part(stored: StoredRun) -> _Part:
    return _Part("run", stored.head.run_id, 0, stored.head.run_id, lambda site: _run.parts_of(site, stored, 0, 0))


def _prompts(stored: StoredRun) -> Iterator[_Part]:
    for place, step in enumerate(steps_of(stored)):
        if isinstance(step, ActionStep) and step.prompt is not None:
            yield _prompt_part(stored, place, f"Prompt of turn {step.step_number}")


def _prompt_part(stored: StoredRun, place: int, title: str) -> _Part:
    return _Part("prompt", stored.head.run_id, place, title, lambda site: prompt_of(site, stored, place)[1])


def _entry_part(stored: StoredRun, number: int, title: str) -> _Part:
    return _Part(
        "entry", stored.head.run_id, number, f"Entry {number:,} {title}", lambda site: _entry.parts_of(site, stored, number)
    )  # fmt: skip


def _folded(title: str, parts: Sequence[_Part], shown: Mapping[_Part, Html]) -> Html | None:
    if not parts:
        return None
    rows = [tag("details", tag("summary", each.title), shown[each]) for each in parts]
    return tag("section", tag("h2", title), rows)


def _left_out(runs: int, prompts: int, entries: int) -> Html:
    counts = (
        (runs, "run of a sub-agent", "runs of sub-agents"),
        (prompts, "prompt", "prompts"),
        (entries, "entry", "entries"),
    )
    left = [f"{count:,} {one if count == 1 else several}" for count, one, several in counts if count]
    large = f"The run is large: {', '.join(left)} from its beginning are left out. " if left else ""
    said = f"{large}This file has one run. Other runs, open questions and forms are in the pages that graphagent inspect serves."
    return tag("section", tag("h2", "Not in this file"), tag("p", said, class_="sub"), id=_LEFT_OUT, tabindex="-1")


def _page(stored: StoredRun, body: Sequence[Child], pictures: Sequence[str], *, redacted: bool, sealed: bool) -> str:
    css = (Path(__file__).parent / "inspect.css").read_text("utf-8")
    styles = [css, *(each for picture in pictures for each in _STYLE.findall(picture))]
    hashes = sorted(
        {f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in styles}
    )
    policy = f"default-src 'none'; style-src {' '.join(hashes)}; img-src data:; base-uri 'none'; form-action 'none'"
    title = f"{stored.head.title or stored.head.run_id} · graphagent"
    head = tag(
        "head", tag("meta", charset="utf-8"), tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="referrer", content="no-referrer"), tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"), tag("title", title), style(css),
    )  # fmt: skip
    now = datetime.fromtimestamp(_clock.now() / 1000, UTC)
    marks = [
        tag("span", "redacted", class_="tag", title="Texts and values were replaced by their lengths") if redacted else None,
        tag("span", "not encrypted, unlike its store", class_="tag") if sealed else None,
    ]  # fmt: skip
    saved_at = tag("span", marks, f"saved {now:%Y-%m-%d %H:%M} UTC by graphagent {__version__}", class_="store")
    bar = tag(
        "header", tag("a", "Skip to the content", href="#content", class_="skip"), tag("span", "graphagent", class_="brand"), saved_at,
        class_="top",
    )  # fmt: skip
    main = tag("main", body, id="content", tabindex="-1")
    return f"<!doctype html>\n{tag('html', head, tag('body', bar, main), lang='en').text}\n"
