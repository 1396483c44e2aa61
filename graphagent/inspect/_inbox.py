"""The inbox: the questions that wait for people, with a form for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, RedirectResponse

from graphagent import _clock
from graphagent._article import counted
from graphagent._html import Child, Html, tag
from graphagent.errors import AnswerError, DamagedStoreError
from graphagent.history import answer_run, run_head
from graphagent.history._questions import questions_in, waiting_runs
from graphagent.inspect import _words
from graphagent.inspect._forms import FormError, answer_of, buttons_of, fields_of, form, refusal
from graphagent.inspect._layout import Site, nothing, page, run_link, url_of
from graphagent.inspect._values import text_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from graphagent.history import PendingQuestion
    from graphagent.inspect._inspected import Changes, Inspected, Views
    from graphagent.run import RunHeader

_SHOWN = 50


async def inbox(inspected: Inspected, request: Request) -> str:
    """Return the page of the open questions: those with a deadline come first, in the order of the deadlines.

    Raises:
        StoreError: the store cannot be read.
    """
    site, found, damaged = inspected.site(request), list["PendingQuestion"](), list["RunHeader"]()
    for head in await waiting_runs(inspected.runs, inspected.owner):
        try:
            found += await questions_in(inspected.runs, head.owner, head.run_id)
        except DamagedStoreError:  # which hides no question of another run
            damaged.append(head)
    found.sort(key=lambda each: (each.deadline is None, each.deadline or each.since, each.since))
    shown = [_question(inspected, site, each) for each in found[:_SHOWN]]
    left = len(found) - len(shown)
    return page(
        site, "Inbox", tag("div", tag("h1", "Inbox"), tag("span", counted(len(found), "open question"), class_="sub"), class_="head"),
        [nothing("A run that waits cannot be read: ", tag("a", _words.title(each), href=url_of(site, each))) for each in damaged],
        shown or (None if damaged else nothing("No open questions. What a run asks is shown here until it is answered.")),
        nothing(f"{counted(left, 'question')} more, which are shown when some of these are answered.") if left else None, view="inbox",
    )  # fmt: skip


def _question(inspected: Inspected, site: Site, pending: PendingQuestion, wrong: str = "") -> Html:
    """Return a question with the form in which it is answered."""
    question = pending.question
    about: list[Child] = [
        run_link(site, pending.run_id, pending.owner),
        f" {pending.strategy}",
        f" · asked by {question.node}",
    ]
    if pending.owner:
        about.append(f" · of {pending.owner}")
    since = tag("p", about, " · since ", _words.when(pending.since), class_="sub")
    due = None
    if pending.deadline is not None:
        left = max(pending.deadline.timestamp() - _clock.now() / 1000, 0)
        due = tag(
            "p",
            "Until ",
            _words.when(pending.deadline),
            f", in {_words.duration(left)}",
            class_="why waiting",
        )
    about_it = text_of(question.about) if question.call is None else ""
    is_said = " ".join(about_it.split()) in " ".join(question.question.split())
    subject = None if is_said else tag("pre", about_it)
    call = None if question.call is None else tag("p", "calls ", tag("code", question.call.name))
    hint = (
        ""
        if inspected.executes(pending.strategy)
        else "The answer is recorded, and the run goes on once graphagent worker takes it."
    )
    if not site.form:
        hint = "It cannot be answered here, since these pages are read-only."
    sent = {"id": pending.run_id, "owner": pending.owner, "question": question.id}
    fields = tag("fieldset", fields_of(question), tag("p", buttons_of(question)), disabled=not site.form)
    return tag(
        "section", tag("h2", question.question or "(no text)"), since, due, call, subject, refusal(wrong),
        form(site, "answer", sent, fields), tag("p", hint, class_="sub") if hint else None,
        class_="question problem", tabindex="-1",
    )  # fmt: skip


async def answer(inspected: Inspected, request: Request, fields: Mapping[str, str]) -> Response:
    """Record an answer. The page of a refused answer says why, and does not keep it."""
    run_id, owner = inspected.named(fields)
    site, id_ = inspected.site(request), fields.get("question", "")
    found = await questions_in(inspected.runs, owner, run_id)
    pending = next((each for each in found if each.question.id == id_), None)
    if pending is None:
        said = nothing(
            "This question is not open any more: it was answered, or its run was ended or removed. ",
            tag("a", "Inbox", href=site.url("inbox")),
        )
        return HTMLResponse(page(site, "Not open any more", tag("h1", "Not open any more"), said), 409)
    agent = inspected.agents.get(pending.strategy)
    try:
        answers = {id_: answer_of(pending.question, fields, "inspector")}
        if agent is None:
            await answer_run(inspected.runs, run_id, answers=answers, owner=owner)
        else:
            await agent.handle(run_id, owner=owner).answer(answers=answers)
    except (FormError, AnswerError) as error:
        again = _question(inspected, site, pending, str(error))
        return HTMLResponse(page(site, "Not answered", tag("h1", "Not answered"), again, view="inbox"), 422)
    head = await run_head(inspected.runs, run_id, owner=owner)
    inspected.go_on(head)
    await inspected.begun(head)
    return RedirectResponse(site.url("run", id=run_id, owner=owner), 303)


VIEWS: Views = (("inbox", inbox),)
CHANGES: Changes = (("answer", answer),)
