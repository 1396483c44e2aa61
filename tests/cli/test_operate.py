"""The commands of docs/operate.md are executed in their order, in one folder, as somebody would who follows the page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "operate.md").read_text("utf-8")


def test_the_page_is_followed(run, home):
    """Each command succeeds."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) > 20
    for line in lines:
        command, name, *words = shlex.split(line, comments=True)
        assert (command, name) == ("$", "graphagent"), line
        ended = run(*words)
        assert ended.code == 0, f"{line}\n{ended.err}"
