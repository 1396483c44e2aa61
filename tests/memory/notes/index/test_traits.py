"""The traits by which a turn may be an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphagent.memory.notes.index._traits import NAME, NUMBER, QUESTION, TIME, traits_of


@pytest.mark.parametrize(
    ("text", "traits"),
    [
        ("", 0),
        ("It is fine.", 0),
        ("How long have you been doing yoga?", QUESTION),
        ("你最喜欢什么？", QUESTION),
        ("For about three years now.", TIME | NUMBER),
        ("Since 2019.", TIME | NUMBER),
        ("YESTERDAY", TIME),
        ("In May.", NAME),
        ("We left in March", TIME | NAME),
        ("It costs 12 euros.", NUMBER),
        ("A dozen eggs.", NUMBER),
        ("We live in Lisbon.", NAME),
        ("Lisbon is nice.", 0),
        ("Well, Ada came.", NAME),
        ("Call 5433 at once.", NUMBER),
        ("Were you in Oslo last year?", QUESTION | TIME | NAME),
        ("a week-long trip", TIME),
        ("someone's weekly", 0),
    ],
)
def test_a_text_has_the_traits_of_its_words(text, traits):
    """It asks something, or names a time, a number, or a name that is not its first word."""
    assert traits_of(text) == traits


@given(st.text(max_size=60))
def test_traits_are_a_sum_of_the_four(text):
    """Whatever the characters, digits of other scripts and halves of characters included."""
    assert 0 <= traits_of(text) <= QUESTION | TIME | NUMBER | NAME


@given(st.text(max_size=30), st.sampled_from(["Why?", "two days ago", "12", "in Rome"]))
def test_more_text_takes_no_trait_away(text, more):
    """A trait that a text has, it has with further sentences too."""
    both = traits_of(f"{text} {more}")
    assert both & traits_of(more) == traits_of(more)
    assert both & traits_of(text) == traits_of(text)


@pytest.mark.parametrize("character", ["²", "①", "٣", "५", "十", "½"])
def test_digits_of_any_script_are_read(character):
    """None of them fails."""
    assert traits_of(f"It is {character} long.") in (0, NUMBER)


def test_a_long_text_is_read_as_one():
    """A trait in its last words counts."""
    assert traits_of("so it is " * 100_000 + "in 1999?") == QUESTION | TIME | NUMBER
