"""The tools of a memory server. Their docstrings, and those of their parameters, are what the models of hosts read.

The file is long because each tool declares and describes its own parameters.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp_types import CallToolResult, ToolAnnotations
from pydantic import ConfigDict, Field

from graphagent._annotations import union_members
from graphagent._tracebacks import frames_of, without_credentials
from graphagent.errors import AnswerError, GraphAgentError
from graphagent.history import PendingQuestion, Place, answer_run, list_questions, reach
from graphagent.llm import Approve, Deny, ToolCall
from graphagent.memory import KnownFact, NoteView, Source
from graphagent.memory.agent_memory._shown import matching
from graphagent.memory_server._facts import ServedFacts
from graphagent.memory_server._results import (
    FACT,
    MOST,
    NOTE,
    Answered,
    Explained,
    FactsPage,
    Forgotten,
    NotesPage,
    QuestionShown,
    QuestionsPage,
    Recalled,
    Saved,
    ScopeShown,
    answer,
    beginning,
    fact_shown,
    former_shown,
    known_shown,
    note_shown,
    page,
    size_of,
)
from graphagent.protocols import Store

_log = logging.getLogger("graphagent.memory_server")
_WHOLE = 20_000
"""How many characters of one note are shown at a time."""
_LEVELS = 3
"""How many levels of scopes a list has."""
_SCOPES = 100
_LAST = 10**9
"""The largest offset."""
_LONGEST_NAME = 100
"""How many characters of the name of a client are kept."""

_VERDICTS = ("approval", "in_flight")
"""The kinds of questions that are answered by yes or no."""

_Limit = Annotated[int, Field(ge=1, le=MOST, description="The most to return.")]
_Offset = Annotated[int, Field(ge=0, le=_LAST, description="How many to skip: next_offset of the page before.")]
_Under = Annotated[str | None, Field(description="Only notes in this scope and below it, such as /project/alpha.")]
_Categories = Annotated[list[str] | None, Field(description="Only notes that have one of these categories.")]
_Since = Annotated[
    datetime | None, Field(description="Only notes that were said, or else saved, at this time or later.")
]
_Until = Annotated[
    datetime | None, Field(description="Only notes that were said, or else saved, at this time or earlier.")
]
_Context = Context[Any, Any]


@dataclass(frozen=True, slots=True)
class MemoryTools:
    """The tools of a memory server, over what it serves."""

    facts_: ServedFacts | None
    notes_: NoteView | None
    runs: Store | None
    answers: bool
    """Whether runs can be answered."""
    owner: str
    trust: str
    """The trust of what clients save."""
    read_only: bool

    def offered(self) -> Iterator[Tool]:
        """Yield the tools for the parts that are served."""
        reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        adds = ToolAnnotations(
            read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
        )
        erases = ToolAnnotations(
            read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
        )
        acts = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)
        writable = not self.read_only
        has_any = self.facts_ is not None or self.notes_ is not None
        for function, title, hints, is_offered in (
            (self.recall, "Recall", reads, has_any),
            (self.remember, "Remember a note", adds, self.notes_ is not None and writable),
            (self.remember_fact, "Remember a fact", adds, self.facts_ is not None and writable),
            (self.forget, "Forget for good", erases, has_any and writable),
            (self.facts, "List facts", reads, self.facts_ is not None),
            (self.notes, "List notes", reads, self.notes_ is not None),
            (self.explain, "Explain why something is known", reads, has_any),
            (self.questions, "List open questions", reads, self.runs is not None),
            (self.answer, "Answer an open question", acts, self.answers and writable),
        ):
            if is_offered:
                yield _strict(Tool.from_function(_told(function), title=title, annotations=hints))

    async def recall(
        self,
        query: Annotated[str, Field(min_length=1, description="A question, or some words.")],
        scope: _Under = None,
        categories: _Categories = None,
        since: _Since = None,
        until: _Until = None,
        limit: _Limit = 10,
    ) -> Annotated[CallToolResult, Recalled]:
        """Find what the memory knows about a question: facts, and notes of what was said, the best first.

        Use it before you say that you do not know something about the person or their work.
        """
        matches = (
            []
            if self.notes_ is None
            else await self.notes_.recall(query, scope, categories, limit, since=_aware(since), until=_aware(until))
        )
        notes, _ = page([note_shown(each.record, score=each.score) for each in matches], 0, limit, size_of)
        known = [] if self.facts_ is None else await self.facts_.known()
        facts, _ = page(known_shown(matching(known, [query])[:limit], known), 0, limit, size_of)
        return answer(Recalled(facts=facts, notes=notes))

    async def remember(
        self,
        text: Annotated[
            str, Field(min_length=1, description="What to keep, so that it can be understood alone later.")
        ],
        context: _Context,
        scope: Annotated[str | None, Field(description="Where to keep it, such as /project/alpha.")] = None,
        categories: Annotated[list[str] | None, Field(description="Its topics, such as decision.")] = None,
        importance: Annotated[float | None, Field(ge=0, le=1, description="From 0 to 1.")] = None,
        said_at: Annotated[datetime | None, Field(description="When it was said, if not now.")] = None,
    ) -> Annotated[CallToolResult, Saved]:
        """Keep a note: something that was said, decided or happened, and may be asked for later. It is on the disk when this returns.

        Do not keep passwords, keys or other secrets.
        """
        assert self.notes_ is not None
        record = await self.notes_.remember(
            text, scope, categories, importance=importance, at=_aware(said_at), trust=self.trust,
            metadata={"client": _client(context)},
        )  # fmt: skip
        return answer(Saved(id=NOTE + record.id, version=record.version, trust=record.trust))

    async def remember_fact(
        self,
        keyword: Annotated[
            str, Field(min_length=1, description="What it is about, such as city or diet; the same for later values.")
        ],
        value: Annotated[str, Field(min_length=1, description="The value, such as Oslo.")],
        context: _Context,
        description: Annotated[str, Field(description="What the keyword means. By default as it is known.")] = "",
        several: Annotated[
            bool, Field(description="Whether there can be several values at once, to which this one is added.")
        ] = False,
        valid_from: Annotated[datetime | None, Field(description="Since when it is true, if not now.")] = None,
        valid_to: Annotated[
            datetime | None, Field(description="From when it is not true any more, if that is known.")
        ] = None,
    ) -> Annotated[CallToolResult, Saved]:
        """Keep a fact: one value under a keyword, which replaces the value before. Its history keeps that.

        Look with the tool facts which keywords exist, and use these.
        """
        assert self.facts_ is not None
        saved, beside = await self.facts_.save(
            keyword, value, Source(origin=f"mcp {_client(context)}".strip(), trust=self.trust),
            description=description, several=several, valid_from=_aware(valid_from), valid_to=_aware(valid_to),
        )  # fmt: skip
        hint = (
            "Another value is known too, from a source that is trusted more, or for another time; explain shows both."
            if beside
            else ""
        )
        return answer(Saved(id=FACT + saved.id, version=saved.version, trust=self.trust, hint=hint))

    async def forget(
        self,
        ids: Annotated[
            list[str], Field(min_length=1, max_length=MOST, description="Ids of facts and notes, as results have them.")
        ],
        value: Annotated[
            str | None, Field(description="Only this value, of one fact that has several; the others stay.")
        ] = None,
    ) -> Annotated[CallToolResult, Forgotten]:
        """Erase facts and notes for good, with their history. It cannot be undone: ask the person first.

        To correct a fact, save a new value instead.
        """
        noted = [id_ for id_ in ids if _is_note(id_)]
        if value is not None and (len(ids) > 1 or noted):
            raise ToolError("value is a value of one fact; give the id of that fact alone")
        for id_ in noted:
            await self._note(id_)
        places = {await self._facts().find(id_.removeprefix(FACT)): None for id_ in ids if id_ not in noted}
        facts = sum([await self._facts().forget(place, value) for place in places])
        notes = 0
        if noted:
            assert self.notes_ is not None
            notes = (await self.notes_.forget(ids=[id_.removeprefix(NOTE) for id_ in noted])).notes
        hint = "Prompts and answers of runs may still have it; people find and forget these with: graphagent forget"
        return answer(Forgotten(facts=facts, notes=notes, hint=hint))

    async def facts(
        self,
        query: Annotated[str | None, Field(description="Only facts that have words of this, the best first.")] = None,
        about: Annotated[str | None, Field(description="Only facts about this person or thing, such as user.")] = None,
        as_of: Annotated[datetime | None, Field(description="Facts that were true then, as is known now.")] = None,
        offset: _Offset = 0,
        limit: _Limit = MOST,
    ) -> Annotated[CallToolResult, FactsPage]:
        """List the facts that are known, page by page: values under keywords, with who said so and since when."""
        known = await self._facts().known(_aware(as_of))
        found = matching(known, [query]) if query is not None else known
        found = [each for each in found if about in (None, each.subject.name)]
        shown, after = page(known_shown(found[offset : offset + limit + 1], known), offset, limit, size_of)
        return answer(FactsPage(facts=shown, next_offset=after))

    async def notes(
        self,
        scope: _Under = None,
        categories: _Categories = None,
        since: _Since = None,
        until: _Until = None,
        offset: _Offset = 0,
        limit: _Limit = 20,
    ) -> Annotated[CallToolResult, NotesPage]:
        """List notes page by page, the newest first, with the scopes that there are."""
        assert self.notes_ is not None
        records = await self.notes_.list_records(
            scope, limit + 1, offset, categories=categories, since=_aware(since), until=_aware(until)
        )
        shown, after = page([note_shown(each) for each in records], offset, limit, size_of)
        scopes: list[ScopeShown] = []
        if not offset:
            left = [await self.notes_.tree(scope, _LEVELS)]
            while left and len(scopes) < _SCOPES:
                each = left.pop(0)
                scopes.append(ScopeShown(path=each.path, notes=each.record_count))
                left += each.children
        return answer(NotesPage(notes=shown, scopes=scopes, next_offset=after))

    async def explain(
        self,
        id: Annotated[str, Field(min_length=1, description="The id of a fact or a note, as results have it.")],
        text_from: Annotated[
            int, Field(ge=0, le=_LAST, description="The character of a long note at which to begin.")
        ] = 0,
        offset: _Offset = 0,
        with_runs: Annotated[
            bool,
            Field(description="Whether to say in which runs it was saved and used. This reads the logs of all runs."),
        ] = False,
    ) -> Annotated[CallToolResult, Explained]:
        """Say why something is known: a fact or a note in full, its source and trust, and its history."""
        explained, where = await (self._of_note(id, text_from, offset) if _is_note(id) else self._of_fact(id, offset))
        if with_runs and self.runs is not None:
            places: list[Place] = [self.runs]
            places += [] if self.facts_ is None else [self.facts_.provider]
            places += [] if self.notes_ is None else [self.notes_]
            reached = await reach(*places, owner=self.owner, **where)
            explained.runs = [each.to_text() for each in reached if each.kind == "run"][:MOST]
            explained.repeated_in = len({each.id for each in reached if each.kind in ("fact", "note")})
        return answer(explained)

    async def questions(self, offset: _Offset = 0, limit: _Limit = 20) -> Annotated[CallToolResult, QuestionsPage]:
        """List what runs of agents wait for people to answer, those that have waited longest first."""
        assert self.runs is not None
        found = await list_questions(self.runs, owner=self.owner)
        shown = [_question_shown(each) for each in found[offset : offset + limit + 1]]
        chosen, after = page(shown, offset, limit, size_of)
        return answer(QuestionsPage(questions=chosen, next_offset=after))

    async def answer(
        self,
        run_id: Annotated[str, Field(description="The run that waits.")],
        id: Annotated[str, Field(description="The id of the question.")],
        context: _Context,
        value: Annotated[
            Any, Field(description="The answer, as its JSON schema says; of an approval true, or false with a reason.")
        ] = None,
        reason: Annotated[
            str | None, Field(description="Why it is refused. Without a value, the question is declined.")
        ] = None,
    ) -> Annotated[CallToolResult, Answered]:
        """Answer what a run waits for. Ask the person first, and give their answer, not your own: the run then goes on and acts."""
        assert self.runs is not None
        asked = [each for each in await list_questions(self.runs, owner=self.owner) if each.run_id == run_id]
        pending = next((each for each in asked if each.question.id == id), None)
        if pending is None:
            raise ToolError(f"the run {run_id!r} does not wait for {id!r}; the tool questions lists what waits")
        given, by = value, f"mcp {_client(context)}".strip()
        if (value is None and reason is not None) or (value is False and pending.question.kind in _VERDICTS):
            given = Deny(reason or "", by=by)
        elif value is True and pending.question.kind in _VERDICTS:
            given = Approve(by=by)
        record = functools.partial(answer_run, self.runs, run_id, owner=self.owner)
        try:
            await record(answers={id: given})
        except AnswerError:
            # Some hosts send an object or a list as JSON text, which is the answer itself where a question asks for text.
            if (read := _structure_in(given)) is None:
                raise
            await record(answers={id: read})
        return answer(Answered(run_id=run_id, hint="A worker goes on with the run."))

    def _facts(self) -> ServedFacts:
        if self.facts_ is None:
            raise ToolError(f"no facts are served here; ids of notes begin with {NOTE!r}")
        return self.facts_

    async def _note(self, id_: str) -> Any:
        found = None if self.notes_ is None else await self.notes_.get(id_.removeprefix(NOTE))
        if found is None:
            raise ToolError(f"the note {id_!r} does not exist here; the tool notes lists them with their ids")
        return found

    async def _of_note(self, id_: str, start: int, offset: int) -> tuple[Explained, Mapping[str, Any]]:
        record = await self._note(id_)
        assert self.notes_ is not None
        past = [former_shown(each) for each in await self.notes_.history(record.id)]
        shown, after = page(past[offset : offset + MOST + 1], offset, MOST, size_of)
        now = note_shown(record, start=start, most=_WHOLE)
        return Explained(note=now, note_versions=shown, next_offset=after), {"notes": [record.id]}

    async def _of_fact(self, id_: str, offset: int) -> tuple[Explained, Mapping[str, Any]]:
        served = self._facts()
        concept, subject, scope = await served.find(id_.removeprefix(FACT))
        known = [
            KnownFact(each, subject, scope)
            for each in await served.provider.load(concept, subject, scope, owner=self.owner)
        ]
        versions = [
            fact_shown(each, subject.name, scope)
            for each in await served.provider.history(concept, subject, scope, owner=self.owner)
        ]
        shown, after = page(versions[offset : offset + MOST + 1], offset, MOST, size_of)
        explained = Explained(facts=known_shown(known, known), fact_versions=shown, next_offset=after)
        return explained, {"concept": concept, "subject": subject, "scope": scope}


def _is_note(id_: str) -> bool:
    """Return whether an id is that of a note.

    Raises:
        ToolError: it is neither that of a note nor of a fact.
    """
    if not id_.startswith((NOTE, FACT)):
        raise ToolError(
            f"{id_!r} is not an id; ids begin with {NOTE!r} or {FACT!r}, as results of these tools have them"
        )
    return id_.startswith(NOTE)


def _question_shown(pending: PendingQuestion) -> QuestionShown:
    question, about = pending.question, pending.question.about
    subject = f"{about.name}({about.arguments})" if isinstance(about, ToolCall) else "" if about is None else str(about)
    return QuestionShown(
        run_id=pending.run_id, id=question.id, question=beginning(question.question), kind=question.kind,
        strategy=pending.strategy, thread=pending.thread, about=beginning(subject),
        answer=beginning(json.dumps(dict(question.json_schema))) if question.json_schema else "",
        asked=pending.since.isoformat(timespec="seconds"),
        deadline="" if pending.deadline is None else pending.deadline.isoformat(timespec="seconds"),
    )  # fmt: skip


def _structure_in(answer: object) -> Any:
    """Return the list or the object that an answer is as JSON; None if it is something else."""
    try:
        read = json.loads(answer) if isinstance(answer, str) else None
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, list | dict) else None  # pyright: ignore[reportUnknownVariableType]


def _client(context: _Context) -> str:
    """Return the client that calls, as it calls itself; empty if it does not say."""
    params = context.request_context.session.client_params
    return "" if params is None else f"{params.client_info.name} {params.client_info.version}".strip()[:_LONGEST_NAME]


def _aware(time: datetime | None) -> datetime | None:
    """Return a time with a time zone: UTC if it has none."""
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def _told(function: Callable[..., Awaitable[CallToolResult]]) -> Callable[..., Awaitable[CallToolResult]]:
    """Return a tool that says why it failed, in words that are safe to show: those of errors that callers can act on."""

    @functools.wraps(function)
    async def told(*args: Any, **named: Any) -> CallToolResult:
        try:
            return await function(*args, **named)
        except ToolError:
            raise
        except (GraphAgentError, ValueError, TypeError) as error:
            raise ToolError(without_credentials(str(error))) from None
        except Exception as error:  # noqa: BLE001  it is raised again, without its text
            kind, frames = type(error).__name__, frames_of(error)
            more = {"tool": function.__name__, "error_type": kind, "frames": frames}
            _log.error("tool %r raised %s at %s", function.__name__, kind, frames[-1:], extra=more)
            raise ToolError(f"the memory server failed with {kind}; its log says where") from None

    return told


class _AsSent(FuncMetadata):
    """The parameters of a tool, of which texts stay as they were sent.

    FuncMetadata reads JSON in the text for every parameter that is not a `str` alone, and so takes the text `null` for no value.
    """

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        texts = {
            name: data[name]
            for name, parameter in self.arg_model.model_fields.items()
            if isinstance(data.get(name), str) and {str, Any}.intersection(union_members(parameter.annotation))
        }
        return super().pre_parse_json(data) | texts


def _strict(tool: Tool) -> Tool:
    """Return a tool that takes texts as they are, and refuses arguments that it does not have.

    A client that sends an argument such as `owner` would otherwise think that the argument has an effect.
    """
    given = tool.fn_metadata
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    tool.fn_metadata = _AsSent(
        arg_model=type(given.arg_model.__name__, (given.arg_model,), {"__module__": __name__, "model_config": config}),
        output_schema=given.output_schema, output_model=given.output_model, wrap_output=given.wrap_output,
    )  # fmt: skip
    tool.parameters = tool.fn_metadata.arg_model.model_json_schema(by_alias=True)
    return tool
