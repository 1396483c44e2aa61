"""Words of other languages than English, which are found in their other forms."""

from __future__ import annotations

import re
from collections import defaultdict

import apsw
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from graphagent.memory import Notes
from graphagent.memory._note_values import Filter, Record
from graphagent.memory.notes.index import _stems
from graphagent.memory.notes.index._chunks import worded
from graphagent.memory.notes.index._fts import SqliteTables
from graphagent.memory.notes.index._stems import with_stems
from graphagent.memory.notes.index._tables import CHUNKS
from graphagent.memory.notes.index._words import WORD, normal
from graphagent.memory.notes.recall._lexical import search_words
from graphagent.memory.notes.recall._query import parse_query
from graphagent.store import MemoryStore
from tests.memory.notes.index.test_languages import ENGLISH
from tests.thorough import examples

_WORD = re.compile(WORD)
PIECES = [
    "der",
    "Zahnarzttermin",
    "Häuser",
    "und",
    "Straße;",
    "el",
    "corazón",
    "está.",
    "le",
    "cœur",
    "où",
    "l'été;",
    "Ærø",
    "på",
    "øya.",
    "не",
    "работает",
    "больницы",
    "المستشفى",
    "وأحمد",
    "לרופא",
    "הבית",
    "अस्पताल",
    "में",
    "ज़रूरी",
    "νοσοκομείο",
    "ที่โรงพยาบาล",
    "ໂຮງໝໍ",
    "មន្ទីរពេទ្យ",
    "ဆေးရုံ",
    "数据库",
    "データ",
    "데이터",
    "the",
    "database",
    "E4021",
    "getUserName",
    "50,000",
    "🙂",
    "½",
    "Ǆ",
    "ﬁ",
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6), max_size=12)


def found(texts, question):
    """Return the texts that have a word of a question, as far as they are not merely like it."""
    return {text for text, has in shares(texts, question).items() if 1 in has}


