"""`graphagent runs`: the commands with their options and their help. What they do stands in files of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphagent.cli._options import AnyOwner, Json, Out, RunsFile, RunsKey, RunsOwner, Yes

runs = typer.Typer(no_args_is_help=True, help="Look at runs, go on with them, answer them, fork them, take them along.")

Which = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run, or its beginning.")]
Newest = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="The id of a run, or its beginning; by default the newest.", show_default=False),
]
TheAgent = Annotated[
    str,
    typer.Option(
        "--agent",
        metavar="MODULE:AGENT",
        help="A module or a file, and what in it is, or gives, the agent. Its own store is used where --store names none.",
    ),
]
Steps = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="MODULE:AGENT",
        help="The agent, where the run has types of steps of your own, or facts. Its own store is used where --store names none.",
        show_default=False,
    ),
]
Changed = Annotated[
    bool,
    typer.Option(
        "--allow-changed", metavar="", help="Go on though the strategy has changed, where its journal still fits."
    ),
]
NewId = Annotated[
    str | None, typer.Option("--run-id", metavar="ID", help="How the new run is called.", show_default=False)
]
State = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help="Only runs that are done, failed, cancelled, paused, waiting, interrupted, damaged or running; may be given again.",
        show_default=False,
    ),
]


@runs.command("list", epilog="Example: graphagent runs list --status waiting")
def list_runs(
    store: RunsFile = None,
    key: RunsKey = None,
    owner: RunsOwner = "",
    status: State = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many, the newest.")] = 50,
    size: Annotated[
        bool, typer.Option("--size", metavar="", help="Show what each takes in the store; all of it is read for that.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the runs, the newest first, with the runs of sub-agents below those that they are parts of."""
    from graphagent.cli.runs.show import show_list

    show_list(store, key, owner, status, limit, size=size, as_json=as_json)


