"""Dumps of smolagents: real ones, made by its release 1.26 with a scripted model, and what other releases write."""

from __future__ import annotations

import base64
import enum
import json
import logging
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from graphagent.llm import Image, Message, Text, ToolCall, Usage
from graphagent.memory import (
    ActionStep,
    FinalAnswerStep,
    PlanningStep,
    RunMemory,
    StepFailure,
    TaskStep,
    Timing,
)
from graphagent.migrate.smolagents import load_steps
from tests.thorough import examples

DATA = Path(__file__).parent / "data"
TOOLS, CODE = ((DATA / f"smolagents_{name}.json").read_text("utf-8") for name in ("tools", "code"))
PNG = b"\x89PNG\r\n\x1a\n and more"


def action(**fields):
    """A step as get_full_steps() gives it."""
    return {
        "step_number": 1, "timing": {"start_time": 1.0, "end_time": 2.5, "duration": 1.5}, "model_input_messages": None,
        "tool_calls": [], "error": None, "model_output_message": None, "model_output": None, "code_action": None,
        "observations": None, "observations_images": None, "action_output": None, "token_usage": None,
        "is_final_answer": False, **fields,
    }  # fmt: skip


def call(name="look", arguments=None, id_="a"):
    return {
        "id": id_,
        "type": "function",
        "function": {"name": name, "arguments": {} if arguments is None else arguments},
    }


def loaded(**fields):
    return load_steps([action(**fields)]).steps[0]


# ---- real dumps


def test_a_dump_of_tool_calls_is_read():
    """Plans, parallel calls, a failed call, the answer, times, tokens, and what the model was sent for each."""
    memory = load_steps(TOOLS)
    assert memory.system_prompt.system_prompt == "You can use tools."
    task, plan, first, failed, second_plan, last, answer = memory.steps
    assert task == TaskStep("Which services are up?")
    assert isinstance(plan, PlanningStep)
    assert "Facts: none. Plan: check web, then mail." in plan.plan
    assert plan.model_output_message == Message.assistant("Facts: none. Plan: check web, then mail.")
    assert (plan.token_usage, second_plan.token_usage) == (Usage(101, 10), Usage(104, 10))
    assert first.tool_calls == (
        ToolCall("check", {"service": "web"}, "call_2_0"), ToolCall("check", {"service": "db"}, "call_2_1"),
    )  # fmt: skip
    assert (first.step_number, first.observations) == (1, "web is up: [1, 2]\ndb is up: [1, 2]")
    assert 0 <= first.timing.duration < 1
    assert (failed.error.type, failed.model_output, failed.observations) == (
        "AgentToolExecutionError",
        "Now mail.",
        None,
    )
    assert "mail is down" in failed.error.message
    assert failed.tool_calls == (ToolCall("check", {"service": "mail"}, "call_3_0"),)
    assert last.tool_calls[0].name == "final_answer"
    assert answer == FinalAnswerStep("web and db are up, mail is down")
    sent = first.model_input_messages
    assert [message.role for message in sent] == ["system", "user", "assistant", "user"]
    assert "Which services are up?" in sent[1].text
    assert sent[1].parts[1] == Text("[an image that is not in the dump]")
    assert len(last.model_input_messages) > len(failed.model_input_messages) > len(sent)


def test_a_dump_of_an_agent_that_writes_code_is_read():
    """The code of each step is kept, as the call that it was; and so are errors and outputs."""
    memory = load_steps(CODE.encode())
    task, first, failed, last, answer = memory.steps
    assert task.task == "What is the 20th Fibonacci number?"
    assert first.code_action.startswith("a, b = 0, 1\nfor _ in range(20):")
    assert first.tool_calls == (ToolCall("python_interpreter", {"code": first.code_action}, "call_1"),)
    assert first.observations == "Execution logs:\n6765\nLast output from code snippet:\nNone"
    assert first.model_output.startswith("Thought: compute.\n<code>\n")
    assert (failed.error.type, failed.code_action) == ("AgentExecutionError", "1/0")
    assert (last.action_output, answer.output) == ("{1, 2}", "{1, 2}")
    assert last.to_messages()[0].text == last.model_output


