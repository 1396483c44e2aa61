"""Runs that are submitted: in the store entirely or not at all, begun by whoever comes first, in the order of their thread."""

from __future__ import annotations

import math
import os
import re
import signal
from datetime import UTC, datetime, timedelta
from functools import partial

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import (
    FeatureError,
    JournalError,
    RunError,
    RunExistsError,
    RunQueuedError,
    StoreError,
    StoreUnavailableError,
    SubmissionSizeError,
    ThreadBusyError,
    ThreadFullError,
    TooManyDeathsError,
)
from graphagent.history import (
    end_run,
    export_runs,
    forget,
    forget_runs,
    import_runs,
    list_threads,
    measure_runs,
    prune_runs,
    reach,
    read_run,
    verify_runs,
)
from graphagent.log._header import SUBMITTED
from graphagent.memory import Concept, Scope, SingleFact, StoreMemoryProvider, Subject
from graphagent.nodes import ask_human
from graphagent.protocols import Feature
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore, copy_store, new_key
from graphagent.testing import fixed_clock
from graphagent.work._execute import execute


@node
async def shout(ctx: Context, text: str) -> str:
    return text.upper()


loud = Strategy("loud", START >> shout >> END)


@pytest.fixture(params=["memory", "sqlite", "sealed"])
def store(request, tmp_path):
    """A store of each kind."""
    if request.param == "memory":
        return MemoryStore()
    plain = SqliteStore(tmp_path / "runs.db")
    return plain if request.param == "sqlite" else EncryptedStore(plain, new_key())


async def test_what_is_submitted_is_executed_by_another_agent_over_the_same_store(store):
    """Until then it is queued, in every list; afterwards it is a run as any other one, and nothing of the submission is left."""
    handle = await Agent(loud, store=store).submit("hello", run_id="a", owner="ada")
    assert (handle.run_id, handle.owner, await handle.status()) == ("a", "ada", "queued")
    [head] = await list_runs(store, owner="ada", status=["queued"])
    assert (head.title, head.queue, head.due > 0, head.running) == ("hello", "default", True, False)
    assert (await handle.result()).status == "queued"
    outcome = await execute(Agent(loud, store=store), "ada", "a")
    assert outcome.did == "executed"
    assert (await handle.wait(1)).output == "HELLO"
    assert [item async for item in store.scan((SUBMITTED,))] == []
    assert (await execute(Agent(loud, store=store), "ada", "a")).did == "resting"


@node
async def reply(ctx: Context, text: str) -> str:
    """What was said in the thread so far."""
    said = [step.task for step in ctx.memory.steps if hasattr(step, "task")]
    return " ".join(said)


def talker(store):
    return Agent(Strategy("talk", START >> reply >> END), store=store)


asking = Strategy("asking", START >> ask_human("Sure?", bool) >> END)


async def test_messages_of_a_thread_are_executed_in_order_one_after_the_other(store):
    """Whoever comes first executes the first, and each sees what was said before; one for later holds up nobody."""
    agent, later = talker(store), datetime.now(UTC) + timedelta(hours=1)
    for number, text in enumerate("abcd"):
        await agent.submit(text, thread="t", run_id=str(number), at=later if text == "b" else None)
    assert [(await execute(agent, "", each)).did for each in "321"] == ["held", "held", "early"]
    assert await execute(agent, "", "0") == ("executed", "2", None)
    assert (await execute(agent, "", "3")).did == "held"
    async with anyio.create_task_group() as group:
        for each in "2323":
            group.start_soon(execute, agent, "", each)
    await execute(agent, "", "3")
    with fixed_clock(math.ceil(later.timestamp() * 1000)):
        assert (await execute(agent, "", "1")).did == "executed"
    assert [(await agent.read(each)).output for each in "0231"] == ["a", "a c", "a c d", "a c d b"]
    assert await verify_runs(store) == 4


async def test_a_run_that_waits_for_a_person_holds_the_next_of_its_thread_or_is_ended_for_it(store):
    """By default the next waits; it is refused, or ends the one that waits, where that is asked for; and only so many wait."""
    agent = Agent(asking, store=store)
    await agent.submit("a", thread="t", run_id="a", max_queued=2)
    assert (await execute(agent, "", "a")).did == "executed"
    assert (await agent.handle("a").wait(1)).status == "waiting"
    with pytest.raises(ThreadBusyError, match="'a' of thread 't' is waiting"):
        await agent.submit("b", thread="t", if_busy="refuse")
    await agent.submit("b", thread="t", run_id="b", max_queued=2)
    assert (await execute(agent, "", "b")).did == "held"
    with pytest.raises(ThreadBusyError, match="'b' of thread 't' is queued"):
        await agent.submit("c", thread="t", if_busy="refuse")
    await agent.submit("c", thread="t", run_id="c", max_queued=2, if_busy="end")
    with pytest.raises(ThreadFullError, match="2 submitted runs of thread 't' wait already"):
        await agent.submit("d", thread="t", max_queued=2)
    assert [(await execute(agent, "", each)).did for each in "bc"] == ["executed", "executed"]
    assert [head.status for head in await list_runs(store)] == ["waiting", "ended", "ended"]


