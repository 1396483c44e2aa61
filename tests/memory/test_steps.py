"""The transcript: what a model is sent for each step, what a turn was sent, forks, equality."""

from __future__ import annotations

import copy
import pickle
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as some

from graphagent.llm import Image, Message, ToolCall, ToolResult, ToolResults, Usage
from graphagent.memory import (
    ActionStep,
    Concept,
    FactsStep,
    FinalAnswerStep,
    KnownFact,
    MessageStep,
    RunMemory,
    Scope,
    SentPrompt,
    SingleFact,
    StepFailure,
    Subject,
    TaskStep,
    Timing,
)

PICTURE, OTHER = Image(b"\x89PNG one"), Image(b"\x89PNG two")
CALLS = (ToolCall("double", {"n": 1}, id="a"), ToolCall("double", {"n": 2}, id="b"))
RESULTS = (ToolResult("a", "double", "2"), ToolResult("b", "double", "4"))


def facts(value):
    known = KnownFact(
        SingleFact(Concept("city", "where the user lives"), value), Subject("user", "the user"), Scope.agent("a")
    )
    return FactsStep((known,))


def turn(calls=CALLS, results=RESULTS, **parts):
    return ActionStep(model_output_message=Message.assistant("Let me see.", calls), results=results, **parts)


def said(steps, system_prompt=""):
    return [message.text for message in RunMemory(system_prompt, steps).to_messages()]


def shape(step):
    return [(message.role, message.text) for message in step.to_messages()]


# ---- the order of messages


def test_the_system_prompt_stands_in_front_of_the_steps():
    """It is the first message, and there is none where there is no prompt."""
    assert said([TaskStep("task")], "Be brief.") == ["Be brief.", "task"]
    assert said([TaskStep("task")]) == ["task"]


def test_facts_that_were_loaded_before_the_first_turn_stand_before_the_task():
    """Whatever was said between the task and the facts stays behind the task; later facts stay where they were loaded."""
    steps = [
        TaskStep("task"),
        MessageStep(Message.user("hint")),
        facts("Oslo"),
        ActionStep(model_output_message=Message.assistant("hm")),
        facts("Bergen"),
        MessageStep(Message.user("and?")),
    ]
    oslo, task, hint, hm, bergen, last = said(steps)
    assert (task, hint, hm, last) == ("task", "hint", "hm", "and?")
    assert "Oslo" in oslo
    assert "Bergen" in bergen


def test_history_stands_before_the_task_and_keeps_its_own_facts():
    """Each task has the facts that were loaded for it in front of itself."""
    steps = [
        TaskStep("first"),
        facts("Oslo"),
        ActionStep(model_output_message=Message.assistant("one")),
        FinalAnswerStep("one"),
        TaskStep("second"),
        facts("Bergen"),
    ]
    oslo, first, one, bergen, second = said(steps)
    assert (first, one, second) == ("first", "one", "second")
    assert "Oslo" in oslo
    assert "Bergen" in bergen


def test_a_task_is_shown_as_what_it_is():
    """Text and images are one message, a Message is sent as it is, and anything else is not shown."""
    assert TaskStep("task", (PICTURE,)).to_messages() == [Message.user("task", PICTURE)]
    assert TaskStep(Message.user("hi", OTHER)).to_messages() == [Message.user("hi", OTHER)]
    assert TaskStep(Message.user("hi"), (PICTURE,)).to_messages() == [Message.user("hi"), Message.user(PICTURE)]
    assert TaskStep({"n": 1}).to_messages() == []
    assert TaskStep(None, (PICTURE,)).to_messages() == [Message.user(PICTURE)]


