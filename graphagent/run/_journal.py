"""The journal of a run, as it is written: entries that are only ever added, each committed before the run goes on.

What an entry means is described in `docs/journal.md`. Every value and every message stands in it once; whatever comes up
again is a reference to the entry that has it: `{"$at": [number, …]}`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from graphagent import _clock
from graphagent.codec._internal import encode, message_json, usage_json
from graphagent.errors import JournalError, NodeFailedError, SerializationError, StoreError
from graphagent.graph import Each, Node, Parallel, Tap, TapOf
from graphagent.llm import ModelResponse, ToolCalls, ToolResult, ToolResults
from graphagent.memory._internal import Added, Change, Edited, Lowered, Opened, Replaced, StepWriter
from graphagent.run._facts import refers, refers_to_notes
from graphagent.run._held import Held
from graphagent.run._plan import DONE
from graphagent.run._said import places_again

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphagent.codec._internal import Json
    from graphagent.memory import Step
    from graphagent.run._context import Context
    from graphagent.run._ledger import Charge
    from graphagent.run._log import Log
    from graphagent.run._plan import Slot, Way
    from graphagent.run._suspend import Question

_FORMAT = 1


class Journal:
    """Writes what happens in one run."""

    def __init__(self, log: Log) -> None:
        self.log = log
        """Where the entries go."""
        self.changed: list[str] | None = None
        """What the strategy is now, where it was changed since the run began; written when the run goes on."""
        self.task: Held | None = None
        """What the run was given."""
        self.answered = False
        """Whether the answer was told, behind which nothing comes."""
        self.mark: object = self
        """Names the journal in the steps that stand in it."""
        self._charges: Sequence[Charge] = ()
        self._charged = 0
        """How many of them stand in entries."""

    # ---- what happens

    async def begin(self, ctx: Context, strategy: Sequence[str], task: Any, kind: Any, first: Slot) -> None:
        """Write the first entry of a run, with its head."""
        if not self.log.last:
            entry: dict[str, Any] = {
                "t": "start",
                "format": _FORMAT,
                "at": _clock.now(),
                "strategy": list(strategy),
                "system": encode(ctx.memory.system_prompt.system_prompt, self.log),
                "begun": ctx.memory.begun,
                "next": _named(first),
            }
            entry["value"], self.task = self._kept(ctx, task, kind)
            ctx.held = self.task
            self._steps(ctx, entry, task)
            self._make(entry)
        ctx.number = ctx.entered = 1
        await self.commit(head=True)

    def resumed(self, ctx: Context[Any], answers: Iterable[tuple[Context[Any], str, Any, Any]]) -> None:
        """Tell that a run goes on, with what was answered. Once it is committed, whoever had it before cannot write any more.

        Raises:
            SerializationError: an answer cannot be kept.
        """
        entry: dict[str, Any] = {"t": "resume", "at": _clock.now()}
        if self.changed is not None:
            entry["strategy"] = self.changed
        self._spent(ctx, entry)
        given: list[dict[str, Any]] = []
        for asked, key, value, kind in answers:
            if type(value) is str:
                asked.know(Held(value, _at(self._number, "answers", len(given))))
            given.append(
                {
                    "in": asked.prefix,
                    "node": asked.slot.name if asked.slot is not None else "",
                    "key": key,
                    "value": encode(value, self.log, kind),
                }
            )
        if given:
            entry["answers"] = given
        self._make(entry)
        self.changed = None

    def ended(self, ctx: Context, slot: Slot, output: Any, following: Slot, handed: Any, way: Way | None) -> None:
        """Tell that a node was executed, and what comes next. It is to be committed before the run goes on.

        Raises:
            NodeFailedError: something in it cannot be kept.
        """
        if ctx.state.tape is not None:
            ctx.state.tape.left(ctx.prefix, slot.name)
        entry = self._entry("node", ctx)
        entry["next"] = _named(following)
        if way is not None:
            entry["way"] = way.number
        held = self._output(ctx, slot, output, entry)
        self._steps(ctx, entry, handed)
        self._make(entry)
        _move(ctx, self.log.last, held if handed is output else self._handed(handed, way))

    def recovered(self, ctx: Context, way: Way, caught: Exception, handed: Any) -> None:
        """Tell that a node failed, and that an error path was taken. It is to be committed before the run goes on."""
        entry = self._entry("recovered", ctx)
        if ctx.state.tape is not None:
            ctx.state.tape.left(ctx.prefix, entry["node"])
        entry["next"], entry["way"] = _named(way.target), way.number
        entry["error"] = self._error(caught, next(rule.error for rule in way.rules if rule.error is not None))
        slot, passed = ctx.slot, None
        if slot is not None and slot.taps and not any(rule.change for rule in way.rules):
            entry["passed"], passed = True, self._output(ctx, slot, handed, entry)
        elif handed is not caught:
            with suppress(SerializationError):  # then it is made of the error again
                entry["value"] = encode(handed, self.log, _kind_behind(way))
        self._steps(ctx, entry, handed)
        self._make(entry)
        _move(ctx, self.log.last, passed or self._handed(handed, way))

    async def again(self, ctx: Context, value: Any, *, whole: bool = False) -> None:
        """Write that a node, or the whole strategy, is tried again."""
        entry = self._entry("again", ctx)
        if whole:
            entry["node"] = ""
        if ctx.state.tape is not None:
            ctx.state.tape.left(ctx.prefix, entry["node"])
        self._steps(ctx, entry, value)
        ctx.entered = self._number
        await self._write(entry)

    def collected(self, branch: Context, error: NodeFailedError) -> None:
        """Tell that a branch failed, and that its error stands for its result. It is to be committed before the run goes on."""
        entry = self._entry("failed", branch)
        if branch.state.tape is not None:
            branch.state.tape.left(branch.prefix, entry["node"])
        entry["value"] = encode(error, self.log)
        self._steps(branch, entry, None)
        branch.held = Held(error, self._here())
        self._make(entry)

    async def effect(self, ctx: Context[Any], key: str, effect: Any) -> None:
        """Write what a node did."""
        entry = self._entry("effect", ctx)
        entry["key"] = key
        if isinstance(effect, ModelResponse):
            entry["response"] = {
                "message": message_json(effect.message, self.log),
                "usage": usage_json(effect.usage),
                "finish": effect.finish_reason,
                "model": effect.model,
            }
            ctx.know(Held(effect.message, _at(self._number, "message")))
        else:
            entry["value"] = encode(effect, self.log)
            if isinstance(effect, ToolResult):
                ctx.know(Held(effect, self._here()))
        await self._write(entry)

    async def spent(self, ctx: Context[Any]) -> None:
        """Write what was spent for something whose result is not recorded."""
        await self._write(self._entry("spent", ctx))

    async def intent(self, ctx: Context[Any], key: str) -> None:
        """Write that a node is about to do something that it must not begin twice without asking."""
        await self._write({**self._entry("intent", ctx), "key": key})

    async def stopped(self, ctx: Context, contexts: Iterable[Context], failure: Exception | None) -> None:
        """Write that the run stops, why it failed, what was said until then, and let it go."""
        head = self.log.head
        entry: dict[str, Any] = {"t": "stop", "at": _clock.now(), "status": head.status}
        if head.reason:
            entry["reason"] = encode(head.reason, self.log)
        if failure is not None:
            entry["failure"] = self._failure(failure)
        if head.status == "waiting":
            entry["questions"] = [
                self._question(each, ctx.state.asking[each.id]) for each in ctx.state.questions.values()
            ]
        tries: dict[str, dict[str, int]] = {}
        told: set[int] = set()
        for branch in contexts:
            if branch.attempts:
                tries[branch.prefix] = dict(branch.attempts)
            if id(branch.memory) not in told:
                told.add(id(branch.memory))
                self._said(branch)
        if tries:
            entry["tries"] = tries
        self._spent(ctx, entry)
        await self._write(entry, head=True)

    def _said(self, ctx: Context) -> None:
        """Make an entry of what a node said that was broken off. It counts only until the node says it again."""
        entry = self._entry("said", ctx)
        try:
            self._steps(ctx, entry, None, kept=False)
        except (SerializationError, NodeFailedError):
            return  # the run stops for that very reason
        if "steps" in entry:
            again = places_again(ctx)
            if again:
                entry["again"] = again
            self._make(entry)

    def final(self, ctx: Context, output: Any) -> None:
        """Tell the answer. It is to be committed with the head, which lets the run go.

        Raises:
            SerializationError: something in it cannot be kept.
        """
        entry: dict[str, Any] = {"t": "final", "at": _clock.now()}
        entry["value"], held = self._kept(ctx, output, ctx.state.gives)
        if held is not None:
            ctx.know(held)
        self._steps(ctx, entry, None)
        self._spent(ctx, entry)
        self._make(entry)
        self.answered = True

    def edited(self, ctx: Context) -> None:
        """Tell that steps were changed from outside while the run stood still; nothing where they were not."""
        entry: dict[str, Any] = {"t": "edit", "at": _clock.now()}
        self._steps(ctx, entry, ctx.at[1] if ctx.at is not None else None)
        if "steps" in entry:
            self._make(entry)

    def moved(self, ctx: Context, slot: Slot, value: Any, kind: Any) -> None:
        """Tell that a run was put before a node, with a value, from outside.

        Raises:
            NodeFailedError: the value cannot be kept.
        """
        entry: dict[str, Any] = {"t": "edit", "at": _clock.now(), "next": _named(slot)}
        if ctx.prefix:
            entry["in"] = ctx.prefix
        entry["value"], held = self._kept(ctx, value, kind)
        self._steps(ctx, entry, value)
        _move(ctx, self._number, held)
        self._make(entry)

    # ---- what an entry is made of

    def _entry(self, kind: str, ctx: Context) -> dict[str, Any]:
        entry: dict[str, Any] = {"t": kind, "at": _clock.now(), "node": ctx.slot.name if ctx.slot is not None else ""}
        if ctx.prefix:
            entry["in"] = ctx.prefix
        if ctx.attempts:
            entry["tries"] = dict(ctx.attempts)
        self._spent(ctx, entry)
        return entry

    def _spent(self, ctx: Context, entry: dict[str, Any]) -> None:
        state = ctx.state
        if entry["t"] != "node":
            entry["ran"] = round(state.elapsed * 1000)
        usage = state.meter.settled
        self._charges = state.charges
        if state.meter.turns or usage.total_tokens or usage.cost:
            entry["spent"] = [state.meter.nodes, state.meter.turns, *usage_json(usage)]
        else:
            entry["spent"] = state.meter.nodes
        meter = ctx.meter
        if meter.parent is not None:
            own: list[Any] = []
            while meter.parent is not None:
                own.append([meter.nodes, meter.turns, *usage_json(meter.settled)])
                meter = meter.parent
            entry["own"] = own

    def _question(self, question: Question, asking: Context) -> dict[str, Any]:
        about = question.about
        try:
            shown = (self._found(asking, about) if type(about) is str else None) or encode(about, self.log)
        except SerializationError:
            shown = encode(str(about), self.log)
        return {
            "id": question.id,
            "node": question.node,
            "kind": question.kind,
            "question": encode(question.question, self.log),
            "about": shown,
            **({"run": question.run_id} if question.run_id else {}),
        }

    def _error(self, error: Exception, kind: type[Exception]) -> Json:
        """Give an error as what is declared of it, or as its text alone."""
        try:
            return encode(error, self.log, kind)
        except SerializationError:
            return encode(str(error), self.log)

    def _failure(self, error: BaseException) -> Json:
        """Return what was raised in a node, or else by the run itself, as people read it: without the values of variables."""
        from traceback import TracebackException

        while isinstance(error, NodeFailedError) and error.__cause__ is not None:
            error = error.__cause__
        told = TracebackException.from_exception(error)
        texts = {"type": type(error).__name__, "message": str(told), "traceback": "".join(told.format())}
        return {name: encode(text, self.log) for name, text in texts.items()}

    # ---- values

    @property
    def _number(self) -> int:
        """The number of the entry that is being made."""
        return self.log.last + 1

    def _here(self) -> dict[str, Any]:
        return _at(self._number)

    def _handed(self, handed: Any, way: Way | None) -> Held | None:
        """Give where to find what a way out made of the output of the entry that was made last."""
        return Held.of(handed, _at(self.log.last, "handed"), self.log, _kind_behind(way)) if way is not None else None

    def _output(self, ctx: Context, slot: Slot, output: Any, entry: dict[str, Any]) -> Held | None:
        """Add a node's output to its entry, and give where it is to be found from now on."""
        element = slot.element
        kind = element.output_type if isinstance(element, Node) else Any
        if isinstance(element, Parallel | Each) and type(output) in (list, tuple) and ctx.known is not None:
            # The results of branches, each of them where it stands already.
            gives = [branch.output_type for branch in element.branches] * (
                1 if isinstance(element, Parallel) else len(output)
            )
            parts = [self._kept(ctx, each, gives[n])[0] for n, each in enumerate(output)]
            entry["value"] = {"$": "joined", "v": parts}
            return Held.of(output, self._here(), self.log, kind)
        if isinstance(element, Tap | TapOf):
            held = self._held(ctx, output)
            if held is not None and held.changed(self.log) is not None:
                kind, entry["like"] = held.kind, held.place["$at"]
        entry["value"], held = self._kept(ctx, output, kind)
        return held

    def _kept(self, ctx: Context, value: Any, kind: Any) -> tuple[Json, Held | None]:
        """Give a value as it is written, and where it is to be found from now on.

        Raises:
            NodeFailedError: it cannot be kept.
        """
        held = self._held(ctx, value)
        if held is not None and held.changed(self.log) is None:
            return held.place, held
        found = self._derived(ctx, value)
        if found is not None:
            return found, Held(value, found)
        try:
            data = encode(value, self.log, kind)
        except SerializationError as error:
            raise _of_node(ctx, error) from error
        return data, Held.of(value, self._here(), self.log, kind, data=data)

    def _held(self, ctx: Context, value: object) -> Held | None:
        """Give where the journal has this very object."""
        for held in (ctx.held, self.task, ctx.known.get(id(value)) if ctx.known is not None else None):
            if held is not None and held.value is value:
                return held
        return None

    def _found(self, ctx: Context, value: object) -> Json | None:
        """Give what stands for a value that the journal has already, as it is now."""
        held = self._held(ctx, value)
        if held is not None:
            return held.place if held.changed(self.log) is None else None
        return self._derived(ctx, value)

    def _derived(self, ctx: Context, value: object) -> Json | None:
        """Give where the journal has the message, or the results, that a value was made of."""
        if ctx.known is None:
            return None
        if isinstance(value, ToolResults):
            places = [ctx.known.get(id(each)) for each in value]
            if value and all(place is not None for place in places):
                return _at("results", *(each.place["$at"][0] for each in places if each is not None))
        if isinstance(value, str | ToolCalls):
            for held in ctx.known.values():
                number, *part = held.place["$at"]
                if part == ["message"]:
                    message: Any = held.value
                    if isinstance(value, ToolCalls):
                        if value.calls == message.tool_calls and value.text == message.text:
                            return _at(number, "calls")
                    elif value and value == message.text:
                        return _at(number, "text")
        return None

    # ---- steps

    def _steps(self, ctx: Context, entry: dict[str, Any], standing: Any, *, kept: bool = True) -> None:
        """Add what happened to the transcript since the last entry. What is not `kept` is only told: it may come again."""
        memory = ctx.memory
        if not memory.loaded:
            return
        changes = memory.changes()
        heard = memory.heard(standing)
        if heard != memory.written_heard:
            entry["heard"] = [*heard]
        if changes:
            features = ctx.state.features
            writer = StepWriter(
                self.log, known=lambda value: self._found(ctx, value), values=not refers(features),
                note_texts=not refers_to_notes(features),
            )  # fmt: skip
            writer.follow(memory.written)
            writer.careful = memory.retold
            marks: list[tuple[Step, list[int]]] = []
            try:
                entry["steps"] = [self._change(writer, each, place, marks) for place, each in enumerate(changes)]
            except SerializationError as error:
                raise _of_node(ctx, error) from error
            if kept:
                for step, place in marks:
                    step.record(self.mark, place)
                memory.kept(writer.last)
        if kept:
            memory.written_heard = heard
        if ctx.branches and ("steps" in entry or "heard" in entry):
            entry["of"] = [list(each) for each in ctx.branches]

    def _change(
        self, writer: StepWriter, change: Change, place: int, marks: list[tuple[Step, list[int]]]
    ) -> dict[str, Any]:
        def written(step: Step, number: int = 0) -> Any:
            there = step.recorded
            if there is not None and there[0] is self.mark:
                return {"$at": there[1]}
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

    def _make(self, entry: dict[str, Any]) -> None:
        charges = self._charges[self._charged :] if "spent" in entry else ()
        rows = [each.row() for each in charges if not _is_said(entry, each)]
        if rows:
            entry["charges"] = rows
        self.log.make(entry)
        self._charged += len(charges)

    async def commit(self, *, head: bool = False) -> None:
        """Commit what was told; with `head` also what is said of the run at a glance.

        Raises:
            RunClaimedError: someone else went on with the run.
            RunNotFoundError: the run was removed.
            JournalError: the store failed. What was told is committed with the next commit.
        """
        try:
            await self.log.write(head=head)
        except StoreError as error:
            raise JournalError(self.log.head.run_id, error) from error

    async def _write(self, entry: dict[str, Any], *, head: bool = False) -> None:
        self._make(entry)
        await self.commit(head=head)


def _at(*place: int | str) -> dict[str, Any]:
    return {"$at": [*place]}


def _named(slot: Slot) -> str:
    return slot.name if slot is not DONE else ""


def _move(ctx: Context, number: int, held: Held | None) -> None:
    """Take note of the entry that led to where a run stands now."""
    ctx.number = ctx.entered = number
    ctx.held, ctx.known = held, None


def _kind_behind(way: Way) -> Any:
    """Give the declared type of what a way out hands on where it changes it."""
    return next((rule.value for rule in reversed(way.rules) if rule.change is not None), Any)


def _is_said(entry: dict[str, Any], charge: Charge) -> bool:
    """Tell whether an entry says what was spent by holding the model's answer."""
    if "response" not in entry or charge.what != entry["key"]:
        return False
    where = entry.get("in", "") + entry["node"]
    return bool(charge.node == where and usage_json(charge.usage) == entry["response"]["usage"])


def _of_node(ctx: Context, error: SerializationError) -> Exception:
    if ctx.slot is None:
        return error
    failed = NodeFailedError(ctx.node, error)
    failed.run_id = ctx.run_id
    return failed
