"""`graphagent runs`: what goes on with a run, and shows how far it is."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import typer
from anyio.abc import TaskStatus

from graphagent.cli import _output
from graphagent.cli._prompts import STOPPED, ask
from graphagent.cli.runs._progress import Progress, spent, watch
from graphagent.cli.runs._prompt_answers import Part, parts_of, read_answer, read_answers, read_part, wanted
from graphagent.cli.runs._target import Place, found, opened
from graphagent.errors import AnswerError, GraphAgentError, RunError

if TYPE_CHECKING:
    from graphagent import Agent
    from graphagent.protocols import Store
    from graphagent.run import Question, RunResult

_LEFT_OUT = object()
Work = Callable[["Agent[Any, Any]", "Store"], Awaitable["RunResult[Any]"]]


def go_on(place: Place, run: str | None, *, allow_changed: bool, as_json: bool) -> None:
    """Go on with a run."""

    async def work(agent: Agent[Any, Any], store: Store) -> RunResult[Any]:
        run_id = await found(store, place.owner, run)
        return await agent.resume(run_id, owner=place.owner, allow_changed=allow_changed)

    _execute(place, work, as_json=as_json)


def give_answers(place: Place, run: str, words: Sequence[str], *, allow_changed: bool, as_json: bool) -> None:
    """Answer what a run waits for, and go on with it."""
    answers: dict[str, object] = {}
    run_id = ""

    async def read(agent: Agent[Any, Any], store: Store) -> None:
        nonlocal run_id
        run_id = await found(store, place.owner, run)
        there = await agent.read(run_id, owner=place.owner, allow_changed=allow_changed)
        if not there.questions:
            raise AnswerError("", f"run {run_id!r} waits for no answer: it is {there.result.status}")
        answers.update(read_answers(there.questions, words) if words else _asked(there.questions))

    async def work(agent: Agent[Any, Any], _: Store) -> RunResult[Any]:
        return await agent.resume(run_id, answers=answers, owner=place.owner, allow_changed=allow_changed)

    _execute(place, work, before=read, as_json=as_json)


def fork_run(
    place: Place, run: str, *, before: str | None, after: str | None, at: int | None, run_id: str | None,
    allow_changed: bool, as_json: bool,
) -> None:  # fmt: skip
    """Make another run that begins as one did, and go on with it."""

    async def work(agent: Agent[Any, Any], store: Store) -> RunResult[Any]:
        origin = await found(store, place.owner, run)
        with _named():
            return await agent.fork(
                origin, before=before, after=after, at=at, run_id=run_id, owner=place.owner, allow_changed=allow_changed
            )

    _execute(place, work, as_json=as_json)


def rerun_run(place: Place, run: str, *, until: str | None, run_id: str | None, as_json: bool) -> None:
    """Execute a run again on what was recorded."""

    async def work(agent: Agent[Any, Any], store: Store) -> RunResult[Any]:
        which = await found(store, place.owner, run)
        number = int(until) if until is not None and until.isdecimal() else until
        with _named():
            return await agent.rerun(which, until=number, new_id=run_id, owner=place.owner)

    _execute(place, work, as_json=as_json)


@contextmanager
def _named() -> Generator[None, None, None]:
    """Tell of a place that a run does not have as of a wrong call."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, GraphAgentError):
            raise
        raise typer.BadParameter(str(error)) from None


def _execute(
    place: Place,
    work: Work,
    *,
    before: Callable[[Agent[Any, Any], Store], Awaitable[None]] | None = None,
    as_json: bool,
) -> None:
    async def main() -> tuple[RunResult[Any], bool]:
        async with opened(place) as (store, agent):
            assert agent is not None
            if before is not None:
                await before(agent, store)
            try:
                return await _attended(agent, store, work)
            except RunError as error:
                if agent.last is not None and agent.last.result.status in ("failed", "cancelled"):
                    error.add_note(f"Go on with: {place.command(f'resume {shlex.quote(agent.last.run_id)}')}")
                raise

    result, stopped = anyio.run(main)
    _report(place, result, as_json=as_json)
    if stopped and not result.done:
        raise typer.Exit(STOPPED)