def test_a_final_answer_is_sent_where_the_model_did_not_say_it():
    """In a later run the model sees what was answered, once, whoever made the answer; what is no text is not shown."""
    said = ActionStep(model_output_message=Message.assistant("42"))
    assert shape(RunMemory(steps=[TaskStep("?"), said, FinalAnswerStep("42")])) == [("user", "?"), ("assistant", "42")]
    assert shape(RunMemory(steps=[TaskStep("?"), FinalAnswerStep("42")])) == [("user", "?"), ("assistant", "42")]
    assert shape(RunMemory(steps=[TaskStep("?"), FinalAnswerStep(42)])) == [("user", "?")]


# ---- turns


def test_a_turn_is_its_message_and_a_result_for_every_call():
    """Results follow in the order of the calls, whatever their own order is."""
    expected = [("assistant", "Let me see."), ("tool", "2"), ("tool", "4")]
    assert shape(turn()) == shape(turn(results=RESULTS[::-1])) == expected


def test_a_call_without_a_result_is_shown_as_not_executed():
    """A request with a call and no result would be refused by servers."""
    step = turn(results=RESULTS[1:])
    assert shape(step)[1:] == [("tool", "This call was not executed."), ("tool", "4")]
    assert step.to_messages()[1].parts[0].is_error


def test_observations_are_what_the_tools_gave():
    """They are derived from the results: one text, in their order; None where there are no results."""
    assert turn().observations == "2\n4"
    assert turn(results=()).observations is None
    assert ActionStep(model_output_message=Message.assistant("hi")).observations is None


def test_assigned_observations_are_what_the_model_sees_instead():
    """With several calls the first shows them and the others point to it; None brings the results back."""
    step = turn()
    step.observations = "both fine"
    assert step.observations == "both fine"
    assert shape(step)[1:] == [("tool", "both fine"), ("tool", "See the first result.")]
    assert [given.content for given in step.results] == ["2", "4"]
    step.observations = None
    assert shape(step)[1:] == [("tool", "2"), ("tool", "4")]


def test_observations_without_calls_are_the_users():
    """A step by hand is shown as an observation, with its images."""
    step = ActionStep(observations="It rains.", observations_images=[PICTURE])
    assert step.to_messages() == [Message.user("Observation:\nIt rains.", PICTURE)]


def test_images_are_those_of_the_results_until_others_are_assigned():
    """Assigned images are shown behind the results instead of theirs; None and an empty list show none."""
    results = (ToolResult("a", "look", "an image", images=(PICTURE,)), RESULTS[1])
    step = turn(results=results)
    assert step.observations_images == (PICTURE,)
    assert step.to_messages()[1].parts[0].images == (PICTURE,)
    assert len(step.to_messages()) == 3
    step.observations_images = [OTHER]
    assert step.observations_images == (OTHER,)
    assert step.to_messages()[1].parts[0].images == ()
    assert step.to_messages()[3] == Message.user(OTHER)
    for nothing in (None, []):
        step.observations_images = nothing
        assert [message.images for message in step.to_messages()] == [()] * 3
        assert step.to_messages()[1].parts[0].images == ()
    assert step.results == results


def test_an_error_of_a_step_is_shown():
    """A step that failed tells the model how."""
    step = ActionStep(error=StepFailure("ValueError", "too large"))
    assert shape(step) == [("user", "Error:\nValueError: too large")]


def test_results_can_be_put_in_the_place_of_others():
    """Those of other calls are ignored, and the rest stays."""
    step = turn()
    step.take([ToolResult("b", "double", "four"), ToolResult("z", "double", "?")])
    assert [given.content for given in step.results] == ["2", "four"]


def test_what_a_turn_is_and_said():
    """Its text and calls are those of its message; a step by hand has none."""
    assert (turn().model_output, turn().tool_calls) == ("Let me see.", CALLS)
    assert (ActionStep().model_output, ActionStep().tool_calls, ActionStep().to_messages()) == (None, (), [])


# ---- what was sent


texts = some.sampled_from(["a", "b", "c"])
prompts = some.lists(some.lists(texts, max_size=6), max_size=12)