@runs.command("show", epilog="Example: graphagent runs show mail-1 --prompt 2")
def show(
    run: Newest = None,
    store: RunsFile = None,
    key: RunsKey = None,
    owner: RunsOwner = "",
    agent: Steps = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt", metavar="STEP", help="Show exactly what the model was sent in that step.", show_default=False
        ),
    ] = None,
    entries: Annotated[bool, typer.Option("--entries", metavar="", help="Show every entry of its journal.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", metavar="", help="Watch it while another process executes it; then show it.")
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option("--traceback", metavar="", help="Show also the traceback of the error that a run failed with."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a run: what it came to, where in its graph it stands, what it waits for, what was said."""
    from graphagent.cli.runs._target import Place
    from graphagent.cli.runs.show import show_prompt, show_run

    if prompt is not None:
        show_prompt(Place(store, key, owner, agent), run, prompt, as_json=as_json)
    else:
        place = Place(store, key, owner, agent)
        show_run(place, run, entries=entries, follow=follow, traceback=traceback, as_json=as_json)


@runs.command("replay", epilog="Example: graphagent runs replay mail-1 --detailed")
def replay(
    run: Newest = None,
    store: RunsFile = None,
    key: RunsKey = None,
    owner: RunsOwner = "",
    agent: Steps = None,
    detailed: Annotated[
        bool, typer.Option("--detailed", metavar="", help="Show also what the model was sent.")
    ] = False,
) -> None:
    """Print what happened, step by step. Nothing is executed."""
    from graphagent.cli.runs._target import Place
    from graphagent.cli.runs.show import print_transcript

    print_transcript(Place(store, key, owner, agent), run, detailed=detailed)


@runs.command("resume", epilog="Example: graphagent runs resume mail-1 --agent app.py:agent")
def resume(
    agent: TheAgent,
    run: Newest = None,
    store: RunsFile = None,
    key: RunsKey = None,
    owner: RunsOwner = "",
    allow_changed: Changed = False,
    as_json: Json = False,
) -> None:
    """Go on with a run that was paused, broke off or failed. What was done is not done again. Ctrl-C pauses it."""
    from graphagent.cli.runs._target import Place
    from graphagent.cli.runs.execute import go_on

    go_on(Place(store, key, owner, agent), run, allow_changed=allow_changed, as_json=as_json)


@runs.command("answer", epilog="Example: graphagent runs answer mail-1 yes --agent app.py:agent")
def answer(
    run: Which,
    agent: TheAgent,
    answers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ANSWER…",
            help="The answer, as plain text or as JSON; with several questions ID=ANSWER for each. For a tool call: yes, no "
            "with a reason, or other arguments as JSON. Without any, you are asked.",
            show_default=False,
        ),
    ] = None,
    store: RunsFile = None,
    key: RunsKey = None,
    owner: RunsOwner = "",
    allow_changed: Changed = False,
    as_json: Json = False,
) -> None:
    """Answer what a run waits for, and go on with it. Ctrl-C pauses it."""
    from graphagent.cli.runs._target import Place
    from graphagent.cli.runs.execute import give_answers

    give_answers(Place(store, key, owner, agent), run, answers or [], allow_changed=allow_changed, as_json=as_json)


@runs.command("fork", epilog="Example: graphagent runs fork mail-1 --before ask_human --agent app.py:agent")
def fork(
    run: Which,
    agent: TheAgent,
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="NODE", help="Part before the last execution of this node.", show_default=False
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="NODE", help="Part behind the last execution of this node.", show_default=False
        ),
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(
            "--at", metavar="N", help="Part behind this entry of its journal; see show --entries.", show_default=False
        ),
    ] = None,
    run_id: NewId = None,
    store: RunsFile = None,
    key: RunsKey = None,
    owner: RunsOwner = "",
    allow_changed: Changed = False,
    as_json: Json = False,
) -> None:
    """Make another run that begins as one did, and go on with it. The first one stays as it is. Ctrl-C pauses it."""
    from graphagent.cli.runs._target import Place
    from graphagent.cli.runs.execute import fork_run

    if sum(each is not None for each in (before, after, at)) != 1:
        raise typer.BadParameter("say where they part: one of --before NODE, --after NODE and --at N")
    fork_run(
        Place(store, key, owner, agent), run, before=before, after=after, at=at, run_id=run_id,
        allow_changed=allow_changed, as_json=as_json,
    )  # fmt: skip


@runs.command("rerun", epilog="Example: graphagent runs rerun mail-1 --until draft --agent app.py:agent")
def rerun(
    run: Which,
    agent: TheAgent,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="NODE|N",
            help="Use recorded results up to the end of this node, or up to this entry, and live ones from there; by default "
            "recorded ones alone.",
            show_default=False,
        ),
    ] = None,
    run_id: NewId = None,
    store: RunsFile = None,
    key: RunsKey = None,
    owner: RunsOwner = "",
    as_json: Json = False,
) -> None:
    """Execute a run again, as a run of its own, on what was recorded. Ctrl-C pauses it."""
    from graphagent.cli.runs._target import Place
    from graphagent.cli.runs.execute import rerun_run

    rerun_run(Place(store, key, owner, agent), run, until=until, run_id=run_id, as_json=as_json)


@runs.command("diff", epilog="Example: graphagent runs diff mail-1 mail-2")
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="The id of a run, or its beginning.")],
    b: Annotated[str, typer.Argument(metavar="B", help="That of another one.")],
    store: RunsFile = None,
    key: RunsKey = None,
    owner: RunsOwner = "",
    as_json: Json = False,
) -> None:
    """Compare two runs: what they have in common, and what each did then."""
    from graphagent.cli.runs.show import show_diff

    show_diff(store, key, owner, a, b, as_json=as_json)


@runs.command("export", epilog="Example: graphagent runs export --out runs.jsonl")
def export(
    which: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN…", help="The ids of runs, or their beginnings; by default all.", show_default=False
        ),
    ] = None,
    store: RunsFile = None,
    key: RunsKey = None,
    owner: AnyOwner = None,
    out: Out = None,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain", metavar="", help="A line for each run, with values as people write them; not for import."
        ),
    ] = False,
) -> None:
    """Write runs as JSON lines, without loss and in the clear: every entry and every payload."""
    from graphagent.cli.runs.maintain import export_plain, export_runs

    (export_plain if plain else export_runs)(store, key, owner, which or [], out)


@runs.command("import", epilog="Example: graphagent runs import runs.jsonl --store other.db")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What export wrote, or - for standard input.")],
    store: RunsFile = None,
    key: RunsKey = None,
) -> None:
    """Take over runs from a file that export wrote. Runs that are there already are left as they are."""
    from graphagent.cli.runs.maintain import import_runs

    import_runs(store, key, file)


@runs.command("prune", epilog="Example: graphagent runs prune --status done --older-than 30d --keep 100")
def prune(
    which: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN…", help="Only these, by their ids or their beginnings.", show_default=False),
    ] = None,
    store: RunsFile = None,
    key: RunsKey = None,
    owner: RunsOwner = "",
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="TIME",
            help="Only runs in which nothing happened for so long: 30d, 12h, 90m.",
            show_default=False,
        ),
    ] = None,
    status: State = None,
    keep: Annotated[
        int,
        typer.Option("--keep", metavar="N", min=0, help="So many stay in any case, the newest.", show_default=False),
    ] = 0,
    yes: Yes = False,
) -> None:
    """Remove runs for good, with those of their sub-agents. What a process executes stays; forks stay whole."""
    from graphagent.cli.runs.maintain import prune_runs

    prune_runs(store, key, owner, which or [], older_than, status, keep, yes=yes)


@runs.command("forget", epilog="Example: graphagent runs forget --owner ada")
def forget(
    store: RunsFile = None,
    key: RunsKey = None,
    owner: RunsOwner = "",
    yes: Yes = False,
) -> None:
    """Remove all runs of an owner for good, those that are being executed too."""
    from graphagent.cli.runs.maintain import forget_runs

    forget_runs(store, key, owner, yes=yes)
