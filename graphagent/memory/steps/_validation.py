"""What the parts of a step are: a wrong one is refused where it is given, not where it is sent or kept."""

from __future__ import annotations

from typing import Any, cast

from graphagent._article import a
from graphagent.codec._internal import cached
from graphagent.llm import Image, Message, ToolResult, Usage
from graphagent.memory._blocks import KnownFact, KnownNote
from graphagent.memory.steps._prompt_delta import SentPrompt
from graphagent.memory.steps._types import Step, StepFailure, Timing, fields_of

_MAY_BE: dict[str, tuple[type, ...]] = {
    "code_action": (str, type(None)),
    "covers": (int,),
    "error": (StepFailure, type(None)),
    "keeps": (int,),
    "message": (Message,),
    "model_output_message": (Message, type(None)),
    "_observations": (str, type(None)),
    "plan": (str,),
    "prompt": (SentPrompt, type(None)),
    "step_number": (int,),
    "summary": (str,),
    "system_prompt": (str,),
    "timing": (Timing, type(None)),
    "token_usage": (Usage, type(None)),
}
_TUPLES_OF: dict[str, type] = {
    "facts": KnownFact,
    "notes": KnownNote,
    "_observations_images": Image,
    "results": ToolResult,
    "task_images": Image,
}
_OURS = __name__.rpartition(".")[0]
_NONE: Any = object()


@cached
def _checked(kind: type[Step]) -> tuple[tuple[str, tuple[type, ...], type | None], ...]:
    """Return the fields of our own types of steps: the types that each may have, and the type of the items of a tuple."""
    names = [name for name, base in fields_of(kind).items() if base.__module__.startswith(_OURS)]
    singles = [(name, _MAY_BE[name], None) for name in names if name in _MAY_BE]
    many = [
        (name, (tuple, type(None)) if name == "_observations_images" else (tuple,), _TUPLES_OF[name])
        for name in names
        if name in _TUPLES_OF
    ]
    return (*singles, *many)


def check_parts(step: Step) -> None:
    """See that the parts of a step are what they are declared to be.

    Raises:
        TypeError: one is not; it says which.
    """
    kind = type(step)
    for name, kinds, inner in _checked(kind):
        value = getattr(step, name, _NONE)
        if value is not _NONE and (not isinstance(value, kinds) or (inner is not None and value)):
            _check(kind, name, value, kinds, inner)


def check_part(kind: type[Step], name: str, value: Any) -> None:
    """See that a value may be assigned to a field of a step.

    Raises:
        TypeError: it may not.
    """
    for each, kinds, inner in _checked(kind):
        if each == name:
            _check(kind, name, value, kinds, inner)


def _check(kind: type[Step], name: str, value: Any, kinds: tuple[type, ...], inner: type | None) -> None:
    wrong: Any = value
    if isinstance(value, kinds):
        if inner is None or value is None:
            return
        wrong = next((each for each in cast("tuple[Any, ...]", value) if not isinstance(each, inner)), _NONE)
        if wrong is _NONE:
            return
    what = f"a tuple of {inner.__name__}" if inner is not None else "text" if kinds[0] is str else a(kinds[0].__name__)
    none = " or None" if kinds[-1] is type(None) else ""
    found = "None" if wrong is None else a(type(wrong).__name__)
    given = f"not {found}" if wrong is value else f"with {found} in it"
    raise TypeError(f"the {name.removeprefix('_')} of {a(kind.__name__)} is {what}{none}, {given}")
