"""The transcript: what a model is sent for each step, what a turn was sent, forks, equality, and how its list is changed."""

from __future__ import annotations

import copy
import operator
import pickle
import re
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from graphagent.llm import Image, Message, ToolCall, ToolResult, Usage
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
    SystemPromptStep,
    TaskStep,
    Timing,
)
from graphagent.memory.transcript._prompt import Prompt
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


def waiting(memory, step):
    """Give a transcript a turn whose tool calls are being executed."""
    memory.transcript.put_open(1, step)
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


def test_what_a_turn_is_and_said():
    """Its text and calls are those of its message; a step by hand has none."""
    assert (turn().model_output, turn().tool_calls) == ("Let me see.", CALLS)
    assert (ActionStep().model_output, ActionStep().tool_calls, ActionStep().to_messages()) == (None, (), [])


# ---- what was sent

texts = some.sampled_from(["a", "b", "c"])


def sending(memory, step):
    """Add a turn, which was sent what the transcript gives now."""
    step.prompt = memory.transcript.prompt()[1]
    memory.steps.append(step)
    return step.model_input_messages


edits = some.lists(
    some.tuples(
        some.sampled_from(["turn", "note", "edit", "edit first", "delete", "insert", "summary", "rules", "detach"])
    ),
    max_size=25,
)


@given(edits)
def test_what_a_model_was_sent_stays_whatever_happens_to_the_steps(edits):
    """Steps are edited, removed, inserted and summed up, and transcripts are copied and saved; each prompt remains."""
    memory, sent = RunMemory("Rules 0.", [TaskStep("task")]), []
    for number, (edit,) in enumerate(edits):
        steps = memory.steps
        if edit == "turn":
            step = turn(step_number=number)
            messages = memory.to_messages()
            assert list(sending(memory, step)) == messages
            sent.append((number, messages))
        elif edit == "note" or not steps:
            steps.append(note(f"note {number}"))
        elif edit == "edit":
            place = number % len(steps)
            if isinstance(steps[place], ActionStep):
                steps[place].observations = f"edited {number}"
        elif edit == "edit first" and isinstance(steps[0], TaskStep):
            steps[0].task = f"task {number}"
        elif edit == "delete":
            del steps[number % len(steps)]
        elif edit == "insert":
            steps.insert(number % len(steps), note(f"inserted {number}"))
        elif edit == "summary":
            steps.append(SummaryStep(f"summary {number}", covers=3, keeps=1))
        elif edit == "rules":
            memory.system_prompt = SystemPromptStep(f"Rules {number}.")
        elif edit == "detach":
            memory = memory.detached()
    for each in (memory, memory.detached(), RunMemory.from_json(memory.to_json())):
        found = {
            step.step_number: list(step.model_input_messages) for step in each.steps if isinstance(step, ActionStep)
        }
        for number, messages in sent:
            assert found.get(number, messages) == messages


@given(some.lists(texts, max_size=6), some.lists(texts, max_size=6), some.data())
def test_a_prompt_that_middleware_changed_is_what_was_sent(derived, more, data):
    """Any messages can be sent; those that the steps make are referred to."""
    memory = RunMemory("Rules.", [note(text) for text in derived])
    messages, prompt = memory.transcript.prompt()
    sent = data.draw(some.permutations([*messages, *map(Message.user, more)]))
    assert list(prompt.differing(sent).messages()) == sent
    memory.steps.append(ActionStep(prompt=prompt.differing(sent)))
    [*_, last] = RunMemory.from_json(memory.to_json()).steps
    assert list(last.model_input_messages) == sent


def test_the_size_of_a_prompt_does_not_grow_with_the_run():
    """Whether or not every step is edited after it was added."""
    for edited in (False, True):
        memory = RunMemory("Rules.", [TaskStep("task")])
        for number in range(1, 301):
            sending(memory, turn(step_number=number))
            if edited:
                memory.steps[-1].observations = "checked"
        prompt = memory.steps[-1].prompt
        assert (len(prompt.ranges), prompt.parts) == (1, None)
        assert len(prompt.messages()) == 2 + 299 * 3


