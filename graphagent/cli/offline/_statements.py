"""Plain statements in the first person, recognised by their form: what can be learned without a language model."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace


def words_of(text: str) -> frozenset[str]:
    """Give the words of a text: a long list that reads as one."""
    return frozenset(text.split())


_LONGEST_VALUE = 160
_LONGEST_CLAUSE = 400

_QUESTION = re.compile(
    r"(?:what|who|whom|whose|where|when|which|why|how|do|does|did|is|are|am|was|were|can|could|would|should|shall|will"
    r"|may|might|have|has|any idea|remind me|tell me (?:what|who|where|when|which|how|about|again)"
    r"|(?:show|give|tell) (?:me|us) (?:my|our|the|all|everything|what)|and what|and where"
    r"|and who|and which|so what|so where|summari[sz]e|list what)\b",
    re.IGNORECASE,
)
_UNCERTAIN = re.compile(
    r"\b(?:not|never|no longer|nor|neither|without|used to|if|unless|maybe|perhaps|might|would|could|wish|almost|suppose"
    r"|pretend|imagine|until|once)\b|n['’]t\b|\bi['’]d\b",
    re.IGNORECASE,
)
_LEAD_IN = re.compile(
    r"(?:(?:hi|hello|hey|good morning|good evening)(?: there| again)?|well|so|ok(?:ay)?|oh|ah|yes|no|right|great|thanks"
    r"|thank you|sorry|actually|correction|by the way|btw|also|and|but|then|please|for the record|just so you know"
    r"|one more thing|another thing|i (?:was|am) (?:wrong|mistaken)[^:;,.]*|let me correct (?:that|myself)"
    r"|i (?:should|forgot to) (?:say|mention)(?: that)?|fun fact"
    r"|(?:please )?(?:remember|note|know)(?: that)?|you should know(?: that)?)\b[,:;!]?\s+",
    re.IGNORECASE,
)
_TAIL = re.compile(
    r"(?:,?\s+(?:by the way|btw|now|nowadays|these days|at the moment|currently|actually|please|too|as well|though|again"
    r"|of course|so far|instead|recently|yesterday|today|at last|for years|(?:last|this) (?:week|month|year|spring|summer"
    r"|autumn|winter)|since \w+(?: \w+)?))+$",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r",?\s+(?:with|because|since|where|when|while|which|who|but|so)\s.*$|,\s+(?=[a-z]).*$|\s+and\s+(?=[a-z]).*$"
)
_STATE = re.compile(
    r"(?:that|this|it|there|how|why|what|your?|me|too|so|very|really|still|just|all|also|to|the word)\b", re.IGNORECASE
)
_DOING = re.compile(r"\w+ing\b", re.IGNORECASE)
_SECRET = re.compile(
    r"\b(?:password|passphrase|pass ?code|pin|secret|token|(?:api|access|secret) key)\b", re.IGNORECASE
)
_STATES = re.compile(r"\b(?:my|our|the)\b.*\b(?:is|are)\b", re.IGNORECASE)
_TRADE = (
    r"(?:developer|engineer|designer|manager|teacher|nurse|doctor|scientist|analyst|architect|writer|student|researcher"
    r"|consultant|administrator|programmer|lawyer|journalist|librarian|professor|accountant|electrician|musician)"
)
_PLAIN = words_of(
    "name surname nickname birthday email e-mail phone address timezone language editor shell theme size colour "
    "color job role title os keyboard terminal browser deadline hobby"
)
_PASSING = words_of(
    "point question problem issue guess idea plan bad fault turn day morning evening afternoon week head brain mood "
    "feeling impression understanding answer first next last"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One value that somebody stated."""

    about: str
    """`user` or `project`."""
    keyword: str
    description: str
    value: str
    adds: bool = False
    """Whether it stands beside what was said before, instead of taking its place."""


Read = Callable[[re.Match[str], frozenset[str]], list[Statement]]


def sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Give the sentences of a text without their last mark, each with whether it is a question."""
    for part in re.findall(r"\S.*?(?:[.!?]+(?=[\s\"')]|$)|$)", text, re.DOTALL):
        sentence = " ".join(part.split())
        plain = sentence.rstrip(".!?")
        if plain:
            yield plain, sentence.endswith("?") or bool(_QUESTION.match(_bare(plain)))


def is_secret(sentence: str) -> bool:
    """Tell whether a sentence states a password or the like, which is none of a memory's business."""
    if not _SECRET.search(sentence):
        return False
    return len(sentence) > _LONGEST_CLAUSE or bool(_STATES.search(sentence))


def statements(text: str, known: Collection[str] = ()) -> list[Statement]:
    """Give what a text states in the first person; `known` are keywords that there are facts of.

    Questions, negations, conditions and secrets state nothing.
    """
    found: dict[tuple[str, str, str], Statement] = {}
    for sentence, question in sentences(text):
        if question or is_secret(sentence):
            continue
        for clause in re.split(
            r"(?:[,;]|\s)\s*(?:and|but|so)\s+(?=(?:i|i['’]m|my|our|we)\s)|;\s+", sentence, flags=re.IGNORECASE
        ):
            for each in _read(_bare(clause), frozenset(known) | {stated.keyword for stated in found.values()}, clause):
                found.pop((each.about, each.keyword, each.value), None)
                found[each.about, each.keyword, each.value] = each
    return list(found.values())


