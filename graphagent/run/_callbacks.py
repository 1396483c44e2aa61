"""Functions that see each step before it joins the transcript."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from graphagent._annotations import class_of, union_members
from graphagent._article import kind_of
from graphagent._raised import awaited
from graphagent.errors import HandlerError, ScriptError, Veto, VetoError
from graphagent.graph import type_hints
from graphagent.llm import ToolCall
from graphagent.memory.steps._types import Step
from graphagent.memory.transcript._fields import FieldError


@dataclass(frozen=True, slots=True)
class Callback:
    """A step callback, with what its signature and annotations say."""

    function: Callable[..., Any]
    name: str
    kinds: tuple[type, ...]
    """The types of steps for which it is called; ToolCall for calls that are about to be executed."""
    takes: int
    """How many arguments it is called with: 1, the step, or 2, the step and the run."""

    @staticmethod
    def of(function: Callable[..., Any], kind: type | None = None) -> Callback:
        """Return the callback that a function is.

        Args:
            function: The function.
            kind: The type of step for which it is called; by default, the annotation of its first parameter decides.

        Raises:
            TypeError: It cannot be called with a step, or with a step and a run, or takes steps of another type than `kind`.
        """
        if not callable(function):
            raise TypeError(f"a step callback is a function of a step, or of a step and the run, not {function!r}")
        name, parameters = _name(function), _parameters(function)
        annotations = type_hints(_unwrapped(function))
        takes = _takes(parameters, annotations)
        if not takes:
            raise TypeError(
                f"the step callback {name!r} is called with a step, or with a step and the run: write "
                f"`def {name}(step: ActionStep, run: Run) -> None`; it takes {_described(parameters)}"
            )
        first = next((each for each in parameters if each.kind in _BY_POSITION), None)
        if kind is not None:
            _check_fits(annotations.get(first.name) if first else None, name, kind)
            return Callback(function, name, (kind,), takes)
        if first and first.name not in annotations and first.annotation is not first.empty:
            # Without its annotation it would be called for steps that it does not expect.
            raise TypeError(
                f"the step callback {name!r} is annotated with {first.annotation!r}, which is not known there; import it above "
                f"the callback, not only under TYPE_CHECKING: it chooses the steps that the callback sees"
            )
        return Callback(function, name, _kinds(annotations.get(first.name) if first else None, name), takes)


StepCallbacks = (
    Iterable[Callable[..., Any]]
    | Mapping[type[Step] | type[ToolCall], Callable[..., Any] | Iterable[Callable[..., Any]]]
)
"""Functions whose annotations choose the steps that they see, or a dictionary of types of steps with a function or several."""


def callbacks_with_types(callbacks: StepCallbacks) -> list[tuple[Callable[..., Any], type | None]]:
    """Return step callbacks in their order, each with the type of step under which a dictionary has it; None without one.

    Raises:
        TypeError: It is neither a list of functions nor a dictionary of types of steps with functions.
    """
    if not isinstance(callbacks, Mapping):
        if callable(callbacks) or not isinstance(callbacks, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "step_callbacks= is a list of functions, such as [save], of which the annotation of the first parameter chooses "
                "the types of steps, or a dictionary, such as {ActionStep: save}"
            )
        return [(function, None) for function in callbacks]
    found: list[tuple[Callable[..., Any], type | None]] = []
    for kind, given in cast("Mapping[object, Any]", callbacks).items():
        if not (isinstance(kind, type) and issubclass(kind, (Step, ToolCall))):
            raise TypeError(
                f"step_callbacks= has {kind!r} for a type of step; the types are ActionStep, TaskStep, …, Step for all of them, "
                f"and ToolCall for calls before they are executed"
            )
        if callable(given):
            found.append((given, kind))
        elif isinstance(given, str) or not hasattr(given, "__iter__"):
            raise TypeError(
                f"step_callbacks= has {kind_of(given)} under {kind.__name__}; write a function or a list of functions"
            )
        else:
            found += [(each, kind) for each in given]
    return found


@dataclass(frozen=True, slots=True)
class Check:
    """A final check, with what its signature says."""

    function: Callable[..., Any]
    name: str
    takes: int
    """How many arguments it is called with: 1, the answer, or 2, the answer and the run."""

    @staticmethod
    def of(function: Callable[..., Any]) -> Check:
        """Return the check that a function is.

        Raises:
            TypeError: It cannot be called with an answer, or with an answer and a run.
        """
        if not callable(function):
            raise TypeError(
                f"a final check is a function of the answer, or of the answer and the run, not {kind_of(function)}"
            )
        name, parameters = _name(function), _parameters(function)
        takes = _takes(parameters, type_hints(_unwrapped(function)))
        if not takes:
            raise TypeError(
                f"the final check {name!r} is called with the answer, or with the answer and the run: write "
                f"`def {name}(answer: str, run: Run) -> bool`; it takes {_described(parameters)}"
            )
        return Check(function, name, takes)

    async def refusal(self, answer: Any, run: object) -> str | None:
        """Return what the model is told if the answer does not pass; None if it passes."""
        try:
            passed = await _call(self, answer, run)
        except ScriptError:
            raise
        except Exception as error:  # noqa: BLE001  a check may refuse by raising anything
            because = f": {str(error) or type(error).__name__}"
        else:
            if passed or passed is None:
                return None
            because = ""
        return f"Your answer did not pass the check {self.name!r}{because}. Answer again."


def final_checks(given: Any) -> tuple[Check, ...]:
    """Return the final checks that a list of functions is.

    Raises:
        TypeError: `checks` is not a list, or one of them cannot be called with an answer, or with an answer and a run.
    """
    if callable(given) or isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError("final_answer_checks= is a list of functions, such as [is_polite]")
    return tuple(map(Check.of, cast("Iterable[Callable[..., Any]]", given)))


_NAMES_RUN = re.compile(r"\bRun\b")
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, partial):
        function = function.func
    return function


def _name(function: Callable[..., Any]) -> str:
    function = _unwrapped(function)
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _takes(parameters: Sequence[inspect.Parameter], annotations: Mapping[str, Any]) -> int:
    """Return with how many arguments a function is called: 1, or 2 if it takes the run; 0 if it can be called with neither."""
    usable = [each for each in parameters if each.kind in _BY_POSITION]
    open_ended = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    takes = 1 if usable or open_ended else 0
    if (open_ended and len(usable) < 2) or (len(usable) > 1 and _takes_run(usable[1], annotations)):
        takes = 2
    needed = [
        each for each in parameters if each.default is each.empty and each.kind in (*_BY_POSITION, each.KEYWORD_ONLY)
    ]
    return 0 if len(needed) > takes or any(each.kind is each.KEYWORD_ONLY for each in needed) else takes


def _takes_run(second: inspect.Parameter, annotations: Mapping[str, Any]) -> bool:
    """Return whether the run is passed as the second parameter; one with a default may be for the function's own use."""
    if second.default is second.empty or second.name == "run":
        return True
    kind = annotations.get(second.name, second.annotation)
    if isinstance(kind, str):  # it is imported only under TYPE_CHECKING
        return _NAMES_RUN.search(kind) is not None
    return any(getattr(class_of(part), "__graphagent_run__", False) is True for part in union_members(kind))