def test_a_long_run_can_be_shown_compared_and_copied():
    """Nothing about a transcript of thousands of turns runs into the limit of recursion."""
    memory = RunMemory("", [note("m")])
    for _ in range(3000):
        sending(memory, ActionStep(model_output="m"))
    last = memory.steps[-1]
    assert repr(last.prompt) == "<prompt of 3,000 messages>"
    assert copy.copy(last) == last
    assert pickle.loads(pickle.dumps(last)).model_input_messages == last.model_input_messages
    assert memory.detached() == memory


# ---- transcripts


def test_turns_are_counted_past_steps_by_hand():
    """The number of the last turn is found behind steps that no model turn made."""
    memory = RunMemory("", [ActionStep(step_number=4), ActionStep(observations="x")])
    assert memory.turns == 4
    assert RunMemory().turns == 0


def test_a_branch_goes_its_own_way():
    """It begins with the same steps, an open turn included, and neither sees what the other adds."""
    memory = waiting(RunMemory("Rules.", [TaskStep("task")]), turn(results=()))
    branch = memory.detached()
    assert branch.to_messages() == memory.to_messages()
    assert branch.open == memory.open
    branch.steps.append(note("mine"))
    branch.steps[0].task = "mine"
    memory.steps.append(note("yours"))
    assert [each.text for each in branch.to_messages()[:3]] == ["Rules.", "mine", "mine"]
    assert [each.text for each in memory.to_messages()[:3]] == ["Rules.", "task", "yours"]


def test_transcripts_are_equal_when_their_steps_are():
    """Prompts are compared by what was sent, however that is kept."""
    one, other = RunMemory("r", [TaskStep("t")]), RunMemory("r", [TaskStep("t")])
    parts = {"step_number": 1, "timing": Timing(1, 2), "token_usage": Usage(1, 1), "action_output": "x"}
    sent = sending(one, turn(**parts))
    other.steps.append(turn(**parts, prompt=Prompt.of(sent)))
    assert one == other
    assert one != RunMemory("other", one.steps)
    assert one != RunMemory("r", one.steps[:1])
    assert one != "r"
    waiting(one, turn(results=()))
    assert one != other
    waiting(other, turn(results=()))
    assert one == other


@pytest.mark.parametrize(
    "change",
    [
        {"step_number": 2}, {"results": RESULTS[:1]}, {"observations": "x"}, {"observations_images": [PICTURE]},
        {"action_output": 1}, {"error": StepFailure("E", "m")}, {"timing": Timing(1, 2)}, {"token_usage": Usage(1, 1)},
        {"prompt": Prompt.of([Message.user("a")])},
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
    memory = RunMemory("r", [TaskStep("t", (PICTURE,)), facts("Oslo")])
    sending(memory, turn())
    waiting(memory, turn(results=()))
    again = pickle.loads(pickle.dumps(memory))
    assert again == memory
    assert again.open == memory.open
    assert again.steps[-1].model_input_messages == memory.steps[-1].model_input_messages
    again.open.error = StepFailure("E", "m")
    assert (again.open.error, memory.open.error) == (StepFailure("E", "m"), None)


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
    """Every operation does what it does to a list."""
    steps = [note("a"), note("b"), note("c")]
    memory, plain = RunMemory("", steps), list(steps)
    change(memory.steps)
    change(plain)
    assert memory.steps == plain
    assert said(memory.steps) == texts_of(plain)


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
        lambda steps: operator.imul(steps, 2),
    ],
)
def test_what_cannot_be_done_changes_nothing(change):
    """What is not a step is refused, as is what a list cannot do; the steps stay as they were, and edits still count."""
    memory = RunMemory("", [note("a"), note("b"), note("c")])
    with pytest.raises((TypeError, ValueError, IndexError)):
        change(memory.steps)
    assert texts_of(memory.steps) == ["a", "b", "c"]
    memory.steps[0].message = Message.user("edited")
    assert said(memory.steps) == ["edited", "b", "c"]


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
    assert step == before == memory.steps[0]
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
        with pytest.raises(
            AttributeError, match=r"model_input_messages of an ActionStep records the request .* cannot be assigned"
        ):
            one.model_input_messages = ()
    with pytest.raises(
        AttributeError, match="an ActionStep has no field 'output' to assign; it has action_output, code_action"
    ):
        step.output = "Hi."
    with pytest.raises(AttributeError, match="a MessageStep has no field 'text' to assign; it has at, message"):
        note("a").text = "b"


