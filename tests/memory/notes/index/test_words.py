"""The form in which words are searched: what finds what, and what the division of texts may never do."""

from __future__ import annotations

import string
import unicodedata

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphagent.memory.notes.index._fts import SqliteTables
from graphagent.memory.notes.index._words import separated, similarities, with_parts

CJK = "数据库端口データベースひらがな데이터포트กขคກຂខគကခ"
MIXED = st.text(st.sampled_from(f"abXY019 -_.,/'\u0301\u200d🙂\ud800é{CJK}"), max_size=40)
WORDS = st.text(string.ascii_lowercase, max_size=12)


def words_of(text):
    """Return the words as which the index keeps a text."""
    connection = apsw.Connection(":memory:")
    return SqliteTables(connection).tokens.split([divided := separated(text)])[divided]


@pytest.mark.parametrize(
    "spellings",
    [
        ("OPS3317", "OPS-3317", "ops 3317", "ops3317", "Ops_3317", "OPS/3317"),
        ("E 4021", "E-4021", "E4021", "e4021"),
        ("v2beta10", "V2 beta 10", "v-2-beta-10"),
        ("Straße12", "STRASSE 12".replace("SS", "ß"), "straße-12"),
        ("naïve2", "naive 2"),
        ("cœur 2", "CŒUR2", "coeur2"),
        ("Ærø2", "aero 2"),
        ("أحمد2", "احمد 2"),
        ("مدرسة2", "مدرسه 2"),
        ("مستشفى2", "مستشفي 2", "مستشفی 2"),
        ("ज़मीन2", "जमीन 2"),
        ("数据库5433端口", "数据库 5433 端口"),
        ("データ2024年", "データ 2024 年"),
    ],
)
def test_spellings_of_one_identifier_are_the_same_words(spellings):
    """Whatever divides its parts: nothing, a sign, a space, or a capital letter."""
    assert len({tuple(words_of(spelling)) for spelling in spellings}) == 1
    assert len(words_of(spellings[0])) > 1


@pytest.mark.parametrize(
    "text", ["", " ", "plain words, and more.", "HTTP", "GitHub", "2024-05-01", "3.14", "naïve café"]
)
def test_what_has_no_parts_stays_as_it_is(text):
    """Texts without identifiers and without characters that no spaces divide are not changed at all."""
    assert separated(text) == text


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("数据库", ["数据", "据库"]),
        ("库", ["库"]),
        ("データベース", ["デー", "ータ", "タベ", "ベー", "ース"]),
        ("ひらがな", ["ひら", "らが", "がな"]),
        ("포트는 이다", ["포트", "트는", "이다"]),
        ("人々", ["人々"]),
        ("ｶﾀｶﾅ", ["ｶﾀ", "ﾀｶ", "ｶﾅ"]),
        ("用Sqlite数据", ["用", "Sqlite", "数据"]),
        ("数据库。端口", ["数据", "据库", "端口"]),
        ("𠮷野家", ["𠮷", "野家"]),
        ("ที่บ้าน", ["ที่บ้", "บ้า", "าน"]),
        ("ຢູ່ບ້ານ", ["ຢູ່ບ້", "ບ້າ", "ານ"]),
        ("ពេទ្យ។ខ្ញុំ", ["ពេទ្យ", "ខ្ញុំ"]),
        ("ဆေးရုံ", ["ဆေးရုံ"]),
    ],
)
def test_runs_of_characters_are_pairs(text, pairs):
    """Overlapping ones of each run without spaces or other signs in between; a single character stays alone."""
    assert separated(text).replace("。", " ").split() == pairs


@given(MIXED)
@example("A1" * 20)
def test_only_spaces_are_added(text):
    """No character is lost or changed but signs: without spaces, a text that has no runs of such characters is what it was."""
    latin = "".join(each for each in text if each not in CJK and each not in "\u200d🙂\ud800")
    assert separated(latin).replace(" ", "") == latin.replace(" ", "")


