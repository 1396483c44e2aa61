"""Strategies made at random, stopped after every entry and gone on with by another agent over the same definition."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest
from hypothesis import HealthCheck, given, settings

from graphagent import Agent
from graphagent.errors import NodeFailedError
from graphagent.run._keys import entries_key
from graphagent.store import MemoryStore
from graphagent.testing import fixed_clock
from tests.run.worlds import Builder, Oracle, World, answer_to, parts, recorded, tools_of


class Watched(MemoryStore):
    """A store that remembers its commits, so that it can be cut behind each of them."""

    def __init__(self):
        super().__init__()
        self.commits = []

    async def commit(self, *changes):
        await super().commit(*changes)
        self.commits.append(changes)

    @staticmethod
    async def cut(commits):
        store = Watched()
        for changes in commits:
            await store.commit(*changes)
        return store


class Life:
    """A process: the strategy made again, and what it does to the world."""

    def __init__(self, built):
        self.world = World()
        self.strategy = Builder(self.world).strategy(built)
        self.tools = tools_of(self.world)

    def agent(self, store):
        return Agent(
            self.strategy, model=Oracle(self.world), tools=self.tools, store=store, system_prompt="Be right.",
            max_nodes=5000, max_turns=500,
        )  # fmt: skip

    async def go_on(self, store, *, fresh):
        """Go on to the end, and give what came of it with the transcript and what was spent."""
        agent = self.agent(store)
        try:
            result = await (agent.run("the task", run_id="r") if fresh else agent.resume("r"))
            while result.status == "waiting":
                agent = self.agent(store)
                result = await agent.resume("r", answers={each.id: answer_to(each) for each in result.questions})
        except NodeFailedError as error:
            result, said = agent._last.result, f"failed: {error}"
        else:
            said = f"done: {result.output!r}"
        return said, result.memory, result.usage


async def stopped_everywhere(built):
    with fixed_clock(step_ms=0):
        life, store = Life(built), Watched()
        said, memory, usage = await life.go_on(store, fresh=True)
        total = Counter(life.world.done)
        for number in range(1, len(store.commits)):
            left = await Watched.cut(store.commits[:number])
            kept = [item.value async for item in left.scan(entries_key("", "r")) if isinstance(item.key[-1], int)]
            before = recorded(kept)
            life.world.begin(before)
            found, remembered, spent = await life.go_on(left, fresh=False)
            assert found == said
            assert remembered == memory
            assert spent == usage
            for name in set(total) | set(life.world.done):
                if name not in life.world.lost:
                    assert life.world.done[name] == total[name] - before[name], (number, name)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_run_stopped_after_any_entry_ends_the_same_with_nothing_done_twice(backend):
    """Output, transcript with its prompts, and usage are those of the undisturbed run; each recorded effect is done once.

    The strategies have loops, error paths, retries, strategies inside, forks inside forks, model turns, tools and questions.
    """

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
    @given(parts(2))
    def everywhere(built):
        anyio.run(stopped_everywhere, built, backend=backend)

    everywhere()
