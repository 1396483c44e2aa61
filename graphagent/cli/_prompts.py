"""Questions to the person at the terminal. Ctrl-D leaves a question, and a single Ctrl-C ends the command, as everywhere else."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager

import typer

STOPPED = 130
"""The exit code of a command stopped with Ctrl-C."""


def heed_interrupts() -> None:
    """Make Ctrl-C work for a person at a terminal, even if the command was started with the signal ignored."""
    # A background job of a script also inherits the ignored signal and must keep it; its standard input is not a terminal.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and sys.stdin.isatty():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ask(text: str, *, optional: bool = False) -> str:
    """Return the typed text. Unless the answer is `optional`, the person is asked again until they type something.

    Raises:
        Exit: The person left. The exit code is 0 after Ctrl-D, 130 after Ctrl-C.
    """
    try:
        with interruptible():
            default = "" if optional else None
            return str(typer.prompt(text, default, prompt_suffix="> ", show_default=False, err=True))
    except typer.Abort:
        print(file=sys.stderr)
        raise typer.Exit from None


def ask_unseen(text: str, *, twice: bool) -> str:
    """Return text typed without showing it. With `twice`, the person types it again to be sure.

    Raises:
        Exit: The person left. The exit code is 0 after Ctrl-D, 130 after Ctrl-C.
    """
    try:
        with interruptible():
            again = "The same again" if twice else False
            return str(typer.prompt(text, hide_input=True, confirmation_prompt=again, prompt_suffix="> ", err=True))
    except typer.Abort:
        print(file=sys.stderr)
        raise typer.Exit from None


def confirm(text: str) -> None:
    """Ask a person to confirm.

    Raises:
        Exit: The person pressed Ctrl-C; the exit code is 130.
        Abort: The person said no, or the input ended.
    """
    with interruptible():
        typer.confirm(text, abort=True)


def confirm_by_typing(word: str) -> None:
    """Ask the person to type a word before something that cannot be undone.

    Raises:
        Exit: The person pressed Ctrl-C; the exit code is 130.
        Abort: The person typed something else, or the input ended.
    """
    with interruptible():
        if typer.prompt(f"Type {word} to do it", "", prompt_suffix="> ", show_default=False, err=True) != word:
            raise typer.Abort


@contextmanager
def interruptible() -> Generator[None]:
    """Let Ctrl-C end a question asked within the block.

    Raises:
        Exit: The person pressed Ctrl-C; the exit code is 130.
    """
    # An event loop would keep the first Ctrl-C to itself until the prompt has ended.
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except (typer.Abort, KeyboardInterrupt) as error:
        if isinstance(error, typer.Abort) and not isinstance(error.__context__, KeyboardInterrupt):
            raise
        print(file=sys.stderr)
        raise typer.Exit(STOPPED) from None
    finally:
        signal.signal(signal.SIGINT, before)
