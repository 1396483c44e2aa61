"""`graphagent notes`: what it keeps, finds, shows, changes, forgets and refuses."""

from __future__ import annotations

import json
import os
import re
import stat
import sys

import pexpect
import pytest

from graphagent.store import new_key


@pytest.fixture(params=["plain", "sealed"])
def store(request, monkeypatch):
    """The options of a store, plain or sealed."""
    monkeypatch.setenv("TEST_KEY", new_key())
    return ["--store", "notes.db", *(["--key", "env:TEST_KEY"] if request.param == "sealed" else [])]


def _json(ended):
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def _contents(ended):
    return [record["content"] for record in _json(ended)]


def _keep(run, store, *words, **options):
    given = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    return [record["id"] for record in _json(run("notes", "remember", *words, *given, "--json", *store))]


def test_what_is_remembered_is_recalled(run, store):
    """A question finds the note by its words, with its score, its reasons and, if asked for, their parts."""
    ended = run(
        "notes", "remember", "We", "chose", "PostgreSQL.", "--scope", "project//db/", "--category", "decision", *store
    )
    assert re.fullmatch(r"Kept in /project/db: [0-9a-f]{32}\n", ended.out), ended.err
    _keep(run, store, "Ada likes tea.")
    [match] = _json(run("notes", "recall", "PostgreSQL", "--json", *store))
    assert (match["record"]["scope"], match["record"]["categories"]) == ("/project/db", ["decision"])
    assert match["score"] > 0
    assert match["reasons"] == ["lexical"]
    lines = run("notes", "recall", "PostgreSQL", "--detailed", *store).out.splitlines()
    assert lines[0].split("\t") == ["score", "note", "scope", "when", "source", "reasons", "parts", "id"]
    assert "lexical 0." in lines[1].split("\t")[6] or "lexical 1." in lines[1].split("\t")[6]


def test_standard_input_is_one_note_or_one_for_each_line(run, store):
    """Lines are kept apart with --each alone; blank ones are none."""
    assert run("notes", "remember", *store, stdin="One\ntwo\n").code == 0
    assert run("notes", "remember", "--each", *store, stdin="three\n\nfour\n").out == "Kept in /: 2 notes.\n"
    assert run("notes", "remember", "--each", "five", "six", *store).out == "Kept in /: 2 notes.\n"
    assert sorted(_contents(run("notes", "list", "--json", *store))) == ["One\ntwo", "five", "four", "six", "three"]
    ended = run("notes", "remember", *store, stdin=" \n")
    assert (ended.code, ended.out) == (2, "")


def test_scopes_categories_sources_and_owners_choose(run, store):
    """Each narrows what is listed and found; a neighbour with a like name is another scope."""
    _keep(run, store, "tea one", scope="/app", category="x")
    _keep(run, store, "tea two", scope="/apple")
    _keep(run, store, "tea three", "--private", scope="/app/in", source="ada")
    _keep(run, store, "tea four", owner="bob")

    def listed(*options):
        both = _contents(run("notes", "list", "--json", *options, *store))
        found = [each["record"]["content"] for each in _json(run("notes", "recall", "tea", "--json", *options, *store))]
        assert sorted(both) == sorted(found)
        return sorted(both)

    assert listed() == ["tea one", "tea two"]
    assert listed("--scope", "/app") == ["tea one"]
    assert listed("--scope", "/app", "--source", "ada") == ["tea one", "tea three"]
    assert listed("--category", "x") == ["tea one"]
    assert listed("--owner", "bob") == ["tea four"]
    ended = run("notes", "list", "--owner", "eve", *store)
    assert (ended.code, ended.out) == (0, "")
    assert ended.said == "There are no notes of owner 'eve' here. Owners with notes: 'bob'."
    assert run("notes", "remember", "x", "--private", *store).code == 2


def test_the_tree_counts(run, store):
    """Each scope stands once, below its own, with all that is in it."""
    _keep(run, store, "one", scope="/record/a")
    _keep(run, store, "two", scope="/record/b")
    lines = ["/ (2 notes)", "  /record (2 notes)", "    /record/a (1 note)", "    /record/b (1 note)"]
    assert run("notes", "tree", *store).out.splitlines() == lines
    assert run("notes", "tree", "/record", "--depth", "0", *store).out == "/record (2 notes)\n"
    assert _json(run("notes", "tree", "--json", *store))["children"][0]["record_count"] == 2


def test_a_note_is_edited_and_shown_with_its_history(run, store):
    """Its parts can be changed one by one; the end of its id is enough."""
    [id_] = _keep(run, store, "Ada lives in Oslo.", scope="/people")
    assert run("notes", "edit", id_[-8:], "--content", "Ada lives in Rome.", *store).code == 0
    assert run("notes", "edit", id_, "--scope", "/old", "--category", "home", "--importance", "1", *store).code == 0
    shown = _json(run("notes", "show", id_[-8:], "--json", *store))
    assert (shown["content"], shown["scope"], shown["categories"]) == ("Ada lives in Rome.", "/old", ["home"])
    assert [each["record"]["content"] for each in shown["history"]] == ["Ada lives in Rome.", "Ada lives in Oslo."]
    assert "Ada lives in Oslo." in run("notes", "show", id_, *store).out
    assert run("notes", "edit", id_, "--content", "-", *store, stdin="Ada lives in Bergen.").code == 0
    assert _contents(run("notes", "list", "--json", *store)) == ["Ada lives in Bergen."]


