"""What notes promise, wherever their tables stand."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from graphagent.errors import ConflictError, NoteError, NoteNotFoundError
from graphagent.events import MemoryQueryCompleted, MemorySaveCompleted, MemorySaveFailed, MemorySaveStarted
from graphagent.memory import Note, Notes, Turn
from tests.memory.notes.conftest import Words, store_of

pytestmark = pytest.mark.every_kind

START = 1_767_225_600_000


def texts(found):
    return sorted(each.record.content for each in found)


async def test_a_root_note_is_found_beside_notes_in_scopes_and_however_many_scopes_there_are(notes):
    """What is kept at the root is found from there, and so is the last of thirty scopes."""
    await notes.remember("the answer is forty-two")
    await notes.remember_many([Note(f"the answer of scope {n}", f"/scope-{n:02}") for n in range(30)])
    assert "the answer is forty-two" in texts(await notes.recall("answer", limit=50))
    assert len(await notes.recall("answer", limit=50)) == 31
    assert [each.record.scope for each in await notes.recall("answer", scope="/scope-29")] == ["/scope-29"]


async def test_who_looked_before_there_were_notes_finds_those_of_others(notes, store):
    """In one store: what is read where there is nothing, is nothing, and hides nothing later."""
    other = Notes(store)
    assert (await notes.recall("tea"), await notes.list_records()) == ([], [])
    await other.remember("Ada likes tea.")
    assert texts(await notes.recall("tea")) == ["Ada likes tea."]
    await notes.remember("Bob likes tea.")
    assert texts(await other.recall("tea")) == ["Ada likes tea.", "Bob likes tea."]


async def test_scopes_with_the_same_beginning_are_apart_in_every_operation(notes):
    """`/app` has nothing of `/apple`, `/app-2`, `/app.x` and `/App`, and resetting it leaves them and the root."""
    for scope in ("/app", "/app/in", "/apple", "/app-2", "/app.x", "/App", "/"):
        await notes.remember(f"pear in {scope}", scope=scope, categories=[f"c{scope}"])
    within = ["pear in /app", "pear in /app/in"]
    assert texts(await notes.recall("pear", scope="/app", limit=50)) == within
    assert sorted(record.content for record in await notes.list_records("/app")) == within
    assert (await notes.info("/app")).record_count == 2
    assert (await notes.info("/app")).categories == ["c/app", "c/app/in"]
    assert await notes.list_categories("/app") == {"c/app": 1, "c/app/in": 1}
    assert await notes.list_scopes("/app") == ["/app/in"]
    assert (await notes.reset("/app")).notes == 2
    assert texts(await notes.recall("pear", limit=50)) == sorted(
        f"pear in {each}" for each in ("/apple", "/app-2", "/app.x", "/App", "/")
    )
    assert await notes.verify() == 5


async def test_what_was_said_in_other_letters_is_another_scope_and_the_same_letters_are_one(notes):
    """Composed and decomposed letters are one scope; Korean and Chinese names are scopes of their own."""
    await notes.remember("one", scope="/café")
    await notes.remember("two", scope="//café/")
    await notes.remember("three", scope="/연구팀")
    await notes.remember("four", scope="/분석팀")
    assert await notes.list_scopes() == sorted(["/café", "/분석팀", "/연구팀"])
    assert (await notes.info("/café")).record_count == 2


async def test_the_limit_is_one_of_what_may_be_found(notes):
    """A hundred better notes that may not be found, by scope, category, source, privacy or time, hide none that may be."""
    await notes.remember_many([Note("pear pear pear", "/other") for _ in range(250)])
    await notes.remember_many([Note("pear pear pear", "/mine", categories=["x"], source="bob") for _ in range(250)])
    await notes.remember_many([Note("pear pear pear", "/mine", source="bob", private=True) for _ in range(250)])
    old = datetime(2020, 1, 1, tzinfo=UTC)
    wanted = await notes.remember(
        "a pear, some apples and whatever else", scope="/mine", categories=["y"], source="al", at=old
    )
    assert [m.record.id for m in await notes.recall("pear", scope="/mine", categories=["y"], limit=1)] == [wanted.id]
    assert [m.record.id for m in await notes.recall("pear", source="al", limit=1)] == [wanted.id]
    assert [m.record.id for m in await notes.recall("pear", until=old, limit=1)] == [wanted.id]


async def test_a_note_of_many_pieces_leaves_room_for_others(notes):
    """A long text that says the word in each of its pieces is one match, and hides no other."""
    await notes.remember("pear pear pear. " * 30_000)
    short = [await notes.remember(f"some pear, number {number}, with other words") for number in range(5)]
    found = await notes.recall("pear", limit=10)
    assert len(found) == 6
    assert {each.id for each in short} <= {each.record.id for each in found}


async def test_what_may_be_found_is_what_a_plain_look_at_all_notes_finds(notes):
    """With each filter and all of them together, recall and the lists give the notes that a loop over all gives."""
    choose = random.Random(7)
    scopes = ["/", "/a", "/a/b", "/ab", "/a-b", "/c/d/e"]
    kept = await notes.remember_many(
        [
            Note(
                f"pear {number}",
                choose.choice(scopes),
                choose.sample(["x", "y", "z"], choose.randint(0, 2)),
                source=choose.choice(["al", "bob"]),
                private=choose.random() < 0.3,
                at=datetime(2026, 1, choose.randint(1, 28), tzinfo=UTC) if choose.random() < 0.7 else None,
            )
            for number in range(150)
        ]
    )
    for _ in range(40):
        scope, some = choose.choice([None, *scopes]), choose.sample(["x", "y", "z"], choose.randint(0, 2))
        asker, source = choose.choice([None, "al", "bob"]), choose.choice([None, "al", "bob"])
        since = choose.choice([None, datetime(2026, 1, 10, tzinfo=UTC)])
        until = choose.choice([None, datetime(2026, 1, 20, tzinfo=UTC)])
        view = notes if asker is None else notes.of(asker)
        found = await view.recall(
            "pear", scope=scope, categories=some or None, source=source, since=since, until=until, limit=1000
        )
        sees = asker or source
        expected = {
            each.id
            for each in kept
            if (scope in (None, "/") or each.scope == scope or each.scope.startswith(scope + "/"))
            and (not some or set(some) & set(each.categories))
            and (source is None or each.source == source)
            and (not each.private or each.source == sees)
            and (since is None or (each.at or each.created_at) >= since)
            and (until is None or (each.at or each.created_at) <= until.replace(tzinfo=UTC))
        }
        assert {match.record.id for match in found} == expected


async def test_scopes_are_counted_as_a_plain_count_of_all_notes_does(notes):
    """Over random changes, the tree, the information, the categories and the lists are those of a brute-force model."""
    choose = random.Random(11)
    scopes = ["/", "/a", "/a/b", "/a/b/c", "/ab", "/a.b", "/d"]
    model = {}
    for step in range(120):
        action = choose.choice(["add", "add", "add", "update", "forget", "move"])
        if action == "add" or not model:
            record = await notes.remember(
                f"note {step}", scope=choose.choice(scopes), categories=choose.sample("xyz", 2)
            )
        elif action == "forget":
            id_ = choose.choice(sorted(model))
            assert (await notes.forget(ids=[id_])).notes == 1
            del model[id_]
            continue
        else:
            id_ = choose.choice(sorted(model))
            change = {"scope": choose.choice(scopes)} if action == "move" else {"categories": choose.sample("xyz", 1)}
            record = await notes.update(id_, **change)
        model[record.id] = record
    assert await notes.verify() == len(model)
    for scope in scopes:
        below = [r for r in model.values() if scope in ("/", r.scope) or r.scope.startswith(scope + "/")]
        info = await notes.info(scope)
        assert info.record_count == len(below)
        counted = {}
        for record in below:
            for category in record.categories:
                counted[category] = counted.get(category, 0) + 1
        assert await notes.list_categories(scope) == dict(sorted(counted.items()))
        assert info.categories == sorted(counted)
        stem = "" if scope == "/" else scope
        children = sorted({stem + "/" + r.scope[len(stem) + 1 :].split("/")[0] for r in below if r.scope != scope})
        assert info.child_scopes == children == await notes.list_scopes(scope)
        if below:
            assert info.oldest_record == min(record.created_at for record in below)
            assert info.newest_record == max(record.created_at for record in below)
        expected = sorted(below, key=lambda record: (record.created_at, record.id), reverse=True)
        assert await notes.list_records(scope) == expected
        pages = [await notes.list_records(scope, limit=7, offset=first) for first in range(0, len(below) + 7, 7)]
        assert [record for page in pages for record in page] == expected
    assert str(await notes.tree(max_depth=0)) == f"/ ({len(model)} records)"


async def test_the_tree_is_lines_indented_by_two_spaces(notes):
    """A line for each scope with its count, one record in the singular, children below, down to a depth; none is cut."""
    await notes.remember_many([Note("x", f"/a/n{number:02}") for number in range(25)])
    await notes.remember("y", scope="/b")
    lines = str(await notes.tree()).splitlines()
    assert lines[:3] == ["/ (26 records)", "  /a (25 records)", "    /a/n00 (1 record)"]
    assert len(lines) == 1 + 1 + 25 + 1
    assert str(await notes.tree("/a", max_depth=0)) == "/a (25 records)"
    assert str(await notes.tree("/nothing")) == "/nothing (0 records)"


async def test_a_note_changes_keeps_what_it_was_and_goes_back(notes):
    """An update keeps owner, source and privacy; the history has each version, and undo takes the last change back."""
    kept = await notes.of("al").remember("one", scope="/a", categories=["b", "a"], importance=0.9, private=True)
    mine = notes.of("al")
    await mine.update(kept.id, content="two")
    third = await mine.update(kept.id, content="three", scope="/b", categories=["z", "y"], metadata={"k": [1]})
    assert (third.version, third.owner, third.source, third.private) == (3, "", "al", True)
    assert third.categories == ("z", "y")
    assert third == await mine.get(kept.id)
    assert [(record.content, record.version, action) for record, action, *_ in await mine.history(kept.id)] == [
        ("two", 2, "updated"),
        ("one", 1, "updated"),
    ]
    back = await mine.undo(kept.id)
    assert (back.content, back.scope, back.categories, back.version) == ("two", "/a", ("b", "a"), 4)
    assert back == await mine.get(kept.id)
    assert texts(await mine.recall("two three", limit=9)) == ["two"]
    assert await mine.verify() == 1


async def test_what_was_consolidated_away_comes_back_with_all_its_history(notes):
    """A note that was taken away is undone to what it was, its history goes on, and a later change is undone too."""
    kept = await notes.remember("one")
    second = await notes.update(kept.id, content="two")
    await notes._service.repository.retire("", second, "removed", "another")
    assert await notes.get(kept.id) is None
    assert await notes.recall("two") == []
    back = await notes.undo(kept.id)
    assert back.content == "two"
    assert back == await notes.get(kept.id)
    assert texts(await notes.recall("two")) == ["two"]
    await notes.update(kept.id, content="three")
    assert [record.content for record, *_ in await notes.history(kept.id)] == ["two", "two", "one"]
    assert (await notes.undo(kept.id)).content == "two"
    assert await notes.verify() == 1


async def test_undo_without_a_past_says_so(notes):
    """A note that was never changed has nothing to go back to, and an id of none is no note."""
    kept = await notes.remember("one")
    with pytest.raises(NoteError, match="was never changed"):
        await notes.undo(kept.id)
    with pytest.raises(NoteNotFoundError):
        await notes.undo("no such")
    assert await notes.history(kept.id) == []
    with pytest.raises(NoteNotFoundError):
        await notes.history("no such")


async def test_undone_again_a_note_goes_further_back(notes):
    """Each time by one change, whatever was undone before, also behind a new change; then there is nothing more to undo."""
    kept = await notes.remember("one")
    for text in ("two", "three", "four"):
        await notes.update(kept.id, content=text)
    assert [(await notes.undo(kept.id)).content for _ in range(2)] == ["three", "two"]
    await notes.update(kept.id, content="five")
    assert [(await notes.undo(kept.id)).content for _ in range(2)] == ["two", "one"]
    with pytest.raises(NoteError, match="all its changes are undone"):
        await notes.undo(kept.id)
    was = [(record.content, action) for record, action, *_ in reversed(await notes.history(kept.id))]
    assert was == [
        ("one", "updated"), ("two", "updated"), ("three", "updated"), ("four", "undone"), ("three", "undone"),
        ("two", "updated"), ("five", "undone"), ("two", "undone"),
    ]  # fmt: skip
    assert (await notes.update(kept.id, content="four")).version == 10
    assert await notes.verify() == 1


async def test_a_note_that_was_brought_back_is_undone_further(notes):
    """What it was before it was taken away comes next, and what is kept of that is no change."""
    kept = await notes.remember("one")
    second = await notes.update(kept.id, content="two")
    await notes._service.repository.retire("", second, "removed", "another")
    assert [record.content for record, *_ in await notes.history(kept.id)] == ["two", "one"]
    assert [(await notes.undo(kept.id)).content for _ in range(2)] == ["two", "one"]
    with pytest.raises(NoteError, match="undone"):
        await notes.undo(kept.id)


async def test_an_update_that_changes_nothing_makes_no_version(notes):
    """Nor does one that says what the note has already; nothing stands in the history then."""
    kept = await notes.remember("one", scope="/a", categories=["x"], importance=0.7, metadata={"k": [1]})
    same = {"content": " one ", "scope": "a", "categories": ["x"], "importance": 0.7, "metadata": {"k": [1]}}
    for given in ({}, *({name: value} for name, value in same.items()), same):
        assert await notes.update(kept.id, **given) == kept
    assert await notes.history(kept.id) == []
    with pytest.raises(NoteNotFoundError):
        await notes.update("no such")
    assert (await notes.update(kept.id, importance=0.8)).version == 2


async def test_of_updates_that_expect_the_version_that_was_read_one_is_made(notes):
    """The others raise, whether they came at once or later; nothing is overwritten that nobody has seen."""
    kept = await notes.remember("version 0")
    lost: list[ConflictError] = []

    async def change(number):
        try:
            await notes.update(kept.id, content=f"version {number}", version=kept.version)
        except ConflictError as error:
            lost.append(error)

    async with anyio.create_task_group() as tasks:
        for number in range(1, 6):
            tasks.start_soon(change, number)
    await change(7)
    assert len(lost) == 5
    assert len(await notes.history(kept.id)) == 1


async def test_changes_at_once_are_all_made_one_after_the_other(notes):
    """Of ten updates at the same time none is lost without a trace: each is in the history."""
    kept = await notes.remember("version 0")
    async with anyio.create_task_group() as tasks:
        for number in range(1, 11):
            tasks.start_soon(lambda number=number: notes.update(kept.id, content=f"version {number}"))
    now = await notes.get(kept.id)
    past = [record.content for record, *_ in await notes.history(kept.id)]
    assert sorted([now.content, *past]) == sorted(f"version {number}" for number in range(11))
    assert now.version == 11
    assert texts(await notes.recall("version", limit=50)) == [now.content]
    assert await notes.verify() == 1


async def test_a_hundred_tasks_remember_and_recall_at_once(kind, tmp_path):
    """Each finds what it kept, at once, with words and with vectors, the first vectors of all included."""
    async with store_of(kind, tmp_path) as store:
        notes = Notes(store, embedder=Words())

        async def one(number):
            kept = await notes.remember(f"the code word of agent{number} is pear{number}", scope=f"/agent/{number}")
            found = await notes.recall(f"pear{number}", limit=3)
            assert found[0].record.id == kept.id

        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(one, number)
        assert (await notes.info()).record_count == 100
        assert await notes.verify() == 100


async def test_changes_and_removals_at_once_leave_the_index_as_the_notes_are(notes):
    """Notes that are changed and forgotten while others are, are in the end in the index as they are in the store."""
    kept = await notes.remember_many([f"note {number}" for number in range(20)])

    async def change(record):
        for step in range(3):
            try:
                await notes.update(record.id, content=f"{record.content} {step}", scope=f"/s{step}")
            except (NoteNotFoundError, ConflictError):
                return

    async with anyio.create_task_group() as tasks:
        for record in kept:
            tasks.start_soon(change, record)
        for record in kept[::3]:
            tasks.start_soon(lambda record=record: notes.forget(ids=[record.id]))
    left = await notes.list_records()
    assert await notes.verify() == len(left) == 13
    assert {record.scope for record in left} == {"/s2"}
    assert str(await notes.tree()).splitlines() == ["/ (13 records)", "  /s2 (13 records)"]


async def test_two_handles_of_one_store_see_each_other(kind, store):
    """What one keeps, changes and forgets, the other finds, changed, and no more; also where the tables are in memory."""
    one, two = Notes(store, embedder=Words()), Notes(store, embedder=Words())
    assert await two.recall("pear") == []
    kept = await one.remember("a pear", scope="/a")
    assert texts(await two.recall("pear")) == ["a pear"]
    assert (await two.info("/a")).record_count == 1
    await two.update(kept.id, content="an apple", scope="/b")
    assert await one.recall("pear", min_score=0.5) == []
    assert texts(await one.recall("apple", scope="/b")) == ["an apple"]
    await one.forget(ids=[kept.id])
    assert await two.recall("apple") == []
    assert (await two.info()).record_count == 0
    await one.remember("new after a reset")
    assert texts(await two.recall("reset")) == ["new after a reset"]


async def test_a_conversation_goes_on_where_it_ended(notes):
    """Turns of several calls, also at once, have places one after the other, and keep speaker, role, time and source."""
    at = datetime(2026, 5, 7, 23, 30, tzinfo=UTC)
    first = await notes.remember_conversation(
        [Turn("hello", "Ann", "user", at, "D1:1"), Turn("hi", "Bob", "assistant")], session="s"
    )
    assert [(each.place, each.speaker, each.role, each.source) for each in first] == [
        (1, "Ann", "user", "D1:1"),
        (2, "Bob", "assistant", ""),
    ]
    assert first[0].at == at
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            turns = [Turn(f"{number} a"), Turn(f"{number} b")]
            tasks.start_soon(lambda turns=turns: notes.remember_conversation(turns, session="s"))
    await notes.remember_conversation([Turn("other")], session="t")
    records = [record for record in await notes.list_records() if record.session == "s"]
    assert sorted(record.place for record in records) == list(range(1, 13))
    byplace = {record.place: record.content for record in records}
    assert all(byplace[place + 1][0] == byplace[place][0] for place in range(3, 13, 2))
    again = Notes(notes._service.repository.store)
    [more] = await again.remember_conversation([Turn("bye")], session="s")
    assert more.place == 13
    assert await notes.remember_conversation([], session="s") == []


async def test_notes_are_exported_and_imported_without_loss(kind, tmp_path, store):
    """Everything of every note comes back, its history included; a second import of the same changes nothing."""
    import orjson

    notes = Notes(store)
    await notes.remember_conversation(
        [Turn("hello", "Ann", "user", datetime(1969, 1, 1, tzinfo=UTC), "D1:1")], session="s", scope="/c"
    )
    kept = await notes.of("al").remember(
        "secret", private=True, importance=0.1, metadata={"a": [1, {"b": None}], "é": "\0"}, categories=["y", "x"]
    )
    await notes.of("al").update(kept.id, content="secret two", scope="/moved")
    lines = [orjson.dumps(each) async for each in notes.export()]
    (tmp_path / "other").mkdir()
    async with store_of(kind, tmp_path / "other") as other:
        fresh = Notes(other)
        assert await fresh.import_(map(orjson.loads, lines)) == 2
        assert await fresh.import_(map(orjson.loads, lines)) == 0
        assert [orjson.dumps(each) async for each in fresh.export()] == lines
        assert await fresh.of("al").get(kept.id) == await notes.of("al").get(kept.id)
        assert (await fresh.of("al").undo(kept.id)).content == "secret"
        assert texts(await fresh.recall("hello", until=datetime(1969, 6, 1, tzinfo=UTC))) == ["hello"]
        assert await fresh.verify() == 2


async def test_events_tell_of_what_is_kept_and_asked(notes):
    """The seed's events come with their attributes, without an agent; what failed says so, by its class alone."""
    seen = []
    for event in (MemorySaveStarted, MemorySaveCompleted, MemorySaveFailed, MemoryQueryCompleted):
        assert notes.on(event, seen.append) is notes
    await notes.remember("a pear")
    await notes.scope("/x").remember("a pear in x")
    await notes.recall("pear")
    assert [type(each).__name__ for each in seen] == ["MemorySaveStarted", "MemorySaveCompleted"] * 2 + [
        "MemoryQueryCompleted"
    ]
    assert len(seen[-1].results) == 2


