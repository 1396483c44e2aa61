"""What other memories export becomes notes: nothing is lost, nothing twice, nothing bad."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from graphagent.errors import NoteError
from graphagent.memory import Notes
from graphagent.migrate._records import origin_of
from graphagent.migrate.notes import (
    by_owner,
    from_crewai,
    from_csv,
    from_export,
    from_jsonl,
    from_markdown,
    from_mcp,
    from_mem0,
)
from graphagent.store import EncryptedStore, MemoryStore, new_key

READERS = {"graphagent": from_export, "crewai": from_crewai, "mem0": from_mem0, "mcp": from_mcp}
CREWAI = [
    {
        "id": "0f8fad5b-d9cb-469f-a165-70867728950e", "content": "We use PostgreSQL.", "scope": "/project//alpha/",
        "categories": ["decision"], "metadata": {"by": "Ada"}, "importance": 0.9, "created_at": "2026-01-02T03:04:05.678901",
        "last_accessed": "2026-02-03T04:05:06", "source": "ada", "private": True,
    },
    {
        "id": "7c9e6679-7425-40de-944b-e07fc1f90ae7", "content": "The budget is 3 €.", "scope": "/", "categories": [],
        "metadata": {}, "importance": 0.5, "created_at": "2026-01-02T03:04:05+02:00",
        "last_accessed": "2026-01-02T03:04:05+02:00", "source": None, "private": False,
    },
]  # fmt: skip
MEM0 = {
    "results": [
        {
            "id": "892db2ae-06d9-49e5-8b3e-585ef9b85b8e", "memory": "Likes green tea", "hash": "5c3bc2", "role": "user",
            "metadata": {"mem0": "own", "kind": "taste"}, "created_at": "2026-01-02T03:04:05.678901-08:00",
            "updated_at": None, "user_id": "alice", "agent_id": "helper", "run_id": "r1", "actor_id": "Alice",
            "expiration_date": "2027-01-01",
        },
        {
            "id": "1c9e6679-7425-40de-944b-e07fc1f90ae7", "memory": "Lives in Oslo", "hash": "aa", "metadata": None,
            "created_at": "2026-01-02T03:04:05Z", "updated_at": "2026-01-03T03:04:05Z",
        },
    ],
    "relations": [{"source": "alice", "relationship": "lives_in", "target": "oslo"}],
}  # fmt: skip
MCP = (
    '{"type":"entity","name":"Ada","entityType":"person","observations":["likes tea","works at Acme"]}\n'
    '{"type":"entity","name":"Acme","entityType":"company","observations":[]}\n'
    '{"type":"relation","from":"Ada","to":"Acme","relationType":"works_at"}\n'
)


async def _kept(records):
    store, kept = MemoryStore(), {}
    for owner, theirs in by_owner(records).items():
        notes = Notes(store, owner=owner)
        assert await notes.import_(theirs) == len(theirs)
        assert await notes.import_(theirs) == 0
        kept |= {record.content: record for record in await notes.list_records()}
    return kept


async def test_crewai_records_keep_every_field():
    """What a record says of itself stands in the note, and what has no place there in its metadata."""
    kept = from_crewai(json.dumps(CREWAI))
    notes = Notes(MemoryStore(), source="ada")
    await notes.import_(kept)
    first, second = [await notes.get(each["id"]) for each in CREWAI]
    assert (first.content, first.scope, first.categories) == ("We use PostgreSQL.", "/project/alpha", ("decision",))
    assert (first.importance, first.source, first.private) == (0.9, "ada", True)
    assert first.created_at.isoformat() == "2026-01-02T03:04:05.678901+00:00"
    rest = {"last_accessed": "2026-02-03T04:05:06", "scope": "/project//alpha/"}
    assert first.metadata == {"by": "Ada", "crewai": rest}
    assert second.created_at.isoformat() == "2026-01-02T01:04:05+00:00"


def test_crewai_rows_are_read_as_records_are():
    """A row of its LanceDB table, with texts for lists and with a vector, gives the same note."""
    row = {**CREWAI[0], "categories_str": '["decision"]', "metadata_str": '{"by": "Ada"}', "vector": [0.1, 0.2]}
    del row["categories"], row["metadata"]
    assert from_crewai(json.dumps(row)) == from_crewai(json.dumps([CREWAI[0]]))


def test_lines_an_array_and_an_indented_array_are_the_same():
    """However JSON is laid out, with or without a byte order mark, the same notes are read."""
    lines = "\r\n".join(json.dumps(each) for each in CREWAI) + "\r\n\r\n"
    expected = from_crewai(json.dumps(CREWAI))
    for text in (lines, json.dumps(CREWAI, indent=2), b"\xef\xbb\xbf" + lines.encode(), {"records": CREWAI}):
        assert from_crewai(text if isinstance(text, str | bytes) else json.dumps(text)) == expected


async def test_mem0_memories_keep_every_field():
    """Users are owners, agents are sources; the rest is in the metadata, beside what stood there."""
    records = from_mem0(json.dumps(MEM0))
    assert [record.get("owner", "") for record in records] == ["alice", "", ""]
    kept = await _kept(records)
    tea = kept["Likes green tea"]
    assert (tea.owner, tea.source, tea.run_id, tea.role, tea.speaker) == ("alice", "helper", "r1", "user", "Alice")
    assert tea.created_at == tea.updated_at
    rest = {"hash": "5c3bc2", "expiration_date": "2027-01-01", "user_id": "alice"}
    assert tea.metadata == {"mem0": {**rest, "metadata": {"mem0": "own", "kind": "taste"}}}
    assert kept["Lives in Oslo"].updated_at.isoformat() == "2026-01-03T03:04:05+00:00"
    assert kept["alice lives in oslo"].metadata == {"mem0": MEM0["relations"][0]}


async def test_an_mcp_graph_can_be_made_of_its_notes_again():
    """Entities, observations and relations stand in the metadata as they were."""
    kept = await _kept(from_mcp(MCP, scope="/people"))
    assert set(kept) == {"Ada: likes tea", "Ada: works at Acme", "Acme (company)", "Ada works at Acme"}
    assert {record.scope for record in kept.values()} == {"/people"}
    assert kept["Ada: likes tea"].categories == ("person",)
    graph = [kept[content].metadata["mcp"] for content in kept]
    assert {each["observation"] for each in graph if each.get("name") == "Ada"} == {"likes tea", "works at Acme"}
    assert kept["Ada works at Acme"].metadata["mcp"] == json.loads(MCP.splitlines()[2])
    assert kept["Acme (company)"].metadata["mcp"] == json.loads(MCP.splitlines()[1])


def test_mcp_ids_depend_on_what_is_said_alone():
    """The file, what the tool gives, and a file that has grown since have the same ids for the same things."""
    entities = [json.loads(line) for line in MCP.splitlines()[:2]]
    relation = json.loads(MCP.splitlines()[2])
    for each in (*entities, relation):
        del each["type"]
    graph = json.dumps({"entities": entities, "relations": [relation]})
    ids = {record["id"] for record in from_mcp(MCP)}
    assert {record["id"] for record in from_mcp(graph)} == ids
    assert ids < {record["id"] for record in from_mcp(MCP.replace('"likes tea"', '"plays chess","likes tea"'))}


@pytest.mark.parametrize(
    ("origin", "line", "reason"),
    [
        ("crewai", "not JSON", "line 2 is not JSON"),
        ("crewai", "[]", "line 2 is not a JSON object"),
        ("crewai", '{"id": "a"}', "line 2 is not a note: it lacks 'content'"),
        ("crewai", '{"id": "a", "content": "  "}', "line 2 is not a note: .*blank"),
        ("crewai", '{"id": "a", "content": "x\\ud800"}', "line 2 is not a note: .*surrogate"),
        ("crewai", '{"id": "a", "content": "x", "importance": 7}', "line 2 is not a note: its importance"),
        ("crewai", '{"id": "a", "content": "x", "importance": NaN}', "line 2 is not JSON: JSON has no NaN"),
        ("crewai", '{"id": "a", "content": "x", "scope": "/a/../b"}', "line 2: scope"),
        ("crewai", '{"id": "a", "content": "x", "created_at": "yesterday"}', "line 2 is not a note"),
        ("crewai", '{"id": "a", "content": "x", "categories": "tea"}', "line 2 is not a note: its categories"),
        ("crewai", '{"id": "a", "content": "x", "metadata": [1]}', "line 2 is not a note: its metadata"),
        ("crewai", '{"id": "a", "content": "x", "metadata": {"n": 123456789012345678901234567890}}', "line 2 is not a note"),
        ("crewai", '{"id": "a", "content": "x", "private": "yes"}', "line 2 is not a note: its private"),
        ("crewai", '{"id": "0f8fad5b-d9cb-469f-a165-70867728950e", "content": "x"}', "line 2 has the id of line 1"),
        ("crewai", "[" * 100_000, "line 2 is not JSON"),
        ("mem0", '{"id": "a", "text": "x"}', "line 2 is not a note: it lacks 'content'"),
        ("mem0", '{"id": 7, "memory": "x"}', "line 2 is not a note: its id"),
        ("mcp", '{"type": "thing"}', "line 2: it is a 'thing'"),
        ("mcp", '{"type": "entity", "name": "Ada", "entityType": "person", "observations": "x"}', "line 2: an entity has"),
        ("mcp", '{"type": "relation", "from": "Ada", "relationType": "knows"}', "line 2: a relation is"),
        ("graphagent", '{"id": "a", "content": "x", "colour": "red"}', "line 2 is not a note: no note has 'colour'"),
        ("graphagent", '{"id": "a", "content": "x", "history": [{}]}', "line 2 is not a note: its history"),
        ("graphagent", '{"id": "a", "content": "x", "trust": "utter"}', "line 2 is not a note: its trust"),
        ("graphagent", '{"type": "run", "id": "a", "content": "x"}', "line 2 is not a note: it is a 'run'"),
    ],
)  # fmt: skip
def test_a_bad_record_is_refused_with_its_line(origin, line, reason):
    """The line is named, whatever is wrong with it, and nothing is given."""
    first = {"crewai": json.dumps(CREWAI[0]), "mem0": json.dumps(MEM0["results"][0]), "mcp": MCP.splitlines()[0],
             "graphagent": '{"type": "note", "id": "z", "content": "y"}'}[origin]  # fmt: skip
    with pytest.raises(ValueError, match=reason):
        READERS[origin](f"{first}\n{line}\n")


def test_what_is_said_twice_is_one_note():
    """Where it has no time of its own, too: all of a file get the same."""
    lines = [json.dumps({"id": "a", "content": "x"})] * 500
    assert len(from_export("\n".join(lines))) == 1
    assert len(from_mem0({"relations": MEM0["relations"] * 500})) == 1
    assert len(from_mcp(MCP * 100)) == 4
    assert len({each["created_at"] for each in from_mcp(MCP)}) == 1


def test_a_bad_record_of_an_array_is_refused_with_its_number():
    """Where there are no lines, records are counted."""
    with pytest.raises(ValueError, match="record 2 is not a note"):
        from_mem0(json.dumps({"results": [MEM0["results"][0], {"id": "a"}]}))
    with pytest.raises(ValueError, match="record 2 is not a JSON object"):
        from_mem0(json.dumps([MEM0["results"][0], 3]))
    with pytest.raises(ValueError, match="line 3 is not text"):
        from_mcp(b'{"type":"relation","from":"a","to":"b","relationType":"c"}\n\n\xff\xfe')
    with pytest.raises(ValueError, match="line 1"):
        from_mem0("3")


@pytest.mark.parametrize("text", ["", " \n\n", b"", "[]"])
def test_nothing_gives_nothing(text):
    """An empty file has no notes."""
    assert [reader(text) for reader in READERS.values()] == [[], [], [], []]


@pytest.mark.parametrize("sealed", [False, True])
async def test_an_export_comes_back_without_loss(sealed):
    """Texts, times, metadata, history and versions are the same after a detour through JSON lines, and can be undone."""
    store = MemoryStore()
    one = Notes(EncryptedStore(store, new_key()) if sealed else store)
    kept = await one.remember(
        "Tea, 茶", scope="/a/b", categories=["x"], metadata={"deep": [1, {"é": None}]}, importance=0.25
    )
    await one.update(kept.id, content="Coffee")
    await one.update(kept.id, scope="/c")
    text = "".join(json.dumps(data, ensure_ascii=False) + "\n" for data in [data async for data in one.export()])
    other = Notes(MemoryStore())
    assert await other.import_(from_export(text.encode())) == 1
    assert await other.get(kept.id) == await one.get(kept.id)
    assert await other.history(kept.id) == await one.history(kept.id)
    assert [data async for data in other.export()] == [data async for data in one.export()]
    assert (await other.undo(kept.id)).scope == "/a/b"
    assert [former.action for former in await other.history(kept.id)] == ["undone", "updated", "updated"]


def test_a_scope_goes_before_those_of_the_file():
    """So what is imported has a place of its own, history included."""
    old = {"record": {"id": "z", "content": "x", "scope": "/b"}, "action": "updated"}
    [record] = from_export(json.dumps({"id": "z", "content": "y", "scope": "/a", "history": [old]}), scope="/from")
    assert (record["scope"], record["history"][0]["record"]["scope"]) == ("/from/a", "/from/b")


# ---- whose they are


def test_records_have_the_owners_of_the_data_or_one_for_all():
    """`owner=` goes before what is said there, in the history too; an owner that no command would take is refused."""
    assert [each.get("owner") for each in from_mem0(json.dumps(MEM0), owner="carol")] == ["carol"] * 3
    old = {"record": {"id": "z", "content": "x", "owner": "ann"}, "action": "updated"}
    note = {"id": "z", "content": "y", "owner": "ann", "history": [old]}
    [record] = from_export(json.dumps(note), owner="bob")
    assert (record["owner"], record["history"][0]["record"]["owner"]) == ("bob", "bob")
    assert "owner" not in from_export([note], owner="")[0]
    with pytest.raises(ValueError, match=r"record 1 is not a note: its history is that of another"):
        from_export([{**note, "owner": "bob"}])
    with pytest.raises(ValueError, match=r"line 2 has the id of line 1"):
        from_export(f"{json.dumps(note)}\n{json.dumps({'id': 'z', 'content': 'other'})}", owner="bob")
    for far in ("o" * 1001, "\ud800"):
        with pytest.raises(ValueError, match="record 1 is not a note: owner"):
            from_export([{**note, "owner": far, "history": []}])
        with pytest.raises(NoteError, match="owner"):
            from_export([note], owner=far)


def test_records_are_sorted_by_their_owners():
    """In their order; those of none stand under the empty name."""
    records = from_mem0(MEM0)
    assert by_owner(records) == {"alice": [records[0]], "": records[1:]}
    assert by_owner([]) == {}


# ---- parsed JSON, and what is neither it nor a text


def test_parsed_json_is_read_as_its_text_is():
    """What a memory gives in the same program needs no detour through a file, and is left as it is."""
    before = json.dumps(MEM0)
    assert [each["id"] for each in from_mem0(MEM0)] == [each["id"] for each in from_mem0(before)]
    assert from_mem0(tuple(MEM0["results"])) == from_mem0(json.dumps(MEM0["results"]))
    assert json.dumps(MEM0) == before
    assert from_crewai(CREWAI[0]) == from_crewai(json.dumps(CREWAI[:1]))
    graph = {"entities": [json.loads(line) for line in MCP.splitlines()[:2]], "relations": []}
    assert {each["id"] for each in from_mcp(graph)} == {each["id"] for each in from_mcp(json.dumps(graph))}
    with pytest.raises(ValueError, match="record 1 is not a note: the metadata"):
        from_export([{"id": "z", "content": "y", "metadata": {"x": float("nan")}}])


@pytest.mark.parametrize("reader", READERS.values())
@pytest.mark.parametrize("given", [Path("notes.jsonl"), 3, None, io.StringIO("{}")])
def test_what_is_neither_a_text_nor_parsed_json_is_refused(reader, given):
    """What to give instead of a path or an open file is said."""
    with pytest.raises(TypeError, match=r"reads the text of a file, or the same as parsed JSON.*read_bytes"):
        reader(given)


@pytest.mark.parametrize(
    "given",
    [
        {"results": [{"id": "a", "memory": "Likes tea", "event": "ADD"}]},
        {
            "results": [{"id": "a", "memory": "Likes tea", "event": "UPDATE", "previous_memory": "x"}],
            "relations": {"added_entities": [], "deleted_entities": []},
        },
        {"results": [], "relations": {"added_entities": [], "deleted_entities": []}},
        [{"id": "a", "memory_id": "b", "old_memory": None, "new_memory": "tea", "event": "ADD", "created_at": "2026"}],
    ],
)
def test_what_mem0_gives_of_a_change_is_refused(given):
    """It lacks whose the memories are; what to give instead is said."""
    for data in (given, json.dumps(given)):
        with pytest.raises(ValueError, match=r"pass the result of get_all\(\)"):
            from_mem0(data)


def test_it_is_guessed_whose_data_it_is():
    """By the first record; what says nothing is nobody's."""
    export = {"type": "note", "id": "a", "content": "x"}
    for given, origin in (
        (MEM0, "mem0"), (MEM0["relations"], "mem0"), (MCP, "mcp"), ({"entities": [], "relations": []}, None), (CREWAI, "crewai"),
        (export, "graphagent"), ("nonsense", None), ("", None), ({"id": "a", "content": "x"}, None),
    ):  # fmt: skip
        assert origin_of(given) == origin
        assert origin_of(given if isinstance(given, str) else json.dumps(given)) == origin


