"""The pictures of strategies in the documentation are what `to_svg()` draws today.

`python -m tests.test_pictures` draws them again. A picture `docs/pictures/helper.svg` is that of the strategy that is called
`helper` in the Python blocks of the page that shows it.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from graphagent import Strategy
from scripts import drawings
from tests.test_docs import PAGES, _blocks, _run, _runnable

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
DRAWINGS = {"compiled", "entries", "remembered", "resumed", "memory_server", "spans"}  # drawn by scripts/drawings.py
OTHERS = DRAWINGS | {
    "growth",  # drawn from a table of figures, with which tests/test_benchmarks.py compares it
    "killed",  # a recorded terminal, which tests/test_terminal.py records again
}
SHOWN = {
    page: [name for name in re.findall(r"pictures/(\w+)\.svg", path.read_text("utf-8")) if name not in OTHERS]
    for page, path in PAGES.items()
}


def _drawn(page, monkeypatch):
    """Run a page and give the pictures that it shows, as they are drawn now."""
    names = _run(_runnable(_blocks(PAGES[page].read_text("utf-8"))), str(PAGES[page]), monkeypatch)
    for name in SHOWN[page]:
        assert isinstance(names[name], Strategy), name
    return {name: names[name].to_svg() for name in SHOWN[page]}


@pytest.mark.parametrize("page", [page for page, names in SHOWN.items() if names])
def test_a_page_shows_what_is_drawn(page, tmp_path, monkeypatch):
    """Each picture is the one that its strategy gives."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHAGENT_KEY", "")  # a page sets it; this puts it back
    for name, picture in _drawn(page, monkeypatch).items():
        there = (FOLDER / f"{name}.svg").read_text("utf-8")
        assert there == picture, f"{name}.svg is another picture; python -m tests.test_pictures draws it again"


def test_pages_are_drawn_as_it_works():
    """The drawings of how it works and of the memory server are made of a strategy, a run, a prompt and calls of today."""
    drawn = drawings.pictures()
    there = {name: (FOLDER / f"{name}.svg").read_text("utf-8") for name in drawn}
    assert set(drawn) == DRAWINGS
    assert there == drawn, "python -m scripts.drawings draws them again"
    for svg in drawn.values():
        ElementTree.fromstring(svg)


def test_every_picture_is_shown():
    """No picture is left over, and none is missing."""
    assert {path.stem for path in FOLDER.glob("*.svg")} - OTHERS == {name for names in SHOWN.values() for name in names}


def test_pictures_of_the_inspector_are_small_and_shown():
    """Each that the script takes is on a page, and no other; none is too large to be loaded with it."""
    pytest.importorskip("playwright", reason="Playwright drives the browser")
    from scripts import screenshots

    there = {path.stem: path.stat().st_size for path in FOLDER.glob("*.png")}
    shown = {name for path in PAGES.values() for name in re.findall(r"pictures/(\w+)\.png", path.read_text("utf-8"))}
    assert there.keys() == shown == {shot.name for shot in screenshots.SHOTS}
    assert max(there.values()) <= screenshots.MOST


if __name__ == "__main__":
    for shown_on, shown in SHOWN.items():
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)  # each page has one of its own, as in the tests
            for drawn_name, svg in (_drawn(shown_on, patch) if shown else {}).items():
                (FOLDER / f"{drawn_name}.svg").write_text(svg, "utf-8")