@pytest.mark.parametrize("dump", [TOOLS, CODE], ids=["tools", "code"])
def test_what_was_read_is_a_transcript_like_any(dump):
    """It can be saved, told, shown to a model, and followed by a run."""
    memory = load_steps(dump)
    assert RunMemory.from_json(memory.to_json()) == memory
    assert memory.steps[0].task in memory.to_text(detailed=True)
    assert [message.role for message in memory.to_messages()][:2] == ["system", "user"]
    assert json.loads(json.dumps(memory.full_steps())) == memory.full_steps()
    assert memory.turns == 3


@pytest.mark.parametrize("dump", [TOOLS, CODE], ids=["tools", "code"])
def test_the_succinct_form_is_read_too(dump):
    """All is there but what the model was sent, and the rules that are taken from it."""
    succinct = [
        {key: value for key, value in step.items() if key != "model_input_messages"} for step in json.loads(dump)
    ]
    whole, short = load_steps(dump), load_steps(succinct)
    assert short.system_prompt.system_prompt == ""
    for step in whole.steps:
        if isinstance(step, ActionStep | PlanningStep):
            step.prompt = None
    assert short.steps == whole.steps


def test_images_that_are_not_in_the_dump_are_counted(caplog):
    """It writes pixels without their size, and the names of objects: what cannot be read is left out, and said."""
    with caplog.at_level(logging.WARNING, logger="graphagent"):
        memory = load_steps(TOOLS)
    assert caplog.messages == ["4 images of a dump of smolagents were left out: it does not hold their data"]
    assert all(not step.observations_images for step in memory.steps if isinstance(step, ActionStep))
    caplog.clear()
    load_steps([{"task": "t", "task_images": None}])
    assert caplog.messages == []


# ---- what other releases, and programs, write


def test_steps_of_older_releases_are_read():
    """Until 1.17 the number was called `step`, until 1.15 the times stood in the step, and until 1.10 a plan was two texts."""
    memory = load_steps(
        [
            {"task": "Look.", "task_images": None},
            {"model_input_messages": [], "model_output_message_facts": None, "facts": "It is day.", "plan": "1. Look."},
            {
                "model_input_messages": [{"role": "user", "content": [{"type": "text", "text": "Look."}]}],
                "tool_calls": [call("python_interpreter", "final_answer(5)", "call_1")], "start_time": 1.5, "end_time": 2.0,
                "step": 1, "error": None, "duration": 0.5, "model_output_message": "ChatMessage(role='assistant', …)",
                "model_output": "Thought: easy.", "observations": "Execution logs:", "action_output": 5,
            },
        ]
    )  # fmt: skip
    task, plan, step, answer = memory.steps
    assert (task.task, plan.plan, answer.output) == ("Look.", "It is day.\n\n1. Look.", 5)
    assert (step.step_number, step.timing, step.model_output) == (1, Timing(1500, 2000), "Thought: easy.")
    assert (step.code_action, step.model_input_messages) == ("final_answer(5)", (Message.user("Look."),))


def test_other_steps_are_read():
    """The system prompt and the answer, which are dumped by who adds them; and the dict of a RunResult."""
    memory = load_steps({"output": 5, "state": "success", "steps": [{"system_prompt": "Be brief."}, {"output": [1]}]})
    assert memory == RunMemory("Be brief.", [FinalAnswerStep([1])])


def test_empty_dumps_are_empty_transcripts():
    """An agent that never ran has no steps."""
    assert load_steps([]) == load_steps("[]") == RunMemory()


class Role(enum.StrEnum):
    TOOL_CALL = "tool-call"


class Object:
    def __init__(self, **fields):
        vars(self).update(fields)


