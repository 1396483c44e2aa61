"""The benchmarks run, and what they compute from their measurements is right. No test asserts a time."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import durable, journal, locomo, measure, notes, tasks, weights
from benchmarks.__main__ import NAMES, ON_SERVERS, page_of
from tests import forkserver
from tests.thorough import some

HOME = Path(__file__).parents[1]


def run(*arguments):
    """Run the benchmarks as a user does."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return forkserver.run(command, cwd=HOME, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.parametrize("name", some([*NAMES, *ON_SERVERS], 1))
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
    assert run("locomo", "--quick", "--write").returncode == 2
    assert run("recall", "--quick", "--write").returncode == 2


def test_the_quality_of_recall_is_measured_without_the_data():
    """A made-up conversation serves; without it, the file of the data has to be named."""
    ended = run("locomo", "--quick")
    assert ended.returncode == 0, ended.stderr
    assert "no embedder" in ended.stdout
    assert run("locomo").returncode == 2


def test_the_weights_are_fitted_quickly_without_being_written():
    """A small part of the material shows that it runs, and leaves the code as it is."""
    before = weights.FILE.read_text("utf-8")
    ended = run("recall", "--fit", "--quick")
    assert ended.returncode == 0, ended.stderr
    assert "| lexical | " in ended.stdout
    assert "local, leave one out" in ended.stdout
    assert weights.FILE.read_text("utf-8") == before


def test_a_soak_tells_of_memory_files_and_threads():
    """It prints a table whose first line is from before anything was done, shows how far it is, and is written by choice only."""
    ended = run("soak", "--quick", "--owners", "3")
    assert ended.returncode == 0, ended.stderr
    head, _, first, *rest = [line for line in ended.stdout.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in head.split("|")[1:-1]] == [
        "after", "owners served", "memory", "open files", "threads",
    ]  # fmt: skip
    assert first.startswith("| 0 s | 0 |")
    assert len(rest) > 0
    assert ended.stderr.count("\n") == 1 + len(rest)
    assert run("soak", "--quick", "--write").returncode == 2


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["D8:6; D9:17"], ["D8:6", "D9:17"]),
        (["D30:05", "D:11:26"], ["D30:5", "D11:26"]),
        (["D1:3 D1:4", "none"], ["D1:3", "D1:4"]),
    ],
)
def test_evidence_is_read_in_all_its_spellings(texts, names):
    """Some of it is run together, some has zeros or colons too many."""
    assert locomo.evidence(texts) == names


def test_a_picture_is_what_its_caption_says():
    """It comes after the text."""
    data = {"text": "Look!", "speaker": "Ada", "dia_id": "D1:1", "blip_caption": "a photo of a dog"}
    turn = locomo.turn(data, locomo.moment("1:56 pm on 8 May, 2023"))
    assert (turn.text, turn.at.isoformat()) == ("Look! [image: a photo of a dog]", "2023-05-08T13:56:00+00:00")


