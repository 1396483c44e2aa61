"""Likely mistakes: each is refused at once, by an error that says what is wrong and what to write, and nothing is lost."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta
from functools import partial

import pytest

from graphagent import Agent, Strategy
from graphagent.embed import CallableEmbedder
from graphagent.embed.static import StaticEmbedder
from graphagent.errors import NoteError, NotePermissionError
from graphagent.graph import END, START
from graphagent.memory import Notes, NoteSettings, Ranking, Turn
from graphagent.store import MemoryStore


def function(texts):
    return [[1.0] for _ in texts]


# Made


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"model": "gpt-4o"}, TypeError, r"an object that responds, such as OpenAIModel\('gpt-…'\), not a str"),
        ({"embedder": "static"}, TypeError, r"not a str; give StaticEmbedder\(\), of graphagent.embed.static"),
        ({"embedder": {"provider": "openai"}}, TypeError, r"not a dict; give embedder_from\("),
        ({"embedder": function}, TypeError, r"not a function; give CallableEmbedder\(function, name="),
        ({"embedder": StaticEmbedder}, TypeError, r"the class StaticEmbedder; make one"),
        ({"owner": 42}, TypeError, "owner=42 is not a text.*give owner='42'"),
        ({"owner": None}, TypeError, "owner=None is not a text.*leave it out"),
        ({"source": ""}, NoteError, "source='' is blank"),
        ({"settings": {"exploration_budget": 2}}, TypeError, r"NoteSettings\(\*\*that\), not a dict"),
    ],
)  # fmt: skip
def test_what_notes_cannot_be_made_of_is_refused(given, kind, said):
    """By the sentence that says what could be given."""
    with pytest.raises(kind, match=said):
        Notes(MemoryStore(), **given)


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"ranking": {"session": 1}}, TypeError, r"Ranking\(\*\*that\), not a dict"),
        ({"ranking": {}}, TypeError, r"Ranking\(\*\*that\), not a dict"),
        ({"ranking": Ranking(session=-1)}, ValueError, r"ranking.session=-1 is not a number from 0 on"),
        ({"ranking": Ranking(roles=None)}, TypeError, r"ranking.roles is a dict with the number to add for each role, .* not None"),
        ({"ranking": Ranking(roles={"user": "x"})}, TypeError, r"ranking.roles\['user'\]='x' is not a number"),
        ({"recency_weight": "0.3"}, TypeError, "recency_weight='0.3' is not a number"),
        ({"relevance_gate": "0.3"}, TypeError, "relevance_gate='0.3' is not a number"),
        ({"recency_half_life_days": "30"}, TypeError, "recency_half_life_days='30' is not a number"),
        ({"exploration_budget": 1.5}, TypeError, "exploration_budget=1.5 is not a whole number"),
        ({"confidence_threshold_low": 0.9}, ValueError, "confidence_threshold_low=0.9 is above confidence_threshold_high=0.8"),
    ],
)  # fmt: skip
def test_what_is_no_setting_is_refused(given, kind, said):
    """By the sentence that says what could be given."""
    with pytest.raises(kind, match=said):
        NoteSettings(**given)


@pytest.mark.parametrize(
    ("store", "kind", "said"),
    [
        (3, TypeError, r"a path or a store, such as 'notes.db' or SqliteStore\('notes.db'\), not an int"),
        (MemoryStore, TypeError, "the class MemoryStore; make one"),
        (":memory:", ValueError, r"MemoryStore\(\), of graphagent.store"),
        ("", ValueError, "path='' is not a path"),
    ],
)
def test_what_is_no_store_is_refused(store, kind, said, tmp_path, monkeypatch):
    """And no file is made of a name that other libraries take for none."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=said):
        Notes(store)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_model_is_told_as_agents_tell_it():
    """In the same words."""
    said = []
    for make in (lambda: Notes(MemoryStore(), model="m"), lambda: Agent(Strategy("s", START >> END), model="m")):
        with pytest.raises(TypeError) as caught:
            make()
        said.append(str(caught.value))
    assert said[0] == said[1]


# Asked, changed and kept

RECORD = object()
"""Stands for a record that is kept."""


