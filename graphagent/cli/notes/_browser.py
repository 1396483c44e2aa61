"""The application of `graphagent notes browse`: scopes, a list, and a note.

Texts of notes are `Content` made of plain text, never markup, and without characters that act on a terminal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from rich.traceback import Traceback
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Input, OptionList, Static, Tree
from textual.widgets.option_list import Option
from textual.worker import Worker

from graphagent._article import counted
from graphagent.cli import _output
from graphagent.cli._phrases import others, whose
from graphagent.cli.forget import receipt_text
from graphagent.cli.notes._dialogs import EditScreen, ForgetScreen
from graphagent.cli.notes._texts import as_content, note_content
from graphagent.errors import GraphAgentError

if TYPE_CHECKING:
    from graphagent.history import Place
    from graphagent.memory import FormerNote, Match, Notes, Record
    from graphagent.store import Receipt

_PAGE = 100
"""How many notes are listed at a time."""
_FOUND = 50
"""How many notes a search lists at most."""
_OPENED = 40
"""Up to how many scopes are all unfolded."""
_MORE = "more"


class _Scopes(Tree[str]):
    """The scopes; the data of a node is its path."""


class _Main(Screen[None]):
    """The screen of the application, whose footer names the key that goes from pane to pane."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "app.focus_next", "Pane", key_display="Tab")]


