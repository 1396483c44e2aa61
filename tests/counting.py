"""How much work something is, on any machine."""

from __future__ import annotations

import sys


def calls(work):
    """Return how many functions this thread calls while it does something, those written in C included."""
    count = 0

    def counted(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
