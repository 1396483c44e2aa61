"""Sample facts for the checks of providers, and how the checks call a provider."""

from __future__ import annotations

from collections.abc import Iterable

from graphagent.memory import Concept, Fact, FactProvider, FactType, FactVersion, Scope, SingleFact, Subject
from graphagent.testing._promise import answer, promise

USER = Subject("user", "the user", priority=1)
CITY = Concept("city", "Where the user LIVES")
TOOLS = Concept("tools", "tools the user works with", FactType.MULTIPLE)
ODD = "two\nlines, \"quotes\", 'tab\t', \u2028, \x00, e\u0301 and \u00e9, \U0001f600"
VALUES = (ODD, "", " \t padded \r\n", "null", "007", "x" * 100_000)
PARAMETERS: dict[str, dict[str, object]] = {
    "save": {"fact": SingleFact(CITY, "Oslo"), "subject": USER},
    "load": {"concept": CITY, "subject": USER},
    "load_all": {"subject": USER},
    "load_by_description": {"description": "lives", "subject": USER},
    "history": {"concept": CITY, "subject": USER},
}


def values_of(facts: Iterable[FactVersion]) -> list[tuple[str, ...]]:
    """Return the values of each fact."""
    return [tuple(fact.values) for fact in facts]


def added_up(facts: Iterable[Fact]) -> tuple[str, ...]:
    """Return the values of all facts, each once."""
    return tuple(dict.fromkeys(value for fact in facts for value in fact.values))


async def called(provider: FactProvider, name: str, scope: Scope, **owner: str) -> None:
    """Call a method of FactProvider by position and by keyword."""
    parameters = {**PARAMETERS[name], "scope": scope}
    text = f"{name}({', '.join([*parameters, *owner])}) is an async method, with parameters by position or by keyword"
    if owner:
        text += " and owner= by keyword"
    method = getattr(provider, name, None)
    answers: list[list[Fact]] = []
    for given, named in ((tuple(parameters.values()), owner), ((), {**parameters, **owner})):
        found = await answer(method, text, *given, **named)
        if name == "save":
            found = await provider.load(CITY, USER, scope, **owner)
        promise(isinstance(found, list), f"{'load' if name == 'save' else name} returns a list of facts")
        answers.append(found)
    promise(bool(answers[0]) == bool(answers[1]), f"{text}, in this order")