def slug(text: str) -> str:
    """Give a text as part of a keyword."""
    return "-".join(re.findall(r"\w+", text.casefold().replace("'s ", " ").replace("’s ", " ")))[:60]


def _bare(clause: str) -> str:
    clause = clause.strip()
    while True:
        shorter = _LEAD_IN.sub("", clause, count=1) if _LEAD_IN.match(clause) else clause
        if shorter == clause:
            return clause
        clause = shorter


def _read(clause: str, known: frozenset[str], whole: str) -> list[Statement]:
    if greeted := re.match(
        r"(?:hi|hello|hey)(?: there)?[,!]?\s+i(?:['’]m| am) ([A-Z][\w-]+)(?:$|,)", whole, re.IGNORECASE
    ):
        return [Statement("user", "name", "the user's name", greeted[1])] if greeted[1][0].isupper() else []
    for pattern, read in _FORMS if len(clause) <= _LONGEST_CLAUSE else ():
        match = pattern.fullmatch(clause)
        if match and not _UNCERTAIN.search(clause):
            return [each for each in read(match, known) if 0 < len(each.value) <= _LONGEST_VALUE]
    return []


def _value(text: str) -> str:
    text = _TAIL.sub("", text.strip().rstrip(".,;"))
    quoted = re.fullmatch(r"[\"'“‘](.+)[\"'”’]", text)
    return quoted[1] if quoted else text


def _named(text: str) -> bool:
    """Tell whether a text names something: it begins with a capital, a digit or a quotation mark."""
    return bool(text) and (text[0].isupper() or text[0].isdigit() or text[0] in "\"'“‘</")


def _place(keyword: str, description: str) -> Read:
    def read(match: re.Match[str], _: frozenset[str]) -> list[Statement]:
        value = _value(_CLAUSE.sub("", match[1]))
        return [Statement("user", keyword, description, value)] if _named(value) else []

    return read


def _one(keyword: str, description: str, about: str = "user") -> Read:
    def read(match: re.Match[str], _: frozenset[str]) -> list[Statement]:
        return [Statement(about, keyword, description, _value(match[1]))]

    return read


def _several(plural: str, singular: str, description: str) -> Read:
    """Read values of which there may be many. One alone gets a keyword of its own, lest the next replace it."""

    def read(match: re.Match[str], known: frozenset[str]) -> list[Statement]:
        values = [_value(part) for part in re.split(r",\s*(?:and\s+)?|\s+and\s+", _value(match[1])) if part.strip()]
        values = [value for value in values if not _STATE.match(value) and len(value.split()) <= 5]
        if len(values) > 1 or plural in known:
            return [Statement("user", plural, description, value, adds=True) for value in values]
        return [Statement("user", f"{singular}-{slug(value)}", description, value) for value in values]

    return read


def _job(match: re.Match[str], _: frozenset[str]) -> list[Statement]:
    parts = re.fullmatch(r"(.+?)\s+(?:at|for)\s+((?:[aA]n? .*)?[A-Z].*)", match[1])
    job = [Statement("user", "job", "what the user works as", _value(parts[1] if parts else match[1]))]
    return [*job, Statement("user", "employer", "where the user is employed", _value(parts[2]))] if parts else job


def _use(match: re.Match[str], known: frozenset[str]) -> list[Statement]:
    ours = match[0][:2].casefold() == "we"
    purpose = re.fullmatch(r"(.+?)\s+(?:for|as(?: my| our)?)\s+(.+)", _value(match[1]))
    if purpose:
        topic = re.sub(r"^(?:my|our|the|all|all my|everything) ", "", _value(purpose[2]))
        value, keyword = _value(purpose[1]), f"tool-for-{slug(topic)}"
        if ours:
            return [Statement("project", f"project-{keyword}", "what the project uses for this", value)]
        return [Statement("user", keyword, "what the user uses for this", value)]
    if not ours:
        return _several("tools", "tool", "what the user uses")(match, known)
    found = _several("project-tools", "project-tool", "what the project uses")(match, known)
    return [replace(each, about="project") for each in found if _named(each.value)]


def _prefer(match: re.Match[str], _: frozenset[str]) -> list[Statement]:
    value = _value(match[1])
    purpose = re.fullmatch(r"(.+?)\s+(?:for|when it comes to)\s+(.+)", value)
    if purpose:
        value, topic = _value(purpose[1]), re.sub(r"^(?:my|our|the|all) ", "", _value(purpose[2]))
    else:
        topic = re.split(r"\s+(?:to|over|rather than|instead of|in|on|at|without)\s+", value)[0].split()[-1]
    return (
        [] if _STATE.match(value) else [Statement("user", f"preference-{slug(topic)}", "what the user prefers", value)]
    )


