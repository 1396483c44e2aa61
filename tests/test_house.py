"""The rules of the house: doors, private names, the error tree, the docs' table of contents."""

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
from pathlib import Path

import pytest
import yaml

import graphagent
from graphagent import errors
from graphagent.llm import Usage

HOME = Path(__file__).parents[1]
ROOTS = {"graphagent": HOME, "graphagent_strategies": HOME / "strategies"}


def _module_name(path):
    home = ROOTS["graphagent_strategies"] if "strategies" in path.relative_to(HOME).parts else HOME
    parts = path.relative_to(home).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {_module_name(path): path for root, home in ROOTS.items() for path in sorted((home / root).rglob("*.py"))}
DOORS = [name for name, path in FILES.items() if path.name == "__init__.py"]


@functools.cache
def _imports(path):
    """Every `(line, module, name, bound as)` that a file imports, wherever it stands; name is None for `import module`."""
    found = []
    for part in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(part, ast.Import):
            found += [(part.lineno, each.name, None, each.asname) for each in part.names]
        elif isinstance(part, ast.ImportFrom):
            found += [(part.lineno, part.module, each.name, each.asname) for each in part.names]
    return found


def _is_private(name):
    return name.startswith("_") and not name.startswith("__")


# Doors


def _lazily(statements):
    """Split the statements of a module before its `__getattr__`, and return the lazy imports and the moved names of that."""
    match statements:
        case [
            *first,
            ast.If(test=ast.Name("TYPE_CHECKING"), body=body, orelse=[ast.Assign([ast.Name("__getattr__")], call)]),
        ]:
            pass
        case [
            *first,
            ast.If(
                test=ast.UnaryOp(ast.Not(), ast.Name("TYPE_CHECKING")),
                body=[ast.Assign([ast.Name("__getattr__")], call)],
            ),
        ]:
            body = []
        case _:
            assert "__getattr__" not in [
                ast.unparse(each.targets[0]) for each in statements if isinstance(each, ast.Assign)
            ], "hide it from type checkers, which would take any name for one that exists"
            return statements, ([], {})
    assert isinstance(call, ast.Call)
    assert ast.unparse(call.func) == "_lazy"
    lazily = [eval(ast.unparse(given)) for given in call.args[1:]]
    homes = {name: home for each in lazily for home, names in each.items() for name in names}
    moved = {keyword.arg: eval(ast.unparse(keyword.value)) for keyword in call.keywords}.get("moved", {})
    imports = {name.name: each.module for each in body for name in each.names if name.name not in moved}
    assert imports == {name: home for name, home in homes.items() if f"{home}.{name}" not in FILES}
    return first, (body, moved)


def _without_version(door, statements):
    last = ast.unparse(statements[-1]) if statements else ""
    return statements[:-1] if door == "graphagent" and last.startswith("__version__ = ") else statements


@pytest.mark.parametrize("door", DOORS)
def test_a_door_holds_re_exports_and_no_logic(door):
    """A room's `__init__.py` is its docstring and `from … import X as X`, with public names only, some of them imported lazily."""
    docstring, *statements = ast.parse(FILES[door].read_text("utf-8")).body
    assert isinstance(docstring, ast.Expr)
    statements, (late, _) = _lazily(_without_version(door, statements))
    for statement in [*statements, *late]:
        assert isinstance(statement, ast.ImportFrom), f"{door}, line {statement.lineno}: a door has no logic"
        if statement.module in ("__future__", "typing", "graphagent._lazy"):
            continue
        for name in statement.names:
            assert name.asname == name.name, f"{door}, line {statement.lineno}: write `{name.name} as {name.name}`"
            assert not name.name.startswith("_"), f"{door}, line {statement.lineno}: {name.name} is private"


MOVED = [
    (module, name, now)
    for module, path in FILES.items()
    for name, now in _lazily(ast.parse(path.read_text("utf-8")).body)[1][1].items()
]


