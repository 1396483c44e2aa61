"""Transcripts as text and back, steps as JSON data and back, and steps as plain data for people."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import threading
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from graphagent.codec._blobs import HeldBlobs
from graphagent.errors import SerializationError
from graphagent.llm import Image, Message, Reasoning, Text, ToolCall, ToolCalls, ToolResult, ToolResults, Usage
from graphagent.memory import (
    ActionStep,
    Concept,
    FactsStep,
    FactType,
    FinalAnswerStep,
    KnownFact,
    MessageStep,
    MultipleFacts,
    PlanningStep,
    RunMemory,
    Scope,
    SingleFact,
    Source,
    Step,
    StepFailure,
    Subject,
    SummaryStep,
    TaskStep,
    Timing,
)
from graphagent.memory.transcript._fields import Source as StepSource
from graphagent.memory.transcript._fields import read_step, write_step
from graphagent.memory.transcript._prompt import Versions
from graphagent.memory.transcript._saved import _checksum
from tests.thorough import examples

PICTURE = Image(b"\x89PNG" * 300)


class Unit(enum.Enum):
    METRE = "m"


@dataclass
class Place:
    name: str
    at: tuple[float, float] = (0.0, 0.0)


@dataclass(slots=True)
class Reading(Step):
    """What an instrument showed."""

    kind = "saved reading"

    value: float
    unit: Unit
    places: list[Place] = field(default_factory=list)
    picture: Image | None = None
    results: str = ""
    """The name of a field of our own types, and something else."""
    anything: Any = None

    def to_messages(self):
        return [Message.user(f"{self.value} {self.unit.value}")]


@dataclass
class Loose(Step):
    kind = "saved loose"

    value: int = 7


class Measured(ActionStep):
    __slots__ = ("gauge",)

    kind = "saved measured"

    gauge: Place | None


def known(fact, **more):
    return KnownFact(fact, Subject("user", "who asks", 3), Scope.agent("a"), **more)


def save(memory):
    """The same transcript as another process has it."""
    return RunMemory.from_json(memory.to_json())


def same(one, other):
    """Equal, with what equality leaves out: what was sent, in full, and the open turn."""
    assert one == other
    assert one.open == other.open
    assert type(one.open) is type(other.open)
    for mine, theirs in zip([*one.steps, one.open], [*other.steps, other.open], strict=True):
        assert type(mine) is type(theirs)
        if isinstance(mine, ActionStep | PlanningStep):
            assert mine.model_input_messages == theirs.model_input_messages
            assert (mine.prompt is None) == (theirs.prompt is None)
        if isinstance(mine, ActionStep):
            assert [result.seconds for result in mine.results] == [result.seconds for result in theirs.results]
    assert one.to_messages() == other.to_messages()
    return True


# ---- any transcript

texts = some.text(some.characters(exclude_categories=()), max_size=8) | some.sampled_from(["", "long"]).map(
    lambda text: text * 5000
)
plain = some.none() | some.integers() | some.floats(allow_nan=False) | texts | some.binary(max_size=4)
outputs = (
    plain
    | some.lists(plain, max_size=3).map(tuple)
    | some.frozensets(plain, max_size=3)
    | some.dictionaries(plain, plain, max_size=2)
)
images = some.sampled_from([PICTURE, Image(b"small"), Image(url="https://example.org/a.png")])
calls = some.builds(
    ToolCall, texts, some.dictionaries(texts, plain, max_size=2), some.sampled_from("abc"), some.just("")
)
results = some.builds(
    ToolResult, some.sampled_from("abc"), texts, texts, some.booleans(), some.lists(images, max_size=1).map(tuple),
    full=texts, seconds=some.floats(0, 9),
)  # fmt: skip
messages = some.builds(
    Message, some.sampled_from(["user", "assistant", "system"]),
    some.lists(some.builds(Text, texts) | some.builds(Reasoning, texts) | images | calls, max_size=3).map(tuple),
)  # fmt: skip
failures = some.none() | some.builds(StepFailure, texts, texts)
timings = some.none() | some.builds(Timing, some.integers(0, 10**13), some.integers(0, 10**13))
usages = some.none() | some.builds(
    Usage, some.integers(0, 10**9), some.integers(0, 9), cost=some.decimals(0, 9, places=5)
)
city = Concept("city", "where someone lives")
facts = some.sampled_from(
    [
        known(SingleFact(city, "Oslo")),
        known(SingleFact(city, "Oslo", 5, id="i", version=2, source=Source("r", 1, "o", "trusted"))),
        known(MultipleFacts(Concept("likes", fact_type=FactType.MULTIPLE), ["a", "b"], id="j", version=1), kept=True),
        known(SingleFact(city, "[forgotten]", id="k", version=1), forgotten=True),
    ]
)
steps = (
    some.builds(TaskStep, outputs | messages, some.lists(images, max_size=2).map(tuple))
    | some.builds(MessageStep, messages)
    | some.builds(FactsStep, some.lists(facts, max_size=3).map(tuple))
    | some.builds(PlanningStep, texts, some.none() | messages, timing=timings, token_usage=usages)
    | some.builds(SummaryStep, texts, some.integers(0, 4), some.lists(facts, max_size=1).map(tuple), timings, usages)
    | some.builds(FinalAnswerStep, outputs)
    | some.builds(
        Reading, some.floats(allow_nan=False), some.just(Unit.METRE), some.lists(some.builds(Place, texts), max_size=2),
        some.none() | images, texts, outputs,
    )
    | some.builds(Loose, some.integers())
)  # fmt: skip
turns = some.builds(
    ActionStep, step_number=some.integers(0, 9), model_output_message=some.none() | messages,
    results=some.lists(results, max_size=2), observations=some.none() | texts,
    observations_images=some.none() | some.lists(images, max_size=1), action_output=outputs, code_action=some.none() | texts,
    error=failures, timing=timings, token_usage=usages,
)  # fmt: skip


@some.composite
def transcripts(draw):
    """A transcript as runs make them: turns have prompts, now and then with messages that stand nowhere else, or steps edited since."""
    memory = RunMemory(draw(texts))
    for _ in range(draw(some.integers(0, 6))):
        if draw(some.booleans()):
            memory.steps.append(draw(steps))
            continue
        step = draw(turns | some.builds(PlanningStep, texts))
        if draw(some.integers(0, 4)):
            derived, prompt = memory.transcript.prompt()
            sent = derived + draw(some.lists(messages, max_size=1)) if draw(some.booleans()) else derived
            step.prompt = prompt.differing(sent)
        memory.steps.append(step)
        if draw(some.integers(0, 3)) == 0:
            memory.steps.pop(draw(some.integers(0, len(memory.steps) - 1)))
    if draw(some.booleans()):
        turn = draw(turns)
        turn.prompt = memory.transcript.prompt()[1]
        memory.transcript.put_open(1, turn)
    return memory


@settings(deadline=None, max_examples=examples(150))
@given(transcripts())
def test_every_transcript_comes_back_as_it_was(memory):
    """Steps of all types, images, errors, tuples and sets, prompts in full, and the open turn; and once more."""
    again = save(memory)
    assert same(again, memory)
    assert again.to_json() == memory.to_json()


@settings(deadline=None, max_examples=examples(60))
@given(transcripts())
def test_every_transcript_is_plain_data(memory):
    """Whatever stands in a transcript, people get JSON of it, and the succinct form is the full one without the prompts."""
    full = json.loads(json.dumps(memory.full_steps(), allow_nan=False))
    assert [step["kind"] for step in full] == [step.kind for step in [*memory.steps, memory.open] if step is not None]
    for step, shown in zip([*memory.steps, memory.open], full, strict=False):
        if isinstance(step, ActionStep | PlanningStep):
            assert len(shown["model_input_messages"]) == len(step.model_input_messages)
    succinct = json.loads(json.dumps(memory.succinct_steps(), allow_nan=False))
    assert succinct == [{key: value for key, value in step.items() if key != "model_input_messages"} for step in full]


# ---- what is saved


def run(count, *, edited=False):
    """A transcript of so many turns, each with a tool call; or one of which each turn's observation was pruned later."""
    memory = RunMemory("Rules.", [TaskStep("task")])
    for number in range(1, count + 1):
        prompt = memory.transcript.prompt()[1]
        call = ToolCall("look", {"number": number}, f"call {number}")
        result = ToolResult(call.id, "look", f"unique result {number} of the tool")
        message = Message.assistant(f"unique thought {number} of the model", [call])
        memory.steps.append(
            ActionStep(
                step_number=number, model_output_message=message, results=[result], prompt=prompt, timing=Timing(1, 2)
            )
        )
        if edited and number > 2:
            memory.steps[-2].observations = "pruned"
    return memory