def block_of(name):
    """Give what a benchmark wrote into the page."""
    page = page_of(name).read_text("utf-8")
    [block] = re.findall(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", page, re.DOTALL)
    return block


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_every_benchmark(name):
    """Its page has a table for each, and the command that made it."""
    block = block_of(name)
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


async def test_each_question_is_asked_of_all_in_turn():
    """Noise hits them alike. The first questions are asked once more before, which is not measured."""
    calls = []

    async def first(question):
        calls.append(f"a{question}")

    async def second(question):
        calls.append(f"b{question}")

    took = await notes.interleaved({"a": first, "b": second}, "12")
    assert calls == ["a1", "a2", "b1", "b2", "a1", "b1", "a2", "b2"]
    assert {name: len(seconds) for name, seconds in took.items()} == {"a": 2, "b": 2}


def test_a_ratio_to_fts5_is_that_of_the_medians():
    """Outliers do not count."""
    assert notes.ratio([1.0, 3.0, 90.0], [2.0, 0.5, 2.0]) == "1.50 ×"


async def test_vectors_of_words_add_up_to_that_of_their_text():
    """The embedder that costs nothing makes the same vectors with and without those of words."""
    adding = notes.Adding()
    vectors, of_words = await adding.embed_words(["one two two", "three"])
    assert (vectors == await adding.embed(["one two two", "three"])).all()
    assert [each.shape for each in of_words] == [(3, 256), (1, 256)]
    assert (of_words[0][1] == of_words[0][2]).all()


async def test_an_engine_that_counts_wrongly_is_refused(anyio_backend):
    """What is measured is checked to do the task."""

    async def nothing():
        return 0

    lazy = tasks.Engine("lazy", "1", loop=nothing, chain=nothing, fan_out=nothing, runs=nothing, build=int)
    with pytest.raises(AssertionError, match="loop counted to 0 and not to 20 in lazy"):
        await tasks.measure(lazy, tasks.SMALL, measure.QUICK)


GROWN = f"""| a | b |
| --- | ---: |
| c | d |

| {journal.GROWN} | 1,000 | 4,000 |
| --- | ---: | ---: |
| bare sqlite3 3.40.1 | 300 KB | 1.20 MB |
| graphagent 1.0 | 400 KB | 1.60 MB |
| LangGraph 1.2 | 128 MB | 2.00 GB |
| LangGraph, DeltaChannel (beta) 1.2 | 4.00 MB | 41.0 MB |
| Burr 0.43.0 | 132 MB |  |
| target |  | ≤ 2 MB |
"""


def test_the_picture_of_the_journal_is_what_the_page_says():
    """It is drawn from the table, again and again the same, and the page shows it."""
    for file, picture in journal.pictures(block_of("journal")).items():
        there = (HOME / "docs" / "pictures" / file).read_text("utf-8")
        assert there == picture, f"{file} shows other figures; python -m benchmarks journal --write draws it"
        assert f"](pictures/{file})" in (HOME / "docs" / "performance.md").read_text("utf-8")


def test_a_line_is_drawn_to_scale():
    """Ten times as many bytes are as far up everywhere, and a shorter line ends where its figures end."""
    root = ElementTree.fromstring(journal.pictures(GROWN)["growth.svg"])
    shapes = root.findall("{http://www.w3.org/2000/svg}circle")
    places = {}
    for shape in shapes:
        places.setdefault(shape.get("class"), []).append((float(shape.get("cx")), float(shape.get("cy"))))
    assert {look: len(each) for look, each in places.items()} == {
        "bare": 2, "ours": 2, "first": 2, "second": 2, "third": 1,
    }  # fmt: skip
    decade = places["ours"][0][1] - places["second"][0][1]  # 400 KB and 4 MB
    assert places["ours"][0][1] - places["ours"][1][1] == pytest.approx(decade * 0.602, abs=0.2)
    assert places["third"][0][0] == places["first"][0][0]
    assert all(0 < x < 640 and 0 < y < 400 for each in places.values() for x, y in each)


def test_labels_do_not_cover_one_another():
    """Lines that end at one place have labels one above the other."""
    same = GROWN.replace("1.60 MB", "1.20 MB").replace("41.0 MB", "1.20 MB")
    root = ElementTree.fromstring(journal.pictures(same)["growth.svg"])
    names = [each for each in root.findall("{http://www.w3.org/2000/svg}text") if each.get("class") is None]
    heights = sorted(float(each.get("y")) for each in names if each.get("text-anchor") == "start")
    assert len(heights) == 4
    assert all(after - before >= 15 for before, after in pairwise(heights))


ORDER = durable.Order("rewrite", "", "NORMAL", runs=2, steps=3, size=2000)


@pytest.mark.parametrize("work", durable.WORKS)
def test_bare_sqlite_does_the_work(work, tmp_path):
    """It is measured with every work, and what it keeps is in its file."""
    order = replace(ORDER, work=work, path=str(tmp_path / "runs.db"))
    took = asyncio.run(durable.WORKS[work](durable.bare, order))
    assert took.wall > 0
    assert took.bytes > (600 if work == "grow" else 12_000)
    assert (took.resume > 0) is (work == "grow")


def test_an_engine_that_keeps_nothing_is_refused(tmp_path):
    """Steps that are not in the file do not count."""

    class Forgetful:
        def rewriting(self, steps, size):
            async def execute(run):
                return steps

            return execute

    @asynccontextmanager
    async def opened(path, synchronous):
        yield Forgetful()

    with pytest.raises(AssertionError, match="a file of 0 bytes cannot hold"):
        asyncio.run(durable.WORKS["rewrite"](opened, replace(ORDER, path=str(tmp_path / "runs.db"))))


def test_an_engine_that_ends_is_named():
    """A worker that gives no answer ends the measurement."""
    with pytest.raises(SystemExit, match="nobody ended with 1 and no answer"):
        journal.Worker(journal.Engine("nobody", "nowhere", "bare"))


@pytest.mark.parametrize(
    ("count", "text"), [(950, "0.95 KB"), (86_016, "86.0 KB"), (1_183_744, "1.18 MB"), (2_012_282_880, "2.01 GB")]
)
def test_bytes_are_written_in_their_unit(count, text):
    """Three digits are told."""
    assert measure.weight(count) == text
