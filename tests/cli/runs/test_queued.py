"""`graphagent runs` about runs that were submitted and have not begun."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import partial

import anyio

from graphagent import END, START, Agent, Strategy
from graphagent.nodes import passthrough
from graphagent.store import SqliteStore


def test_the_list_of_runs_says_until_when_a_run_is_queued(tmp_path, run):
    """In a table and as JSON."""
    path = tmp_path / "runs.db"
    agent = Agent(Strategy("loud", START >> passthrough(str) >> END), store=SqliteStore(path))
    anyio.run(partial(agent.submit, "a", at=datetime(2100, 1, 1, 12, tzinfo=UTC)))
    anyio.run(agent.submit, "b")
    shown = run("runs", "list", "--store", str(path)).out
    assert re.findall(r"queued[^\t\n]*", shown) == ["queued", "queued until 2100-01-01 12:00"]
    found = json.loads(run("runs", "list", "--store", str(path), "--json").out)
    assert [each["due"] > 0 for each in found] == [True, True]
