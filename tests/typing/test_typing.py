"""The types that strategies infer, and the errors that wrong ones are, under mypy and pyright alike."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = [HERE / name for name in ("right.py", "wrong.py", "blocking_right.py", "blocking_wrong.py")]
CONTRACT = ROOT.parent / "shared" / "contract" / "typing_shape.py"
if CONTRACT.exists():
    FILES.append(CONTRACT)

Found = dict[Path, dict[int, list[str]]]


def run(*command: str) -> str:
    program = subprocess.run(
        [sys.executable, "-m", *command, *map(str, FILES)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert program.returncode in (0, 1), program.stdout + program.stderr
    return program.stdout


def mypy() -> Found:
    """What mypy says, run once over all files."""
    said = run("mypy", "--strict", "--no-error-summary", "--hide-error-context")
    found: Found = {}
    for path, line, message in re.findall(r"^(.+?):(\d+): error: (.*)$", said, re.MULTILINE):
        found.setdefault((ROOT / path).resolve(), {}).setdefault(int(line), []).append(message)
    return found


def pyright() -> Found:
    """What pyright says, run once over all files."""
    report = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable))
    assert report["summary"]["filesAnalyzed"] == len(FILES), report["summary"]
    found: Found = {}
    for each in report["generalDiagnostics"]:
        if each["severity"] == "error":
            line = each["range"]["start"]["line"] + 1
            found.setdefault(Path(each["file"]).resolve(), {}).setdefault(line, []).append(each["message"])
    return found


def expected(path: Path) -> set[int]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, start=1) if re.search(r"# E(: .*)?$", line)}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_exactly_the_marked_lines_are_errors(checker: Callable[[], Found]):
    """A checker objects to the lines marked E, and to no other, in any of the files."""
    found = checker()
    surplus = {
        f"{path.name}, line {line}": said
        for path in FILES
        for line, said in found.get(path.resolve(), {}).items()
        if line not in expected(path)
    }
    missing = [(path.name, line) for path in FILES for line in expected(path) - found.get(path.resolve(), {}).keys()]
    assert (surplus, missing) == ({}, [])


def test_there_is_something_to_object_to():
    """The files of this test hold marked lines where they should, so that it can fail."""
    assert not expected(HERE / "right.py")
    assert len(expected(HERE / "wrong.py")) > 40
