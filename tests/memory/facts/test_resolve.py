from __future__ import annotations

from functools import cmp_to_key

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphagent.memory import (
    EVERYTHING,
    Concept,
    FactType,
    MultipleFacts,
    Scope,
    ScopeKind,
    SingleFact,
    Source,
    Subject,
    resolve,
)
from graphagent.memory.facts._known import Known
from graphagent.memory.facts._resolve import traced

USER, MACHINE = Subject("user", priority=1), Subject("machine", priority=2)
THEME = Concept("theme")
TOOLS = Concept("tools", fact_type=FactType.MULTIPLE)
SUBJECTS = [USER, MACHINE, Subject("team", priority=2), EVERYTHING]
SCOPES = [Scope(kind, name) for kind in ScopeKind for name in ("a", "b")]

places = st.tuples(st.sampled_from(SUBJECTS), st.sampled_from(SCOPES))
times = st.none() | st.integers(-2, 3)
values = st.sampled_from("abcd")
singles = st.builds(SingleFact, st.sampled_from([THEME, Concept("city")]), values, times)
multiples = st.builds(
    MultipleFacts, st.just(TOOLS), st.lists(values, min_size=1, max_size=3), times, version=st.integers(0, 2)
)


def _compare_singles(left, right):
    (fact, subject, scope, place), (other, other_subject, other_scope, other_place) = left, right
    if subject.priority != other_subject.priority:
        return subject.priority - other_subject.priority
    if scope.kind != other_scope.kind:
        return -1 if scope.kind < other_scope.kind else 1
    if fact.timestamp != other.timestamp:
        if fact.timestamp is None or other.timestamp is None:
            return 1 if fact.timestamp is None else -1
        return other.timestamp - fact.timestamp
    return place - other_place


@given(st.lists(st.tuples(singles, places)))
def test_single_facts_resolve_as_the_plain_rule_says(drawn):
    """Of single facts the first wins: by priority, then narrowness, then newness, then place in the list."""
    found = [(fact, *place) for fact, place in drawn]
    expected = {}
    numbered = sorted(((*each, place) for place, each in enumerate(found)), key=cmp_to_key(_compare_singles))
    for fact, *_ in numbered:
        expected.setdefault(fact.concept.keyword, fact)
    resolved = resolve(found)
    assert {fact.concept.keyword: fact for fact in resolved} == expected
    assert [fact.concept.keyword for fact in resolved] == list(
        dict.fromkeys(fact.concept.keyword for fact, *_ in found)
    )


@given(st.lists(st.tuples(multiples, places), min_size=1))
def test_multiple_facts_unite_as_the_plain_rule_says(drawn):
    """Values come by priority, narrowness, place of subject and scope in the list, then version; each once."""
    found = [(fact, *place) for fact, place in drawn]
    expected = []
    for priority in sorted({subject.priority for subject in SUBJECTS}):
        for kind in ScopeKind:
            here = [each for each in found if each[1].priority == priority and each[2].kind is kind]
            for place in dict.fromkeys((subject.name, scope) for _, subject, scope in here):
                for version in range(3):
                    for fact, subject, scope in here:
                        if (subject.name, scope) == place and fact.version == version:
                            expected += [value for value in fact.values if value not in expected]
                            expected = list(dict.fromkeys(expected))
    [resolved] = resolve(found)
    assert list(resolved.values) == expected


def test_a_fact_that_stands_for_itself_is_given_as_it_is():
    """Nothing is made anew where one fact says all, so its id and version still lead to it."""
    fact = MultipleFacts(TOOLS, ["git", "vim"], 5, id="x", version=3)
    less = MultipleFacts(TOOLS, ["vim"], 9, id="y", version=1)
    assert resolve([(less, MACHINE, SCOPES[0]), (fact, USER, SCOPES[0])]) == [fact]


def test_what_is_made_of_several_is_trusted_as_the_worst_of_them():
    """A union has no id of its own, the newest time, and the least trust of its parts."""
    one = MultipleFacts(TOOLS, ["git"], 5, id="x", version=3, source=Source("r", 1, "o", "trusted"))
    two = MultipleFacts(TOOLS, ["vim"], 9, id="y", version=1, source=Source("s", 2, "p", "untrusted"))
    [both] = resolve([(one, USER, SCOPES[0]), (two, MACHINE, SCOPES[0])])
    assert (both.values, both.id, both.version, both.timestamp) == (("git", "vim"), "", 0, 9)
    assert both.source == Source(trust="untrusted")