def test_assigning_the_steps_changes_the_list_that_is_there():
    """Whoever holds the list sees the new steps; a list that is assigned is not shared."""
    memory, mine = RunMemory("", [note("a")]), [note("b")]
    steps = memory.steps
    memory.steps = mine
    mine.append(note("c"))
    assert texts_of(steps) == texts_of(memory.steps) == ["b"]


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
    gone = memory.steps.pop()
    other.steps.append(gone)
    assert other.steps[0] is gone
    gone.message = Message.user("edited")
    assert (said(memory.steps), said(other.steps)) == (["a"], ["edited"])


class Listed(RuleBasedStateMachine):
    """A transcript that is changed in any way, beside an ordinary list."""

    def __init__(self):
        super().__init__()
        self.memory = RunMemory("", [note("0")])
        self.plain = [note("0")]
        self.count = 0

    def fresh(self):
        self.count += 1
        return turn(step_number=self.count) if self.count % 2 else note(str(self.count))

    @rule(place=some.integers(-3, 6))
    def insert(self, place):
        step = self.fresh()
        self.memory.steps.insert(place, step)
        self.plain.insert(place, copy.copy(step))

    @rule(start=some.integers(0, 6), count=some.integers(0, 3), new=some.integers(0, 3))
    def put(self, start, count, new):
        steps = [self.fresh() for _ in range(new)]
        self.memory.steps[start : start + count] = steps
        self.plain[start : start + count] = map(copy.copy, steps)

    @rule()
    def reverse(self):
        self.memory.steps.reverse()
        self.plain.reverse()

    @rule(place=some.integers(0, 6))
    def edit(self, place):
        for steps in (self.memory.steps, self.plain):
            for step in steps[place : place + 1]:
                if isinstance(step, ActionStep):
                    step.observations = f"seen {self.count}"
                else:
                    step.message = Message.user(f"edited {self.count}")

    @rule()
    def send(self):
        step = turn(step_number=99)
        sending(self.memory, step)
        self.plain.append(copy.copy(step))

    @rule()
    def copy(self):
        self.memory = self.memory.detached()

    @invariant()
    def they_are_the_same(self):
        assert self.memory.steps == self.plain
        assert self.memory.to_messages() == RunMemory("", self.plain).to_messages()


Listed.TestCase.settings = settings(deadline=None, max_examples=examples(150), stateful_step_count=20)
test_a_transcript_is_changed_as_a_list_is = Listed.TestCase


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


def test_a_type_of_ones_own_is_a_step_like_any():
    """It stands in transcripts, is shown to the model as it says, copied, pickled, compared and watched."""
    memory = RunMemory("", [Reading(1.5), Loose(3)])
    assert [message.text for message in memory.to_messages()] == ["1.5 m"]
    assert pickle.loads(pickle.dumps(memory)) == memory
    assert copy.copy(memory.steps[0]) == Reading(1.5)
    assert copy.copy(memory.steps[1]) == Loose(3)
    memory.steps[0].unit = "km"
    memory.steps[1].value = 4
    assert memory == RunMemory("", [Reading(1.5, "km"), Loose(4)])
    assert said(memory.steps) == ["1.5 km"]


def test_a_type_needs_a_kind_of_its_own():
    """What names it in what is saved is neither left out nor taken from another."""
    with pytest.raises(TypeError, match="the step type 'Nameless' has no kind"):
        type("Nameless", (Step,), {})
    with pytest.raises(TypeError, match="the kind 'task' of 'Task' is that of 'TaskStep'"):
        type("Task", (Step,), {"kind": "task"})


def test_an_empty_list_of_steps_is_a_list():
    """Steps are compared with lists, and pickled as one."""
    assert RunMemory().steps == []
    steps = RunMemory("", [note("a")]).steps
    assert pickle.loads(pickle.dumps(steps)) == steps == [note("a")]
