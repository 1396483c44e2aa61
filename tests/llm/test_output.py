"""Structured output: from types to schemas, from answers to values, and asking again."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
from threading import Thread
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as some
from inline_snapshot import snapshot
from pydantic import BaseModel, Field

from graphagent.errors import ModelRequestError, OutputError
from graphagent.llm import Message, OutputFormat, structured
from graphagent.testing import ScriptedModel


class Kind(enum.Enum):
    CAT = "cat"
    DOG = "dog"


class Pet(BaseModel):
    name: str
    kind: Kind = Kind.CAT
    born: datetime.date | None = None


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


@dataclasses.dataclass
class Point:
    x: int
    y: float


@dataclasses.dataclass
class Named:
    name: str
    more: list[str]


FORMS = ["{}", "```json\n{}\n```", "Sure!\n```\n{}\n```\nAnything else?", "Sure: {} Anything else?"]
"""How an answer may stand in a text."""
THOUGHTS = [
    "",
    "<think>Hm.</think>\n",
    '<think>Maybe {"name": "Draft", "more": []} or [1?</think>',
    "no beginning</think>",
    "<think>One</think><think>two</think>",
]
"""What may stand before it."""
JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False) | some.text(),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(), inner, max_size=4),
    max_leaves=12,
)


# Formats


def test_a_model_becomes_a_strict_schema():
    """Every property is required and no others are allowed; defaults are left out, as servers refuse them."""
    pets = OutputFormat.of(Pet)
    assert (pets.name, pets.strict, pets.wrapped) == ("Pet", True, False)
    assert pets.schema == snapshot(
        {
            "$defs": {"Kind": {"enum": ["cat", "dog"], "title": "Kind", "type": "string"}},
            "properties": {
                "name": {"title": "Name", "type": "string"},
                "kind": {"$ref": "#/$defs/Kind"},
                "born": {"anyOf": [{"format": "date", "type": "string"}, {"type": "null"}], "title": "Born"},
            },
            "required": ["name", "kind", "born"],
            "title": "Pet",
            "type": "object",
            "additionalProperties": False,
        }
    )


@pytest.mark.parametrize(
    ("kind", "strict", "wrapped"),
    [
        (str, True, True),
        (int | str, True, True),
        (list[int], True, True),
        (list[Pet], True, True),
        (Literal["a", "b"], True, True),
        (Kind, True, True),
        (Point, True, False),
        (Tree, True, False),
        (dict[str, int], False, False),
        (list[Any], False, True),
        (tuple[int, str], False, True),
    ],
)
def test_every_type_has_an_object_at_the_top(kind, strict, wrapped):
    """What is no object stands under `value`; what servers cannot enforce is not called strict."""
    made = OutputFormat.of(kind)
    assert (made.schema["type"], made.strict, made.wrapped) == ("object", strict, wrapped)
    assert "$ref" not in made.schema
    json.dumps(made.schema)


def test_names_are_what_servers_take():
    """A generic type has brackets in its name; the format has none."""
    assert OutputFormat.of(list[int], name="the numbers!").name == "the_numbers_"


def test_a_type_without_json_is_refused():
    """A type that no answer can be is a TypeError at once."""
    with pytest.raises(TypeError, match="no JSON form that a model could answer in: JSON has no Thread; take text,"):
        OutputFormat.of(Thread)


# Reading


@given(value=JSON)
def test_what_was_written_is_read(value):
    """Any JSON, as it is, fenced, or under `value`, is read as it was."""
    anything = OutputFormat.of(Any)
    assert anything.wrapped
    text = json.dumps(value, ensure_ascii=False)
    assert anything.parse(json.dumps({"value": value})) == value
    if not isinstance(value, dict) or value.keys() != {"value"}:
        assert anything.parse(text) == value
        assert anything.parse(f"Here it is:\n```json\n{text}\n```\nAnything else?") == value


@given(
    pet=some.builds(Pet, name=some.text(), kind=some.sampled_from(Kind), born=some.none() | some.dates()),
    before=some.text(some.characters(exclude_characters='{["')),
    after=some.text(),
)
def test_a_dumped_model_is_read_from_prose(pet, before, after):
    """parse(dump(x)) == x, whatever stands around it."""
    pets = OutputFormat.of(Pet)
    dumped = pet.model_dump_json()
    assert pets.parse(dumped) == pet
    assert pets.parse(f"{before}\n{dumped}\n{after}") == pet


@given(points=some.lists(some.builds(Point, some.integers(), some.floats(allow_nan=False, allow_infinity=False))))
def test_a_list_is_read_bare_or_wrapped(points):
    """A model may forget the wrapping, and is understood."""
    kind = OutputFormat.of(list[Point])
    dumped = json.dumps([dataclasses.asdict(each) for each in points])
    assert kind.parse(dumped) == kind.parse(f'{{"value": {dumped}}}') == points


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Tom"}',
        ' \n{"name": "Tom"}\n ',
        '```json\n{"name": "Tom"}\n```',
        '```\n{"name": "Tom"}\n```',
        'Sure! {"name": "Tom"} Anything else?',
        'As in [1] and {curly} prose: {"name": "Tom"}',
        '<think>{"name": "Draft"}</think>\n{"name": "Tom"}',
        '{"nom": "Draft"} I mean {"name": "Tom"}',
        '```{"name": "Tom"}```',
        'An open [bracket, then {"name": "Tom"}',
    ],
)
def test_json_is_found_in_prose(text):
    """Fences, thoughts, citations and chatter are no obstacle: the first JSON that fits is taken."""
    assert OutputFormat.of(Pet).parse(text) == Pet(name="Tom")


@pytest.mark.parametrize(
    ("around", "thoughts"),
    [(around, thoughts) for around in FORMS for thoughts in THOUGHTS],
)
def test_the_end_of_thoughts_is_told_from_text_that_says_the_same(around, thoughts):
    """`</think>` in a string of the answer is part of it, fenced or in prose; a draft in the thoughts before is not."""
    name = "before </think> behind"
    text = thoughts + around.format(json.dumps({"name": name}))
    assert OutputFormat.of(Pet).parse(text) == Pet(name=name)


@given(some.text(), some.sampled_from(FORMS), some.sampled_from(THOUGHTS), some.booleans())
def test_any_text_is_read_behind_any_thoughts(name, around, thoughts, ascii_only):
    """What the model says in a string comes back as it is."""
    answer = json.dumps({"name": name, "more": [f"{name}</think>{name}"]}, ensure_ascii=ascii_only)
    assert OutputFormat.of(Named).parse(thoughts + around.format(answer)).name == name


def test_a_draft_in_thoughts_is_no_answer():
    """Where nothing but a draft is JSON, there is no answer; brackets that are never closed in the thoughts hide nothing."""
    for text in (
        '<think>{"name": "Draft"}</think>I would rather not.',
        'So {"name": "Draft"}</think>No. Or </think> yes',
    ):
        with pytest.raises(OutputError, match="no complete JSON"):
            OutputFormat.of(Pet).parse(text)
    assert OutputFormat.of(Pet).parse('<think>A [ or a { "opens</think>{"name": "Tom"}') == Pet(name="Tom")


def test_much_thought_is_read_quickly():
    """A text of brackets costs no more than is looked at in any."""
    for text in ("[" * 100_000 + "</think>[]", "[</think>" * 30_000, '{"</think>' * 30_000, "[1]</think>" * 100_000):
        with pytest.raises(OutputError):
            OutputFormat.of(Pet).parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no complete JSON"),
        ("I would rather not.", "no complete JSON"),
        ('{"name": "To', "no complete JSON"),
        ('{"name": "Tom"', "no complete JSON"),
        ('{"nom": "topsecret"}', "name: is missing"),
        ('{"name": "Tom", "kind": "topsecret"}', "kind: must be 'cat' or 'dog'"),
        ("[]", "all of it: must be an object"),
        ('{"name": NaN}', "no complete JSON"),
        ('{"name": "Tom", "weights": [1.5e310]}', "no complete JSON whose numbers a float can hold"),
    ],
)
def test_what_does_not_fit_is_named_without_values(text, said):
    """The error gives places and reasons; the answer itself is only in `.output`."""
    with pytest.raises(OutputError, match=said) as caught:
        OutputFormat.of(Pet).parse(text)
    assert caught.value.output == text
    assert "topsecret" not in str(caught.value)


def test_an_integer_that_is_too_large_for_a_float():
    """It does not fit where a float is demanded, and is exact where an integer is."""
    text = f'{{"value": [{10**400}]}}'
    assert OutputFormat.of(list[int]).parse(text) == [10**400]
    for kind in (list[float], tuple[float], set[float]):
        with pytest.raises(OutputError, match="a number that is too large for a float"):
            OutputFormat.of(kind).parse(text)
        with pytest.raises(OutputError, match="a number that is too large for a float"):
            OutputFormat.of(kind).convert([10**400])


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"a":' * 200_000,
        "[" * 100_000 + "]" * 100_000,
        '{"value":' * 5_000 + "1" + "}" * 5_000,
        '"' * 200_001,
        '[ "' + '\\"' * 200_000,
        "[1] " * 100_000,
        "`" * 200_000,
        "```json\n" * 50_000,
        "{" + '"a":1,' * 200_000,
        "1" * 200_000,
    ],
    ids=range(11),
)
def test_hostile_answers_end_quickly(text):
    """Deep, unfinished and repeated pieces give a clean error within seconds: no RecursionError, no hang."""
    with pytest.raises(OutputError):
        OutputFormat.of(Tree).parse(text)


def test_large_answers_are_read():
    """Ten thousand items, and a number of a hundred digits, come through exactly."""
    numbers = [*range(10_000), 10**100]
    assert OutputFormat.of(list[int]).parse(f"Well:\n{json.dumps(numbers)}") == numbers


def test_a_tree_that_is_deep_is_a_value():
    """Nesting that a person might mean is read."""
    text = '{"value":1,"children":[' * 40 + '{"value":2}' + "]}" * 40
    tree = OutputFormat.of(Tree).parse(text)
    for _ in range(40):
        [tree] = tree.children
    assert tree.value == 2


class Exact(BaseModel, strict=True):
    day: datetime.date
    kind: Kind
    pair: tuple[int, int]


def test_strict_models_are_read_as_json():
    """A strict model takes from JSON what JSON has for its types, and no more."""
    exact = OutputFormat.of(Exact)
    assert exact.parse('{"day": "2026-01-02", "kind": "dog", "pair": [1, 2]}').kind is Kind.DOG
    with pytest.raises(OutputError, match=r"pair\.0"):
        exact.parse('{"day": "2026-01-02", "kind": "dog", "pair": ["1", 2]}')


# Asking


async def test_a_fitting_answer_is_asked_for_once():
    """The request carries the format and the parameters, and the value comes back."""
    model = ScriptedModel([Pet(name="Tom", kind=Kind.DOG)])
    pet = await structured(model.respond, [Message.user("A pet?")], Pet, parameters={"seed": 1})
    assert pet == Pet(name="Tom", kind=Kind.DOG)
    [request] = model.requests
    assert request.output == OutputFormat.of(Pet)
    assert request.parameters == {"seed": 1}


async def test_an_answer_that_does_not_fit_is_asked_again():
    """The model sees its answer, the reason and the schema; the caller's messages stay as they were."""
    model = ScriptedModel([{"nom": "Tom"}, {"name": "Tom"}])
    messages = [Message.system("Short."), Message.user("A pet?")]
    assert await structured(model.respond, messages, Pet) == Pet(name="Tom")
    assert messages == [Message.system("Short."), Message.user("A pet?")]
    first, second = model.requests
    assert second.messages[:3] == (*first.messages, Message.assistant('{"nom":"Tom"}'))
    assert second.messages[3].role == "user"
    assert "name: is missing" in second.messages[3].text
    assert '"additionalProperties": false' in second.messages[3].text