def test_a_message_stands_in_what_is_saved_once():
    """However often it was sent."""
    saved = run(60).to_json()
    for number in (1, 30, 60):
        assert saved.count(f"unique result {number} of") == saved.count(f"unique thought {number} of") == 1


def test_what_was_sent_can_be_shown_after_the_steps_were_edited():
    """Messages that stand in no step any more are saved beside the steps, once."""
    memory = run(30, edited=True)
    again = save(memory)
    assert same(again, memory)
    assert "unique result 29 of the tool" in [message.text for message in again.steps[-1].model_input_messages]
    assert memory.to_json().count("unique thought 5 of") == 2  # in each version of the step


@pytest.mark.parametrize("edited", [False, True], ids=["untouched", "edited"])
def test_the_size_grows_with_the_steps(edited):
    """Four times the turns take four times the space, whatever was sent for them."""
    sizes = [len(run(count, edited=edited).to_json()) for count in (25, 100, 400)]
    assert sizes[1] < 4.2 * sizes[0]
    assert sizes[2] < 4.2 * sizes[1]


def test_the_size_grows_with_the_steps_of_branches_too():
    """What a branch was sent begins with what there was before the fork."""

    def forked(count):
        memory = RunMemory("Rules.", [TaskStep("task")])
        for number in range(count):
            branches = [memory.transcript.branch() for _ in range(3)]
            for place, branch in enumerate(branches):
                said = Message.assistant(f"thought {number} of branch {place}")
                branch.add(1, MessageStep(Message.user(f"branch {place}")))
                prompt = branch.prompt()[1]
                branch.add(2, ActionStep(step_number=number + 1, model_output_message=said, prompt=prompt))
            for branch in branches:
                memory.transcript.joined_by(3, branch)
        return memory

    assert same(save(forked(10)), forked(10))
    sizes = [len(forked(count).to_json()) for count in (40, 160)]
    assert sizes[1] < 4.3 * sizes[0]


