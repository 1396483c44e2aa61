"""`graphagent runs`: the commands that only read. The file is long because each command has its output beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.text import Text

from graphagent import _clock
from graphagent._article import counted
from graphagent.cli import _output
from graphagent.cli._options import AllOwners, AnyOwner, Json, argument, flag, option
from graphagent.cli._phrases import whose
from graphagent.cli.runs._completion import run_ids
from graphagent.cli.runs._progress import LiveLine, spent
from graphagent.cli.runs._target import (
    InStates,
    InThread,
    ReadTarget,
    RunsStore,
    RunsTarget,
    WhichOrNewest,
    no_runs,
    plain,
    run_named,
    states,
    with_parts,
)
from graphagent.llm import Message
from graphagent.llm._chat_messages import chat_messages
from graphagent.memory import ActionStep

if TYPE_CHECKING:
    from graphagent.history import Diff, Entry, RunSize, StoredRun, Thread
    from graphagent.protocols import Store
    from graphagent.run import Question, RunHeader

_Sizes: TypeAlias = "dict[tuple[str, str], RunSize]"
"""The sizes of runs, by their owners and ids."""
_MADE = re.compile(r"[0-9a-f]{32}")
"""An id that was generated."""
_SHORTEST = 12
"""Characters of a generated id that lists show at least."""
_LAST = 12
"""Entries that `runs show` shows without --entries."""


def list_(  # long because each option has its help
    target: RunsTarget,
    status: InStates = None,
    thread: InThread = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most this many, the newest.")] = 50,
    size: Annotated[
        bool, flag("--size", text="Show the space that each takes in the store, which reads all of it.")
    ] = False,
    all_owners: AllOwners = False,
    as_json: Json = False,
) -> None:
    """List the runs of an owner, newest first, with the runs of sub-agents below their callers."""
    from graphagent.history import measure_runs
    from graphagent.history._runs import family
    from graphagent.run import list_runs

    wanted = states(status)

    async def read(store: Store) -> tuple[list[list[RunHeader]], _Sizes, str]:
        found: list[list[RunHeader]] = []
        sizes: _Sizes = {}
        for owner in await target.owners(store, everybody=all_owners):
            found.append(await list_runs(store, owner=owner))
            measured = await measure_runs(store, owner=owner) if size else {}
            sizes.update({(owner, run_id): each for run_id, each in measured.items()})
        return found, sizes, "" if any(found) else await no_runs(store, target.owner)

    found, sizes, nothing = target.use(read)
    families = [family(heads) for heads in found]  # an id is that of one run of an owner
    every = [(head, parts) for parts in families for head in reversed(parts.get("", []))]
    whole = sorted(
        (
            (head, parts)
            for head, parts in every
            if (wanted is None or head.status in wanted) and (thread is None or head.thread == thread)
        ),
        key=lambda each: each[0].started,
        reverse=True,
    )
    shown = [each for head, parts in whole[:limit] for each in with_parts(head, parts)]
    if as_json:
        rows = [
            plain(head) | ({"size": asdict(each)} if (each := sizes.get((head.owner, head.run_id))) else {})
            for head, _ in shown
        ]
        print(_output.json_text(rows))
        return
    if nothing:
        _output.aside(nothing)
        return
    if not shown:
        _output.aside(f"There are no such runs{whose(target.owner)} here, but {counted(len(every), 'other')}.")
        target.say_whose(everybody=all_owners)
        return
    _output.table(*_table(shown, sizes, owners=all_owners), fold=False, essential=("run", "task", "status"))
    if size:
        _output.aside(
            f"All together: {_output.bytes_text(sum(each.bytes for each in sizes.values()))} in {counted(sum(map(len, found)), 'run')}."
        )
    if len(whole) > limit:
        _output.aside(f"{len(whole) - limit:,} more; --limit shows them.")
    target.say_whose(everybody=all_owners)


def threads(target: RunsTarget, all_owners: AllOwners = False, as_json: Json = False) -> None:
    """List the threads of an owner: conversations in which each run continues the one before. The one that was continued last comes first."""
    from graphagent.history import list_threads

    async def read(store: Store) -> list[Thread]:
        owners = await target.owners(store, everybody=all_owners)
        return [each for owner in owners for each in await list_threads(store, owner=owner)]

    found = sorted(target.use(read), key=lambda each: each.updated, reverse=True)
    if as_json:
        rows = [
            {
                "thread": each.name, "runs": each.runs, "title": each.title, "started": each.started, "updated": each.updated,
                "last": plain(each.last),
            }
            for each in found
        ]  # fmt: skip
        print(_output.json_text(rows))
    elif not found:
        _output.aside(f"There are no threads{whose(target.owner)} here.")
        target.say_whose(everybody=all_owners)
    else:
        _output.table(
            ("thread", "began with", "runs", "status", "last written", *(["owner"] if all_owners else [])),
            [
                (each.name, each.title or "(not text)", f"{each.runs:,}", each.last.status, _output.moment(each.updated),
                 *([each.last.owner] if all_owners else []))
                for each in found
            ],
            fold=False, essential=("thread", "began with"),
        )  # fmt: skip
        target.say_whose(everybody=all_owners)


def questions(target: RunsStore, owner: AnyOwner = None, as_json: Json = False) -> None:
    """List the open questions of runs that wait for people, of all owners, the oldest first."""
    from graphagent.history import list_questions

    found = target.use(lambda store: list_questions(store, owner=owner))
    if as_json:
        rows = [
            {
                "run_id": each.run_id, "owner": each.owner, "thread": each.thread, "strategy": each.strategy, "since": each.since.isoformat(),
                **_plain_question(each.question),
            }
            for each in found
        ]  # fmt: skip
        print(_output.json_text(rows))
    elif not found:
        _output.aside(f"No run{whose(owner or '')} waits for a person here.")
    else:
        _output.table(
            ("run", "id", "question", "owner", "thread", "since", "deadline"),
            [
                (
                    each.run_id, each.question.id, each.question.question, each.owner, each.thread,
                    _output.moment(int(each.since.timestamp() * 1000)),
                    "" if each.deadline is None else _output.moment(int(each.deadline.timestamp() * 1000)),
                )
                for each in found
            ],
            essential=("run", "id", "question"),
        )  # fmt: skip


def _plain_question(question: Question) -> dict[str, object]:
    """Return a question as JSON data."""
    about = _output.plain(question.about)
    return {
        "id": question.id,
        "question": question.question,
        "node": question.node,
        "kind": question.kind,
        "about": about,
        "deadline": None if question.deadline is None else question.deadline.isoformat(),
    }


def _table(
    shown: Sequence[tuple[RunHeader, int]], sizes: _Sizes, *, owners: bool
) -> tuple[Sequence[str], list[Sequence[str]]]:
    names = _short([head.run_id for head, depth in shown if not depth])
    heads = [
        "run",
        "task",
        "status",
        "strategy",
        "started",
        "turns",
        "tokens",
        "cost",
        *(["size"] if sizes else []),
        *(["owner"] if owners else []),
    ]
    rows: list[Sequence[str]] = []
    for head, depth in shown:
        name = names.get(head.run_id, head.run_id)
        if depth and _output.screen().is_terminal:
            name = f"{'  ' * (depth - 1)}└ {head.run_id.removeprefix(f'{head.parent}/')}"
        rows.append([
            name, head.title, _status(head), _strategy(head), _output.moment(head.started or None), f"{head.turns:,}" if head.turns else "",
            f"{head.tokens:,}" if head.tokens else "", _money(head.cost),
            *([_output.bytes_text(each.bytes) if (each := sizes.get((head.owner, head.run_id))) else ""] if sizes else []),
            *([head.owner] if owners else []),
        ])  # fmt: skip
    return heads, rows


def _status(head: RunHeader) -> str:
    """Return where a run is, and until when, if it is queued for later."""
    return (
        f"queued until {_output.moment(head.due)}"
        if head.status == "queued" and head.due > _clock.now()
        else head.status
    )


def _short(ids: list[str]) -> dict[str, str]:
    """Return ids as a terminal shows them: generated ones only as far as they need to differ."""
    if not _output.screen().is_terminal:
        return {}
    made = [each for each in ids if _MADE.fullmatch(each)]
    length = next((n for n in range(_SHORTEST, 32) if len({each[:n] for each in made}) == len(made)), 32)
    return {each: each[:length] for each in made}


def _money(cost: str) -> str:
    return f"{Decimal(cost).normalize():f}" if Decimal(cost) else ""


def show(
    run: WhichOrNewest = None,
    *,
    target: ReadTarget,
    prompt: Annotated[str | None, option("--prompt", "STEP", "Show the exact prompt of that step.")] = None,
    entries: Annotated[bool, flag("--entries", text="Show every entry of its journal.")] = False,
    follow: Annotated[bool, flag("--follow", text="Watch it while another process executes it, then show it.")] = False,
    traceback: Annotated[
        bool,
        flag(
            "--traceback", text="Show the traceback of the error that the run failed with, and where its tools raised."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a run: its status, its position in the graph, its questions, its journal and its transcript."""
    from graphagent.history import measure_runs

    if prompt is not None:
        _print_prompt(target, run, prompt, as_json=as_json)
        return
    sizes: list[RunSize] = []

    async def first(store: Store, run_id: str) -> None:
        if follow:
            await _follow(store, run_id, target.owner)
        sizes.extend((await measure_runs(store, owner=target.owner, run_id=run_id)).values())

    stored = target.read(run, first=first)
    size, parts = next(iter(sizes), None), [each.head for each in stored.children]
    if as_json:
        print(_output.json_text(_plain_run(stored, size, parts, entries=entries)))
        return
    _say_head(stored, size)
    _say_failure(stored, traceback=traceback)
    if traceback:
        _say_failed_calls(stored)
    _say_questions(target, stored)
    _say_graph(stored)
    _say_parts(stored.head, parts)
    _say_entries(stored, everything=entries)
    _title("transcript")
    print(_output.shown(stored.to_text()))


