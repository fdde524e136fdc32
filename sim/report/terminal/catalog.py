"""The list of scenario files, as a table in a terminal, as JSON and as the page ``scenarios/README.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from stateat.sim.printable import one_line, plural
from stateat.sim.scenario.catalog import Entry, by_folder
from stateat.sim.scenario.shipped import shown

FOLDERS = {
    "seeds": "Published results: each file shows both columns of a row.",
    "field": "Reported cases: the mechanism of a public report, without the fault and with it.",
    "load": "Many requests at once.",
    "limits": "Bad input: each file must be refused, with a message that holds the text beside it.",
}
"""Purpose of each folder of scenarios."""

HEAD = """\
# Scenarios

Written by `stateat list scenarios --markdown` (`make catalog`) from the heads of the files. The classes are those of
[mechanisms.md](../docs/mechanisms.md). `stateat replay FILE` runs one, `stateat check scenarios` all of them, and
`stateat list scenarios --class M1` finds those of a class.
"""


def print_catalog(found: Sequence[Entry], console: Console) -> None:
    """Files in columns: path, classes, variants, check; below each its title and its source."""
    widths = [max((len(cells[i]) for cells in map(_head, found)), default=0) for i in range(3)]
    for entry in found:
        *cells, state = _head(entry)
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        console.print(Text(f"{line}  {state}".rstrip(), style="bold"), soft_wrap=True)
        for text in filter(None, (_title(entry), entry.source)):
            console.print(Padding(Text(one_line(text)), (0, 0, 0, 4), expand=False))
    refused = sum(bool(entry.wrong) for entry in found)
    console.print(Text(plural(len(found) - refused, "scenario file") + (f", {refused} refused" if refused else "")))


def _head(entry: Entry) -> tuple[str, str, str, str]:
    return one_line(shown(entry.path)), " ".join(entry.mechanism), _count(entry), entry.state


def _title(entry: Entry) -> str:
    return _first(entry.wrong) or entry.title or "; ".join(entry.refused)


def _first(problems: str) -> str:
    """The first of several problems, and how many more there are."""
    first, *more = problems.splitlines() or [""]
    return first + (f" (and {len(more)} more)" if more else "")


def _count(entry: Entry) -> str:
    """``2 variants``, or ``2 variants × 20 cases``."""
    if entry.refused or entry.wrong:
        return ""
    return plural(len(entry.variants), "variant") + (f" × {plural(entry.cases, 'case')}" if entry.cases else "")


def to_json(found: Sequence[Entry]) -> list[dict[str, Any]]:
    """The entries as plain data."""
    return [asdict(entry) | {"state": entry.state} for entry in found]


def to_markdown(found: Sequence[Entry], root: Path) -> str:
    """The page: a table for each folder."""
    return HEAD + "".join(_section(name, entries, root) for name, entries in by_folder(found, root))


def _section(name: str, entries: Sequence[Entry], root: Path) -> str:
    lines = ["", f"## {root.as_posix() if name == '.' else name}", ""]
    if name in FOLDERS:
        lines += [FOLDERS[name], ""]
    return "\n".join([*lines, *_rows(entries, root)]) + "\n"


def _rows(entries: Sequence[Entry], root: Path) -> Iterator[str]:
    if all(entry.refused for entry in entries):
        yield "| file | refused with |"
        yield "|---|---|"
        for entry in entries:
            yield f"| {_link(entry, root)} | {_cell('; '.join(entry.refused))} |"
        return
    yield "| file | title | source | class | runs | check |"
    yield "|---|---|---|---|---|---|"
    for entry in entries:
        cells = (_title(entry), entry.source, " ".join(entry.mechanism), _count(entry), entry.state)
        yield f"| {_link(entry, root)} | {' | '.join(map(_cell, cells))} |"


def _link(entry: Entry, root: Path) -> str:
    path = Path(entry.path)
    target = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    return f"[{path.stem}]({target})"


def _cell(text: str) -> str:
    """Return the text so that nothing in it ends the cell, or becomes a tag, an emphasis or a link."""
    plain = one_line(text)
    for mark in "\\|<>*_[]`":
        plain = plain.replace(mark, f"\\{mark}")
    return plain