# Tables, JSON lines and Markdown


def _told(records, *names):
    return [tuple(record.get(name) for name in names) for record in records]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
async def test_a_row_of_a_table_is_a_note(separator):
    """Known columns are fields of the note, others its metadata; importing it again adds nothing."""
    rows = [
        ["Text", "categories", "importance", "private", "source", "at", "ticket"],
        ['"Tea, or\nmilk"', '"drink, morning"', "0.9", "yes", "ada", "2026-01-31", "42"],
        ["Oslo", "", "", "", "", "", ""],
        ["", "", "", "", "", "", ""],
    ]
    text = "\ufeff" + "\r\n".join(separator.join(row) for row in rows) + "\r\n"
    first, second = records = from_csv(text.encode(), scope="/table")
    assert _told([first], "content", "categories", "importance", "private", "source", "metadata", "scope") == [
        ("Tea, or\nmilk", ["drink", "morning"], 0.9, True, "ada", {"ticket": "42"}, "/table")
    ]
    assert first["at"] == "2026-01-31T00:00:00+00:00"
    assert (second["content"], second.get("metadata")) == ("Oslo", None)
    async with Notes(MemoryStore()) as notes:
        assert await notes.import_(records) == 2
        assert await notes.import_(from_csv(text, scope="/table")) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "name,size\nAda,3\n",
            "line 1 is not a header with a column 'content' or 'text'; its columns are 'name', 'size'",
        ),
        ("content,importance\ntea,0.5\nmilk,much\n", "line 3: importance is a number from 0 to 1"),
        ("content,importance\ntea,5\n", "line 2 is not a note: its importance has to be a number from 0 to 1"),
        ("content,private\ntea,perhaps\n", "line 2: private is true or false"),
        ("content,at\ntea,soon\n", "line 2: its at has to be a time"),
        ("content,scope\ntea\nmilk,/a,b\n", "line 3 has more cells than the header"),
        ("content,scope\n,/a\n", "line 2: it has no 'content' and no 'text'"),
        ('content\n"tea\n', "line 2 is not a row"),
        (b"content\ntea\n\xff\n", "line 3 is not text in UTF-8"),
        ("id,content\n1,tea\n1,milk\n", "line 3 has the id of line 2"),
    ],
)
def test_a_wrong_row_is_named(text, said):
    """By its line, and nothing is returned."""
    with pytest.raises(ValueError, match=said):
        from_csv(text)