def test_large_payloads_are_saved_once():
    """An image, or a long text, that comes up in several steps."""
    image, text = Image(b"\x00\x01" * 20_000), "a" * 30_000
    once = len(RunMemory("", [TaskStep(text, (image,))]).to_json())
    twice = RunMemory("", [TaskStep(text, (image,)), MessageStep(Message.user(text, image)), FinalAnswerStep(text)])
    assert len(twice.to_json()) < once + 500
    assert same(save(twice), twice)


def test_a_loaded_transcript_can_be_carried_on():
    """It takes steps like any other."""
    memory = save(run(3))
    assert (memory.run_steps, memory.turns) == (run(3).run_steps, 3)
    memory.steps.append(MessageStep(Message.user("and?")))
    assert len(RunMemory.from_json(memory.to_json()).steps) == 5


def test_a_long_transcript_is_saved_and_loaded():
    """Nothing recurs with the number of turns."""
    memory = run(3000)
    assert save(memory).steps[-1].model_input_messages == memory.steps[-1].model_input_messages


# ---- what is refused


def test_cut_text_is_refused():
    """Whatever is missing at the end."""
    saved = run(2).to_json()
    for length in range(len(saved)):
        with pytest.raises(ValueError, match="this is not a saved transcript"):
            RunMemory.from_json(saved[:length])


def test_flipped_text_is_refused():
    """One wrong character anywhere is noticed, or makes no difference."""
    memory = run(1, edited=True)
    memory.steps.append(MessageStep(Message.user("\x1b", PICTURE)))
    saved = memory.to_json()
    for place, character in enumerate(saved):
        for other in {chr(ord(character) ^ 1), chr(ord(character) ^ 32), "0", '"', " "} - {character}:
            flipped = saved[:place] + other + saved[place + 1 :]
            try:
                again = RunMemory.from_json(flipped)
            except ValueError as error:
                told = str(error)
            else:
                told = ""
                assert again == memory
            assert "unique" not in told


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{}", '"x"', "5", b"\xff", '{"format":"graphagent steps"}', '{"format":"graphagent steps","version":1}',
     '{"format":"other","version":1}'],
)  # fmt: skip
def test_other_text_is_refused(text):
    """What was never a transcript is told from one."""
    with pytest.raises(ValueError, match="transcript"):
        RunMemory.from_json(text)


