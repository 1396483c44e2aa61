"""Both ways to execute the nodes of a run, for tests of what does not depend on it: `from tests.run.executors import both_executors`."""

from __future__ import annotations

import pytest

from graphagent import Agent
from graphagent.store import MemoryStore

_EITHER = pytest.mark.one_value("executor")


@pytest.fixture(
    name="executor", params=[pytest.param(way, marks=_EITHER) for way in ("in memory", "durable")], autouse=True
)
def both_executors(request, monkeypatch):
    """Have the agents of the test execute their runs in memory, or durably; those with `store=` as that says."""

    def durable(*args, **settings):
        return Agent(*args, **{"store": MemoryStore(), **settings})

    if request.param == "durable":
        monkeypatch.setattr(request.module, "Agent", durable)
    return request.param
