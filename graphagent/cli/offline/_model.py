"""The model of those who have none: it needs no network, is no language model, and says so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from anyio.lowlevel import checkpoint

from graphagent.cli.offline._statements import Statement, is_secret, sentences, statements, words_of
from graphagent.errors import ModelRequestError
from graphagent.llm import Message, ModelRequest, ModelResponse

ABOUT = (
    "I am the offline model, not a language model: I recognise plain statements such as 'I live in Oslo', and answer "
    "questions about them. What I was not told, I do not know."
)

_SHOWN = re.compile(r"What is known from memory .*?\n<facts>\n(.*)\n</facts>", re.DOTALL)
_STOP = words_of(
    "a about again all also am an and any are as at be been before but by can could current currently did do does "
    "exactly everything for from get give had has have how i in is it know known list many me mine much my myself "
    "now of on or our please recall remember remind said say should show so some still summarise summarize tell "
    "that the their then there these they thing things this to today told up us user user's was we were what "
    "what's when where which who who's whom will with would you your project's one"
)
_VAGUE = words_of("use want need good best day time make write name start favourite")
_SYNONYMS = {
    "city": "live home town where based place move",
    "origin": "born come grow home country",
    "name": "who",
    "called": "nickname",
    "job": "work profession occupation role",
    "employer": "work company job",
    "workplace": "work sit office",
    "diet": "eat food vegetarian vegan",
    "age": "old",
    "allergies": "allergic allergy eat food",
    "allergy": "allergic allergies eat food",
    "tools": "tool use software setup stack editor",
    "tool": "use software setup editor",
    "likes": "like love enjoy",
    "dislikes": "dislike hate",
    "preference": "prefer like preferred want preferences",
    "programming": "language code write program use",
    "spoken": "speak",
    "project": "work",
    "deadline": "due finish date when",
    "release": "deploy ship",
    "birthday": "born birth",
    "manager": "boss report",
}
_TOLD = {
    "name": "your name is {}",
    "called": "you want to be called {}",
    "city": "you live in {}",
    "origin": "you come from {}",
    "job": "you work as {}",
    "employer": "you work at {}",
    "workplace": "you work from {}",
    "diet": "what you eat: {}",
    "age": "you are {}",
    "tools": "you use {}",
    "allergies": "you are allergic to {}",
    "likes": "you like {}",
    "dislikes": "you dislike {}",
    "programming-languages": "you program in {}",
    "spoken-languages": "you speak {}",
    "project-release-day": "the project is released {}",
    "project-tools": "the project uses {}",
}
_TOLD_BY_START = {
    "tool-for-": "for {1} you use {0}",
    "project-tool-for-": "for {1} the project uses {0}",
    "tool-": "you use {0}",
    "project-tool-": "the project uses {0}",
    "allergy-": "you are allergic to {0}",
    "likes-": "you like {0}",
    "dislikes-": "you dislike {0}",
    "preference-": "for {1} you prefer {0}",
    "programming-language-": "you program in {0}",
    "spoken-language-": "you speak {0}",
    "project-name": "the project is called {0}",
    "project-": "the project's {1} is {0}",
}
_PHRASES = (
    (r"(?:hi|hello|hey|good (?:morning|afternoon|evening))\b.*", "Hello."),
    (r"(?:many )?(?:thanks|thank you|cheers)\b.*", "You are welcome."),
    (
        r"(?:bye|goodbye|good night|see you|that(?:['’]s| is) (?:all|it) for)\b.*",
        "Goodbye. What I keep, I will know next time.",
    ),
    (r"how are you.*", "I am a few hundred lines of rules, and they are well."),
    (r"(?:who|what) are you\b.*|are you (?:a |an )?(?:real|ai|human|language|bot|robot).*", ABOUT),
    (
        r"(?:ok(?:ay)?|fair enough|i see|great|nice|sure|yes|no|right|all right|good|perfect|never mind)(?:[,. ].{0,20})?",
        "All right.",
    ),
    (r"(?:help|what can you do)\b.*", ABOUT),
)
_TASK = re.compile(
    r"(?!(?:show|give) (?:me|us) (?:my|our|the|all|everything|what)\b)"
    r"(?:(?:can|could|would|will) you |please )*(?:write|explain|translate|draft|make|create|suggest|recommend"
    r"|fix|review|show|give|calculate|plan|search|find|sing|generate|refactor|debug|open|run|send|book"
    r"|tell me an?|tell us)\b",
    re.IGNORECASE,
)


@dataclass(slots=True)
class _Known:
    """A concept with all its values, as far as the request says."""

    keyword: str
    description: str
    values: list[str]

    @property
    def told(self) -> str:
        """What is known, in a clause that begins small."""
        value = _listed(self.values)
        if self.keyword in _TOLD:
            article = "" if self.keyword != "job" or value[0].isupper() else "an " if value[0] in "aeiou" else "a "
            return _TOLD[self.keyword].format(article + value)
        words = self.keyword.replace("-", " ")
        for start, form in _TOLD_BY_START.items():
            if self.keyword.startswith(start):
                rest = words[len(start) :]
                if start == "preference-" and rest in value.casefold():
                    return f"you prefer {value}"
                if rest.endswith(" name"):
                    return f"the project's {rest.removesuffix(' name')} is called {value}"
                return form.format(value, rest)
        if words.endswith(" name"):
            return f"your {words.removesuffix(' name')} is called {value}"
        return f"your {words} is {value}" if self.description.startswith("the user's ") else f"{words}: {value}"

    def words(self) -> set[str]:
        """Everything that a question may call it."""
        parts = self.keyword.split("-")
        said = [*parts, *self.description.split(), *(word for value in self.values for word in value.split())]
        said += [word for part in parts for word in _SYNONYMS.get(part, "").split()]
        return {_stem(word) for word in said}


class OfflineModel:
    """A deterministic stand-in for a language model, for trying out and for tests.

    It answers from the facts that it is shown and from what was said, and finds facts in plain statements in the first
    person. It calls no tools, reports no tokens, and never states what it was not told.
    """

    @property
    def name(self) -> str:
        """`offline`."""
        return "offline"

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Answer, in pieces of a word where `on_text` is given.

        Raises:
            ModelRequestError: JSON is asked for that is not about facts.
        """
        await checkpoint()
        text = _answer(request.messages) if request.output is None else _extracted(request)
        if on_text is not None:
            for piece in re.findall(r"\s*\S+|\s+$", text):
                on_text(piece)
                await checkpoint()
        return ModelResponse(Message.assistant(text), model=self.name)


