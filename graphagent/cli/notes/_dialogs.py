"""The dialogs of `graphagent notes browse`: editing a note, and forgetting it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from graphagent.cli import _output
from graphagent.cli.notes._texts import as_content
from graphagent.errors import ConflictError, GraphAgentError, NoteNotFoundError
from graphagent.history import Reached, forget, reach
from graphagent.memory import Record
from graphagent.store import Receipt

if TYPE_CHECKING:
    from graphagent.history import Place
    from graphagent.memory import Notes


class _PlainTextArea(TextArea):
    """An editor in which stored characters that act on a terminal are shown as replacement characters, and stay as they are."""

    def get_line(self, line_index: int) -> Text:
        """Return a line as it is shown."""
        return Text(_output.shown(self.document.get_line(line_index)), end="", no_wrap=True)


class _Choice(OptionList):
    """A list of which any number can be chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "select", "Choose", key_display="Space")]

    def offer(self, lines: Sequence[str]) -> None:
        """Show lines, none of which is chosen."""
        self._texts = lines
        self.chosen: set[int] = set()
        """The places of the chosen lines."""
        self.add_options([Option(self._prompt(place), str(place)) for place in range(len(lines))])
        self.highlighted = 0 if lines else None

    def _prompt(self, place: int) -> Content:
        mark = ("[x] ", "bold") if place in self.chosen else ("[ ] ", "dim")
        return Content.assemble(mark, _output.shown(self._texts[place]))

    @on(OptionList.OptionSelected)
    def _on_chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.chosen ^= {event.option_index}
        self.replace_option_prompt_at_index(event.option_index, self._prompt(event.option_index))


_LAYOUT = """
EditScreen, ForgetScreen { align: center middle; }
.dialog { width: 90%; max-width: 100; height: 90%; background: $surface; border: round $primary; padding: 0 1; }
.title { text-style: bold; }
.message { color: $text-warning; height: auto; max-height: 40%; }
.message Static { height: auto; }
TextArea { height: 1fr; border: none; padding: 0; }
_Choice { height: auto; max-height: 60%; border: none; }
"""


