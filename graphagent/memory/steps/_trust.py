"""The one rule for the trust of content made from a transcript: facts and notes, in nodes, tools and sub-agents."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from graphagent.memory.facts._types import TRUST_LEVELS, least_trust
from graphagent.memory.steps._types import (
    ActionStep,
    FactsStep,
    FinalAnswerStep,
    NotesStep,
    PlanningStep,
    Step,
    SummaryStep,
    TaskStep,
)

_ROLES = {"assistant": "inferred", "tool": "untrusted"}


def trust_of(steps: Iterable[Step], floor: str = "trusted") -> str:
    """Return the least trust of everything that flowed into a transcript.

    Args:
        steps: The steps. Tasks are trusted, results of tools are untrusted, answers of a model are inferred at most, and loaded
            facts and notes keep their own trust.
        floor: The least trust of everything else that flowed in.
    """
    least = floor
    for step in steps:
        if least == TRUST_LEVELS[0]:
            break
        least = least_trust((least, level_of(step)))
    return least


def level_of(step: Step) -> str:
    """Return the trust of a step's own content, whatever came before it."""
    if isinstance(step, ActionStep):
        return "untrusted" if step.is_answered or step.observations or step.observations_images else "inferred"
    if isinstance(step, FactsStep):
        return least_trust(chain(("trusted",), (known.fact.source.trust for known in step.facts)))
    if isinstance(step, NotesStep):
        return least_trust(chain(("trusted",), (note.trust for note in step.notes)))
    if isinstance(step, SummaryStep):
        said = "inferred" if step.summary else "trusted"
        return least_trust(chain((said,), (known.fact.source.trust for known in step.facts)))
    if isinstance(step, FinalAnswerStep | PlanningStep):
        return "inferred"
    if isinstance(step, TaskStep):
        return "trusted"
    return least_trust(chain(("trusted",), (_ROLES.get(message.role, "trusted") for message in step.to_messages())))


def is_less(one: str, other: str) -> bool:
    """Return whether a trust level is below another one."""
    return TRUST_LEVELS.index(one) < TRUST_LEVELS.index(other)
