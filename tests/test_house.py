"""The rules of the house that users rely on: what can be imported, the errors, and what the pages lead to."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import itertools
import pickle
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

import graphagent
from graphagent import errors
from tests.thorough import some

HOME = Path(__file__).parents[1]
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))
PAGES = [HOME / "README.md", *sorted((HOME / "docs").rglob("*.md"))]
FILES = {
    ".".join(path.relative_to(home).with_suffix("").parts).removesuffix(".__init__"): path
    for home, package in ((HOME, "graphagent"), (HOME / "strategies", "graphagent_strategies"))
    for path in sorted((home / package).rglob("*.py"))
}
DOORS = [name for name, path in FILES.items() if path.name == "__init__.py"]


def _is_private(name):
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


@functools.cache
def _imports(path):
    """Every `(module, name, is for types alone)` that a file imports, wherever it stands; name is "" for `import module`."""
    found, pending = [], [(ast.parse(path.read_text("utf-8")), False)]
    for part, for_types in pending:
        match part:
            case ast.Import(names):
                found += [(each.name, "", for_types) for each in names]
            case ast.ImportFrom(module, names):
                found += [(module, each.name, for_types) for each in names]
            case ast.If(ast.Name("TYPE_CHECKING"), body, orelse):
                pending += [*((each, True) for each in body), *((each, for_types) for each in orelse)]
            case _:
                pending += [(each, for_types) for each in ast.iter_child_nodes(part)]
    return found


# What can be imported


@pytest.mark.parametrize("door", DOORS)
def test_a_door_shows_what_it_names_and_nothing_else(door):
    """Each name can be had, none is private, and what else the module holds are its own files."""
    room = importlib.import_module(door)
    named = {name for module, name, _ in _imports(FILES[door]) if module != "graphagent._lazy"}
    files = {name.removeprefix(f"{door}.").partition(".")[0] for name in FILES if name.startswith(f"{door}.")}
    assert [name for name in named if not hasattr(room, name) or _is_private(name)] == []
    assert {name for name in vars(room) if not name.startswith("__")} - named - files - {"_lazy"} == set()


@pytest.mark.parametrize("door", DOORS)
def test_a_star_imports_all_that_a_door_names(door):
    """Names that are imported when they are first asked for as well, and nothing that the file itself needs."""
    named = {name for module, name, _ in _imports(FILES[door]) if module.startswith("graphagent")} - {
        "lazy",
        "__version__",
    }
    got = {}
    exec(f"from {door} import *", got)
    assert named - got.keys() == set()
    assert "TYPE_CHECKING" not in got


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("from graphagent import ScriptedModel", "from graphagent.testing import ScriptedModel"),
        ("from graphagent import OpenAIModel", "from graphagent.llm.openai import OpenAIModel"),
        ("from graphagent import Agent, single_run", "from graphagent_strategies import single_run"),
        ("from graphagent.memory import Agent", "from graphagent import Agent"),
        ("from graphagent.history import list_runs", "from graphagent.run import list_runs"),
        ("from graphagent.run import list_threads", "from graphagent.history import list_threads"),
        ("from graphagent.embed import StaticEmbedder", "from graphagent.embed.static import StaticEmbedder"),
        ("from graphagent.store import StoreMemoryProvider", "from graphagent.memory import StoreMemoryProvider"),
    ],
)
def test_an_import_from_the_wrong_door_is_told_the_right_one(line, right):
    """Doors where names are often looked for name the one that has what is asked for; to `hasattr` they answer as any module does."""
    with pytest.raises(ImportError, match=f"cannot import name '.*' from '.*'; write: {right}$"):
        exec(line)
    exec(right)
    exec("from graphagent import testing")
    assert not hasattr(graphagent, "ScriptedModel")
    with pytest.raises(ImportError, match="cannot import name 'Nothing' from 'graphagent'"):
        exec("from graphagent import Nothing")


@pytest.mark.parametrize("module", some(sorted(name for name in FILES if not _is_private(name)), 12))
def test_a_public_module_can_be_imported_first(module):
    """Doors import lazily, so the order of imports differs between programs; no order may lead into a circle."""
    if not re.fullmatch(r"graphagent\.(__main__|embed\.(local|multilingual|static))", module):
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)


HEAVY = {
    "openai", "networkx", "cryptography", "pydantic", "asyncio", "trio", "ssl", "socket", "sqlite3", "apsw", "difflib", "shutil",
    "graphagent.store.sqlite", "graphagent.store.sealed", "graphagent.store._backup", "graphagent.memory.compaction", "graphagent.memory.notes",
    "graphagent.memory.agent_memory._feature", "graphagent.llm._prices", "graphagent.llm._endpoint", "graphagent.history", "graphagent.work", "graphagent.nodes",
    "graphagent._html", "graphagent._notebook",
}  # fmt: skip
"""Modules that come with what needs them first, so that `from graphagent import Agent` takes no longer than it must."""


def test_importing_the_package_makes_its_rooms_available_and_loads_no_heavy_library():
    """Completion knows what can be asked for; models, stores, features and what these need are imported where they are used."""
    program = (
        "import sys, graphagent as g; print(g.errors.ToolError.__name__, {'Agent', 'errors'} <= {*dir(g)}, g.Agent.__name__,"
        f" {HEAVY!r} & sys.modules.keys())"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "ToolError True Agent set()\n"
    assert not hasattr(graphagent, "nothing_like_this")
    assert graphagent.__version__ == PROJECT["project"]["version"]


def test_private_names_stay_in_their_room():
    """A name with an underscore is imported only inside its room, a folder of the package with all below; a private file, only in its package."""
    wrong = []
    for importer, path in FILES.items():
        for module, name, _ in _imports(path):
            package, room, *_ = [*module.split("."), ""]
            if package not in ("graphagent", "graphagent_strategies"):
                continue
            own = package if f"{module}.{name}" in FILES or not _is_private(name) else f"{package}.{room}".rstrip(".")
            if _is_private(f"{module}.{name}") and not f"{importer}.".startswith(f"{own}."):
                wrong.append(f"{importer} imports {module}.{name}")
    assert wrong == []


def test_an_import_against_the_direction_is_for_types_alone():
    """What pyproject.toml lets `make lint` ignore is not executed."""
    contract = next(each for each in PROJECT["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    wrong = [
        f"{importer} imports {module}.{name}"
        for ignored in contract["ignore_imports"]
        for allowed, imported in [ignored.replace(".**", r"\.[\w.]+").split(" -> ")]
        for importer, path in FILES.items()
        if re.fullmatch(allowed, importer)
        for module, name, for_types in _imports(path)
        if not for_types and (re.fullmatch(imported, module) or re.fullmatch(imported, f"{module}.{name}"))
    ]
    assert wrong == []


def test_every_dependency_is_needed_and_explained():
    """What a user has to install is imported, or its files are read, and docs/house.md says what for."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    asked = itertools.chain(PROJECT["project"]["dependencies"], *extras)
    names = {re.match(r"[\w-]+", each)[0] for each in asked} - {PROJECT["project"]["name"]}
    used = {module.partition(".")[0] for path in FILES.values() for module, _, _ in _imports(path)}
    by_name = r'(?:package_folder\("|import_module\(f?")(\w+)'
    used.update(*(re.findall(by_name, path.read_text("utf-8")) for path in FILES.values()))
    installed = packages_distributions()
    assert names - {name for module in used for name in installed.get(module, ())} == set()
    assert names - set(re.findall(r"[\w-]+", (HOME / "docs" / "house.md").read_text("utf-8"))) == set()