class Browser(App[None]):
    """Browses the notes of one owner.

    Args:
        notes: The notes.
        places: The places that may have something of the notes, for `reach` and `forget`.
        name: The name of the store.
        sealed: Whether the store is sealed.
        unread: The places that could not be opened, and why.
    """

    TITLE = "graphagent notes"
    CSS = """
    #about { height: 1; background: $panel; color: $text-muted; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    * { scrollbar-size-vertical: 1; scrollbar-size-horizontal: 1; }
    #query { padding: 0 1; }
    #places { height: 45%; }
    #scopes { width: 30%; border-right: vkey $panel; background: $background; padding: 0 0 0 1; }
    #list { width: 1fr; height: 100%; border: none; padding: 0 1; background: $background; text-wrap: nowrap; text-overflow: ellipsis; }
    #note { height: 1fr; border-top: solid $panel; padding: 0 1; }
    #note:focus { border-top: solid $primary; }
    #scopes:focus, #list:focus { background: $surface; }
    .-wide #body { layout: horizontal; }
    .-wide #places { width: 60%; height: 100%; }
    .-wide #note { width: 1fr; height: 100%; border-top: none; border-left: vkey $panel; }
    .-wide #note:focus { border-left: vkey $primary; }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012  declared so by the base class
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search", key_display="/"),
        Binding("e", "edit", "Edit"),
        Binding("f", "forget", "Forget"),
        Binding("r", "reload", "Reload"),
        Binding("escape", "leave", "Back", key_display="Esc"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False),
    ]

    def __init__(
        self, notes: Notes, places: Sequence[Place], *, name: str, sealed: bool, unread: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self._notes, self._places, self._unread = notes, places, unread
        self._store = f"{name}{', sealed' if sealed else ''}{whose(notes.owner)}"
        self._scope = "/"
        self._query = ""
        """The question of which the matches are listed; empty while a scope is listed."""
        self._records: list[Record] = []
        self._matches: dict[str, Match] = {}
        self._record: Record | None = None
        """The note that is shown."""

    def get_default_screen(self) -> Screen[None]:
        """Return the screen with the panes."""
        return _Main(id="_default")

    def compose(self) -> ComposeResult:
        """Return the widgets."""
        yield Static(id="about", markup=False)
        yield Input(placeholder="Search with /: a question, or some words", id="query", compact=True)
        with Vertical(id="body"):
            with Horizontal(id="places"):
                yield _Scopes(Text("/"), "/", id="scopes")
                yield OptionList(id="list", markup=False)
            with VerticalScroll(id="note", can_focus=True):
                yield Static(id="text", markup=False)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """List everything."""
        self.query_one(_Scopes).guide_depth = 2
        self.query_one("#list").focus()
        self._work(self._reload)

    @property
    def _shown(self) -> str | None:
        """The id of the note that is shown."""
        return None if self._record is None else self._record.id

    # Reading

    def _work(self, work: Callable[[], Awaitable[None]], group: str = "list") -> None:
        """Do some work, instead of the earlier work of its group, and show an error of the store or the notes."""

        async def carefully() -> None:
            try:
                await work()
            except GraphAgentError as error:
                self.complain(error)

        _: Worker[None] = self.run_worker(carefully, group=group, exclusive=True)

    def _fatal_error(self) -> None:
        """Leave with the traceback of an unexpected error, without the values of variables, which Textual would print."""
        self.panic(Traceback(show_locals=False, width=None))

    def complain(self, error: GraphAgentError) -> None:
        """Show an error."""
        text = _output.shown(" ".join(str(error).split()))
        self.notify(text, title="It failed", severity="error", timeout=15, markup=False)

    async def _reload(self, keep: str | None = None) -> None:
        """Read scopes and the list again, and show the note with an id, or else the first one."""
        root = await self._notes.tree()
        count = counted(root.record_count, "note")
        self.query_one("#about", Static).update(as_content(f"{count} · {self._store}"))
        tree = self.query_one(_Scopes)
        tree.clear()
        tree.root.set_label(_label("/", root.record_count))
        every = {"/": tree.root}
        left = [(tree.root, root)]
        while left:
            node, scope = left.pop()
            for child in scope.children:
                label = _label(child.path.rpartition("/")[2], child.record_count)
                below = node.add(label, child.path, allow_expand=bool(child.children))
                every[child.path] = below
                left.append((below, child))
        for node in every.values() if len(every) <= _OPENED else [tree.root]:
            node.expand()
        if self._scope not in every:
            self._scope = "/"
        tree.move_cursor(every[self._scope])
        await (self._find(keep) if self._query else self._list(keep))

    async def _list(self, keep: str | None = None) -> None:
        """List the newest notes of the scope."""
        self._matches = {}
        self._show_list(await self._notes.list_records(self._scope, limit=_PAGE + 1), keep)
        if not self._records:
            self._show_nothing(
                f"No notes{whose(self._notes.owner)} are kept here yet."
                f"{others(await self._notes.owners(), self._notes.owner, 'notes')}\n\n"
                f'graphagent notes remember "…" saves one, and programs do with Notes.'
            )

    async def _find(self, keep: str | None = None) -> None:
        """List the notes that fit the question, within the scope."""
        found = await self._notes.recall(self._query, self._scope, limit=_FOUND)
        self._matches = {match.record.id: match for match in found}
        self._show_list([match.record for match in found], keep)
        if not found:
            self._show_nothing(f"No note in {self._scope} fits {self._query!r}.")

    async def _more(self) -> None:
        """Add the next notes to the list."""
        shown = len(self._records)
        more = await self._notes.list_records(self._scope, limit=_PAGE + 1, offset=shown)
        self._show_list([*self._records, *more], at=shown)

    def _show_list(self, records: list[Record], keep: str | None = None, *, at: int = 0) -> None:
        """List notes, and select one: that with an id, or else by its place."""
        is_more = not self._matches and len(records) > _PAGE and (len(records) - 1) % _PAGE == 0
        self._records = records[:-1] if is_more else records
        listed = self.query_one("#list", OptionList)
        listed.clear_options()
        listed.add_options([Option(self._line(record), str(number)) for number, record in enumerate(self._records)])
        if is_more:
            listed.add_option(Option(as_content("… more"), _MORE))
        ids = [record.id for record in self._records]
        if ids:
            listed.highlighted = ids.index(keep) if keep in ids else min(at, len(ids) - 1)

    def _line(self, record: Record) -> Content:
        when = _output.moment(int((record.at or record.created_at).timestamp() * 1000))[:10]
        first = f"{self._matches[record.id].score:.2f}" if record.id in self._matches else when
        said = f"{record.speaker}: " if record.speaker else ""
        return Content.assemble((f"{first}  ", "dim"), _output.shown(f"{said}{_output.shortened(record.content, 240)}"))

    def _show_nothing(self, text: str) -> None:
        self._record = None
        self.query_one("#text", Static).update(as_content(text))

    async def _show(self, record: Record) -> None:
        """Show a note with its history, as it is."""
        self._record = record
        match = self._matches.get(record.id)
        pane = self.query_one("#text", Static)
        pane.update(note_content(record, [], match))
        self.query_one("#note", VerticalScroll).scroll_home(animate=False)
        now = await self._notes.get(record.id)
        if now is None:
            self._show_nothing("This note was forgotten meanwhile. Press r to read the list again.")
            return
        past: list[FormerNote] = await self._notes.history(record.id)
        self._record = now
        pane.update(note_content(now, past, match))

    # Acting

    @on(Tree.NodeHighlighted, "#scopes")
    def _on_scope(self, event: Tree.NodeHighlighted[str]) -> None:
        if event.node.data is not None and event.node.data != self._scope:
            self._scope = event.node.data
            self._work(self._find if self._query else self._list)

    @on(OptionList.OptionHighlighted, "#list")
    def _on_note(self, event: OptionList.OptionHighlighted) -> None:
        if event.option_id == _MORE:
            self._work(self._more)
        elif event.option_id is not None:
            self._work(partial(self._show, self._records[int(event.option_id)]), "note")

    @on(OptionList.OptionSelected, "#list")
    def _on_chosen(self) -> None:
        self.query_one("#note").focus()

    @on(Input.Submitted, "#query")
    def _on_query(self, event: Input.Submitted) -> None:
        self._query = event.value.strip()
        self.query_one("#list").focus()
        self._work(self._find if self._query else self._list)

    def action_search(self) -> None:
        """Let the person type a question."""
        self.query_one("#query").focus()

    def action_leave(self) -> None:
        """Leave a search, or go back to the list."""
        listed = self.query_one("#list")
        if self.focused is listed and self._query:
            self._query = self.query_one("#query", Input).value = ""
            self._work(partial(self._list, self._shown))
        listed.focus()

    def action_reload(self) -> None:
        """Read everything again."""
        self._work(partial(self._reload, self._shown))

    def action_edit(self) -> None:
        """Edit the text of the note."""
        if self._record is None:
            return

        def saved(record: Record | None) -> None:
            if record is not None:
                self.notify(f"Saved as version {record.version}.", markup=False)
                self._work(partial(self._reload, record.id))

        self.push_screen(EditScreen(self._notes, self._record), saved)

    def action_forget(self) -> None:
        """Forget the note, and what it has reached if the person wants."""
        if self._record is None:
            return
        place = self._records.index(self._record) if self._record in self._records else 0
        after = next((each.id for each in self._records[place + 1 :]), None)

        def forgotten(receipt: Receipt | None) -> None:
            if receipt is not None:
                self.notify(f"Forgotten: {receipt_text(receipt)}.", timeout=15, markup=False)
                self._work(partial(self._reload, after))

        self.push_screen(ForgetScreen(self._notes, self._places, self._record, self._unread), forgotten)


def _label(name: str, count: int) -> Text:
    return Text.assemble(_output.shown(name) or "/", (f" {count:,}", "dim"))
