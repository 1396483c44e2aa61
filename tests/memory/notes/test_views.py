"""Views: what a scope, a slice or a source may touch, by every operation."""

from __future__ import annotations

from datetime import timedelta

import pytest

from graphagent.errors import AmbiguousNoteError, NoteError, NoteNotFoundError, NotePermissionError
from graphagent.memory import Note, Notes, Turn
from tests.memory.notes.conftest import Words


@pytest.fixture
async def notes(store):
    """Notes with vectors, so that nothing gets around a view by meaning either."""
    async with Notes(store, embedder=Words()) as notes:
        yield notes


async def seen(view):
    """Give all that a view shows, by whatever operation."""
    shown = {each.record.content for each in await view.recall("pear", limit=1000)}
    shown |= {record.content for record in await view.list_records(limit=1000)}
    shown |= {each["content"] async for each in view.export()}
    return shown


async def test_a_view_reaches_nothing_outside_by_any_operation(notes):
    """Scope, relative and absolute paths, ids, slices of it, history, undo, lists and forgetting: all stay inside."""
    outside = await notes.remember("pear outside", scope="/other", categories=["other"])
    await notes.update(outside.id, importance=0.7)
    sibling = await notes.remember("pear sibling", scope="/mine2")
    inside = await notes.remember("pear inside", scope="/mine/in", categories=["in"])
    for view in (
        notes.scope("/mine"),
        notes.slice(["/mine"], read_only=False),
        notes.scope("/mine").slice(["in"], read_only=False),
    ):
        assert await seen(view) == {"pear inside"}
        assert await view.list_categories() == {"in": 1}
        assert (await view.info()).record_count == 1
        for scope in ("/other", "/", "other", "/mine2"):
            assert all(each.record.id == inside.id for each in await view.recall("pear", scope=scope))
            assert all(each.id == inside.id for each in await view.list_records(scope))
            assert (await view.info(scope)).record_count <= 1
            assert "other" not in await view.list_categories(scope)
        for record in (outside, sibling):
            assert await view.get(record.id) is None
            with pytest.raises(NoteNotFoundError):
                await view.history(record.id)
            with pytest.raises(NoteNotFoundError):
                await view.update(record.id, content="stolen")
            with pytest.raises(NoteNotFoundError):
                await view.undo(record.id)
            assert (await view.forget(ids=[record.id])).notes == 0
        assert (await view.forget(categories=["other"])).notes == 0
        assert (await view.forget(older_than=timedelta(0), scope="/other")).notes == 0
        assert (await view.reset("/other")).notes == 0
    assert await seen(notes) == {"pear inside", "pear outside", "pear sibling"}
    assert (await notes.scope("/mine").reset()).notes == 1
    assert await seen(notes) == {"pear outside", "pear sibling"}


async def test_paths_that_a_view_gives_can_be_given_back_to_it(notes):
    """What a view lists is absolute, and means the same to it; a relative path stands below its own scope."""
    view = notes.scope("/agent/researcher")
    await view.subscope("alpha").remember("pear", scope="x")
    [child] = await view.list_scopes()
    assert child == "/agent/researcher/alpha"
    assert await view.list_scopes(child) == await view.list_scopes("alpha") == ["/agent/researcher/alpha/x"]
    assert view.scope(child).scopes == view.subscope("alpha").scopes
    assert [record.content for record in await view.list_records(child)] == ["pear"]
    assert str(await view.tree()).splitlines()[0] == "/agent/researcher (1 record)"


async def test_what_a_note_was_elsewhere_is_not_seen_where_it_is_now(notes):
    """A note that was moved into a view does not show, give back or export what it was outside, and one moved out is gone."""
    kept = await notes.remember("pear secret", scope="/secret")
    await notes.update(kept.id, content="pear public", scope="/mine")
    view = notes.scope("/mine")
    assert await view.history(kept.id) == []
    with pytest.raises(NotePermissionError, match="wider"):
        await view.undo(kept.id)
    assert ["history" in each async for each in view.export()] == [False]
    await view.update(kept.id, content="pear three")
    await notes.update(kept.id, scope="/secret")
    with pytest.raises(NoteNotFoundError):
        await view.history(kept.id)
    with pytest.raises(NoteNotFoundError):
        await view.undo(kept.id)
    assert len(await notes.history(kept.id)) == 3


