"""`graphagent notes`: its commands, in the order in which the help shows them."""

from __future__ import annotations

import typer

from graphagent.cli._options import expand_options
from graphagent.cli.notes import browse, edit, maintain, show

notes = typer.Typer(no_args_is_help=True, help="Save, find, edit, forget, export and import notes.")

for _name, _command, _example in (
    ("remember", edit.remember, 'remember "We chose PostgreSQL as our database."'),
    ("recall", show.recall, 'recall "Which database do we use?"'),
    ("tree", show.tree, "tree /project --depth 2"),
    ("list", show.list_notes, "list --scope /project --category decision --since 7d"),
    ("show", show.show, "show 4f2a91c0"),
    ("browse", browse.browse, "browse --store data"),
    ("edit", edit.edit, 'edit 4f2a91c0 --content "We chose SQLite."'),
    ("forget", edit.forget, "forget --scope /project/old --older-than 30d"),
    ("reset", edit.reset, "reset /project/old"),
    ("export", maintain.export, "export --out notes.jsonl"),
    ("import", maintain.import_notes, "import memory.jsonl --from mcp --scope /people"),
    ("reembed", maintain.reembed, "reembed --embedder static"),
    ("reindex", maintain.reindex, "reindex"),
):
    notes.command(_name, epilog=f"Example: graphagent notes {_example}")(expand_options(_command))
