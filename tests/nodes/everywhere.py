"""Runs that are cut after each of their commits and resumed by another agent, for nodes whose model depends on what it is sent."""

from __future__ import annotations

from itertools import repeat

from graphagent import Agent
from graphagent.log._entries import EffectRecorded
from graphagent.testing import ScriptedModel, fixed_clock
from tests.run.lives import Watched, cut, entries_of
from tests.thorough import some


class Resumed:
    """A run that nothing stopped, and its commits."""

    def __init__(self, strategy, answer, settings):
        self.strategy, self.answer, self.settings = strategy, answer, settings
        self.model = ScriptedModel(repeat(answer))

    def agent(self, store, model):
        """Return an agent with a model."""
        return Agent(self.strategy, model=model, store=store, **self.settings)


async def resumed_everywhere(strategy, answer, task="the task", **settings):
    """Run a strategy, then resume it from every commit: output, transcript and usage are the same, and no answer is asked for twice.

    `answer` is the model: a function of the request. Return the result of the undisturbed run, and its model.
    """
    with fixed_clock(step_ms=0):
        whole, store = Resumed(strategy, answer, settings), Watched()
        first = await whole.agent(store, whole.model).run(task, run_id="r")
        assert first.done
        for number in some(range(1, len(store.commits)), 12):
            left = await cut(store.commits[:number])
            known = sum(is_answer(each.entry) for each in await entries_of(left))
            model = ScriptedModel(repeat(answer))
            result = await whole.agent(left, model).resume("r")
            assert result.output == first.output
            assert result.memory == first.memory
            assert result.usage == first.usage
            assert len(model.requests) == len(whole.model.requests) - known
    return first, whole.model


def is_answer(entry):
    """Return whether an entry of a log records the answer of a model."""
    return isinstance(entry, EffectRecorded) and entry.kind in ("turn", "decision") and entry.error is None
