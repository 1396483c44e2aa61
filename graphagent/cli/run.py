"""`graphagent run`: a ready-made strategy, or one of the user's own, on a task."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast
from urllib.parse import urlsplit

import anyio
import typer

from graphagent.cli._models import BaseUrl, KeyVariable
from graphagent.cli._options import (
    AGENT_NAME,
    SUBJECTS,
    AnchorPlace,
    Json,
    argument,
    key_option,
    key_shown,
    option,
    owner_option,
    place_option,
)
from graphagent.cli._ready_made import names_beginning
from graphagent.cli._store_place import StorePlace
from graphagent.cli.runs._completion import run_ids
from graphagent.errors import BudgetError, RunError, RunExistsError

if TYPE_CHECKING:
    from graphagent import Agent
    from graphagent.mcp import MCPServer
    from graphagent.run import Question
    from graphagent.store import KeySource

_MAX_TURNS = 100


def _list(wanted: bool) -> None:
    if wanted:
        from graphagent.cli._output import table
        from graphagent.cli._ready_made import ready_made

        table(("strategy", "description"), list(ready_made().items()))
        raise typer.Exit


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The agent that runs the strategy, and where its runs are kept."""

    model: Annotated[
        str,
        typer.Option("--model", metavar="NAME", help="The model, such as gpt-5-mini; or 'offline', as in chat."),
    ] = cast("str", ...)  # makes it a required option
    base_url: BaseUrl = None
    key_variable: KeyVariable = None
    tools: Annotated[
        list[str] | None,
        option(
            "--tool",
            "MODULE:FUNCTION",
            "A function that the model may call: its module or file, and its name. Can be repeated.",
        ),
    ] = None
    servers: Annotated[
        list[str] | None,
        option(
            "--mcp",
            "COMMAND|URL",
            "An MCP server whose tools the model may call: the command that starts it, or its address. Can be repeated.",
        ),
    ] = None
    system_prompt: Annotated[str, option("--system-prompt", "TEXT", "Rules for the model.")] = ""
    criteria: Annotated[
        str | None, option("--criteria", "TEXT", "The criteria for an answer, for reflect and verify_with_retry.")
    ] = None
    experts: Annotated[
        list[str] | None,
        option("--expert", "NAME=DESCRIPTION", "An expert of route, and the questions it is for. Can be repeated."),
    ] = None
    max_turns: Annotated[
        int, typer.Option("--max-turns", metavar="N", min=1, help="The largest number of model turns.")
    ] = _MAX_TURNS
    store: Annotated[
        StorePlace | None,
        place_option(
            "Keep the run in this file, or in runs.db in this folder, so that it can be resumed; the facts of personal are in the "
            "folder or the database too. Default: the run is not kept, and facts are where graphagent chat has them"
        ),
    ] = None
    key: Annotated[str | None, key_option("Encrypt the store and the facts")] = None
    anchor: AnchorPlace = None
    owner: Annotated[str, owner_option("For whom it runs.")] = ""

    @asynccontextmanager
    async def agent(self, strategy: str, *, new: bool) -> AsyncGenerator[Agent[Any, Any]]:
        """Make the agent, and close its model and its stores at the end. With `new`, a store that does not exist is created.

        Raises:
            BadParameter: an option is wrong, or does not fit the others.
        """
        from graphagent import Agent
        from graphagent.cli._models import model_of
        from graphagent.cli._output import aside
        from graphagent.cli._ready_made import ready_made, strategy_named
        from graphagent.cli._stores import key_source, names_folder, open_memory, open_store
        from graphagent.cli._user_code import strategy_at, tool_at
        from graphagent.cli.offline import STAND_IN, OfflineModel
        from graphagent.memory import AgentMemory

        named = ready_made()
        if strategy not in named and ":" not in strategy and not strategy.endswith(".py"):
            raise typer.BadParameter(
                f"there is no ready-made strategy {strategy!r}; there are {', '.join(named)}. For your own strategy, write "
                f"MODULE:NAME or FILE.py:NAME",
                param_hint="STRATEGY",
            )
        if strategy in named:
            made = strategy_named(strategy, criteria=self.criteria, experts=self.experts or ())
        else:
            made = strategy_at(strategy)
        tools = [*map(tool_at, self.tools or ()), *starmap(_server, enumerate(self.servers or (), 1))]
        model = model_of(self.model, self.base_url, self.key_variable)
        place = self.store
        key: KeySource | None = self.key
        if key is not None and not (place is not None and place.is_server):
            key = key_source(key, new=place is not None and not place.path.exists())
        async with AsyncExitStack() as stack:
            if not isinstance(model, OfflineModel):
                await stack.enter_async_context(model)
            elif any(element.asks_model for _, element in made.walk()):
                aside(STAND_IN)
            store = None
            if place is not None:
                store = await stack.enter_async_context(open_store("runs", place, key, self.anchor, new=new))
            agent = Agent(
                made, model=model, tools=tools, system_prompt=self.system_prompt, store=store, max_turns=self.max_turns
            )
            if any(AgentMemory in element.needs for _, element in made.walk()):
                has_facts = place is not None and (place.is_server or names_folder(place.path))
                provider = open_memory(place if has_facts else None, key, self.anchor)
                agent.install(
                    AgentMemory,
                    provider=await stack.enter_async_context(provider),
                    agent_name=AGENT_NAME,
                    subjects=SUBJECTS,
                )
            yield await stack.enter_async_context(agent)

    def command(self, strategy: str, run_id: str) -> str:
        """Return the command that resumes a run. It does not contain a key."""
        return _command(
            "run",
            strategy,
            ("--resume", run_id),
            *self._stored,
            ("--model", self.model),
            ("--base-url", self.base_url),
            ("--api-key-env", self.key_variable),
            *(("--tool", tool) for tool in self.tools or ()),
            *(("--mcp", server) for server in self.servers or ()),
            ("--criteria", self.criteria),
            *(("--expert", expert) for expert in self.experts or ()),
            ("--system-prompt", self.system_prompt),
            ("--max-turns", None if self.max_turns == _MAX_TURNS else self.max_turns),
        )

    def showing(self, run_id: str) -> str:
        """Return the command that shows a run. It does not contain a key."""
        return _command("runs", "show", run_id, *self._stored)

    @property
    def _stored(self) -> list[tuple[str, object]]:
        """The options that say where runs are. They do not contain a key."""
        return [
            ("--store", self.store),
            ("--key", key_shown(self.key)),
            ("--anchor", self.anchor),
            ("--owner", self.owner),
        ]


