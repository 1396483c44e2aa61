"""The stub that type checkers read of `blocking`: written from the classes, and true of the objects."""

from __future__ import annotations
import __future__

import inspect
import re
import typing

import pytest

from graphagent import END, START, Agent, Strategy, blocking, blocking_types
from graphagent.llm import Tool
from graphagent.memory import FileMemoryProvider, Notes
from graphagent.nodes import passthrough
from graphagent.run import RunStream
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore, new_key
from graphagent.work import RunHandle
from scripts.blocking_types import CLASSES, FILE, written

agent = Agent(Strategy("same", START >> passthrough(str) >> END))
OBJECTS = {
    "NoteView": Notes(MemoryStore()).scope("/a"),
    "Notes": Notes(MemoryStore()),
    "Agent": agent,
    "Run": agent.start("hi"),
    "RunStream": RunStream(agent.start("hi")),
    "RunHandle": RunHandle(agent._config(), "a", ""),
    "Tool": Tool("look", "Look somewhere.", {"type": "object"}, print),
    "KeepingProvider": FileMemoryProvider("never-made"),
    "SqliteStore": SqliteStore("never-opened.db"),
    "MemoryStore": MemoryStore(),
    "EncryptedStore": EncryptedStore(MemoryStore(), new_key()),
}
stub = {}
exec(compile(FILE.read_text("utf-8"), FILE, "exec", __future__.annotations.compiler_flag, dont_inherit=True), stub)


def test_the_types_are_written_from_the_classes():
    """The file is what the script writes, or `make format` is to be run; and `blocking` has an overload for each class."""
    assert FILE.read_text("utf-8") == written()
    returned = " ".join(inspect.signature(each).return_annotation for each in typing.get_overloads(blocking))
    assert OBJECTS.keys() == {cls.__name__ for cls in CLASSES} == set(re.findall(r"types\.Blocking(\w+)", returned))


@pytest.mark.parametrize("name", OBJECTS)
def test_a_type_has_the_names_that_the_object_has(name):
    """The type has every public name of the object and no other, and programs may name the type when they run."""
    told = {each for each in dir(stub[f"Blocking{name}"]) if not each.startswith("_")}
    there = {each for each in dir(blocking(OBJECTS[name])) if not each.startswith("_")}
    assert told == there
    assert isinstance(blocking(OBJECTS[name]), getattr(blocking_types, f"Blocking{name}"))
