"""`graphagent draw`: from modules and files, as Mermaid and SVG, and what it refuses."""

from __future__ import annotations

import pytest

PROGRAM = """
from graphagent import Agent, END, START, Context, Strategy, node

print("this is printed while it is imported")

@node
async def shout(ctx: Context, text: str) -> str:
    return text.upper()

loud = Strategy("loud", START >> shout >> END)
agent = Agent(loud)
number = 3

def make() -> Strategy[str, str]:
    return Strategy("made", START >> shout >> END)

def make_agent() -> "Agent[str, str]":
    return agent

def wants(something) -> Strategy[str, str]:
    return loud

def name() -> str:
    return loud.name

def _hidden() -> Strategy[str, str]:
    return loud
"""


@pytest.fixture
def program(home):
    """A program with a strategy, one that is made, and an agent."""
    (home / "program.py").write_text(PROGRAM)
    return home / "program.py"


@pytest.mark.parametrize(
    "target",
    [
        "program.py:loud",
        "program.py:make",
        "program.py:agent",
        "program.py:make_agent",
        "program:loud",
        "program.py",
        "./program.py:loud",
    ],
)
def test_a_program_of_ones_own_is_drawn(run, program, target):
    """By file or by module, a strategy, what makes one, an agent, or the only one there is; and nothing else is printed."""
    ended = run("draw", target)
    assert ended.code == 0, ended.err
    assert ended.out.startswith("flowchart TD\n")
    assert '"shout"' in ended.out


def test_a_picture_goes_into_a_file(run, program, home):
    """The format is what the file's name says, or what is asked for."""
    assert run("draw", "program.py:loud", "--out", "loud.svg").out == ""
    assert (home / "loud.svg").read_text().startswith("<svg")
    run("draw", "program.py:loud", "--out", "loud.txt")
    assert (home / "loud.txt").read_text().startswith("flowchart")
    assert run("draw", "program.py:loud", "--format", "svg").out.startswith("<svg")
    assert "cannot be written" in run("draw", "program.py:loud", "--out", "no/folder/x.svg").said


@pytest.mark.parametrize("name", ["loud.png", "loud.PNG", "loud.pdf", "loud.jpeg", "loud.v2"])
@pytest.mark.parametrize("form", [[], ["--format", "svg"], ["--format", "mermaid"]])
def test_a_picture_of_another_format_is_refused_before_anything_is_written(run, program, home, name, form):
    """No file gets the name of a format that it does not have; the error names those that there are, and how to convert one."""
    ended = run("draw", "program.py:loud", "--out", name, *form)
    assert (ended.code, ended.out) == (2, "")
    assert "is drawn as SVG (.svg) or Mermaid (.mmd, .mermaid, .md, .txt)" in ended.said
    assert (
        "graphagent draw program.py:loud --out loud.svg, then for example rsvg-convert loud.svg -o loud.png"
        in ended.said
    )
    assert "this is printed" not in ended.err  # the program is not even imported
    assert not (home / name).exists()


def test_a_format_that_the_name_of_the_file_denies_is_refused(run, program, home):
    """Mermaid in a file called .svg would be opened as a broken picture."""
    ended = run("draw", "program.py:loud", "--out", "loud.svg", "--format", "mermaid")
    assert ended.code == 2
    assert "the suffix of 'loud.svg' does not fit the format 'mermaid'" in ended.said
    assert not (home / "loud.svg").exists()
    assert run("draw", "program.py:loud", "--out", "loud", "--format", "svg").code == 0
    assert (home / "loud").read_text().startswith("<svg")


def test_a_markdown_file_has_a_block_of_mermaid(run, program, home):
    """So pages that render Mermaid show it."""
    run("draw", "program.py:loud", "--out", "loud.md")
    lines = (home / "loud.md").read_text().splitlines()
    assert (lines[0], lines[1], lines[-1]) == ("```mermaid", "flowchart TD", "```")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere.at.all:x", "there is no module 'nowhere'"),
        ("json.nowhere:x", "there is no module 'json.nowhere'"),
        ("nowhere.py:x", "there is no Python file 'nowhere.py'"),
        ("program.py:quiet", "has no 'quiet'; strategies in it: agent, loud, make, make_agent"),
        ("program.py:number", "is an int, and no strategy; in it are: agent, loud, make, make_agent"),
        (
            "graphagent_strategies:nope",
            "has no 'nope'; strategies in it: chat, personal, plan_and_execute, react, reflect, research, single_run",
        ),
        (
            "graphagent_strategies",
            "exactly one strategy; write graphagent_strategies:NAME (there: chat, personal, plan_and_execute, react, reflect, research, single_run, verify_with_retry)",
        ),
        ("", "'' names neither a module nor a Python file"),
        (":loud", "'' names neither a module nor a Python file"),
        ("..program:loud", "'..program' names neither a module nor a Python file"),
        ("program.py:wants", "cannot be called without arguments: wants() missing 1"),
        ("program.py:wants", "strategies in 'program.py': agent, loud, make, make_agent"),
        ("json", "does not hold exactly one strategy; write json:NAME (there: none)"),
    ],
)
def test_what_cannot_be_drawn_is_named(run, program, target, said):
    """The error says what is missing, and what there is."""
    ended = run("draw", target)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.said


def test_an_error_in_the_program_is_its_own(run, home):
    """What a program raises while it is imported comes through, so that its author sees where."""
    (home / "broken.py").write_text("import nowhere_to_be_found\n")
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        run("draw", "broken.py:x")


@pytest.mark.parametrize("place", ["own.py", "own"])
def test_a_program_is_loaded_without_the_arguments_of_the_command(run, home, place):
    """A script that reads them as its own would do something else."""
    (home / "own.py").write_text(f"import sys\nassert sys.argv == [{place!r}], sys.argv\n{PROGRAM}")
    assert run("draw", f"{place}:loud").code == 0


def test_a_program_that_ends_when_it_is_loaded_is_named(run, home):
    """The error says what to write."""
    (home / "ending.py").write_text(f"{PROGRAM}\nraise SystemExit(3)\n")
    ended = run("draw", "ending.py:loud")
    assert (ended.code, ended.out) == (2, "")
    assert "if __name__ == '__main__'" in ended.said