def test_the_first_fact_decides_the_kind():
    """Where a concept changed its kind, the fact that comes first in order says which one it is now."""
    single = SingleFact(Concept("tools"), "vim", 1)
    several = MultipleFacts(TOOLS, ["git"], 1)
    assert resolve([(several, MACHINE, SCOPES[0]), (single, USER, SCOPES[0])]) == [single]
    [united] = resolve([(single, MACHINE, SCOPES[0]), (several, USER, SCOPES[0])])
    assert united.values == ("git", "vim")


def test_nothing_resolves_to_nothing():
    """No facts give no facts."""
    assert resolve([]) == []


@given(st.lists(st.builds(SingleFact, st.just(Concept("tools")), values) | multiples, min_size=1))
def test_versions_fold_in_the_order_of_saving(versions):
    """A single fact takes the place of all before it; the values of multiple facts join those that are there."""
    known = Known(versions[0])
    for fact in versions[1:]:
        known.add(fact)
        known.facts()[0]
    expected = []
    for fact in versions:
        if isinstance(fact, SingleFact):
            expected = []
        expected += [value for value in dict.fromkeys(fact.values) if value not in expected]
    assert list(known.facts()[0].values) == expected
    assert type(known.facts()[0]) is type(versions[-1])


def test_known_values_are_trusted_as_the_worst_version_that_counts():
    """A version that no longer counts does not taint what is known."""

    def fact(value, trust):
        return MultipleFacts(TOOLS, [value], 1, id=value, version=1, source=Source("r", trust=trust))

    known = Known(fact("a", "untrusted"))
    known.add(fact("b", "trusted"))
    assert known.facts()[0].source == Source("r", trust="untrusted")
    known.add(SingleFact(Concept("tools"), "c", source=Source(trust="trusted")))
    known.add(fact("d", "trusted"))
    assert (known.facts()[0].values, known.facts()[0].source.trust) == (("c", "d"), "trusted")
    known.add(fact("e", "inferred"))
    known.add(fact("f", "trusted"))
    assert (known.facts()[0].version, known.facts()[0].source.trust) == (1, "inferred")


def test_facts_of_both_kinds_unite_as_the_first_of_them_says():
    """A single value of equal rank joins those of the newest multiple fact, wherever it stands in the list."""
    plain = Concept("tools")
    for several in (("git", "vim"), ("git",)):
        newest = (MultipleFacts(TOOLS, several, 2), SUBJECTS[2], SCOPES[0])
        older = (SingleFact(plain, "git", 1), MACHINE, SCOPES[0])
        [resolved] = resolve([older, newest])
        assert isinstance(resolved, MultipleFacts)
        assert resolved.values == several
        [resolved] = resolve([newest, older])
        assert resolved.values == several


@given(st.lists(st.tuples(singles | multiples, places), min_size=1))
def test_what_a_fact_was_made_of_makes_it_again(drawn):
    """The parts of each fact are among those that were found, and resolve to it alone; or it is the only one."""
    found = [(fact, *place) for fact, place in drawn]
    for fact, parts in traced(found):
        assert all(part in found for part in parts)
        assert resolve(parts) == [fact]
        assert parts[0][0] is fact or fact.version == 0


def test_every_other_subject_comes_before_everything():
    """The lowest priority that may be given is above it, and another subject of its name is the same one."""
    app = Scope.product("app")
    last = Subject("z", priority=2**31 - 2)
    for everything in (EVERYTHING, Subject("everything"), Subject("everything", priority=0)):
        found = resolve([(SingleFact(THEME, "any", 9), everything, app), (SingleFact(THEME, "z", 1), last, app)])
        assert [fact.value for fact in found] == ["z"]
        assert everything.priority == EVERYTHING.priority
    with pytest.raises(ValueError, match="the priority of subject 'z'"):
        Subject("z", priority=2**31 - 1)