def _plain_run(stored: StoredRun, size: RunSize | None, parts: list[RunHeader], *, entries: bool) -> dict[str, object]:
    told = {
        **plain(stored.head), "nodes": stored.nodes, "turns": stored.turns, "tokens": stored.usage.total_tokens,
        "cost": str(stored.usage.cost), "seconds": stored.seconds, "size": asdict(size) if size is not None else None, "at": list(stored.at),
        "questions": list(map(_plain_question, stored.questions)),
        "graph": [
            {"node": each.path, "kind": each.kind, "type": each.type, "ended": each.ended, "here": each.here}
            for each in stored.graph
        ],
        "failure": asdict(stored.failure) if stored.failure is not None else None,
        "parts": [plain(part) for part in parts],
        "steps": stored.memory.succinct_steps(),
    }  # fmt: skip
    return told | (
        {"entries": [{"number": each.number, "at": each.at, **_output.plain(each.data)} for each in stored.entries]}
        if entries
        else {}
    )


def _say_head(stored: StoredRun, size: RunSize | None) -> None:
    head = stored.head
    _output.screen().print(Text(f"run {_output.shown(head.run_id)}", style="bold"), soft_wrap=True)
    _line("status", _state(head))
    for name, text in (
        ("at", ", ".join(stored.at)),
        ("strategy", head.strategy),
        ("owner", head.owner),
        ("part of", head.parent),
        ("thread", head.thread),
        ("fork of", f"{head.origin[0]}, after its entry {head.origin[1]}" if head.origin is not None else ""),
        ("continues", head.previous),
    ):
        if text:
            _line(name, text)
    _line("started", f"{_output.moment(head.started)}, last written {_output.moment(head.updated)}")
    nodes = counted(stored.nodes, "node")
    _line(
        "spent", ", ".join([nodes, *spent(stored.turns, stored.usage.total_tokens, stored.usage.cost, stored.seconds)])
    )
    if size is None:  # it is a part of another one
        return
    payloads = f" and {counted(size.payloads, 'payload')}" if size.payloads else ""
    _line("kept", f"{_output.bytes_text(size.bytes)} in {counted(size.entries, 'commit')}{payloads}")


