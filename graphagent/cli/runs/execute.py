"""`graphagent runs`: the commands that execute a run, and show its progress."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from graphagent.cli._execution import attended, report
from graphagent.cli._options import Json, argument, option, value_of
from graphagent.cli._output import aside, json_text
from graphagent.cli._prompts import STOPPED
from graphagent.cli.runs._progress import live_progress
from graphagent.cli.runs._prompt_answers import ask_all, denied, read_answers
from graphagent.cli.runs._target import (
    AllowChanged,
    ContinueTarget,
    ExecuteTarget,
    NewId,
    ReadTarget,
    RunsTarget,
    Which,
    WhichOrNewest,
    plain,
    run_named,
)
from graphagent.errors import AnswerError, RunError, RunExistsError
from graphagent.llm import Approve, Deny

if TYPE_CHECKING:
    from graphagent import Agent
    from graphagent.protocols import Store
    from graphagent.run import Question, RunHeader, RunResult

Reason = Annotated[str, option("--reason", "TEXT", "The reason, for people; stored with the run.")]
Work = Callable[["Agent[Any, Any]", "Store"], Awaitable["RunResult[Any]"]]


def resume(
    run: WhichOrNewest = None, *, target: ContinueTarget, allow_changed: AllowChanged = False, as_json: Json = False
) -> None:
    """Resume a run that was paused, interrupted or failed; without --agent, a worker does that. Nothing is done twice. Ctrl-C pauses it."""

    async def work(agent: Agent[Any, Any], store: Store) -> RunResult[Any]:
        run_id = await run_named(store, target.owner, run)
        return await agent.resume(run_id, owner=target.owner, allow_changed=allow_changed)

    async def leave() -> RunHeader:
        from graphagent.history import resume_run

        async with target.open() as (store, _):
            return await resume_run(store, await run_named(store, target.owner, run), owner=target.owner)

    if target.agent is None:
        _report_left(target, anyio.run(leave), as_json=as_json)
    else:
        _execute(target, work, as_json=as_json)


def answer(
    run: Which,
    answers: Annotated[
        list[str] | None,
        argument(
            "ANSWER…",
            "The answer, as plain text or as JSON; for several questions ID=ANSWER for each. For a tool call: yes, no "
            "with a reason, or other arguments as JSON. Default: you are asked.",
        ),
    ] = None,
    *,
    deny: Annotated[
        str | None,
        option("--deny", "REASON", "Decline whatever is asked; of several questions, those whose ids are named."),
    ] = None,
    by: Annotated[str, option("--by", "NAME", "The person who decides; stored with an approval or a denial.")] = "",
    target: ContinueTarget,
    allow_changed: AllowChanged = False,
    as_json: Json = False,
) -> None:
    """Answer the questions of a run, and resume it; without --agent, a worker does that. Ctrl-C pauses it."""
    given: dict[str, object] = {}
    run_id = ""

    def give(questions: Sequence[Question], status: str) -> None:
        if not questions:
            raise AnswerError("", f"run {run_id!r} does not wait for an answer: it is {status}")
        try:
            if deny is not None:
                given.update(denied(questions, answers or (), deny))
            else:
                given.update(read_answers(questions, answers) if answers else ask_all(questions))
        except typer.Exit:
            aside(f"Answer with: {target.answer(run_id, questions)}")
            raise
        given.update({id_: replace(each, by=by) for id_, each in given.items() if isinstance(each, Approve | Deny)})

    async def read(agent: Agent[Any, Any], store: Store) -> None:
        nonlocal run_id
        run_id = await run_named(store, target.owner, run)
        stored = await agent.read(run_id, owner=target.owner, allow_changed=allow_changed)
        give(stored.questions, stored.result.status)

    async def work(agent: Agent[Any, Any], _: Store) -> RunResult[Any]:
        return await agent.resume(run_id, answers=given, owner=target.owner, allow_changed=allow_changed)

    async def record() -> RunHeader:
        nonlocal run_id
        from graphagent.history import answer_run, read_run

        async with target.open() as (store, _):
            run_id = await run_named(store, target.owner, run)
            stored = await read_run(store, run_id, owner=target.owner)
            give(stored.questions, stored.head.status)
            return await answer_run(store, run_id, answers=given, owner=target.owner)

    if target.agent is None:
        _report_left(target, anyio.run(record), as_json=as_json)
    else:
        _execute(target, work, before=read, as_json=as_json)


def pause(run: Which, *, reason: Reason = "", target: RunsTarget, as_json: Json = False) -> None:
    """Have the worker that executes a run pause it before its next node or effect."""
    from graphagent.history import pause_run

    async def work(store: Store) -> RunHeader:
        return await pause_run(store, await run_named(store, target.owner, run), reason, owner=target.owner)

    _report(target.use(work), as_json=as_json)


def end(run: Which, *, reason: Reason = "", target: ReadTarget, as_json: Json = False) -> None:
    """End a run where it is. It cannot be resumed, and the next message of its thread continues its transcript.

    A worker that executes it ends it before its next node or effect. With --agent, its features learn from a run that had stopped.
    """
    from graphagent.history import end_run, run_head

    async def main() -> RunHeader:
        async with target.open() as (store, agent):
            run_id = await run_named(store, target.owner, run)
            if agent is None:
                return await end_run(store, run_id, reason, owner=target.owner)
            await agent.handle(run_id, owner=target.owner).end(reason)
            return await run_head(store, run_id, owner=target.owner)

    _report(anyio.run(main), as_json=as_json)


def fork(
    run: Which,
    *,
    before: Annotated[str | None, option("--before", "NODE", "Fork before the last execution of this node.")] = None,
    after: Annotated[str | None, option("--after", "NODE", "Fork after the last execution of this node.")] = None,
    at: Annotated[int | None, option("--at", "N", "Fork after this entry of its journal; see show --entries.")] = None,
    run_id: NewId = None,
    target: ExecuteTarget,
    allow_changed: AllowChanged = False,
    as_json: Json = False,
) -> None:
    """Create a run that begins as this one did, and continue it. This run is not changed. Ctrl-C pauses the new one."""
    if sum(each is not None for each in (before, after, at)) != 1:
        raise typer.BadParameter("choose where to fork: one of --before NODE, --after NODE and --at N")

    async def work(agent: Agent[Any, Any], store: Store) -> RunResult[Any]:
        origin = await run_named(store, target.owner, run)
        with value_of():
            return await agent.fork(
                origin,
                before=before,
                after=after,
                at=at,
                run_id=run_id,
                owner=target.owner,
                allow_changed=allow_changed,
            )

    _execute(target, work, as_json=as_json)


def rerun(
    run: Which,
    *,
    until: Annotated[
        str | None,
        option(
            "--until",
            "NODE|N",
            "Use recorded results up to the end of this node or up to this entry, and live ones after it. Default: only "
            "recorded results.",
        ),
    ] = None,
    run_id: NewId = None,
    target: ExecuteTarget,
    as_json: Json = False,
) -> None:
    """Execute a run again with recorded results, as a new run. Ctrl-C pauses it."""

    async def work(agent: Agent[Any, Any], store: Store) -> RunResult[Any]:
        origin = await run_named(store, target.owner, run)
        number = int(until) if until is not None and until.isdecimal() else until
        with value_of():
            return await agent.rerun(origin, until=number, new_id=run_id, owner=target.owner)

    _execute(target, work, as_json=as_json)


def _report(head: RunHeader, more: str = "", *, as_json: bool) -> None:
    """Print the state of a run."""
    if as_json:
        print(json_text(plain(head)))
    else:
        aside(f"Run {head.run_id}: {head.status}.{more}")


def _report_left(target: ReadTarget, head: RunHeader, *, as_json: bool) -> None:
    """Print the state of a run that is left to workers, if it is."""
    here = target.command(f"resume {shlex.quote(head.run_id)}")
    _report(head, f" A worker continues it, or: {here}" if head.status == "queued" else "", as_json=as_json)


def _execute(
    target: ReadTarget,
    work: Work,
    *,
    before: Callable[[Agent[Any, Any], Store], Awaitable[None]] | None = None,
    as_json: bool,
) -> None:
    async def main() -> tuple[RunResult[Any], bool]:
        async with target.open() as (store, agent):
            assert agent is not None
            if before is not None:
                await before(agent, store)
            try:
                return await attended(agent, partial(work, agent, store), live_progress(agent))
            except RunExistsError as error:
                raise await target.taken(agent, error.run_id) from None
            except RunError as error:
                if agent.last is not None and agent.last.result.status in ("failed", "cancelled"):
                    error.add_note(f"Resume it with: {target.command(f'resume {shlex.quote(agent.last.run_id)}')}")
                raise

    result, stopped = anyio.run(main)
    report(
        result,
        as_json=as_json,
        to_answer=target.answer(result.run_id, result.questions),
        to_resume=target.command(f"resume {shlex.quote(result.run_id)}"),
    )
    if stopped and not result.done:
        raise typer.Exit(STOPPED)