async def _attended(agent: Agent[Any, Any], store: Store, work: Work) -> tuple[RunResult[Any], bool]:
    """Execute a run and show how far it is; Ctrl-C pauses it, and once more breaks it off. Tell whether that was done."""
    result: RunResult[Any] | None = None
    failure: BaseException | None = None
    stopped = False

    async def listen(*, task_status: TaskStatus[None]) -> None:
        nonlocal stopped
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                run = agent.last
                if stopped or run is None:
                    doing.cancel()
                    return
                stopped = True
                run.pause("Ctrl-C")
                progress.say("Pausing behind what is being done now; Ctrl-C once more breaks that off.")

    progress = Progress()
    watch(agent, progress)
    async with anyio.create_task_group() as group:
        # Where signals cannot be received, Ctrl-C cancels; a background job that is to ignore it does.
        if sys.platform != "win32" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            await group.start(listen)
        with anyio.CancelScope() as doing, progress:
            try:
                result = await work(agent, store)
            except Exception as error:  # noqa: BLE001  raised behind the group, which would wrap it
                failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if result is None:  # it was broken off
        if agent.last is None:
            raise typer.Exit(STOPPED)
        result = agent.last.result
    return result, stopped


def _asked(questions: Sequence[Question]) -> dict[str, object]:
    """Ask the person at the terminal.

    Raises:
        BadParameter: nobody sits there.
    """
    if not sys.stdin.isatty():
        ids = ", ".join(each.id for each in questions)
        raise typer.BadParameter(f"say the answer; open questions: {ids}")
    return {each.id: _ask(each) for each in questions}


def _ask(question: Question) -> object:
    _say_question(question)
    parts = parts_of(question)
    while parts:
        given = {part.question.id: _ask_part(part) for part in parts}
        try:
            return question.check({name: each for name, each in given.items() if each is not _LEFT_OUT})
        except AnswerError as error:
            _output.complain(str(error))
    while True:
        text = ask(f"  {wanted(question)}")
        try:
            return read_answer(question, text)
        except AnswerError as error:
            _output.complain(str(error))


def _ask_part(part: Part) -> object:
    while True:
        text = ask(f"  {part.described}", optional=part.optional)
        if part.optional and not text:
            return _LEFT_OUT
        try:
            return read_part(part, text)
        except AnswerError as error:
            _output.complain(str(error))


def _say_question(question: Question) -> None:
    _output.say(f"{question.id}: {question.question}")
    if question.about not in (None, ""):
        _output.say(f"  about: {_output.shortened(_output.value_text(question.about), 400)}")
    for part in parts_of(question):
        _output.say(f"  {part.described}")


def _report(place: Place, result: RunResult[Any], *, as_json: bool) -> None:
    usage = result.usage
    if as_json:
        told: dict[str, object] = {
            "run_id": result.run_id, "status": result.status, "output": _output.plain(result.output) if result.done else None,
            "questions": [
                {"id": each.id, "question": each.question, "node": each.node, "kind": each.kind, "answer": wanted(each)}
                for each in result.questions
            ],
            "turns": result.turns, "tokens": usage.total_tokens, "cost": str(usage.cost), "seconds": round(result.seconds, 3),
        }  # fmt: skip
        print(_output.json_text(told))
        return
    if result.done:
        print(_output.for_output(_output.value_text(result.output)))
    took = ", ".join(spent(result.turns, usage.total_tokens, usage.cost, result.seconds))
    _output.aside(f"Run {result.run_id}: {result.status}, {took}.")
    if result.questions:
        for each in result.questions:
            _say_question(each)
        _output.aside(f"Answer with: {place.answer(result.run_id, result.questions)}")
    elif not result.done:
        _output.aside(f"Go on with: {place.command(f'resume {shlex.quote(result.run_id)}')}")
