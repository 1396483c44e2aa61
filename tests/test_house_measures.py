"""`make house` measures the structure of the code."""

from __future__ import annotations

import ast

import pytest

from scripts import house

CODE = '''
"""A file."""

from __future__ import annotations

class Thing:
    """A thing."""

    def show(self):
        """Give nothing."""
        if entry["t"] == "node":
            _once()
            _twice(_twice)

def _once(): ...
def _twice(it): ...
'''


@pytest.fixture
def source(tmp_path):
    return house.Source("graphagent.run.thing", tmp_path / "thing.py", CODE, ast.parse(CODE))


def test_the_table_has_each_measure_beside_its_target(capsys):
    """All are found in the tree as it is; those that are aimed at are among them."""
    house.main()
    rows = capsys.readouterr().out.splitlines()[1:-2]
    assert len(rows) >= 20
    for name in house.TARGETS:
        [row] = [row for row in rows if row.startswith(f"{name} ")]
        assert row.endswith(house.TARGETS[name])
    [row] = [row for row in rows if row.startswith("model turn: functions ")]
    assert 10 < int(row.split()[3]) < 1_000


def test_what_a_file_says_is_counted(source):
    """Functions used once, docstrings, entry kinds and public names."""
    assert house.used_once(source) == ["_once"]
    assert house.begins_with_give(source) == 1
    assert house.interprets_entries(source, set())
    assert house.public_names([source]) == {"Thing"}
    assert house.repeated_classes([source, source]) == {"Thing": ["graphagent.run.thing"] * 2}


@pytest.mark.parametrize(
    ("code", "is_seen"),
    [
        ("match entry:\n    case NodeEnded(): ...", True),
        ("isinstance(entry, NodeEnded | Other)", True),
        ('entry.get("t") in KINDS', True),
        ('match entry["t"]:\n    case "node": ...', True),
        ("apply(entry)", False),
    ],
)
def test_the_ways_to_interpret_an_entry_are_seen(tmp_path, code, is_seen):
    """By the class of an entry or by its kind."""
    source = house.Source("graphagent.run.thing", tmp_path / "thing.py", code, ast.parse(code))
    assert house.interprets_entries(source, {"NodeEnded"}) is is_seen


@pytest.mark.parametrize("room", ["memory", "run"])
def test_import_cycles_are_small(room):
    """Imports for types count: files that name each other can only be understood together."""
    cycle = house.largest_cycle(house.sources(), room)
    assert len(cycle) <= 3, cycle