def _strategy(head: RunHeader) -> str:
    """Return the name of the strategy of a run, with the version that continues it."""
    return f"{head.strategy}, version {head.version}" if head.version else head.strategy


def _state(head: RunHeader) -> str:
    """Return the status of a run for a person, with its reason."""
    if head.claim is not None and head.running:
        return f"running, by {head.claim.holder}"
    if head.status == "interrupted":
        return "interrupted: the process that executed it died; resume it with runs resume"
    if head.status == "waiting":
        return f"waiting for an answer, until {_output.moment(head.due)}" if head.due else "waiting for an answer"
    if head.status == "sleeping":
        return f"sleeping until {_output.moment(head.due)}; resume it then with runs resume"
    reason = head.reason.removeprefix("it ").removeprefix("was ")
    if reason.startswith("failed with ") and ": " in reason:
        reason = f"failed: {reason.partition(': ')[2]}"
    return reason if reason.startswith(head.status) else f"{head.status}: {reason}" if reason else head.status


def _say_failure(stored: StoredRun, *, traceback: bool) -> None:
    failure = stored.failure
    if failure is None:
        return
    _line("error", f"{failure.type}: {failure.message}" if failure.message else failure.type)
    if traceback:
        _title("traceback")
        print(_output.shown(failure.traceback.rstrip("\n")))


