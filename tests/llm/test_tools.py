"""Tools: what `@tool` makes of a function, and how a call becomes a result."""

from __future__ import annotations

import datetime
import enum
import json
import threading
from typing import Annotated, Generic, Literal, TypeVar

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as some
from inline_snapshot import snapshot
from pydantic import BaseModel, Field

from graphagent.errors import ArgumentsError, ToolError
from graphagent.llm import Image, Tool, ToolCall, tool
from graphagent.llm._tools import call_tool, fresh_ids
from graphagent.testing import fixed_ids

T = TypeVar("T")


class Context:
    """Stands for the run's Context, which bears the same mark."""

    __graphagent_context__ = True


class Unit(enum.Enum):
    METRES = "m"
    FEET = "ft"


class Place(BaseModel):
    city: str
    country: str = "NO"


@tool
async def fibonacci(n: int) -> int:
    """The n-th Fibonacci number.

    The second paragraph is not for the model.
    """
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


@tool(name="find-route", description="Finds the way.")
async def route(
    start: Place,
    ends: list[str],
    unit: Unit = Unit.METRES,
    mode: Literal["walk", "drive"] = "walk",
    limit: Annotated[int, Field(ge=1, le=9, description="as annotated")] = 3,
    at: datetime.date | None = None,
) -> str:
    """Not shown, as a description is given.

    Args:
        start: where it begins,
            and in which country.
        ends (list[str]): where it ends.
        limit: not shown, as the annotation says more.

    Returns:
        at: not a parameter here.
    """
    return f"{start.city} {start.country} {ends} {unit} {mode} {limit} {at}"


class Weather:
    def __init__(self, season):
        self.season = season

    @tool
    async def forecast(self, city: str, days: int = 3) -> str:
        """The weather of a city."""
        return f"{city} for {days} days: {self.season}"

    @tool
    def now(self, city: str) -> str:
        """The weather of this minute."""
        return f"{city}: {self.season}"

    @staticmethod
    @tool
    async def unit() -> str:
        """The unit of the degrees."""
        return "C"


@tool
async def weigh(kilograms: float) -> str:
    """Weigh."""
    return str(kilograms)


async def called(tool, context=None, /, **arguments):
    return await call_tool(tool, ToolCall(tool.name, arguments, "1"), known=[tool.name], context=context)


# Declaring


def test_a_schema_has_types_and_descriptions_and_no_titles():
    """The schema of a simple function is short."""
    assert (fibonacci.name, fibonacci.description) == ("fibonacci", "The n-th Fibonacci number.")
    assert fibonacci.parameters == snapshot(
        {
            "additionalProperties": False,
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
            "type": "object",
        }
    )


def test_a_rich_signature_becomes_a_rich_schema():
    """Models, enums, literals, limits, defaults and the docstring's `Args:` all reach the model."""
    assert (route.name, route.description) == ("find-route", "Finds the way.")
    assert route.parameters == snapshot(
        {
            "$defs": {
                "Place": {
                    "properties": {"city": {"type": "string"}, "country": {"default": "NO", "type": "string"}},
                    "required": ["city"],
                    "title": "Place",
                    "type": "object",
                },
                "Unit": {"enum": ["m", "ft"], "title": "Unit", "type": "string"},
            },
            "additionalProperties": False,
            "properties": {
                "start": {"$ref": "#/$defs/Place", "description": "where it begins, and in which country."},
                "ends": {"description": "where it ends.", "items": {"type": "string"}, "type": "array"},
                "unit": {"$ref": "#/$defs/Unit", "default": "m"},
                "mode": {"default": "walk", "enum": ["walk", "drive"], "type": "string"},
                "limit": {"default": 3, "description": "as annotated", "maximum": 9, "minimum": 1, "type": "integer"},
                "at": {"anyOf": [{"format": "date", "type": "string"}, {"type": "null"}], "default": None},
            },
            "required": ["start", "ends"],
            "type": "object",
        }
    )


def test_a_function_without_parameters_has_an_empty_object():
    """No parameters are an object without properties, closed like any other."""
    assert Weather.unit.parameters == {"additionalProperties": False, "properties": {}, "type": "object"}


async def test_a_tool_stays_callable():
    """Calling a tool is calling its function."""
    assert await fibonacci(20) == 6765
    assert Weather("rain").now("Oslo") == "Oslo: rain"


def test_names_of_locals_are_known():
    """Types that only the defining function knows are found, in methods too."""

    class Local(BaseModel):
        x: int

    @tool
    async def use(local: Local) -> str:
        """Use it."""
        return str(local.x)

    class Holder:
        @tool
        async def use(self, local: Local) -> str:
            """Use it."""
            return str(local.x)

    assert use.parameters == Holder().use.parameters
    assert "x" in json.dumps(use.parameters)