def shares(texts, question):
    """Return the texts that have a word of a question, with the shares that these words count."""
    connection = apsw.Connection(":memory:")
    SqliteTables(connection).make()
    records = [Record(f"id{number}", text) for number, text in enumerate(texts)]
    rows = dict(zip(SqliteTables(connection).add([(each, worded(each)) for each in records]), texts, strict=True))
    words = search_words(SqliteTables(connection), parse_query(question), Filter(""))
    shares = defaultdict(set)
    for has in words.places.values():
        for place, share in has.items():
            shares[rows[place // CHUNKS]].add(share)
    return shares


@pytest.mark.parametrize(
    ("note", "question"),
    [
        ("המפתח אצל הרופא", "לרופא"),
        ("תשאל את הרופא מחר", "מתי ללכת לרופא?"),
        ("התור לרופא ביום שני", "רופא"),
        ("ฉันไปหาหมอฟันที่โรงพยาบาลเมื่อวาน", "โรงพยาบาล"),
        ("ខ្ញុំទៅមន្ទីរពេទ្យ", "មន្ទីរពេទ្យ"),
        ("ຂ້ອຍໄປໂຮງໝໍ", "ໂຮງໝໍ"),
        ("ကျွန်တော်ဆေးရုံသွားတယ်", "ဆေးရုံ"),
        ("Le cœur du problème est le cache.", "coeur"),
        ("Die Straße ist gesperrt.", "strasse"),
        ("Die Häuser sind verkauft.", "Wann wurde das Haus verkauft?"),
        ("Hemos cambiado las cerraduras de la casa.", "¿Quién ha cambiado la cerradura?"),
        ("Les clés sont chez les voisines.", "Où est la clé de la voisine ?"),
        ("I vicini hanno un cane.", "Dove abita la vicina?"),
        ("As chaves estão com os vizinhos.", "Onde está a chave do vizinho?"),
        ("De afspraken zijn verzet.", "Wanneer is de afspraak?"),
        ("Nøklene ligger hos naboen.", "Hvor ligger nøkkelen, og hvem er naboene?"),
        ("Nycklarna ligger hos grannen.", "Var är nyckeln, och vem är grannarna?"),
        ("Nøglerne er hos naboen.", "Hvad er nøglen, og hvem er naboerne?"),
        ("Avaimet ovat naapurilla.", "Missä on naapurin avain?"),
        ("A kulcsok a szomszédnál vannak.", "Hol van a szomszéd kulcsa?"),
        ("Cheile sunt la vecini.", "Unde este vecinul cu cheia?"),
        ("Anahtarlar bizim komşuda.", "Komşunun anahtarı nerede?"),
        ("Ключи лежат у соседки.", "У какой соседки ключ?"),
        ("Τα κλειδιά είναι στη γειτόνισσα.", "Πού είναι το κλειδί;"),
        ("المفاتيح في المستشفى", "مستشفى"),
        ("زرت مستشفى جديدا", "المستشفى والمدرسة"),
        ("बच्चों की किताबें अलमारी में हैं", "किताब कहाँ है?"),
        ("क्\u200dषेत्र बड़ा है", "क्षेत्र कहाँ है?"),
    ],
)
def test_a_word_is_found_in_another_form(note, question):
    """And nothing else is."""
    assert found([note, "Something else."], question) == {note}


@pytest.mark.parametrize(
    ("note", "question"),
    [
        ("Der Zahnarzttermin ist um neun.", "Wann muss ich zum Zahnarzt?"),
        ("Der Zahnarzt ist im Urlaub.", "Wann ist der Zahnarzttermin?"),
        ("Die Versicherung ist gekündigt.", "Was kostet die Haftpflichtversicherung?"),
        ("Dataskjermen kom i går.", "Hvor er skjermen, og hva er data?"),
    ],
)
def test_a_compound_is_found_by_its_parts(note, question):
    """By half, and they by it, if no note has the word itself."""
    assert shares([note, "Something else."], question)[note] == {0.5}


@pytest.mark.parametrize("text", ENGLISH)
def test_english_is_indexed_as_it_is(text):
    """Its stemmer is that of the tokenizer."""
    assert with_stems(text) == text


@settings(max_examples=examples(200))
@given(TEXTS)
@example(["ﬁ", "Ǆ", "½"])
def test_a_text_is_found_by_each_of_its_words(pieces):
    """In whatever script and language, beside another one; and by all of them."""
    text = " ".join(pieces)
    assume(parse_query(text).words)
    for question in [text, *dict.fromkeys(_WORD.findall(normal(text)))]:
        if parse_query(question).words and len(question) < 64:
            assert text in found([text, "Something else."], question)


async def test_a_note_is_found_first_by_its_own_text():
    """Beside notes that say nearly the same, in each language."""
    kept = [
        "Der Zahnarzttermin ist am Dienstag um neun.",
        "Die Zahnarzttermine der Kinder sind immer dienstags.",
        "La cita con la dentista es el martes a las nueve.",
        "Las citas de los niños con la dentista son los martes.",
        "Le rendez-vous chez le dentiste est mardi à neuf heures.",
        "Запись к зубному во вторник в девять.",
        "Записи детей к зубному всегда по вторникам.",
        "موعد الطبيب يوم الثلاثاء في المستشفى",
        "مواعيد الأطباء في مستشفى الأطفال",
        "התור לרופא השיניים ביום שלישי",
        "התורים של הילדים אצל רופא השיניים",
        "ฉันมีนัดหมอฟันวันอังคาร",
        "The dentist is on Tuesday at nine.",
    ]
    async with Notes(MemoryStore()) as notes:
        await notes.remember_many(kept)
        assert [(await notes.recall(text, limit=1))[0].record.content for text in kept] == kept


def test_stems_of_very_long_words_are_not_kept_in_memory():
    """A key or a file in base64 may be a megabyte."""
    before = _stems._known_stems.cache_info().currsize
    for letter in "abcdef":
        assert _stems.stems_of(letter * 1_000, ("german",)) == ()
    assert _stems._known_stems.cache_info().currsize == before