def _say_failed_calls(stored: StoredRun) -> None:
    """Show where the tools raised, in the run and in those of its sub-agents: the frames, for their values are not stored."""
    results = [result for step in stored.memory.steps if isinstance(step, ActionStep) for result in step.results]
    for result in results:
        if result.traceback:
            _title(f"traceback of {result.name} ({result.call_id})")
            print(_output.shown(result.traceback))
    for part in stored.children:
        _say_failed_calls(part)


def _say_questions(target: ReadTarget, stored: StoredRun) -> None:
    questions = stored.questions
    if not questions:
        return
    _title("questions")
    for each in questions:
        _line(each.id, each.question)
        if each.about not in (None, ""):
            _line("", _output.shortened(f"about: {_output.value_text(each.about)}", 200))
    _output.aside(f"  answer with: {target.answer(stored.head.run_id, questions)}")


def _say_graph(stored: StoredRun) -> None:
    nodes = stored.graph
    if not nodes:
        return
    _title("graph")
    console = _output.screen()
    width = max(len(_place(each.path, each.depth)) for each in nodes)
    for each in nodes:
        mark = ">" if each.here else "✓" if each.ended else " "
        times = f"{each.ended}×" if each.ended > 1 else ""
        kind = each.type if each.kind == "node" else f"{each.kind} {each.type}".strip()
        text = Text(
            f"  {mark} {_output.shown(_place(each.path, each.depth)):<{width}}  ", style="bold" if each.here else ""
        )
        text.append(f"{times:>4}  {_output.shown(kind)}", style="dim")
        console.print(text, no_wrap=True, overflow="ellipsis", soft_wrap=not console.is_terminal)


def _place(path: str, depth: int) -> str:
    parts = path.split("/")
    number = f"{parts[-2]}: " if len(parts) > 1 and parts[-2].isdecimal() else ""
    return f"{'  ' * depth}{number}{parts[-1]}"


def _say_parts(head: RunHeader, parts: list[RunHeader]) -> None:
    if parts:
        _title("sub-agents")
    for part in parts:
        name = part.run_id.removeprefix(f"{head.run_id}/")
        told = (name, part.status, *spent(part.turns, part.tokens, part.cost, part.seconds), part.title)
        _line("", " · ".join(filter(None, told)))


def _say_entries(stored: StoredRun, *, everything: bool) -> None:
    shown = stored.entries if everything else stored.entries[-_LAST:]
    _title("journal")
    rows = [
        (str(each.number), _did(each), each.kind, each.where, _output.seconds(each.at))
        for each in shown
    ]  # fmt: skip
    _output.table(("entry", "what", "kind", "node", "at"), rows, fold=False, essential=("entry", "what"))
    if len(shown) < len(stored.entries):
        _output.aside(f"The last {len(shown)} of {len(stored.entries):,}; --entries shows all.")


def _did(entry: Entry) -> str:
    data, value = entry.data, entry.value
    message = getattr(value, "model_output_message", None) or getattr(value, "message", None)
    if entry.kind == "effect" and isinstance(message, Message):
        said = message.text or ", ".join(map(_output.value_text, message.tool_calls))
        return _output.shortened(f"{entry.key} {said}", 80)
    if entry.kind in ("stopped", "ended"):
        told = (data.get("status", ""), data.get("reason", "").removeprefix("it "))
        return _output.shortened(": ".join(filter(None, told)), 80)
    if entry.error is not None:
        return _output.shortened(": ".join(filter(None, (entry.key, *entry.error))), 80)
    said = "" if value is None else _output.value_text(value)
    leads = f" -> {entry.next}" if entry.next else ""
    return _output.shortened(f"{entry.key} {said}".strip(), 80 - len(leads)) + _output.shown(leads)


async def _follow(store: Store, run_id: str, owner: str) -> None:
    """Show the progress of a run until no process executes it."""
    from graphagent.history import follow_run

    with LiveLine() as progress:
        async for moment in follow_run(store, run_id, owner=owner):
            progress.at, progress.turns = moment.at, moment.turns
            progress.tokens, progress.cost = moment.usage.total_tokens, moment.usage.cost
            progress.elapsed = moment.seconds + max(_clock.now() - moment.written, 0) / 1000
            progress.changed()