def _extracted(request: ModelRequest) -> str:
    """Give the JSON of an extraction: facts of any concept, or the values of one."""
    rules = "".join(message.text for message in request.messages if message.role == "system")
    said = [
        line for message in request.messages if message.role == "user" for line in _framed("conversation", message.text)
    ]
    heard = [line["text"] for line in said if line.get("speaker") == "user"]
    wanted = re.search(r"what is known about '(.+?)'( \(|\?)", rules)
    properties: Mapping[str, Any] = request.output.schema.get("properties", {}) if request.output else {}
    if "facts" in properties:
        known = {line["keyword"] for line in _framed("concepts", rules)}
        names = [line["name"] for line in _framed("subjects", rules)]
        return json.dumps({"facts": list(_found(heard, known, names))}, ensure_ascii=False)
    if "values" in properties and wanted:
        stated = [each for text in heard for each in statements(text)]
        about = {_stem(word) for word in wanted[1].split("-")}
        fitting = [each for each in stated if about <= _Known(each.keyword, each.description, []).words()]
        return json.dumps({"values": [each.value for each in fitting]}, ensure_ascii=False)
    raise ModelRequestError(
        "the offline model gives structured answers about facts only; give the agent a language model for others"
    )


def _found(heard: Iterable[str], known: set[str], names: Sequence[str]) -> Iterator[dict[str, str]]:
    people = [name for name in names if name.casefold() != "everything"]
    last: dict[tuple[str, str, str], Statement] = {}
    for text in heard:
        for each in statements(text, known):
            last[each.about, each.keyword, each.value if each.adds else ""] = each
    for each in last.values():
        subject = each.about if each.about in names else people[0] if people else "everything"
        yield {"subject": subject, "keyword": each.keyword, "description": each.description, "value": each.value}


def _framed(name: str, text: str) -> list[dict[str, Any]]:
    """Give the lines of a frame of data. Inside it the closing mark cannot stand, so the first one ends it."""
    block = re.search(rf"<{name}>\n(.*?)\n?</{name}>", text, re.DOTALL)
    return [json.loads(line) for line in block[1].splitlines()] if block and block[1] else []


def _answer(messages: Sequence[Message]) -> str:
    """Give the answer to the last message of the user, from all that stands before it."""
    known: dict[str, _Known] = {}
    task = ""
    for message in messages:
        if message.role != "user":
            continue
        shown = _shown(message.text)
        for each in shown:
            known[each.keyword] = each
        if not shown:
            task = message.text
            if message is not messages[-1]:
                _learn(known, task)
    said = " ".join(_replies(known, task))
    first = not any(message.role == "assistant" for message in messages)
    return f"{said}\n{ABOUT}" if first and ABOUT not in said else said


def _shown(text: str) -> list[_Known]:
    """Give the facts of a message, if it is nothing but the block in which facts are shown to a model."""
    block = _SHOWN.fullmatch(text)
    try:
        lines: list[dict[str, Any]] = [json.loads(line) for line in block[1].splitlines()] if block else []
        return [
            _Known(
                line["concept"],
                line.get("description", ""),
                cast("list[str]", value) if isinstance(value, list) else [value],
            )
            for line in lines
            for value in (line["value"],)
        ]
    except (ValueError, TypeError, KeyError):
        return []  # somebody wrote something that only looks like it


