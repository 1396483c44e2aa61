"""A progress bar."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from graphagent.cli import _output


@contextmanager
def progress_bar(what: str) -> Generator[Callable[[int, int], None]]:
    """Show a progress bar on standard error, if it is a terminal. Yields a function to call with the number done and the total."""
    console = _output.screen(err=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(_output.shown(what), total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
