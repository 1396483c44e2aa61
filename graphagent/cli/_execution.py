"""Runs executed by a command: Ctrl-C pauses them, and the command reports their results."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any

import anyio
import typer
from anyio.abc import TaskStatus

from graphagent.cli import _output
from graphagent.cli._prompts import STOPPED
from graphagent.cli.runs._progress import spent
from graphagent.cli.runs._prompt_answers import print_question, wanted

if TYPE_CHECKING:
    from graphagent import Agent
    from graphagent.cli._narration import Narration
    from graphagent.cli.runs._progress import LiveLine
    from graphagent.run import RunResult


async def attended(
    agent: Agent[Any, Any],
    work: Callable[[], Awaitable[RunResult[Any]]],
    display: LiveLine | Narration,
    *,
    pause: bool = True,
) -> tuple[RunResult[Any], bool]:
    """Execute a run and show its progress. Ctrl-C pauses it, a second Ctrl-C cancels it. Return the result, and whether Ctrl-C was pressed.

    Args:
        agent: Executes the run.
        work: Executes it to its end, or until it waits.
        display: Shows it.
        pause: Whether the first Ctrl-C pauses the run; otherwise it cancels the run, since it could not be resumed.
    """
    result: RunResult[Any] | None = None
    failure: BaseException | None = None
    stopped = False

    async def listen(*, task_status: TaskStatus[None]) -> None:
        nonlocal stopped
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                run = agent.last
                if stopped or run is None or not pause:
                    stopped = True
                    doing.cancel()
                    return
                stopped = True
                run.pause("Ctrl-C")
                display.say("Pausing after the current work; press Ctrl-C again to cancel that.")

    async with anyio.create_task_group() as group:
        # Without a way to receive signals, Ctrl-C cancels at once. A background job ignores it and must go on doing so.
        if sys.platform != "win32" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            await group.start(listen)
        with anyio.CancelScope() as doing, display:
            try:
                result = await work()
            except Exception as error:  # noqa: BLE001  raised after the group, which would wrap it
                failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if result is None:  # it was cancelled
        if agent.last is None:
            raise typer.Exit(STOPPED)
        result = agent.last.result
    return result, stopped


def report(
    result: RunResult[Any],
    *,
    as_json: bool,
    to_answer: str = "",
    to_resume: str = "",
    said: str = "",
    answer: str | None = None,
    shown: Collection[str] = (),
) -> None:
    """Print the answer on standard output, and the state of the run on standard error; or all of it as JSON.

    Args:
        result: Of the run.
        as_json: Whether to print JSON.
        to_answer: The command that answers the open questions; empty if there is none.
        to_resume: The command that resumes the run; empty if there is none.
        said: A text printed already; an answer with the same text is not printed again.
        answer: The answer as text; by default the text of the output.
        shown: The ids of questions printed already.
    """
    usage = result.usage
    if as_json:
        told: dict[str, object] = {
            "run_id": result.run_id, "status": result.status, "output": _output.plain(result.output) if result.done else None,
            "questions": [
                {"id": each.id, "question": each.question, "node": each.node, "kind": each.kind, "answer": wanted(each),
                 "deadline": None if each.deadline is None else each.deadline.isoformat()}
                for each in result.questions
            ],
            "due": None if result.due is None else result.due.isoformat(),
            "turns": result.turns, "tokens": usage.total_tokens, "cost": str(usage.cost), "seconds": round(result.seconds, 3),
        }  # fmt: skip
        print(_output.json_text(told))
        return
    text = answer if answer is not None or not result.done else _output.value_text(result.output)
    if text is not None and text != said:
        print(_output.for_output(text))
    took = ", ".join(spent(result.turns, usage.total_tokens, usage.cost, result.seconds))
    until = f" until {_output.moment(int(result.due.timestamp() * 1000))}" if result.due is not None else ""
    _output.aside(f"Run {result.run_id}: {result.status}{until}, {took}.")
    if result.questions:
        for each in result.questions:
            if each.id not in shown:
                print_question(each)
        if to_answer:
            _output.aside(f"Answer with: {to_answer}")
    elif not result.done and to_resume:
        _output.aside(f"Resume it with: {to_resume}")