@pytest.mark.parametrize(("module", "name", "now"), MOVED)
def test_a_name_that_has_moved_warns_and_works(module, name, now):
    """It is what the new path gives, which the warning names unless it is private."""
    with pytest.warns(DeprecationWarning, match=re.escape(f"{module}.{name} is deprecated")) as caught:
        found = getattr(importlib.import_module(module), name)
    room, _, there = now.rpartition(".")
    assert found is getattr(importlib.import_module(room), there)
    assert (now in str(caught[0].message)) is not any(map(_is_private, now.split(".")))
    assert caught[0].filename == __file__


@pytest.mark.parametrize("door", DOORS)
def test_what_a_door_names_is_there(door):
    """Every name of a door can be had from it."""
    room = importlib.import_module(door)
    for _, module, _, bound in _imports(FILES[door]):
        if module not in ("__future__", "typing"):
            assert hasattr(room, bound)


@pytest.mark.parametrize("door", DOORS)
def test_a_door_shows_nothing_else(door):
    """What a room's module holds is its re-exports and its own files, private names nowhere among them."""
    named = {bound or name for _, _, name, bound in _imports(FILES[door])}
    files = {name.removeprefix(f"{door}.").partition(".")[0] for name in FILES if name.startswith(f"{door}.")}
    shown = {name for name in vars(importlib.import_module(door)) if not name.startswith("__")}
    assert shown - named - files == set()


@pytest.mark.parametrize("module", sorted(name for name in FILES if not any(map(_is_private, name.split(".")))))
def test_a_public_module_can_be_imported_first(module):
    """Doors import lazily, so the order of imports differs between programs; no order may lead into a circle."""
    if module not in (
        "graphagent.__main__",
        "graphagent.embed.local",
        "graphagent.embed.minilm",
        "graphagent.embed.static",
    ):
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)


def test_importing_the_package_makes_its_rooms_available():
    """`import graphagent` is enough to use `graphagent.errors.ToolError`, and completion knows what can be asked for."""
    program = (
        "import graphagent as g; print(g.errors.ToolError.__name__, g.Agent.__name__, {'Agent', 'errors'} <= {*dir(g)})"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["ToolError", "Agent", "True"]
    assert not hasattr(graphagent, "nothing_like_this")


def test_the_version_is_told_once():
    """`graphagent.__version__` is the version of the package that is built."""
    project = tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))["project"]
    assert graphagent.__version__ == project["version"]


# Private names


def _private_elsewhere(importer):
    """Yield the private names that a file imports from another room."""
    for line, module, name, _ in _imports(FILES[importer]):
        parts = [*module.split("."), *([name] if name else [])]
        if parts[0] not in ROOTS:
            continue
        private = [place for place, part in enumerate(parts) if _is_private(part)]
        if private == [parts.index("_internal") if "_internal" in parts else None]:
            private = [1]  # of any room of the same package
        if private:
            room = ".".join(parts[: min(private[0], 2)])
            if not f"{importer}.".startswith(f"{room}."):
                yield f"{importer}, line {line}: {'.'.join(parts)} is private to {room}"


def test_private_names_stay_in_their_room():
    """A private name is imported only inside its room, a folder of the package with all below; other rooms take it from `_internal.py`."""
    assert [each for importer in FILES for each in _private_elsewhere(importer)] == []


INTERNAL = [name for name in FILES if name.endswith("._internal")]


@pytest.mark.parametrize("internal", INTERNAL)
def test_an_internal_module_holds_re_exports_that_another_room_needs(internal):
    """A room's `_internal.py` is `from … import x as x`, each for some other room, and none that the room's door has too."""
    room = internal.removesuffix("._internal")
    _, *statements = ast.parse(FILES[internal].read_text("utf-8")).body
    imports = [each for each in statements if isinstance(each, ast.ImportFrom)]
    assert imports == statements
    names = {name.name for each in imports[1:] for name in each.names}
    assert all(name.asname == name.name for each in imports[1:] for name in each.names)
    inside = [name for name in FILES if f"{name}.".startswith(f"{room}.")]
    assert [name for name in inside if internal in {module for _, module, _, _ in _imports(FILES[name])}] == []
    used = {name for path in FILES.values() for _, module, name, _ in _imports(path) if module == internal}
    assert names - used == set()
    assert names & {bound for _, _, _, bound in _imports(FILES[room])} == set()