def _check_fits(annotation: Any, name: str, kind: type) -> None:
    """Refuse a callback that a dictionary has under one type of steps and whose first parameter is annotated with others."""
    if annotation is None or annotation is Any:
        return
    try:
        taken = _kinds(annotation, name)
    except TypeError:  # it is annotated with something of its own, such as a base class of several libraries
        return
    if not issubclass(kind, taken):
        raise TypeError(
            f"the step callback {name!r} is given under {kind.__name__}, and takes {' | '.join(each.__name__ for each in taken)}"
        )


def _described(parameters: Sequence[inspect.Parameter]) -> str:
    return f"({', '.join(map(str, parameters))})"


def _kinds(annotation: Any, name: str) -> tuple[type, ...]:
    """Return the types of steps that an annotation names; all types if it is None (there is none) or Any."""
    if annotation is None or annotation is Any:
        return (Step,)
    parts = tuple(part for part in union_members(annotation) if part is not type(None))
    for part in parts:
        if not (isinstance(part, type) and issubclass(part, (Step, ToolCall))):
            raise TypeError(
                f"the step callback {name!r} is annotated with {part!r}, which is not a step type; the annotation of its first "
                f"parameter chooses the steps that it sees: ActionStep, TaskStep, …, ToolCall for calls before they are executed"
            )
    return parts


async def _call(callback: Callback | Check, value: Any, run: object) -> Any:
    found = callback.function(value, run) if callback.takes == 2 else callback.function(value)
    return await awaited(found, f"the function {callback.name!r}") if inspect.isawaitable(found) else found


async def call_all(
    callbacks: Sequence[Callback], value: Step | ToolCall, run: Any
) -> tuple[VetoError | None, HandlerError | None]:
    """Call every callback for steps of this type with a `Run`, even after one failed. Return the first refusal and the first failure."""
    refusal: VetoError | None = None
    failure: HandlerError | None = None
    for callback in callbacks:
        if not isinstance(value, callback.kinds):
            continue
        try:
            await _call(callback, value, run)
        except Veto as veto:
            refusal = refusal or VetoError(type(value).__name__, veto.reason)
            refusal.run_id = run.run_id
        except Exception as error:  # noqa: BLE001  the step is kept and the other callbacks are called; raised later
            if failure is None:
                wrong = str(error) if isinstance(error, FieldError) else ""
                failure = HandlerError(callback.name, type(value).__name__, error, wrong=wrong)
                failure.__cause__, failure.run_id = error, run.run_id
    return refusal, failure