async def test_the_same_task_under_the_same_id_is_the_same_run(store):
    """Before it was begun and afterwards; another task is an error that changes nothing."""
    agent = talker(store)
    for _ in range(2):
        handle = await agent.submit("x" * 40_000, run_id="a", thread="t")
    assert len(await list_runs(store)) == 1
    with pytest.raises(RunExistsError):
        await agent.submit("other", run_id="a", thread="t")
    with pytest.raises(RunExistsError):
        await agent.submit("x" * 40_000, run_id="a")
    await execute(agent, "", "a")
    again = await agent.submit("x" * 40_000, run_id="a", thread="t")
    assert (await again.wait(1)).output == (await handle.result()).output == "x" * 40_000
    with pytest.raises(RunExistsError):
        await agent.submit("other", run_id="a", thread="t")


async def test_a_submit_that_is_cancelled_is_made_or_not(store):
    """Submitted again under its id, it is one run, with its task and its place in the thread."""
    agent = talker(store)
    for number in range(12):
        with anyio.move_on_after(0.0004 * (number % 4)):
            await agent.submit(str(number), run_id=f"m{number}", thread="t")
        await agent.submit(str(number), run_id=f"m{number}", thread="t")
    for number in range(12):
        await execute(agent, "", f"m{number}")
    assert (await agent.read("m11")).output.split() == [str(number) for number in range(12)]
    assert len(await list_runs(store)) == 12


async def test_submits_and_workers_that_come_together_lose_and_double_nothing(store):
    """Of ten that submit the same run there is one; of those that execute it one does; a thread has each message once, in some order."""
    agent = talker(store)
    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(partial(agent.submit, str(number), thread="t", run_id=f"m{number}"))
            group.start_soon(partial(agent.submit, "same", run_id="one"))
    while left := await list_runs(store, status=["queued"]):
        async with anyio.create_task_group() as group:
            for head in left * 2:
                group.start_soon(execute, agent, "", head.run_id)
    last = max([(await agent.read(f"m{number}")).output for number in range(5)], key=len)
    assert (sorted(last.split()), len(await list_runs(store))) == (list("01234"), 6)


@pytest.mark.parametrize("kind", ["async", "plain", "of the run"])
async def test_deps_are_made_where_the_run_is_executed_and_none_are_passed(kind):
    """Once for a run, also of one that is resumed or of a sub-agent; what a caller passes comes first, and a wrong type is an error."""
    made = []

    async def later():
        made.append("async")
        return 7

    def of_run(run):
        made.append(run.run_id)
        return 7

    @node
    async def count(ctx: Context[int], text: str) -> str:
        return f"{text}{ctx.deps}"

    inner = Agent(Strategy("inner", START >> count >> END), name="inner")
    strategy = Strategy("counting", START >> count >> ask_human("Sure?", str) >> inner.as_node() >> END)
    factory = {"async": later, "plain": lambda: made.append("plain") or 7, "of the run": of_run}[kind]
    agent = Agent(strategy, store=MemoryStore(), deps_factory=factory)
    await agent.submit("a", run_id="a")
    await execute(agent, "", "a")
    result = await agent.resume("a", answer="b")
    assert (result.output, made) == ("b7", 2 * [{"of the run": "a"}.get(kind, kind)])
    assert (await agent.run("a", deps=1)).questions[0].about == "a1"
    assert len(made) == 2
    wrong = Agent(strategy, deps_factory=lambda: "text")
    with pytest.raises(TypeError, match=r"takes Context\[int\], and deps= is a str; write Agent\(…, deps_factory=…\)"):
        await wrong.run("a")
    with pytest.raises(TypeError, match=r"deps_factory= is a function of nothing, or of the run.*needs a, b"):
        Agent(strategy, deps_factory=lambda a, b: None)


