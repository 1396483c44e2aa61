"""Pressing Ctrl-C at a prompt."""

from __future__ import annotations

import re
import time
from pathlib import Path


def interrupt(child):
    """Press Ctrl-C once a process waits for input.

    Between writing a prompt and reading, a process of Python notices a signal only after the next key. No person is fast enough
    for that, and pexpect is.
    """
    while not _sleeps(child.pid):
        pass
    child.sendintr()


def leave(child, pressed):
    """Press Ctrl-D or Ctrl-C, by its letter."""
    if pressed == "d":
        child.sendeof()
    else:
        interrupt(child)


def _sleeps(pid):
    """Return whether a process sleeps, and has slept for a while without waking up."""
    seen = [_state(pid)]
    for _ in range(5):
        time.sleep(0.02)
        seen.append(_state(pid))
    return seen[0][0] == "S" and len(set(seen)) == 1


def _state(pid):
    """Return the state of a process, and how often it went to sleep: see proc_pid_status(5)."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return "S", "0"
    text = status.read_text()
    return tuple(
        re.search(rf"^{name}:\s+(\w+)", text, re.MULTILINE)[1] for name in ("State", "voluntary_ctxt_switches")
    )
