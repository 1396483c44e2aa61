"""Checks of arguments: a mistake must not store a fact in another place, or forget another fact."""

from __future__ import annotations

from graphagent._article import a, kind_of
from graphagent._options import check_by_name
from graphagent.memory.facts._types import Concept, MultipleFacts, Scope, ScopeKind, SingleFact, Subject, Withdrawal


def check_filter(
    concept: object,
    subject: object,
    scope: object,
    value: object,
    *,
    everything: bool,
    by_position: tuple[object, ...],
) -> None:
    """Check the arguments of `forget`: a bare name would match nothing and look like success.

    Raises:
        TypeError: a name is given instead of a concept, subject or scope, a value is not text, or an argument is positional.
        ValueError: no argument is given, as happens with variables that are None; `everything` is combined with others; or a
            value is given without its concept.
    """
    check_by_name("forget", by_position, "concept=…", "subject=…", "scope=…", "value=…", "everything=True")
    if value is not None and concept is None:
        raise ValueError("value= needs the concept that has the value: forget(concept=…, value=…)")
    if value is not None and not isinstance(value, str):
        raise TypeError(f"value= is text, not {kind_of(value)}")
    if everything != all(each is None for each in (concept, subject, scope)):
        raise ValueError(
            "say what to forget: concept=, subject= or scope=; or, for all that the owner has, everything=True and none of these"
        )
    for what, given, kind in (("concept", concept, Concept), ("subject", subject, Subject), ("scope", scope, Scope)):
        if given is not None and not isinstance(given, kind):
            raise TypeError(f"{what}= is {a(kind.__name__)}, not {kind_of(given)}")


_GIVEN: dict[str, tuple[tuple[type, ...], str]] = {
    "fact": ((SingleFact, MultipleFacts), "a SingleFact or MultipleFacts"),
    "withdrawal": ((Withdrawal,), "a Withdrawal, such as Withdrawal(concept, ['meat'])"),
    "concept": ((Concept,), "a Concept, such as Concept('city')"),
    "subject": ((Subject,), "a Subject, such as Subject('user')"),
    "scope": ((Scope,), "a Scope, such as Scope.agent('shop')"),
    "place": ((Scope, ScopeKind), "a Scope or ScopeKind, such as ScopeKind.AGENT"),
    "description": ((str,), "text"),
}


def check_given(call: str, **given: object) -> None:
    """Check the types of positional arguments: a wrong order would store a fact in another place.

    Raises:
        TypeError: an argument has another type; the error ends with `call`, such as `save(fact, subject, scope)`.
    """
    for name, value in given.items():
        kinds, wanted = _GIVEN[name]
        if not isinstance(value, kinds):
            raise TypeError(f"the {name} is {wanted}, not {kind_of(value)}; write {call}")
