"""The benchmarks run, and what they compute from their measurements is right. No test asserts a time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import measure, tasks
from benchmarks.__main__ import NAMES

HOME = Path(__file__).parents[1]


def run(*arguments):
    """Run the benchmarks as a user does."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs(name):
    """With tiny sizes, each prints at least one Markdown table whose lines all have as many cells."""
    ended = run(name, "--quick")
    assert ended.returncode == 0, ended.stderr
    tables = [block.splitlines() for block in ended.stdout.strip().split("\n\n") if block.startswith("|")]
    assert tables
    for lines in tables:
        assert len(lines) > 2
        assert {line.count("|") for line in lines} == {lines[0].count("|")}


def test_quick_figures_are_not_written():
    """What was measured with tiny sizes cannot get into the documentation."""
    assert run("imports", "--quick", "--write").returncode == 2


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_every_benchmark(name):
    """docs/performance.md has a table for each, and the command that made it."""
    page = (HOME / "docs" / "performance.md").read_text("utf-8")
    [block] = re.findall(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", page, re.DOTALL)
    assert block.startswith("| ")
    assert f"`python -m benchmarks {name}`" in block


def test_a_figure_is_of_medians():
    """The ratio is the median of the rounds' ratios, and what was measured is shared among the units."""
    found = measure.figure([2.0, 8.0, 30.0], [1.0, 2.0, 10.0], units=2)
    assert (found.seconds, found.p90, found.bare, found.ratio) == (4.0, 15.0, 1.0, 3.0)


async def test_works_are_measured_in_turn():
    """Every round executes every work, in alternating order, with a clock that the caller chooses."""
    calls = []

    async def first():
        calls.append("a")

    async def second():
        calls.append("b")

    took = await measure.alternate({"a": first, "b": second}, measure.QUICK, clock=iter(range(0, 99, 3)).__next__)
    assert took == {"a": [3, 3], "b": [3, 3]}
    assert calls[-4:] == ["a", "b", "b", "a"]


async def test_an_engine_that_counts_wrongly_is_refused(anyio_backend):
    """What is measured is checked to do the task."""

    async def nothing():
        return 0

    lazy = tasks.Engine("lazy", "1", loop=nothing, chain=nothing, fan_out=nothing, runs=nothing, build=int)
    with pytest.raises(AssertionError, match="loop counted to 0 and not to 20 in lazy"):
        await tasks.measure(lazy, tasks.SMALL, measure.QUICK)
