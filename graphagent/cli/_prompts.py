"""Questions to the person at the terminal. Ctrl-D leaves them, and one Ctrl-C ends the command, as it does anywhere else."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager

import typer

STOPPED = 130
"""The exit code of what was stopped with Ctrl-C."""


def heed_interrupts() -> None:
    """Make Ctrl-C work for a person at a terminal, even if the command was started with the signal ignored."""
    # A background job of a script inherits an ignored signal, too, and must keep it: its standard input is no terminal.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and sys.stdin.isatty():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ask(text: str, *, optional: bool = False) -> str:
    """Return what a person types. Unless the answer is `optional`, they are asked again until they type something.

    Raises:
        Exit: they left: the exit code is 0 after Ctrl-D, 130 after Ctrl-C.
    """
    try:
        with interruptible():
            default = "" if optional else None
            return str(typer.prompt(text, default, prompt_suffix="> ", show_default=False, err=True))
    except typer.Abort:
        print(file=sys.stderr)
        raise typer.Exit from None


def ask_unseen(text: str, *, twice: bool) -> str:
    """Return what a person types without it being shown; to be sure of it, they may be asked twice.

    Raises:
        Exit: they left: the exit code is 0 after Ctrl-D, 130 after Ctrl-C.
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
        Exit: they pressed Ctrl-C; the exit code is 130.
        Abort: they said no, or the input ended.
    """
    with interruptible():
        typer.confirm(text, abort=True)


def confirm_by_typing(word: str) -> None:
    """Ask a person to type a word, for what cannot be undone.

    Raises:
        Exit: they pressed Ctrl-C; the exit code is 130.
        Abort: they typed something else, or the input ended.
    """
    with interruptible():
        if typer.prompt(f"Type {word} to do it", "", prompt_suffix="> ", show_default=False, err=True) != word:
            raise typer.Abort


@contextmanager
def interruptible() -> Generator[None]:
    """Let Ctrl-C end what a person is asked within the block.

    Raises:
        Exit: they pressed it; the exit code is 130.
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
