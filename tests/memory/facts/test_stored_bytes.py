"""The stored bytes of facts and notes, in stores and in journals: later versions must read what an earlier one has written."""

# Lines that hold a form in full are as long as it is.

from __future__ import annotations

import orjson
import pytest

from graphagent.memory import Concept, FactType, KnownFact, KnownNote, MultipleFacts, Scope, SingleFact, Source, Subject
from graphagent.memory._references import note_json, read_note_json
from graphagent.memory.facts._json import fact_record, read_fact
from graphagent.memory.facts._references import fact_json, read_fact_json

CITY = SingleFact(Concept("city", "where"), "Bonn", 5, id="a", version=1, source=Source("r", 3, "n", "inferred"))
TOOLS = MultipleFacts(Concept("tools", fact_type=FactType.MULTIPLE), ["vi", "cc"], 6, id="b", version=2)
FACTS = [
    (CITY, '{"keyword":"city","values":["Bonn"],"type":"single","description":"where","timestamp":5,"version":1,"source":{"run_id":"r","step":3,"origin":"n","trust":"inferred"},"id":"a"}'),
    (TOOLS, '{"keyword":"tools","values":["vi","cc"],"type":"multiple","description":"","timestamp":6,"version":2,"source":{"run_id":"","step":null,"origin":"","trust":""},"id":"b"}'),
]  # fmt: skip
ADA, SHOP = Subject("ada", "she", priority=1), Scope.agent("shop")
KNOWN = [
    (KnownFact(CITY, ADA, SHOP), False, '{"place":["ada","she",1,"agent","shop"],"fact":{"keyword":"city","values":["Bonn"],"type":"single","description":"where","timestamp":5,"version":1,"source":{"run_id":"r","step":3,"origin":"n","trust":"inferred"},"id":"a"}}'),
    (KnownFact(CITY, ADA, SHOP, kept=True), False, '{"place":["ada","she",1,"agent","shop"],"ref":["a",1],"concept":["city","single"],"source":["r",3,"n","inferred"],"at":5}'),
    (KnownFact(TOOLS, ADA, SHOP, forgotten=True, kept=True), True, '{"place":["ada","she",1,"agent","shop"],"fact":{"keyword":"tools","values":["vi","cc"],"type":"multiple","description":"","timestamp":6,"version":2,"source":{"run_id":"","step":null,"origin":"","trust":""},"id":"b","forgotten":true},"kept":true}'),
]  # fmt: skip
NOTES = [
    (KnownNote("n1", "text"), '{"id":"n1","version":1,"content":"text"}'),
    (KnownNote("n1", ""), '{"id":"n1","version":1}'),
    (
        KnownNote("n1", "text", 2, "/a", "book", "Ada", "2025-03-04", "trusted", forgotten=True, kept=False, cut=7),
        '{"id":"n1","version":2,"content":"text","scope":"/a","source":"book","speaker":"Ada","date":"2025-03-04","trust":"trusted","forgotten":true,"cut":7}',
    ),
    (KnownNote("n1", "text", 2, trust="trusted", kept=True, cut=7), '{"noted":["n1",2,"trusted",7]}'),
]  # fmt: skip


@pytest.mark.parametrize(("fact", "stored"), FACTS)
def test_a_fact_is_stored_as_it_always_was(fact, stored):
    """Byte for byte, and it is read from these bytes."""
    assert orjson.dumps(fact_record(fact)).decode() == stored
    again = read_fact(orjson.loads(stored))
    assert (again, again.values, again.source, again.concept.description) == (
        fact, fact.values, fact.source, fact.concept.description
    )  # fmt: skip


@pytest.mark.parametrize(("known", "values", "stored"), KNOWN)
def test_a_fact_in_a_journal_is_stored_as_it_always_was(known, values, stored):
    """With its value, or as a reference."""
    assert orjson.dumps(fact_json(known, values=values)).decode() == stored
    again = read_fact_json(orjson.loads(stored))
    assert orjson.dumps(fact_json(again, values=values)).decode() == stored


@pytest.mark.parametrize(("known", "stored"), NOTES)
def test_a_note_in_a_journal_is_stored_as_it_always_was(known, stored):
    """With its text, or as a reference."""
    assert orjson.dumps(note_json(known, values=False)).decode() == stored
    assert orjson.dumps(note_json(read_note_json(orjson.loads(stored)), values=False)).decode() == stored


@pytest.mark.parametrize(
    "data",
    [
        {"id": "n1"},
        {"version": 1},
        {"id": 5, "version": 1},
        {"id": "a", "version": "1"},
        {"id": "a", "version": 1, "x": 2},
    ],
)
def test_a_damaged_note_is_refused(data):
    """What lacks something, or has something else, is not read as a note."""
    with pytest.raises(ValueError, match="the stored value"):
        read_note_json(data)
