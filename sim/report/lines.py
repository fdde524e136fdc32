"""How lines get to a terminal or a pipe."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.text import Text


def say(console: Console, text: Text) -> None:
    """One line, whatever the width: a terminal folds it, a pipe keeps it whole."""
    console.print(text, soft_wrap=True)


def print_trimmed(table: RenderableType, console: Console) -> None:
    """A table without the spaces that pad its lines."""
    with console.capture() as shown:
        console.print(table)
    for line in shown.get().splitlines():
        say(console, Text.from_ansi(line.rstrip()))