def test_a_transcript_of_a_later_version_is_refused():
    """It is not guessed at."""
    saved = run(1).to_json().replace('"version":2', '"version":3')
    with pytest.raises(ValueError, match="another version than 2"):
        RunMemory.from_json(saved)


def signed(transcript):
    return orjson.dumps(
        {"format": "graphagent steps", "version": 2, "sum": _checksum(transcript), "transcript": transcript}
    )


JUNK = some.sampled_from(
    [None, 5, -1, 1.5, True, "secret", [], ["secret"], [1, 2], {}, {"$": "secret"}, {"$at": 99}, {"$at": "secret"}, {"kind": "task"},
     {"kind": "action", "results": ["secret"]}, {"kind": "message"}, {"kind": "task", "task": "secret", "colour": "secret"}]
)  # fmt: skip


@settings(deadline=None, max_examples=examples(500))
@given(some.data())
def test_a_forged_transcript_is_a_value_error(data):
    """What has the right checksum and makes no sense is refused all the same, or is some transcript that can be used."""
    memory = run(2, edited=True)
    memory.steps.extend(
        [Reading(1.0, Unit.METRE, [Place("a")]), FactsStep((known(SingleFact(city, "Oslo")),)), SummaryStep("s", 1)]
    )
    memory.steps.append(
        PlanningStep("p", Message.assistant("p"), memory.transcript.prompt()[1], Timing(1, 2), Usage(1, 2))
    )
    memory.transcript.put_open(1, ActionStep(step_number=3, model_output="Hm."))
    transcript = orjson.loads(memory.to_json())["transcript"]
    places = []

    def walk(at, path):
        places.append(path)
        for key, each in at.items() if isinstance(at, dict) else enumerate(at) if isinstance(at, list) else ():
            walk(each, (*path, key))

    walk(transcript, ())
    path = data.draw(some.sampled_from(places[1:]))
    at = transcript
    for key in path[:-1]:
        at = at[key]
    if data.draw(some.booleans()):
        at[path[-1]] = data.draw(JUNK)
    else:
        del at[path[-1]]
    try:
        again = RunMemory.from_json(signed(transcript))
    except ValueError as error:
        told = f"{error} {error.__context__}"
    else:
        told = ""
        assert all(isinstance(step, Step) for step in again.steps)
    assert "secret" not in told.replace("'secret' is not a known kind of step", "")


def test_what_cannot_be_saved_is_named_with_its_step():
    """The error says which step, of which type, and which field; and not what stands in it."""
    memory = RunMemory("", [TaskStep("t"), FinalAnswerStep({"key": Place("secret")})])
    with pytest.raises(
        SerializationError, match="step 1: the output of a FinalAnswerStep: an object of type Place"
    ) as raised:
        memory.to_json()
    assert "secret" not in str(raised.value)
    memory = RunMemory("", [ActionStep(action_output=threading.Lock())])
    with pytest.raises(SerializationError, match="step 0: the action_output of an ActionStep: an object of type lock"):
        memory.to_json()


# ---- steps as JSON data


class Target:
    def __init__(self, *, refers=()):
        self.blobs, self.versions = HeldBlobs(), Versions()
        self.refers = refers


def again(step):
    target = Target()
    data = orjson.loads(orjson.dumps(write_step(step, target)))
    return read_step(data, StepSource(target.blobs))


