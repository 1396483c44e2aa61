"""Analysis of a question without a model: its words, the speakers and the times that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain

from graphagent import _clock
from graphagent.memory.notes.index._languages import COMPOUNDING, is_plain, languages, stopwords, words_of
from graphagent.memory.notes.index._stems import stems_of
from graphagent.memory.notes.index._words import NAME, WORD, folded, has_characters, normal, separated, words_of_name
from graphagent.memory.notes.recall._time_rules import MONTH_LEADS, MONTHS
from graphagent.memory.notes.recall._times import Span, times_of

_WORD = re.compile(WORD)
_POSSESSIVE = re.compile(rf"(?P<word>{WORD})(?:['’]s\b)?")
_MAYBE_NAME = re.compile(rf"(?<![\w'’])(?P<name>{NAME})(?P<of>['’]s\b|(?=,))?")
"""A word, with the signs that it is a name if it has a capital letter, even at the beginning of a sentence."""
_COMPOUND = re.compile(r"(?<![^\W\d_])[^\W\d_]+(?:[-\u2010][^\W\d_]+)+")
_NEAR = 32
"""How many characters before a word are read."""
_ANY_MONTH = "|".join(MONTHS)
_MONTH_BEFORE = re.compile(
    rf"(?:\b(?:{'|'.join(MONTH_LEADS)}|around|[0-3]?\d(?:st|nd|rd|th)?(?: of)?)|\b(?:{_ANY_MONTH})\W+(?:and|or|to|until|till|through))\W+$",
    re.IGNORECASE,
)
_MONTH_AFTER = re.compile(
    rf"\W+(?:the\s+)?(?:[0-3]?\d(?:st|nd|rd|th)?|(?:19|20)\d\d)\b|\W+(?:(?:and|or|to|until|till|through)\s+)?(?:{_ANY_MONTH})\b",
    re.IGNORECASE,
)
"""The signs that May is a month."""
_TIME_LEAD = re.compile(r"\b(?:in|on|at|during|of) (?:the )?$", re.IGNORECASE)

_ASKS = {
    "time": re.compile(r"\bwhen\b|\b(?:what|which) (?:date|day|month|year|time)\b|\bhow long ago\b", re.IGNORECASE),
    "number": re.compile(r"\bhow (?:many|much|often|long|old|far|big|tall)\b", re.IGNORECASE),
    "name": re.compile(r"\bwhere\b|\bwho(?:se|m)?\b|\bwhich (?:city|country|town|place)\b", re.IGNORECASE),
}

_NAMES = frozenset({"will", "it", "us", "a", "d", "m", "s", "t"})
"""The stop words that are searched for where they are written as names: Will, IT, US, and letters, such as that of vitamin D."""
_COMMON_NAMES = frozenset(
    """angel art bill bishop bob brook chance charity chase christian cliff cook daisy dale dawn dean destiny drew earl faith fern frank
    gene grace grant guy harmony hazel heath heather holly hope hunter iris ivy jack jasmine jay jean joy lance lily mark mason max
    melody miles nick olive opal page pat patience pearl penny pierce ray reed rich rob robin rod rose ruby rusty sandy skip star
    sterling sue summer trinity victor violet ward""".split()  # noqa: SIM905  a list of so many words is read more easily
)
"""Names that are common words as well. Like months and stop words, they are names if they are written like names: "What did Bill pay?"."""
_SAYING = frozenset(
    """ask asked discuss discussed happen happened happening know mention mentioned note noted remember say said says talk talked tell
    think thinks thought told write wrote""".split()  # noqa: SIM905  a list of so many words is read more easily
)
"""Words of questions about anything that someone said or that happened at a time."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question, analysed for a search."""

    text: str
    words: tuple[str, ...]
    """The words to search for, each once, as they were written; several with spaces between them are searched as a phrase. If there are
    only stop words, all of them are one phrase."""
    stems: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """For words in other languages than English, the stems that texts have for them."""
    stopwords: frozenset[str] = frozenset()
    """The stop words of its language, in lower case and without accents."""
    is_compounding: bool = False
    """Whether its language writes compounds as one word."""
    is_phrase: bool = False
    """Whether it has only stop words."""
    joined: Mapping[str, str] = field(default_factory=dict[str, str])
    """For words that hyphens join, the whole in one word: `wifi` for `wi` and `fi`, since it is written in both ways."""
    speakers: tuple[str, ...] = ()
    """The speakers that it names, as they were given."""
    named: frozenset[str] = frozenset()
    """The names by which it names them, in lower case and without accents: of "Ann Baker", that may be "ann"."""
    spans: tuple[Span, ...] = ()
    """The times that it names."""
    timed: frozenset[str] = frozenset()
    """The words that name times, in lower case."""
    asks: str = ""
    """The kind of answer that is asked for: `time`, `number` or `name`, if one of them is."""
    bare: str = ""
    """The text without the names of speakers and without times, because they would dominate its vectors; the whole text if the rest is
    only common words that ask for an answer, such as "where", and empty if these say nothing."""


