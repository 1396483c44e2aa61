"""`graphagent facts` and `graphagent keys`: what they show, change and refuse."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from graphagent.store import new_key


@pytest.fixture(params=["plain", "sealed"])
def memory(request, home, monkeypatch):
    """The options of a memory, plain or sealed."""
    monkeypatch.setenv("TEST_KEY", new_key())
    return ["--store", "memory", *(["--key", "env:TEST_KEY"] if request.param == "sealed" else [])]


def _json(ended):
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_what_is_set_is_listed(run, memory):
    """A fact that was set stands in the table and in the JSON, with its place."""
    assert run("facts", "set", "city", "Oslo", "--description", "where the user lives", *memory).code == 0
    heads, row = (line.split("\t") for line in run("facts", "list", *memory).out.splitlines())
    assert heads[:5] == ["fact", "value", "about", "scope", "version"]
    assert row[:5] == ["city", "Oslo", "user", "agent:chat", "1"]
    [fact] = _json(run("facts", "list", "--format", "json", *memory))
    assert (fact["keyword"], fact["values"], fact["description"]) == ("city", ["Oslo"], "where the user lives")
    assert fact["source"]["trust"] == "trusted"


def test_show_has_the_history(run, memory):
    """Every version is shown, the newest first; a description stays where none is given."""
    run("facts", "set", "city", "Oslo", "--description", "where the user lives", *memory)
    run("facts", "set", "city", "Bergen", *memory)
    shown = _json(run("facts", "show", "city", "--format", "json", *memory))
    assert [(fact["version"], fact["values"]) for fact in shown] == [(2, ["Bergen"]), (1, ["Oslo"])]
    assert shown[0]["description"] == "where the user lives"
    lines = run("facts", "show", "city", *memory).out.splitlines()
    assert [line.split("\t")[1] for line in lines] == ["value", "Bergen", "Oslo"]


def test_several_values_are_added_to(run, memory):
    """Several values make a fact of several values, and one more is added; a single value takes no second."""
    run("facts", "set", "tools", "Vim", "Git", *memory)
    assert run("facts", "set", "tools", "tmux", *memory).out == "tools, version 2: Vim, Git, tmux\n"
    run("facts", "set", "city", "Oslo", *memory)
    refused = run("facts", "set", "city", "Oslo", "Bergen", *memory)
    assert refused.code == 2
    assert "'city' has a single value" in refused.said


def test_a_fact_holds_from_and_to(run, memory):
    """A fact has times; the list has columns for them, and says what held at another time; the export has them."""
    run("facts", "set", "city", "Oslo", "--from", "2020-01-01", *memory)
    said = run(
        "facts", "set", "city", "Bergen", "--from", "2021-02-03T04:05+02:00", "--to", "2022-01-01T00:00Z", *memory
    )
    assert said.out == "city, version 2: Bergen\n"
    heads, row = (line.split("\t") for line in run("facts", "list", *memory).out.splitlines())
    assert (row[1], heads[6:8], row[6][:10], row[7]) == ("Oslo", ["from", "until"], "2020-01-01", "")
    [then] = _json(run("facts", "list", "--as-of", "2021-06-01", "--format", "json", *memory))
    assert (then["values"], then["valid_from"], then["valid_to"]) == (
        ["Bergen"], "2021-02-03T04:05:00+02:00", "2022-01-01T00:00:00+00:00",
    )  # fmt: skip
    assert "Nothing is known" in run("facts", "list", "--as-of", "2019-01-01", *memory).said
    assert run("facts", "show", "city", "--at", "2019-01-01", *memory).code == 1
    assert '"valid_to":"2022-01-01T00:00:00+00:00"' in run("facts", "export", *memory).out
    for wrong, told in (
        (("city", "Rome", "--from", "2022-01-01", "--to", "2021-01-01"), "must be after valid_from="),
        (("city", "Rome", "--from", "soon"), "'soon' is not a time"),
        (("tools", "Vim", "Git", "--to", "2021-01-01"), "'tools' has several values"),
    ):
        refused = run("facts", "set", *wrong, *memory)
        assert refused.code == 2
        assert told in refused.said


def test_a_value_is_withdrawn_or_forgotten(run, memory):
    """`withdraw` keeps a value in the history, `forget --value` erases it; what is not there is refused without a value."""
    run("facts", "set", "diet", "meat", "rice", "fish", *memory)
    assert run("facts", "withdraw", "diet", "meat", *memory).out == "diet, version 2: rice, fish\n"
    refused = run("facts", "withdraw", "diet", "meat-secret", *memory)
    assert refused.code == 1
    assert "2 values of it are known" in refused.said
    assert "secret" not in refused.said
    shown = run("facts", "show", "diet", *memory).out.splitlines()
    assert shown[1].split("\t")[1] == "withdrawn: meat"
    assert _json(run("facts", "show", "diet", "--format", "json", *memory))[0]["withdrawn"] is True
    forgotten = run("facts", "forget", "diet", "--value", "meat", "--yes", *memory)
    assert forgotten.out.startswith("Forgotten: 2 versions")
    assert "meat" not in run("facts", "export", *memory).out
    assert run("facts", "show", "diet", *memory).out.splitlines()[1].split("\t")[1] == "withdrawn, and erased"
    assert run("facts", "forget", "diet", "--value", "meat", "--yes", *memory).code == 1
    run("facts", "set", "city", "Oslo", *memory)
    for command in (["withdraw", "city", "Oslo"], ["forget", "city", "--value", "Oslo", "--yes"]):
        refused = run("facts", *command, *memory)
        assert refused.code == 2
        assert "'city' has one value" in refused.said
    assert run("facts", "forget", "--value", "rice", "--all", "--yes", *memory).code == 2


def test_where_a_keyword_is_known_already_is_said(run, memory):
    """The scope of a program is another than that of the chat, so `set` makes a new fact, and `withdraw` finds no value."""
    run("facts", "set", "diet", "meat", "--multiple", "--scope", "agent:single_run", *memory)
    ended = run("facts", "withdraw", "diet", "meat", *memory)
    assert (ended.code, "--subject user --scope agent:single_run" in ended.said) == (1, True)
    assert "--subject user --scope agent:single_run" in run("facts", "set", "diet", "rice", *memory).said
    assert "--scope" not in run("facts", "set", "diet", "soup", *memory).said
    assert run("facts", "withdraw", "diet", "meat", "--scope", "agent:single_run", *memory).code == 0


def test_a_value_may_come_from_standard_input(run, memory):
    """So it need not stand in the shell's history."""
    run("facts", "set", "city", "-", *memory, stdin="Oslo\n")
    assert [fact["values"] for fact in _json(run("facts", "list", "--format", "json", *memory))] == [["Oslo"]]


