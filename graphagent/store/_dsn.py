"""The names of PostgreSQL databases, as text: whether a text is one, whether it has a password, which schema it means."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

_DSN = re.compile(
    r"\s*(postgres(ql)?://|env:|(service|host|hostaddr|port|dbname|user|password|passfile|ssl\w+)\s*=)", re.IGNORECASE
)
_PASSWORD = re.compile(
    r"(?:^|(?<=\s))(?:ssl)?password\s*=\s*(?!(?:'')?(?:\s|$))(?:'(?:\\.|[^'\\])*'?|\S*)\s*", re.IGNORECASE
)
"""A password and its name; libpq takes an empty one as none."""


class Named(NamedTuple):
    """A database, and the schema in it that has the store."""

    dsn: str
    schema: str


def is_dsn(text: str) -> bool:
    """Return whether a text names a PostgreSQL database, in a form of libpq, or as `env:NAME`, the variable that has its DSN."""
    return (_DSN.match(text) or _PASSWORD.search(text)) is not None


def without_password(dsn: str) -> str:
    """Return a DSN without its password; one that has none, or an empty one, is returned as it is."""
    if "://" not in dsn:
        return dsn if dsn.startswith("env:") else _PASSWORD.sub("", dsn)
    scheme, _, rest = dsn.partition("://")
    main, mark, query = rest.partition("?")
    if "@" in query and "/" not in main and ":" in main:  # a password with a question mark, which should be %3F
        return f"{scheme}://…"
    login, at, place = main.rpartition("@")
    user, _, password = login.partition(":")
    given = [each.partition("=") for each in query.split("&")]
    kept = ["".join(each) for each in given if each[0] not in ("password", "sslpassword") or not each[2]]
    return f"{scheme}://{user if password else login}{at}{place}{mark if kept or not query else ''}{'&'.join(kept)}"


def named_database(text: str) -> Named:
    """Return the database that a text names, and its schema, of which `?schema=NAME` at its end says which one it is."""
    main, mark, query = text.partition("?")
    given = query.split("&")
    schemas = [each.partition("=")[2] for each in given if each.startswith("schema=")]
    if not schemas:
        return Named(text, "graphagent")
    kept = "&".join(each for each in given if not each.startswith("schema="))
    return Named(f"{main}{mark if kept else ''}{kept}", unquote(schemas[-1]))
