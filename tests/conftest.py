"""What every test gets: both event loops, and no way to another machine."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

OFFLINE = Path(__file__).parent / "offline"

# Once in this process, and at the start of every Python process that a test starts.
runpy.run_path(str(OFFLINE / "sitecustomize.py"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(OFFLINE), os.environ.get("PYTHONPATH")]))


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    """The event loop that an async test runs on; it runs once on each."""
    return request.param