def test_list_chooses(run, memory):
    """Subject, scope and owner narrow the list."""
    run("facts", "set", "city", "Oslo", *memory)
    run("facts", "set", "name", "Kestrel", "--subject", "project", "--scope", "product:my-app", *memory)
    run("facts", "set", "city", "Rome", "--owner", "bob", *memory)

    def listed(*options):
        return [fact["keyword"] for fact in _json(run("facts", "list", "--format", "json", *options, *memory))]

    assert listed() == ["city", "name"]
    assert listed("--subject", "project") == ["name"]
    assert listed("--scope", "agent:chat") == ["city"]
    assert listed("--scope", "product:my-app", "--subject", "user") == []
    assert [fact["values"] for fact in _json(run("facts", "list", "--owner", "bob", "--format", "json", *memory))] == [
        ["Rome"]
    ]


def test_an_owner_without_facts_is_told_who_has_some(run, memory):
    """The list is empty, and the owners that exist are named."""
    run("facts", "set", "city", "Rome", "--owner", "bob", *memory)
    ended = run("facts", "list", "--owner", "eve", *memory)
    assert (ended.code, ended.out) == (0, "")
    assert ended.said == "Nothing is known for owner 'eve' here. Owners with facts: 'bob'."
    assert _json(run("facts", "list", "--owner", "eve", "--format", "json", *memory)) == []