async def test_a_read_only_view_raises_at_every_operation_that_writes(notes):
    """Nothing is silently left undone."""
    kept = await notes.remember("pear", scope="/mine")
    view = notes.slice(["/mine"])
    assert view.read_only
    for operation in (
        lambda: view.remember("x", scope="/mine"),
        lambda: view.remember_many(["x"], scope="/mine"),
        lambda: view.remember_many([]),
        lambda: view.remember_conversation([Turn("x")], session="s", scope="/mine"),
        lambda: view.update(kept.id, content="x"),
        lambda: view.undo(kept.id),
        lambda: view.forget(ids=[kept.id]),
        lambda: view.purge(source="x"),
        lambda: view.reset(),
        lambda: view.import_([]),
        lambda: view.reembed(),
        lambda: view.scope("/mine").remember("x"),
    ):
        with pytest.raises(PermissionError, match="read-only"):
            await operation()
    with pytest.raises(PermissionError):
        view.slice(["/mine"], read_only=False)
    assert [record.content for record in await notes.list_records()] == ["pear"]


async def test_a_writable_slice_writes_into_its_scopes_alone_and_wants_one_named(notes):
    """Left out, the scope is a ValueError that names those there are; another one is a PermissionError."""
    view = notes.slice(["/b", "/a", "/a/in"], read_only=False)
    assert view.scopes == ("/a", "/b")
    with pytest.raises(ValueError, match="scope='/a' or scope='/b'"):
        await view.remember("x")
    for scope in ("/c", "/ab", "/", "/a2"):
        with pytest.raises(PermissionError):
            await view.remember("x", scope=scope)
        with pytest.raises(PermissionError):
            await view.remember_many([Note("x", "/a"), Note("x", scope)])
        with pytest.raises(PermissionError):
            view.scope(scope)
    kept = await view.remember("pear", scope="/a/in")
    with pytest.raises(PermissionError):
        await view.update(kept.id, scope="/c")
    exported = [{**each, "scope": "/c"} async for each in view.export()]
    await notes.reset()
    with pytest.raises(PermissionError):
        await view.import_(exported)
    assert await notes.list_records() == []


async def test_overlapping_scopes_of_a_slice_count_a_note_once(notes):
    """The count of a slice, its lists and its recall have each note once."""
    await notes.remember("pear", scope="/a/in")
    view = notes.slice(["/a", "/a/in", "/a"])
    assert (await view.info()).record_count == 1
    assert len(await view.recall("pear")) == 1
    assert await view.list_scopes() == ["/a"]


async def test_a_view_of_categories_has_these_alone_and_lets_none_out(notes):
    """Notes without one of its categories are neither seen nor kept nor made there."""
    await notes.remember("pear plain", scope="/a")
    await notes.remember("pear x", scope="/a", categories=["x", "y"])
    view = notes.slice(["/a"], categories=["x"], read_only=False)
    assert await seen(view) == {"pear x"}
    assert (await view.info()).record_count == 1
    with pytest.raises(PermissionError, match="'x'"):
        await view.remember("pear", scope="/a")
    kept = await view.remember("pear new", scope="/a", categories=["x", "z"])
    with pytest.raises(PermissionError):
        await view.update(kept.id, categories=["z"])
    inner = view.slice(["/a"], categories=["z"])
    assert await seen(inner) == {"pear new"}
    assert await seen(view.slice(["/a"], categories=["nothing"])) == set()
    assert await seen(view.scope("/a")) == {"pear x", "pear new"}


async def test_private_notes_are_their_sources_alone_by_every_operation(notes):
    """Another source and one who does not say who it is find, get, change and list nothing of them."""
    alice, bob = notes.of("alice"), notes.of("bob")
    kept = await alice.remember("pear private", private=True, scope="/a", categories=["c"])
    await alice.update(kept.id, content="pear private still")
    await bob.remember("pear open", scope="/b")
    assert await seen(alice) == {"pear private still", "pear open"}
    assert await seen(bob) == {"pear open"}
    for view in (notes, bob, bob.scope("/a"), notes.slice(["/a"], read_only=False)):
        assert await view.get(kept.id) is None
        with pytest.raises(NoteNotFoundError):
            await view.history(kept.id)
        assert all(not each.record.private for each in await view.recall("pear private"))
        assert (await view.info("/a")).record_count == 0
        assert await view.list_categories() == {}
        assert "/a" not in await view.list_scopes("/")
        for operation in (view.update(kept.id, importance=0.1), view.undo(kept.id)):
            with pytest.raises(NoteNotFoundError):
                await operation
    assert [each.record.id for each in await notes.recall("pear", source="alice")] == [kept.id]
    assert await bob.recall("pear", source="alice") == []
    assert (await bob.forget(ids=[kept.id])).notes == 0
    assert (await bob.forget(scope="/a")).notes == 0
    assert (await bob.purge(source="alice")).notes == 0
    assert (await bob.reset("/a")).notes == 0
    assert (await alice.get(kept.id)).private


async def test_a_private_note_needs_a_source_and_cannot_be_another_ones(notes):
    """One that nobody would ever see is refused; so is a private one in the name of another."""
    with pytest.raises(NoteError, match="source"):
        await notes.remember("pear", private=True)
    with pytest.raises(PermissionError):
        await notes.of("bob").remember("pear", private=True, source="alice")
    await notes.remember("pear", private=True, source="alice")
    assert await seen(notes.of("alice")) == {"pear"}


