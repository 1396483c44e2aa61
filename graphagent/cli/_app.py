"""The commands, each with its options and its help. What they do stands in files of its own and is imported when needed."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from graphagent.cli._options import Key, Memory, Out, Owner
from graphagent.cli.facts import facts
from graphagent.cli.notes.commands import notes
from graphagent.cli.runs.commands import runs

app = typer.Typer(
    name="graphagent",
    help="Agents declared as typed strategy graphs, with memory that can be trusted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Begin with: graphagent demo",
)
keys = typer.Typer(no_args_is_help=True, help="Make keys that seal a memory.")
app.add_typer(facts, name="facts")
app.add_typer(notes, name="notes")
app.add_typer(runs, name="runs")
app.add_typer(keys, name="keys")


class Picture(Enum):
    """What a strategy is drawn as."""

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
        typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Show the version and leave."),
    ] = False,
) -> None:
    """Agents declared as typed strategy graphs, with memory that can be trusted."""


@app.command(
    short_help="Talk to an assistant that remembers.",
    epilog="Example: graphagent chat --key env:GRAPHAGENT_KEY --model gpt-5-mini",
)
def chat(
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="The model to talk to; 'offline' needs no key and no network.")
    ] = "offline",
    base_url: Annotated[
        str | None,
        typer.Option(
            "--base-url",
            metavar="URL",
            help="The server, such as http://localhost:11434/v1 for Ollama; OpenAI's by default, with OPENAI_API_KEY.",
            show_default=False,
        ),
    ] = None,
    key_variable: Annotated[
        str | None,
        typer.Option(
            "--api-key-env", metavar="NAME", show_default=False,
            help="The environment variable that holds that server's key; a key for OpenAI is never sent elsewhere.",
        ),
    ] = None,
    memory: Memory = None,
    key: Key = None,
    owner: Owner = "",
    script: Annotated[
        Path | None,
        typer.Option(
            "--script", metavar="FILE", help="Say the lines of a file instead; those that begin with # are left out.",
            show_default=False,
        ),
    ] = None,
    show_memory: Annotated[
        bool, typer.Option("--show-memory", metavar="", help="Show the facts as the model is sent them, word for word.")
    ] = False,
) -> None:  # fmt: skip
    """Talk to an assistant that remembers: what it learns about you today, it knows tomorrow."""
    from graphagent.cli.chat import talk

    talk(model, base_url, key_variable, memory, key, owner, script, show_memory=show_memory)


@app.command(epilog="Example: graphagent draw graphagent_strategies:react --format svg --out react.svg")
def draw(
    target: Annotated[
        str,
        typer.Argument(metavar="MODULE:STRATEGY", help="A module or a file, and what in it is, or gives, a strategy."),
    ],
    form: Annotated[
        Picture | None,
        typer.Option(
            "--format",
            help="What to draw; by default what FILE ends with, else Mermaid.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="A new or existing file: .svg, .mmd, .mermaid, .md or .txt; else standard output.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Draw a strategy."""
    from graphagent.cli._user_code import strategy_at
    from graphagent.cli.draw import form_of, write

    drawn = form_of(form.value if form is not None else None, out, target)
    strategy = strategy_at(target)
    write(strategy.to_svg() if drawn == "svg" else strategy.to_mermaid(), out)


@app.command(short_help="See it all in seconds, with no key and no network.", epilog="Example: graphagent demo")
def demo() -> None:
    """See it all in seconds: a talk, a sealed memory, another process that knows, refusals, forgetting."""
    from graphagent.cli.demo import show

    show()


@keys.command("new", epilog="Example: graphagent keys new --out ~/.graphagent-key")
def new(
    out: Out = None,
) -> None:
    """Make a key. Keep it safe: what is sealed with it cannot be read without it."""
    from graphagent.cli._output import aside
    from graphagent.cli._private_files import write_private
    from graphagent.store import new_key

    if out is None:
        print(new_key())
        return
    out = out.expanduser()
    write_private(out, new_key() + "\n")
    aside(f"A key stands in {out}. Use it with --key file:{out}, and keep a copy elsewhere.")