def test_forget_asks_first(run, memory):
    """Without a yes nothing is forgotten; with one, everything that fits, and the receipt counts it."""
    run("facts", "set", "city", "Oslo", *memory)
    run("facts", "set", "city", "Bergen", *memory)
    run("facts", "set", "name", "Ada", *memory)
    ended = run("facts", "forget", "city", *memory, stdin="n\n")
    assert ended.code == 1
    assert "Forget 2 versions of 1 fact ('city') for good?" in ended.out
    assert len(_json(run("facts", "list", "--format", "json", *memory))) == 2
    assert "Forgotten: 2 versions, " in run("facts", "forget", "city", *memory, stdin="y\n").out
    assert [fact["keyword"] for fact in _json(run("facts", "list", "--format", "json", *memory))] == ["name"]


def test_forgotten_bytes_are_gone(run, memory, home):
    """No file holds the value of a fact that was forgotten."""
    run("facts", "set", "motto", "Semper-Paratus-77", *memory)
    assert run("facts", "forget", "--subject", "user", "--yes", *memory).code == 0
    assert b"Semper-Paratus-77" not in b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_forget_wants_to_know_what(run, memory):
    """Nothing named, or everything and something, is refused; all of an owner leaves the others."""
    run("facts", "set", "city", "Oslo", *memory)
    run("facts", "set", "city", "Rome", "--owner", "bob", *memory)
    for words in ([], ["city", "--all"]):
        assert run("facts", "forget", *words, "--yes", *memory).code == 2
    assert run("facts", "forget", "--all", "--yes", *memory).code == 0
    assert len(_json(run("facts", "list", "--owner", "bob", "--format", "json", *memory))) == 1


@pytest.mark.parametrize("words", [["forget", "shoe-size", "--yes"], ["show", "shoe-size"]])
def test_what_is_not_known_is_an_error(run, memory, words):
    """A keyword that nobody has used ends with 1, and nothing on standard output."""
    run("facts", "set", "city", "Oslo", *memory)
    ended = run("facts", *words, *memory)
    assert (ended.code, ended.out) == (1, "")
    assert ended.said.startswith(("error: nothing", "error: no fact"))


def test_an_export_goes_into_another_memory(run, memory, home):
    """All versions and owners arrive; importing again adds nothing."""
    run("facts", "set", "city", "Oslo", *memory)
    run("facts", "set", "city", "Bærum", *memory)
    run("facts", "set", "city", "Rome", "--owner", "bob", *memory)
    exported = run("facts", "export", *memory)
    assert [json.loads(line)["values"] for line in exported.out.splitlines()] != []
    assert run("facts", "export", "--out", "facts.jsonl", *memory).out == ""
    file = home / "facts.jsonl"
    assert file.read_text("utf-8") == exported.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run("facts", "import", "facts.jsonl", "--store", "other").out == "3 of 3 versions were new.\n"
    assert run("facts", "import", "-", "--store", "other", stdin=exported.out).out == "0 of 3 versions were new.\n"
    shown = _json(run("facts", "show", "city", "--format", "json", "--store", "other"))
    assert [fact["values"] for fact in shown] == [["Bærum"], ["Oslo"]]
    only = run("facts", "export", "--owner", "bob", *memory).out.splitlines()
    assert [json.loads(line)["owner"] for line in only] == ["bob"]


