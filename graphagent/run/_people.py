"""Waiting for people: a question is recorded, the run stops until it has an answer, and answers are checked before they are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from graphagent import _clock
from graphagent.codec._blobs import HeldBlobs
from graphagent.codec._values import encode
from graphagent.errors import (
    AnswerError,
    ArgumentsError,
    DeclinedError,
    LateAnswerError,
    QuestionError,
    QuestionExpiredError,
    SerializationError,
)
from graphagent.llm import Approve, Deny, Tool, ToolCall
from graphagent.log._entries import NO_VALUE, Asked, Expired
from graphagent.run._final_errors import Suspend
from graphagent.run._questions import Question, open_question, schema_of, stored_answer_type
from graphagent.run._sites import sites
from graphagent.run._sleep import now, wait_until
from graphagent.run._times import Deadline, moment_of

if TYPE_CHECKING:
    from graphagent.log._log import Log
    from graphagent.log._visits import Effect
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._effects import Effects

_NEVER = Deadline()
NO_ANSWER: Any = object()
"""Stands for a missing answer, since any value, also None, can be an answer."""


async def ask(
    effects: Effects, question: str, type_: Any = str, *, kind: Any = "question", about: object = None, id_: str = "",
    until: Deadline = _NEVER,
) -> Any:  # fmt: skip
    """Return the answer to a question: see `Context.ask`."""
    run = effects.run
    if not id_ and kind != "question" and isinstance(about, ToolCall):
        id_ = about.id
    # Numbers of entries are part of the id, but not of the key: they differ if the run is executed again.
    # A call may wait for an approval and then for its result, one after the other under the id of the call.
    name = f"{id_}:result" if kind == "result" else id_
    key, id_ = (f"{effects.scope}{name}", id_) if id_ else _next(effects)
    before = effects.asked.setdefault(key, question)
    if before != question:  # it would be given the answer to the other one
        raise QuestionError(effects.node, before, question)
    found = effects.find_or_copy("answer", key)
    if found is not None:
        with suppress(AnswerError):  # it was given to a process that did not know the type: then it is asked again
            return _answer(effects, found, question, type_, kind, id_)
    effects.stop_if_due()
    id_ = run.question_id(id_)
    known = run.log.state.questions.get(id_)
    if known is not None and known.text != question:
        raise QuestionError(effects.node, known.text, question)
    if known is None:
        _default(effects, until, type_)
        asked = _clock.now() if until.when is None else await now(run)
        effects.record(
            Asked(
                at=effects.frame.path, id=id_, key=key, text=question, kind=kind, about=run.keep_about(about),
                schema=run.log.keep(schema_of(kind, type_)), asked=asked, deadline=until.time(effects.node, asked),
            )
        )  # fmt: skip
        known = run.log.state.questions[id_]
        if known.deadline:
            await run.log.commit()  # asked again, it would have another one
    run.session.asked[id_] = replace(open_question(run.log, run.session.run_id, known, type_, Any), about=about)
    if not known.deadline:
        raise Suspend
    await wait_until(effects, known.deadline)
    effects.record(
        Expired(
            at=effects.frame.path, id=id_, key=key, deadline=known.deadline, value=_default(effects, until, type_),
            has_default=until.has_default,
        )
    )  # fmt: skip
    run.session.asked.pop(id_, None)
    await run.log.commit()
    return _answer(effects, effects.visit.effects["answer", key], question, type_, kind, id_)


def _default(effects: Effects, until: Deadline, type_: Any) -> Any:
    """Return the default of a question as an entry has it.

    Raises:
        TypeError: a person could not answer it.
        SerializationError: it cannot be stored.
    """
    if not until.has_default:
        return NO_VALUE
    try:
        checked = Question("", "", effects.node, type=type_).check(until.default)
    except AnswerError as error:
        raise TypeError(f"node {effects.node!r}: default= does not fit: {'; '.join(error.problems)}") from None
    return effects.log.keep(checked, type_)


def _answer(effects: Effects, found: Effect, question: str, type_: Any, kind: Any, id_: str) -> Any:
    """Return the answer that was recorded.

    Raises:
        AnswerError: it does not fit the type.
    """
    if found.error is not None and found.error[0] == QuestionExpiredError.__name__:
        raise QuestionExpiredError(effects.node, id_, moment_of(found.value))
    declined = found.error is not None
    answer = effects.log.take(found.value, stored_answer_type(kind, type_, declined=declined))
    if declined and Deny not in (type_, *get_args(type_)):
        raise DeclinedError(effects.node, id_, answer.reason, answer.by)
    if kind != "question" or declined:
        return answer
    return Question(id_, question, effects.node, type=type_).check(answer)


def _next(effects: Effects) -> tuple[str, str]:
    """Return the key and the id of the next question of this visit of the node, which are the same in a fork of the run."""
    number, name = effects.count("ask"), f"{effects.node}:{effects.visit.entered}"
    key = f"{effects.scope}ask:{number}"
    if effects.scope:  # tasks that a node gathers may ask at the same time
        return key, f"{name}:{effects.scope}{number}"
    return key, name if number == 1 else f"{name}:{number}"


class Asking(NamedTuple):
    """A run whose questions are answered, by its agent or by a program that has only its log."""

    run_id: str
    log: Log
    question: Callable[[str], Question]
    """Returns an open question by its id."""
    tools: Callable[[], Iterable[Tool]]
    """Returns the known tools of its nodes."""

    @staticmethod
    def of(run: AgentRun) -> Asking:
        """Return a run of an agent."""
        return Asking(run.run_id, run.log, run.session.question, partial(_known_tools, run))

    @staticmethod
    def stored(log: Log) -> Asking:
        """Return a run without its agent: the JSON schemas in its log say which answers are valid."""
        run_id = log.header.run_id

        def question(id_: str) -> Question:
            return open_question(log, run_id, log.state.questions[id_], Any, Any)

        return Asking(run_id, log, question, lambda: ())

    def refusal(self, error: AnswerError) -> AnswerError:
        """Return an error of this run."""
        error.run_id = self.run_id
        return error


def checked_answers(
    asking: Asking, answer: object, answers: Mapping[str, object] | None, results: Mapping[str, object] | None
) -> dict[str, object]:
    """Return answers by the ids of their open questions, in the form in which they are recorded.

    Args:
        asking: The run.
        answer: The answer to the only open question, or NO_ANSWER.
        answers: Answers by the ids of their questions.
        results: Results of deferred tool calls, by the ids of the calls.

    Raises:
        AnswerError: an answer does not fit its question.
        TypeError: no answer is given.
    """
    if answer is NO_ANSWER and answers is None and results is None:
        raise TypeError("no answer was given: pass the answer to the only question, or answers={id: …}")
    given = {_only_question(asking): answer} if answer is not NO_ANSWER else {}
    given = {**given, **(answers or {}), **_results_by_question(asking, results or {})}
    return {id_: _checked(asking, id_, each) for id_, each in given.items()}


def _checked(asking: Asking, id_: str, answer: object) -> object:
    log = asking.log
    if id_ not in log.state.questions:
        expired = log.state.expired.get(id_)
        if expired is not None:
            raise asking.refusal(LateAnswerError(id_, moment_of(expired)))
        ids = ", ".join(map(repr, log.state.questions)) or "none"
        raise asking.refusal(AnswerError(id_, f"run {asking.run_id!r} has no open question {id_!r}; open are: {ids}"))
    question = asking.question(id_)
    try:
        checked = question.check(answer)
        if isinstance(checked, Approve | Deny) and checked.at is None:
            checked = replace(checked, at=datetime.fromtimestamp(_clock.now() / 1000, UTC))
        _check_use(asking, question, checked)
    except AnswerError as error:
        raise asking.refusal(error) from None
    return checked


def _results_by_question(asking: Asking, results: Mapping[str, object]) -> dict[str, object]:
    """Return results of deferred tool calls by the ids of their questions; those of sub-agents are longer than those of the calls.

    Raises:
        AnswerError: the run waits for no such result.
    """
    found: dict[str, object] = {}
    open_ = [asking.question(id_) for id_ in asking.log.state.questions] if results else ()
    calls = {each.id: each.call.id for each in open_ if each.kind == "result" and each.call is not None}
    for key, result in results.items():
        ids = [key] if key in calls else [id_ for id_, call in calls.items() if call == key]
        if len(ids) != 1:
            kind = next((each.kind for each in open_ if each.id == key), "")
            shown = ", ".join(map(repr, calls)) or "none"
            asked = f"question {key!r} is of the kind {kind!r}, and answered with answers=" if kind else ""
            several = (
                f"several open calls have the id {key!r}"
                if ids
                else f"run {asking.run_id!r} has no open question {key!r}"
            )
            raise asking.refusal(AnswerError(key, asked or f"{several}; open are: {shown}"))
        found[ids[0]] = result
    return found


def _only_question(asking: Asking) -> str:
    """Return the id of the only open question.

    Raises:
        AnswerError: there is none, or there are several.
    """
    state = asking.log.state
    if len(state.questions) == 1:
        return next(iter(state.questions))
    if not state.questions:
        ended = "has ended and " if state.run.status == "done" else ""
        raise asking.refusal(AnswerError("", f"run {asking.run_id!r} {ended}waits for no answer; leave it out"))
    ids = ", ".join(map(repr, state.questions))
    text = f"run {asking.run_id!r} waits for several answers: pass answers={{id: …}}; the ids are {ids}"
    raise asking.refusal(AnswerError("", text))


def _check_use(asking: Asking, question: Question, answer: object) -> None:
    """Check that a tool takes the arguments that were changed, and that the store can hold the answer."""
    call, changed = question.call, answer.arguments if isinstance(answer, Approve) else None
    if call is not None and changed is not None:
        for tool in asking.tools():
            try:
                if tool.name == call.name:
                    tool.check(changed)
            except ArgumentsError as error:
                text = f"the answer to {question.id!r} changes the call: {error}"
                raise AnswerError(question.id, text) from None
    if asking.log.durable:
        try:
            kind = Deny if isinstance(answer, Deny) else question.type
            encode(answer, HeldBlobs(), kind)
        except SerializationError as error:
            raise AnswerError(question.id, f"the answer to {question.id!r} cannot be kept: {error}") from None


def _known_tools(run: AgentRun) -> Iterator[Tool]:
    """Yield the tools that nodes may use, as far as they are known without executing anything."""
    for site in sites(run.config.strategy, run.config.tools):
        yield from (tool for tool in site.own_tools if isinstance(tool, Tool))
    for tools in (run.listed or {}).values():
        yield from tools