async def test_what_is_forgotten_of_a_run_or_a_scope_takes_private_notes_along(notes):
    """The notes themselves, which speak for no source, remove private ones too: nothing of a run stays behind."""
    await notes.of("alice").remember("pear", private=True, scope="/a", run_id="r1")
    await notes.of("alice").remember("pear", private=True, scope="/b", run_id="r2")
    assert (await notes.purge(run_id="r1")).notes == 1
    assert (await notes.forget(scope="/b")).notes == 1
    assert await seen(notes.of("alice")) == set()


async def test_owners_have_nothing_of_one_another(store, kind):
    """An id, a scope, a category or a conversation of another owner is none; forgetting everything forgets one's own."""
    one, two = (Notes(store, owner=name, embedder=Words()) for name in ("one", "two"))
    kept = await one.remember("pear of one", scope="/a", categories=["c"])
    [turn] = await one.remember_conversation([Turn("pear said", "Ann")], session="s")
    assert await seen(two) == set()
    assert await two.get(kept.id) is None
    assert await two.list_categories() == {}
    assert str(await two.tree()) == "/ (0 records)"
    with pytest.raises(NoteNotFoundError):
        await two.update(kept.id, content="x")
    assert (await two.forget(ids=[kept.id, turn.id])).notes == 0
    assert (await two.reset()).notes == 0
    [first] = await two.remember_conversation([Turn("pear too", "Ann")], session="s")
    assert first.place == 1
    assert await seen(one) == {"pear of one", "pear said"}
    assert await seen(two) == {"pear too"}
    exported = [{**each, "owner": "two"} async for each in one.export()]
    assert await two.import_(exported) == 2
    assert (await two.get(kept.id)).owner == "two"
    await one.reset()
    assert await seen(two) == {"pear too", "pear of one", "pear said"}
    assert await two.verify() == 3


async def test_an_abbreviated_id_is_resolved_within_the_view_alone(notes):
    """By its beginning or its end; several are listed, and what the view does not see is none of them."""
    inside = [await notes.remember(f"pear {number}", scope="/mine") for number in range(2)]
    outside = await notes.remember("pear outside", scope="/other")
    private = await notes.of("ana").remember("pear of ana", scope="/mine", private=True)
    view, ids = notes.scope("/mine"), [record.id for record in inside]
    for id_ in ids:
        assert await view.resolve(id_) == id_
        assert await view.resolve(id_[1:]) == await view.resolve(id_[:-1]) == id_
    shared = next(length for length in range(len(ids[0]), -1, -1) if ids[0][:length] == ids[1][:length])
    with pytest.raises(AmbiguousNoteError, match=f"names 2 notes: {ids[0]}, {ids[1]}; give more") as several:
        await view.resolve(ids[0][:shared])
    assert several.value.candidates == tuple(ids)
    for hidden in (outside.id, private.id[1:], private.id, "", "%", ids[0] + "0"):
        with pytest.raises(NoteNotFoundError):
            await view.resolve(hidden)
    assert await notes.of("ana").resolve(private.id[1:]) == private.id
    with pytest.raises(TypeError, match="a note is named by its id"):
        await view.resolve(inside[0])


async def test_the_owners_and_the_embedder_of_a_store_are_listed(store):
    """Owners who have notes, each once; the embedder that made the vectors of one of them."""
    async with Notes(store, embedder=Words("words-7"), owner="ana") as ana, Notes(store) as nobody:
        assert await ana.owners() == []
        assert await ana.stored_embedder() is None
        await ana.remember_many(["pear", "plum"])
        await nobody.remember("fig")
        assert await ana.owners() == await nobody.owners() == ["", "ana"]
        assert (await ana.stored_embedder(), await nobody.stored_embedder()) == ("words-7", None)
        await ana.reset()
        assert await nobody.owners() == [""]


async def test_the_view_of_a_source_saves_its_notes_alone(notes):
    """Another source is refused, for a note, for several and for a turn, private or not; its own may be named."""
    mine = notes.of("ana")
    for saved in (
        mine.remember("x", source="bo"),
        mine.remember("x", source="bo", private=True),
        mine.remember_many([Note("x", source="bo")]),
        mine.remember_conversation([Turn("x", source="bo")], session="s"),
    ):
        with pytest.raises(
            NotePermissionError, match="view is that of 'ana', and saves no notes of 'bo'; leave source= out"
        ):
            await saved
    assert (await mine.remember("x", source="ana")).source == "ana"
    assert (await mine.remember("y")).source == "ana"
    assert len(await notes.list_records()) == 2