async def test_reads_write_nothing(notes):
    """After any number of recalls and lists, the store is as it was, item for item."""
    await notes.remember_many([f"pear {number}" for number in range(5)])
    before = [item async for item in notes._service.repository.store.scan(("notes",))]
    for _ in range(3):
        await notes.recall("pear")
        await notes.tree()
        await notes.info()
        await notes.list_records()
        await notes.verify()
    assert [item async for item in notes._service.repository.store.scan(("notes",))] == before


async def test_notes_use_the_clock_there_is(notes):
    """Times are those of the clock that is set; what is older than a span or a time is forgotten, and nothing else."""
    from graphagent import _clock

    now = START
    token = _clock.clock.set(lambda: now)
    try:
        old = await notes.remember("old", scope="/x")
        now += 86_400_000
        new = await notes.remember("new", scope="/x")
        root = await notes.remember("root")
        assert (old.created_at, new.created_at) == (
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 2, tzinfo=UTC),
        )
        now += 1000
        assert (await notes.forget(scope="/x", older_than=timedelta(days=2))).notes == 0
        assert (await notes.forget(older_than=datetime(2026, 1, 1, tzinfo=UTC))).notes == 0
        assert (await notes.forget(scope="/x", older_than=timedelta(days=1))).notes == 1
        assert {record.id for record in await notes.list_records()} == {new.id, root.id}
        assert (await notes.forget(older_than=datetime(2026, 1, 2, 0, 0, 1, tzinfo=UTC))).notes == 2
    finally:
        _clock.clock.reset(token)


async def test_times_before_1970_and_in_other_zones_are_times(notes):
    """A time of another zone is the same moment, and one before 1970 lies before it."""
    from datetime import timezone

    east = timezone(timedelta(hours=9))
    kept = await notes.remember("pear one", at=datetime(1960, 5, 5, 1, tzinfo=east))
    await notes.remember("pear two", at=datetime(1970, 1, 1, tzinfo=UTC))
    assert kept.at == datetime(1960, 5, 4, 16, tzinfo=UTC)
    assert kept == await notes.get(kept.id)
    assert texts(await notes.recall("pear", until=datetime(1965, 1, 1, tzinfo=UTC))) == ["pear one"]
    assert texts(
        await notes.recall("pear", since=datetime(1970, 1, 1, tzinfo=UTC), until=datetime(1970, 1, 1, tzinfo=UTC))
    ) == ["pear two"]
    assert texts(await notes.recall("pear", since=datetime(1900, 1, 1, tzinfo=east))) == ["pear one", "pear two"]