@pytest.mark.parametrize(
    "step",
    [
        TaskStep(""), TaskStep(0), TaskStep(()), TaskStep(False), TaskStep({"$at": 1}), FinalAnswerStep(0), FinalAnswerStep(""),
        ActionStep(action_output=0), ActionStep(action_output=""), ActionStep(observations=""), ActionStep(code_action=""),
        ActionStep(observations_images=()), ActionStep(), FactsStep(()), SummaryStep("", 0), PlanningStep(""),
        MessageStep(Message("user", ())), Reading(0.0, Unit.METRE, [], None, "", 0), Loose(0),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_empty_comes_back_as_it_was(step):
    """Zero, empty text and nothing are three things."""
    back = again(step)
    assert back == step
    for name in ("task", "output", "action_output", "anything"):
        assert type(getattr(back, name, None)) is type(getattr(step, name, None))
    if isinstance(step, ActionStep):
        assert (back.observations, back.observations_images) == (step.observations, step.observations_images)
        assert back.to_messages() == step.to_messages()


def test_a_type_of_ones_own_comes_back_by_the_types_of_its_fields():
    """Nested dataclasses, enums and images in them; a field that has got a default since is set to it."""
    step = Reading(2.5, Unit.METRE, [Place("a", (1.0, 2.0))], PICTURE, "x", ({"a"}, b"b"))
    assert again(step) == step
    turn = Measured(step_number=3, results=[ToolResult("a", "f", "x")])
    turn.gauge = Place("b")
    back = again(turn)
    assert (type(back), back, back.gauge) == (Measured, turn, Place("b"))
    source = StepSource(HeldBlobs())
    short = read_step(
        {"kind": "saved reading", "value": 1.0, "unit": {"$": "typed", "t": "Unit", "v": "METRE"}}, source
    )
    assert short == Reading(1.0, Unit.METRE)
    for data, told in (
        ({"kind": "saved reading", "value": 1.0}, "'unit'"),
        ({"kind": "saved reading", "colour": 1}, "a Reading has no field 'colour'"),
        ({"kind": "saved reading", "unit": {"$": "typed", "t": "Unit", "v": "secret"}}, "without .value."),
        ({"kind": "unheard of"}, "'unheard of' is not a known kind of step; import the module that defines it first"),
        ({"kind": "message"}, "'message'"),
        ({"kind": "message", "message": None}, "the message of a MessageStep"),
        ([], "is not a known kind of step"),
    ):
        with pytest.raises(ValueError, match=told) as raised:
            read_step(data, source)
        assert "secret" not in str(raised.value)


def test_what_a_step_holds_beside_its_fields_is_not_lost_in_silence():
    """It is refused, and so is a field that was never set."""
    loose = Loose(1)
    loose.colour = "red"
    with pytest.raises(SerializationError, match="a Loose has an attribute 'colour' that is not a field"):
        again(loose)
    with pytest.raises(SerializationError, match="the gauge of a Measured: it was never set"):
        again(Measured())


def test_facts_are_written_as_references_where_that_is_enough():
    """In a journal the values of facts that can be read again stand nowhere, so forgetting them is enough."""
    kept = known(SingleFact(city, "Oslo", 5, id="i", version=2, source=Source("r", 1, "o", "trusted")), kept=True)
    other = known(SingleFact(city, "Bergen"))
    data = orjson.dumps(write_step(FactsStep((kept, other)), Target(refers=("fact",))))
    assert b"Oslo" not in data
    assert b"Bergen" in data
    first, second = read_step(orjson.loads(data), StepSource(HeldBlobs())).facts
    assert (first.fact.value, first.forgotten, first.kept) == ("[kept elsewhere]", False, True)
    assert dataclasses.replace(first.fact, value="Oslo") == kept.fact
    assert (first.subject, first.scope, first.subject.priority) == (kept.subject, kept.scope, 3)
    assert second == other
    assert again(FactsStep((kept,))).facts == (kept,)


# ---- plain data for people


def test_full_steps_have_smolagents_names():
    """So programs that analyse its dumps read ours."""
    memory = run(2)
    memory.steps[0].task_images = (Image(b"data"),)
    memory.steps[2].error = StepFailure("ToolError", "no")
    memory.steps[2].token_usage = Usage(10, 5, 3, 2, Decimal("0.5"))
    memory.steps.append(FinalAnswerStep("done"))
    memory.transcript.put_open(
        1, ActionStep(step_number=3, model_output_message=Message.assistant("", [ToolCall("look", {}, "z")]))
    )
    task, first, second, final, waiting = memory.full_steps()
    assert task == {"kind": "task", "task": "task", "task_images": [{"media_type": "image/png", "data": "ZGF0YQ=="}]}
    assert first["tool_calls"] == [
        {"id": "call 1", "type": "function", "function": {"name": "look", "arguments": {"number": 1}}}
    ]
    assert (first["step_number"], first["observations"], first["model_output"]) == (
        1, "unique result 1 of the tool", "unique thought 1 of the model",
    )  # fmt: skip
    assert [message["role"] for message in second["model_input_messages"]] == ["system", "user", "assistant", "tool"]
    assert second["model_input_messages"][1]["content"] == [{"type": "text", "text": "task"}]
    assert (second["error"], second["timing"]) == (
        {"type": "ToolError", "message": "no"}, {"start_time": 0.001, "end_time": 0.002, "duration": 0.001},
    )  # fmt: skip
    assert (second["token_usage"]["total_tokens"], second["token_usage"]["cost"]) == (15, "0.5")
    assert final == {"kind": "final_answer", "output": "done"}
    assert (waiting["open"], waiting["results"], waiting["tool_calls"][0]["id"]) == (True, [], "z")
    assert "model_input_messages" not in memory.succinct_steps()[1]


def test_a_message_is_rendered_once():
    """A transcript of many turns is not rendered again for each of them."""
    full = run(100).full_steps()
    sent = [message for step in full[1:] for message in step["model_input_messages"]]
    assert len(sent) > 10_000
    assert len(set(map(id, sent))) < 250


class Model(pydantic.BaseModel):
    a: int
    b: Place


class Odd:
    def __str__(self):
        raise RuntimeError("no")


def _looped():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (math.nan, "nan"), (10**400, hex(10**400)), (10**6000, hex(10**6000)), (b"\xff", "/w=="), ({1: "a", (1, 2): "b"}, {"1": "a", "[1, 2]": "b"}),
        (Place("x"), {"name": "x", "at": [0.0, 0.0]}), (Model(a=1, b=Place("y")), {"a": 1, "b": {"name": "y", "at": [0.0, 0.0]}}),
        (Unit.METRE, "m"), (KeyError("k"), {"type": "KeyError", "message": "'k'"}), (Path("/a"), "/a"), (Odd(), "<Odd>"),
        (datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01T00:00:00+00:00"), (date(2024, 1, 1), "2024-01-01"),
        (timedelta(minutes=1), 60.0), (Decimal("1.50"), "1.50"), (1j, "1j"), (Place, str(Place)), ({1}, [1]),
        (Message.user("a", PICTURE), {"role": "user", "content": [
            {"type": "text", "text": "a"}, {"type": "image", "media_type": "image/png", "bytes": 1200}]}),
        (Message("assistant", (Reasoning("r"), ToolCall("f", {}, "a", malformed="{"))), {
            "role": "assistant", "content": [{"type": "reasoning", "text": "r"}],
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}}]}),
        (ToolCalls([ToolCall("f", {"x": {1}}, "a")]), [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": [1]}}}]),
        (ToolResults([ToolResult("a", "f", "x", full="xx", images=(Image(url="u"),))]), [
            {"call_id": "a", "name": "f", "content": "x", "is_error": False, "seconds": 0.0, "full": "xx",
             "images": [{"media_type": "image/png", "url": "u"}]}]),
        (Message.tool(ToolResult("a", "f", "x")), {"role": "tool", "content": [
            {"type": "tool_result", "call_id": "a", "name": "f", "content": "x"}]}),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_any_output_is_plain_data(value, shown):
    """What no JSON has is shown as what it holds, or as text."""
    [step] = RunMemory("", [FinalAnswerStep(value)]).full_steps()
    assert json.loads(json.dumps(step, allow_nan=False))["output"] == shown


def test_an_output_that_holds_itself_is_shown_as_far_as_it_goes():
    """No transcript is without a dump."""
    dumped = json.dumps(RunMemory("", [FinalAnswerStep(_looped())]).full_steps())
    assert "\\u2026" in dumped


def test_facts_and_types_of_ones_own_are_shown():
    """A fact with its values, subject and scope; and each field of a type of one's own."""
    turn = Measured(step_number=1)
    turn.gauge = Place("g")
    memory = RunMemory("", [FactsStep((known(SingleFact(city, "Oslo")),)), Reading(1.5, Unit.METRE), turn])
    facts_step, reading, measured = memory.full_steps()
    [fact] = facts_step["facts"]
    assert (fact["concept"], fact["values"], fact["subject"], fact["scope"]) == (
        "city", ["Oslo"], "user", {"kind": "agent", "name": "a"},
    )  # fmt: skip
    assert reading == {
        "kind": "saved reading",
        "value": 1.5,
        "unit": "m",
        "places": [],
        "picture": None,
        "results": "",
        "anything": None,
    }
    assert (measured["step_number"], measured["gauge"]["name"]) == (1, "g")
