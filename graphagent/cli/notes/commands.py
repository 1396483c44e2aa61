"""`graphagent notes`: the commands with their options and their help. What they do is in files of its own."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from graphagent.cli._options import AnyOwner, Json, NotesFile, NotesKey, NotesOwner, Out, ToOwner, Yes

notes = typer.Typer(no_args_is_help=True, help="Keep notes, find them, correct them, forget them, take them along.")


class From(Enum):
    """Whose file is imported."""

    GRAPHAGENT = "graphagent"
    CREWAI = "crewai"
    MEM0 = "mem0"
    MCP = "mcp"


Which = Annotated[str, typer.Argument(metavar="NOTE", help="The id of a note, or its beginning or end.")]
Under = Annotated[
    str | None,
    typer.Option("--scope", metavar="PATH", help="Only this scope, with all below it.", show_default=False),
]
Category = Annotated[
    list[str] | None,
    typer.Option(
        "--category", metavar="NAME", help="Only notes with this category; may be given again.", show_default=False
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--category", metavar="NAME", help="What it is about; may be given again.", show_default=False),
]
Importance = Annotated[
    float | None,
    typer.Option("--importance", metavar="NUMBER", min=0, max=1, help="From 0 to 1.", show_default=False),
]
Sees = Annotated[
    str | None,
    typer.Option(
        "--source", metavar="NAME", help="As this source sees them: with its private notes.", show_default=False
    ),
]
Said = Annotated[
    str | None, typer.Option("--source", metavar="NAME", help="Only notes of this source.", show_default=False)
]
Vectors = Annotated[
    str | None,
    typer.Option(
        "--embedder",
        metavar="EMBEDDER",
        help="Makes vectors: static, local, openai:MODEL or openai:MODEL@BASE_URL. By default static or local, if the notes "
        "already have vectors of it.",
        show_default=False,
    ),
]


@notes.command("remember", epilog='Example: graphagent notes remember "We chose PostgreSQL as our database."')
def remember(
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT…", help="The note; without it, standard input.", show_default=False)
    ] = None,
    store: NotesFile = None,
    key: NotesKey = None,
    owner: NotesOwner = "",
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME", help="Who says it, or where it is from.", show_default=False),
    ] = None,
    scope: Annotated[
        str | None, typer.Option("--scope", metavar="PATH", help="Where to keep it; by default /.", show_default=False)
    ] = None,
    category: Labels = None,
    importance: Importance = None,
    private: Annotated[bool, typer.Option("--private", metavar="", help="Only its source may see it.")] = False,
    each: Annotated[
        bool, typer.Option("--each", metavar="", help="Keep each argument, or each line of standard input, as a note.")
    ] = False,
    embedder: Vectors = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Save a text, or several. They are on disk when the command ends."""
    from graphagent.cli.notes._target import Place
    from graphagent.cli.notes.edit import remember as work

    place = Place(store, key, owner, source, embedder)
    work(place, text or [], scope, category, importance, private=private, each=each, as_json=as_json)


@notes.command("recall", epilog='Example: graphagent notes recall "Which database do we use?"')
def recall(
    query: Annotated[list[str], typer.Argument(metavar="QUERY…", help="A question, or some words.")],
    store: NotesFile = None,
    key: NotesKey = None,
    owner: NotesOwner = "",
    source: Sees = None,
    scope: Under = None,
    category: Category = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most this many, the best.")] = 10,
    detailed: Annotated[
        bool,
        typer.Option("--detailed", metavar="", help="Show each note in full, and what each reason added to its rank."),
    ] = False,
    embedder: Vectors = None,
    as_json: Json = False,
) -> None:
    """Find the notes that fit a question, the best first. Nothing is written."""
    from graphagent.cli.notes._target import Place
    from graphagent.cli.notes.show import show_found

    place = Place(store, key, owner, source, embedder)
    show_found(place, " ".join(query), scope, category, limit, detailed=detailed, as_json=as_json)


