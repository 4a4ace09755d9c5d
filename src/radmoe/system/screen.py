"""Rich's console, table and text column, without markup and with everything visible."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich import progress, table
from rich.console import Console, ConsoleOptions, RenderableType
from rich.protocol import is_renderable
from rich.segment import Segment
from rich.text import Text

from radmoe.system.printing import shortened, styled, visible


class Screen(Console):
    """A console on which text is text: a string is neither markup nor emoji codes, and is always one line.

    Styles come from `styled`. What reaches the console by another way (a Text, a Syntax) is made visible as a block when
    it is rendered, before it is cropped to the width; only rich's own control sequences pass.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects; one that rich cannot render is printed as its string."""
        super().print(*(one if is_renderable(one) else str(one) for one in objects), **options)

    def render_str(self, text: str, *, style: Any = "", justify: Any = None, overflow: Any = None, **_: Any) -> Text:
        """Return a string as plain text, whatever is asked for about markup."""
        return Text(visible(text), style=style, justify=justify, overflow=overflow)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object, with every text in it made visible."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text, block=True), style, control)


class ScreenTable(table.Table):
    """A table whose cells are of a bearable length: the middle of a longer one is left out.

    A cell that is wider than its column is wrapped: ids and paths can be typed as they stand.
    """

    def add_column(self, *arguments: Any, overflow: Any = "fold", **options: Any) -> None:
        super().add_column(*arguments, overflow=overflow, **options)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*(shortened(cell) if isinstance(cell, str) else cell for cell in cells), **options)


class ScreenLabel(progress.ProgressColumn):
    """The label of a progress bar. Rich's own TextColumn would read it as markup and as a format string."""

    def __init__(self, what: str) -> None:
        super().__init__(table.Column(no_wrap=True))
        self._text = styled(shortened(what, 60))

    def render(self, task: progress.Task) -> Text:
        return self._text


class Note(progress.ProgressColumn):
    """The numbers of a progress bar: how many are done, of how many, and further notes."""

    def render(self, task: progress.Task) -> Text:
        return styled(shortened(task.fields["note"], 80))
