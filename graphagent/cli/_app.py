"""The command line: its groups, and the commands that are not in a group."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperArgument

from graphagent.cli._models import BaseUrl, KeyVariable
from graphagent.cli._options import argument, expand_options, flag, option, owner_option
from graphagent.cli._ready_made import names_beginning
from graphagent.cli.anchor import anchor
from graphagent.cli.facts import Memory, facts
from graphagent.cli.forget import forget
from graphagent.cli.inspect import inspect
from graphagent.cli.keys import keys
from graphagent.cli.mcp import mcp
from graphagent.cli.notes.commands import notes
from graphagent.cli.run import run
from graphagent.cli.runs.commands import runs
from graphagent.cli.show import show
from graphagent.cli.store import back_up, put_back, store, verify
from graphagent.cli.worker import worker

app = typer.Typer(
    name="graphagent",
    help="Agents declared as typed strategy graphs, with memory that can be trusted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Begin with: graphagent demo",
)
app.add_typer(facts, name="facts")
app.add_typer(notes, name="notes")
app.add_typer(runs, name="runs")
app.add_typer(keys, name="keys")
app.add_typer(store, name="store")
app.add_typer(anchor, name="anchor")


class Picture(Enum):
    """The format of a drawing."""

    MERMAID = "mermaid"
    SVG = "svg"


def _version(wanted: bool) -> None:
    if wanted:
        from graphagent import __version__

        print(f"graphagent {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Agents declared as typed strategy graphs, with memory that can be trusted."""


@app.command(
    short_help="Chat with an assistant that remembers.",
    epilog="Example: graphagent chat --key env:GRAPHAGENT_KEY --model gpt-5-mini",
)
@expand_options
def chat(
    *,
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="The model; 'offline' needs no key and no network.")
    ] = "offline",
    base_url: BaseUrl = None,
    key_variable: KeyVariable = None,
    memory: Memory,
    owner: Annotated[str, owner_option("Whose facts: each owner has a separate memory.")] = "",
    script: Annotated[
        Path | None, option("--script", "FILE", "Take your lines from a file; lines that begin with # are skipped.")
    ] = None,
    thread: Annotated[
        str | None,
        option(
            "--thread",
            "NAME",
            "Keep the conversation under this name, in conversations.db in the folder of the store, and continue it next time.",
        ),
    ] = None,
    show_memory: Annotated[
        bool, flag("--show-memory", text="Show the exact block of facts that is sent to the model.")
    ] = False,
) -> None:
    """Chat with an assistant that remembers: what it learns about you today, it knows tomorrow."""
    from graphagent.cli._models import model_of
    from graphagent.cli.chat import converse

    converse(memory, model_of(model, base_url, key_variable), owner, script, thread=thread, show_memory=show_memory)


app.command(
    "show",
    short_help="Show what a store or a folder holds.",
    epilog="Example: graphagent show data --key env:GRAPHAGENT_KEY",
)(show)
app.command(
    "backup",
    short_help="Back up a store, or a folder with stores.",
    epilog="Example: graphagent backup notes.db ~/backups/notes.db",
)(back_up)
app.command(
    "restore",
    short_help="Put a backup back.",
    epilog="Example: graphagent restore ~/backups/notes.db notes.db --replace",
)(put_back)
app.command(
    "verify",
    short_help="Check that no stored data is damaged.",
    epilog="Example: graphagent verify notes.db --key env:GRAPHAGENT_KEY",
)(verify)
app.command(
    "forget",
    short_help="Forget an owner, or facts and notes with the data that they have reached.",
    epilog="Example: graphagent forget --all --owner ada",
)(expand_options(forget))


app.command(
    "run",
    short_help="Run a ready-made strategy, or one of your own.",
    epilog='Example: graphagent run react "What is 6 times 7?" --model gpt-5-mini --tool tools.py:multiply',
)(expand_options(run))
app.command(
    "worker",
    short_help="Execute submitted runs.",
    epilog="Example: graphagent worker app.py:agents --store runs.db --concurrency 20",
)(expand_options(worker))

app.command(
    "inspect",
    short_help="Look at runs in a browser, or write one into a file.",
    epilog="Example: graphagent inspect --store runs.db --open",
)(inspect)
app.command(
    "mcp",
    short_help="Serve a memory to assistants, editors and agents.",
    epilog="Example: graphagent mcp --owner ada --scope /project/alpha",
)(mcp)


@app.command(epilog="Example: graphagent draw react --format svg --out react.svg")
def draw(
    target: Annotated[
        str,
        argument(
            "STRATEGY",
            "A ready-made strategy, or MODULE:NAME: a module or file, and the name of a strategy in it, or of a function that "
            "returns one.",
            autocompletion=names_beginning,
        ),
    ],
    form: Annotated[
        Picture | None,
        typer.Option(
            "--format", help="The format. Default: that of the file name, or else Mermaid.", show_default=False
        ),
    ] = None,
    experts: Annotated[
        list[str] | None,
        option("--expert", "NAME=DESCRIPTION", "An expert of route. Can be repeated. Default: two examples."),
    ] = None,
    out: Annotated[
        Path | None, option("--out", "FILE", "A file: .svg, .mmd, .mermaid, .md or .txt. Default: standard output.")
    ] = None,
) -> None:
    """Draw a strategy."""
    from graphagent.cli._ready_made import EXAMPLES, ready_made, strategy_named
    from graphagent.cli._user_code import strategy_at
    from graphagent.cli.draw import form_of, write

    drawn = form_of(form.value if form is not None else None, out, target)
    if target in ready_made():
        strategy = strategy_named(target, experts=experts or (EXAMPLES if target == "route" else ()))
    elif experts:
        raise typer.BadParameter(f"--expert is for route, not for {target}", param_hint="--expert")
    else:
        strategy = strategy_at(target)
    write(strategy.to_svg() if drawn == "svg" else strategy.to_mermaid(), out)


@app.command(
    short_help="See everything in seconds, without a key or a network.", epilog="Example: graphagent demo"
)  # fmt: skip
def demo() -> None:
    """See everything in seconds: a chat, an encrypted memory, another process that knows it, refusals, forgetting."""
    from graphagent.cli.demo import show

    show()


def commands() -> Any:
    """Return all commands, ready to be called. Their help names no type for arguments and options without a value."""
    root = typer.main.get_command(app)
    left: list[Any] = [root]
    while left:
        command = left.pop()
        left += getattr(command, "commands", {}).values()
        for param in command.get_params(typer.Context(command)):
            if isinstance(param, TyperArgument):
                vars(param)["display_type_rich"] = _no_type
            elif param.is_flag:
                param.metavar = ""
    return root


def _no_type(ctx: typer.Context) -> None:
    """Return how the help describes the type of a value: not at all."""
