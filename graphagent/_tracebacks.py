"""Where an exception was raised, and its text: without values, and without passwords."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from traceback import walk_tb
from types import TracebackType

_MOST = 30
"""How many frames of an exception are named: the last ones."""
_OWN = (f"{Path(__file__).parent}/", *(f"/site-packages/{each}/" for each in ("anyio", "outcome", "trio")), "/asyncio/")
"""Parts of the names of files whose frames are between a node or a tool and whoever executes it."""
_NAMES = r"[\w-]*(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|account[_-]?key|signature)"
_LOGIN = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)([^\s:/?#@'\"]*):[^\s'\"]*@")
"""The user and the password of a URL, which may have any character but blanks and quotation marks."""
_KEY_AS_USER = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s:/?#@'\"]{20,}@")
_SETTING = re.compile(rf"(?i)\b({_NAMES})(\s*=\s*)('(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[^\s;,&'\")}}\]]+)")
"""A setting of a connection string or a query, such as `password=…`."""
_MEMBER = re.compile(rf"(?i)(['\"])({_NAMES})\1(\s*:\s*)(['\"])(?:\\.|(?!\4).)*\4")
"""A member of a mapping, as JSON or Python writes it."""
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w+/=.~-]{8,}")


def error_text(error: Exception) -> str:
    """Return the text of an exception of users' code, whose `__str__` may raise too."""
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 — whatever it raises, the exception that is being handled is this one
        return f"(its text cannot be shown: {type(another).__name__})"


def without_credentials(text: str) -> str:
    """Return a text without the passwords, keys and tokens of URLs, connection strings, mappings and headers in it."""
    text = _LOGIN.sub(r"\1\2:…@", text)
    text = _KEY_AS_USER.sub(r"\1…@", text)
    text = _SETTING.sub(r"\1\2…", text)
    text = _MEMBER.sub(r"\1\2\1\3\4…\4", text)
    return _BEARER.sub(r"\1 …", text)


def traceback_text(error: BaseException) -> str:
    """Return the type of an exception and its frames, and those of its causes: without messages, lines of code and values.

    The frames of whoever calls a node or a tool are left out.
    """
    parts: list[str] = []
    for each, said in _chain(error):
        frames = frames_of(each)
        parts.append("\n".join((f"{said}{type(each).__name__}", *(f"  {frame}" for frame in frames))))
    return "\n".join(parts)


def frames_of(error: BaseException) -> list[str]:
    """Return where an exception passed, such as `shop.py:12 in book`, the place where it was raised last."""
    return [f"{file}:{line} in {function}" for file, line, function in _frames(error.__traceback__)][-_MOST:]


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, int, str]]:
    is_users = False
    for frame, line in walk_tb(trace):
        code = frame.f_code
        is_users = is_users or not any(own in code.co_filename for own in _OWN)
        if is_users:
            yield code.co_filename, line, code.co_qualname


def _chain(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    seen: set[int] = set()
    following: BaseException | None = error
    said = ""
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following, said
        if following.__cause__ is not None:
            following, said = following.__cause__, "from "
        else:
            following = None if following.__suppress_context__ else following.__context__
            said = "while handling "
