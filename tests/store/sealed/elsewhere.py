"""An anchor in a variable."""

from __future__ import annotations

import anyio


class Elsewhere:
    """An anchor with a method that blocks and one that does not, which counts how often it is written."""

    def __init__(self, content=None):
        self.content = content
        self.writes = 0
        self.written = anyio.Event()

    def read(self):
        return self.content

    async def write(self, content):
        self.content = content
        self.writes += 1
        self.written.set()
