"""What a model sees of a transcript, which is found out as steps are added, is what follows from all of them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as some

from graphagent.llm import Message, ToolCall
from graphagent.memory import ActionStep, MessageStep, SummaryStep, TaskStep
from graphagent.memory.transcript._prompt import Versions
from graphagent.memory.transcript._transcript import Transcript
from tests.thorough import examples

RULE = MessageStep(Message.system("Be brief."))
PLACES = some.integers(0, 12)
STEPS = some.one_of(
    some.builds(lambda text: TaskStep(text), some.text("ab", max_size=2)),
    some.builds(lambda text: MessageStep(Message.user(text)), some.text("cd", min_size=1, max_size=2)),
    some.builds(lambda text: ActionStep(step_number=1, model_output=text), some.text("ef", min_size=1, max_size=2)),
    some.just(RULE),
    some.builds(lambda covers, keeps: SummaryStep("so far", covers=covers, keeps=keeps), PLACES, PLACES),
)
CHANGES = some.one_of(
    some.tuples(some.just("add"), STEPS),
    some.tuples(some.just("open"), STEPS),
    some.tuples(some.just("settle")),
    some.tuples(some.just("edit"), PLACES, STEPS),
    some.tuples(some.just("put"), PLACES, some.integers(0, 2), some.lists(STEPS, max_size=2)),
    some.tuples(some.just("rewind"), PLACES),
    some.tuples(some.just("look")),
)


def seen(steps):
    """Give the places of the steps that a model sees, by the words of the definition."""
    hidden, before = set(), {}
    for place, step in enumerate(steps):
        if isinstance(step, SummaryStep):
            end = max(place - step.keeps, 0)
            tasks = [each for each in range(place) if isinstance(steps[each], TaskStep)]
            covered = range(max(end - step.covers, 0), end)
            hidden |= {each for each in covered if each not in tasks[-1:] and steps[each] is not RULE}
            before.setdefault(end, []).append(place)
    found = []
    for place, step in enumerate(steps):
        found += before.get(place, ())
        found += [] if isinstance(step, SummaryStep) else [place]
    return [place for place in found if place not in hidden]


@settings(max_examples=examples(200))
@given(some.lists(CHANGES, max_size=30))
def test_prompts_of_a_transcript_that_changes_are_those_of_one_that_is_read(changes):
    """Whatever was derived before: after each change, places, messages and references are as in a transcript without a past."""
    transcript = Transcript("Obey.")
    for number, (kind, *given_) in enumerate(changes):
        steps = len(transcript)
        if kind == "add":
            transcript.add(number, given_[0])
        elif kind == "open":
            transcript.put_open(number, given_[0])
        elif kind == "settle":
            transcript.settle(number)
        elif kind == "edit" and steps:
            place = given_[0] % steps
            transcript.change(number, place, place + 1, (given_[1],))
        elif kind == "put":
            place = given_[0] % (steps + 1)
            transcript.change(number, place, min(place + given_[1], steps), given_[2])
        elif kind == "rewind":
            transcript.rewind(number - given_[0])
        fresh = Transcript("Obey.")
        fresh.versions = Versions(transcript.versions, transcript.versions.ids)
        fresh.items, fresh.open = list(transcript.items), transcript.open
        assert transcript.projection.places == fresh.projection.places == seen(transcript.steps)
        if kind in ("look", "add"):
            (messages, prompt), (again, reference) = transcript.prompt(), fresh.prompt()
            assert messages == again == list(prompt.messages())
            assert prompt.ranges == reference.ranges


def test_an_earlier_prompt_stays_what_it_was():
    """Versions of steps that were made since are not in it, however often it is asked for its messages in between."""
    transcript = Transcript()
    transcript.add(0, TaskStep("Go."))
    transcript.put_open(1, ActionStep(step_number=1, tool_calls=[ToolCall("look", {}, id="c")]))
    transcript.settle(2)
    before = transcript.prompt()
    for number in range(3):
        transcript.change(3 + number, 1, 2, (ActionStep(step_number=1, model_output=f"version {number}"),))
        now = transcript.prompt()
        assert list(before[1].messages()) == before[0]
        assert list(now[1].messages()) == now[0] != before[0]
