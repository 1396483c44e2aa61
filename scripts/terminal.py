"""Records a terminal in which a program is killed and started again, and draws it as `docs/pictures/killed.svg`.

`python -m scripts.terminal` does it. The shell, the program (`examples/invoices.py`) and the signal are real. A test records the
session again and fails if it prints anything else than the picture shows.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from html import escape, unescape
from itertools import pairwise
from pathlib import Path

import pexpect

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "pictures" / "killed.svg"
PROMPT = "$ "
START = "python examples/invoices.py"
KILLED_AFTER = "model: pay Edsger 95 euros"
KILLED = "Killed"
"""What the shell prints for a program that SIGKILL ended."""
CUT = f"{KILLED_AFTER}\n{KILLED}\n{PROMPT}{START}\n  bank:  paid Edsger 95 euros"
"""A payment that the model had asked for is cut short, and made when the program is started again."""
RESULT = "The bank has booked:"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a recorded terminal."""

    seconds: float
    """When it appeared, counted from the first line."""
    text: str


def record(*, pause: float = 0.0) -> list[Line]:
    """Record the session, with an empty folder for temporary files.

    Args:
        pause: Seconds that a person takes before each command.
    """
    lines: list[Line] = []
    for seconds in (0.8, 1.6, 3.2, 6.4, 12.8):
        with tempfile.TemporaryDirectory() as folder:
            lines = _session(Path(folder), seconds, pause)
        # The signal should arrive after the model's turn is committed and before the payment is made. A busy machine may
        # be late with either; a slower bank leaves it more time.
        if CUT in "\n".join(line.text for line in lines):
            return lines
    return lines


def _session(folder: Path, seconds: float, pause: float) -> list[Line]:
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "temporary").mkdir()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PS1": PROMPT,
        "TERM": "dumb",
        "TMPDIR": str(folder / "temporary"),
        "LC_ALL": "C.UTF-8",
        "SECONDS_PER_PAYMENT": str(seconds),
    }
    shell: pexpect.spawn[str] = pexpect.spawn(
        "bash", ["--norc", "--noprofile", "--noediting", "-i"],
        cwd=str(folder), env=environment, encoding="utf-8", timeout=600, dimensions=(40, 100),
    )  # fmt: skip
    shell.delaybeforesend = pause
    clock = _Clock()
    shell.logfile_read = clock
    shell.expect_exact(PROMPT)
    shell.sendline(START)
    shell.expect_exact(KILLED_AFTER)
    time.sleep(seconds / 2)
    os.killpg(os.tcgetpgrp(shell.child_fd), signal.SIGKILL)
    shell.expect_exact(f"\n{PROMPT}")
    shell.sendline(START)
    shell.expect_exact(f"\n{PROMPT}")
    shell.close(force=True)
    return clock.lines()


class _Clock:
    """Notes when each piece of text arrives."""

    def __init__(self) -> None:
        self._pieces: list[tuple[float, str]] = []

    def write(self, text: str) -> None:
        self._pieces.append((time.monotonic(), text))

    def flush(self) -> None:
        """Do nothing: pexpect calls it after each piece."""

    def lines(self) -> list[Line]:
        """Return the lines up to the last prompt, each with the time of its last letter."""
        lines: list[tuple[float, str]] = []
        rest = ""
        for when, piece in self._pieces:
            *ended, rest = (rest + piece).split("\r\n")
            lines += ((when, text) for text in ended)
        return [Line(round(when - lines[0][0], 1), text) for when, text in lines]


# The picture

WIDTH, LEADING, MARGIN, TOP = 420, 20, 18, 50
NOTES = {KILLED: "kill -9, from another terminal"}
TITLE = "Killed in mid-run and started again: nothing is done twice"
_STYLE = """
.t{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace}
.t rect{fill:#f8f9fb;stroke:#c9d0db}
.t text{fill:#1d2433;white-space:pre}
.t .bar{fill:#687386;font:12px ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
.t line{stroke:#c9d0db}
.t .typed{font-weight:600}
.t .prompt{fill:#1f7a6c}
.t .killed{fill:#c2453d;font-weight:600}
.t .note{fill:#687386;font-style:italic;font-weight:400}
@media (prefers-color-scheme:dark){
.t rect{fill:#171b24;stroke:#3a4356}
.t text{fill:#e6e9ef}
.t .bar{fill:#9aa4b5}
.t line{stroke:#3a4356}
.t .prompt{fill:#5cc2b1}
.t .killed{fill:#ee7d74}
.t .note{fill:#9aa4b5}
}
@media (prefers-reduced-motion:no-preference){
.t .line{animation:appear .1s both}
@keyframes appear{from{opacity:0}}
}
"""
_LINE = re.compile(
    r'<text class="line" [^>]*style="animation-delay:([\d.]+)s"[^>]*>(.*?)(?:<tspan class="note".*)?</text>'
)


def draw(lines: list[Line]) -> str:
    """Draw a recorded terminal as a stand-alone SVG picture.

    Lines appear when they did in the recording. Where animations are unknown or unwanted, all are visible from the start. The
    picture follows the reader's light or dark scheme.
    """
    height = TOP + LEADING * len(lines) + MARGIN - 4
    shown = "".join(_text(line, TOP + LEADING * at + 13) for at, line in enumerate(lines))
    whole = escape("\n".join(line.text for line in lines))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="t" role="img" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}">'
        f"<title>{TITLE}</title><desc>{whole}</desc><style>{_STYLE}</style>\n"
        f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>'
        f'<text class="bar" x="{MARGIN}" y="24">{TITLE}</text>'
        f'<line x1="0" y1="38" x2="{WIDTH}" y2="38"/>\n{shown}</svg>\n'
    )


def _text(line: Line, y: int) -> str:
    content = escape(line.text)
    if line.text.startswith(PROMPT):
        content = (
            f'<tspan class="prompt">$</tspan> <tspan class="typed">{escape(line.text.removeprefix(PROMPT))}</tspan>'
        )
    elif line.text in NOTES:
        note = f'<tspan class="note" x="{WIDTH - MARGIN}" text-anchor="end">{escape(NOTES[line.text])}</tspan>'
        content = f'<tspan class="killed">{content}</tspan>{note}'
    return f'<text class="line" x="{MARGIN}" y="{y}" style="animation-delay:{line.seconds}s">{content}</text>\n'


def read(svg: str) -> list[Line]:
    """Read the lines that a picture shows."""
    return [Line(float(seconds), unescape(re.sub(r"<[^>]+>", "", text))) for seconds, text in _LINE.findall(svg)]


def shortened(lines: list[Line], most: float = 1.0) -> list[Line]:
    """Return lines that wait for each other at most so many seconds, such as for Python to start."""
    seconds, shorter = 0.0, []
    for before, line in pairwise([lines[0], *lines]):
        seconds += min(line.seconds - before.seconds, most)
        shorter.append(Line(round(seconds, 1), line.text))
    return shorter


if __name__ == "__main__":
    FILE.write_text(draw(shortened(record(pause=1.2))), "utf-8")
