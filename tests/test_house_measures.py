"""`make house` measures the structure of the code, and refuses what makes it worse."""

from __future__ import annotations

import tomllib

import pytest

from scripts import house

CODE = """
class Thing:
    def __init__(self): self._own = self.__frame__ = None
    def __aenter__(self): ...
if self._journal is None: ...
kept = store or other
x = thing._own, thing.__frame__, thing.__aenter__, thing._foreign
"""


def source(path, code=CODE):
    return house.Source(house.PACKAGE / path, code)


def test_what_a_file_says_is_counted():
    """By the room it is in: tests of logs, private attributes of other files, kinds of entries, cycles."""
    entries = source("run/_entries.py", "class Finished: ...")
    one = source("run/_one.py", "from graphagent.run import _two\nisinstance(entry, Finished | Other)")
    two = source("run/_two.py", f"from graphagent.run._one import x\n{CODE}\nclass Other:\n    _foreign = 1")
    found = house.places([entries, one, two, source("memory/steps/_x.py"), source("log/log.py")])
    assert {room: {of: len(each) for of, each in measured.items()} for room, measured in found.items()} == {
        "run": {"log-tests": 2, "entry-readers": 1, "largest-cycle": 2},
        "memory/steps": {"private-reaches": 1, "log-tests": 2},
        "log": {"private-reaches": 1, "largest-cycle": 0},
    }
    with pytest.raises(LookupError, match="entries"):
        house.places([one, two])


def test_floors_are_files_in_a_row():
    """Files that import each other stand on one floor, imports for types included."""
    files = [
        source("run/_a.py", "from graphagent.run import _b"),
        source("run/_b.py", "from graphagent.run import _c\nfrom graphagent.log import _x"),
        source("run/_c.py", "from graphagent.run import _b, _d"),
        source("run/_d.py", ""),
        source("log/_x.py", "from graphagent.log import _y"),
    ]
    assert [house.floors(files, room) for room in ("run", "log", "nodes")] == [3, 1, 0]


def test_a_room_that_only_the_core_imports_belongs_to_it():
    """So lines are not saved by moving them out."""
    files = [
        source("run/_x.py", "import graphagent.aside\nimport graphagent.nodes"),
        source("aside/__init__.py"),
        source("nodes/__init__.py"),
        source("agent.py", "from graphagent import nodes"),
    ]
    assert house.core(files) == {"run", "aside"}


def test_the_table_allows_what_is_there_and_nothing_worse():
    """Lines are rounded up; a room that the table does not have has no budget."""
    now = {"run": {"lines": 1_001, "log-tests": 2}}
    table = tomllib.loads(house.written(now))
    assert table == {"run": {"lines": 1_100, "log-tests": 2}}
    assert house.compared(now, table) == ([], [])
    better, worse = house.compared({"run": {"lines": 1_000, "log-tests": 3}, "new": {"lines": 1}}, table)
    assert better == ["run: lines: was 1,100, is 1,000"]
    assert worse == [f"run: {house.MEASURES['log-tests']}: was 2, is 3", "new: lines: was 0, is 1"]


def test_what_needs_a_reason_gives_one():
    """A long module in its docstring, a long function beside its signature, a lint ignore behind the code or above the line."""
    body = "".join(f"    x = {number}\n" for number in range(61))
    silent = f'"""It does."""\ndef long(\n    x,\n):\n    """Do."""\n{body}y = 1  # noqa: A001\n' + "\n" * 400
    [module, function, ignore] = house.unexplained(source("run/_x.py", silent))
    assert "graphagent.run._x has 467 lines" in module
    assert "line 2: long has 64 lines" in function
    assert "line 67" in ignore
    told = (
        silent.replace("It does.", "It does. The file is long\nbecause it is.")
        .replace("):", "):  # long because it is")
        .replace("y = 1", "# it is right\ny = 1")
    )
    assert list(house.unexplained(source("run/_x.py", told))) == []