def _print_prompt(target: ReadTarget, run: str | None, step: str, *, as_json: bool) -> None:
    """Show the exact prompt of a step."""
    number, _, which = step.partition(":")
    if not number.isdecimal() or (which and not which.isdecimal()):
        raise typer.BadParameter(
            f"{step!r} is not a step; give the number of a model turn, such as 2", param_hint="--prompt"
        )
    stored = target.read(run)
    turns = [
        each for each in [*stored.memory.steps, stored.memory.open] if isinstance(each, ActionStep) and each.prompt
    ]
    fits = [each for each in turns if each.step_number == int(number)]
    if not fits:
        numbers = ", ".join(str(each.step_number) for each in turns) or "none"
        _output.fail(f"run {stored.head.run_id!r} has no model turn {number}; it has: {numbers}")
    if len(fits) > 1 and not which:
        choices = ", ".join(f"{number}:{place}" for place in range(1, len(fits) + 1))
        raise typer.BadParameter(
            f"several branches have a model turn {number}; choose one: {choices}", param_hint="--prompt"
        )
    if which and not 1 <= int(which) <= len(fits):
        raise typer.BadParameter(f"there are {len(fits)} model turns {number}", param_hint="--prompt")
    messages = fits[int(which) - 1 if which else 0].model_input_messages
    if as_json:
        print(_output.json_text(chat_messages(messages)))
    else:
        _say_messages(messages)


def _say_messages(messages: Iterable[Message]) -> None:
    console = _output.screen()
    for place, message in enumerate(chat_messages(messages)):
        console.print(Text(f"{'' if not place else chr(10)}── {message['role']}", style="dim"), soft_wrap=True)
        for part in _parts(message):
            print(_output.for_output(part))


def _parts(message: dict[str, Any]) -> Iterator[str]:
    content = message.get("content")
    for part in [content] if isinstance(content, str) else content or ():
        if isinstance(part, str):
            yield part
        elif part["type"] == "text":
            yield part["text"]
        else:
            yield f"[image: {_output.shortened(part['image_url']['url'], 60)}]"
    for call in message.get("tool_calls", ()):
        yield f"[call {call['id']}: {call['function']['name']}({call['function']['arguments']})]"
    if "tool_call_id" in message:
        yield f"[result of call {message['tool_call_id']}]"


def replay(
    run: WhichOrNewest = None,
    *,
    target: ReadTarget,
    detailed: Annotated[bool, flag("--detailed", text="Show the prompts, too.")] = False,
) -> None:
    """Print a run step by step. Nothing is executed."""
    print(_output.shown(target.read(run).to_text(detailed=detailed)))


def diff(
    a: Annotated[str, argument("A", "The id of a run, or its beginning.", autocompletion=run_ids)],
    b: Annotated[str, argument("B", "The id of another run, or its beginning.", autocompletion=run_ids)],
    target: RunsTarget,
    as_json: Json = False,
) -> None:
    """Compare two runs: their common beginning, and the actions of each after that."""
    from graphagent.history import compare_runs

    async def read(store: Store) -> Diff:
        ids = [await run_named(store, target.owner, each) for each in (a, b)]
        return await compare_runs(store, *ids, owner=target.owner)

    told = target.use(read)
    if as_json:
        sides = {
            name: [{"number": each.number, **_output.plain(each.data)} for each in entries]
            for name, entries in (("only_a", told.only_a), ("only_b", told.only_b))
        }
        print(_output.json_text({"a": told.a, "b": told.b, "common": told.common, **sides}))
        return
    _output.aside(f"{counted(told.common, 'entry')} in common.")
    if not (told.only_a or told.only_b):
        return
    rows = [
        (sign, _did(each), str(each.number), each.kind, each.where)
        for sign, entries in (("-", told.only_a), ("+", told.only_b))
        for each in entries
    ]
    _output.aside(f"- {told.a}\n+ {told.b}")
    _output.table(("", "what", "entry", "kind", "node"), rows, fold=False, essential=("", "what", "entry"))


def _title(text: str) -> None:
    _output.screen().print(Text(f"\n{text}", style="dim"))


def _line(name: str, text: str) -> None:
    line = Text(f"  {_output.shown(name):<9} ", style="dim")
    line.append(_output.shown(text), style="not dim")
    _output.screen().print(line, soft_wrap=True)