def growing(edits):
    """Prompts as they come in a run: longer each time, and now and then edited or cut."""
    prompt = []
    for edit in edits:
        prompt = [*prompt[: len(prompt) - edit[0]], *edit[1]]
        yield prompt


def chained(lists):
    previous, sent = None, []
    for each in lists:
        previous = SentPrompt.of([Message.user(text) for text in each], previous)
        sent.append(previous)
    return sent


@given(prompts)
def test_any_prompts_are_given_back(lists):
    """Whatever came before, a prompt is told exactly."""
    for prompt, each in zip(chained(lists), lists, strict=True):
        assert [message.text for message in prompt.messages()] == each


@given(some.lists(some.tuples(some.integers(0, 3), some.lists(texts, min_size=1, max_size=3)), max_size=20))
def test_growing_and_edited_prompts_are_given_back_and_add_only_what_is_new(edits):
    """Each prompt keeps the longest beginning that it shares with the one before, and no more."""
    lists = list(growing(edits))
    before = []
    for prompt, each in zip(chained(lists), lists, strict=True):
        assert [message.text for message in prompt.messages()] == each
        shared = next((n for n, pair in enumerate(zip(before, each, strict=False)) if pair[0] != pair[1]), None)
        assert prompt.kept == (min(len(before), len(each)) if shared is None else shared)
        assert len(prompt.added) == len(each) - prompt.kept
        before = each


def test_the_space_of_a_prompt_does_not_grow_with_the_run():
    """Turns that each add a message hold that one message, and no prompt holds more than its own."""
    lists = [[f"message {n}" for n in range(length)] for length in range(1, 301)]
    sent = chained(lists)
    assert sum(len(prompt.added) for prompt in sent) == 300
    assert {sys.getsizeof(prompt) + sys.getsizeof(prompt.added) for prompt in sent[1:]} == {
        sys.getsizeof(sent[-1]) + sys.getsizeof(sent[-1].added)
    }
    assert [message.text for message in sent[-1].messages()] == lists[-1]


def test_a_long_run_can_be_shown_compared_and_copied():
    """Nothing about a transcript of thousands of turns runs into the limit of recursion."""
    prompt, steps = None, []
    for number in range(4000):
        prompt = SentPrompt(prompt, number, (Message.user("m"),))
        steps.append(ActionStep(prompt=prompt))
    assert repr(prompt) == "<prompt of 4000 messages, 3999 of them as before>"
    assert prompt.messages() == (Message.user("m"),) * 4000
    assert copy.copy(steps[-1]) == steps[-1]
    copied = pickle.loads(pickle.dumps(RunMemory("", steps)))
    assert copied.steps[-1].prompt.messages() == prompt.messages()


# ---- transcripts


def test_the_task_counts_as_heard_once():
    """The task is in the transcript already; the same text again, or other text, is a message."""
    memory = RunMemory()
    task = str(b"task", "ascii")
    memory.begin(task)
    memory.hear(task)
    assert len(memory.steps) == 1
    memory.answer(ActionStep(model_output_message=Message.assistant("hi")))
    memory.hear(task)
    assert memory.steps[2:] == [MessageStep(Message.user("task"))]


def test_equal_text_that_is_another_object_is_a_message():
    """The task is told from other text by being the same object."""
    memory = RunMemory()
    memory.begin(str(b"task", "ascii"))
    memory.hear(str(b"task", "ascii"))
    assert len(memory.steps) == 2


def test_what_was_asked_and_not_answered_is_not_repeated():
    """The same object, asked again before there was an answer, adds nothing."""
    memory = RunMemory()
    memory.begin({"n": 1})
    question = Message.user("Why?")
    memory.hear(question)
    memory.hear(question)
    assert memory.steps[1:] == [MessageStep(question)]


def test_results_that_are_heard_belong_to_the_last_turn():
    """They fill the turn that waits for them, or stand in the place of those that it has."""
    memory = RunMemory()
    memory.answer(turn(results=()))
    assert memory.steps == []
    memory.hear(ToolResults(RESULTS))
    assert memory.open is None
    assert memory.last_action.observations == "2\n4"
    memory.hear(ToolResults([ToolResult("a", "double", "two")]))
    assert memory.last_action.observations == "two\n4"
    RunMemory().hear(ToolResults(RESULTS))