@notes.command("tree", epilog="Example: graphagent notes tree /project --depth 2")
def tree(
    scope: Annotated[
        str | None, typer.Argument(metavar="PATH", help="Where to begin; by default at /.", show_default=False)
    ] = None,
    store: NotesFile = None,
    key: NotesKey = None,
    owner: NotesOwner = "",
    source: Sees = None,
    depth: Annotated[
        int | None,
        typer.Option("--depth", metavar="N", min=0, help="How many levels; by default all.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the scopes, and how many notes each has with those below it."""
    from graphagent.cli.notes._target import Place
    from graphagent.cli.notes.show import show_tree

    show_tree(Place(store, key, owner, source), scope, depth, as_json=as_json)


@notes.command("list", epilog="Example: graphagent notes list --scope /project --category decision --since 7d")
def list_notes(
    store: NotesFile = None,
    key: NotesKey = None,
    owner: NotesOwner = "",
    source: Said = None,
    scope: Under = None,
    category: Category = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only what was said, or else saved, then or later: 2026-01-31, 2026-01-31T09:30, or 30d for 30 days ago.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Only what was said, or else saved, then or earlier.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most this many, the newest.")] = 50,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Show the notes, the newest first."""
    from graphagent.cli.notes._target import Place
    from graphagent.cli.notes.show import Listed, show_list

    listed = Listed(scope, tuple(category or ()), since, until, limit)
    show_list(Place(store, key, owner, source), listed, as_json=as_json)


@notes.command("show", epilog="Example: graphagent notes show 4f2a91c0")
def show(
    note: Which,
    store: NotesFile = None,
    key: NotesKey = None,
    owner: NotesOwner = "",
    source: Sees = None,
    as_json: Json = False,
) -> None:
    """Show a whole note: its text, what is known about it, and its earlier versions."""
    from graphagent.cli.notes._target import Place
    from graphagent.cli.notes.show import show_note

    show_note(Place(store, key, owner, source), note, as_json=as_json)


@notes.command("edit", epilog='Example: graphagent notes edit 4f2a91c0 --content "We chose SQLite."')
def edit(
    note: Which,
    store: NotesFile = None,
    key: NotesKey = None,
    owner: NotesOwner = "",
    source: Sees = None,
    content: Annotated[
        str | None,
        typer.Option("--content", metavar="TEXT", help="What it says now; - is standard input.", show_default=False),
    ] = None,
    scope: Annotated[
        str | None, typer.Option("--scope", metavar="PATH", help="Where it belongs.", show_default=False)
    ] = None,
    category: Labels = None,
    importance: Importance = None,
    embedder: Vectors = None,
    as_json: Json = False,
) -> None:
    """Change a note. If you name no change, $VISUAL or $EDITOR opens with its text. The old version stays in its history."""
    from graphagent.cli.notes._target import Place
    from graphagent.cli.notes.edit import edit as work

    work(Place(store, key, owner, source, embedder), note, content, scope, category, importance, as_json=as_json)


@notes.command("forget", epilog="Example: graphagent notes forget --scope /project/old --older-than 30d")
def forget(
    which: Annotated[
        list[str] | None,
        typer.Argument(metavar="NOTE…", help="Ids, or their beginnings or ends.", show_default=False),
    ] = None,
    store: NotesFile = None,
    key: NotesKey = None,
    owner: NotesOwner = "",
    source: Said = None,
    scope: Under = None,
    category: Category = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", help="Only notes saved longer ago than this, such as 30d.", show_default=False),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="Only notes that this run saved.", show_default=False)
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Remove the notes that meet all conditions, for good: text, words, vectors and history are erased from the disk."""
    from graphagent.cli.notes._target import Place
    from graphagent.cli.notes.edit import Choice
    from graphagent.cli.notes.edit import forget as work

    choice = Choice(tuple(which or ()), scope, tuple(category or ()), older_than, source, run)
    work(Place(store, key, owner, source), choice, yes=yes, as_json=as_json)


@notes.command("reset", epilog="Example: graphagent notes reset /project/old")
def reset(
    scope: Annotated[
        str | None, typer.Argument(metavar="PATH", help="With all below it; by default everything.", show_default=False)
    ] = None,
    store: NotesFile = None,
    key: NotesKey = None,
    owner: NotesOwner = "",
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Remove all notes of a scope, or of an owner, for good, private ones included."""
    from graphagent.cli.notes._target import Place
    from graphagent.cli.notes.edit import reset as work

    work(Place(store, key, owner), scope, yes=yes, as_json=as_json)


@notes.command("export", epilog="Example: graphagent notes export --out notes.jsonl")
def export(store: NotesFile = None, key: NotesKey = None, owner: AnyOwner = None, out: Out = None) -> None:
    """Write every note with its history as JSON lines, in plain text."""
    from graphagent.cli.notes._target import Place
    from graphagent.cli.notes.maintain import export as work

    work(Place(store, key, owner), out)


@notes.command("import", epilog="Example: graphagent notes import memory.jsonl --from mcp --scope /people")
def import_notes(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to read; - is standard input.")],
    store: NotesFile = None,
    key: NotesKey = None,
    owner: ToOwner = None,
    origin: Annotated[
        From,
        typer.Option(
            "--from",
            help="Whose file: what `notes export` wrote, crewAI's records, mem0's get_all(), or the file of the MCP memory "
            "server.",
        ),
    ] = From.GRAPHAGENT,
    scope: Annotated[
        str, typer.Option("--scope", metavar="PATH", help="Where the scopes of the notes begin.")
    ] = "/",
    embedder: Vectors = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Read notes from a file. Existing ones are skipped; if a record is invalid, nothing is imported."""
    from graphagent.cli.notes._target import Place
    from graphagent.cli.notes.maintain import import_notes as work

    work(Place(store, key, owner, embedder=embedder), file, origin.value, scope, as_json=as_json)


@notes.command("reembed", epilog="Example: graphagent notes reembed --embedder static")
def reembed(
    store: NotesFile = None,
    key: NotesKey = None,
    owner: AnyOwner = None,
    embedder: Vectors = None,
    as_json: Json = False,
) -> None:
    """Recompute all vectors, and use this embedder from now on. The old ones stay in use until it has finished."""
    from graphagent.cli.notes._target import Place
    from graphagent.cli.notes.maintain import reembed as work

    work(Place(store, key, owner, embedder=embedder), as_json=as_json)


@notes.command("reindex", epilog="Example: graphagent notes reindex")
def reindex(store: NotesFile = None, key: NotesKey = None, as_json: Json = False) -> None:
    """Rebuild the search index of all owners, if `verify` finds it damaged. The notes stay as they are."""
    from graphagent.cli.notes._target import Place
    from graphagent.cli.notes.maintain import reindex as work

    work(Place(store, key), as_json=as_json)


@notes.command("verify", epilog="Example: graphagent notes verify --key env:GRAPHAGENT_KEY")
def verify(store: NotesFile = None, key: NotesKey = None, owner: AnyOwner = None, as_json: Json = False) -> None:
    """Check that every note is sound and can be found."""
    from graphagent.cli.notes._target import Place
    from graphagent.cli.notes.maintain import verify as work

    work(Place(store, key, owner), as_json=as_json)