@pytest.mark.parametrize("sent", [False, True])
async def test_a_submit_that_failed_says_how_to_submit_again(sent):
    """Whether or not the store has the run, the same task under the id of the error is one run. An answer is given again."""

    class Failing(MemoryStore):
        fails = True

        async def commit(self, *changes):
            if self.fails and not sent:
                raise StoreError("the disk is full")
            await super().commit(*changes)
            if self.fails:
                raise StoreUnavailableError("the store", "connection lost", in_doubt=True)

    store = Failing()
    agent = Agent(Strategy("asking", START >> ask_human("Sure?", str) >> END), store=store)
    with pytest.raises(JournalError) as failed:
        await agent.submit("a", owner="ada")
    run_id, said = failed.value.run_id, "It is not known whether it was" if sent else "It was not"
    assert str(failed.value).startswith(f"run {run_id!r} cannot be submitted: ")
    assert f". {said}; submit the same task with run_id={run_id!r}, owner='ada', which" in str(failed.value)
    store.fails = False
    handle = await agent.submit("a", owner="ada", run_id=run_id)
    assert [head.run_id for head in await list_runs(store, owner="ada")] == [run_id]
    await execute(agent, "ada", run_id)
    store.fails = True
    with pytest.raises(JournalError, match=r"cannot be queued again: .*look at its questions, and answer again"):
        await handle.answer("b")


def _killed(path, how):
    async def submit_or_execute():
        @node
        async def die(ctx: Context, text: str) -> str:
            os.kill(os.getpid(), signal.SIGKILL)
            return text

        agent = Agent(Strategy("loud", START >> die.named("shout") >> END), store=SqliteStore(path))
        if how == "submit":
            await agent.submit("hello", run_id="a")
            os.kill(os.getpid(), signal.SIGKILL)
        await execute(agent, "", "a")

    pid = os.fork()
    if not pid:
        anyio.run(submit_or_execute)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def test_processes_that_die_lose_nothing_and_five_deaths_are_enough(tmp_path):
    """A run that was submitted waits, one whose process died is continued, and after five deaths it fails with the reason."""
    path = tmp_path / "runs.db"
    agent = Agent(loud, store=SqliteStore(path))
    _killed(path, "submit")

    async def status():
        return await agent.handle("a").status()

    assert anyio.run(status) == "queued"
    for _ in range(5):
        _killed(path, "execute")
        assert anyio.run(status) == "interrupted"
    outcome = anyio.run(execute, agent, "", "a")
    assert isinstance(outcome.error, TooManyDeathsError)
    result = anyio.run(agent.handle("a").wait)
    assert (result.status, anyio.run(execute, agent, "", "a").did) == ("failed", "resting")
    with pytest.raises(RunError, match="5 processes died while they executed run 'a'"):
        _ = result.output
    assert anyio.run(agent.resume, "a").output == "HELLO"


async def _kept(store):
    return [item.key[0] async for item in store.scan(()) if item.key[0] in ("submitted", "due", "runs")]


async def test_runs_that_have_not_begun_are_in_lists_copies_and_exports_and_can_be_begun_there(store):
    """A copy and an import have them in the order of their thread; each reader that needs entries says that there are none."""
    agent = talker(store)
    for number, text in enumerate("ab"):
        await agent.submit(text + "x" * 20_000, run_id=str(number), thread="t", if_busy="end" if number else "queue")
    assert await verify_runs(store) == 2
    assert await list_threads(store) == []
    assert all(size.bytes > 20_000 for size in (await measure_runs(store)).values())
    with pytest.raises(RunQueuedError, match="'0' is queued and has not begun"):
        await agent.history("0")
    copied, imported = MemoryStore(), MemoryStore()
    await copy_store(store, copied)
    records = [each async for each in export_runs(store)]
    assert await import_runs(imported, records) == 2
    assert await import_runs(imported, records) == 0
    with pytest.raises(ValueError, match="lacks what it begins with"):
        await import_runs(MemoryStore(), records[:1])
    for other in (copied, imported):
        agent = talker(other)
        assert await verify_runs(other) == 2
        assert [(await execute(agent, "", each)).did for each in "101"] == ["held", "executed", "executed"]
        assert len((await agent.read("1")).output) == 40_003
        assert await _kept(other) == ["runs"] * len(await _kept(other))


@pytest.mark.parametrize("how", ["run", "named", "status", "owner", "everything"])
async def test_what_was_submitted_is_forgotten_with_its_run(store, how):
    """Nothing of the run is left. Its age alone removes nothing: a run may begin in a year."""
    agent = talker(store)
    for each in "ab":
        await agent.submit("sesame-7319", run_id=each, thread="t", owner="ada")
    for removing in (
        prune_runs(store, owner="ada", older_than=timedelta(0)),
        prune_runs(store, owner="ada", thread="t"),
    ):
        assert (await removing).runs == 0
    if how == "run":
        await forget_runs(store, owner="ada", run_ids=["a", "b"])
    elif how == "named":
        await prune_runs(store, owner="ada", run_ids=["a", "b"])
    elif how == "status":
        await prune_runs(store, owner="ada", status=["queued"])
    elif how == "owner":
        await forget_runs(store, owner="ada")
    else:
        await forget(store, owner="ada", everything=True)
    assert await _kept(store) == []
    if isinstance(store, SqliteStore):
        assert b"sesame-7319" not in store.path.read_bytes()


