"""What every test gets: both event loops, no way to another machine, and folders that are not those of the person who tests."""

from __future__ import annotations

import gc
import os
import runpy
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

OFFLINE = Path(__file__).parent / "offline"

# Once in this process, and at the start of every Python process that a test starts.
runpy.run_path(str(OFFLINE / "sitecustomize.py"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(OFFLINE), os.environ.get("PYTHONPATH")]))

# Background jobs of a shell inherit that Ctrl-C is ignored, and would hand that down to every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes depends on the machine, and on what else it does.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_configure(config):
    """Put what goes to the cache and the data of a user into a folder of this run, before any test file is imported."""
    folder = tempfile.TemporaryDirectory(prefix="graphagent-tests-", ignore_cleanup_errors=True)
    config.add_cleanup(folder.cleanup)
    os.environ.pop("GRAPHAGENT_HOME", None)
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        os.environ[name] = str(Path(folder.name) / name)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    """The event loop that an async test runs on; it runs once on each."""
    return request.param


@pytest.fixture(autouse=True, scope="module")
def collected():
    """Close what the tests of a file left open, so that the number of open files does not grow with that of the tests."""
    yield
    gc.collect()
