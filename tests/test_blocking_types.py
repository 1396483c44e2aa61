"""The stub that type checkers read of `blocking`: written from the classes, and true of the objects."""

from __future__ import annotations
import __future__

import inspect
import subprocess
import sys
import typing
from types import ModuleType

import pytest
from anyio.lowlevel import checkpoint

from graphagent import END, START, Agent, Context, Strategy, blocking, blocking_types, node
from graphagent.llm import Tool
from graphagent.memory import Notes, StoreMemoryProvider
from graphagent.run import RunStream
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore, new_key
from scripts.blocking_types import CLASSES, FILE, LEFT_OUT, written


@node
async def upper(ctx: Context, said: str) -> str:
    await checkpoint()
    return said.upper()


async def look(arguments, context):
    await checkpoint()
    return arguments


agent = Agent(Strategy("loud", START >> upper >> END))
OBJECTS = {
    "NoteView": Notes(MemoryStore()).scope("/a"),
    "Notes": Notes(MemoryStore()),
    "Agent": agent,
    "Run": agent.start("hi"),
    "RunStream": RunStream(agent.start("hi")),
    "Tool": Tool("look", "Look somewhere.", {"type": "object"}, look),
    "KeepingProvider": StoreMemoryProvider(MemoryStore()),
    "SqliteStore": SqliteStore("never-opened.db"),
    "MemoryStore": MemoryStore(),
    "EncryptedStore": EncryptedStore(MemoryStore(), new_key()),
}
# The stub is what a type checker sees; it is Python too.
stub = ModuleType("blocking_types_stub")
exec(
    compile(FILE.read_text("utf-8"), FILE, "exec", __future__.annotations.compiler_flag, dont_inherit=True), vars(stub)
)
SPECIAL = {"__enter__": "__aenter__", "__exit__": "__aexit__", "__iter__": "__aiter__"}


def test_the_types_are_written_from_the_classes():
    """The file is what the script writes; where it is not, run `make format`."""
    assert FILE.read_text("utf-8") == written()


def test_blocking_has_a_type_for_each_class():
    """Each class has an overload, and behind them stand async functions and whatever else there is."""
    given = [inspect.signature(each).return_annotation.partition("[")[0] for each in typing.get_overloads(blocking)]
    assert sorted(given[:-2]) == sorted(f"types.Blocking{cls.__name__}" for cls in CLASSES)
    assert given[-2:] == ["Callable", "Any"]


@pytest.mark.parametrize("name", OBJECTS)
def test_a_type_has_the_names_that_the_object_has(name):
    """No public name is missing but those that are left out on purpose, and none is there that the object does not have."""
    told = {each for each in dir(getattr(stub, f"Blocking{name}")) if not each.startswith("_")}
    there = {each for each in dir(blocking(OBJECTS[name])) if not each.startswith("_")}
    owners = (name, "NoteView") if name == "Notes" else (name,)
    out = {member for owner, _, member in (each.partition(".") for each in LEFT_OUT) if owner in owners}
    assert told == there - out
    assert out <= there


@pytest.mark.parametrize("name", OBJECTS)
def test_a_method_takes_what_the_async_one_takes(name):
    """The parameters of each method have the names, the kinds and the defaults of the method that is called."""
    kind = getattr(stub, f"Blocking{name}")
    methods = [
        (method, function)
        for method, function in inspect.getmembers(kind, inspect.isfunction)
        if (method in SPECIAL or not method.startswith("_"))
        and function.__module__ != "typing"  # that is an overloaded one
    ]
    for method, function in methods:
        called = getattr(type(OBJECTS[name]), SPECIAL.get(method, method))
        told, taken = inspect.signature(function).parameters, inspect.signature(called).parameters
        assert [(each.name, each.kind) for each in told.values()] == [(each.name, each.kind) for each in taken.values()]
        for each in told.values():
            assert each.default in (taken[each.name].default, ...)
            assert (each.default is each.empty) == (taken[each.name].default is each.empty)
    assert len(methods) >= 2


def test_scans_are_iterators():
    """What a store gives item by item can be asked for the next one, as its type says."""
    assert next(blocking(MemoryStore()).scan(("facts",)), None) is None


def test_programs_do_not_load_them():
    """They are for type checkers: who imports `blocking` waits for nothing more."""
    program = "import sys; from graphagent import blocking; print('graphagent.blocking_types' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"


def test_programs_can_import_each_of_them():
    """They may stand in annotations that are evaluated; what `blocking` returns is an instance of them."""
    names = {name for name in vars(stub) if name.startswith("Blocking")}
    assert {name for name in vars(blocking_types) if name.startswith("Blocking")} == names | {"Blocking"}
    for name in names:
        assert isinstance(blocking(MemoryStore()), getattr(blocking_types, name))
    assert blocking_types.BlockingAgent[str, int].__args__ == (str, int)