async def test_what_is_forgotten_is_looked_for_in_what_was_submitted(store):
    """A value that stands in the task of a run which has not begun is reached there."""
    provider = StoreMemoryProvider(store)
    city, ada, shop = Concept("city"), Subject("ada"), Scope.agent("shop")
    await provider.save(SingleFact(city, "Trondheim"), ada, shop)
    await talker(store).submit("From Trondheim!", run_id="a")
    assert [(each.kind, each.id) for each in await reach(store, concept=city)] == [("run", "a")]


@pytest.mark.parametrize("by", ["agent", "store"])
async def test_a_run_that_has_not_begun_is_ended_in_no_thread(store, by):
    """The next one of the thread begins as if it had not been there; it can be read, and nothing executes it any more."""
    agent = talker(store)
    for each in "ab":
        await agent.submit(each, run_id=each, thread="t")
    await (agent.end("a", "changed my mind") if by == "agent" else end_run(store, "a", "changed my mind"))
    assert (await agent.handle("a").result()).status == "ended"
    assert (await read_run(store, "a")).head.reason == "it was ended: changed my mind"
    assert (await execute(agent, "", "a")).did == "resting"
    assert (await execute(agent, "", "b")).did == "executed"
    assert (await agent.read("b")).output == "b"
    assert [each.name for each in await list_threads(store)] == ["t"]
    assert await verify_runs(store) == 2


class Refusing(Feature):
    """Refuses each run."""

    def install(self, agent):
        pass

    async def begin(self, ctx):
        raise FeatureError("not today")


async def test_a_run_that_a_feature_refuses_fails_and_holds_up_nobody(store):
    """It is not tried again and again; whoever resumes it begins where it was."""
    refusing = talker(store)
    refusing.install(Refusing)
    for each in "ab":
        await talker(store).submit(each, run_id=each, thread="t")
    outcome = await execute(refusing, "", "a")
    assert (outcome.did, outcome.following, str(outcome.error)) == ("executed", "b", "not today")
    assert (await refusing.handle("a").result()).status == "failed"
    assert (await execute(talker(store), "", "b")).did == "executed"
    assert (await talker(store).resume("a")).output == "a"


async def test_bad_options_of_a_submit_are_refused_where_it_is_called():
    """Nothing is written; each text says what to write."""
    agent = talker(MemoryStore())
    for options, error, said in [
        ({"deps": 1}, TypeError, "deps_factory"),
        ({"at": "tomorrow"}, TypeError, "at= is a time with its zone"),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC).replace(tzinfo=None)}, ValueError, "has no time zone"),
        ({"queue": ""}, ValueError, "queue='' is not a name"),
        ({"queue": "a\0"}, ValueError, "no NUL"),
        ({"priority": 1.5}, TypeError, "priority"),
        ({"priority": -(2**31)}, ValueError, "is not between"),
        ({"if_busy": "end"}, ValueError, "give thread=, too"),
        ({"max_queued": 0, "thread": "t"}, ValueError, "max_queued=0 is not a limit"),
        ({"if_busy": "wait", "thread": "t"}, ValueError, "if_busy='wait' is not known"),
        ({"threads": "t"}, TypeError, "did you mean thread="),
    ]:
        with pytest.raises(error, match=re.escape(said)):
            await agent.submit("a", **options)
    with pytest.raises(TypeError, match="takes str, not an int"):
        await agent.submit(1)
    with pytest.raises(RunError, match="does not keep its runs"):
        await Agent(loud).submit("a")
    with pytest.raises(
        SubmissionSizeError, match=r"has 67,1.* bytes, and a submitted run may begin with at most 67,108,864"
    ):
        await agent.submit("x" * 2**26)
    assert await _kept(agent.store) == []
    handle = await agent.submit("a", at=datetime(2020, 1, 1, tzinfo=UTC), run_id="past")
    assert (await execute(agent, "", "past")).did == "executed"
    with pytest.raises(TimeoutError, match=r"is queued after 0.01 seconds"):
        await (await agent.submit("b")).wait(0.01)
    assert (await handle.wait()).output == "a"