@pytest.mark.parametrize("attempts", [1, 2, 4])
async def test_the_last_failure_is_raised(attempts):
    """After the last attempt the error has the last answer."""
    model = ScriptedModel(f"no {number}" for number in range(1, 10))
    with pytest.raises(OutputError) as caught:
        await structured(model.respond, [Message.user("A pet?")], Pet, attempts=attempts)
    assert len(model.requests) == attempts
    assert caught.value.output == f"no {attempts}"


async def test_other_errors_are_not_asked_again():
    """What the server refused is the caller's to handle."""
    model = ScriptedModel([ModelRequestError("busy", status=429), {"name": "Tom"}])
    with pytest.raises(ModelRequestError):
        await structured(model.respond, [], Pet)
    assert len(model.requests) == 1


async def test_no_attempts_are_an_error():
    """Asking zero times cannot give a value."""
    with pytest.raises(ValueError, match="at least once"):
        await structured(ScriptedModel().respond, [], Pet, attempts=0)


async def test_a_format_may_be_made_beforehand():
    """A schema without a type gives plain JSON."""
    plain = OutputFormat("thing", {"type": "object"})
    model = ScriptedModel([{"a": [1]}])
    assert await structured(model.respond, [], plain) == {"a": [1]}


class Limited(BaseModel):
    score: float = Field(ge=0, le=1)


async def test_rules_of_the_model_are_checked():
    """What a schema can only hint at is checked on the value."""
    model = ScriptedModel([{"score": 2}, {"score": 0.5}])
    assert (await structured(model.respond, [], Limited)).score == 0.5


def test_half_a_surrogate_pair_is_no_json():
    """Text that no server can send gets the same error as any other that is no JSON, and is looked through for JSON."""
    form = OutputFormat.of(list[int])
    assert form.parse("\ud800 [1]") == [1]
    with pytest.raises(OutputError):
        form.parse("\ud800")
