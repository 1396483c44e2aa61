"""A stand-in for a language model that needs no network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anyio.lowlevel import checkpoint

from graphagent.cli.offline._statements import FORMS, SECRET, Statement, sentences, statements
from graphagent.errors import ModelRequestError
from graphagent.llm import Message, ModelRequest, ModelResponse

ABOUT = (
    "I am the offline model, not a language model: I recognise plain statements such as 'I live in Oslo', and answer "
    "questions about them. What I was not told, I do not know."
)
STAND_IN = (
    "The offline model is a stand-in, not a language model: it recognises plain statements such as 'I live in Oslo', and answers "
    "questions about them. For a language model: --model NAME, with OPENAI_API_KEY set or --base-url for Ollama and others."
)
"""A note that commands with the offline model print once."""
_UNKNOWN = "I do not know that; I was not told."
_SHOWN = re.compile(r"What is known from memory .*?\n<facts>\n(.*)\n</facts>", re.DOTALL)
_STOP = re.compile(
    r"a|about|again|all|am|an|and|any|are|as|at|be|can|could|did|do|does|for|from|have|how|i|in|is|it|know|list|me|my|now|of"
    r"|on|or|our|please|remind|should|show|tell|that|the|there|this|to|us|use|used|user|uses|was|we|were|what|when|where"
    r"|which|who|will|with|you|your"
)
"""Words of a question that do not name its topic."""
_PHRASES = (
    (r"(?:hi|hello|hey|good (?:morning|afternoon|evening))\b.*", "Hello."),
    (r"(?:thanks|thank you)\b.*", "You are welcome."),
    (r"how are you.*", "I am a few hundred lines of rules, and they are well."),
    (r"(?:who|what) are you\b.*|help|what can you do", ABOUT),
    (
        r"(?:(?:can|could|would|will) you |please )*(?:write|explain|translate|make|create|suggest|plan|search|run|send)\b.*",
        "That takes a language model, which I am not; start with --model to have one.",
    ),
)


class OfflineModel:
    """A deterministic stand-in for a language model, for trying things out.

    It answers from the facts and the conversation that it is sent, and finds facts in plain statements in the first
    person. It calls no tools, reports no tokens, and never states anything that it was not told.
    """

    @property
    def name(self) -> str:
        """`offline`."""
        return "offline"

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Answer; `on_text` is called with each word.

        Raises:
            ModelRequestError: the request asks for JSON other than the facts of a conversation.
        """
        await checkpoint()
        text = _answer(request.messages) if request.output is None else _extracted(request)
        if on_text is not None:
            for piece in re.findall(r"\s*\S+|\s+$", text):
                on_text(piece)
                await checkpoint()
        return ModelResponse(Message.assistant(text), model=self.name)


def _extracted(request: ModelRequest) -> str:
    """Return the facts of a conversation as JSON, the last of each keyword."""
    if request.output is None or "facts" not in request.output.schema.get("properties", {}):
        raise ModelRequestError(
            "the offline model gives structured answers about facts only; give the agent a language model for others"
        )
    lines = [line for message in request.messages for line in _conversation(message.text)]
    texts = [line["text"] for line in lines if line.get("speaker") == "user"]
    last = {each.keyword: each for text in texts for each in statements(text)}
    facts = [
        {"subject": each.about, "keyword": each.keyword, "description": each.description, "value": value}
        for each in last.values()
        for value in each.values
    ]
    return json.dumps({"facts": facts}, ensure_ascii=False)


def _conversation(text: str) -> list[dict[str, Any]]:
    """Return the JSON lines of the frame of a conversation. It escapes its closing mark, so the first one ends it."""
    block = re.search(r"<conversation>\n(.*?)\n?</conversation>", text, re.DOTALL)
    return [json.loads(line) for line in block[1].splitlines()] if block and block[1] else []