def no_docstring(n: int) -> int:
    return n


def no_type(n) -> int:
    """Has a parameter without a type."""


def many(*numbers: int) -> int:
    """Takes any number."""


def named(**numbers: int) -> int:
    """Takes any name."""


def by_place(n: int, /) -> int:
    """Takes its parameter by place only."""


def unknown(n: NotDefinedAnywhere) -> int:  # noqa: F821
    """Has a type that nobody knows."""


def opaque(lock: threading.Thread) -> int:
    """Has a type that JSON cannot say."""


async def stream(n: int):
    """Yields."""
    yield n


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (no_docstring, "docstring"),
        (no_type, "'n' without a type; annotate it"),
        (many, r"\*numbers"),
        (named, r"\*\*numbers"),
        (by_place, "write each parameter out"),
        (unknown, "NotDefinedAnywhere.*define it above"),
        (opaque, "JSON cannot fill, 'lock': JSON has no Thread; take text"),
        (stream, "generator"),
        (staticmethod(no_type), "above @tool"),
        ("weather", r"write @tool\(name='weather'"),
    ],
)
def test_a_function_that_is_no_tool_is_refused_at_once(function, said):
    """What a model could not be told is a TypeError where it stands, which says what to do."""
    with pytest.raises(TypeError, match=said):
        tool(function)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 65])
def test_a_name_that_servers_refuse_is_refused(name):
    """Names are those that the protocol takes."""
    with pytest.raises(ValueError, match="cannot name a tool"):
        Tool(name, "x", {}, lambda arguments, context: None)


GOOGLE = """Convert an amount
    of money.

    Args:
        amount (float): In dollars,
            or cents.
        to: The currency: EUR,
        or NOK.
        day: ISO.

    Returns:
        nothing: at all
    """
NUMPY = """Convert an amount
    of money.

    Parameters
    ----------
    amount : float, optional
        In dollars,

        or cents.
    to
        The currency: EUR, or NOK.
    day, when : str
        ISO.

    Returns
    -------
    nothing : str
        At all.
    """
