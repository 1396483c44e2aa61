"""Steps that a program makes itself, of the parts that smolagents' steps have: what they say, are sent as, and are kept as."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import ClassVar

import pytest

from graphagent import Agent
from graphagent.llm import Image, Message, ToolCall, ToolResult, Usage
from graphagent.memory import (
    ActionStep,
    FactsStep,
    FinalAnswerStep,
    MessageStep,
    PlanningStep,
    RunMemory,
    Step,
    StepFailure,
    SummaryStep,
    SystemPromptStep,
    TaskStep,
    Timing,
)
from graphagent.memory.transcript._prompt import Prompt
from graphagent.migrate.smolagents import load_steps
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

SENT = (Message.system("You compute."), Message.user("How many?"))
CALL = ToolCall("count", {"of": "pens"}, "c1")
PICTURE = Image(b"\x89PNG\r\n\x1a\n")


@dataclass(slots=True)
class Reading(Step):
    """A type of one's own, with a field that is a dictionary."""

    kind: ClassVar[str] = "test_by_hand_reading"

    celsius: dict[str, float]


def whole():
    """Return a turn with all its parts."""
    return ActionStep(
        step_number=3, timing=Timing(1_000, 2_500), model_input_messages=SENT, model_output="I will count.",
        tool_calls=[CALL], observations="three", observations_images=[PICTURE], action_output=3, code_action="count()",
        error=StepFailure("ValueError", "too many"), token_usage=Usage(5, 2),
    )  # fmt: skip


def every_kind():
    return [
        TaskStep(task="How many?", task_images=None), MessageStep(message=Message.user("Please.")),
        PlanningStep(
            model_input_messages=[SENT[0]], model_output_message=Message.assistant("1. Count."), plan="1. Count.",
            timing=Timing(1, 2), token_usage=Usage(1, 1),
        ),
        whole(), FactsStep(facts=()), SummaryStep(summary="All was counted.", covers=1), Reading({"in": 21.5}),
        FinalAnswerStep(output={"pens": 3}),
    ]  # fmt: skip


def test_a_turn_can_be_made_of_all_its_parts():
    """The message is made of what the model said, and the other way round."""
    step = whole()
    message = Message.assistant("I will count.", [CALL])
    assert step.model_output_message == message
    assert (step.model_output, step.tool_calls, step.model_input_messages) == ("I will count.", (CALL,), SENT)
    assert step == ActionStep(
        step_number=3, timing=Timing(1_000, 2_500), prompt=Prompt.of(SENT), model_output_message=message,
        observations="three", observations_images=[PICTURE], action_output=3, code_action="count()",
        error=StepFailure("ValueError", "too many"), token_usage=Usage(5, 2),
    )  # fmt: skip


def test_parts_that_are_left_out_say_nothing():
    """None means the same, as in smolagents; empty text and no calls are said."""
    nothing = ActionStep(model_output=None, tool_calls=None, model_input_messages=None)
    assert nothing == ActionStep()
    assert nothing.to_messages() == []
    assert ActionStep(model_output="").model_output == ""
    assert ActionStep(tool_calls=[], model_input_messages=[]) == ActionStep()
    assert ActionStep(tool_calls=[CALL]).model_output == ""


def test_a_turn_made_of_its_parts_is_sent_as_a_turn():
    """The model sees its own message, and a result for every call."""
    assert ActionStep(model_output="I will count.", tool_calls=[CALL], observations="three").to_messages() == [
        Message.assistant("I will count.", [CALL]),
        Message.tool(ToolResult("c1", "count", "three")),
    ]
    assert ActionStep(model_output="Three.").to_messages() == [Message.assistant("Three.")]


def test_calls_without_ids_of_their_own_get_some():
    """Otherwise a server could not tell their results apart, and would refuse them."""
    step = ActionStep(tool_calls=(each for each in [ToolCall("a"), ToolCall("b"), CALL, CALL]), observations="done")
    ids = [call.id for call in step.tool_calls]
    assert "" not in ids
    assert ids[2] == "c1"
    assert len(set(ids)) == 4
    assert [part.call_id for message in step.to_messages()[1:] for part in message.parts] == ids


@pytest.mark.parametrize(
    "parts",
    [
        {"model_output": "Two."},
        {"tool_calls": []},
        {"model_output": "Two.", "tool_calls": [CALL]},
        {"tool_calls": [CALL, ToolCall("count", {}, "c2")]},
    ],
)
def test_a_message_and_parts_that_say_something_else_are_refused(parts):
    """What says the same is not."""
    message = Message.assistant("Three.", [CALL])
    same = ActionStep(model_output_message=message, model_output="Three.", tool_calls=[CALL])
    assert same == ActionStep(model_output_message=message)
    with pytest.raises(ValueError, match=r"model_output_message= and another (model_output|tool_calls)=; leave one"):
        ActionStep(model_output_message=message, **parts)