def _command(*parts: str | tuple[str, object]) -> str:
    """Return a command of words and options; options without a value are left out."""
    words = ["graphagent"]
    for part in parts:
        if isinstance(part, str):
            words.append(part)
        elif part[1]:
            words += [part[0], str(part[1])]
    return shlex.join(words)


def _server(number: int, place: str) -> MCPServer:
    """Return the MCP server at an address, or the one that a command starts. Each has a name of its own."""
    from graphagent.mcp import MCPServer, OAuth

    try:
        if place.startswith(("http://", "https://")):
            parts = urlsplit(place)
            auth = None if "@" in parts.netloc else OAuth()
            return MCPServer.http(place, name=f"{parts.hostname}-{number}", auth=auth)
        words = shlex.split(place)
    except ValueError as error:
        raise typer.BadParameter(f"this is neither a command nor an address: {error}", param_hint="--mcp") from None
    if not words:
        raise typer.BadParameter("the command of the server is empty", param_hint="--mcp")
    return MCPServer.stdio(*words, name=f"{Path(words[0]).name}-{number}")


def run(
    strategy: Annotated[
        str,
        argument(
            "STRATEGY",
            "A ready-made strategy (see --list), or MODULE:NAME of one of your own.",
            autocompletion=names_beginning,
        ),
    ],
    task: Annotated[
        str | None, argument("TASK", "The task. Default: you are asked for it, or it is read from standard input.")
    ] = None,
    *,
    options: AgentOptions,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Show the text as it is written, and the tool calls. Default: on a terminal.",
            show_default=False,
        ),
    ] = None,
    run_id: Annotated[str | None, option("--run-id", "ID", "The id of the run.")] = None,
    resume: Annotated[
        str | None, option("--resume", "RUN", "Resume this run of the store.", autocompletion=run_ids)
    ] = None,
    as_json: Json = False,
    listed: Annotated[
        bool,
        typer.Option("--list", callback=_list, is_eager=True, help="List the ready-made strategies."),
    ] = False,
) -> None:
    """Run a ready-made strategy, or one of your own, on a task. Ctrl-C stops it; with --store it can be resumed."""
    if resume is not None and (options.store is None or task is not None):
        raise typer.BadParameter(
            "to resume a run, name its store, and no task: --resume RUN --store PATH", param_hint="--resume"
        )
    streams = not as_json and (sys.stdout.isatty() if stream is None else stream)
    anyio.run(partial(_main, strategy, task, options, streams=streams, run_id=run_id, resume=resume, as_json=as_json))