SPHINX = """Convert an amount
    of money.
    :param float amount: In dollars,
        or cents.
    :param to: The currency: EUR, or NOK.
    :type to: str
    :param day: ISO.
    :returns: nothing
        at all
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX])
def test_the_texts_of_parameters(text):
    """They are read as Google, NumPy and Sphinx have them."""

    async def convert(amount: float, to: str = "EUR", day: str = "") -> None: ...

    convert.__doc__ = text
    found = tool(convert)
    assert found.description == "Convert an amount of money."
    assert {name: each["description"] for name, each in found.parameters["properties"].items()} == {
        "amount": "In dollars, or cents.",
        "to": "The currency: EUR, or NOK.",
        "day": "ISO.",
    }


async def test_a_default_of_none_is_a_value():
    """Models send null for `year: int = None`, as its schema says, with the rules of the type for any other value."""

    @tool
    async def find(
        year: int = None,  # noqa: RUF013  as people write it
        page: Annotated[int, Field(ge=1, description="From 1.")] = None,  # noqa: RUF013
    ) -> str:
        """Find."""
        return f"{year} {page}"

    properties = find.parameters["properties"]
    assert properties["year"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert properties["page"]["description"] == "From 1."
    assert await find.call({"year": None, "page": None}) == "None None"
    with pytest.raises(ArgumentsError, match="page"):
        await find.call({"year": 5, "page": 0})


# Calling


async def test_arguments_become_the_annotated_types():
    """JSON is read as the types say: text to numbers, dates, enums, models; defaults where nothing is given."""
    result = await route.call(
        {"start": {"city": "Oslo"}, "ends": ["A"], "unit": "ft", "limit": "3", "at": "2026-01-02"}
    )
    assert result == "Oslo NO ['A'] Unit.FEET walk 3 2026-01-02"


async def test_strict_models_are_read_as_json():
    """A strict model as a parameter takes what JSON has for its types."""

    class Visit(BaseModel, strict=True):
        day: datetime.date
        unit: Unit

    @tool
    async def plan(visit: Visit) -> str:
        """Plan."""
        return f"{visit.day} {visit.unit.name}"

    assert await plan.call({"visit": {"day": "2026-01-02", "unit": "ft"}}) == "2026-01-02 FEET"
    with pytest.raises(ArgumentsError, match="is not JSON"):
        await plan.call({"visit": object()})
    [told] = (await called(weigh, kilograms=10**400)).value.problems
    assert told == "all of it: it contains a number that is too large for a float"


async def test_wrong_arguments_are_named_without_their_values():
    """Each wrong argument is named with its reason; what was given is not repeated."""
    with pytest.raises(ArgumentsError) as caught:
        await route.call({"start": {"country": "topsecret"}, "limit": 11, "extra": "topsecret"})
    assert caught.value.tool == "find-route"
    assert [each.partition(":")[0] for each in caught.value.problems] == ["start.city", "ends", "limit", "extra"]
    assert "topsecret" not in str(caught.value)


async def test_many_wrong_arguments_are_no_flood():
    """Of a hundred problems a few are told."""
    result = await called(route, start={"city": "x"}, ends=list(range(100)))
    assert result.is_error
    assert "and 92 more" in result.content


async def test_methods_are_bound():
    """A tool on a class is bound to an instance, async and plain alike; without one it says so."""
    weather = Weather("rain")
    assert await weather.forecast.call({"city": "Oslo", "days": "2"}) == "Oslo for 2 days: rain"
    assert await weather.now.call({"city": "Oslo"}) == "Oslo: rain"
    assert await weather.unit.call({}) == "C"
    assert await Weather("sun").forecast.call({"city": "Oslo"}) == "Oslo for 3 days: sun"
    with pytest.raises(TypeError, match="of an instance"):
        await Weather.forecast.call({"city": "Oslo"})


async def test_a_plain_function_runs_in_a_worker_thread():
    """A function that blocks holds up nobody."""
    threads = []

    @tool
    def where() -> str:
        """Where it runs."""
        threads.append(threading.current_thread())
        return "here"

    assert await where.call({}) == "here"
    assert threads[0] is not threading.current_thread()


async def test_the_context_is_filled_in_and_not_shown():
    """A parameter for the run's Context is the run's business: not in the schema, and nothing a model can give."""

    @tool
    async def look(ctx: Context, what: str) -> str:
        """Look."""
        return f"{what} in {type(ctx).__name__}"

    @tool
    async def glance(what: str, ctx: Context | None = None) -> str:
        """Glance."""
        return f"{what} {ctx is None}"

    assert list(look.parameters["properties"]) == list(glance.parameters["properties"]) == ["what"]
    assert await look.call({"what": "x"}, Context()) == "x in Context"
    assert await glance.call({"what": "x"}) == "x True"
    assert await glance.call({"what": "x"}, Context()) == "x False"
    with pytest.raises(TypeError, match="needs the run's Context"):
        await look.call({"what": "x"})
    with pytest.raises(ArgumentsError, match="ctx"):
        await look.call({"what": "x", "ctx": {}}, Context())


def test_a_generic_context_is_one_and_a_list_of_them_is_none():
    """The mark is seen through brackets, `| None` and Annotated; a list of contexts is refused like any odd type."""

    class Of(Generic[T]):
        __graphagent_context__ = True

    @tool
    async def look(what: str, ctx: Annotated[Of[int] | None, "the run's"] = None) -> str:
        """Look."""
        return what

    def several(ctxs: list[Context]) -> str:
        """Look at several."""

    with pytest.raises(TypeError, match="JSON cannot fill"):
        tool(several)
    assert list(look.parameters["properties"]) == ["what"]


async def test_odd_parameter_names_do_no_harm():
    """Names that pydantic has a use for are as good as others."""

    @tool
    async def odd(schema: str, model_config: int, copy: str = "c", json: str = "j") -> str:
        """Odd."""
        return f"{schema}{model_config}{copy}{json}"

    assert await odd.call({"schema": "s", "model_config": 1, "json": "x"}) == "s1cx"
    assert list(odd.parameters["properties"]) == ["schema", "model_config", "copy", "json"]


# Calls into results


def returning(value):
    @tool
    async def give() -> object:
        """Give it."""
        return value

    return give


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text as it is", "text as it is"),
        ("", ""),
        (None, "null"),
        (6765, "6765"),
        (2**80, str(2**80)),
        ({"a": [1, 2.5, None]}, '{"a":[1,2.5,null]}'),
        (Place(city="Ålesund"), '{"city":"Ålesund","country":"NO"}'),
        (Unit.FEET, '"ft"'),
        (datetime.date(2026, 1, 2), '"2026-01-02"'),
        (float("nan"), '"NaN"'),
        (b"\xff", '"_w=="'),
        ("\udcff", "\\udcff"),
        (ToolCall("x", {"a": 1}, "i"), '{"name":"x","arguments":{"a":1},"id":"i","malformed":"","provider":null}'),
    ],
)
async def test_results_are_text_or_json(value, content):
    """Text stays as it is; everything else is JSON, exact and sendable."""
    result = await called(returning(value))
    assert (result.content, result.is_error, result.images) == (content, False, ())
    json.dumps(result.content).encode()


async def test_a_result_without_a_json_form_is_its_text():
    """An object that JSON does not know, or that holds itself, is shown by its str()."""

    class Thing:
        def __str__(self):
            return "a thing"

    loop = []
    loop.append(loop)
    assert (await called(returning(Thing()))).content == '"a thing"'
    assert (await called(returning(loop))).content == "[[...]]"


async def test_images_go_beside_the_text():
    """Images, alone or among other things, reach the result as images."""
    image = Image(b"png")
    assert (await called(returning(image))).images == (image,)
    assert (await called(returning([image]))).content == "(1 image)"
    mixed = await called(returning(["two", image, {"n": 2}, image]))
    assert (mixed.content, mixed.images) == ('two\n{"n":2}', (image, image))


async def test_the_value_stays_at_hand():
    """The result keeps what the tool returned, or raised."""
    place = Place(city="Oslo")
    assert (await called(returning(place))).value is place


async def test_an_unknown_tool_names_those_that_exist():
    """The model is told which tools there are."""
    result = await call_tool(None, ToolCall("fibonaci", {}, "7"), known=["route", "fibonacci"])
    assert (result.call_id, result.name, result.is_error) == ("7", "fibonaci", True)
    assert result.content == "Error: unknown tool 'fibonaci'; available tools: fibonacci, route"


async def test_malformed_arguments_are_shown_to_the_model():
    """Arguments that are not a JSON object never reach the tool."""
    said = {
        '{"n": 2': "are not a JSON object",
        "[2]": "are JSON, and not a JSON object",
        '"two"': "are text, and not a JSON object",
        '{"n": 2e999}': "contain a number that is too large for a float",
    }
    for malformed, reason in said.items():
        result = await call_tool(fibonacci, ToolCall("fibonacci", id="1", malformed=malformed))
        assert result.is_error
        assert result.content == f"Error: the arguments {reason}: {malformed}"


async def test_what_a_tool_raises_is_shown_and_not_raised():
    """A ToolError gives its text, anything else its type and text, and neither floods the prompt."""

    @tool
    async def fail(kind: str) -> str:
        """Fail."""
        raise {"tool": ToolError("no such city"), "other": KeyError("boom"), "long": ValueError("x" * 10_000)}[kind]

    assert (await called(fail, kind="tool")).content == "Error: no such city"
    other = await called(fail, kind="other")
    assert (other.content, type(other.value)) == ("Error: KeyError: 'boom'", KeyError)
    assert len((await called(fail, kind="long")).content) < 3_000


@pytest.mark.parametrize("kind", [ToolError, ValueError])
async def test_an_exception_whose_text_raises(kind):
    """It is a result like any other."""

    class UnspeakableError(kind):
        def __str__(self):
            raise LookupError("topsecret")

    @tool
    async def fail() -> str:
        """Fail."""
        raise UnspeakableError("no")

    result = await called(fail)
    assert result.is_error
    assert result.content.endswith("(its text cannot be shown: LookupError)")


async def test_cancellation_is_not_swallowed():
    """A cancelled tool gives no result."""

    @tool
    async def forever() -> str:
        """Never ends."""
        await anyio.sleep_forever()
        return ""

    results = []
    with anyio.move_on_after(0.01) as scope:
        results.append(await called(forever))
    assert scope.cancelled_caught
    assert results == []


async def test_base_exceptions_are_not_swallowed():
    """Ctrl-C in a tool ends the program, not the call."""

    @tool
    async def stop() -> str:
        """Stop."""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await called(stop)


@given(ids=some.lists(some.sampled_from(["", " ", "a", "b", "call_x"])))
def test_fresh_ids_keep_order_and_make_every_id_unique(ids):
    """Good ids stay with their first call; empty and repeated ones are replaced; nothing else changes."""
    calls = [ToolCall("t", {"n": index}, each) for index, each in enumerate(ids)]
    fresh = fresh_ids(calls)
    assert [call.arguments for call in fresh] == [call.arguments for call in calls]
    assert len({call.id for call in fresh}) == len(calls)
    for index, call in enumerate(fresh):
        first = ids.index(ids[index]) == index and ids[index].strip()
        assert (call.id == ids[index]) == bool(first)


def test_fresh_ids_come_from_the_one_source():
    """A test that fixes ids fixes these too."""
    with fixed_ids("t"):
        assert [call.id for call in fresh_ids([ToolCall("a"), ToolCall("b")])] == ["call_t-000001", "call_t-000002"]
