"""Search as one types, in a terminal: results on the left, the note on the right."""

from __future__ import annotations

from typing import ClassVar

import click
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Footer, Input, Markdown, OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import get_current_worker

from recollect.cli.terminal import plain, plain_text, where
from recollect.errors import RecollectError
from recollect.memory import Memory
from recollect.memory.shapes import name_of
from recollect.types import Answer, Result

SHOWN_CHARACTERS = 40_000  # of a record that is longer


class SearchScreen(App[None]):
    """The interactive search of one memory."""

    CSS = """
    Input { dock: top; }
    #status { height: 1; padding: 0 2; color: $text-muted; }
    OptionList { width: 2fr; border: none; }
    VerticalScroll { width: 3fr; padding: 0 2; border-left: solid $panel; }
    """
    BINDINGS: ClassVar = [
        Binding("escape", "quit", "Quit"),
        Binding("down", "move(1)", "Next", priority=True),
        Binding("up", "move(-1)", "Previous", priority=True),
        Binding("enter", "edit", "Open in $EDITOR", priority=True),
        Binding("pagedown", "page(1)", "Read on", priority=True),
        Binding("pageup", "page(-1)", "Read back", priority=True, show=False),
    ]

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory
        self.results: tuple[Result, ...] = ()

    def compose(self) -> ComposeResult:
        """The field, the results, the note, and the keys."""
        yield Input(placeholder="Search your memory")
        yield Static(id="status", markup=False)
        with Horizontal():
            yield OptionList()
            with VerticalScroll(can_focus=False):
                yield Markdown()
        yield Footer()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search again; an answer that is still being computed is dropped."""
        self.search(event.value)

    @work(thread=True, exclusive=True)
    def search(self, query: str) -> None:
        """Search in a thread, and show the answer unless the query has changed meanwhile."""
        worker = get_current_worker()
        try:
            answer = self.memory.search(query) if query.strip() else None
            failure = ""
        except RecollectError as error:
            answer, failure = None, error.message
        if not worker.is_cancelled:
            self.call_from_thread(self.show, answer, failure)

    def show(self, answer: Answer | None, failure: str) -> None:
        """Fill the list, and show the first result."""
        self.results = answer.results if answer else ()
        rows = self.query_one(OptionList)
        rows.clear_options()
        rows.add_options([Option(_row(rank, result)) for rank, result in enumerate(self.results, 1)])
        likely = (
            f"{len(self.results)} results, {answer.likely} likely · {answer.trace.took_ms:.0f} ms" if answer else ""
        )
        self.query_one("#status", Static).update(plain(failure) or likely)
        if self.results:
            rows.highlighted = 0
        else:
            self.query_one(Markdown).update("")

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the note of a result."""
        record = self.results[event.option_index].record
        heading = f"*{where(record)}*\n\n" if record.path else ""
        self.query_one(Markdown).update(heading + plain_text(record.text[:SHOWN_CHARACTERS]))
        self.query_one(VerticalScroll).scroll_home(animate=False)

    def action_move(self, by: int) -> None:
        """Go to the next or the previous result."""
        rows = self.query_one(OptionList)
        if self.results:
            rows.highlighted = max(0, min(len(self.results) - 1, (rows.highlighted or 0) + by))

    def action_page(self, by: int) -> None:
        """Scroll the note."""
        note = self.query_one(VerticalScroll)
        note.scroll_page_down() if by > 0 else note.scroll_page_up()

    def action_edit(self) -> None:
        """Open the file of the result in the editor of the environment."""
        chosen = self.query_one(OptionList).highlighted
        path = self.results[chosen].record.path if chosen is not None and self.results else None
        if path is not None:
            with self.suspend():
                click.edit(filename=path)


def _row(rank: int, result: Result) -> Content:
    """The title, and below it where it is from and the rank in each source."""
    ranks = "  ".join(f"{source} #{share.rank}" for source, share in result.shares.items())
    about = "  ".join(part for part in (where(result.record) or result.record.kind, ranks) if part)
    title = Content.styled(f"{rank:2}. {plain(name_of(result.record))}", "bold")
    return Content.assemble(title, "\n    ", Content.styled(plain(about), "dim"))
