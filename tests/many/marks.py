"""What runs leave outside of the store: a line for whatever they do, in one file that no trouble reaches.

All processes of a machine have one monotonic clock, whatever they take for the time of day.
"""

from __future__ import annotations

import json
import os
import time
from typing import NamedTuple


class Mark(NamedTuple):
    """Something that happened."""

    at: float
    """Seconds, by the clock that all processes share."""
    run: str
    what: str
    about: str = ""
    """The name of an effect."""
    token: str = ""
    """Tells one execution of an effect from another."""
    due: float | None = 0
    """Seconds until the next mark can be expected; None, if it is for a client to do something."""


class Marks:
    """A file of marks, each written whole by one call."""

    def __init__(self, path):
        self._path, self._file = path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def put(self, run, what, about="", token="", due=0):
        """Write a mark."""
        mark = Mark(time.monotonic(), run, what, about, token, due)
        os.write(self._file, json.dumps(mark).encode() + b"\n")

    def length(self):
        """Return how long the file is, which grows with whatever any run does."""
        return os.fstat(self._file).st_size

    def read(self):
        """Return all marks, in the order in which they were written."""
        with open(self._path, "rb") as file:
            return [Mark(*json.loads(line)) for line in file]