async def _main(
    strategy: str,
    task: str | None,
    options: AgentOptions,
    *,
    streams: bool,
    run_id: str | None,
    resume: str | None,
    as_json: bool,
) -> None:  # long because it is one line of events: run, answer, fail, report, leave
    from graphagent.cli._execution import attended, report
    from graphagent.cli._narration import Narration
    from graphagent.cli._output import aside, fail
    from graphagent.cli._prompts import STOPPED
    from graphagent.cli.runs._progress import live_progress
    from graphagent.cli.runs._target import run_named, taken
    from graphagent.nodes import Rejected

    async with options.agent(strategy, new=resume is None) as agent:
        kept = agent.store is not None
        if agent.store is not None and resume is not None:
            work = partial(agent.resume, await run_named(agent.store, options.owner, resume), owner=options.owner)
        else:
            given = _task(agent, strategy) if task is None else _checked(agent, strategy, task)
            work = partial(agent.run, given, owner=options.owner, run_id=run_id)
        display = Narration(agent) if streams else live_progress(agent)
        said, shown = "", set[str]()
        left: typer.Exit | None = None
        try:
            result, stopped = await attended(agent, work, display, pause=kept)
            while result.status == "waiting" and not stopped and agent.last is not None:
                said = display.said if isinstance(display, Narration) else ""
                try:
                    answers = _answers(result.questions, said, shown)
                except typer.Exit as leaving:
                    left = leaving
                    break
                if answers is None:
                    break
                agent.last.answer(answers=answers)
                result, stopped = await attended(agent, agent.last.finish, display, pause=kept)
        except RunExistsError as error:
            resume, show = options.command(strategy, error.run_id), options.showing(error.run_id)
            raise await taken(agent, options.owner, error.run_id, resume=resume, answer=resume, show=show) from None
        except RunError as error:
            if kept and agent.last is not None:
                spent = isinstance(error, BudgetError) and error.budget == "turns" and not error.where
                more = replace(options, max_turns=2 * options.max_turns) if spent else options
                error.add_note(f"Resume it with: {more.command(strategy, agent.last.run_id)}")
            raise
    resumed_by = options.command(strategy, result.run_id) if kept else ""
    said = display.said if isinstance(display, Narration) else ""
    output: object = result.output if result.done else None
    rejected = cast("Rejected", output) if isinstance(output, Rejected) else None
    answer = rejected.value if rejected is not None else None
    report(result, as_json=as_json, to_answer=resumed_by, to_resume=resumed_by, said=said, answer=answer, shown=shown)
    if stopped and not result.done:
        raise typer.Exit(STOPPED)
    if left is not None:
        if not kept:
            aside("The run was not stored, so it ends here; with --store PATH it can be continued.")
        raise left
    if result.status == "waiting" and not kept:
        fail("the run waits for an answer, and ends here, since it is not stored; pass --store PATH")
    if rejected is not None:
        fail(f"no answer passed the check: {rejected.feedback}")


def _checked(agent: Agent[Any, Any], strategy: str, task: str) -> str:
    """Return a task.

    Raises:
        BadParameter: The task is empty, or the strategy does not take text.
    """
    from graphagent.graph._types import is_a, show

    if not task.strip():
        raise typer.BadParameter("the task is empty; give a task", param_hint="TASK")
    takes = agent.strategy.input_type
    if not is_a(task, takes):
        raise typer.BadParameter(f"{strategy} takes {show(takes)}, and a task is text", param_hint="TASK")
    return task


def _task(agent: Agent[Any, Any], strategy: str) -> str:
    """Return the typed task, or all of standard input.

    Raises:
        Exit: The person left.
    """
    task = _line() if sys.stdin.isatty() else sys.stdin.read().strip()
    if task is None:
        raise typer.Exit
    return _checked(agent, strategy, task)


def _line() -> str | None:
    """Return the next typed message or line of standard input; None at its end, or after Ctrl-D.

    Raises:
        Exit: The person pressed Ctrl-C.
    """
    from graphagent.cli._keyboard import typed
    from graphagent.cli._output import aside
    from graphagent.cli._prompts import interruptible

    if sys.stdin.isatty():
        with interruptible(), closing(typed()) as messages:
            return next(messages, None)
    for line in sys.stdin:
        if line.strip():
            aside(f"> {line.strip()}")
            return line.strip()
    return None


def _answers(questions: Sequence[Question], said: str, shown: set[str]) -> dict[str, object] | None:
    """Return the person's answers by the ids of the questions, or None without any.

    Args:
        questions: The open questions.
        said: The text shown last; a question with the same text is not shown again.
        shown: Collects the ids of the questions that the person has seen.

    Raises:
        Exit: the person left.
    """
    from graphagent.cli._output import say
    from graphagent.cli._sign_in import place_of, redirect_of
    from graphagent.cli.runs._prompt_answers import ask_all, print_question, read_answer
    from graphagent.graph._types import fits, is_a

    answers: dict[str, object] = {}
    for question in questions:
        shown.add(question.id)
        is_text = question.kind == "question" and fits(str, question.type)
        place = place_of(question) if sys.stdin.isatty() else None
        if place is not None:
            answers[question.id] = redirect_of(question, place)
            if answers[question.id] is None:
                raise typer.Exit
            continue
        if sys.stdin.isatty() and not is_text:
            answers.update(ask_all([question]))
            continue
        if not is_text:
            print_question(question)
        elif question.question != said:
            say(question.question)
        line = _line()
        if line is None and not (question.kind == "question" and is_a(None, question.type)):
            if sys.stdin.isatty():
                raise typer.Exit
            return None
        answers[question.id] = line if line is None or is_text else read_answer(question, line)
    return answers
