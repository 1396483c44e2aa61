"""The language of a text, judged by its function words, and the stop words that follow from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphagent.memory.notes.index._languages import is_plain, languages, stopwords, words_of

ENGLISH = [
    "We decided to use PostgreSQL for the user database.",
    "Die-cast model, the man at war said not to sell it.",
    "Van plates: 3 is WX19 KDB, 5 is WX21 KBD.",
    "Lentils till October.",
    "He has a hat and a dog, and will come in the car.",
]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Wann ist der Zahnarzttermin?", "german"),
        ("¿Dónde está la llave del sótano?", "spanish"),
        ("Donde esta la llave del sotano", "spanish"),
        ("L'ascenseur ne va que jusqu'au quatrième.", "french"),
        ("Qual è il codice della cantina?", "italian"),
        ("Não me lembro onde está a chave do carro.", "portuguese"),
        ("Wanneer moet ik naar de tandarts?", "dutch"),
        ("Når kommer dei, og hva trenger jeg?", "norwegian"),
        ("Hvornår skal jeg hente den efter mødet?", "danish"),
        ("När ska jag hämta bilen på verkstaden?", "swedish"),
        ("Milloin minun pitää hakea auto?", "finnish"),
        ("Hol van a kulcs, és mikor kell visszaadni?", "hungarian"),
        ("Unde este cheia și când trebuie să o dau înapoi?", "romanian"),
        ("Anahtar nerede ve ne zaman geri vermem gerekiyor?", "turkish"),
    ],
)
def test_a_question_tells_its_language(text, language):
    """Also without accents where the words tell enough."""
    assert languages(words_of(text)) == (language,)
    assert not is_plain(text)


@pytest.mark.parametrize("text", ENGLISH)
def test_english_is_english(text):
    """Even with words that are function words elsewhere."""
    assert languages(words_of(text)) in ((), ("english",))


@pytest.mark.parametrize(
    "text",
    ["", "Los Angeles", "Rio de Janeiro 2024", "wi fi", "PostgreSQL 16", "ffmpeg -i a.mov -c:a copy", "Ben, Hans"],
)
def test_a_name_or_a_command_tells_no_language(text):
    """One word is not enough that names have too, nor are letters."""
    assert languages(words_of(text)) == ()


def test_what_is_written_alike_belongs_to_both():
    """Norwegian and Danish share most of their function words."""
    assert languages(words_of("Hvor ligger hytta?")) == ("danish", "norwegian")


def test_a_word_is_a_stop_word_in_its_language_only():
    """German has `die`, which is a verb in English; English ones that negate are searched, `nicht` is not."""
    assert {"die", "war", "man", "nicht", "fur"} <= stopwords(("german",))
    assert not {"die", "war", "man", "not", "no", "never", "without"} & stopwords(("english",))
    assert stopwords(()) == stopwords(("english",))
    assert "the" not in stopwords(("german",))


@given(st.text())
def test_any_text_can_be_judged(text):
    """The result is the same each time, and at most two languages."""
    found = languages(words_of(text))
    assert found == languages(words_of(text))
    assert len(found) <= 2
    assert stopwords(found)
