"""Recording what happens in a run: entries are built from its frames, applied to its state, and appended to its journal.

Every value and every message is written once; where it occurs again, a reference to the entry that has it is written:
`{"$at": [number, …]}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from graphagent import _clock
from graphagent.codec._internal import encode, message_json, usage_json
from graphagent.errors import JournalError, NodeFailedError, SerializationError, StoreError
from graphagent.graph import Each, Node, Parallel, Tap, TapOf
from graphagent.llm import ModelResponse, ToolCalls, ToolResult, ToolResults
from graphagent.memory._internal import Added, Change, Edited, Lowered, Opened, Replaced, Shut, StepWriter, message_hash
from graphagent.run.engine._stored_refs import StoredRef
from graphagent.run.journal._references import refers_to_facts, refers_to_notes
from graphagent.run.state._entries import (
    ABSENT,
    CACHED,
    BranchFailed,
    EffectBegun,
    EffectDone,
    Finished,
    NodeEnded,
    NodeInterrupted,
    Recovered,
    Resumed,
    Retried,
    RunEdited,
    Started,
    Stopped,
    ToolsListed,
    UsageCounted,
)
from graphagent.run.state._state import Effect, RunState

if TYPE_CHECKING:
    from graphagent.codec._internal import Json
    from graphagent.graph import Outline, Strategy
    from graphagent.memory import Step
    from graphagent.run._compiled import CompiledEdge, CompiledNode
    from graphagent.run.engine._context import LiveFrame
    from graphagent.run.journal._writer import JournalWriter
    from graphagent.run.state._entries import JournalEntry
    from graphagent.run.state._questions import Question

FORMAT = 1


class Recorder:
    """Records what happens in one run."""

    def __init__(self, writer: JournalWriter, state: RunState, identity: object = None) -> None:
        self.writer = writer
        self.state = state
        """The state of the run, whose frames are those that are executed."""
        self.new_strategy: Outline | None = None
        """The outline of the strategy, if it was changed since the run began; written when the run is resumed."""
        self.task: StoredRef | None = None
        """The task."""
        self.identity = identity or self
        """Identifies the journal in the steps that are stored in it."""
        self._charged = 0
        """The number of charges that entries have."""

    @property
    def finished(self) -> bool:
        """Whether the answer is recorded; no entry comes after that."""
        return self.state.status == "done"

    # ---- the run

    async def start(self, frame: LiveFrame, strategy: Strategy[Any, Any], task: Any) -> None:
        """Write the first entry of a run, with its header."""
        if self.state.last < self.state.begun:
            value, self.task = self._stored(frame, task, strategy.input_type)
            frame.ref = self.task
            transcript = self._transcript(frame, task)
            self._append(
                Started(
                    at=_clock.now(), format=FORMAT, strategy=msgspec.to_builtins(strategy.outline), begun=frame.memory.begun,
                    value=value, system=encode(frame.memory.system_prompt.system_prompt, self.writer),
                    following=strategy.outline.first, **transcript,
                )
            )  # fmt: skip
        await self.commit(header=True)

    def resumed(self, frame: LiveFrame, answers: Iterable[tuple[LiveFrame, Question, Any]]) -> None:
        """Record that the run is resumed, with answers. Once that is committed, whoever had it before cannot write any more.

        Raises:
            SerializationError: an answer cannot be stored.
        """
        answers = list(answers)
        found: list[dict[str, Any]] = []
        for asking, question, answer in answers:
            value, kind = question.as_stored(answer)
            found.append(
                {
                    "in": asking.path,
                    "node": asking.node or "",
                    "key": question.key,
                    "value": encode(value, self.writer, kind),
                }
            )
        new = None if self.new_strategy is None else msgspec.to_builtins(self.new_strategy)
        self._append(Resumed(at=_clock.now(), strategy=new, answers=found or (), **self._spent(frame, ran=True)))
        self.new_strategy = None
        for place, (asking, question, answer) in enumerate(answers):
            value, _ = question.as_stored(answer)
            asking.effects = asking.effects or {}
            asking.effects[question.key] = Effect(answer, self.writer.last, place)
            if type(value) is str:
                asking.remember_ref(StoredRef(value, _at(self.writer.last, "answers", place)))

    def tools_listed(self, server: str, listed: Sequence[Mapping[str, Any]]) -> None:
        """Record the tools of a server. This is committed with the next entry: until then, asking again does no harm."""
        self._append(ToolsListed(at=_clock.now(), server=server, value=encode(list(listed), self.writer)))

    async def stopped(self, frame: LiveFrame, failure: Exception | None) -> None:
        """Record that the run stops, with its error and the drafts of its nodes, and release it."""
        header, runtime = self.writer.header, frame.runtime
        attempts: dict[str, dict[str, int]] = {}
        drafted: set[int] = set()
        for each in frame.inside_out():
            if each.attempts:
                attempts[each.path] = dict(each.attempts)
            if id(each.memory) not in drafted:
                drafted.add(id(each.memory))
                self._interrupted(each)
        questions: Sequence[Mapping[str, Json]] = ()
        if header.status == "waiting":
            questions = [self._question(each, runtime.asking[each.id]) for each in runtime.questions.values()]
        self._append(
            Stopped(
                at=_clock.now(), status=header.status, reason=encode(header.reason, self.writer) if header.reason else "",
                failure=None if failure is None else self._failure(failure), questions=questions, attempts=attempts or None,
                **self._spent(frame, ran=True),
            )
        )  # fmt: skip
        await self.commit(header=True)

    def _interrupted(self, frame: LiveFrame) -> None:
        """Record the steps that an interrupted node has added, as a draft."""
        try:
            transcript = self._transcript(frame, None, kept=False)
        except (SerializationError, NodeFailedError):
            return  # the run stops for that very reason
        if "steps" in transcript:
            again = _made_again(frame)
            self._append(NodeInterrupted(again=again or (), **self._of_node(frame, ran=True), **transcript))

    def edited(self, frame: LiveFrame) -> None:
        """Record the steps that were changed while the run was not executed, if any were.

        A branch that has its copy of these steps, and no entry yet, is recorded before: who reads the entries copies the steps
        where a branch is first mentioned, and it has them as they were.
        """
        memory = frame.memory
        if memory.loaded and memory.changes():
            for each in frame.live_frames():
                if each.memory is not memory and each.memory.loaded:
                    branch = [list(part) for part in each.branches]
                    self._append(RunEdited(at=_clock.now(), heard=[*each.memory.written_heard], branch=branch))
        transcript = self._transcript(frame, frame.value if frame.compiled is not None else None)
        if "steps" in transcript:
            self._append(RunEdited(at=_clock.now(), **transcript))

    def placed(self, frame: LiveFrame, node: CompiledNode, value: Any, kind: Any) -> None:
        """Record that a frame was put before a node, with a value, while the run was not executed.

        Raises:
            NodeFailedError: the value cannot be stored.
        """
        data, ref = self._stored(frame, value, kind)
        transcript = self._transcript(frame, value)
        self._append(RunEdited(at=_clock.now(), path=frame.path, following=node.name, value=data, **transcript))
        frame.compiled, frame.value, frame.ref = node, value, ref

    def final(self, frame: LiveFrame, output: Any) -> None:
        """Record the answer. It is to be committed with the header, which releases the run.

        Raises:
            SerializationError: something in it cannot be stored.
        """
        value, ref = self._stored(frame, output, frame.runtime.output_type)
        if ref is not None:
            frame.remember_ref(ref)
        transcript = self._transcript(frame, None)
        self._append(Finished(at=_clock.now(), value=value, **transcript, **self._spent(frame, ran=True)))

    # ---- nodes

    def node_ended(
        self,
        frame: LiveFrame,
        node: CompiledNode,
        output: Any,
        following: CompiledNode,
        passed: Any,
        edge: CompiledEdge | None,
    ) -> None:
        """Record that a node ended, and which one comes next. It is to be committed before the run continues.

        Raises:
            NodeFailedError: something in it cannot be stored.
        """
        if frame.runtime.recorded is not None:
            frame.runtime.recorded.left(frame.path, node.name)
        value, like, ref = self._output(frame, node, output)
        if ref is not None:  # a step of this entry may have the output too, whose type only the node declares
            frame.remember_ref(ref)
        transcript = self._transcript(frame, passed)
        self._append(
            NodeEnded(
                following=following.name, edge=None if edge is None else edge.number, value=value, like=like,
                **self._of_node(frame), **transcript,
            )
        )  # fmt: skip
        frame.ref = ref if passed is output else self._passed(passed, edge)

    def recovered(
        self, frame: LiveFrame, node: CompiledNode, edge: CompiledEdge, caught: Exception, passed: Any
    ) -> None:
        """Record that a node failed, and that an error edge was taken. It is to be committed before the run continues."""
        if frame.runtime.recorded is not None:
            frame.runtime.recorded.left(frame.path, node.name)
        value: Json = ABSENT
        like: Sequence[Json] | None = None
        ref: StoredRef | None = None
        tap_input = node.passes_input and not edge.changes
        if tap_input:
            value, like, ref = self._output(frame, node, passed)
        elif passed is not caught:
            with suppress(SerializationError):  # then it is made of the error again
                value = encode(passed, self.writer, edge.value_type)
        transcript = self._transcript(frame, passed)
        self._append(
            Recovered(
                following=edge.target.name, edge=edge.number, error=self._error(caught, edge.errors[0]), value=value,
                passed=tap_input, like=like, **self._of_node(frame, ran=True), **transcript,
            )
        )  # fmt: skip
        frame.ref = ref or self._passed(passed, edge)

    async def retried(self, frame: LiveFrame, value: Any, *, whole: bool) -> None:
        """Write that a node, or the whole strategy, is tried again."""
        node = "" if whole else frame.node or ""
        if frame.runtime.recorded is not None:
            frame.runtime.recorded.left(frame.path, node)
        transcript = self._transcript(frame, value)
        self._append(Retried(**{**self._of_node(frame, ran=True), "node": node}, **transcript))
        await self.commit()

    def branch_failed(self, frame: LiveFrame, error: NodeFailedError) -> None:
        """Record that a branch failed, and that its error is its result. It is to be committed before the run continues."""
        if frame.runtime.recorded is not None:
            frame.runtime.recorded.left(frame.path, frame.node or "")
        value = encode(error, self.writer)
        transcript = self._transcript(frame, None)
        self._append(BranchFailed(value=value, **self._of_node(frame, ran=True), **transcript))
        frame.ref = StoredRef(error, _at(self.writer.last))

    # ---- effects

    async def effect_done(self, frame: LiveFrame, key: str, outcome: Any) -> None:
        """Write the outcome of an effect."""
        if isinstance(outcome, ModelResponse):
            response = {
                "message": message_json(outcome.message, self.writer),
                "usage": usage_json(outcome.usage),
                "finish": outcome.finish_reason,
                "model": outcome.model,
            }
            common = self._of_node(frame, ran=True, answered=(key, response))
            self._append(EffectDone(key=key, response=response, **common))
            frame.remember_ref(StoredRef(outcome.message, _at(self.writer.last, "message")))
        elif key == CACHED:
            assert frame.compiled is not None
            assert isinstance(frame.compiled.element, Node)
            value, ref = self._stored(frame, outcome, frame.compiled.element.output_type)
            self._append(EffectDone(key=key, value=value, **self._of_node(frame, ran=True)))
            if ref is not None:
                frame.remember_ref(ref)
        else:
            value = encode(outcome, self.writer)
            self._append(EffectDone(key=key, value=value, **self._of_node(frame, ran=True)))
            if isinstance(outcome, ToolResult):
                frame.remember_ref(StoredRef(outcome, _at(self.writer.last)))
        effects = self.state.frame(frame.path).effects
        assert effects is not None
        effects[key].value = outcome
        frame.effects = effects
        await self.commit()

    async def effect_begun(self, frame: LiveFrame, key: str) -> None:
        """Write that a node is about to do something that it must not begin twice without asking."""
        self._append(EffectBegun(key=key, **self._of_node(frame, ran=True)))
        await self.commit()

    async def usage_counted(self, frame: LiveFrame) -> None:
        """Write what was spent on a request whose answer is not recorded."""
        self._append(UsageCounted(**self._of_node(frame, ran=True)))
        await self.commit()

    # ---- the parts of an entry

    def _of_node(
        self, frame: LiveFrame, *, ran: bool = False, answered: tuple[str, dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        """Return the fields of an entry that belongs to a node."""
        found = self._spent(frame, ran=ran, answered=answered)
        found["at"], found["node"], found["path"] = _clock.now(), frame.node or "", frame.path
        if frame.attempts:
            found["attempts"] = dict(frame.attempts)
        meter = frame.meter
        if meter.parent is not None:
            own: list[Any] = []
            while meter.parent is not None:
                own.append([meter.nodes, meter.turns, *usage_json(meter.settled)])
                meter = meter.parent
            found["own"] = own
        return found

    def _spent(
        self, frame: LiveFrame, *, ran: bool, answered: tuple[str, dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        """Return the fields that say what was spent. The response that an entry has says itself what it took."""
        runtime = frame.runtime
        found: dict[str, Any] = {"ran": round(runtime.elapsed * 1000)} if ran else {}
        meter, usage = runtime.meter, runtime.meter.settled
        if meter.turns or usage.total_tokens or usage.cost:
            found["spent"] = [meter.nodes, meter.turns, *usage_json(usage)]
        else:
            found["spent"] = meter.nodes
        charges = runtime.charges[self._charged :]
        if charges:
            self._charged += len(charges)
            node = frame.node_path
            rows = [
                each.row()
                for each in charges
                if answered is None
                or (each.what, each.node) != (answered[0], node)
                or usage_json(each.usage) != answered[1]["usage"]
            ]
            if rows:
                found["charges"] = rows
        return found

    def _question(self, question: Question, asking: LiveFrame) -> dict[str, Any]:
        about = question.about
        try:
            shown = (self._found(asking, about) if type(about) is str else None) or encode(about, self.writer)
        except SerializationError:
            shown = encode(str(about), self.writer)
        return {
            "id": question.id,
            "node": question.node,
            "kind": question.kind,
            "question": encode(question.question, self.writer),
            "about": shown,
            **({"run": question.run_id} if question.run_id else {}),
        }

    def _error(self, error: Exception, kind: type[Exception]) -> Json:
        """Return an error as its class declares it, or its text alone."""
        try:
            return encode(error, self.writer, kind)
        except SerializationError:
            return encode(str(error), self.writer)

    def _failure(self, error: BaseException) -> Json:
        """Return the error of a node, or else of the run itself, for people: without the values of variables."""
        from traceback import TracebackException

        while isinstance(error, NodeFailedError) and error.__cause__ is not None:
            error = error.__cause__
        shown = TracebackException.from_exception(error)
        texts = {"type": type(error).__name__, "message": str(shown), "traceback": "".join(shown.format())}
        return {name: encode(text, self.writer) for name, text in texts.items()}

    # ---- values

    @property
    def _number(self) -> int:
        """The number of the entry that is being built."""
        return self.writer.last + 1

    def _passed(self, passed: Any, edge: CompiledEdge | None) -> StoredRef | None:
        """Return the reference to the value that an edge made of the output in the last entry."""
        if edge is None:
            return None
        return StoredRef.of(passed, _at(self.writer.last, "handed"), self.writer, edge.value_type)

    def _output(
        self, frame: LiveFrame, node: CompiledNode, output: Any
    ) -> tuple[Json, Sequence[Json] | None, StoredRef | None]:
        """Return the output of a node as it is written, the place whose type it has if a tap changed it, and its reference."""
        element = node.element
        kind = element.output_type if isinstance(element, Node) else Any
        if isinstance(element, Parallel | Each) and type(output) in (list, tuple) and frame.refs is not None:
            # The results of branches, each of which has a reference.
            kinds = [branch.output_type for branch in element.branches] * (
                1 if isinstance(element, Parallel) else len(output)
            )
            parts = [self._stored(frame, each, kinds[n])[0] for n, each in enumerate(output)]
            return {"$": "joined", "v": parts}, None, StoredRef.of(output, _at(self._number), self.writer, kind)
        like: Sequence[Json] | None = None
        if isinstance(element, Tap | TapOf):
            ref = self._ref(frame, output)
            if ref is not None and ref.changed(self.writer) is not None:
                kind, like = ref.kind, ref.place["$at"]
        value, ref = self._stored(frame, output, kind)
        return value, like, ref

    def _stored(self, frame: LiveFrame, value: Any, kind: Any) -> tuple[Json, StoredRef | None]:
        """Return a value as it is written, and the reference to it from now on.

        Raises:
            NodeFailedError: it cannot be stored.
        """
        ref = self._ref(frame, value)
        if ref is not None and ref.changed(self.writer) is None:
            return ref.place, ref
        found = self._derived(frame, value)
        if found is not None:
            return found, StoredRef(value, found)
        try:
            data = encode(value, self.writer, kind)
        except SerializationError as error:
            raise _of_node(frame, error) from error
        return data, StoredRef.of(value, _at(self._number), self.writer, kind, data=data)

    def _ref(self, frame: LiveFrame, value: object) -> StoredRef | None:
        """Return the reference to this very object."""
        for ref in (frame.ref, self.task, frame.refs.get(id(value)) if frame.refs is not None else None):
            if ref is not None and ref.value is value:
                return ref
        return None

    def _found(self, frame: LiveFrame, value: object) -> Json | None:
        """Return the reference to a value that the journal has as it is now."""
        ref = self._ref(frame, value)
        if ref is not None:
            return ref.place if ref.changed(self.writer) is None else None
        return self._derived(frame, value)

    def _derived(self, frame: LiveFrame, value: object) -> Json | None:
        """Return the reference to the message, or the tool results, of which a value was made."""
        if frame.refs is None:
            return None
        if isinstance(value, ToolResults):
            refs = [frame.refs.get(id(each)) for each in value]
            if value and all(ref is not None for ref in refs):
                return _at("results", *(ref.place["$at"][0] for ref in refs if ref is not None))
        if isinstance(value, str | ToolCalls):
            for ref in frame.refs.values():
                number, *part = ref.place["$at"]
                if part == ["message"]:
                    message: Any = ref.value
                    if isinstance(value, ToolCalls):
                        if value.calls == message.tool_calls and value.text == message.text:
                            return _at(number, "calls")
                    elif value and value == message.text:
                        return _at(number, "text")
        return None

    # ---- transcripts

    def _transcript(self, frame: LiveFrame, current: Any, *, kept: bool = True) -> dict[str, Any]:
        """Return the fields that say how the transcript of a frame changed since the last entry.

        Args:
            frame: The frame.
            current: The value that comes next there.
            kept: Whether the changes count; else they are shown, and written again when the node ends.
        """
        memory = frame.memory
        if not memory.loaded:
            return {}
        changes = memory.changes()
        heard = memory.heard(current)
        found: dict[str, Any] = {}
        if heard != memory.written_heard:
            found["heard"] = [*heard]
        if changes:
            found["steps"] = self._changes(frame, changes, kept=kept)
        if kept:
            memory.written_heard = heard
        if frame.branches and found:
            found["branch"] = [list(each) for each in frame.branches]
        return found

    def _changes(self, frame: LiveFrame, changes: Sequence[Change], *, kept: bool) -> list[dict[str, Any]]:
        memory, features = frame.memory, frame.runtime.features
        writer = StepWriter(
            self.writer, known=lambda value: self._found(frame, value), values=not refers_to_facts(features),
            note_texts=not refers_to_notes(features),
        )  # fmt: skip
        writer.follow(memory.written)
        writer.careful = memory.retold
        if memory.begun and self.state.last < self.state.begun == 1:
            # Of the transcript that was passed to the run, steps may have been left out or edited, or it had other rules.
            steps = (memory.system_prompt, *memory.steps)
            writer.derived = {message_hash(message) for step in steps for message in step.to_messages()}
        marks: list[tuple[Step, list[int]]] = []
        try:
            found = [self._change(writer, each, place, marks) for place, each in enumerate(changes)]
        except SerializationError as error:
            raise _of_node(frame, error) from error
        if kept:
            for step, place in marks:
                step.record(self.identity, place)
            memory.kept(writer.last)
        return found

    def _change(
        self, writer: StepWriter, change: Change, place: int, marks: list[tuple[Step, list[int]]]
    ) -> dict[str, Any]:
        def written(step: Step, number: int = 0) -> Any:
            stored = step.recorded
            if stored is not None and stored[0] is self.identity:
                return {"$at": stored[1]}
            marks.append((step, [self._number, place, number]))
            return writer.step(step)

        if isinstance(change, Added):
            step: dict[str, Any] = written(change.step)
            return step
        if isinstance(change, Edited):
            return {"edit": [change.place, writer.fields(change.step, change.names, empty=True)]}
        if isinstance(change, Replaced):
            return {"put": [change.place, change.count, [written(step, n) for n, step in enumerate(change.steps)]]}
        if isinstance(change, Opened):
            return {"open": None if change.step is None else written(change.step)}
        if isinstance(change, Lowered):
            return {"trust": change.trust}
        return {"shut": True}

    # ---- writing

    def _append(self, entry: JournalEntry) -> None:
        """Append an entry, and apply it to the state. An entry that cannot be written changes nothing."""
        self.writer.append(entry)
        self.state.apply(entry)

    async def commit(self, *, header: bool = False) -> None:
        """Commit the entries that were recorded; with `header` also the header of the run.

        Raises:
            RunClaimedError: someone else continued the run.
            RunNotFoundError: the run was removed.
            JournalError: the store failed. The entries are committed by the next commit.
        """
        try:
            await self.writer.commit(header=header)
        except StoreError as error:
            raise JournalError(self.writer.header.run_id, error) from error


def _at(*place: int | str) -> dict[str, Any]:
    return {"$at": [*place]}


def _made_again(frame: LiveFrame) -> list[int]:
    """Return the places of those changes of a transcript that the node makes again when it is executed again."""
    if frame.savepoint is None:
        return []
    again = {id(step) for step in frame.savepoint.added}
    return [
        place
        for place, change in enumerate(frame.memory.changes())
        if (isinstance(change, Added) and id(change.step) in again)
        or (isinstance(change, Shut) and id(frame.savepoint.open) in again)
    ]


def _of_node(frame: LiveFrame, error: SerializationError) -> Exception:
    return error if frame.node is None else frame.runtime.of_run(NodeFailedError(frame.node_path, error))
