"""The terminal that the first page shows is what happens today: a program is killed and started again, and nothing is done twice."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

from scripts import terminal


def test_the_picture_shows_what_the_terminal_shows_today():
    """The session is recorded again, with the same shell, program and signal."""
    shown = [line.text for line in terminal.read(terminal.FILE.read_text("utf-8"))]
    recorded = [line.text for line in terminal.record()]
    assert shown == recorded, "python -m scripts.terminal records docs/pictures/killed.svg again"


def test_the_picture_shows_a_run_that_was_killed_and_did_nothing_twice():
    """Each turn of the model and each payment is printed once, before or after the signal, and the bank has each payment once."""
    lines = [line.text for line in terminal.read(terminal.FILE.read_text("utf-8"))]
    killed, again, result = (lines.index(each) for each in (terminal.KILLED, "All invoices are paid.", terminal.RESULT))
    assert killed < again < result
    work = Counter(line for line in lines[:again] if line.startswith("  "))
    assert set(work.values()) == {1}
    assert len(work) == 8
    assert [line.split()[0] for line in lines[result + 1 :]] == ["Ada", "Grace", "Edsger", "Barbara"]


def test_the_picture_is_drawn_by_the_script():
    """Nobody edited it by hand, its lines appear in order, and it needs no font, script or file from elsewhere."""
    picture = terminal.FILE.read_text("utf-8")
    lines = terminal.read(picture)
    assert terminal.draw(lines) == picture
    assert [line.seconds for line in lines] == sorted(line.seconds for line in lines)
    root = ElementTree.fromstring(picture)
    assert root.get("role") == "img"
    assert root.findtext("{*}desc") == "\n".join(line.text for line in lines)
    assert not [
        part for part in root.iter() if part.tag.rpartition("}")[2] in {"script", "image", "use", "foreignObject"}
    ]
    assert "url(" not in picture
    assert "@import" not in picture