def test_json_lines_of_any_program_are_notes():
    """What has a text is one; fields that a note lacks are its metadata."""
    lines = [
        {"id": 7, "text": "tea", "categories": "drink", "owner": "ada", "at": "2026-01-31T09:00:00+01:00", "page": 3},
        {"content": "milk", "text": "a field of another name", "metadata": {"page": 4}},
    ]
    tea, milk = from_jsonl("\n".join(map(json.dumps, lines)))
    assert (tea["id"], tea["content"], tea["categories"], tea["owner"]) == ("7", "tea", ["drink"], "ada")
    assert (tea["at"], tea["metadata"]) == ("2026-01-31T08:00:00+00:00", {"page": 3})
    assert (milk["content"], milk["metadata"]) == ("milk", {"text": "a field of another name", "page": 4})
    assert from_jsonl(lines)[1]["id"] == milk["id"]
    with pytest.raises(ValueError, match="record 1: it has no 'content' and no 'text'"):
        from_jsonl([{"name": "Ada"}])


PAGE = """---
title: The plan
tags: [db, "#urgent"]
date: 2026-01-31
people:
  - Ada
  - Bob
---
We begin in May.

# The plan

## Database
We chose PostgreSQL.

```sh
# no heading
```

### Why ###
It is known.

## Empty

## Server
In Oslo.
"""


