"""Where a database is: reading a DSN, and keeping its password out of every message."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from graphagent.errors import StoreError

_FORMS = "a DSN is 'postgresql://user@host:5432/database', 'host=… dbname=… user=…', or 'env:NAME', a variable that has one of these"
_SHORTEST = 3
"""A shorter part of a password would be found in too many words to be struck out."""


@dataclass(frozen=True)
class Target:
    """A database that can be connected to."""

    dsn: str = field(repr=False)
    where: str
    """How errors name it, without its password."""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def without_secrets(self, text: str) -> str:
        """Return a message of a driver without the password, also where it was taken for a part of the host."""
        for secret in self.secrets:
            text = text.replace(secret, "…")
        return " ".join(text.split())


def is_variable(dsn: str) -> bool:
    """Return whether a DSN is the name of a variable, which errors may quote. A DSN behind `env:` is not."""
    return re.fullmatch(r"env:[^\s:/@=]*", dsn) is not None


def read_dsn(dsn: str, schema: str) -> Target:
    """Return the database that a DSN names.

    Raises:
        StoreError: the variable that is to have it is not set, or it is not a DSN.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    dsn = dsn.strip()
    if is_variable(dsn):
        name = dsn.removeprefix("env:")
        dsn = os.environ.get(name, "").strip()
        if not dsn:
            raise StoreError(
                f"the variable {name!r}, which should have the DSN of a PostgreSQL database, is not set or is empty"
            )
    try:
        parts = conninfo_to_dict(dsn)
    except (psycopg.Error, UnicodeError):  # its text may quote the password
        raise StoreError(
            f"this is not the DSN of a PostgreSQL database; {_FORMS}. Encode '@', ':' and '/' of a password as %40, %3A and %2F"
        ) from None
    user = str(parts.get("user") or "")
    found = {str(parts.get("password") or ""), str(parts.get("sslpassword") or "")}
    if not (port := str(parts.get("port") or "")).replace(",", "").isdigit():
        found.add(port)  # a password, where the host was left out
    if "://" in dsn:
        found.update(re.split(r"[@:/]", dsn.partition("://")[2].rpartition("@")[0]))
    secrets = sorted((each for each in found - {user} if len(each) >= _SHORTEST), key=len, reverse=True)
    target = Target(dsn, "", tuple(secrets))
    place = target.without_secrets(str(parts.get("dbname") or user or ""))
    host = target.without_secrets(
        str(parts.get("host") or parts.get("hostaddr") or os.environ.get("PGHOST") or "localhost")
    )
    return Target(dsn, f"schema {schema!r} of database {place!r} at {host}", tuple(secrets))
