"""Programs that die: stores that can be cut behind any commit or break, and runs that are gone on with."""

from __future__ import annotations

import re
from collections import Counter

import msgspec

from graphagent import Agent
from graphagent.errors import NodeFailedError, RunNotFoundError, StoreError
from graphagent.log._entries import EffectRecorded, NodeFinished
from graphagent.log._log import Log
from graphagent.store import MemoryStore
from tests.run.worlds import Builder, Oracle, World, answer_to, tools_of


class Watched:
    """A store around a store that remembers its commits, so that it can be cut behind each of them."""

    def __init__(self, store=None):
        self.store = store or MemoryStore()
        self.commits = []

    def get(self, key):
        return self.store.get(key)

    def scan(self, *prefix, **options):
        return self.store.scan(*prefix, **options)

    async def commit(self, *changes):
        await self.store.commit(*changes)
        self.commits.append(changes)


async def cut(commits, store=None):
    """Give a store in which nothing but some commits was made."""
    left = Watched(store)
    for changes in commits:
        await left.commit(*changes)
    return left


class Mortal(Watched):
    """A store that breaks at a commit: `refused` before it is made, `unheard` behind it; or the run is cancelled: `cancelled`."""

    def __init__(self, number, how):
        super().__init__()
        self._left, self._how = number, how
        self._broken = False
        self.scope = None

    async def commit(self, *changes):
        if self._broken or (self._how == "refused" and not self._left):
            self._broken = True
            raise StoreError("the disk is full")
        await super().commit(*changes)
        self._left -= 1
        if not self._left:
            if self._how == "cancelled":
                self.scope.cancel()
            elif self._how == "unheard":
                self._broken = True
                raise StoreError("the disk is gone")

    def mend(self):
        """Work again."""
        self._left, self._broken = -1, False


class Recorded:
    """An entry of a log, with the node in which it happened."""

    def __init__(self, entry, node):
        self.entry, self.node = entry, node


async def entries_of(store, run_id="r"):
    """Give the entries of a run as they are kept."""
    found = []

    def watch(entry, number, state, row, place):
        frame = state.frames.get(entry.at)
        found.append(Recorded(entry, frame.node or "" if frame is not None else ""))

    try:
        await Log.read(store, "", run_id, watch=watch)
    except RunNotFoundError:
        return []
    return found


class Life:
    """One definition of an agent, and what it does to the world in all lives of the program."""

    def __init__(self, built):
        self.world = World()
        self.strategy = Builder(self.world).strategy(built)
        self.tools = tools_of(self.world)

    def agent(self, store):
        """Give a new agent."""
        return Agent(
            self.strategy, model=Oracle(self.world), tools=self.tools, store=store, system_prompt="Be right.",
            max_nodes=5000, max_turns=500,
        )  # fmt: skip

    async def live(self, store, *, one=False):
        """Begin the run, or go on with it, to its end. With `one`, questions are answered one after the other."""
        agent = self.agent(store)
        try:
            try:
                result = await agent.resume("r")
            except RunNotFoundError:
                result = await agent.run("the task", run_id="r")
            while result.status == "waiting":
                agent = self.agent(store)
                result = await agent.resume("r", answers=answers_to(result.questions, one=one))
        except NodeFailedError as error:
            return f"failed: {error}", agent._last.result
        assert result.status == "done"
        return f"done: {result.output!r}", result

    async def go_on(self, run, *, one=False):
        """Go on with a run of this process to its end."""
        try:
            result = await run.finish()
            while result.status == "waiting":
                run.answer(answers=answers_to(result.questions, one=one))
                result = await run.finish()
        except NodeFailedError as error:
            return f"failed: {error}", run.result
        return f"done: {result.output!r}", result


def answers_to(questions, *, one):
    """Give answers, all at once or the first alone."""
    return {each.id: answer_to(each) for each in (questions[:1] if one else questions)}


class Undisturbed:
    """What comes of a run that nothing stops."""

    def __init__(self, life, store, said, result):
        self.life, self.commits = life, store.commits
        self.said, self.memory, self.usage = said, result.memory, result.usage
        self.done, self.bodies = Counter(life.world.done), Counter(life.world.bodies)

    @staticmethod
    async def of(built, store=None):
        life, kept = Life(built), Watched(store)
        return Undisturbed(life, kept, *await life.live(kept))

    def compare(self, said, result, entries=()):
        """See that a run came to the same, and did nothing again of what stood in these entries."""
        world = self.life.world
        assert said == self.said
        assert result.memory == self.memory
        recorded, ended = recorded_in(entries), ended_in(entries)
        for name in {*self.done, *world.done} - world.lost:
            assert world.done[name] == self.done[name] - recorded[name], name
        for name in {*self.bodies, *world.bodies}:
            assert world.bodies[name] == self.bodies[name] - ended[name], name


def recorded_in(entries):
    """Give how often each effect stands in the entries of a log."""
    found = Counter()
    for each in entries:
        if isinstance(each.entry, EffectRecorded) and each.entry.kind != "add":
            entry = each.entry
            held = None if entry.held is None else entry.held.value
            outcome = bytes(entry.value), held, getattr(entry.step, "model_output_message", None)
            found.update(re.findall(r"E:([0-9a-f]{10})", repr(outcome))[:1])
    return found


def ended_in(entries):
    """Give how often each execution of a plain node, named by its output, ended in the entries of a log."""
    plain = (each for each in entries if isinstance(each.entry, NodeFinished) and each.node.startswith("plain"))
    return Counter(msgspec.msgpack.decode(each.entry.value) for each in plain)