@pytest.mark.parametrize(
    ("operation", "given", "kind", "said"),
    [
        ("recall", {"query": "x", "since": "2025-01-01"}, TypeError, r"give one, such as datetime.fromisoformat\('2025-01-01'\)"),
        ("recall", {"query": "x", "until": "last week"}, TypeError, r"until='last week' is not a datetime; .* datetime\(2025"),
        ("recall", {"query": "x", "since": timedelta(3)}, TypeError, r"such as datetime.now\(UTC\) - that"),
        ("recall", {"query": "x", "since": date(2025, 1, 1)}, TypeError, "is not a datetime"),
        ("recall", {"query": "x", "limit": "3"}, TypeError, "limit='3' is not a whole number"),
        ("recall", {"query": "x", "limit": 3.0}, TypeError, "limit=3.0 is not a whole number"),
        ("recall", {"query": "x", "min_score": float("nan")}, ValueError, "min_score=nan is not a score; .* from 0 to 1"),
        ("recall", {"query": "x", "min_score": "0.5"}, TypeError, "min_score='0.5' is not a number"),
        ("recall", {"query": "x", "depth": "deeep"}, ValueError, "use 'shallow', 'deep' or 'auto'"),
        ("list_records", {"limit": "3"}, TypeError, "limit='3' is not a whole number"),
        ("list_records", {"since": "2025-01-01"}, TypeError, "since='2025-01-01' is not a datetime"),
        ("tree", {"max_depth": -1}, ValueError, "max_depth=-1 is below 0"),
        ("tree", {"max_depth": "1"}, TypeError, "max_depth='1' is not a whole number"),
        ("get", {"id_": None}, TypeError, "a text such as record.id, not by None"),
        ("get", {"id_": RECORD}, TypeError, "not by a Record; give its .id"),
        ("update", {"id_": RECORD, "content": "x"}, TypeError, "not by a Record; give its .id"),
        ("undo", {"id_": RECORD}, TypeError, "not by a Record; give its .id"),
        ("history", {"id_": RECORD}, TypeError, "not by a Record; give its .id"),
        ("forget", {"ids": [RECORD]}, TypeError, "not by a Record; give its .id"),
        ("forget", {"ids": RECORD}, TypeError, "not by a Record; give its .id"),
        ("forget", {"older_than": timedelta(days=-1)}, ValueError, r"below zero.*timedelta\(days=30\).*reset\(\)"),
        ("forget", {"older_than": datetime(2999, 1, 1, tzinfo=UTC)}, ValueError, r"has not come yet.*reset\(\)"),
        ("forget", {"older_than": 30}, TypeError, r"an age is a timedelta, such as timedelta\(days=30\)"),
        ("forget", {"older_than": "30d"}, TypeError, r"an age is a timedelta, such as timedelta\(days=30\)"),
        ("remember", {"content": "x", "at": "2025-01-01"}, NoteError, r"give one, such as datetime.fromisoformat\('2025-01-01'\)"),
        ("remember", {"content": "x", "infer": "soon"}, ValueError, "use 'now', 'later' or 'never'"),
        ("remember", {"content": "x", "metadata": [1]}, NoteError, "metadata= is a dict, such as .*, not a list"),
    ],
)  # fmt: skip
async def test_what_is_given_in_another_form_is_refused(notes, operation, given, kind, said):
    """As a typed error that says what to write; what is kept stays, all of it."""
    kept = await notes.remember("pear")
    given = {name: kept if value is RECORD else [kept] if value == [RECORD] else value for name, value in given.items()}
    with pytest.raises(kind, match=said):
        await getattr(notes, operation)(**given)
    assert await notes.list_records() == [kept]


async def test_an_age_of_any_length_and_the_time_that_it_is_forget_what_is_older(notes):
    """Nothing is as old as the longest age; what was kept before now is older than now."""
    await notes.remember("pear")
    assert (await notes.forget(older_than=timedelta.max)).notes == 0
    assert (await notes.forget(older_than=timedelta(days=1))).notes == 0
    assert (await notes.forget(older_than=datetime.min.replace(tzinfo=UTC))).notes == 0
    later = await notes.remember("plum")
    assert (await notes.forget(older_than=later.created_at)).notes <= 1
    await notes.forget(older_than=datetime.now(UTC))


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (
            {"a": [1, {"b": datetime(2025, 1, 1, tzinfo=UTC)}]},
            r"metadata\['a'\]\[1\]\['b'\] is a datetime.*value.isoformat\(\)",
        ),
        ({"tags": {"secret"}}, r"metadata\['tags'\] is a set.*list\(value\)"),
        ({"a": b"secret"}, r"metadata\['a'\] is a bytes"),
        ({"a": float("inf")}, r"metadata\['a'\] is a float that is infinite"),
        ({"a": 2**70}, r"metadata\['a'\] is an int of more than 64 bits"),
        ({"a": "secret\ud800"}, r"metadata\['a'\] has half of a letter"),
        ({"a": {"\ud800": 1}}, r"the key '\\ud800' of metadata\['a'\] has half"),
        ({"a": {(1, 2): 3}}, r"a key of metadata\['a'\] is a tuple"),
    ],
)
async def test_metadata_that_cannot_be_kept_are_named_by_key_and_type(notes, metadata, said):
    """Without any of their values."""
    with pytest.raises(NoteError, match=said) as caught:
        await notes.remember("pear", metadata=metadata)
    assert "secret" not in str(caught.value)
    assert await notes.list_records() == []