@pytest.mark.parametrize("kind", [ActionStep, lambda **parts: PlanningStep("plan", **parts)])
def test_a_prompt_and_messages_that_differ_are_refused(kind):
    """What is the same is not."""
    prompt = Prompt.of(SENT)
    assert kind(prompt=prompt, model_input_messages=SENT).prompt is prompt
    for other in (SENT[:1], []):
        with pytest.raises(ValueError, match="prompt= and other model_input_messages=; leave one of them out"):
            kind(prompt=prompt, model_input_messages=other)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"tool_calls": [{"name": "count"}]}, "the tool_calls of an ActionStep are ToolCalls, with a dict in them"),
        ({"model_output": 3}, "the model_output of an ActionStep is text or None, not an int"),
        ({"model_input_messages": ["Hi."]}, "model_input_messages of an ActionStep are Messages, with a str in them"),
        ({"model_output": "Hi.", "model_output_message": "Hi."}, "is a Message or None, not a str"),
    ],
)
def test_parts_of_another_type_are_refused(parts, said):
    """The error says which part."""
    with pytest.raises(TypeError, match=said):
        ActionStep(**parts)


def test_every_step_is_plain_data():
    """`dict()` is what `full_steps()` has for it, and JSON."""
    memory = RunMemory("You compute.", every_kind())
    assert [step.dict() for step in memory.steps] == memory.full_steps()
    assert json.loads(json.dumps(memory.full_steps())) == memory.full_steps()
    assert SystemPromptStep("You compute.").dict() == {"kind": "system_prompt", "system_prompt": "You compute."}
    found = whole().dict()
    assert found["model_input_messages"][1] == {"role": "user", "content": [{"type": "text", "text": "How many?"}]}
    assert (found["model_output"], found["tool_calls"][0]["id"]) == ("I will count.", "c1")
    assert Reading({"in": 21.5}).dict() == {"kind": "test_by_hand_reading", "celsius": {"in": 21.5}}


def test_steps_by_hand_survive_to_json():
    """With what the model was sent, which stands in no other step."""
    memory = RunMemory("You compute.", every_kind())
    back = RunMemory.from_json(memory.to_json())
    assert back == memory
    assert [back.steps[place].model_input_messages for place in (2, 3)] == [SENT[:1], SENT]


async def test_steps_by_hand_are_sent_and_survive_the_journal(tmp_path):
    """Before the task and added while the run goes on."""
    store = SqliteStore(tmp_path / "runs.db")
    model = ScriptedModel(["Three."])
    run = Agent(single_run(), model=model, store=store).start("Sure?", steps=RunMemory(steps=every_kind()), run_id="r")
    run.memory.steps.append(ActionStep(model_output="Yes.", model_input_messages=[Message.user("Really?")]))
    result = await run.finish()
    assert model.requests[0].messages == tuple(RunMemory(steps=result.memory.steps[:-2]).to_messages())
    read = (await Agent(single_run(), model=model, store=store).read("r")).memory
    assert read == result.memory
    assert read.steps[3].model_input_messages == SENT
    assert read.steps[9].model_input_messages == (Message.user("Really?"),)


async def test_what_smolagents_sent_survives_the_journal(tmp_path):
    """A dump that is put before a task is kept whole."""
    sent = [{"role": "user", "content": [{"type": "text", "text": "New task: how many?"}]}]
    dump = [{"step_number": 1, "model_output": "Three.", "observations": None, "model_input_messages": sent}]
    store = SqliteStore(tmp_path / "runs.db")
    agent = Agent(single_run(), model=ScriptedModel(["Yes."]), store=store)
    await agent.run("Sure?", steps=load_steps(dump), run_id="r")
    [said] = (await agent.read("r")).memory.steps[0].model_input_messages
    assert said.text == "New task: how many?"


def test_what_is_derived_cannot_be_assigned():
    """The error says what can."""
    step = whole()
    with pytest.raises(
        AttributeError, match=re.escape("assign step.model_output_message = Message.assistant(text, calls)")
    ):
        step.model_output = "Two."
    step.model_output_message = Message.assistant("Two.")
    assert (step.model_output, step.tool_calls) == ("Two.", ())