def _begins_well(path):
    module = ast.parse(path.read_text("utf-8"))
    if not ast.get_docstring(module):
        return False
    match module.body[1:]:
        case [ast.ImportFrom(module="__future__"), *_] | []:
            return True
    return False


def test_every_file_says_what_it_is_for():
    """A module begins with a docstring, and postpones its annotations."""
    assert [name for name, path in FILES.items() if not _begins_well(path)] == []


def test_nothing_is_left_over():
    """Package code holds no note to do it later, and nothing that is only announced."""
    later = re.compile(r"\b(?:TODO|FIXME|XXX|NotImplementedError)\b")
    assert [name for name, path in FILES.items() if later.search(path.read_text("utf-8"))] == []


def _needed_to_run(path):
    """Yield each `(line, module)` that a file imports when it is executed, and not for type checkers alone."""
    pending = [ast.parse(path.read_text("utf-8"))]
    while pending:
        part = pending.pop()
        match part:
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                pending += part.orelse
            case ast.ImportFrom(module=str(module)):
                yield part.lineno, module
                yield from ((part.lineno, f"{module}.{each.name}") for each in part.names)
            case ast.Import():
                yield from ((part.lineno, each.name) for each in part.names)
            case _:
                pending += ast.iter_child_nodes(part)


def test_an_import_against_the_direction_is_for_types_alone():
    """`make lint` counts imports for types too. What pyproject.toml lets it ignore is imported for type checkers only."""
    [contract] = tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    wrong = [
        f"{name}, line {line}: {ignored}"
        for ignored in contract["ignore_imports"]
        for importer, imported in [ignored.replace(".**", r"\.[\w.]+").split(" -> ")]
        for name, path in FILES.items()
        if re.fullmatch(importer, name)
        for line, module in _needed_to_run(path)
        if re.fullmatch(imported, module)
    ]
    assert wrong == []


# Names and sentences


def test_a_class_name_means_one_thing():
    """No two classes of the package have one name, so that a traceback or a search leads to one of them."""
    files = {}
    for name, path in FILES.items():
        for part in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(part, ast.ClassDef):
                files.setdefault(part.name, []).append(name)
    assert {name: found for name, found in files.items() if len(found) > 1} == {}


