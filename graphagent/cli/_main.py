"""The entry point of the command: it prints errors in one line, and sets the exit code."""

from __future__ import annotations

import io
import os
import sys
from importlib.util import find_spec

from graphagent.errors import GraphAgentError, MissingExtraError, RunError


def main() -> None:
    """Execute the command line. The exit code is 0, 1 after a failure, 2 after a usage error, 130 after Ctrl-C."""
    if find_spec("typer") is None or find_spec("rich") is None:
        sys.exit(str(MissingExtraError("the graphagent command", "cli")))
    from graphagent.cli._app import commands
    from graphagent.cli._output import aside, complain, is_plain
    from graphagent.cli._prompts import heed_interrupts

    # Bytes that are not text, and characters that a terminal lacks, must not end the command.
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
    heed_interrupts()
    if is_plain():
        from typer import rich_utils

        rich_utils.COLOR_SYSTEM = None  # for the output of typer: help and usage errors
    try:
        commands()(prog_name="graphagent")  # completion is registered for this name, however the command was started
    except GraphAgentError as error:
        reason: BaseException = error
        while isinstance(reason, RunError) and reason.__cause__ is not None:
            reason = reason.__cause__
        if isinstance(reason, BrokenPipeError):
            _close_quietly()
        elif isinstance(reason, GraphAgentError):
            complain(str(reason))
        else:
            complain(str(error))
        for note in getattr(error, "__notes__", ()):
            aside(note)
        sys.exit(1)


def _close_quietly() -> None:
    """Prevent an error at exit when the reader of the output has closed it, as `| head` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
