"""The inbox: what runs wait for people to answer, with a form for each."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from graphagent import _clock
from graphagent._article import counted
from graphagent.history import list_questions
from graphagent.inspect import _words
from graphagent.inspect._forms import buttons_of, fields_of
from graphagent.inspect._html import Child, Html, tag
from graphagent.inspect._layout import Site, nothing, page
from graphagent.inspect._values import text_of

if TYPE_CHECKING:
    from graphagent.history import PendingQuestion
    from graphagent.protocols import Store

_SHOWN = 50


async def inbox_page(store: Store, site: Site, strategies: Collection[str], *, only: str | None) -> str:
    """Return the page of the open questions: those with a deadline first, the next one first.

    Args:
        store: Where the runs are.
        site: The server.
        strategies: Those whose agents are here, so that their runs can be answered.
        only: The owner whose questions are shown; None: all.

    Raises:
        StoreError: the store cannot be read.
    """
    found = sorted(
        await list_questions(store, owner=only),
        key=lambda each: (each.deadline is None, each.deadline or each.since, each.since),
    )
    shown = [question_form(site, each, strategies) for each in found[:_SHOWN]]
    left = len(found) - len(shown)
    return page(
        site, "Inbox", tag("div", tag("h1", "Inbox"), tag("span", counted(len(found), "open question"), class_="sub"), class_="head"),
        shown or nothing("Nobody is waited for. A question of a run is shown here as long as it is open."),
        nothing(f"{counted(left, 'question')} more, which are shown when some of these are answered.") if left else None, view="inbox",
    )  # fmt: skip


def question_form(
    site: Site,
    pending: PendingQuestion,
    strategies: Collection[str],
    wrong: str = "",
    given: Mapping[str, str] | None = None,
) -> Html:
    """Return a question with the form in which it is answered, or the reason why that is not possible here."""
    question = pending.question
    run_url = site.url("run", id=pending.run_id, owner=pending.owner)
    about: list[Child] = [
        tag("a", tag("code", pending.run_id), href=run_url),
        f" {pending.strategy}",
        f" · asked by {question.node}",
    ]
    if pending.owner:
        about.append(f" · of {pending.owner}")
    since = tag("p", about, " · since ", _words.moment(int(pending.since.timestamp() * 1000)), class_="sub")
    due = None
    if pending.deadline is not None:
        at = int(pending.deadline.timestamp() * 1000)
        due = tag(
            "p",
            "Until ",
            _words.moment(at),
            f", in {_words.duration(max(at - _clock.now(), 0) / 1000)}",
            class_="why waiting",
        )
    subject = None if question.about in (None, "") or question.call is not None else tag("pre", text_of(question.about))
    call = None if question.call is None else tag("p", "calls ", tag("code", question.call.name))
    can = pending.strategy in strategies and bool(site.form)
    hidden = [tag("input", type="hidden", name=name, value=value) for name, value in (
        ("form", site.form), ("run", pending.run_id), ("owner", pending.owner), ("question", question.id),
    )]  # fmt: skip
    fields = tag("fieldset", fields_of(question), tag("p", buttons_of(question)), disabled=not can)
    said = tag("p", wrong, class_="error", role="alert") if wrong else None
    return tag(
        "section", tag("h2", question.question or "(no text)"), since, due, call, subject, said,
        tag("form", hidden, fields, method="post", action=site.url("answer")), None if can else _why_not(site, pending),
        class_="question problem", tabindex="-1",
    )  # fmt: skip


def _why_not(site: Site, pending: PendingQuestion) -> Html:
    if not site.form:
        return tag("p", "It cannot be answered here, since these pages only read.", class_="sub")
    command = f"graphagent runs answer {shlex.quote(pending.run_id)} {shlex.quote(pending.question.id)}=ANSWER --agent MODULE:AGENT"
    return tag(
        "p",
        f"It cannot be answered here, since the agent of {pending.strategy!r} is not here: begin with --agent MODULE:AGENTS, or use ",
        tag("code", command),
        class_="sub",
    )