def _general(match: re.Match[str], _: frozenset[str]) -> list[Statement]:
    about = "user" if match[1].casefold() == "my" else "project"
    thing, value = match[2].strip(), _value(match[4])
    words = thing.casefold().replace("favorite", "favourite").split()
    called = "called" in match[3] or "named" in match[3]
    if words[-1] in _PASSING or "which" in words or len(words) > 5:
        return []
    chosen = words[0] in ("favourite", "preferred", "usual", "native") or words[-1] in _PLAIN
    telling = (
        _named(value) or re.match(r"(?:an?|the|on|at|in|due) .*[A-Z0-9]", value) or (called and not _STATE.match(value))
    )
    if _DOING.match(value) or not (telling or (chosen and not _STATE.match(value))):
        return []
    named = "-name" if called and not words[-1].endswith("name") else ""
    owner = "the user's" if about == "user" else "the project's"
    thing = " ".join(words)
    keyword = slug(thing) if about == "user" else f"project-{slug(thing)}"
    return [Statement(about, keyword + named, f"{owner} {thing}{' name' if named else ''}", value)]


def _relative(match: re.Match[str], _: frozenset[str]) -> list[Statement]:
    thing = match[1].casefold().split()[-1]
    return [
        Statement("user", f"{slug(thing)}-name", f"the name of the user's {thing}", _value(_CLAUSE.sub("", match[2])))
    ]


_OFTEN = r"(?:(?:also|mostly|mainly|always|usually|only|really|still|just|mainly|do) )*"

_FORMS = [
    (re.compile(pattern, re.IGNORECASE), read)
    for pattern, read in (
        ((r"(?:you can |everybody |everyone |people |friends )?calls? me "
         r"((?-i:[A-Z])[\w.'’-]*(?: (?-i:[A-Z])[\w.'’-]*)?)(?:, [a-z].*)?"),
         _one("called", "how the user wants to be called")),
        (rf"i(?:['’]m| am)? {_OFTEN}(?:live|living|based) in (.+)", _place("city", "where the user lives")),
        (r"(?:i|we)(?:['’]ve| have)? (?:just |recently )?moved (?:back )?(?:house )?(?:from .+ )?to (.+)",
         _place("city", "where the user lives")),
        (r"i(?:['’]m| am| come| grew up| was born)(?: originally)? (?:from|in) (.+)",
         _place("origin", "where the user comes from")),
        (rf"i {_OFTEN}work as (?:an? |the )?(.+)", _job),
        (rf"i(?:['’]m| am) an? ((?:[\w-]+ ){{0,3}}{_TRADE}(?: (?:at|for) .+)?)", _job),
        (rf"i {_OFTEN}work (?:at|for) ((?:[aA]n? .*)?(?-i:[A-Z]).*)", _one("employer", "where the user is employed")),
        (rf"i {_OFTEN}work from (home|.*(?-i:[A-Z]).*)", _one("workplace", "where the user sits at work")),
        (r"i(?:['’]m| am) (?:an? )?(vegetarian|vegan|pescatarian)", _one("diet", "what the user eats")),
        (r"i(?:['’]m| am)(?: very| badly| severely| also)? allergic to (.+)",
         _several("allergies", "allergy", "what the user is allergic to")),
        (r"i(?:['’]m| am) (\d{1,3} years old)", _one("age", "how old the user is")),
        (rf"i {_OFTEN}prefer (.+)", _prefer),
        (rf"i {_OFTEN}(?:like|love|enjoy) (.+)", _several("likes", "likes", "what the user likes")),
        (rf"i {_OFTEN}(?:hate|dislike) (.+)", _several("dislikes", "dislikes", "what the user dislikes")),
        (rf"(?:i|we) {_OFTEN}(?:use|work with) (.+)", _use),
        (r"i(?:['’]ve| have)? (?:just |recently )?switched to (.+ for .+)", _use),
        (rf"i {_OFTEN}(?:write|program|code)(?: everything| mostly| mainly| all my code| my code)? in ((?-i:[A-Z]).*)",
         _several("programming-languages", "programming-language", "what the user programs in")),
        (rf"i {_OFTEN}speak ((?-i:[A-Z]).*)", _several("spoken-languages", "spoken-language", "what the user speaks")),
        (r"i have (?:an?|one) ((?:[\w-]+ ){0,2}[\w-]+?),? (?:who is |that is )?(?:called|named) (.+)", _relative),
        (r"i(?:['’]m| am) working on (?:an? |the |our )?(?:[\w-]+ ){0,3}?(?:called |named )((?-i:[A-Z]).*)",
         _one("project-name", "the project's name", "project")),
        (r"the (?:project|product|app|service|library) is (?:called|named) (.+)",
         _one("project-name", "the project's name", "project")),
        (r"(?:the|our) (?:new )?deadline (?:is|(?:has )?moved to|was moved to) (.+)",
         _one("project-deadline", "when the project must be done", "project")),
        (r"we (?:release|deploy|ship)(?: always| only)? ((?:on|every|each) .+)",
         _one("project-release-day", "when the project is released", "project")),
        ((r"(my|our) ((?:[\w'’/+-]+ ){0,4}?[\w'’/+-]+?) "
         r"(is|are|is called|is named|are called|are named) ((?!called |named ).+)"),
         _general),
    )
]  # fmt: skip