def test_docstrings_begin_as_the_standard_library_does():
    """They begin with Return, Yield, Raise, Store, Check … or name the thing; "Give" says neither."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        f"{name}, line {part.body[0].lineno}"
        for name, path in FILES.items()
        for part in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(part, kinds) and re.match(r"Gives?\b", ast.get_docstring(part) or "")
    ]
    assert found == []


def test_importing_the_package_loads_no_heavy_library():
    """openai, networkx and cryptography come with what needs them first."""
    program = (
        "import sys, graphagent; graphagent.Agent; print(*{'openai', 'networkx', 'cryptography'} & sys.modules.keys())"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == []


# Errors

ERRORS = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if inspect.isclass(kind) and issubclass(kind, errors.GraphAgentError)
}

SAMPLES = [
    errors.GraphAgentError("it went wrong"),
    errors.StrategyError("chat", ["'ask' cannot reach END", "'act' is never reached"]),
    errors.FeatureError("AgentMemory is not installed"),
    errors.RunError("the run cannot go on"),
    errors.NodeFailedError("count/words", TimeoutError("5 seconds")),
    errors.NoPathError("ask", 3, ["on str", "on ToolCalls"]),
    errors.HandlerError("print", "NodeStarted", ValueError("x")),
    errors.BudgetError("turns", 20, "all that was done"),
    errors.VetoError("ActionStep", "not like that"),
    errors.CheckError("is_polite"),
    errors.RunNotFoundError("run-1", "owner"),
    errors.RunExistsError("run-1"),
    errors.RunClaimedError("run-1", "process 7 on 'there'"),
    errors.ThreadBusyError("ada-1", "run-1", "waiting"),
    errors.StrategyChangedError("run-1", ["- node draft: str -> str"]),
    errors.AnswerError("ask_human:2", "it asks for bool"),
    errors.JournalError("run-1", errors.StoreError("the disk is full")),
    errors.DivergedError("ask", "nothing more was recorded of it"),
    errors.ModelError("the model's side failed"),
    errors.ModelRequestError("too many requests", status=429, retry_after=2.5),
    errors.PromptTooLongError("too long", tokens=5_000, limit=4_000, largest="the task"),
    errors.AllModelsFailedError([("a", "it answered 500")], []),
    errors.OutputError("no JSON, even when asked again", output="{"),
    errors.TruncatedError("the JSON was cut off", output="{", usage=Usage(1, 2)),
    errors.ToolError("no such city"),
    errors.ArgumentsError("weather", ["city: is missing"]),
    errors.ToolTimeoutError("weather", 2.5),
    errors.QuestionError("ask", "first", "second"),
    errors.CacheError("ask", "asks a model"),
    errors.ToolServerError("files", "cannot be reached"),
    errors.Veto("not like that"),
    errors.StoreError("the disk is full"),
    errors.ConflictError(("facts", "owner", 7), 3, 4),
    errors.DamagedStoreError("memory.db", "page 3 does not fit its checksum"),
    errors.NotErasedError("memory.db", "another process reads"),
    errors.WrongKeyError("memory.db"),
    errors.SealedStoreError("memory.db"),
    errors.PlainStoreError("memory.db"),
    errors.SerializationError("a socket cannot be kept"),
    errors.UnsupportedError(object(), "history"),
    errors.NoteError("a note has some text; this one is blank"),
    errors.ScopeError("/a/..", "a scope cannot contain '.' or '..' as a segment: write the whole path"),
    errors.NotePermissionError("this view of the notes is read-only"),
    errors.NoteNotFoundError("n1"),
    errors.AmbiguousNoteError("n", ["n1", "n2"]),
    errors.EmbedderError("the embedder gave 1 vector for 2 texts"),
    errors.EmbedderChangedError("new", "old", 256),
    errors.RerankerError("the reranker returned 1 score for 2 texts"),
    errors.MissingExtraError("the command line", "cli"),
    errors.ScriptError("the script has 2 replies, and a third was asked for"),
]


def _drawn():
    """The tree in the docstring of `graphagent.errors`: every class with its bases, in order."""
    drawn, above = {}, {}
    for line in errors.__doc__.split("```")[1].strip().splitlines():
        lead, name, builtin = re.match(r"([│├└ ]*)(\w+)(?: \((\w+)\))?", line).groups()
        depth = (len(lead) + 1) // 3  # "├ " is the first, and "│  " is put before it for each further one
        above[depth] = name
        drawn[name] = [above[depth - 1] if depth else "Exception", *filter(None, [builtin])]
    return drawn


def test_the_error_tree_is_drawn_as_it_is():
    """The docstring of `graphagent.errors` shows every class under its parent, with the builtin it also is."""
    assert _drawn() == {name: [base.__name__ for base in kind.__bases__] for name, kind in ERRORS.items()}


def test_every_error_has_a_sample():
    """The test of pickling leaves no class out."""
    assert {type(sample).__name__ for sample in SAMPLES} == ERRORS.keys()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_an_error_survives_pickling(sample):
    """Its kind, text, fields, notes and cause are the same on the other side."""
    sample.__cause__ = KeyError("cause")
    sample.add_note("while testing")
    again = pickle.loads(pickle.dumps(sample))
    assert type(again) is type(sample)
    assert str(again) == str(sample)
    assert vars(again) == vars(sample)
    assert repr(again.__cause__) == repr(sample.__cause__)


# Pages


def _pages(entry):
    if isinstance(entry, str):
        return {entry}
    return set().union(*map(_pages, entry.values() if isinstance(entry, dict) else entry))


def test_every_link_and_picture_of_a_page_exists():
    """Links lead to files by their relative path: the build checks anchors and pages, but not pictures, nor README.md."""
    pages = [HOME / "README.md", *(HOME / "docs").rglob("*.md")]
    broken = [
        f"{page.relative_to(HOME)}: {target}"
        for page in pages
        for target in _targets(page.read_text("utf-8"))
        if not re.match(r"https?://|mailto:|#", target) and not (page.parent / target.partition("#")[0]).is_file()
    ]
    assert broken == []


def _targets(text):
    """Return what the links and pictures of a page lead to, outside of blocks and spans of code."""
    text = re.sub(r"^ *(`{3,}).*?^ *\1|`[^`\n]+`", "``", text, flags=re.MULTILINE | re.DOTALL)
    return [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r'(?:src|href)="([^"]+)"', text)]


def test_every_page_is_in_the_table_of_contents():
    """`mkdocs.yml` names each page of docs/, and no other."""
    settings = yaml.safe_load((HOME / "mkdocs.yml").read_text("utf-8"))
    docs = HOME / settings.get("docs_dir", "docs")
    assert _pages(settings["nav"]) == {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}


def test_every_room_has_a_reference_page():
    """Each public module that is always there is shown under docs/api/."""
    shown = {
        name
        for page in (HOME / "docs" / "api").glob("*.md")
        for name in re.findall(r"^::: ([\w.]+)$", page.read_text("utf-8"), re.MULTILINE)
    }
    rooms = {name for name in FILES if name.count(".") <= 1 and not any(map(_is_private, name.split(".")))}
    # What agent.py holds stands on the page of the front door; codec has no public names; the others are commands.
    assert rooms - shown - {"graphagent.agent", "graphagent.cli", "graphagent.codec", "graphagent.__main__"} == set()


def test_every_error_has_its_remedy():
    """docs/errors.md has a section for each error, in the order of the tree."""
    sections = re.findall(r"^## (\w+)$", (HOME / "docs" / "errors.md").read_text("utf-8"), re.MULTILINE)
    assert sections == list(_drawn())


def test_every_dependency_earns_its_place():
    """What pyproject.toml asks a user to install is imported by the package, or its files are read, and docs/house.md says what for."""
    project = tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    asked = {
        re.match(r"[\w-]+", each)[0] for each in [*project["dependencies"], *itertools.chain.from_iterable(extras)]
    }
    imported = {module.partition(".")[0] for path in FILES.values() for _, module, _, _ in _imports(path)}
    imported |= {
        name for path in FILES.values() for name in re.findall(r'package_folder\("(\w+)"\)', path.read_text("utf-8"))
    }
    explained = set(re.findall(r"[\w-]+", (HOME / "docs" / "house.md").read_text("utf-8")))
    assert {each.replace("-", "_") for each in asked} - imported == set()
    assert asked - explained == set()


def test_the_guide_for_contributors_stays_short():
    """AGENTS.md is read at the start of every piece of work: 80 lines at most."""
    assert len((HOME / "AGENTS.md").read_text("utf-8").splitlines()) <= 80


def test_every_test_that_a_page_names_exists():
    """A page that names a test as its witness is wrong when the test is renamed."""
    home = Path(__file__).parents[1]
    named = [
        (page.name, *found)
        for page in sorted((home / "docs").rglob("*.md"))
        for found in re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", page.read_text("utf-8"))
    ]
    assert len(named) > 20
    for page, file, test in named:
        assert (home / file).exists(), (page, file)
        assert not test or f"def {test}(" in (home / file).read_text("utf-8"), (page, test)
