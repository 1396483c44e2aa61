"""`graphagent worker`: a process that executes submitted runs until it is told to stop."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer
from anyio.abc import TaskStatus

from graphagent._raised import ungrouped
from graphagent.cli import _stores
from graphagent.cli._options import argument, option, value_of
from graphagent.cli._output import aside
from graphagent.cli.runs._target import AgentStore
from graphagent.work import Worker

if TYPE_CHECKING:
    from graphagent import Agent
    from graphagent.work import Schedule


def worker(
    target: Annotated[
        str,
        argument(
            "MODULE:NAME",
            "A module or file, and the name of an agent in it, of a list of agents and schedules, or of a function that returns these.",
        ),
    ],
    *,
    at: AgentStore,
    concurrency: Annotated[int, option("--concurrency", "N", "How many runs are executed at once. Default: 10.")] = 10,
    queue: Annotated[
        list[str] | None, option("--queue", "NAME", "Take runs from this queue; can be repeated. Default: from all.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        option("--limit", "QUEUE=N", "How many runs of a queue are executed at once; can be repeated."),
    ] = None,
    limit_per_owner: Annotated[
        int | None, option("--limit-per-owner", "N", "How many runs of one owner are executed at once.")
    ] = None,
    health_file: Annotated[
        Path | None,
        option("--health-file", "FILE", "A file that is touched every second or so for as long as the worker works."),
    ] = None,
) -> None:
    """Execute submitted runs, go on with those whose time has come, and begin those of schedules.

    On SIGTERM and Ctrl-C, runs stop before their next step, and other workers go on with them; a second signal ends the process at once.
    """
    from graphagent.cli._user_code import work_at

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for others in ("httpx", "procrastinate"):
        logging.getLogger(others).setLevel(logging.WARNING)
    agents, schedules = work_at(target)
    options: dict[str, Any] = {
        "concurrency": concurrency, "queues": queue, "limits": _limits(limit or ()), "limit_per_owner": limit_per_owner,
        "health_file": health_file,
    }  # fmt: skip
    anyio.run(_work, agents, schedules, at, options)


def _limits(given: list[str] | tuple[()]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in given:
        queue, _, most = each.rpartition("=")
        if not queue or not most.isdecimal():
            raise typer.BadParameter(f"{each!r} is not a limit; write QUEUE=N: mail=5", param_hint="--limit")
        found[queue] = int(most)
    return found


async def _work(
    agents: list[Agent[Any, Any]], schedules: list[Schedule], at: AgentStore, options: dict[str, Any]
) -> None:
    every = [*agents, *(each.agent for each in schedules)]
    if at.store is None and all(each.store is not None for each in every):
        if at.key is not None:
            raise typer.BadParameter(
                "the agents have a store of their own, and open it themselves; --key goes with --store"
            )
        with value_of():
            made = Worker(agents, schedules=schedules, **options)
        await _until_stopped(made)
        return
    place = _stores.place_of("runs", at.store, new=True)
    async with _stores.unopened_store(place, at.key, at.anchor, new=True) as store:
        for each in every:
            each.store = store
        with value_of():
            made = Worker(agents, schedules=schedules, **options)
        with _stores.opening("runs", place):
            await _until_stopped(made)


async def _until_stopped(worker: Worker) -> None:
    async def listen(*, task_status: TaskStatus[None]) -> None:
        stopping = False
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            async for number in signals:
                if stopping:
                    os._exit(128 + number)
                stopping = True
                worker.stop()
                aside("Stopping: runs are left before their next step. A second signal ends the process at once.")

    with ungrouped():
        async with anyio.create_task_group() as group:
            await group.start(listen)
            aside(f"Working: {', '.join(sorted({each.strategy.name for each in worker.agents}))}.")
            await worker.run()
            group.cancel_scope.cancel()
    aside("Stopped.")