def _answer(messages: Sequence[Message]) -> str:
    """Return the answer to the last message of the user, from the conversation before it."""
    known: dict[str, Statement] = {}
    task = ""
    for message in messages:
        if message.role == "user":
            shown = _shown_facts(message.text)
            known.update({each.keyword: each for each in shown})
            if not shown:
                known.update({each.keyword: each for each in statements(task)})
                task = message.text
    return " ".join(_replies(known, task))


def _shown_facts(text: str) -> list[Statement]:
    """Return the facts of a message, if it is exactly the block in which facts are sent to a model."""
    block = _SHOWN.fullmatch(text)
    try:
        lines: list[dict[str, Any]] = [json.loads(line) for line in block[1].splitlines()] if block else []
        return [
            Statement(
                each["concept"], each.get("description", ""), (value,) if isinstance(value, str) else tuple(value)
            )
            for each in lines
            if (value := each["value"])
        ]
    except (ValueError, TypeError, KeyError):
        return []  # text by a person that only looks like the block


def _replies(known: dict[str, Statement], task: str) -> list[str]:
    """Return an answer to each part of a message, beginning with the facts learned from it."""
    noted: dict[str, str] = {}
    for each in statements(task):
        before = known.get(each.keyword, each)
        known[each.keyword] = each
        noted[each.keyword] = _told(each) + (
            f" (until now: {_listed(before.values)})" if before.values != each.values else ""
        )
    said = [f"Noted: {'; '.join(noted.values())}."] if noted else []
    for sentence, is_question in sentences(task):
        phrase = next((reply for form, reply in _PHRASES if re.fullmatch(form, sentence, re.IGNORECASE)), None)
        if phrase is not None:
            said += [phrase] if not noted else []
        elif is_question:
            parts = re.split(r",?\s+and\s+(?=(?:what|where|when|who|which|how|do|is)\b)", sentence, flags=re.IGNORECASE)
            said += [_found(known, each) for each in parts]
        elif SECRET.search(sentence):
            said.append("That looks like a secret, so I keep it out of the memory.")
    return list(dict.fromkeys(said)) or ["There is nothing in that for me to keep."]


def _found(known: Mapping[str, Statement], question: str) -> str:
    """Answer a question with the facts whose keyword is exactly its words, or else with those that have all its words."""
    question = re.sub(r"\bwho am i\b", "what is my name", question, flags=re.IGNORECASE)
    wanted = {_stem(word) for word in re.findall(r"[\w'’-]+", question.casefold()) if not _STOP.fullmatch(word)}
    if not wanted:
        is_open = known and re.search(r"\b(?:me|know)\b", question, re.IGNORECASE)
        return "\n".join(["What I know:", *(f"- {_told(each)}" for each in known.values())]) if is_open else _UNKNOWN
    for words in (wanted, wanted - {"name"}):  # 'What is my manager called?' may ask for a manager whose name is known
        exact = [each for each in known.values() if words == _stems(each.keyword)]
        fitting = exact or [
            each for each in known.values() if words and words <= _stems(each.keyword, each.description, *each.values)
        ]
        if fitting:
            told = "; ".join(map(_told, fitting))
            return f"{told[0].upper()}{told[1:]}."
    return _UNKNOWN


def _told(fact: Statement) -> str:
    """Return a fact as a clause that begins with a small letter."""
    value = _listed(fact.values)
    if told := next(filter(None, (form.tells(fact.keyword, value) for form in FORMS)), None):
        return told
    thing = fact.keyword.removeprefix("project-").replace("-", " ")
    whose = "the project's" if fact.keyword.startswith("project-") else "your"
    name = thing.removesuffix(" name")
    return f"{whose} {name} is {'called ' if name != thing else ''}{value}"


def _stems(*texts: str) -> set[str]:
    return {_stem(word) for text in texts for word in re.findall(r"[\w'’]+", text.casefold())}


def _stem(word: str) -> str:
    word = word.removesuffix("'s").removesuffix("’s")
    return "name" if word in ("call", "called", "named") else word.removesuffix("s") if len(word) > 3 else word


def _listed(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} and {values[-1]}"