async def test_a_section_of_markdown_is_a_note():
    """With the headings above it; its scope is the folder, its source the file, its categories and time are of the front matter."""
    records = from_markdown({"project/plan.md": PAGE.encode(), "tea.md": "Ada likes tea."}, scope="/vault")
    assert _told(records, "content", "scope", "source") == [
        ("The plan\n\nWe begin in May.", "/vault/project", "project/plan.md"),
        (
            "The plan > Database\n\nWe chose PostgreSQL.\n\n```sh\n# no heading\n```",
            "/vault/project",
            "project/plan.md",
        ),
        ("The plan > Database > Why\n\nIt is known.", "/vault/project", "project/plan.md"),
        ("The plan > Server\n\nIn Oslo.", "/vault/project", "project/plan.md"),
        ("tea\n\nAda likes tea.", "/vault", "tea.md"),
    ]
    assert _told(records[1:2], "categories", "at", "metadata") == [
        (["db", "urgent"], "2026-01-31T00:00:00+00:00", {"people": ["Ada", "Bob"], "heading": "Database"})
    ]
    async with Notes(MemoryStore()) as notes:
        assert await notes.import_(records) == 5
        assert await notes.import_(from_markdown({"project/plan.md": PAGE}, scope="/vault")) == 0
        assert (await notes.forget(source="project/plan.md")).notes == 4
    assert from_markdown({"empty.md": "# Only a heading\n"}) == []
    with pytest.raises(ValueError, match=r"'bad.md': line 2 is not text in UTF-8"):
        from_markdown({"bad.md": b"a\n\xff"})
    with pytest.raises(ValueError, match=r"'bad.md': its date has to be a time"):
        from_markdown({"bad.md": "---\ndate: soon\n---\na"})


def test_a_cell_may_be_as_long_as_a_note():
    """The csv module refuses more than 131,072 characters at first, and for other readers still does."""
    limit = csv.field_size_limit()
    [record] = from_csv(f'text\n"{"long " * 40_000}"\n')
    assert len(record["content"]) == 199_999
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize(
    ("reader", "given", "said"),
    [
        (from_markdown, b"# Plan", "files are texts by their paths, such as {'plan.md': text}, not "),
        (from_markdown, {"plan.md": None}, "the text of a file, or its bytes, not "),
        (from_csv, None, "the text of a file, or its bytes, not "),
    ],
)
def test_what_is_no_text_of_a_file_is_refused(reader, given, said):
    """The error says what is read, and shows nothing of it."""
    with pytest.raises(TypeError) as raised:
        reader(given)
    assert said in str(raised.value)
    assert "Plan" not in str(raised.value)
