"""Messages typed at a terminal. A paste is one message, even if it has several lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module

_BEGIN, _END = "\x1b[200~", "\x1b[201~"
"""The sequences that a terminal sends before and after a paste, once asked to mark pastes."""
_EDITED = {_BEGIN: "\x02", _END: "\x03"}
"""The text that libedit inserts instead, since it does not know these sequences."""


def typed() -> Generator[str]:
    """Yield the messages, without blank ones, until the person leaves with Ctrl-D.

    Raises:
        KeyboardInterrupt: The person pressed Ctrl-C.
    """
    with _marked_pastes() as (begin, end):
        while True:
            try:
                message = input("> ")
                while message.count(begin) > message.count(end):
                    message += f"\n{input()}"
            except EOFError:
                print()
                return
            message = message.replace(begin, "").replace(end, "").strip()
            if message:
                yield message


@contextmanager
def _marked_pastes() -> Generator[tuple[str, str]]:
    """Ask the terminal to mark pastes. Yield the marks that input() then returns before and after a paste.

    GNU readline returns a paste as one line with line breaks in it. Without it, a paste arrives line by line.
    """
    begin, end = _BEGIN, _END
    try:
        readline = import_module("readline")  # with it, the line can be edited
    except ImportError:
        pass
    else:
        if "libedit" not in (readline.__doc__ or ""):
            readline.parse_and_bind("set enable-bracketed-paste on")
            yield begin, end
            return
        for marker, letter in _EDITED.items():
            shown = marker.replace("\x1b", r"\e")
            readline.parse_and_bind(
                rf'bind -s "{shown}" "\026\{ord(letter):03o}"'
            )  # after Ctrl-V it is inserted as a letter
        begin, end = _EDITED.values()
    asked = os.name == "posix" and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()
    if asked:
        print("\x1b[?2004h", end="", flush=True)
    try:
        yield begin, end
    finally:
        if asked:
            print("\x1b[?2004l", end="", flush=True)
