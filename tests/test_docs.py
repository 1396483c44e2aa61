"""Everything that the documentation shows runs, and prints what it says it prints.

The blocks of one page run in order and share their names, in an empty folder; those of a docstring know the names of its
module. `await` may stand at the top, as in a notebook. A block fenced as `text title="output"` right behind a Python block
is what that block prints; in it `…` stands for anything within a line. `<!-- not run: reason -->` above a block leaves it
out. In `console` and `bash` blocks, lines that begin with `$ graphagent` must be commands that exist.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import inspect
import io
import linecache
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import anyio
import pytest
from platformdirs import user_cache_path, user_data_path
from typer.main import get_command

from graphagent.cli._app import app
from scripts import journal, reference
from tests import forkserver

HOME = Path(__file__).parents[1]
PAGES = {path.relative_to(HOME).as_posix(): path for path in [HOME / "README.md", *sorted(HOME.glob("docs/**/*.md"))]}
MODULES = {
    path.relative_to(home).with_suffix("").as_posix().removesuffix("/__init__").replace("/", "."): path
    for home, package in ((HOME, "graphagent"), (HOME / "strategies", "graphagent_strategies"))
    for path in sorted((home / package).rglob("*.py"))
}
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+?) -->\n+)?"
    r"(?P<indent>[ ]*)(?P<fence>`{3,})(?P<language>\w*)(?P<info>[^\n]*)\n(?P<code>.*?)^(?P=indent)(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
OUTPUT = 'title="output"'


@dataclass
class Block:
    """A fenced block: its language, text and first line, and for Python the output that is shown for it."""

    language: str
    code: str
    line: int
    left_out: str | None
    output: str | None = None


def _blocks(text):
    """Read the fenced blocks of a page, joining each shown output to the block that prints it."""
    blocks, end = [], 0
    for found in FENCE.finditer(text):
        code = inspect.cleandoc(f"\n{found['code']}") if found["indent"] else found["code"]
        if OUTPUT in found["info"]:
            behind = blocks and blocks[-1].language == "python" and not text[end : found.start()].strip()
            assert behind, f"an output stands behind no Python block: {code!r}"
            blocks[-1].output = code
        else:
            line = text.count("\n", 0, found.start("code")) + 1
            blocks.append(Block(found["language"], code, line, found["reason"]))
        end = found.end()
    return blocks


def _runnable(blocks):
    return [block for block in blocks if block.language == "python" and not block.left_out]


def _run(blocks, file, monkeypatch, names=()):
    """Run Python blocks as one program that calls itself `file`, compare what they print, and give its names."""
    program = ModuleType("__main__")
    vars(program).update(names, __name__="__main__")
    monkeypatch.setitem(sys.modules, "__main__", program)
    for block in blocks:
        # Padded, so that a traceback names the line of the page; functions find their source in the page itself.
        tree = ast.parse("\n" * (block.line - 1) + block.code, file)
        code = compile(tree, file, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            ended = eval(code, vars(program))
            if inspect.iscoroutine(ended):
                anyio.run(_finish, ended)
        if block.output is not None:
            _compare(printed.getvalue(), block.output, f"{file}, line {block.line}")
    return vars(program)


async def _finish(coroutine):
    await coroutine


def _compare(printed, shown, where):
    expected = [".*".join(map(re.escape, line.split("…"))) for line in shown.rstrip().splitlines()]
    found = printed.rstrip().splitlines()
    fits = len(found) == len(expected) and all(map(re.fullmatch, expected, found))
    assert fits, f"{where} prints\n{printed}\nand not\n{shown}"


def _docstrings(path):
    """Give the docstrings of a file, those under fields too, with the line each begins at."""
    for part in ast.walk(ast.parse(path.read_text("utf-8"))):
        match part:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield inspect.cleandoc(text), part.lineno


@pytest.fixture
def away(tmp_path, monkeypatch):
    """An empty working folder, no data of another page, and no key in the environment, which is put back as it was."""
    before = dict(os.environ)
    monkeypatch.chdir(tmp_path)
    os.environ["XDG_DATA_HOME"] = str(tmp_path / "data")
    for name in ("OPENAI_API_KEY", "GRAPHAGENT_KEY", "GRAPHAGENT_HOME"):
        os.environ.pop(name, None)
    yield monkeypatch
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page, away):
    """Its Python blocks run in order and print what the page shows."""
    blocks = _blocks(PAGES[page].read_text("utf-8"))
    _run(_runnable(blocks), str(PAGES[page]), away)


CELLS = {page: _runnable(_blocks(path.read_text("utf-8"))) for page, path in PAGES.items()}
PROGRAM = "\n".join(block.code for block in CELLS["README.md"])
SCRIPTS = ("README.md", "docs/index.md", "docs/start.md")


@pytest.mark.parametrize("page", [*SCRIPTS, "docs/smolagents.md"])
def test_a_page_for_notebooks_runs_in_one(page, away):
    """Its blocks are cells, in a loop that is running already; each prints what the page shows."""
    program = ModuleType("__main__")
    away.setitem(sys.modules, "__main__", program)

    async def cells():
        for number, block in enumerate(CELLS[page]):
            file = f"<cell {page} {number}>"
            linecache.cache[file] = (len(block.code), None, block.code.splitlines(keepends=True), file)
            code = compile(block.code, file, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                ended = eval(code, vars(program))
                if inspect.iscoroutine(ended):
                    await ended
            if block.output is not None:
                _compare(printed.getvalue(), block.output, file)

    anyio.run(cells)


@pytest.mark.parametrize("page", SCRIPTS)
def test_a_page_for_scripts_runs_as_one(page, tmp_path):
    """Its blocks, one after the other in a file, are a program without warnings, today and again tomorrow."""
    (tmp_path / "page.py").write_text("\n".join(block.code for block in CELLS[page]), "utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    for _ in range(2):
        ended = forkserver.run(
            [sys.executable, "-W", "error", "page.py"],
            cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (ended.returncode, ended.stderr) == (0, "")
        _compare(ended.stdout, "".join(block.output or "" for block in CELLS[page]), page)


@pytest.mark.thorough
def test_readme_is_typed(tmp_path):
    """The same program is clean under `mypy --strict`."""
    file = tmp_path / "readme.py"
    file.write_text(PROGRAM, "utf-8")
    said = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(file)], cwd=HOME, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.fixture(scope="module")
def command():
    """The command, made once."""
    return get_command(app)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_exist(page, command):
    """Each `$ graphagent …` line is a command with options that it knows."""
    for block in _blocks(PAGES[page].read_text("utf-8")):
        if block.language not in {"console", "bash"} or block.left_out:
            continue
        for line in re.findall(r"^\$ graphagent\b(.*)$", block.code.replace("\\\n", " "), re.MULTILINE):
            words = shlex.split(re.split(r" [|>&]", line)[0], comments=True)
            told = io.StringIO()
            with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told), pytest.raises(SystemExit) as ended:
                command([*words, "--help"])
            assert ended.value.code == 0, f"{page}: graphagent{line}\n{told.getvalue()}"


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_docstrings_run(module, away):
    """`>>>` lines give what stands below them, and fenced Python runs; both know the names of their module."""
    file = str(MODULES[module])
    for text, line in _docstrings(MODULES[module]):
        blocks = _runnable(_blocks(text))
        if not blocks and ">>>" not in text:
            continue
        names = vars(importlib.import_module(module))
        for block in blocks:
            block.line += line - 1
        _run(blocks, file, away, names)
        said = []
        lines = doctest.DocTestParser().get_doctest(text, dict(names), module, file, line - 1)
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(lines, out=said.append).failed == 0, "".join(
            said
        )


def test_nothing_goes_into_the_folders_of_the_person_who_tests():
    """What is cached and kept by default goes into a folder of this run, from other processes too."""
    told = "import platformdirs as p; print(p.user_cache_path('graphagent'), p.user_data_path('graphagent'), sep='\\n')"
    there = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.splitlines()
    assert there == [str(user_cache_path("graphagent")), str(user_data_path("graphagent"))]
    assert all(path.startswith(str(Path(tempfile.gettempdir()) / "graphagent-tests-")) for path in there)
    assert "GRAPHAGENT_HOME" not in os.environ


def test_few_blocks_are_left_out():
    """Almost all that is shown runs; what does not says why."""
    left_out = [
        f"{page}, line {block.line}: {block.left_out}"
        for page, path in PAGES.items()
        for block in _blocks(path.read_text("utf-8"))
        if block.left_out
    ]
    assert len(left_out) <= 6, left_out


def test_every_python_block_is_found():
    """No block is missed by the way it is written: each line that opens Python is the head of a block."""
    for page, path in PAGES.items():
        text = path.read_text("utf-8")
        opened = len(re.findall(r"^\s*(?:```+|~~~+)\s*(?:python|py)\b", text, re.MULTILINE))
        assert opened == sum(block.language == "python" for block in _blocks(text)), page


def test_the_page_of_words_has_each_word_once():
    """Where a word has several meanings, its terms say of what."""
    terms = re.findall(r"\*\*(.+?)\*\*((?: of (?:an? |the )?[\w-]+)*)", PAGES["docs/words.md"].read_text("utf-8"))
    assert len(terms) > 100
    assert [term for term, number in Counter(terms).items() if number > 1] == []
    bare = {word for word, of in terms if not of}
    assert {word for word, of in terms if of} & bare <= {"turn"}


def test_the_page_about_the_journal_lists_the_entries_of_today():
    """Their kinds and fields are those of the classes."""
    assert journal.page(journal.FILE.read_text("utf-8")) == journal.FILE.read_text("utf-8"), "make format writes it"


@pytest.mark.parametrize("file", reference.PAGES, ids=lambda file: file.stem)
def test_a_page_of_the_reference_lists_the_names_of_today(file):
    """With the first sentence of each, and its members, for who reads it as a file."""
    assert reference.page(file.read_text("utf-8")) == file.read_text("utf-8"), "make format writes it"
    assert "\n| `_" not in file.read_text("utf-8"), "a private name"


PAGE = """
```python
import anyio
word = "one"
print(word)
```
```text title="output"
{shown}
```
Between them stands text.

```python
await anyio.sleep(0)
print(word.upper(), id(word))
```

```text title="output"
ONE …
```
<!-- not run: it is wrong -->
```python
raise ValueError
```
"""


def test_a_page_that_shows_what_it_prints_passes(monkeypatch):
    """Names are shared, await stands at the top, … fits anything, and what is left out does not run."""
    blocks = _blocks(PAGE.format(shown="one"))
    assert [(block.left_out, block.output) for block in blocks] == [
        (None, "one\n"),
        (None, "ONE …\n"),
        ("it is wrong", None),
    ]
    _run(blocks[:2], "page.md", monkeypatch)


@pytest.mark.parametrize("shown", ["two", "one\none", "", "on"])
def test_a_page_that_shows_something_else_fails(shown, monkeypatch):
    """The comparison can fail, and says where."""
    with pytest.raises(AssertionError, match=r"page\.md, line 3 prints"):
        _run(_blocks(PAGE.format(shown=shown))[:1], "page.md", monkeypatch)