def test_turns_are_counted_past_steps_by_hand():
    """The number of the last turn is found behind steps that no model turn made."""
    memory = RunMemory("", [ActionStep(step_number=4), ActionStep(observations="x")])
    assert memory.turns == 4
    assert RunMemory().turns == 0
    assert memory.last_action.observations == "x"


def test_a_fork_goes_its_own_way():
    """It begins with the same steps, an open turn included, and neither sees what the other adds."""
    memory = RunMemory("Rules.", [TaskStep("task")])
    memory.answer(turn(results=()))
    branch = memory.fork()
    assert branch.to_messages()[:3] == [Message.system("Rules."), Message.user("task"), turn().to_messages()[0]]
    assert branch.inherited == len(branch.steps) == 2
    branch.steps.append(MessageStep(Message.user("mine")))
    memory.close()
    memory.steps.append(MessageStep(Message.user("yours")))
    assert said(branch.steps)[-1] == "mine"
    assert said(memory.steps)[-1] == "yours"


def test_a_fork_knows_whether_the_task_was_heard():
    """The task counts once in each fork, and once in what it was forked from."""
    memory = RunMemory()
    task = str(b"task", "ascii")
    memory.begin(task)
    branch, other = memory.fork(), memory.fork()
    for each in (branch, other, memory):
        each.hear(task)
        assert len(each.steps) == 1


def test_joining_a_fork_takes_over_what_happened_in_it():
    """Only what the branch added follows, its open turn included."""
    memory = RunMemory("", [TaskStep("task")])
    branch = memory.fork()
    branch.steps.append(MessageStep(Message.user("mine")))
    branch.answer(turn(results=()))
    memory.join(branch)
    assert said(memory.steps) == ["task", "mine", "Let me see.", *["This call was not executed."] * 2]


def test_transcripts_are_equal_when_their_steps_are():
    """Prompts are compared by what was sent, however it is told."""
    whole = SentPrompt.of([Message.user("a"), Message.user("b")], None)
    told = SentPrompt.of(whole.messages(), SentPrompt.of([Message.user("a")], None))
    parts = {"step_number": 1, "timing": Timing(1, 2), "token_usage": Usage(1, 1), "action_output": "x"}
    one, other = (RunMemory("r", [TaskStep("t"), turn(prompt=prompt, **parts)]) for prompt in (whole, told))
    assert one == other
    assert one != RunMemory("other", one.steps)
    assert one != RunMemory("r", one.steps[:1])
    assert one != "r"


@pytest.mark.parametrize(
    "change",
    [
        {"step_number": 2}, {"results": RESULTS[:1]}, {"observations": "x"}, {"observations_images": [PICTURE]},
        {"action_output": 1}, {"error": StepFailure("E", "m")}, {"timing": Timing(1, 2)}, {"token_usage": Usage(1, 1)},
        {"prompt": SentPrompt.of([Message.user("a")], None)},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_turns_differ_in_every_part(change):
    """Two turns are equal only if all their parts are."""
    assert turn() == turn()
    assert turn() != turn(**{"results": RESULTS, **change})
    assert turn() != "turn"


def test_steps_that_can_change_are_not_hashable():
    """Neither a turn nor a transcript can be a key."""
    for each in (turn(), RunMemory()):
        with pytest.raises(TypeError, match="unhashable"):
            hash(each)


def test_a_transcript_survives_pickling():
    """A transcript goes to another process as it is."""
    memory = RunMemory(
        "r", [TaskStep("t", (PICTURE,)), turn(prompt=SentPrompt.of([Message.user("t")], None)), facts("Oslo")]
    )
    assert pickle.loads(pickle.dumps(memory)) == memory
