"""The words of a text in the form in which they are searched: parts of identifiers, and pairs of characters where no spaces divide words.

FTS5's tokenizer keeps `E4021` and a whole Chinese sentence as one word each. So texts and questions are divided further before it
sees them, in the same way: between letters and digits, and each run of Chinese, Japanese, Korean, Thai, Lao, Khmer or Burmese characters,
with their marks, into its overlapping pairs, as Lucene's CJKBigramFilter does. Texts, but not questions, also have the parts of words
such as `getUserName`. Text with several forms in Unicode gets one form: `é` in one character or two, full-width letters, Hebrew and
Arabic with vowel points or without, Arabic letters with hamza or dots or without.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import pairwise

_IDENTIFIER = re.compile(r"[^\W\d_]\d|\d[^\W\d_]")
_PARTS = re.compile(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1-\u05c2\u05c4-\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0711-\u07f3\u07fd\u0816-\u082d\u0859-\u085b\u0898-\u08e1\u08e3-\u0963"
    "\u0981-\u09e3\u09fe-\u0a75\u0a81-\u0ae3\u0afa-\u0b63\u0b82-\u0bd7\u0c00-\u0c63\u0c81-\u0c83\u0cbc-\u0d4d"
    "\u0d57-\u0d63\u0d81-\u0df3\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ecd\u0f18-\u0f19\u0f35\u0f37\u0f39\u0f3e-\u0f84"
    "\u0f86-\u0fbc\u0fc6\u102b-\u103e\u1056-\u109d\u135d-\u135f\u1712-\u1734\u1752-\u17d3\u17dd\u180b-\u180d"
    "\u180f-\u193b\u1a17-\u1a1b\u1a55-\u1a7f\u1ab0-\u1b44\u1b6b-\u1b73\u1b80-\u1bf3\u1c24-\u1c37\u1cd0-\u1cd2"
    "\u1cd4-\u1dff\u20d0-\u20f0\u2cef-\u2cf1\u2d7f-\u2dff\u302a-\u302f\u3099-\u309a\ua66f-\ua672\ua674-\ua67d"
    "\ua69e-\ua6f1\ua802-\ua827\ua82c\ua880-\ua8c5\ua8e0-\ua8f1\ua8ff-\ua92d\ua947-\ua953\ua980-\ua9c0\ua9e5-\uaa4d"
    "\uaa7b-\uaac1\uaaeb-\uaaef\uaaf5-\uaaf6\uabe3-\uabea\uabec-\uabed\ufb1e\ufe00-\ufe0f\ufe20-\ufe2f"
    "\U000101fd-\U0001037a\U00010a01-\U00010a3f\U00010ae5-\U00010ae6\U00010d24-\U00010eac\U00010f46-\U00010f50"
    "\U00010f82-\U00010f85\U00011000-\U00011046\U00011070-\U000110ba\U000110c2\U00011100-\U00011134"
    "\U00011145-\U00011173\U00011180-\U000111c0\U000111c9-\U000111cc\U000111ce-\U000111cf\U0001122c-\U00011237"
    "\U0001123e\U000112df-\U00011446\U0001145e-\U000114c3\U000115af-\U000115c0\U000115dc-\U00011640"
    "\U000116ab-\U000116b7\U0001171d-\U0001172b\U0001182c-\U0001183a\U00011930-\U00011943\U000119d1-\U000119e0"
    "\U000119e4-\U00011a3e\U00011a47-\U00011a99\U00011c2f-\U00011c3f\U00011c92-\U00011ef6\U00016af0-\U00016af4"
    "\U00016b30-\U00016b36\U00016f4f-\U00016f92\U00016fe4-\U00016ff1\U0001bc9d-\U0001bc9e\U0001cf00-\U0001cf46"
    "\U0001d165-\U0001d169\U0001d16d-\U0001d172\U0001d17b-\U0001d182\U0001d185-\U0001d18b\U0001d1aa-\U0001d1ad"
    "\U0001d242-\U0001d244\U0001da00-\U0001da36\U0001da3b-\U0001da6c\U0001da75\U0001da84\U0001da9b-\U0001e136"
    "\U0001e2ae-\U0001e2ef\U0001e8d0-\U0001e94a\U000e0100-\U000e01ef"
)
"""The combining marks of Unicode 14, with the letters that stand between them: vowel signs, tone marks, accents."""
WORD = rf"[^\W_](?:[^\W_]|[{_MARKS}])*"
"""A word as a pattern: letters and digits with their marks, as the tokenizer of the index divides them."""
NAME = rf"[^\W\d_](?:\w|[{_MARKS}])*"
"""A word that begins with a letter, as a pattern."""
_WORD = re.compile(WORD)
_SIGNS = re.compile(rf"[^\w\s\x00-\x7f{_MARKS}]+")
"""Signs that are not ASCII. The tokenizer has Unicode 6, and takes newer ones, such as most emoji, for letters."""
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_STACKED = (
    "\u0e01-\u0e30\u0e32-\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2-\u0eb3\u0ebd-\u0ec6\u0edc-\u0edf\u1780-\u17b3\u17d7\u17dc"
    "\u1000-\u102a\u103f\u1050-\u1055\u105a-\u105d\u1061\u1065-\u1066\u106e-\u1070\u1075-\u1081\u108e"
)
"""The letters of Thai, Lao, Khmer and Burmese."""
_ON_STACKED = (
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u17b4-\u17d3\u17dd\u102b-\u103e\u1056-\u1059\u105e-\u1060"
    "\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d\u108f\u109a-\u109d"
)
"""The marks above, below and beside them."""
_CHARACTERS = "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f"
_UNSPACED = rf"(?:[{_CHARACTERS}]|[{_STACKED}](?:[\u1039\u17d2][{_STACKED}]|[{_ON_STACKED}])*)"
"""A character of a script without spaces between words: with its marks, and the letters that stand below it in Khmer and Burmese."""
_CHARACTER = re.compile(_UNSPACED)
_RUN = re.compile(f"{_UNSPACED}+")
_PLACE = re.compile(rf"[{_CHARACTERS}]{{1,2}}|[^\s{_CHARACTERS}]+")
_LEFT_OUT = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed"
    "\u00ad\u061c\u200d-\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]"
    "|(?<=[\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca])\u200c"
)
"""The vowel points and other marks of Hebrew and Arabic, and the line that stretches Arabic words: most texts are without them. And what
nobody sees in a word: soft hyphens, joiners, marks of direction, and in an Indic conjunct the sign that divides words in Persian."""
_ACCENTS = re.compile("[\u0300-\u036f]")
_STROKES = str.maketrans("łŁđĐøØħĦŧŦıðÐأإآٱىیةک", "lLdDoOhHtTidDااااييهك") | str.maketrans(
    {
        "æ": "ae",
        "Æ": "AE",
        "œ": "oe",
        "Œ": "OE",
        "ß": "ss",
        "ẞ": "SS",
        "þ": "th",
        "Þ": "TH",
        "\u0901": "\u0902",
        "\u093c": "",
    }
)
"""Letters that are written without their stroke or dot, or as two, where a keyboard has none, and that Unicode does not take apart;
and what people write in several ways of Arabic letters, which also are others in Persian, and of signs on those of Hindi."""


def normal(text: str) -> str:
    """Return a text in the form NFKC of Unicode, without the vowel points of Hebrew and Arabic and invisible characters in words."""
    return text if text.isascii() else _LEFT_OUT.sub("", unicodedata.normalize("NFKC", text))


def folded(text: str) -> str:
    """Return a normal text in lower case and without accents and strokes, by which names are compared."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text))).translate(_STROKES)
    return text.casefold()