def test_the_extra_all_has_every_other_extra():
    """By their names, from the distribution itself."""
    extras = PROJECT["project"]["optional-dependencies"]
    assert extras["all"] == [f"{PROJECT['project']['name']}[{','.join(sorted(extras.keys() - {'all'}))}]"]


def test_nobody_is_told_to_install_a_distribution_that_is_not_ours():
    """On PyPI, `graphagent` is another project; pages install a copy of the repository, and errors name the distribution."""
    files = [*PAGES, *FILES.values(), *(HOME / "examples").rglob("*.py"), *(HOME / "examples").rglob("*.md")]
    told = re.findall(
        r"pip install (?:-\S+ )*['\"]?(graphagent[\w-]*)", "\n".join(path.read_text("utf-8") for path in files)
    )
    assert {*told, errors.MissingExtraError("this", "cli").args[0].split("'")[1].partition("[")[0]} == {
        PROJECT["project"]["name"]
    }


# Errors

ERRORS = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, errors.GraphAgentError)]


def test_the_error_tree_is_drawn_as_it_is_and_explained():
    """The docstring of `graphagent.errors` shows each class under its parent; docs/errors.md has a section for each, in that order."""
    drawn, above = {}, {}
    for line in errors.__doc__.split("```")[1].strip().splitlines():
        lead, name, builtin = re.match(r"([│├└ ]*)(\w+)(?: \((\w+)\))?", line).groups()
        depth = (len(lead) + 1) // 3  # "├ " is the first, and "│  " is put before it for each further one
        above[depth] = name
        drawn[name] = [above[depth - 1] if depth else "Exception", *filter(None, [builtin])]
    assert drawn == {kind.__name__: [base.__name__ for base in kind.__bases__] for kind in ERRORS}
    assert list(drawn) == re.findall(r"^## (\w+)$", (HOME / "docs" / "errors.md").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_survives_pickling(kind):
    """Its class, text, fields, notes and cause are the same on the other side, whatever its constructor takes."""
    error = kind.__new__(kind)
    error.args, error.field, error.__cause__ = ("it went wrong",), "value", KeyError("cause")
    error.add_note("while testing")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))
    assert repr(again.__cause__) == repr(error.__cause__)