@pytest.mark.parametrize("break_", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r", "\n"])
def test_a_value_with_any_line_break_survives_export_and_import(run, home, break_):
    """Only what ends a line of the export ends one at the import."""
    run("facts", "set", "city", f"a{break_}b")
    run("facts", "export", "--out", "facts.jsonl")
    assert run("facts", "import", "facts.jsonl", "--store", "other").out == "1 of 1 version was new.\n"
    [fact] = _json(run("facts", "list", "--format", "json", "--store", "other"))
    assert fact["values"] == [f"a{break_}b"]


def test_an_export_overwrites_nothing(run, memory, home):
    """A file that is there stays as it is."""
    run("facts", "set", "city", "Oslo", *memory)
    (home / "facts.jsonl").write_text("mine")
    ended = run("facts", "export", "--out", "facts.jsonl", *memory)
    assert ended.code == 1
    assert "exists already" in ended.said
    assert (home / "facts.jsonl").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1, is not a JSON object; nothing was imported"),
        ('{"keyword": "city", "values": ["Sesame-7"]}\n', "record 0 is not one of an export"),
        ('["Sesame-7"]', "line 1, is not a JSON object; nothing was imported"),
    ],
)
def test_a_wrong_import_names_the_place_and_no_value(run, memory, home, text, said):
    """Nothing is taken in, and the error does not repeat what stands in the file."""
    (home / "wrong.jsonl").write_text(text)
    ended = run("facts", "import", "wrong.jsonl", *memory)
    assert ended.code == 1
    assert said in ended.said
    assert "Sesame-7" not in ended.err
    assert "there is no memory 'memory'" in run("facts", "list", *memory).said


def test_an_import_without_a_file_is_an_error(run, memory):
    """The name of the file is told, and what is beside it."""
    Path("now-here.jsonl").write_text("")
    ended = run("facts", "import", "nowhere.jsonl", *memory)
    assert ended.code == 1
    assert ended.said.startswith("error: there is no file 'nowhere.jsonl'; its folder has 'now-here.jsonl'")


def test_a_sound_memory_verifies(run, memory):
    """All versions are counted."""
    run("facts", "set", "city", "Oslo", *memory)
    run("facts", "set", "city", "Bergen", *memory)
    assert run("verify", *memory[1:]).out == "memory: sound; 2 versions of facts\n"


def test_a_wrong_key_is_refused(run, home, monkeypatch):
    """It is told by name in one line, whatever is asked, and never looks like an empty memory."""
    monkeypatch.setenv("TEST_KEY", new_key())
    monkeypatch.setenv("OTHER_KEY", new_key())
    run("facts", "set", "city", "Oslo", "--store", "memory", "--key", "env:TEST_KEY")
    for words in (
        ["list"],
        ["show", "city"],
        ["export"],
        ["forget", "city", "--yes"],
        ["set", "city", "Rome"],
    ):
        ended = run("facts", *words, "--store", "memory", "--key", "env:OTHER_KEY")
        assert (ended.code, ended.out) == (1, "")
        assert "sealed with another key" in ended.said
        assert ended.err.count("\n") == 1


def test_a_damaged_memory_is_refused(run, memory, home):
    """Every third byte of the files turned round: it is told as damage, and nothing is read as empty."""
    for number in range(5):
        run("facts", "set", f"fact-{number}", "Oslo", *memory)
    for path in (home / "memory").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            changed = (byte ^ 0x80 if place % 3 == 0 and byte != ord("\n") else byte for place, byte in enumerate(data))
            path.write_bytes(bytes(changed))
    for words in (["list"], ["export"]):
        ended = run("facts", *words, *memory)
        assert (ended.code, ended.out) == (1, ""), ended
        assert "damaged" in ended.said


def test_damage_is_met_by_those_alone_whom_it_concerns(run, home):
    """Where one owner's file is damaged, others' facts are shown, and the damaged ones can be forgotten."""
    run("facts", "set", "city", "Oslo", "--owner", "ann")
    for city in ("Rome", "Pisa"):
        run("facts", "set", "city", city, "--owner", "bob")
    [file] = (path for path in home.rglob("*.jsonl") if b'"bob"' in path.read_bytes())
    file.write_bytes(file.read_bytes().replace(b"Rome", b"Rime"))
    for words in (["list"], ["show", "city"]):
        assert [fact["values"] for fact in _json(run("facts", *words, "--owner", "ann", "--format", "json"))] == [
            ["Oslo"]
        ]
        assert "is damaged" in run("facts", *words, "--owner", "bob").said
    assert run("facts", "list", "--owner", "eve").said == "Nothing is known for owner 'eve' here."
    assert "is damaged" in run("facts", "forget", "--all", "--owner", "bob", stdin="y\n").said
    assert run("facts", "forget", "--all", "--owner", "bob", "--yes").out.startswith("Forgotten: 2 versions, ")
    assert not file.exists()
    assert run("verify").out.endswith("memory: sound; 1 version of facts\n")


