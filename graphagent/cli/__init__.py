"""The command `graphagent`; it needs the extra `cli`."""

from __future__ import annotations

from graphagent.cli._main import main as main
