"""The clients of the campaign: they submit runs, answer questions, and say how each run ended and when they knew.

Whatever fails for them is repeated: a submission under its id, an answer until its question is not open.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio

from graphagent.errors import AnswerError, RunClaimedError, RunNotFoundError, StoreError
from graphagent.log._header import header_key, read_due
from graphagent.log._segments import read_header
from graphagent.store._claims import claims_of
from tests.many.program import BILLS, DEFAULT, NOBODY, TASK

KINDS = (
    "steps", "tools", "sleeps", "sub-agent", "asks", "answered in time", "expires", "expires with an error", "thread",
)  # fmt: skip
OF_THREAD = 4
"""The runs of a thread, of which the second asks a question."""
AT_ONCE = 24
"""Runs that are not over."""
HORIZON, MOST = 3_600_000, 1000
"""Of what is due, how far ahead is looked for a run that has not ended, in milliseconds, and among how many."""
_EFFECTS = {
    "steps": ("first", "left", "right", "last"),
    "tools": BILLS,
    "sub-agent": BILLS,
    "sleeps": ("first", "middle", "last"),
    "expires with an error": ("last",),
}
LATER = 2
"""Seconds after which a run that is submitted for a time is due."""


class Run:
    """A run, and what is to become of it."""

    def __init__(self, kind, run_id, before=()):
        self.kind, self.run_id, self.before = kind, run_id, before
        self.effects = _EFFECTS.get(kind, ("first", "last"))
        """What it does, once each."""
        self.answer = {"expires": DEFAULT, "expires with an error": NOBODY}.get(kind)
        if kind in ("asks", "answered in time") or (kind == "thread" and len(before) == 1):
            self.answer = f"of-{run_id}"
        self.submitted = self.over = self.gone = False
        self.output = self.status = None

    @property
    def is_asked(self):
        """Whether somebody is to answer it."""
        return self.answer not in (None, DEFAULT, NOBODY)

    @property
    def wrong(self):
        """What is otherwise than it should be; empty if nothing is."""
        if self.status != "done":
            return f"{self.status}: {self.output}"
        said = dict(word.partition("=")[::2] for word in self.output.split())
        wanted = {
            "answer": self.answer,
            "heard": ",".join([TASK] * (len(self.before) + 1)) if self.kind == "thread" else None,
        }
        wanted = {name: each for name, each in wanted.items() if each is not None}
        if {name: said.get(name) for name in wanted} != wanted or not set(self.effects) <= said.keys():
            return f"it says {self.output!r} instead of {wanted} and {self.effects}"
        return ""

    def recorded(self):
        """Return the executions of its effects that are recorded, by the names of the effects."""
        return {name: token for name, _, token in (word.partition("=") for word in (self.output or "").split())}


def runs(number, chance):
    """Return groups of runs, in each of which one is submitted after the other; so many in all, of each kind about as many."""
    found, kinds = [], list(KINDS)
    while (left := number - sum(map(len, found))) > 0:
        if not kinds:
            kinds = list(KINDS)
        kind = kinds.pop(chance.randrange(len(kinds)))
        group = []
        for each in range(min(left, OF_THREAD) if kind == "thread" else 1):
            group.append(Run(kind, f"{kind.replace(' ', '-')}-{len(found)}-{each + 1}", tuple(group)))
        found.append(group)
    return found


class Clients:
    """Clients of the agents of a store."""

    def __init__(self, agents, marks, chance):
        self._agents, self._marks, self._chance = agents, marks, chance
        self._room = anyio.CapacityLimiter(AT_ONCE)
        self.failures = 0
        """How often something had to be repeated."""

    async def all(self, groups):
        """Submit all and see them end."""
        async with anyio.create_task_group() as group:
            for each in groups:
                group.start_soon(self._group, each)

    async def told(self, run):
        """Return where a run is, who has it, and when something is due for it; empty if it is in no store."""
        store, key = self._agents[run.kind].store, header_key("", run.run_id)
        if await store.get(key) is None:
            return ""
        if run.over:
            return "it has ended"
        header, _ = await read_header(store, "", run.run_id)
        held = await claims_of(store).holders([key])
        now = await claims_of(store).now()
        due = [each.at for each in await read_due(store, now + HORIZON, MOST) if each.run_id == run.run_id]
        return f"{header.status}, due {header.due}, at {now}, in the room of what is due: {due}, held: {list(held.values())}"

    async def _group(self, group):
        async with self._room, anyio.create_task_group() as together:
            for run in group:
                await self._submit(run)
                together.start_soon(self._see, run)

    async def _submit(self, run):
        later = timedelta(seconds=LATER) if run.kind == "steps" and self._chance.random() < 0.3 else None
        options = {"thread": run.before[0].run_id if run.before else run.run_id} if run.kind == "thread" else {}
        if later is not None:
            options["at"] = datetime.now(UTC) + later
        agent = self._agents[run.kind]
        await self._until_it_succeeds(lambda: agent.submit(TASK, run_id=run.run_id, **options))
        self._marks.put(run.run_id, "submitted", due=LATER if later else 0)
        run.submitted = True

    async def _see(self, run):
        handle = self._agents[run.kind].handle(run.run_id)
        if run.is_asked:
            while (await self._until_it_succeeds(handle.wait)).status == "waiting":
                await anyio.sleep(self._chance.uniform(0, 1))
                try:
                    await handle.answer(run.answer)
                except (StoreError, AnswerError, RunClaimedError) as error:
                    self.failures += isinstance(error, StoreError)
                else:
                    self._marks.put(run.run_id, "answered")
        while True:
            result = await self._until_it_succeeds(handle.wait)
            if result.status != "waiting":
                break
            await anyio.sleep(0.5)  # until the question expires
        run.status, run.output, run.over = result.status, result.output, True
        if result.status != "done":
            run.output = repr(result.error)
        self._marks.put(run.run_id, "seen")

    async def _until_it_succeeds(self, work):
        while True:
            try:
                return await work()
            except (StoreError, RunNotFoundError, RunClaimedError):
                self.failures += 1
                await anyio.sleep(0.2)