# Pages


def test_every_link_and_picture_of_a_page_exists():
    """Links lead to files by their relative path: the build checks anchors and pages, but not pictures, nor README.md."""
    broken = []
    for page in PAGES:
        text = re.sub(r"^ *(`{3,}).*?^ *\1|`[^`\n]+`", "``", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        targets = re.findall(r'\]\(([^)\s]+)\)|(?:src|href)="([^"]+)"', text)
        local = [one or two for one, two in targets if not re.match(r"https?://|mailto:|#", one or two)]
        broken += [f"{page}: {target}" for target in local if not (page.parent / target.partition("#")[0]).is_file()]
    assert broken == []


def test_every_page_is_in_the_table_of_contents():
    """`mkdocs.yml` names each page of docs/, and no other."""
    named = re.findall(r"[\w/-]+\.md", str(yaml.safe_load((HOME / "mkdocs.yml").read_text("utf-8"))["nav"]))
    assert set(named) == {page.relative_to(HOME / "docs").as_posix() for page in PAGES[1:]}


def test_every_room_has_a_reference_page():
    """Each public module that is always there is shown under docs/api/."""
    shown = set(re.findall(r"^::: ([\w.]+)$", "".join(page.read_text("utf-8") for page in PAGES), re.MULTILINE))
    rooms = {name for name in FILES if name.count(".") <= 1 and not _is_private(name)}
    # codec and log have no public names, and history stands on the page of run; the others are commands.
    elsewhere = {"cli", "codec", "history", "log", "__main__"}
    assert rooms - shown - {f"graphagent.{name}" for name in elsewhere} == set()


def test_every_test_that_a_page_names_exists():
    """A page that names a test as its witness is wrong when the test is renamed."""
    text = "".join(page.read_text("utf-8") for page in PAGES)
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", text)
    assert len(named) > 20
    for file, test in named:
        assert re.search(rf"def {test}\b", (HOME / file).read_text("utf-8")), (file, test)