class EditScreen(ModalScreen[Record | None]):
    """Edits the text of a note. The result is the note as it was saved; None if it was not."""

    CSS = _LAYOUT
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "save", "Save", priority=True),
        Binding("escape", "leave", "Leave", key_display="Esc"),
    ]

    def __init__(self, notes: Notes, record: Record) -> None:
        super().__init__()
        self._notes, self._record = notes, record
        self._leaving = False
        """Whether the person was told that leaving loses the text."""
        self._saving = False

    def compose(self) -> ComposeResult:
        """Return the widgets."""
        with Vertical(classes="dialog"):
            yield Static(
                as_content(f"Edit {self._record.id[-8:]} in {self._record.scope}"), classes="title", markup=False
            )
            with VerticalScroll(classes="message", can_focus=False):
                yield Static(id="message", markup=False)
            yield _PlainTextArea(self._record.content, soft_wrap=True, id="editor")
            yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Begin at the end of the text."""
        editor = self.query_one("#editor", TextArea)
        self._before = editor.text
        editor.move_cursor(editor.document.end)
        editor.focus()

    def action_save(self) -> None:
        """Save the text, unless the note was changed meanwhile."""
        if not self._saving:  # a save that has begun is neither begun again nor broken off
            self._saving = True
            self._save()

    @work
    async def _save(self) -> None:
        text = self.query_one("#editor", TextArea).text
        if text == self._before:
            self.dismiss(None)
            return
        try:
            self.dismiss(await self._notes.update(self._record.id, content=text, version=self._record.version))
        except ConflictError:
            await self._tell_conflict()
        except NoteNotFoundError:
            self._say("This note was forgotten meanwhile, so this was not saved. Your text is below.")
        except GraphAgentError as error:
            self._say(f"This was not saved: {error}. Your text is below.")
        finally:
            self._saving = False

    async def _tell_conflict(self) -> None:
        try:
            now = await self._notes.get(self._record.id)
        except GraphAgentError as error:
            self._say(f"The note was changed meanwhile, so this was not saved; it cannot be read: {error}")
            return
        if now is None:
            self._say("This note was forgotten meanwhile, so this was not saved. Your text is below.")
            return
        self._record = now
        self._say(
            f"The note was changed meanwhile, so this was not saved. Ctrl-S again replaces version {now.version} by your text, and Esc "
            f"leaves it. Version {now.version}:\n{now.content}"
        )

    def _say(self, text: str) -> None:
        self._leaving = False
        self.query_one("#message", Static).update(as_content(text))

    def action_leave(self) -> None:
        """Leave, after a warning if the text would be lost."""
        if self._saving:
            return
        if self._leaving or self.query_one("#editor", TextArea).text == self._before:
            self.dismiss(None)
        else:
            self._say("Your text is not saved. Esc again leaves, and Ctrl-S saves.")
            self._leaving = True


class ForgetScreen(ModalScreen[Receipt | None]):
    """Shows where a note has been, and forgets it. The result is the receipt; None if the note was kept."""

    CSS = _LAYOUT
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "forget", "Forget for good"),
        Binding("escape", "leave", "Keep", key_display="Esc"),
    ]

    def __init__(self, notes: Notes, places: Sequence[Place], record: Record, unread: Sequence[str]) -> None:
        super().__init__()
        self._notes, self._places, self._record, self._unread = notes, places, record, unread
        self._reached: list[Reached] | None = None
        """The places where the note has been; None until they are known."""
        self._forgetting = False

    def compose(self) -> ComposeResult:
        """Return the widgets."""
        with Vertical(classes="dialog"):
            yield Static("Forget this note for good, with its history?", classes="title", markup=False)
            yield Static(as_content(_output.shortened(self._record.content, 200)), markup=False)
            with VerticalScroll(classes="message", can_focus=False):
                yield Static("Looking where it has been …", id="message", markup=False)
            yield _Choice(id="reached", markup=False)
            yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Look where the note has been."""
        self.query_one("#reached").display = False
        self._look()

    @work
    async def _look(self) -> None:
        try:
            reached = await reach(*self._places, owner=self._notes.owner, notes=[self._record.id])
            places = [each for each in reached if each.kind != "cached"]
            texts = [await self._line(each) for each in places]
        except GraphAgentError as error:
            self._say(f"It cannot be told where it has been, so nothing can be forgotten here: {error}")
            return
        self._reached = places
        lines = [each.to_text() for each in reached if each.kind == "cached"]
        if places:
            lines.insert(0, "It is, or was, in these too. Space chooses what to forget with it:")
        else:
            lines.insert(0, "It appears in nothing else stored here.")
        self._say("\n".join([*lines, *(f"Not looked at: {each}" for each in self._unread)]))
        chosen = self.query_one(_Choice)
        chosen.offer(texts)
        chosen.display = bool(places)
        chosen.focus()

    async def _line(self, reached: Reached) -> str:
        """Return a place for people; a note with the beginning of its text, if it can be seen here."""
        note = await self._notes.get(reached.id) if reached.kind == "note" else None
        return reached.to_text() + (f": {_output.shortened(note.content)}" if note is not None else "")

    def _say(self, text: str) -> None:
        self.query_one("#message", Static).update(as_content(text))

    def action_forget(self) -> None:
        """Forget the note and what was chosen."""
        if self._reached is not None and not self._forgetting:
            self._forgetting = True
            self._forget(self._reached)

    @work
    async def _forget(self, reached: Sequence[Reached]) -> None:
        chosen = self.query_one(_Choice)
        try:
            now = await self._notes.get(self._record.id)
            if now is not None and now.version != self._record.version:
                self._record = now
                self._say(
                    f"The note was changed meanwhile, and was not forgotten; y again forgets version {now.version}:\n{now.content}"
                )
                return
            also = [reached[place] for place in sorted(chosen.chosen)]
            self.dismiss(await forget(*self._places, owner=self._notes.owner, notes=[self._record.id], also=also))
        except GraphAgentError as error:
            self._say(str(error))
        finally:
            self._forgetting = False

    def action_leave(self) -> None:
        """Keep the note, unless it is being forgotten."""
        if not self._forgetting:
            self.dismiss(None)