def test_dumps_are_read_as_objects_too():
    """What stands in the list that smolagents gives, before anything is made JSON of it."""
    function = Object(name="look", arguments={"far": True})
    said = Object(role=Role.TOOL_CALL, content="Calling", tool_calls=[Object(id="x", function=function)])
    step = loaded(
        model_output_message=said,
        model_input_messages=[
            {"role": Role.TOOL_CALL, "content": "Calling"},
            Object(role="user", content=None, tool_calls=None),
        ],
        token_usage=Object(input_tokens=3, output_tokens=4),
        timing=Object(start_time=0, end_time=None),
        error="it broke",
        action_output={1, 2},
    )
    assert (step.model_output, step.tool_calls) == ("Calling", (ToolCall("look", {"far": True}, "x"),))
    assert step.model_input_messages == (Message.assistant("Calling"), Message("user", ()))
    assert (step.token_usage, step.timing, step.error) == (Usage(3, 4), None, StepFailure("AgentError", "it broke"))
    assert step.action_output == {1, 2}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("text", "text"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "text", "text": ["looks", "like JSON"]}], '["looks", "like JSON"]'),
        (["looks", "like JSON"], '["looks", "like JSON"]'),
        ({"looks": "like JSON"}, '{"looks": "like JSON"}'),
        ([{"type": "thinking", "what": 1}], '{"type": "thinking", "what": 1}'),
        ("", ""),
    ],
)
def test_text_that_smolagents_parsed_is_text_again(given, found):
    """It makes objects of text that looks like JSON; what the model said was text."""
    assert loaded(model_output=given).model_output == found
    assert loaded(model_input_messages=[{"role": "user", "content": given}]).model_input_messages[0].text == found


def test_calls_keep_what_the_model_gave():
    """Arguments that are no object, ids that are missing or come twice, and a turn without any text."""
    step = loaded(tool_calls=[call("f", "5", ""), call("f", [1], "a"), call("f", {}, "a"), call("g", {}, None)])
    assert [(each.id, each.arguments, each.malformed) for each in step.tool_calls] == [
        ("call-1", {}, "5"), ("a", {}, "[1]"), ("a-3", {}, ""), ("call-4", {}, ""),
    ]  # fmt: skip
    assert step.model_output == ""
    assert loaded().model_output is None


class Picture:
    def save(self, file, format):
        assert format == "PNG"
        file.write(PNG)


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (Picture(), Image(PNG)),
        (PNG, Image(PNG)),
        (str(PNG), Image(PNG)),
        (b"GIF89a...", Image(b"GIF89a...", "image/gif")),
        (b"\xff\xd8\xff...\xff\xd9", Image(b"\xff\xd8\xff...\xff\xd9", "image/jpeg")),
        (b"RIFF....WEBP", Image(b"RIFF....WEBP", "image/webp")),
        (base64.b64encode(PNG).decode(), Image(PNG)),
        (f"data:image/png;base64,{base64.b64encode(PNG).decode()}", Image(PNG)),
        ("https://example.org/a.png", Image(url="https://example.org/a.png")),
        (b"\x00" * 12, None),
        (b"\xff\xd8\xff pixels", None),
        (b"RIFF....WAVE", None),
        ("<PIL.Image.Image image mode=RGB size=4x4 at 0x7F>", None),
        ("b'broken", None),
        ("data:image/png;base64,????", None),
        ({"_type": "Image", "_size": [4, 4]}, None),
        (None, None),
    ],
    ids=lambda value: str(value)[:30],
)
def test_images_are_recovered_where_their_data_are_there(image, found):
    """As pictures, files, addresses, and text of these; pixels and names of objects are none."""
    [task, step] = load_steps([{"task": "t", "task_images": [image]}, action(observations_images=[image])]).steps
    assert task.task_images == step.observations_images == (() if found is None else (found,))
    shown = (
        {"type": "image_url", "image_url": {"url": image}}
        if isinstance(image, str)
        else {"type": "image", "image": image}
    )
    [message] = loaded(model_input_messages=[{"role": "user", "content": [shown]}]).model_input_messages
    assert message.parts == (found or Text("[an image that is not in the dump]"),)