def test_a_torn_last_line_is_reported_by_verify_alone(run, home):
    """What was known before is shown; `verify` says that the last line is torn, and that the others are sound."""
    for city in ("Oslo", "Rome"):
        run("facts", "set", "city", city)
    [file] = home.rglob("*.jsonl")
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    assert [fact["values"] for fact in _json(run("facts", "list", "--format", "json"))] == [["Oslo"]]
    ended = run("verify")
    assert ended.code == 1
    assert "line 3 is damaged: the last line is torn" in ended.said
    assert "The lines before it are intact" in ended.said


def test_forgetting_what_is_not_there_with_a_yes_is_an_error_too(run, memory):
    """Nothing was asked and nothing was there: that is told."""
    run("facts", "set", "street", "Storgata", *memory)
    ended = run("facts", "forget", "city", "--yes", *memory)
    assert (ended.code, ended.said) == (1, "error: no fact fits, so nothing was forgotten")


def test_a_sealed_memory_wants_its_key(run, home, monkeypatch):
    """Without a key it is not silently taken for an empty plain one."""
    monkeypatch.setenv("TEST_KEY", new_key())
    run("facts", "set", "city", "Oslo", "--store", "memory", "--key", "env:TEST_KEY")
    ended = run("facts", "list", "--store", "memory")
    assert ended.code == 2
    assert "is sealed; say where its key is" in ended.said


def test_a_plain_memory_is_not_sealed_halfway(run, home, monkeypatch):
    """A key over plain facts is refused, with the way to move them."""
    monkeypatch.setenv("TEST_KEY", new_key())
    run("facts", "set", "city", "Oslo", "--store", "memory")
    ended = run("facts", "list", "--store", "memory", "--key", "env:TEST_KEY")
    assert ended.code == 2
    assert "graphagent facts export" in ended.said


@pytest.mark.parametrize("key", ["env:", "nonsense", "c2hvcnQ="])
def test_what_is_no_key_is_refused_unseen(run, key):
    """It is a wrong call, and what was given is not repeated."""
    ended = run("facts", "set", "city", "Oslo", "--key", key)
    assert ended.code == 2
    assert "32 bytes" in ended.said
    assert key == "env:" or key not in ended.err


def test_a_key_that_is_not_there_is_an_error(run):
    """A variable that is not set and a file that is missing are named."""
    assert (
        "'NO_SUCH_KEY' is to hold the key, but is not set"
        in run("facts", "set", "a", "b", "--key", "env:NO_SUCH_KEY").said
    )
    ended = run("facts", "set", "a", "b", "--key", "file:nowhere")
    assert ended.code == 1
    assert "there is no key file 'nowhere'" in ended.said


def test_a_file_where_the_folder_should_be_is_an_error(run, home):
    """It is named, and stays as it is."""
    (home / "memory").write_text("mine")
    for words in (["list"], ["set", "city", "Oslo"]):
        ended = run("facts", *words, "--store", "memory")
        assert ended.code == 1
        assert "memory is damaged: SQLite cannot make sense of it" in ended.said
    assert (home / "memory").read_text() == "mine"


@pytest.mark.parametrize("scope", ["chat", "agent:", "team:x", ":"])
def test_a_wrong_scope_names_the_kinds(run, scope):
    """What a scope looks like, and which kinds exist."""
    run("facts", "set", "city", "Oslo")
    ended = run("facts", "list", "--scope", scope)
    assert ended.code == 2
    assert "agent, feature, product, cross_product" in ended.said


def test_names_that_cannot_be_are_refused(run):
    """An empty keyword or subject is a wrong call, not a traceback."""
    for words in (
        ["show", ""],
        ["set", "", "x"],
        ["set", "x", "y", "--subject", ""],
        ["set", "x", "y", "--scope", f"agent:{'n' * 1001}"],
    ):
        assert run("facts", *words).code == 2


