from __future__ import annotations

import copy
import pickle

import pytest

from graphagent.memory import (
    EVERYTHING,
    TRUST_LEVELS,
    Concept,
    FactType,
    MultipleFacts,
    Scope,
    ScopeKind,
    SingleFact,
    Source,
    Subject,
)
from graphagent.memory.facts._types import least_trust, stamped
from graphagent.testing import fixed_clock, fixed_ids

CITY = Concept("city", "where the user lives")
TOOLS = Concept("tools", "tools the user works with", FactType.MULTIPLE)


def test_a_fact_has_its_value_and_values():
    """A single fact has one value, which is also the only one of its values."""
    fact = SingleFact(CITY, "Oslo")
    assert (fact.value, fact.values, str(fact)) == ("Oslo", ("Oslo",), "Oslo")
    assert (fact.timestamp, fact.id, fact.version, fact.source) == (None, "", 0, Source())


def test_several_values_have_no_single_one():
    """Asking a fact of several values for its value is an error that does not show them."""
    fact = MultipleFacts(TOOLS, iter(["git", "vim"]))
    assert fact.values == ("git", "vim")
    assert str(fact) == "git, vim"
    with pytest.raises(ValueError, match=r"2 values; take \.values") as raised:
        _ = fact.value
    assert "git" not in str(raised.value)
    assert MultipleFacts(TOOLS, ["git"]).value == "git"


def test_repr_never_shows_a_value():
    """What ends up in logs and tracebacks names the concept only."""
    for fact in (SingleFact(CITY, "secret-1"), MultipleFacts(TOOLS, ["secret-1"])):
        assert "secret-1" not in repr(fact)
        assert fact.concept.keyword in repr(fact)


@pytest.mark.parametrize("make", [lambda: SingleFact(TOOLS, "git"), lambda: MultipleFacts(CITY, ["Oslo"])])
def test_a_fact_must_be_of_its_concepts_kind(make):
    """A fact whose kind is not its concept's is refused, and the error says what to make."""
    with pytest.raises(ValueError, match=r"make a (SingleFact|MultipleFacts) of it"):
        make()


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: SingleFact(CITY, "a\ud800b"), ValueError),
        (lambda: SingleFact(CITY, "é" * (2**19 + 1)), ValueError),
        (lambda: SingleFact(CITY, 5), TypeError),
        (lambda: SingleFact("city", "Oslo"), TypeError),
        (lambda: SingleFact(CITY, "Oslo", timestamp=1.5), TypeError),
        (lambda: SingleFact(CITY, "Oslo", timestamp=2**63), ValueError),
        (lambda: SingleFact(CITY, "Oslo", version=-1), ValueError),
        (lambda: SingleFact(CITY, "Oslo", source="me"), TypeError),
        (lambda: MultipleFacts(TOOLS, []), ValueError),
        (lambda: MultipleFacts(TOOLS, "git"), TypeError),
        (lambda: MultipleFacts(TOOLS, ["git", None]), TypeError),
        (lambda: MultipleFacts(TOOLS, ["x" * (2**20 + 1)]), ValueError),
        (lambda: Concept(""), ValueError),
        (lambda: Concept("k" * 1001), ValueError),
        (lambda: Concept("\ud800"), ValueError),
        (lambda: Concept(7), TypeError),
        (lambda: Concept("k", fact_type="single"), TypeError),
        (lambda: Subject(""), ValueError),
        (lambda: Subject("s", priority=-1), ValueError),
        (lambda: Subject("s", priority=2**31), ValueError),
        (lambda: Subject("s", priority=True), TypeError),
        (lambda: Scope.agent(""), ValueError),
        (lambda: Scope("agent", "x"), TypeError),
        (lambda: Source(trust="complete"), ValueError),
        (lambda: Source(step=-1), ValueError),
    ],
)
def test_what_is_no_fact_is_refused(make, kind):
    """Wrong types are TypeErrors, wrong contents ValueErrors; neither shows a value."""
    with pytest.raises(kind) as raised:
        make()
    assert "a\ud800b" not in str(raised.value)


def test_the_largest_value_is_kept():
    """A value may have exactly 1 MiB as UTF-8."""
    assert len(SingleFact(CITY, "é" * 2**19).value) == 2**19


def test_names_are_equal_in_every_unicode_form():
    """Two ways to write one name are one name, and the keyword or name alone makes concepts and subjects equal."""
    assert Concept("Zu\u0308rich").keyword == Concept("Z\u00fcrich").keyword == "Z\u00fcrich"
    assert Subject("e\u0301") == Subject("\u00e9", "another description", priority=5)
    assert Scope.agent("e\u0301") == Scope.agent("\u00e9")
    assert len({Concept("city"), Concept("city", "x", FactType.MULTIPLE), Concept("town")}) == 2


def test_scope_kinds_are_ordered_from_narrow_to_wide():
    """An agent is narrower than a feature, that than a product, and nothing is wider than all products."""
    mixed = [ScopeKind.PRODUCT, ScopeKind.AGENT, ScopeKind.CROSS_PRODUCT, ScopeKind.FEATURE]
    assert sorted(mixed) == [ScopeKind.AGENT, ScopeKind.FEATURE, ScopeKind.PRODUCT, ScopeKind.CROSS_PRODUCT]
    assert ScopeKind.AGENT < ScopeKind.FEATURE <= ScopeKind.FEATURE < ScopeKind.CROSS_PRODUCT
    made = [Scope.agent("x"), Scope.feature("x"), Scope.product("x"), Scope.cross_product("x")]
    assert [scope.kind for scope in made] == list(ScopeKind)
    with pytest.raises(TypeError):
        _ = ScopeKind.AGENT < 3


def test_everything_comes_last():
    """No subject can have a lower priority than EVERYTHING."""
    assert EVERYTHING.priority == 2**31 - 1
    assert Subject("user").priority < EVERYTHING.priority


def test_trust_is_that_of_the_worst_part():
    """The least of several trust levels counts; what claims nothing stands between inferred and trusted."""
    assert TRUST_LEVELS == ("untrusted", "inferred", "", "trusted")
    assert least_trust(["trusted", "untrusted", "inferred"]) == "untrusted"
    assert least_trust(["", "trusted"]) == ""


def test_facts_are_immutable_values():
    """Facts compare by what they say, can be keys, cannot be changed, and survive copying and pickling."""
    for fact in (SingleFact(CITY, "Oslo", 3, id="i", version=2), MultipleFacts(TOOLS, ["git"], 3)):
        assert pickle.loads(pickle.dumps(fact)) == copy.deepcopy(fact) == fact
        assert {fact: 1}[copy.copy(fact)] == 1
        with pytest.raises(AttributeError):
            fact.timestamp = 4
    assert SingleFact(CITY, "Oslo") != SingleFact(CITY, "Bergen")


def test_saving_stamps_what_is_missing():
    """A kept fact has a fresh id and its version; its time is only set where it has none."""
    with fixed_clock(1000), fixed_ids("f"):
        stamped_now = stamped(SingleFact(CITY, "Oslo", id="old", version=9), 3)
        assert (stamped_now.id, stamped_now.version, stamped_now.timestamp) == ("f-000001", 3, 1000)
        assert stamped(MultipleFacts(TOOLS, ["git"], timestamp=5), 1).timestamp == 5