def _learn(known: dict[str, _Known], text: str) -> list[tuple[Statement, list[str]]]:
    """Take up what a text states; give each statement with the values that it takes the place of."""
    learned: list[tuple[Statement, list[str]]] = []
    for each in statements(text, known.keys()):
        before = known.get(each.keyword)
        if before is not None and each.adds:
            if each.value not in before.values:
                before.values.append(each.value)
            learned.append((each, []))
        else:
            known[each.keyword] = _Known(each.keyword, each.description, [each.value])
            learned.append((each, before.values if before and before.values != [each.value] else []))
    return learned


def _replies(known: dict[str, _Known], task: str) -> list[str]:
    """Give what there is to say to each part of a message: what was noted first, then answers, then manners."""
    said: list[str] = []
    noted: dict[str, list[str]] = {}
    learned = _learn(known, task)
    for each, replaced in learned:
        noted[each.keyword] = replaced
    clauses = [
        known[keyword].told + (f" (until now: {_listed(replaced)})" if replaced else "")
        for keyword, replaced in noted.items()
    ]
    if clauses:
        said.append(f"Noted: {'; '.join(clauses)}.")
    for sentence, question in sentences(task):
        bare = sentence.strip()
        phrase = next((reply for form, reply in _PHRASES if re.fullmatch(form, bare, re.IGNORECASE)), None)
        if _TASK.match(bare):
            said.append("That takes a language model, which I am not; start with --model to have one.")
        elif phrase and (not clauses or phrase is ABOUT):
            said.append(phrase)
        elif is_secret(sentence) and not question:
            said.append("That looks like a secret, so I keep it out of the memory.")
        elif question:
            asked = re.split(r",?\s+and\s+(?=(?:what|where|when|who|which|how|do|is)\b)", sentence, flags=re.IGNORECASE)
            said += [_found_out(known, each) for each in asked]
    if not said:
        said.append("There is nothing in that for me to keep.")
    return list(dict.fromkeys(said))


def _found_out(known: Mapping[str, _Known], question: str) -> str:
    """Answer a question from what is known: by what it asks for as a whole, else by what touches on it."""
    words = [word for word in re.findall(r"[\w'’+#.-]*\w[+#]*", question.casefold()) if word not in _STOP]
    wanted = {_stem("name")} if re.search(r"\bwho am i\b", question, re.IGNORECASE) else {_stem(word) for word in words}
    if not wanted:
        if re.search(r"\b(?:me|know|remember|told|said)\b", question, re.IGNORECASE) and known:
            return "\n".join(["What I know:", *(f"- {each.told}" for each in known.values())])
        return "I do not know that."
    if re.search(r"\bi\b|\bmy\b", question, re.IGNORECASE) and not re.search(
        r"\b(?:we|our|project)\b", question, re.IGNORECASE
    ):
        mine = {keyword: each for keyword, each in known.items() if not keyword.startswith("project-")}
        known = mine if _fitting(mine, wanted) else known
    if fitting := _fitting(known, wanted) or _fitting(known, wanted - {_stem("name")}):
        told = "; ".join(each.told for each in fitting)
        return f"{told[0].upper()}{told[1:]}."
    telling = wanted - {_stem(word) for word in _VAGUE}
    scored = [(len(telling & each.words()), each) for each in known.values()]
    near = sorted((pair for pair in scored if pair[0]), key=lambda pair: -pair[0])
    if near:
        told = "; ".join(each.told for score, each in near[:3] if score == near[0][0])
        return f"I was not told that. What I know that touches on it: {told}."
    return "I do not know that; I was not told."


def _fitting(known: Mapping[str, _Known], wanted: set[str]) -> list[_Known]:
    """Give what fits all of some words: best where they are its very keyword, else a part of it, else said of it."""
    whole = [
        (each, {_stem(word) for word in each.keyword.split("-")}) for each in known.values() if wanted <= each.words()
    ]
    same = [each for each, parts in whole if parts == wanted]
    holding = [each for each, parts in whole if parts >= wanted]
    return (same or holding or [each for each, _ in whole]) if wanted else []


def _stem(word: str) -> str:
    word = word.casefold().strip(".,;:!?\"'’()").removesuffix("'s").removesuffix("’s").replace("favorite", "favourite")
    if word in ("call", "called", "calls", "named"):
        word = "name"
    for ending, instead in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", "e"), ("s", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return (word.removesuffix(ending) + instead).rstrip("e")
    return word.rstrip("e") if len(word) > 3 else word


def _listed(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} and {values[-1]}"