def words_of_name(name: str) -> list[str]:
    """Return the words of a name, in lower case and without accents."""
    return _WORD.findall(separated(folded(normal(name))))


def separated(text: str) -> str:
    """Return a text in which a space divides the parts of identifiers, and pairs of characters where no spaces divide words.

    Signs are spaces unless they are ASCII, and letters have no strokes. The tokenizer of the index leaves out their accents.
    """
    if _IDENTIFIER.search(text):
        text = _PARTS.sub(" ", text)
    return text if text.isascii() else _RUN.sub(_pairs, _SIGNS.sub(" ", text.translate(_STROKES)))


def with_parts(text: str) -> str:
    """Return a text in which the parts of words such as `getUserName` follow them, and runs such as of Chinese characters their last one.

    The words themselves stay, because many are written otherwise too: `GitHub` is `github`, and `PostgreSQL` is `postgresql`.
    """
    if _CAMEL.search(text):
        text = _WORD.sub(_and_parts, text)
    return text if text.isascii() else _RUN.sub(_and_last, text)


def parts_of(word: str) -> str:
    """Return the parts of a word such as `getUserName`, divided by spaces."""
    return _CAMEL.sub(" ", word)


def has_characters(text: str) -> bool:
    """Return whether a text has characters of a script that has no spaces between words, such as Chinese or Thai."""
    return not text.isascii() and _CHARACTER.search(text) is not None


def is_character(word: str) -> bool:
    """Return whether a word is one such character with its marks, which is found as the first or the last of a pair."""
    return _CHARACTER.fullmatch(word) is not None


def word_places(text: str) -> list[tuple[int, int]]:
    """Return the beginnings and ends of the words of a text: words between spaces, and every two Chinese, Japanese or Korean characters."""
    return [match.span() for match in _PLACE.finditer(text)]


def word_list(text: str) -> list[str]:
    """Return the words of a text: runs of letters and digits, and single characters where no spaces divide words."""
    return _WORD.findall(with_spaces(text))


def with_spaces(text: str) -> str:
    """Return a text with spaces around each character of a script that has none between words."""
    return text if text.isascii() else _CHARACTER.sub(r" \g<0> ", text)


def _and_last(match: re.Match[str]) -> str:
    # Each character but the last one of a run begins a pair.
    run = match.group()
    return f"{run} {_CHARACTER.findall(run)[-1]}"


def _and_parts(match: re.Match[str]) -> str:
    word = match.group()
    parts = parts_of(word)
    return word if parts == word else f"{word} {parts}"


def _pairs(match: re.Match[str]) -> str:
    characters = _CHARACTER.findall(match.group())
    return f" {' '.join(map(''.join, pairwise(characters))) or match.group()} "


def similarities(word: str, others: Iterable[str]) -> dict[str, float]:
    """Return the share of trigrams that each of other words has in common with a word, from 0 to 1, as PostgreSQL's pg_trgm defines it."""
    own = _trigrams(word)
    return {other: len(own & each) / len(own | each) for other in others for each in (_trigrams(other),)}


def _trigrams(word: str) -> set[str]:
    filled = f"  {word} "
    return {filled[place : place + 3] for place in range(len(filled) - 2)}
