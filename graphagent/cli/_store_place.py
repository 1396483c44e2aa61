"""The value of `--store`: a path, or a PostgreSQL database on a server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import typer

from graphagent.store._dsn import is_dsn, without_password

SERVER = "postgresql://USER@HOST/DATABASE"
"""The form in which help texts show the DSN of a database."""


@dataclass(frozen=True, slots=True)
class StorePlace:
    """The place of a store: a file or folder by its path, or a database by its DSN or by the variable with its DSN."""

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def is_server(self) -> bool:
        """Whether it is a database on a server."""
        return is_dsn(self.text)

    @property
    def path(self) -> Path:
        """The path, if it is not a database."""
        return Path(self.text).expanduser()


def store_place(text: str | StorePlace) -> StorePlace:
    """Return the place that the value of an option names.

    Raises:
        BadParameter: The value is a DSN with a password, or the address of another kind of server.
    """
    place = text if isinstance(text, StorePlace) else StorePlace(text)
    if not place.is_server:
        if url := re.match(r"\W*(\w[\w+.-]*://|postgres(ql)?:)", place.text):
            raise typer.BadParameter(
                f"this is an address of another kind ({url[0]}); a store is a path, or a PostgreSQL database: {SERVER}"
            )
    elif without_password(place.text) != place.text:
        raise typer.BadParameter(
            "this DSN has a password, which everybody on this machine can see while the command works. Leave it out, and put it "
            "into ~/.pgpass, into PGPASSWORD, or with all else into a service (service=NAME); or put the whole DSN into a variable, "
            "and write env:NAME, the name of that variable"
        )
    return place
