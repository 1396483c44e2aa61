"""Programs that die: stores that can be cut behind any commit or break, and runs that are gone on with."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress

import anyio
import msgspec

from graphagent import Agent, Run
from graphagent.errors import NodeFailedError, RunNotFoundError, StoreError, Veto
from graphagent.llm import Message, ToolCall
from graphagent.log._entries import EffectRecorded, NodeFinished
from graphagent.log._log import Log
from graphagent.memory import ActionStep, MessageStep
from graphagent.store import MemoryStore
from tests.run.worlds import Builder, Oracle, World, answer_to, digest, tools_of


class Watched:
    """A store around a store that remembers its commits, so that it can be cut behind each of them."""

    compared = True

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

    def __init__(self, number=-1, how=""):
        super().__init__()
        self.break_at(number, how)
        self.scope = None

    def break_at(self, number, how):
        """Break at the commit of this number, counted from now."""
        self._left, self._how, self._broken = number, how, False

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
        self.break_at(-1, "")


class Recorded:
    """An entry of a log, with the node in which it happened."""

    def __init__(self, entry, node):
        self.entry, self.node = entry, node


async def entries_of(store, run_id="r"):
    """Give the entries of a run as they are kept."""
    found = []

    def watch(applied):
        found.append(Recorded(applied.entry, applied.visit.node or "" if applied.visit is not None else ""))

    try:
        await Log.read(store, "", run_id, watch=watch)
    except RunNotFoundError:
        return []
    return found


def edit(step: ActionStep, run: Run) -> None:
    """Change a turn, the one before it, and what the model is told next, as a callback may."""
    kind = int(digest(step.model_output, step.observations), 16)
    if step.observations and kind % 2:
        step.observations = f"[checked] {step.observations}"
    turns = [each for each in run.memory.steps if isinstance(each, ActionStep) and each is not step]
    if turns and kind % 3 == 0:
        turns[-1].model_output_message = Message.assistant(
            f"[shortened] {digest(turns[-1].model_output)}", turns[-1].tool_calls
        )
    if kind % 5 < 2:
        run.memory.steps.append(MessageStep(Message.user(f"noted {digest(kind)}")))


def guard(call: ToolCall) -> None:
    """Refuse some calls."""
    if int(digest(call.arguments), 16) % 5 == 0:
        raise Veto(f"not {call.name}")


class Life:
    """One definition of an agent, and what it does to the world in all lives of the program.

    Several tasks are runs of a thread. With `edits`, callbacks change the transcript and refuse calls.
    """

    def __init__(self, built, *, tasks=("the task",), edits=False, world=None):
        self.world = world or World()
        self.strategy = Builder(self.world).strategy(built)
        self.tools = tools_of(self.world)
        self.tasks = dict(zip(("r", "r1", "r2"), tasks, strict=False))
        self.callbacks = [edit, guard] if edits else []

    def agent(self, store):
        """Give a new agent."""
        return Agent(
            self.strategy, model=Oracle(self.world), tools=self.tools, store=store, system_prompt="Be right.",
            step_callbacks=self.callbacks, max_nodes=5000, max_turns=500,
        )  # fmt: skip

    async def live(self, store, *, one=False):
        """Begin the runs, or go on with them, to their end. With `one`, questions are answered one after the other."""
        said, options = [], {"thread": "t"} if len(self.tasks) > 1 else {}
        for run_id, task in self.tasks.items():
            agent = self.agent(store)
            try:
                try:
                    result = await agent.resume(run_id)
                except RunNotFoundError:
                    result = await agent.run(task, run_id=run_id, **options)
                while result.status == "waiting":
                    agent = self.agent(store)
                    result = await agent.resume(run_id, answers=answers_to(result.questions, one=one))
            except NodeFailedError as error:
                return f"failed: {error}", agent.last.result
            assert result.status == "done"
            said.append(f"done: {result.output!r}")
        return "; ".join(said), result

    async def entries(self, store):
        """Give the entries of all its runs as they are kept."""
        return [each for run_id in self.tasks for each in await entries_of(store, run_id)]

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

    compared = True
    """Whether the fold of the log is compared with the state of those that go on, which takes most of their time."""

    def __init__(self, life, store, said, result):
        self.life, self.commits = life, store.commits
        self.said, self.memory, self.usage = said, result.memory, result.usage
        self.done, self.bodies = Counter(life.world.done), Counter(life.world.bodies)
        self.asked = life.world.asked

    @staticmethod
    async def of(built, store=None, **settings):
        life, kept = Life(built, **settings), Watched(store)
        return Undisturbed(life, kept, *await life.live(kept))

    def compare(self, said, result, entries=()):
        """See that a run came to the same, and did nothing again of what stood in these entries."""
        assert said == self.said
        assert same(result.memory, self.memory)
        self.compare_ended(entries)

    def compare_ended(self, entries):
        """See that a life that came to the end did all that did not stand in these entries when it began, and nothing else."""
        world = self.life.world
        recorded, ended = recorded_in(entries), ended_in(entries)
        for name in {*self.done, *world.done} - world.lost:
            assert world.done[name] == self.done[name] - recorded[name], name
        for name in {*self.bodies, *world.bodies}:
            assert world.bodies[name] == self.bodies[name] - ended[name], name

    def compare_begun(self, entries):
        """See that a life did nothing again of what stood in these entries when it began, and nothing that the whole run did not do.

        So no model was told anything else, such as that a call was not made whose result is recorded.
        """
        world, recorded = self.life.world, recorded_in(entries)
        for name in world.done.keys() - world.lost:
            assert world.done[name] <= self.done[name] - recorded[name], name
        assert world.asked <= self.asked


def same(memory, other):
    """Tell whether two transcripts are the same; the id of a sub-agent has the number of an entry, which another life may change."""
    if "helper" not in repr(memory.full_steps()):
        return memory == other
    steps = [re.sub(r"'(seconds|run_id)': [^,}]*", "", repr(each.full_steps())) for each in (memory, other)]
    return steps[0] == steps[1]


async def resumed(whole, commits, store=None, *, one=False):
    """Go on with a run from what was committed to its end, and give what is committed then."""
    left = await cut(commits, store)
    left.compared = whole.compared
    entries = await whole.life.entries(left)
    whole.life.world.begin(recorded_in(entries))
    said, result = await whole.life.live(left, one=one)
    whole.compare(said, result, entries)
    whole.compare_begun(entries)
    assert result.usage == whole.usage
    return left.commits


async def resumed_everywhere(whole, commits, choose, *more, since=1, one=False):
    """Cut behind each chosen commit, go on from there; then cut what came of that behind a later one, and so on.

    `choose` and those behind it say for each death which commits are tried.
    """
    for number in choose(range(since, len(commits))):
        later = await resumed(whole, commits[:number], one=one)
        if more:
            await resumed_everywhere(whole, later, *more, since=number + 1, one=one)


def one_of(chance):
    """Return a choice of one commit."""
    return lambda numbers: chance.sample(numbers, min(len(numbers), 1))


async def broken(whole, store, number, how):
    """Live until the store breaks at a commit, and mend it. Tell whether the life ended before that."""
    entries = await whole.life.entries(store)
    whole.life.world.begin(recorded_in(entries))
    store.break_at(number, how)
    store.compared = whole.compared
    said = None
    with anyio.CancelScope() as store.scope:
        with suppress(StoreError):  # an entry, or the beginning of a run, could not be written
            said, result = await whole.life.live(store)
    store.mend()
    whole.compare_begun(entries)
    if said is not None:
        whole.compare(said, result, entries)
        assert result.usage == whole.usage
    return said is not None


def recorded_in(entries):
    """Give how often each effect stands in the entries of a log."""
    found = Counter()
    for each in entries:
        # A branch of a race that is out has its error, whose reason may name an effect that somebody else had.
        if isinstance(each.entry, EffectRecorded) and each.entry.kind not in ("add", "out"):
            entry = each.entry
            held = None if entry.held is None else entry.held.value
            outcome = bytes(entry.value), held, getattr(entry.step, "model_output_message", None)
            found.update(re.findall(r"E:([0-9a-f]{10})", repr(outcome))[:1])
    return found


def ended_in(entries):
    """Give how often each execution of a plain node, named by its output, ended in the entries of a log."""
    plain = (each for each in entries if isinstance(each.entry, NodeFinished) and each.node.startswith("plain"))
    return Counter(msgspec.msgpack.decode(each.entry.value) for each in plain)
