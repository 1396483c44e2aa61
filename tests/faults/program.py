"""A program that is watched from outside: it does the steps of a store, and says what it begins and what is acknowledged."""

from __future__ import annotations

import os
import sys

import anyio

from tests.faults.subjects import SUBJECTS, closed, do


async def main(name, folder):
    """Do the steps."""
    subject = SUBJECTS[name]
    async with closed(subject, folder) as handle:
        for step in subject.steps:
            os.write(1, f"begin {step}\n".encode())
            await do(subject, handle, step)
            os.write(1, f"ack {step}\n".encode())


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