def test_a_sign_is_no_part_of_a_word():
    """However new it is: the tokenizer itself knows signs up to Unicode 6."""
    assert words_of("Zahnarzt🦷 um 9🌡, 50€") == words_of("Zahnarzt um 9, 50")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("getUserName()", "getUserName get User Name()"),
        ("on GitHub, or github", "on GitHub Git Hub, or github"),
        ("user_fullName", "user_fullName full Name"),
        ("HTTP HTTPServer Ada iOS17", "HTTP HTTPServer Ada iOS17 i OS17"),
        ("", ""),
    ],
)
def test_a_word_with_capitals_inside_is_followed_by_its_parts(text, words):
    """And stays, because it is often written without them."""
    assert with_parts(text) == words


@given(MIXED)
def test_parts_only_add_words(text):
    """All words of the text are there still, in their order."""
    left = iter(with_parts(text))
    assert all(character in left for character in text)


@given(MIXED)
def test_dividing_again_changes_no_word(text):
    """What was divided has no parts left, and its pairs are no longer than pairs."""
    once = separated(text)
    assert separated(once).split() == once.split()


@given(MIXED)
def test_no_word_has_both_letters_and_digits(text):
    """Nor more than two characters of scripts that write no spaces."""
    for word in "".join(each if each.isalnum() else " " for each in separated(text)).split():
        assert word.isdigit() or not any(map(str.isdigit, word))
        assert len(word) <= 2 or not any(each in CJK for each in word)


@given(MIXED, MIXED)
def test_texts_are_divided_independently(one, other):
    """What comes before or after a space does not matter, so a question has the words of the same part of a text."""
    assert separated(f"{one} {other}").split() == separated(one).split() + separated(other).split()


@given(
    st.text(st.sampled_from(CJK), min_size=2, max_size=8),
    st.text(st.sampled_from(CJK), max_size=8),
    st.text(st.sampled_from(CJK), max_size=8),
)
def test_the_pairs_of_a_part_are_among_those_of_the_whole(part, before, after):
    """So a question finds the characters wherever they are in a longer run."""
    assert set(separated(part).split()) <= set(separated(f"{before}{part}{after}").split())


@given(st.text(max_size=50))
def test_any_text_has_words(text):
    """Whatever its characters, it can be indexed, halves of a character included."""
    assert all(word and unicodedata.normalize("NFC", word) for word in words_of(text))


@pytest.mark.parametrize("unit", ["a", "a1", "aB", "数", "数a", "포트 ", "🙂", "e\u0301", "?数1", "\ud800"])
def test_a_long_text_grows_by_at_most_threefold(unit):
    """By as much for each repetition, however many there are."""
    sizes = [len(separated(unit * count)) for count in (1_000, 2_000, 200_000)]
    assert sizes[2] <= 3 * len(unit) * 200_000
    assert sizes[2] - sizes[1] == 198 * (sizes[1] - sizes[0])


@given(WORDS, WORDS)
@example("", "")
@example("aaaa", "aaaaaaaa")
def test_similarity_is_a_share_and_symmetric(one, other):
    """From 0 to 1, which a word has with itself."""
    assert 0 <= similarities(one, [other])[other] <= 1
    assert similarities(one, [other])[other] == similarities(other, [one])[one]
    assert similarities(one, [one])[one] == 1


@given(WORDS, WORDS)
def test_similarity_is_that_of_the_sets_of_trigrams(one, other):
    """Counted one by one, with two spaces before a word and one after it."""

    def trigrams(word):
        letters = [" ", " ", *word, " "]
        return {"".join(each) for each in zip(letters, letters[1:], letters[2:], strict=False)}

    either = trigrams(one) | trigrams(other)
    both = [each for each in either if each in trigrams(one) and each in trigrams(other)]
    assert similarities(one, [other])[other] == pytest.approx(len(both) / len(either))


@pytest.mark.parametrize(
    ("meant", "misspelt", "another"),
    [
        ("calendar", "calender", "colander"),
        ("separate", "seperate", "desperate"),
        ("kubernetes", "kubernets", "kubeconfig"),
    ],
)
def test_a_misspelt_word_is_most_like_the_one_that_was_meant(meant, misspelt, another):
    """More than like another one that begins like it."""
    assert similarities(meant, [misspelt])[misspelt] > similarities(another, [misspelt])[misspelt]