@pytest.mark.parametrize("words", [["list"], ["export"], ["set", "city", "Oslo"]])
@pytest.mark.parametrize("owner", ["n" * 1001, "\udcff"])
def test_an_owner_that_cannot_be_is_refused(run, words, owner):
    """A name that is too long, or no text, is a wrong call."""
    ended = run("facts", *words, "--owner", owner)
    assert ended.code == 2
    assert "name of an owner" in ended.said


def test_a_value_that_is_no_text_is_refused(run):
    """Bytes from the shell that are no UTF-8 are a wrong call, and nothing is kept."""
    ended = run("facts", "set", "city", "Oslo\udcff")
    assert ended.code == 2
    assert "lone surrogate" in ended.said
    assert "no data have been kept yet; begin with: graphagent chat" in run("facts", "list").said


def test_values_cannot_move_the_cursor(run, memory):
    """Control characters in a value are shown as what they are not."""
    run("facts", "set", "city", "Oslo\x1b[2J\u202e", *memory)
    listed = run("facts", "list", *memory).out
    assert "\x1b" not in listed
    assert "Oslo�[2J�" in listed


def test_the_default_folder_is_under_its_home(run, home):
    """$GRAPHAGENT_HOME decides where the memory is."""
    run("facts", "set", "city", "Oslo")
    assert [path.name for path in (home / "home").iterdir()] == ["memory"]


def test_a_key_is_new_each_time(run, home, monkeypatch):
    """On standard output it is one line that opens a memory; in a file it is private and overwrites nothing."""
    first, second = run("keys", "new").out.strip(), run("keys", "new").out.strip()
    assert first != second
    monkeypatch.setenv("TEST_KEY", first)
    assert run("facts", "set", "city", "Oslo", "--key", "env:TEST_KEY").code == 0
    assert run("keys", "new", "--out", "key").out == ""
    assert stat.S_IMODE((home / "key").stat().st_mode) == 0o600
    made = (home / "key").read_text()
    assert run("facts", "set", "city", "Oslo", "--store", "other", "--key", "file:key").code == 0
    ended = run("keys", "new", "--out", "key")
    assert ended.code == 1
    assert "exists already" in ended.said
    assert (home / "key").read_text() == made
    assert "cannot be written" in run("keys", "new", "--out", os.path.join("no", "folder", "key")).said


@pytest.mark.parametrize("values", [[""], [" "], ["\t\n"], ["Oslo", ""], ["Oslo", " ", "--multiple"], ["-"]])
def test_a_blank_value_is_refused(run, values):
    """Nothing is kept, and what was known stays; the error says how to remove a fact."""
    run("facts", "set", "city", "Rome")
    ended = run("facts", "set", "city", *values, stdin=" \n")
    assert (ended.code, ended.out) == (2, "")
    assert "the value is blank; to remove a fact: graphagent facts forget city" in ended.said
    assert run("facts", "show", "city").out.count("Rome") == 1


def test_a_blank_keyword_is_refused(run):
    """A fact under it could hardly be named again."""
    ended = run("facts", "set", " ", "Rome")
    assert ended.code == 2
    assert "the keyword is blank" in ended.said
    assert run("facts", "list").out == ""


def test_spaces_around_a_value_are_dropped(run):
    """As in what is learned from a conversation."""
    run("facts", "set", "city", "  Oslo ")
    assert run("facts", "show", "city", "--format", "json").out.count('"Oslo"') == 1


@pytest.mark.parametrize("words", [["city", "--subject", ""], ["city", "--scope", " "], ["", "--subject", "user"]])
def test_a_blank_condition_forgets_nothing(run, words):
    """An unset variable of a script must not widen what is forgotten."""
    run("facts", "set", "city", "Rome")
    ended = run("facts", "forget", *words, "--yes")
    assert ended.code == 2
    assert "the value is blank; name one, or leave out the option" in ended.said
    assert "Rome" in run("facts", "list").out
