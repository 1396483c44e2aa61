"""`graphagent worker`: the process that executes submitted runs."""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAM = """
from graphagent import END, START, Agent, Strategy
from graphagent.nodes import passthrough
from graphagent.store.postgres import PostgresStore

strategy = Strategy("echoes", START >> passthrough(str, name="echo") >> END)
agent = Agent(strategy)
own = Agent(strategy, store=PostgresStore("env:NO_SUCH_VARIABLE"))
"""


def test_a_worker_whose_store_cannot_be_opened_ends_with_the_error(run, home):
    """With the store of the agent as with one that is named: it would wait for ever."""
    Path("app.py").write_text(PROGRAM)
    for words in (["app.py:own"], ["app.py:agent", "--store", "env:NO_SUCH_VARIABLE"]):
        ended = run("worker", *words)
        assert ended.code == 1
        assert "error: the variable 'NO_SUCH_VARIABLE', which should have the DSN" in ended.said


def test_an_import_that_fails_in_a_program_is_told_as_it_is(run, home):
    """Nothing is said of programs that do something when they are loaded, which this one does not."""
    Path("app.py").write_text("import no_such_module_of_mine")
    with pytest.raises(ModuleNotFoundError, match="no_such_module_of_mine") as failed:
        run("worker", "app.py:agent")
    assert not hasattr(failed.value, "__notes__")
