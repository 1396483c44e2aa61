from __future__ import annotations

import pytest

from graphagent.memory import MultipleFacts, NoMemory, SingleFact, StoreMemoryProvider
from graphagent.store import MemoryStore, Receipt
from graphagent.testing import check_provider


class OneList:
    """A provider of the four methods alone, as simple as can be."""

    def __init__(self):
        self.kept = []

    async def save(self, fact, subject, scope):
        self.kept.append((fact, subject, scope))

    async def load(self, concept, subject, scope):
        return [fact for fact in await self.load_all(subject, scope) if fact.concept.keyword == concept.keyword][-1:]

    async def load_all(self, subject, scope):
        return [fact for fact, about, within in self.kept if (about, within) == (subject, scope)]

    async def load_by_description(self, description, subject, scope):
        found = await self.load_all(subject, scope)
        return [fact for fact in found if description.casefold() in fact.concept.description.casefold()]


async def test_four_methods_are_enough():
    """A provider without history or owners passes."""
    await check_provider(OneList)


class Oldest(OneList):
    async def load(self, concept, subject, scope):
        return [fact for fact in await self.load_all(subject, scope) if fact.concept.keyword == concept.keyword][:1]


class AllVersions(OneList):
    async def load(self, concept, subject, scope):
        return [fact for fact in await self.load_all(subject, scope) if fact.concept.keyword == concept.keyword]


class NoScopes(OneList):
    async def load_all(self, subject, scope):
        return [fact for fact, about, _ in self.kept if about == subject]


class NoKinds(OneList):
    async def load_all(self, subject, scope):
        return [fact for fact, about, within in self.kept if (about, within.name) == (subject, scope.name)]


class NoSubjects(OneList):
    async def load_all(self, subject, scope):
        return [fact for fact, _, within in self.kept if within == scope]


class OneCase(OneList):
    async def load_by_description(self, description, subject, scope):
        return [fact for fact in await self.load_all(subject, scope) if description in fact.concept.description]


class ByValue(OneList):
    async def load_by_description(self, description, subject, scope):
        found = await self.load_all(subject, scope)
        return [fact for fact in found if description.casefold() in (fact.concept.description + str(fact)).casefold()]


class Ascii(OneList):
    async def save(self, fact, subject, scope):
        if isinstance(fact, SingleFact):
            fact = SingleFact(fact.concept, fact.value.encode("ascii", "replace").decode())
        await super().save(fact, subject, scope)


class Unordered(OneList):
    async def save(self, fact, subject, scope):
        if isinstance(fact, MultipleFacts):
            fact = MultipleFacts(fact.concept, reversed(fact.values))
        await super().save(fact, subject, scope)


class OtherNames(OneList):
    async def load(self, what, subject, scope):
        return await super().load(what, subject, scope)


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (Oldest, "the last one saved"),
        (AllVersions, "one fact of a single concept"),
        (NoScopes, "scopes of one name and several kinds"),
        (NoKinds, "scopes of one name and several kinds"),
        (NoSubjects, "subjects are kept apart"),
        (OneCase, "any case"),
        (ByValue, "not at values"),
        (Ascii, "any text"),
        (Unordered, "in order"),
        (NoMemory, "load returns what was saved"),
    ],
)
async def test_a_broken_promise_is_named(broken, promise):
    """Each way to be wrong fails the check with a sentence that says which promise is not kept."""
    with pytest.raises(AssertionError, match=promise):
        await check_provider(broken)


async def test_parameters_are_known_by_their_names():
    """A provider whose parameters have other names fails."""
    with pytest.raises(TypeError, match="concept"):
        await check_provider(OtherNames)


def _broken(**methods):
    store = MemoryStore()
    kind = type("Broken", (StoreMemoryProvider,), methods)
    return lambda: kind(store)


async def _history_upside_down(self, *args, **kwargs):
    return list(reversed(await StoreMemoryProvider.history(self, *args, **kwargs)))


async def _load_without_owner(self, concept, subject, scope, *, owner=""):
    return await StoreMemoryProvider.load(self, concept, subject, scope)


async def _save_without_owner(self, fact, subject, scope, *, owner=""):
    await StoreMemoryProvider.save(self, fact, subject, scope)


async def _forget_nothing(self, **_):
    return Receipt()


async def _forget_too_much(self, *, concept=None, subject=None, scope=None, owner="", everything=False):
    everything = subject is scope is None
    return await StoreMemoryProvider.forget(self, subject=subject, scope=scope, owner=owner, everything=everything)


async def _forget_by_accident(self, *, concept=None, subject=None, scope=None, owner="", everything=False):
    everything = concept is subject is scope is None
    return await StoreMemoryProvider.forget(
        self, concept=concept, subject=subject, scope=scope, owner=owner, everything=everything
    )


async def _forget_in_part(self, *, concept=None, subject=None, scope=None, owner="", everything=False):
    if concept and everything:
        await StoreMemoryProvider.forget(self, concept=concept, owner=owner)
    return await StoreMemoryProvider.forget(
        self, concept=concept, subject=subject, scope=scope, owner=owner, everything=everything
    )


async def _import_nothing(self, records):
    return 0


async def _import_twice(self, records):
    return await StoreMemoryProvider.import_(self, [{**record, "id": f"{record.get('id')}-2"} for record in records])


@pytest.mark.parametrize(
    ("methods", "promise"),
    [
        ({"history": _history_upside_down}, "newest first"),
        ({"load": _load_without_owner, "save": _save_without_owner}, "owners|several multiple facts|version"),
        ({"forget": _forget_nothing}, "forget"),
        ({"forget": _forget_too_much}, "forget"),
        ({"forget": _forget_by_accident}, "forget raises ValueError where neither"),
        ({"forget": _forget_in_part}, "a forget that raises ValueError removes nothing"),
        ({"import_": _import_nothing}, "import_"),
        ({"import_": _import_twice}, "import"),
    ],
)
async def test_a_broken_promise_of_keeping_is_named(methods, promise):
    """What has owners, history and forgetting is held to those promises too."""
    with pytest.raises(AssertionError, match=promise):
        await check_provider(_broken(**methods))
