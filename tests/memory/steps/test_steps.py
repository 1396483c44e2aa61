"""The transcript: what a model is sent for each step, what a turn was sent, forks, equality, and how its list is changed."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from graphagent.llm import Image, Message, ToolCall, ToolResult, ToolResults, Usage
from graphagent.memory import (
    ActionStep,
    Concept,
    FactsStep,
    FinalAnswerStep,
    KnownFact,
    MessageStep,
    PlanningStep,
    RunMemory,
    Scope,
    SingleFact,
    Step,
    StepFailure,
    Subject,
    SummaryStep,
    TaskStep,
    Timing,
)
from graphagent.memory._internal import SentPrompt
from graphagent.memory.steps._list import Steps
from graphagent.memory.steps._transcript import Added, Edited, Opened, Replaced, Shut
from tests.thorough import examples

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


def take(memory, steps):
    """Adds what a transcript gave, as the engine does."""
    memory.steps.extend(steps)
    return memory


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


@given(prompts)
def test_a_prompt_can_be_told_from_any_before_it(lists):
    """What differs to a prompt several turns ago is the same messages, behind what all prompts between have in common."""
    sent = chained(lists)
    for place, prompt in enumerate(sent):
        assert prompt.since(None).kept == 0
        for earlier in range(place + 1):
            told = prompt.since(sent[earlier])
            assert told.messages() == prompt.messages()
            assert told.previous is sent[earlier]
            assert told.kept <= min(each.size for each in sent[earlier : place + 1])
            assert told.kept + len(told.added) == told.size == prompt.size


@given(some.lists(some.tuples(texts, some.booleans()), min_size=1, max_size=6), some.data())
def test_a_prompt_knows_what_stands_in_no_step_however_it_is_told(lists, data):
    """The places of messages that no step gives are the same for a prompt that is told as a whole."""
    prompt, written = None, []
    for text, is_written in lists:
        derived = [*(prompt.messages() if prompt else ()), Message.user(text)]
        prompt = SentPrompt.of(derived, prompt, derived[:-1] if is_written else derived)
        written.append(is_written)
    whole = prompt.since(None)
    assert whole.written == {place for place, is_written in enumerate(written) if is_written}
    cut = data.draw(some.integers(0, len(lists)))
    assert SentPrompt(prompt, cut, (), size=cut).since(None).written == {each for each in whole.written if each < cut}


def test_the_space_of_a_prompt_does_not_grow_with_the_run():
    """Turns that each add a message hold that one message, and no prompt holds more than its own."""
    lists = [[f"message {n}" for n in range(length)] for length in range(1, 301)]
    sent = chained(lists)
    assert sum(len(prompt.added) for prompt in sent) == 300
    assert {sys.getsizeof(prompt) + sys.getsizeof(prompt.added) for prompt in sent[1:]} == {
        sys.getsizeof(sent[-1]) + sys.getsizeof(sent[-1].added)
    }
    assert [prompt.size for prompt in sent] == list(range(1, 301))
    assert [message.text for message in sent[-1].messages()] == lists[-1]


def test_a_long_run_can_be_shown_compared_and_copied():
    """Nothing about a transcript of thousands of turns runs into the limit of recursion."""
    prompt, steps = None, []
    for number in range(4000):
        prompt = SentPrompt(prompt, number, (Message.user("m"),), size=number + 1)
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
    assert memory.hear(task) == []
    take(memory, memory.answer(ActionStep(model_output_message=Message.assistant("hi"))))
    assert memory.hear(task) == [MessageStep(Message.user("task"))]


def test_equal_text_that_is_another_object_is_a_message():
    """The task is told from other text by being the same object."""
    memory = RunMemory()
    memory.begin(str(b"task", "ascii"))
    assert memory.hear(str(b"task", "ascii")) == [MessageStep(Message.user("task"))]


def test_what_was_asked_and_not_answered_is_not_repeated():
    """The same object, asked again before there was an answer, adds nothing."""
    memory = RunMemory()
    memory.begin({"n": 1})
    question = Message.user("Why?")
    assert memory.hear(question) == [MessageStep(question)]
    assert memory.hear(question) == []


def test_results_that_are_heard_belong_to_the_last_turn():
    """They fill the turn that waits for them, which is complete then, or stand in the place of those that it has."""
    memory, made = RunMemory(), turn(results=())
    assert memory.answer(made) == []
    assert memory.open is made
    [complete] = memory.hear(ToolResults(RESULTS))
    assert complete is made
    assert memory.open is None
    take(memory, [complete])
    assert memory.steps[0] is made
    assert memory.last_action.observations == "2\n4"
    assert memory.hear(ToolResults([ToolResult("a", "double", "two")])) == []
    assert memory.last_action.observations == "two\n4"
    assert RunMemory().hear(ToolResults(RESULTS)) == []


def test_a_turn_that_waits_is_closed_by_what_comes_next():
    """Text that is heard, or another turn, follows the turn whose calls have no results."""
    memory, first, second = RunMemory(), turn(results=()), ActionStep(model_output_message=Message.assistant("hm"))
    memory.answer(first)
    assert memory.hear("stop") == [first, MessageStep(Message.user("stop"))]
    memory.answer(first)
    assert memory.answer(second) == [first, second]
    memory.answer(first)
    assert memory.answer(copy.copy(first)) == [first]
    assert memory.open is not None
    assert memory.open is not first
    assert memory.shut() == [first]
    assert memory.shut() == []


def test_what_was_sent_last_is_known():
    """The next prompt is told as the difference to it; a turn by hand changes nothing."""
    memory, prompt = RunMemory(), SentPrompt.of([Message.user("a")], None)
    assert memory.last_prompt is None
    memory.answer(ActionStep(prompt=prompt))
    memory.answer(ActionStep())
    assert memory.last_prompt is prompt
    assert RunMemory("", [TaskStep("t"), PlanningStep("p", prompt=prompt), ActionStep()]).last_prompt is prompt


def test_the_turn_that_made_calls_is_found():
    """It is the last turn, if all calls are its own."""
    memory = RunMemory()
    memory.answer(turn(results=()))
    assert memory.turn_of(CALLS[1:]) is memory.open
    assert memory.turn_of([*CALLS, ToolCall("f", {}, "z")]) is None
    assert RunMemory().turn_of(CALLS) is None


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
    branch, late = memory.fork(), memory.fork()
    assert branch.to_messages()[:3] == [Message.system("Rules."), Message.user("task"), turn().to_messages()[0]]
    assert branch.inherited == len(branch.steps) == 2
    branch.steps.append(MessageStep(Message.user("mine")))
    branch.steps[0].task = "mine"
    take(memory, memory.shut())
    memory.steps.append(MessageStep(Message.user("yours")))
    assert said(branch.steps)[-1] == "mine"
    assert said(memory.steps)[-1] == "yours"
    assert memory.steps[0].task == "task"
    assert [type(step) for step in late.steps] == [TaskStep, ActionStep]


def test_a_fork_knows_whether_the_task_was_heard():
    """The task counts once in each fork, and once in what it was forked from."""
    memory = RunMemory()
    task = str(b"task", "ascii")
    memory.begin(task)
    branch, other = memory.fork(), memory.fork()
    for each in (branch, other, memory):
        assert each.hear(task) == []
        assert len(each.hear(task)) == (each.heard(None)[0] is True)


def test_joining_a_fork_takes_over_what_happened_in_it():
    """Only what the branch added follows; of one that nobody looked at, nothing."""
    memory = RunMemory("", [TaskStep("task")])
    branch, idle = memory.fork(), memory.fork()
    branch.steps.append(MessageStep(Message.user("mine")))
    branch.answer(turn(results=()))
    take(branch, branch.shut())
    memory.join(branch)
    memory.join(idle)
    assert not idle.loaded
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
    one.open = turn(results=())
    assert one != other
    other.open = turn(results=())
    assert one == other


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
    """A transcript goes to another process as it is, with the turn that waits for its calls."""
    memory = RunMemory(
        "r", [TaskStep("t", (PICTURE,)), turn(prompt=SentPrompt.of([Message.user("t")], None)), facts("Oslo")]
    )
    memory.answer(turn(results=(), prompt=SentPrompt.of([Message.user("t"), Message.user("u")], memory.last_prompt)))
    again = pickle.loads(pickle.dumps(memory))
    assert again == memory
    assert again.open == memory.open
    assert again.last_prompt.messages() == memory.last_prompt.messages()
    again.open.error = StepFailure("E", "m")
    assert [type(change) for change in again.changes()] == [Added, Added, Added, Opened]


# ---- summaries


def test_a_summary_stands_in_for_the_steps_before_it():
    """The model sees the summary instead of what it covers; the task is sent all the same, and the steps stay."""
    steps = [TaskStep("task"), MessageStep(Message.user("one")), turn(), MessageStep(Message.user("two"))]
    assert said(steps) == ["task", "one", "Let me see.", "2", "4", "two"]
    steps.append(SummaryStep("all good", covers=2))
    task, one, summary = said(steps)
    assert (task, one) == ("task", "one")
    assert "all good" in summary
    assert len(said([*steps, SummaryStep("and better", covers=9)])) == 2


def any_step(number, place):
    match number:
        case 0:
            return TaskStep(f"task {place}")
        case 1:
            return facts(f"fact {place}")
        case 2:
            return SummaryStep(f"summary {place}", covers=place % 5)
        case 3:
            return FinalAnswerStep(f"answer {place}")
        case 4:
            return MessageStep(Message.user(f"note {place}"))
        case _:
            return ActionStep(model_output_message=Message.assistant(f"said {place}"))


@given(some.lists(some.integers(0, 6), max_size=12))
def test_what_is_derived_does_not_depend_on_when_it_was_looked_at(numbers):
    """Messages are the same for a transcript that was looked at after each step, and for one that never was."""
    watched = RunMemory("Rules.")
    for place, number in enumerate(numbers):
        watched.steps.append(any_step(number, place))
        looked = watched.to_messages()
        assert looked == RunMemory("Rules.", watched.steps).to_messages()


@given(some.lists(some.sampled_from([0, 2, 4, 5]), max_size=12))
def test_summaries_hide_what_they_cover_and_nothing_else(numbers):
    """Each step that no later summary covers is shown, in order, and so is the task that was the last one then."""
    steps = [any_step(number, place) for place, number in enumerate(numbers)]
    hidden = {
        covered
        for place, step in enumerate(steps)
        if isinstance(step, SummaryStep)
        for covered in range(max(place - step.covers, 0), place)
        if not isinstance(steps[covered], TaskStep)
        or any(isinstance(later, TaskStep) for later in steps[covered + 1 : place])
    }
    shown = [step for place, step in enumerate(steps) if place not in hidden]
    assert RunMemory("", steps).to_messages() == [message for step in shown for message in step.to_messages()]


# ---- the list of steps


def note(text="x"):
    return MessageStep(Message.user(text))


def texts_of(steps):
    return [step.message.text for step in steps]


OPERATIONS = {
    "append": lambda steps: steps.append(note("new")),
    "extend": lambda steps: steps.extend([note("new"), note("newer")]),
    "add in place": lambda steps: steps.__iadd__([note("new")]),
    "insert": lambda steps: steps.insert(1, note("new")),
    "insert far": lambda steps: steps.insert(99, note("new")),
    "pop": lambda steps: steps.pop(),
    "pop first": lambda steps: steps.pop(0),
    "remove": lambda steps: steps.remove(note("b")),
    "clear": lambda steps: steps.clear(),
    "reverse": lambda steps: steps.reverse(),
    "sort": lambda steps: steps.sort(key=lambda step: step.message.text, reverse=True),
    "set": lambda steps: steps.__setitem__(1, note("new")),
    "set slice": lambda steps: steps.__setitem__(slice(1, 2), [note("new"), note("newer")]),
    "set every other": lambda steps: steps.__setitem__(slice(None, None, 2), [note("new"), note("newer")]),
    "set nothing": lambda steps: steps.__setitem__(slice(1, 1), []),
    "delete": lambda steps: steps.__delitem__(1),
    "delete slice": lambda steps: steps.__delitem__(slice(0, 2)),
    "delete every other": lambda steps: steps.__delitem__(slice(None, None, 2)),
}


@pytest.mark.parametrize("change", OPERATIONS.values(), ids=OPERATIONS)
def test_steps_are_changed_like_any_list(change):
    """Every operation does what it does to a list, and is told by `changes`."""
    steps = [note("a"), note("b"), note("c")]
    memory, plain = RunMemory("", steps), list(steps)
    memory.changes()
    memory.kept(None)
    change(memory.steps)
    change(plain)
    assert memory.steps == plain
    assert told(memory.changes(), steps, None) == (plain, None)


@pytest.mark.parametrize(
    "change",
    [
        lambda steps: steps.append("text"),
        lambda steps: steps.extend([note(), 5]),
        lambda steps: steps.insert(0, None),
        lambda steps: steps.__setitem__(0, "text"),
        lambda steps: steps.__setitem__(slice(0, 2), [note(), "text"]),
        lambda steps: steps.__setitem__(slice(None, None, 2), [note()]),
        lambda steps: steps.__setitem__(9, note()),
        lambda steps: steps.pop(9),
        lambda steps: steps.remove(note("other")),
        lambda steps: steps.__delitem__(9),
        lambda steps: steps.__imul__(2),
    ],
)
def test_what_cannot_be_done_changes_nothing(change):
    """What is no step is refused, as is what no list can do; afterwards all is as it was, and edits are still noticed."""
    memory = RunMemory("", [note("a"), note("b"), note("c")])
    memory.changes()
    memory.kept(None)
    with pytest.raises((TypeError, ValueError, IndexError)):
        change(memory.steps)
    assert texts_of(memory.steps) == ["a", "b", "c"]
    assert memory.changes() == []
    memory.steps[0].message = Message.user("edited")
    assert memory.changes() == [Edited(0, memory.steps[0], frozenset({"message"}))]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            ActionStep(model_output_message=3),
            "the model_output_message of an ActionStep is a Message or None, not an int",
        ),
        (ActionStep(model_output_message="Hi."), "a Message or None, not a str"),
        (ActionStep(results=["2"]), "the results of an ActionStep is a tuple of ToolResult, with a str in it"),
        (ActionStep(observations=4), "the observations of an ActionStep is text or None, not an int"),
        (ActionStep(step_number="1"), "the step_number of an ActionStep is an int, not a str"),
        (ActionStep(error=ValueError("no")), "the error of an ActionStep is a StepFailure or None, not a ValueError"),
        (MessageStep("Hi."), "the message of a MessageStep is a Message, not a str"),
        (PlanningStep(None), "the plan of a PlanningStep is text, not None"),
        (SummaryStep("all", covers="2"), "the covers of a SummaryStep is an int, not a str"),
        (FactsStep(("city",)), "the facts of a FactsStep is a tuple of KnownFact, with a str in it"),
    ],
)
def test_a_step_of_wrong_parts_is_refused_where_it_is_added(wrong, said):
    """The error names the step and the part; whichever way it comes, nothing is added."""
    memory = RunMemory("", [note("a")])
    for add in (
        lambda: memory.steps.append(wrong),
        lambda: memory.steps.extend([note("b"), wrong]),
        lambda: memory.steps.insert(0, wrong),
        lambda: memory.steps.__setitem__(0, wrong),
        lambda: RunMemory("", [wrong]),
    ):
        with pytest.raises(TypeError, match=re.escape(said)):
            add()
    assert texts_of(memory.steps) == ["a"]


def test_a_part_of_a_wrong_type_cannot_be_assigned():
    """The step stays as it was, and so does what is known of edits; the system prompt is checked too."""
    memory = RunMemory("Be brief.", [turn()])
    memory.changes()
    memory.kept(None)
    step = memory.steps[0]
    before = copy.copy(step)
    for name, value in [
        ("model_output_message", "Hi."),
        ("observations", 3),
        ("results", ("2",)),
        ("step_number", None),
    ]:
        with pytest.raises(TypeError, match=f"the {name} of an ActionStep is"):
            setattr(step, name, value)
    with pytest.raises(TypeError, match=r"is a SystemPromptStep\(text\), not a str"):
        memory.system_prompt = "Be long."
    assert (step, memory.changes()) == (before, [])
    assert memory.system_prompt.system_prompt == "Be brief."


def test_what_cannot_be_assigned_says_what_can():
    """What the model said is one message; a name that is no field is answered with those that are."""
    step = turn()
    for one in (step, RunMemory("", [step]).steps[0]):
        with pytest.raises(
            AttributeError, match=r"model_output of an ActionStep.*step\.model_output_message = Message\.assistant"
        ):
            one.model_output = "Hi."
        with pytest.raises(AttributeError, match=r"tool_calls of an ActionStep.*model_output_message = "):
            one.tool_calls = ()
        with pytest.raises(AttributeError, match="is a record, and model_input_messages of an ActionStep cannot"):
            one.model_input_messages = ()
    with pytest.raises(
        AttributeError, match="an ActionStep has no field 'output' to assign; it has action_output, code_action"
    ):
        step.output = "Hi."
    with pytest.raises(AttributeError, match="a MessageStep has no field 'text' to assign; it has message"):
        note("a").text = "b"


def test_assigning_the_steps_changes_the_list_that_is_there():
    """Whoever holds the list sees the new steps; a list that is assigned is not shared."""
    memory, mine = RunMemory("", [note("a")]), [note("b")]
    steps = memory.steps
    memory.steps = mine
    mine.append(note("c"))
    assert memory.steps is steps
    assert texts_of(steps) == ["b"]


def test_another_transcripts_steps_are_taken_over_as_copies():
    """What is edited in one shows in no other."""
    one = RunMemory("", [note("a")])
    other = RunMemory("", one.steps)
    other.steps += one.steps
    one.steps[0].message = Message.user("edited")
    assert texts_of(other.steps) == ["a", "a"]


def test_a_step_stands_in_one_place():
    """One that is put into a list twice is two steps afterwards; one that only changes its place stays the same."""
    memory = RunMemory("", [note("a"), note("b")])
    first, second = memory.steps
    memory.steps.append(first)
    memory.steps.extend(memory.steps)
    memory.steps[-1].message = Message.user("edited")
    assert texts_of(memory.steps) == ["a", "b", "a", "a", "b", "edited"]
    memory.steps[:] = [second, first]
    assert memory.steps[0] is second
    assert memory.steps[1] is first
    memory.steps.append(memory.steps.pop(0))
    assert memory.steps[1] is second


def test_a_step_that_was_removed_is_watched_no_more():
    """It can be edited without a trace, and stand elsewhere as the same object."""
    memory, other = RunMemory("", [note("a"), note("b")]), RunMemory()
    memory.changes()
    memory.kept(None)
    gone = memory.steps.pop()
    other.steps.append(gone)
    assert other.steps[0] is gone
    gone.message = Message.user("edited")
    assert memory.changes() == [Replaced(1, 1, ())]


def test_edits_are_told_with_the_fields_that_were_assigned():
    """What is assigned through a property is told as the field that holds it."""
    memory = RunMemory("", [TaskStep("t"), turn()])
    memory.changes()
    memory.kept(None)
    memory.steps[1].observations = "seen"
    memory.steps[1].observations_images = [PICTURE]
    memory.steps[1].timing = Timing(1, 2)
    [edited] = memory.changes()
    assert edited == Edited(1, memory.steps[1], frozenset({"_observations", "_observations_images", "timing"}))


def test_an_edit_of_the_open_turn_leaves_what_was_derived():
    """A callback that changes each turn before it joins does not make every prompt be derived from the beginning."""
    memory = RunMemory("", [TaskStep("t"), turn()])
    memory.answer(turn(results=()))
    before = memory.steps.version
    memory.open.observations = "seen"
    assert memory.steps.version == before
    take(memory, memory.shut())
    memory.steps[-1].observations = "seen again"
    assert memory.steps.version > before
    assert said(memory.steps)[-2:] == ["seen again", "See the first result."]


def test_a_journal_knows_which_steps_it_has_unchanged():
    """What was written down counts no more once a field was assigned, wherever the step stood then."""
    memory, journal = RunMemory("", [note("a"), note("b")]), object()
    for place, step in enumerate(memory.steps):
        step.record(journal, [place])
    memory.steps[0].message = Message.user("edited")
    gone = memory.steps.pop()
    gone.message = Message.user("edited")
    assert memory.steps[0].recorded is None
    assert gone.recorded is None
    assert copy.copy(memory.steps[0]).recorded is None


def told(changes, steps, turn):
    """The steps, and the open turn, of whoever is only told the changes."""
    for change in changes:
        match change:
            case Added(step):
                steps = [*steps, step]
            case Replaced(place, count, put):
                steps = [*steps[:place], *put, *steps[place + count :]]
            case Edited(place, step, names):
                target = turn if place is None else steps[place]
                for name in names:
                    object.__setattr__(target, name, getattr(step, name))
            case Opened(step):
                turn = step
            case Shut():
                steps, turn = [*steps, turn], None
    return steps, turn


class Recording(RuleBasedStateMachine):
    """A transcript that is changed in any way, beside a copy that is only told the changes."""

    def __init__(self):
        super().__init__()
        self.memory = RunMemory("", [note("0")])
        self.copied = []
        self.count = 0
        self.turn = None
        self.look()

    def fresh(self):
        self.count += 1
        return turn(step_number=self.count) if self.count % 2 else note(str(self.count))

    @rule()
    def append(self):
        self.memory.steps.append(self.fresh())

    @rule(place=some.integers(-3, 6))
    def insert(self, place):
        self.memory.steps.insert(place, self.fresh())

    @rule(start=some.integers(0, 6), count=some.integers(0, 3), new=some.integers(0, 3))
    def put(self, start, count, new):
        self.memory.steps[start : start + count] = [self.fresh() for _ in range(new)]

    @rule(start=some.integers(0, 6), count=some.integers(0, 4))
    def delete(self, start, count):
        del self.memory.steps[start : start + count]

    @rule()
    def reverse(self):
        self.memory.steps.reverse()

    @rule(place=some.integers(0, 6))
    def edit(self, place):
        for step in self.memory.steps[place : place + 1]:
            if isinstance(step, ActionStep):
                step.timing = Timing(self.count, self.count)
            else:
                step.message = Message.user(f"edited {self.count}")

    @rule()
    def open(self):
        self.memory.steps.extend(self.memory.answer(turn(results=())))

    @precondition(lambda self: self.memory.open is not None)
    @rule()
    def edit_open(self):
        self.memory.open.observations = f"seen {self.count}"

    @rule()
    def shut(self):
        self.memory.steps.extend(self.memory.shut())

    @rule()
    def drop(self):
        self.memory.open = None

    @rule()
    def look(self):
        changes = self.memory.changes()
        by_fields = [change for change in changes if isinstance(change, Edited)]
        assert all(change.names for change in by_fields)
        held = copy.deepcopy(changes)  # what is written down is what the steps are now, and no later edit reaches it
        self.copied, self.turn = told(held, self.copied, self.turn)
        self.memory.kept(None)
        assert self.copied == self.memory.steps
        assert self.turn == self.memory.open

    @invariant()
    def steps_are_steps(self):
        assert all(isinstance(step, Step) for step in self.memory.steps)


Recording.TestCase.settings = settings(deadline=None, max_examples=examples(150), stateful_step_count=20)
test_a_copy_that_is_told_the_changes_stays_the_same = Recording.TestCase


# ---- types of one's own


@dataclass(slots=True)
class Reading(Step):
    """What an instrument showed."""

    kind = "test reading"

    value: float
    unit: str = "m"

    def to_messages(self):
        return [Message.user(f"{self.value} {self.unit}")]


@dataclass
class Loose(Step):
    """A type without slots."""

    kind = "test loose"

    value: int = 0


class Measured(ActionStep):
    """A turn with something more."""

    __slots__ = ("gauge",)

    kind = "test measured"


def test_a_type_of_ones_own_is_a_step_like_any():
    """It stands in transcripts, is shown to the model as it says, copied, pickled, compared and watched."""
    memory = RunMemory("", [Reading(1.5), Loose(3)])
    assert [message.text for message in memory.to_messages()] == ["1.5 m"]
    assert pickle.loads(pickle.dumps(memory)) == memory
    assert copy.copy(memory.steps[0]) == Reading(1.5)
    assert copy.copy(memory.steps[1]) == Loose(3)
    memory.changes()
    memory.kept(None)
    memory.steps[0].unit = "km"
    memory.steps[1].value = 4
    assert [change.names for change in memory.changes()] == [frozenset({"unit"}), frozenset({"value"})]


def test_a_type_needs_a_kind_of_its_own():
    """What names it in what is saved is neither left out nor taken from another."""
    with pytest.raises(TypeError, match="the step type 'Nameless' has no kind"):
        type("Nameless", (Step,), {})
    with pytest.raises(TypeError, match="the kind 'task' of 'Task' is that of 'TaskStep'"):
        type("Task", (Step,), {"kind": "task"})


def test_an_empty_list_of_steps_is_a_list():
    """Steps can be made of nothing, compared with lists, and pickled."""
    assert Steps() == []
    steps = Steps([note("a")])
    assert pickle.loads(pickle.dumps(steps)) == steps == [note("a")]
