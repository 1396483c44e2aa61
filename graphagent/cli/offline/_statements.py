"""Plain statements in the first person, recognised by their form, and learned without a language model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LONGEST = 400
_QUESTION = re.compile(
    r"(?:what|who|whose|where|when|which|why|how|do|does|did|is|are|am|was|were|can|could|would|should|will|have|has"
    r"|list|(?:show|give|tell|remind) me)\b",
    re.IGNORECASE,
)
_UNCERTAIN = re.compile(
    r"\b(?:not|never|no longer|nor|without|used to|if|unless|maybe|perhaps|might|would|could|wish|until)\b|n['’]t\b|\bi['’]d\b",
    re.IGNORECASE,
)
_LEAD_IN = re.compile(
    r"(?:(?:hi|hello|hey|good (?:morning|evening))(?: there)?|well|so|and|but|also|yes|no|thanks|sorry|actually|by the way"
    r"|one more thing|i was wrong[^:;,.]*)\b[,:;!]?\s+",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"(?:,?\s+(?:(?:so|but|because|since|when|while|which|who)\b.*|with (?:my|our) .*|by the way|now|too|as well|again"
    r"|(?:last|this) (?:week|month|year)))+$",
    re.IGNORECASE,
)
SECRET = re.compile(r"\b(?:password|passphrase|pin|secret|token|key)\b.* (?:is|are) ", re.IGNORECASE | re.DOTALL)
"""Is in a sentence that states a password or the like, which is never stored."""
_NAMED = r"(?P<value>(?-i:[A-Z\d]).*)"
_NATIONS = (
    "American|Australian|Austrian|Belgian|Brazilian|British|Canadian|Chinese|Czech|Danish|Dutch|Egyptian|English|European|Finnish"
    "|French|German|Greek|Hungarian|Indian|Iranian|Irish|Israeli|Italian|Japanese|Jewish|Korean|Mexican|Muslim|Catholic|Norwegian"
    "|Polish|Portuguese|Romanian|Russian|Scottish|Spanish|Swedish|Swiss|Thai|Turkish|Ukrainian|Vietnamese|Welsh|Sorry"
)
"""Words with a capital letter that follow 'I am' and are not a name."""
_CALLED = rf"(?P<value>(?!(?:{_NATIONS})\b)(?-i:[A-ZÀ-ÞČŁŚŠŽ][a-zß-žʼ'’-]+(?: [A-ZÀ-ÞČŁŚŠŽ][\w.'’-]*)*))"
_TOPIC = r"(?:my |our |the |all )?(?P<topic>.+)"


@dataclass(frozen=True, slots=True)
class Statement:
    """The statements of a person about one concept."""

    keyword: str
    description: str
    values: tuple[str, ...]

    @property
    def about(self) -> str:
        """`user` or `project`, the subjects of `graphagent chat`."""
        return "project" if self.keyword.startswith("project-") else "user"


@dataclass(frozen=True, slots=True)
class Form:
    """A form of statements, and how a fact of that form is told."""

    pattern: str
    """Has a group `value`, and a group `topic` if the keyword contains one."""
    keyword: str
    description: str
    """Also contains the words that questions use."""
    told: str
    """A clause with a place for the value, and one for the topic if there is one."""
    is_list: bool = False
    """Whether the value is a list, such as 'nuts, kiwi and milk'."""

    def tells(self, keyword: str, value: str) -> str | None:
        """Return a fact as a clause; None if its keyword is not of this form."""
        start, _, topic = self.keyword.partition("{")
        fits = keyword.startswith(start) if topic else keyword == start
        return self.told.format(value, keyword.removeprefix(start).replace("-", " ")) if fits else None


FORMS = (
    Form(rf"(?:i(?:['’]m| am)|this is) {_CALLED}(?:,? from .*|, .*)?", "name", "the user's name", "your name is {}"),
    Form(r"call me (?P<value>(?-i:[A-Z])[\w.'’-]*)(?:, .*)?", "called", "how the user wants to be called", "you want to be called {}"),
    Form(rf"i (?:live in|(?:have )?moved to) {_NAMED}", "city", "where the user lives", "you live in {}"),
    Form(r"i work as (?P<value>an? .+?)(?: (?:at|for) (?-i:[A-Z]).*)?", "job", "what the user works as", "you work as {}"),
    Form(rf"i work (?:as .+ )?(?:at|for) {_NAMED}", "employer", "the company where the user works", "you work at {}"),
    Form(rf"i prefer (?P<value>.+) for {_TOPIC}", "preference-for-{topic}", "what the user prefers", "for {1} you prefer {0}"),
    Form(r"i prefer (?!.+ for )(?P<value>.*?(?P<topic>[\w-]+))", "preference-{topic}", "what the user prefers", "you prefer {}"),
    Form(rf"i (?:also )?use (?P<value>.+) for {_TOPIC}", "tool-for-{topic}", "what the user uses", "for {1} you use {0}"),
    Form(r"i (?:also )?use (?!.+ for )(?P<value>.+)", "tools", "setup of the user: editor and other tools", "you use {}", is_list=True),
    Form(rf"we use (?P<value>.+) for {_TOPIC}", "project-tool-for-{topic}", "what the project uses", "for {1} the project uses {0}"),
    Form(rf"i (?:write|program)(?: \w+)? in {_NAMED}", "programming-languages", "what the user programs in", "you program in {}", is_list=True),
    Form(rf"i speak {_NAMED}", "spoken-languages", "what the user speaks", "you speak {}", is_list=True),
    Form(r"i(?:['’]m| am) allergic to (?P<value>.+)", "allergies", "what the user is allergic to", "you are allergic to {}", is_list=True),
    Form(rf"i(?:['’]m| am) working on .* called {_NAMED}", "project-name", "the project's name", "the project is called {}"),
    Form(r"(?:the|our) deadline (?:is|moved to) (?P<value>.+)", "project-deadline", "the project's deadline", "the project's deadline is {}"),
    Form(r"we deploy (?P<value>(?:on|every) .+)", "project-deployment", "when the project is deployed", "the project is deployed {}"),
)  # fmt: skip
"""The forms that have a keyword of their own. `_named` reads forms that name their topic."""
_FORMS = [(re.compile(form.pattern, re.IGNORECASE), form) for form in FORMS]
_THING = re.compile(
    r"(?:(?P<whose>my|our) (?P<thing>(?:[\w'’-]+ ){0,3}?[\w'’-]+) (?:is|are)(?P<called> called)?|i have an? (?P<other>\w+) called)"
    r" (?P<value>.+)",
    re.IGNORECASE,
)


def sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the sentences of a text without their closing mark, each with whether it is a question."""
    for part in re.findall(r"\S.*?(?:[.!?]+(?=[\s\"')]|$)|$)", text, re.DOTALL):
        sentence = " ".join(part.split())
        if plain := sentence.rstrip(".!?"):
            yield plain, sentence.endswith("?") or bool(_QUESTION.match(_without_lead_in(plain)))


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a text in the first person. Questions, negations, conditions and secrets state nothing."""
    for sentence, is_question in sentences(text):
        if is_question or SECRET.search(sentence):
            continue
        for part in re.split(r"[,;]?\s+(?:and|but|so)\s+(?=(?:i|i['’]m|my|our|we)\s)", sentence, flags=re.IGNORECASE):
            clause = _AFTER.sub("", _without_lead_in(part).rstrip(".,;"))
            if len(clause) <= _LONGEST and not _UNCERTAIN.search(clause):
                yield from (each for each in _read(clause) if all(each.values))


def _read(clause: str) -> Iterator[Statement]:
    found = [(form, match) for pattern, form in _FORMS if (match := pattern.fullmatch(clause))]
    for form, match in found:
        value = match["value"].strip("\"'“”‘’")
        values = re.split(r",\s*(?:and\s+)?|\s+and\s+", value) if form.is_list else [value]
        topic = _slug(match["topic"]) if "{" in form.keyword else ""
        yield Statement(form.keyword.format(topic=topic), form.description, tuple(values))
    if not found and (match := _THING.fullmatch(clause)):
        words = (match["thing"] or match["other"]).casefold()
        is_named, value = match["called"] or match["other"], match["value"].strip("\"'“”‘’")
        # 'My laptop is broken' passes; a name, a number or a day lasts, and so does whatever is a favourite.
        if is_named or words.startswith("favourite ") or re.match(r"(?:(?:an?|the|on|at|in) .*)?[\"'“‘<\dA-Z]", value):
            whose, start = ("project's", "project-") if (match["whose"] or "").casefold() == "our" else ("user's", "")
            name = f"{words} name" if is_named else words
            yield Statement(f"{start}{_slug(name)}", f"the {whose} {name}", (value,))


def _without_lead_in(clause: str) -> str:
    clause = clause.strip()
    while match := _LEAD_IN.match(clause):
        clause = clause[match.end() :]
    return clause


def _slug(text: str) -> str:
    return "-".join(re.findall(r"\w+", text.casefold()))[:60]