# ---- what is refused


@pytest.mark.parametrize(
    ("dump", "said"),
    [
        ("secret", "a dump of smolagents is JSON"),
        ("", "a dump of smolagents is JSON"),
        (b"\xff", "a dump of smolagents is JSON"),
        ("5", "a dump of smolagents is a list of steps"),
        ({"secret": 1}, "a dump of smolagents is a list of steps"),
        ([{"task": "t"}, 5], "step 1 is not a step of a dump of smolagents: it is an int, not an object"),
        ([{"task": "t"}, {"task": "t"}, {"secret": 1}], "step 2 is not a step .* its fields fit no type of step"),
        ([{}], "step 0 is not a step"),
        ([{"output": 1, "secret": 2}], "step 0 is not a step"),
        ([action(step_number="secret")], "step 0 is not a step .*: its number is not valid"),
        ([action(timing={"start_time": "secret", "end_time": "secret"})], r"step 0 .* not valid \(TypeError\)"),
        ([action(token_usage={"input_tokens": "secret", "output_tokens": 1})], r"step 0 .* not valid \(ValueError\)"),
        ([action(timing={"start_time": float("inf"), "end_time": 1})], r"step 0 .* not valid \(OverflowError\)"),
        ([action(tool_calls=5)], "step 0 .* not valid"),
        (RunMemory("", [TaskStep("secret")]).full_steps(), "load the result of RunMemory.to_json"),
    ],
)  # fmt: skip
def test_what_is_no_dump_is_refused(dump, said):
    """The error says which step is none, and not what stands in it."""
    with pytest.raises(ValueError, match=said) as raised:
        load_steps(dump)
    assert "secret" not in str(raised.value)


def test_a_dump_with_what_is_no_json_number_is_read():
    """Python writes NaN where JSON has nothing."""
    [step] = load_steps(json.dumps([action(action_output=float("nan"))])).steps
    assert math.isnan(step.action_output)


def test_integers_keep_all_their_digits():
    """Such as those of more than 64 bits, which smolagents 1.26 writes as Python has them."""
    [step] = load_steps(json.dumps([action(action_output=math.factorial(25))])).steps
    assert step.action_output == 15511210043330985984000000


def test_the_answer_of_a_run_that_hit_its_limit_of_steps_is_its_answer():
    """In dumps of smolagents 1.26 it is the output of a step that failed and is not said to have the answer."""
    error = {"type": "AgentMaxStepsError", "message": "Reached max steps."}
    dump = [action(), action(error=error, action_output="I saw two of three pages.", is_final_answer=False)]
    *_, step, answer = load_steps(dump).steps
    assert (step.error.type, answer) == ("AgentMaxStepsError", FinalAnswerStep("I saw two of three pages."))


@settings(deadline=None, max_examples=examples(300))
@given(some.data())
def test_a_damaged_dump_is_a_value_error(data):
    """Whatever is missing or something else, the dump is read or refused by the number of the step, and nothing is shown."""
    dump = json.loads(data.draw(some.sampled_from([TOOLS, CODE])))
    number = data.draw(some.integers(0, len(dump) - 1))
    at, key = dump, number
    while isinstance(at[key], dict | list) and at[key] and data.draw(some.integers(0, 4)):
        at = at[key]
        key = data.draw(some.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
    junk = [None, 5, -1.5, True, "secret", [], ["secret"], {}, {"secret": "secret"}, [["secret"]], {"type": "text"}]
    if data.draw(some.booleans()):
        at[key] = data.draw(some.sampled_from(junk))
    else:
        del at[key]
    try:
        memory = load_steps(dump)
    except ValueError as error:
        told = f"{error} {error.__context__}"
    else:
        told = "step"
        memory.to_text(detailed=True)
    assert "step" in told
    assert "secret" not in told
