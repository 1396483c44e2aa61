"""`graphagent runs`: its commands, in the order in which the help shows them."""

from __future__ import annotations

import typer

from graphagent.cli._options import expand_options
from graphagent.cli.runs import execute, maintain, show

runs = typer.Typer(no_args_is_help=True, help="Inspect, resume, answer, pause, end, fork, export and remove runs.")

for _name, _command, _example in (
    ("list", show.list_, "list --status waiting"),
    ("threads", show.threads, "threads --owner ada"),
    ("questions", show.questions, "questions --owner ada"),
    ("show", show.show, "show mail-1 --prompt 2"),
    ("replay", show.replay, "replay mail-1 --detailed"),
    ("resume", execute.resume, "resume mail-1 --agent app.py:agent"),
    ("answer", execute.answer, "answer mail-1 yes --agent app.py:agent"),
    ("pause", execute.pause, "pause mail-1 --reason 'look at it first'"),
    ("end", execute.end, "end mail-1 --reason 'no longer needed'"),
    ("fork", execute.fork, "fork mail-1 --before ask_human --agent app.py:agent"),
    ("rerun", execute.rerun, "rerun mail-1 --until draft --agent app.py:agent"),
    ("diff", show.diff, "diff mail-1 mail-2"),
    ("export", maintain.export, "export --out runs.jsonl"),
    ("import", maintain.import_, "import runs.jsonl --store other.db"),
    ("prune", maintain.prune, "prune --status done --older-than 30d --keep 100"),
    ("clear-cache", maintain.clear_cache, "clear-cache --owner ada"),
    ("forget", maintain.forget, "forget --owner ada"),
):
    runs.command(_name, epilog=f"Example: graphagent runs {_example}")(expand_options(_command))
