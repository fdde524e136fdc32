"""Lines on their way to a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook
from rich.segment import Segment
from rich.text import Text

from stateat.sim.printable import printable


def say(console: Console, text: Text) -> None:
    """Print one line, whatever the width: a terminal folds it, a pipe keeps it whole."""
    console.print(text, soft_wrap=True)


def print_trimmed(table: RenderableType, console: Console) -> None:
    """A table without the spaces that pad its lines."""
    with console.capture() as shown:
        console.print(table)
    for line in shown.get().splitlines():
        say(console, Text.from_ansi(line.rstrip()))


class Printable(RenderHook):
    """Make printable the text of all that a console prints; colours and the cursor are rich's own."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Printed(renderable) for renderable in renderables]


@dataclass(frozen=True, slots=True)
class _Printed:
    of: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.of, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