def test_an_editor_opens_with_the_text(run, store, home, monkeypatch):
    """What it leaves is kept, and its file removed; where it fails or changes nothing, nothing is changed."""
    [id_] = _keep(run, store, "Ada lives in Oslo.")
    monkeypatch.setenv("TMPDIR", str(home / "temporary"))
    (home / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    script = home / "editor.py"
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
    script.write_text("import sys; p = sys.argv[1]; t = open(p).read().replace('Oslo', 'Rome'); open(p, 'w').write(t)")
    assert run("notes", "edit", id_, *store).out == f"{id_}, version 2: Ada lives in Rome.\n"
    assert run("notes", "edit", id_, *store).said == "Nothing was changed."
    script.write_text("import sys; sys.exit(3)")
    ended = run("notes", "edit", id_, *store)
    assert (ended.code, "ended with 3" in ended.said) == (1, True)
    assert list((home / "temporary").iterdir()) == []
    script.write_text("import sys; open(sys.argv[1], 'w').write(' ')")
    ended = run("notes", "edit", id_, *store)
    [left] = (home / "temporary").iterdir()
    assert (ended.code, str(left) in ended.err.replace("\n", "")) == (1, True)
    assert _contents(run("notes", "list", "--json", *store)) == ["Ada lives in Rome."]


def test_forget_asks_and_removes_what_fits_all(run, store, home):
    """Without a yes nothing goes; with one, what fits all that was given, down to the bytes on the disk."""
    _keep(run, store, "Semper-Paratus-77", scope="/a", source="ada")
    [stays] = _keep(run, store, "stays", scope="/a")
    ended = run("notes", "forget", "--scope", "/a", "--source", "ada", *store, stdin="n\n")
    assert ended.code == 1
    assert "Forget 1 note ('Semper-Paratus-77') for good?" in ended.out
    assert len(_contents(run("notes", "list", "--json", *store))) == 2
    assert "Forgotten: 1 note, 17 bytes." in run("notes", "forget", "--source", "ada", *store, stdin="y\n").out
    assert _contents(run("notes", "list", "--json", *store)) == ["stays"]
    assert b"Semper-Paratus-77" not in b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    ended = run("notes", "forget", "--older-than", "30d", "--yes", *store)
    assert (ended.code, ended.said) == (1, "error: no note fits, so nothing was forgotten")
    assert run("notes", "forget", "--older-than", "0s", "--run", "r1", "--yes", *store).code == 1
    assert run("notes", "forget", "nonsense", stays, "--yes", *store).code == 1
    assert _json(run("notes", "forget", stays[:30], "--yes", "--json", *store)) == {"notes": 1, "bytes": 5}
    assert run("notes", "forget", "--yes", *store).code == 2


def test_reset_removes_a_scope_alone(run, store):
    """With what is below it and what is private in it; a neighbour with a like name stays."""
    _keep(run, store, "one", "--private", scope="/app/in", source="ada")
    _keep(run, store, "two", scope="/apple")
    ended = run("notes", "reset", "/app", *store, stdin="n\n")
    assert (ended.code, "Remove all 1 note in /app/in for good?" in ended.out) == (1, True)
    assert run("notes", "reset", "/app", "--yes", *store).out == "Forgotten: 1 note, 3 bytes.\n"
    assert run("notes", "reset", "/app", "--yes", *store).code == 1
    assert _contents(run("notes", "list", "--json", *store)) == ["two"]
    assert run("notes", "reset", "-y", "--json", *store).code == 0
    assert _contents(run("notes", "list", "--json", *store)) == []


def test_an_export_goes_into_another_store(run, store, home, monkeypatch):
    """With owners, private notes and history; importing again adds nothing; the file is for its owner alone."""
    [id_] = _keep(run, store, "Bærum", "--private", source="ada")
    run("notes", "edit", id_, "--content", "Oslo", "--source", "ada", *store)
    _keep(run, store, "of bob", owner="bob")
    assert run("notes", "export", "--out", "notes.jsonl", *store).out == ""
    file = home / "notes.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_text("utf-8").splitlines()) == 2
    assert run("notes", "export", "--out", "notes.jsonl", *store).code == 1
    ended = run("notes", "import", "notes.jsonl", "--store", "other.db")
    assert ended.out == "2 of 2 notes were new.\n"
    assert ended.said == "Their owners: 'bob'. See them with --owner NAME."
    assert run("notes", "import", "notes.jsonl", "--store", "other.db").out == "0 of 2 notes were new.\n"
    assert run("notes", "export", "--out", "again.jsonl", "--store", "other.db").code == 0
    assert (home / "again.jsonl").read_text("utf-8") == file.read_text("utf-8")
    [first] = _json(run("notes", "show", id_, "--source", "ada", "--json", "--store", "other.db"))["history"]
    assert first["record"]["content"] == "Bærum"
    assert _json(run("notes", "verify", "--json", *store)) == {"sound": True, "notes": 2}


def test_other_memories_are_imported_all_or_none(run, store, home):
    """A bad line is named, and nothing of the file is kept."""
    good = '{"type":"entity","name":"Ada","entityType":"person","observations":["likes tea"]}\n'
    (home / "memory.jsonl").write_text(good + "\n{}\n")
    ended = run("notes", "import", "memory.jsonl", "--from", "mcp", *store)
    assert (ended.code, ended.out) == (1, "")
    assert "line 3: an entity has" in ended.said
    assert "nothing was imported" in ended.said
    (home / "memory.jsonl").write_text(good)
    ended = run(
        "notes", "import", "memory.jsonl", "--from", "mcp", "--scope", "/people", "--owner", "bob", "--json", *store
    )
    assert _json(ended) == {"new": 1, "notes": 1, "owners": ["bob"]}
    assert _contents(run("notes", "list", "--json", "--scope", "/people", "--owner", "bob", *store)) == [
        "Ada: likes tea"
    ]
    assert run("notes", "import", "nowhere.jsonl", *store).code == 1


def test_vectors_are_made_anew_and_used_again_without_being_named(run, store):
    """After `reembed` a note is found by its meaning; another embedder is refused with the remedy."""
    pytest.importorskip("wordllama")
    _keep(run, store, "The physician examined the child.")
    _keep(run, store, "Stock markets fell on Monday.")
    assert _json(run("notes", "recall", "doctor", "--json", *store)) == []
    assert run("notes", "reembed", *store).code == 2
    assert run("notes", "reembed", "--embedder", "static", *store).out == "Made anew: the vectors of 2 notes.\n"
    best = _json(run("notes", "recall", "doctor", "--json", *store))[0]
    assert (best["record"]["content"], best["reasons"]) == ("The physician examined the child.", ["semantic"])
    assert run("notes", "remember", "A nurse helped.", *store).code == 0
    found = _json(run("notes", "recall", "hospital", "--json", *store))
    assert "A nurse helped." in [each["record"]["content"] for each in found]
    ended = run("notes", "remember", "x", "--embedder", "openai:m@http://127.0.0.1:9", *store)
    assert ended.code == 1
    assert "reembed" in ended.said
    assert len(_contents(run("notes", "list", "--json", *store))) == 3


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["list", "--store", "nowhere.db"], 2, "there is no store 'nowhere.db'"),
        (["list", "--key", "env:TEST_KEY"], 2, "is plain; leave out --key"),
        (["list", "--scope", "/a/../b"], 2, "a scope has no '.' and '..'"),
        (["remember", "x", "--importance", "2"], 2, "--importance"),
        (["remember", "x", "--embedder", "abacus"], 2, "'abacus' is no embedder"),
        (["recall", "x", "--limit", "0"], 2, "--limit"),
        (["show", "nonsense"], 1, "there is no note 'nonsense'"),
        (["show", ""], 1, "there is no note ''"),
        (["forget", "--older-than", "soon"], 2, "'soon' is no time"),
        (["edit", "nonsense", "--content", "x"], 1, "there is no note 'nonsense'"),
        (["reset", "/nowhere", "--yes"], 1, "there are no notes in /nowhere"),
    ],
)
def test_what_is_wrong_is_said(run, monkeypatch, words, code, said):
    """A wrong call ends with 2, what cannot be done with 1; standard output stays empty, and nothing is changed."""
    monkeypatch.setenv("TEST_KEY", new_key())
    run("notes", "remember", "one")
    ended = run("notes", *words)
    assert (ended.code, ended.out) == (code, "")
    assert said in ended.said
    assert _contents(run("notes", "list", "--json")) == ["one"]


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_gets_whole_lines(run, home, columns):
    """Long texts, wide letters and what could act on a terminal fit its width; ids stay long enough to be used."""
    run("notes", "remember", "word " * 400, "--scope", "/a/very/long/scope/that/goes/on/and/on/and/on")
    run("notes", "remember", "東京" * 200 + " tab\there \x1b[31mred \u202e", "--scope", "/日本", "--category", "word")
    for words in (["list"], ["recall", "word tab"], ["recall", "word tab", "--detailed"], ["tree"]):
        child = pexpect.spawn(
            sys.executable, ["-m", "graphagent", "notes", *words], cwd=str(home), encoding="utf-8", dimensions=(50, columns),
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
        )  # fmt: skip
        shown = re.sub(r"\x1b\[[0-9;]*m", "", child.read())
        child.close()
        assert child.exitstatus == 0, shown
        assert "red" not in shown or "�[31mred �" in shown
        from rich.cells import cell_len

        assert max(cell_len(line) for line in shown.split("\r\n")) <= columns
        if words != ["tree"]:
            [*ids] = re.findall(r"\b[0-9a-f]{8}\b", shown)
            assert len(ids) == 2
            assert run("notes", "show", ids[0]).code == 0
