"""`graphagent chat`: an assistant that remembers."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from anyio import CancelScope
from anyio.from_thread import BlockingPortal, start_blocking_portal
from rich.text import Text

from graphagent import Agent
from graphagent._article import counted
from graphagent.cli import _options, _output
from graphagent.cli._keyboard import typed
from graphagent.cli._store_place import StorePlace
from graphagent.cli._stores import (
    SEALED,
    conversations_of,
    key_source,
    open_memory,
    open_store,
    other_conversations,
    place_of,
)
from graphagent.cli.facts import Memory
from graphagent.cli.offline import ABOUT, STAND_IN, OfflineModel
from graphagent.errors import ModelError, NodeFailedError, RunError
from graphagent.events import ExtractionFailed, FactsSaved, NodeStarted, TextStreamed
from graphagent.history import forget_thread
from graphagent.memory import AgentMemory, Concept, Fact, FactsStep, RunMemory, Scope
from graphagent.run import list_runs
from graphagent_strategies import personal

if TYPE_CHECKING:
    from graphagent.llm.openai import OpenAIModel
    from graphagent.protocols import KeepingProvider, Model, Store
    from graphagent.run import RunResult
    from graphagent.store import KeySource

RULES = (
    "You are a helpful assistant that remembers the person it talks to. Use what you know of them where it helps, and do "
    "not list it unasked. Answer in plain text, briefly, in their language."
)
_LEARNS = "auto_detect_facts"
_DOES = {"llm_request": "thinking …", _LEARNS: "remembering …"}
"""The texts of a live line for the nodes that ask the model."""
_MOST_NAMES = 6
_HELP = """\
/facts            list the known facts
/forget KEYWORD   remove a fact, with all its versions, for good
/help             this list
/quit             leave; so do exit, quit, Ctrl-D and Ctrl-C
Ctrl-C            while an answer comes: stop it"""


def converse(
    memory: Memory,
    model: OfflineModel | OpenAIModel,
    owner: str,
    script: Path | None,
    *,
    thread: str | None,
    show_memory: bool,
) -> None:
    """Chat until the script or standard input ends, or the person leaves. The model is closed at the end.

    With a thread, the conversation is stored under its name and continued; otherwise it ends with the command.

    Raises:
        GraphAgentError: The memory cannot be used, or a turn failed without a terminal at which to try another.
    """
    place = place_of("facts", memory.store, new=True)
    key: KeySource | None = memory.key
    if key is not None and not place.is_server:
        key = key_source(key, new=not (place.path / SEALED).exists())
    attended = script is None and sys.stdin.isatty()
    turns = _until_interrupted(typed()) if attended else _echoed(_lines(script) if script else sys.stdin)
    with ExitStack() as stack:
        stack.enter_context(closing(turns))
        portal = stack.enter_context(start_blocking_portal())
        kept = open_memory(memory.store, key, memory.anchor)
        provider = stack.enter_context(portal.wrap_async_context_manager(kept))
        if not isinstance(model, OfflineModel):
            stack.enter_context(portal.wrap_async_context_manager(model))
        store: Store | None = None
        if thread is not None:
            if not thread:
                raise typer.BadParameter(
                    "the name of the thread is empty; write a name such as monday", param_hint="--thread"
                )
            opened = open_store("runs", conversations_of(place), key, memory.anchor, new=True)
            store = stack.enter_context(portal.wrap_async_context_manager(opened))
        conversation = _Conversation(
            portal, provider, model, owner, store, thread, place, attended=attended, show_memory=show_memory
        )
        conversation.greet(sealed=memory.key is not None)
        for turn in turns:
            if not conversation.take(turn):
                break
        if attended:
            conversation.note("Goodbye.")


def _lines(script: Path) -> list[str]:
    try:
        return script.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise typer.BadParameter(f"{str(script)!r} cannot be read: {reason}", param_hint="--script") from None


def _until_interrupted(messages: Generator[str]) -> Generator[str]:
    try:
        yield from messages
    except KeyboardInterrupt:
        print()


def _echoed(lines: Iterable[str]) -> Generator[str]:
    console = _output.screen()
    for line in map(str.strip, lines):
        if line and not line.startswith("#"):
            console.print(Text(f"> {_output.shown(line)}", style="bold"))
            yield line


class _Conversation:
    """An agent, the transcript so far, and the terminal or pipe on which both are shown."""

    def __init__(
        self,
        portal: BlockingPortal,
        provider: KeepingProvider,
        model: Model,
        owner: str,
        store: Store | None,
        thread: str | None,
        place: StorePlace,
        *,
        attended: bool,
        show_memory: bool,
    ) -> None:
        self._store, self._thread, self._place = store, thread, place
        self._portal, self._provider, self._model, self._owner = portal, provider, model, owner
        self._attended, self._show_memory = attended, show_memory
        self._scope: CancelScope | None = None
        self._runs: set[str] = set()
        self._told: set[tuple[str, tuple[str, ...]]] = set()
        self._console = _output.screen()
        self._flow = _output.Flow(self._console)
        self._learned = False
        self._steps: RunMemory | None = None
        self._agent = Agent(personal(subjects=_options.SUBJECTS), model=model, system_prompt=RULES, store=store)
        self._agent.install(AgentMemory, provider=provider, agent_name=_options.AGENT_NAME)
        self._agent.on(NodeStarted, self._on_node)
        self._agent.on(TextStreamed, lambda event: self._flow.add(event.text))
        self._agent.on(FactsSaved, self._on_saved)
        self._agent.on(ExtractionFailed, self._on_failure)

    def greet(self, *, sealed: bool) -> None:
        """Print the model, the place of the memory, how many facts are known, and how to encrypt them if they are not."""
        facts = self._portal.call(self._known)
        self._told = {(fact.concept.keyword, fact.values) for fact in facts}
        self.note(
            f"model {self._model.name} · memory {self._place} · {counted(len(facts), 'fact')} known to {_options.AGENT_NAME!r}"
        )
        if self._store is not None:
            known = self._portal.call(partial(list_runs, self._store, owner=self._owner, thread=self._thread))
            turns = counted(sum(head.status in ("done", "ended") for head in known), "turn")
            self.note(f"thread {self._thread} · {turns} so far")
        if not sealed:
            self.note(
                "No key, so facts are plain files there. Seal them: graphagent keys new --out FILE, then --key file:FILE"
            )
        if isinstance(self._model, OfflineModel):
            self.note(STAND_IN)
        if self._attended:
            self.note("/help lists the commands; exit or Ctrl-D leaves.")
        self._console.print()

    def note(self, text: str) -> None:
        """Print something that is not part of the conversation."""
        self._console.print(Text(_output.shown(text), style="dim"))

    def take(self, turn: str) -> bool:
        """Execute a turn. Return whether the conversation continues."""
        command, _, rest = turn.partition(" ")
        if turn.casefold() in ("/quit", "/exit", "quit", "exit"):
            return False
        if "\n" in turn:  # a paste, not a command
            self._ask(turn)
        elif command == "/help":
            self._console.print(Text(_HELP + (f"\n{ABOUT}" if isinstance(self._model, OfflineModel) else "")))
        elif command == "/facts":
            self._show_facts()
        elif command == "/forget":
            self._forget(rest.strip())
        elif command.startswith("/") and command[1:].isalpha():
            self.note(f"There is no command {command}; /help lists the commands.")
        else:
            self._ask(turn)
        self._console.print()
        return True

    def _ask(self, turn: str) -> None:
        self._learned = False
        future = self._portal.start_task_soon(self._run, turn)
        try:
            try:
                result = future.result()
            except KeyboardInterrupt:
                self._portal.call(self._stop)
                result = future.result()
                if not self._attended:
                    raise
        except (ModelError, RunError) as error:
            cause = error.__cause__ if isinstance(error, NodeFailedError) else error
            if not self._attended or not isinstance(cause, ModelError | RunError):
                raise
            self._flow.end()
            _output.complain(str(cause))
            return
        finally:
            self._flow.end()
        if result is None:
            self.note("stopped; this turn is not part of the conversation")
            return
        if result.finish_reason == "length":
            self.note("  the answer ends here because the model's limit of tokens was reached")
        self._steps = result.memory
        self._runs.add(result.run_id)
        self._print_memory(result)

    def _print_memory(self, result: RunResult[str]) -> None:
        """Print the facts that a turn recalled from before this start of the command, and the facts that it learned."""
        steps = result.memory.run_steps
        shown = [known.fact for step in steps if isinstance(step, FactsStep) for known in step.facts]
        recalled = [
            _output.shortened(fact.concept.keyword, 40) for fact in shown if fact.source.run_id not in self._runs
        ]
        if self._show_memory:
            for step in steps:
                if isinstance(step, FactsStep):
                    self.note("\n".join(message.text for message in step.to_messages()))
        if recalled:
            more = f" and {len(recalled) - _MOST_NAMES} more" if len(recalled) > _MOST_NAMES else ""
            self.note(f"  recalled {', '.join(recalled[:_MOST_NAMES])}{more}")
        if self._learned:
            for fact in self._portal.call(self._known):
                if fact.source.run_id == result.run_id and (fact.concept.keyword, fact.values) not in self._told:
                    self._told.add((fact.concept.keyword, fact.values))
                    keyword = _output.shortened(fact.concept.keyword, 40)
                    value = _output.shortened(", ".join(fact.values), 66 - len(keyword))
                    self.note(f"  learned {keyword}: {value}")

    async def _run(self, turn: str) -> RunResult[str] | None:
        self._scope = CancelScope()
        with self._scope:
            earlier = self._steps if self._thread is None else None
            return await self._agent.run(turn, owner=self._owner, steps=earlier, thread=self._thread)
        return None

    def _stop(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    async def _known(self) -> list[Fact]:
        scope = Scope.agent(_options.AGENT_NAME)
        return [
            fact
            for subject in (*_options.SUBJECTS, _options.subject_of("everything"))
            for fact in await self._provider.load_all(subject, scope, owner=self._owner)
        ]

    def _show_facts(self) -> None:
        known = self._portal.call(self._known)
        if not known:
            self.note("Nothing is known yet.")
            return
        _output.table(
            ("fact", "value", "recorded"),
            [(fact.concept.keyword, ", ".join(fact.values), _output.moment(fact.timestamp)) for fact in known],
            essential=("fact", "value"),
        )

    def _forget(self, keyword: str) -> None:
        if not keyword:
            self.note("Name a fact: /forget KEYWORD. /facts lists them.")
            return

        async def remove() -> int:
            with suppress(ValueError):  # an invalid keyword cannot be that of a fact
                receipt = await self._provider.forget(concept=Concept(keyword), owner=self._owner)
                if receipt.facts and self._store is not None and self._thread is not None:
                    await forget_thread(self._store, self._thread, owner=self._owner)
                return receipt.facts
            return 0

        removed = self._portal.call(remove)
        if not removed:
            self.note(f"Nothing is known of {_output.shortened(keyword)!r}; /facts lists the known facts.")
            return
        self._steps = None
        self._told = {told for told in self._told if told[0] != keyword}
        self.note(
            f"Forgotten: {keyword}, {counted(removed, 'version')}. "
            f"A new conversation begins, since this one may contain it."
        )
        if (hint := other_conversations(self._place)) is not None:
            self.note(hint)

    def _on_node(self, event: NodeStarted) -> None:
        if event.node == _LEARNS:
            self._flow.end()
        if event.node in _DOES and not isinstance(self._model, OfflineModel):
            self._flow.wait(_DOES[event.node])

    def _on_saved(self, event: FactsSaved) -> None:
        self._learned = True

    def _on_failure(self, event: ExtractionFailed) -> None:
        self._flow.end()
        self.note(f"  nothing learned: {_output.shortened(event.reason, 200)}")