def parse_query(text: str, speakers: Iterable[str] = (), *, now: datetime | None = None) -> Query:
    """Return the analysis of a question.

    Args:
        text: The question.
        speakers: The speakers in the notes to search.
        now: The current time in UTC, for words such as "last week".
    """
    plain = normal(text)
    language = () if is_plain(plain) else languages(words_of(plain))
    common = stopwords(language)
    divided = {word: _parts(word, common) for word in dict.fromkeys(_WORD.findall(plain))}
    found = list(chain.from_iterable(divided[word] for word in _WORD.findall(plain)))
    meant = _capitals(plain)
    spoken = _named(speakers, {folded(word) for word in _WORD.findall(separated(plain))}, meant, common)
    named = frozenset(spoken)
    kept = (meant & _NAMES).union(*(_words(separated(name)) for name in named))
    words = dict.fromkeys(
        word for word in found if (folded(word) not in common or folded(word) in kept) and len(word) < 64
    )
    times = times_of(plain, now or datetime.fromtimestamp(_clock.now() / 1000, UTC), named)
    phrases = [plain[start:end] for start, end in times.places]
    asks = next((kind for kind, asks in _ASKS.items() if asks.search(plain)), "")
    return Query(
        text,
        tuple(words or [" ".join(found)]) if found else (),
        {
            parts[0]: tuple(map(separated, stems))
            for word, parts in divided.items()
            if len(parts) == 1 and (stems := stems_of(word, language))
        },
        common,
        not COMPOUNDING.isdisjoint(language),
        not words,
        {
            part: whole
            for parts in map(_WORD.findall, _COMPOUND.findall(plain))
            for whole in ("".join(parts),)
            for part in parts
        },
        tuple(speaker for given in spoken.values() for speaker in given),
        named,
        times.spans,
        frozenset(word for phrase in phrases for word in _words(separated(phrase))) - common,
        asks,
        _bare(plain, named, times.places, kept, common) or (text if asks or not (named or phrases) else ""),
    )


def speakers_in(text: str, speakers: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the speakers whom a question may name: those whose names begin with a word of it.

    Args:
        text: The question.
        speakers: The speakers by the first words of their names, as `words_of_name` has them.
    """
    words = dict.fromkeys(map(folded, _WORD.findall(separated(normal(text)))))
    return [speaker for word in words for speaker in speakers.get(word, ())]


def _parts(word: str, common: AbstractSet[str]) -> list[str]:
    """Return the words to search for a run of letters and digits: its parts, or all of them as one phrase.

    A phrase is searched where single words would not do: if a part is a stop word, such as in `S3`, or there twice, such as in `0x0`.
    """
    parts = _WORD.findall(separated(word))
    if len(parts) == 1 or parts[1:] == ["s"] or has_characters(word):  # a word, the 1980s, pairs of characters
        return parts
    is_vague = len(set(parts)) < len(parts) or any(folded(part) in common for part in parts)
    return [" ".join(parts)] if is_vague else parts


def _named(
    speakers: Iterable[str], words: AbstractSet[str], meant: AbstractSet[str], common: AbstractSet[str]
) -> dict[str, list[str]]:
    """Return the speakers that a text with these words names, by their names in it, in lower case and without accents.

    The first name is enough where it is written as a name and only one speaker has it.
    """
    parts: dict[str, frozenset[str]] = {}
    given: dict[str, list[str]] = {}
    first: dict[str, dict[str, list[str]]] = {}
    for speaker in speakers:
        name, of_name = folded(normal(speaker)), words_of_name(speaker)
        if of_name and words >= set(of_name):
            if name in meant or not (name in common or name in MONTHS or name in _COMMON_NAMES):
                parts[name] = frozenset(of_name)
                given.setdefault(name, []).append(speaker)
        elif of_name and of_name[0] in meant - common:
            first.setdefault(of_name[0], {}).setdefault(name, []).append(speaker)
    # "Ana Maria" does not name Ana as well.
    whole = {name: each for name, each in given.items() if not any(parts[name] < other for other in parts.values())}
    spoken = {part for each in parts.values() for part in each}
    return whole | {
        name: given
        for name, people in first.items()
        if len(people) == 1 and name not in spoken
        for given in people.values()
    }


def _words(text: str) -> list[str]:
    return [match.group() for match in _WORD.finditer(text.casefold())]


def _capitals(text: str) -> frozenset[str]:
    """Return the words that are written as names in a text, such as Will and May, in lower case and without accents.

    They have a capital letter though they are not the first word of a sentence, or are followed by `'s` or a comma; May is a month next
    to a day, a year or another month, and after "in" and the like. Nothing is known of a text in which all words have capital letters.
    """
    words = list(_MAYBE_NAME.finditer(text))
    if not any(match["name"][0].islower() for match in words):
        return frozenset()
    found: set[str] = set()
    for match in words:
        if not match["name"][0].isupper():
            continue
        name, before = folded(match["name"]), text[max(0, match.start() - _NEAR) : match.start()]
        is_first = not before.strip() or before.rstrip(" ")[-1] in '.!?:;\n"“(-'
        if name == "i" or (is_first and match["of"] is None):
            continue
        is_month = name in MONTHS and not match["of"]
        if not (is_month and (_MONTH_BEFORE.search(before) or _MONTH_AFTER.match(text, match.end()))):
            found.add(name)
    return frozenset(found)


def _bare(
    text: str,
    names: Iterable[str],
    times: Iterable[tuple[int, int]],
    kept: AbstractSet[str],
    common: AbstractSet[str],
) -> str:
    """Return a text without names and without times, which are given by their places; empty if only common words are left."""
    pieces: list[str] = []
    begin = 0
    for start, end in times:
        pieces.append(_TIME_LEAD.sub("", text[begin:start]))
        begin = end
    left = " ".join([*pieces, text[begin:]])
    parts = {part for name in names for part in _words(name)}
    for part in parts:
        if has_characters(part):
            left = left.replace(part, " ")
    if parts:
        left = _POSSESSIVE.sub(lambda match: " " if folded(match["word"]) in parts else match[0], left)
    left = " ".join(left.split())
    words = _words(left)
    return left if any(word in kept or not (word in _SAYING or folded(word) in common) for word in words) else ""
