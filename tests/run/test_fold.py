"""What the comparison of `tests/fold.py` covers: every field of the state. What the engine has beside it is named here."""

from __future__ import annotations

from types import FunctionType

import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.log._log import Log
from graphagent.log._state import State
from graphagent.log._visits import Activation, Frame, Visit
from graphagent.memory.transcript._prompt import Versions
from graphagent.memory.transcript._transcript import Transcript
from graphagent.nodes import ask_human
from graphagent.run._agent_run import AgentRun
from graphagent.run._effects import Effects
from graphagent.run._session import Session
from graphagent.run._walk import Limits, Walk
from graphagent.store import MemoryStore
from tests.fold import DERIVED, described

KINDS = (State, Frame, Visit, Activation, Transcript, Versions)
FIELDS = [
    (kind, name) for kind in KINDS for name in getattr(kind, "__struct_fields__", kind.__slots__) if name not in DERIVED
]
LIVE = {
    Session: {
        # what it is made of
        "log", "run_id", "owner", "thread", "run", "children", "loop", "beginning", "recorded",
        # where this process is with it
        "claimed", "token", "idle", "attention", "failure", "pausing", "stepping", "handed", "asked", "answers", "items", "tasks", "speakers",
        "unlearned", "most_deaths", "leaving", "wish", "by_worker",
    },
    AgentRun: {
        # what it is made of
        "config", "plan", "features", "handlers", "session", "activation",
        "log", "frame", "run_id", "owner", "parent", "lineage", "limits", "max_seconds", "deadline", "memory", "_handle", "listed",
        # where this process is with it
        "begun", "since", "before", "added", "held_back", "has_answered", "looked_back", "at_rest", "call_ids",
    },
    Limits: {
        "run", "frame", "parent", "where", "within", "max_nodes", "max_turns", "max_tokens", "max_cost", "cost", "running", "asking",
        "looks", "since", "step", "until", "yielded",
    },
    Walk: {"run", "frame", "strategy", "limits", "model", "declared", "given", "deadline", "held_back"},
    Effects: {
        "walk", "scope", "position", "call", "asked", "visit", "model", "purpose", "_known", "_numbers", "_memory",
    },
    Context: {"_walk", "_visit", "_made", "_position", "_known"},
}  # fmt: skip
"""The live things beside the state: the configuration, clients, handlers, timers, what was derived, and how far an execution is."""


@node
async def echo(ctx: Context, topic: str) -> str:
    return topic


@pytest.mark.parametrize(("kind", "name"), FIELDS)
async def test_a_field_that_is_left_out_of_the_fold_is_noticed(kind, name):
    """Whichever field of the state has another value than it should have, the description of the state is another one."""
    store = MemoryStore()
    await Agent(Strategy("s", START >> echo >> ask_human("Right?", bool) >> END), store=store).run("x", run_id="r")
    state = (await Log.read(store, "", "r")).state
    transcript = state.root.transcript
    changed = {
        State: state,
        Frame: state.root,
        Visit: state.root.visit,
        Activation: state.run,
        Transcript: transcript,
        Versions: transcript.versions,
    }
    sound = described(state)
    setattr(changed[kind], name, "changed")
    try:
        noticed = described(state) != sound
    except (AttributeError, TypeError, ValueError):
        noticed = True
    assert noticed


async def test_what_is_not_in_the_state_is_live():
    """The engine, its executions and contexts have the fields that are named here, and no other."""
    agent = Agent(Strategy("s", START >> echo >> END), store=MemoryStore())
    run = agent.start("x", run_id="r")
    await run.finish()
    live = {Session: run._run.session, AgentRun: run._run}
    for kind, names in LIVE.items():
        found = set(getattr(kind, "__struct_fields__", getattr(kind, "__slots__", ())))
        if kind in live:
            own = {name for name, value in vars(kind).items() if not isinstance(value, FunctionType | property)}
            found = {name for name in own if not name.startswith("__")} | set(vars(live[kind]))
        assert found == names, kind
