"""Scopes: one way to write each, and what stands in which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphagent.errors import ScopeError
from graphagent.memory._note_values import is_within
from graphagent.memory.notes._scopes import lineage, outermost, path_of
from graphagent.memory.notes._visibility import Visibility

SEGMENT = st.text(st.characters(blacklist_categories=("C", "Z"), blacklist_characters="/."), min_size=1, max_size=8)
PATH = st.lists(SEGMENT, min_size=1, max_size=5).map(lambda each: "/" + "/".join(each))


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("", "/"),
        ("/", "/"),
        ("//", "/"),
        ("a", "/a"),
        ("/a/", "/a"),
        ("//a///b//", "/a/b"),
        (" a / b ", "/a/b"),
        ("/A", "/A"),
        ("/연구팀/분석팀", "/연구팀/분석팀"),
        ("/café", "/café"),
    ],
)
def test_a_scope_has_one_way_to_be_written(given, path):
    """Slashes too many, spaces around segments and decomposed letters make no other scope; case does."""
    assert path_of(given) == path


@pytest.mark.parametrize(
    "given", ["//a/../b/", "..", "/a/.", "/a\0b", "/a\nb", "/\ud800", "/" + "x" * 1024, "/a" * 33, 7, None]
)
def test_what_is_no_scope_is_refused(given):
    """A path that goes up, that cannot be printed or is too long or deep is a ScopeError, which is a ValueError."""
    with pytest.raises(ScopeError) as caught:
        path_of(given)
    assert isinstance(caught.value, ValueError)


@given(PATH)
def test_a_path_is_what_it_is_written_as(path):
    """Written once more, a path stays what it is."""
    once = path_of(path)
    assert path_of(once) == once
    assert lineage(once)[-1] == once
    assert all(is_within(once, each) for each in lineage(once))


@given(PATH, st.text(st.characters(blacklist_categories=("C", "Z"), blacklist_characters="/"), min_size=1, max_size=3))
def test_a_sibling_with_the_same_beginning_is_outside(path, more):
    """`/app` has nothing of `/apple`, `/app-2` or `/app.x`."""
    path = path_of(path)
    assert not is_within(path + more, path)
    assert is_within(f"{path}/{more}", path)


@given(st.lists(PATH, min_size=1, max_size=6))
def test_of_nested_scopes_the_outermost_are_left(paths):
    """No scope that is left stands in another, and each that was given stands in one that is left."""
    left = outermost(map(path_of, paths))
    assert not any(is_within(a, b) for a in left for b in left if a != b)
    assert all(any(is_within(path_of(path), each) for each in left) for path in paths)


@given(PATH, PATH)
def test_a_view_never_leaves_its_scope(home, path):
    """Whatever path a view of one scope is given, it stays inside."""
    visibility = Visibility().scope(home)
    target = visibility.target(path)
    assert is_within(target, path_of(home))
    assert visibility.target(target) == target
    assert all(visibility.holds(each) for each in visibility.filter(path).scopes)