async def test_metadata_within_themselves_or_without_an_end_are_refused(notes):
    """By a sentence, and not by running out of stack."""
    round_about = {}
    round_about["a"] = [round_about]
    deep = {}
    for _ in range(sys.getrecursionlimit() * 2):
        deep = {"a": deep}
    for metadata in (round_about, deep):
        with pytest.raises(NoteError, match="nested too deeply, or within itself"):
            await notes.remember("pear", metadata=metadata)


# Conversations


async def test_messages_as_chat_apis_have_them_are_turns(notes):
    """Their content, or the texts of its parts; a name is the speaker; what has no text is left out."""
    kept = await notes.remember_conversation(
        [
            {"role": "user", "content": "Where is the key?"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
            {"role": "assistant", "name": "Bo", "content": [{"type": "text", "text": "In the"}, {"type": "image"}, "drawer."]},
            Turn("Thanks!", "Ana", "user"),
        ],
        session="s",
    )  # fmt: skip
    assert [(each.place, each.role, each.speaker, each.content) for each in kept] == [
        (1, "user", "", "Where is the key?"),
        (2, "assistant", "Bo", "In the\ndrawer."),
        (3, "user", "Ana", "Thanks!"),
    ]


def said(more):
    return {"role": "user", "content": "It is in the drawer."} | more


async def test_messages_keep_their_times(notes):
    """A datetime, text, or seconds as of servers; so a question about a day finds what was said on it, and not what was kept then."""
    when = datetime(2021, 3, 14, 9, 30, tzinfo=UTC)
    given = [
        {"created_at": when}, {"timestamp": "2021-03-14T10:30:00+01:00"}, {"created_at": when.timestamp()}, {"at": when, "created_at": 5},
        {"created_at": None},
    ]  # fmt: skip
    kept = await notes.remember_conversation([said(each) for each in given], session="s")
    assert [each.at for each in kept] == [when, when, when, when, None]
    assert all(each.created_at > when for each in kept)
    [found, *_] = await notes.recall("What was said in March 2021?", limit=4)
    assert "date" in found.reasons


@pytest.mark.parametrize(
    ("turns", "kind", "said"),
    [
        ([Turn("hi"), Turn(5)], NoteError, "turn 2: a note is a text, not int"),
        ([5], TypeError, r"turn 1 is an int; give Turn\('hi', 'Ana'\), or {'role': 'user', 'content': 'hi'}"),
        ("hi", TypeError, "turn 1 is a str"),
        ([{"text": "hi"}], NoteError, "turn 1 is a dict without 'role' and 'content'"),
        ([{"role": "user", "content": 5}], NoteError, "the 'content' of turn 1 is neither a text nor a list of parts"),
        *(
            ([said({field: time})], NoteError, f"the '{field}' of turn 1 is not a time with a zone")
            for field, time in [
                ("created_at", "12:30"),
                ("created_at", "2026-01-31T12:00:00"),
                ("timestamp", datetime(2026, 1, 31)),  # noqa: DTZ001  it has to be refused
                ("timestamp", 10**20),
                ("timestamp", True),
                ("at", ["2026"]),
            ]
        ),
    ],
)
async def test_what_is_no_turn_is_told_by_its_place(notes, turns, kind, said):
    """And none of the conversation is kept."""
    with pytest.raises(kind, match=said):
        await notes.remember_conversation(turns, session="s")
    with pytest.raises(NoteError, match="session=5 is not a text"):
        await notes.remember_conversation([Turn("hi")], session=5)
    assert await notes.list_records() == []


# Views


async def test_a_view_of_a_source_gives_none_of_another(notes):
    """No view sees more than what it was made of; the same source once more is the same."""
    await notes.of("bo").remember("pear", private=True)
    ana = notes.of("ana")
    for view in (ana, ana.scope("/"), ana.slice(["/"])):
        with pytest.raises(NotePermissionError, match="that of 'ana', and gives none of 'bo'"):
            view.of("bo")
    assert await ana.of("ana").list_records() == []
    for wrong, said in (("", "blank"), ("  ", "blank"), (None, "not a text"), (5, "not a text")):
        with pytest.raises(NoteError, match=said):
            notes.of(wrong)
    assert repr(ana) == "<NoteView of / as 'ana' sees it>"
    assert repr(ana.slice(["/a"])) == "<NoteView of /a as 'ana' sees it, read-only>"


async def test_categories_of_a_slice_are_written_as_those_of_notes_are(notes):
    """Spaces around them do not count, and what is no text is none."""
    await notes.remember("pear", scope="/a", categories=["k"])
    assert len(await notes.slice(["/"], categories=[" k "]).list_records()) == 1
    for wrong in ([5], [" "]):
        with pytest.raises(NoteError, match="category"):
            notes.slice(["/"], wrong)


async def test_no_categories_at_all_are_refused(notes):
    """A slice of none would show every note, and nobody means that by an empty list."""
    with pytest.raises(NoteError, match="an empty list of categories fits no note"):
        notes.slice(["/"], [])
    for refused in (notes.recall("pear", categories=[]), notes.list_records(categories=())):
        with pytest.raises(NoteError, match="leave categories= out"):
            await refused


async def test_an_embedder_without_a_name_is_refused():
    """Vectors are kept with the name."""
    embedder = type("Own", (), {"embed": lambda texts: []})()
    with pytest.raises(TypeError, match="embedder= is an Own without a name; give it one"):
        Notes(MemoryStore(), embedder=embedder)


async def test_a_slice_says_which_scopes_there_are_to_keep_in(notes):
    """Also where it is a single one."""
    for scopes, said in ((["/a"], "say where: scope='/a'$"), (["/a", "/b"], "say where: scope='/a' or scope='/b'$")):
        with pytest.raises(ValueError, match=said):
            await notes.slice(scopes, read_only=False).remember("pear")


# Listed


async def test_what_was_said_at_a_time_can_be_listed(notes):
    """Lists take what a recall takes: when it was said, or else kept, by whom, and about what."""
    day = partial(datetime, 2025, 3, tzinfo=UTC)
    for number in (1, 5, 9):
        await notes.remember(f"pear {number}", at=day(number), source=f"s{number}", categories=["c", f"c{number}"])
    await notes.remember("plum", scope="/a")

    async def said(scope=None, **given):
        return [record.content for record in await notes.list_records(scope, **given)]

    assert await said(since=day(4), until=day(6)) == ["pear 5"]
    assert await said(until=day(5)) == ["pear 5", "pear 1"]
    assert await said(since=day(9)) == ["plum", "pear 9"]
    assert await said(source="s1") == ["pear 1"]
    assert await said(categories=["c1", "c9"]) == ["pear 9", "pear 1"]
    assert await said(categories=["c"], limit=1, offset=1) == ["pear 5"]
    assert await said("/a", since=day(1)) == ["plum"]
    assert await said("/a", source="s1") == []


async def test_what_has_an_obvious_order_may_be_given_by_position(notes):
    """Scope, categories, limit, offset and depth come in the order of crewAI."""
    pear = await notes.remember("pear", "/a/b", ["fruit"])
    await notes.remember_many(["plum"], "/a", ["fruit"])
    await notes.remember_conversation([Turn("Ada", "plums are ripe")], "monday")
    assert [each.content for each in await notes.list_records("/a", 1, 1)] == ["pear"]
    assert not (await notes.tree("/a", 0)).children
    assert [match.record.content for match in await notes.recall("plum", "/a", ["fruit"], 1)] == ["plum"]
    assert (await notes.update(pear.id, "two pears")).content == "two pears"


def test_an_embedder_of_a_function_has_a_name_in_notes():
    """One of a lambda is given one, by which its vectors are known later."""
    assert Notes(MemoryStore(), embedder=CallableEmbedder(lambda texts: function(texts), name="own-1"))
