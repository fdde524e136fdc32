"""Catalog of scenario files, and what each says of itself: they are read and checked, nothing is run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateat.sim.errors import InputError
from stateat.sim.inputs import glance

if TYPE_CHECKING:
    from stateat.sim.scenario.load import Scenario

SUFFIXES = (".yaml", ".yml")
REFUSED = "# expect:"
"""A scenario file with lines that start so must be refused, with a message that holds what follows."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One scenario file."""

    path: str
    title: str
    source: str
    mechanism: tuple[str, ...]
    """Classes of fault."""
    variants: tuple[str, ...]
    """Names of the variants; a file without variants has one, ''."""
    expecting: tuple[str, ...]
    """Variants that say what they must come to."""
    cases: int
    """Number of cases, crossed with the variants; 0: none."""
    refused: tuple[str, ...] = ()
    """Texts that the message must hold with which the file is to be refused; empty for one that is to run."""
    wrong: str = ""
    """Reasons why a file that should run is refused, one problem a line."""

    @property
    def state(self) -> str:
        """State of the file in a word: what ``stateat check`` will look at."""
        if self.wrong:
            return "refused"
        if self.refused:
            return "must be refused"
        if not self.expecting:
            return "expects nothing"
        return "all expect" if self.expecting == self.variants else f"{len(self.expecting)} expect"


def scenario_files(paths: Sequence[Path]) -> list[Path]:
    """Files as given, and those in folders by name, without sweeps; each once.

    A link that leads nowhere is a file too: whoever reads it says so. Raises InputError for a folder without any.
    """
    files: dict[str, Path] = {}
    for path in paths:
        found = [path]
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if is_named_so(p) and (p.is_file() or _leads_nowhere(p)))
            found = [p for p in found if not _is_sweep(p)]
            if not found:
                raise InputError(f"{path}: no scenario files (*.yaml) in this folder")
        for file in found:
            files.setdefault(os.path.abspath(file), file)
    return list(files.values())


def is_named_so(file: Path) -> bool:
    """Return True if a file has the name of a scenario file."""
    return file.suffix.lower() in SUFFIXES


def _leads_nowhere(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def _is_sweep(file: Path) -> bool:
    return re.search(rb"^schema:\s*stateat-sweep/", glance(file), re.M) is not None


def refusal(file: Path) -> list[str] | None:
    """Return texts that the message must hold with which this file is to be refused; None for one that is to run."""
    try:
        lines = glance(file).decode().splitlines()
    except UnicodeDecodeError:
        return None
    return [line.removeprefix(REFUSED).strip() for line in lines if line.startswith(REFUSED)] or None


def entries(files: Sequence[Path], allow_code: bool = False) -> list[Entry]:
    """Return what the files say of themselves, in this order; ``allow_code``: they may name code, which is not run."""
    return [_entry(file, allow_code) for file in files]


def chosen(found: Sequence[Entry], classes: Sequence[str], sources: Sequence[str]) -> list[Entry]:
    """Return the entries of one of the classes whose source holds one of the texts; none given: all."""
    wanted = [text.casefold() for text in sources]
    return [
        entry
        for entry in found
        if (not classes or set(classes) & set(entry.mechanism))
        and (not wanted or any(text in entry.source.casefold() for text in wanted))
    ]


def whole(file: Path, allow_code: bool = False) -> Scenario:
    """A scenario with all that it refers to. Raises InputError for what is bad in it or there."""
    from stateat.sim.scenario.load import load

    scenario = load(file, allow_code)
    for run in scenario.expanded:
        run.arrivals()
    return scenario


def _entry(file: Path, allow_code: bool) -> Entry:
    from stateat.sim.workload.files import NotShared

    refused = tuple(refusal(file) or ())
    wrong = ""
    try:
        data = _written(file) if refused else _said(whole(file, allow_code))
    except NotShared:
        # Checked where the folder is.
        data = _written(file)
    except InputError as error:
        wrong, data = str(error), _written(file)
    data = data if isinstance(data, Mapping) else {}
    variants = _mapping(data, "variants")
    names = tuple(map(str, variants)) or ("",)
    expecting = [str(name) for name, variant in variants.items() if _expects(variant)] or (
        [""] if not variants and _expects(data) else []
    )
    mechanism = data.get("mechanism")
    return Entry(
        path=file.as_posix(),
        title=_text(data, "title"),
        source=_text(data, "source"),
        mechanism=tuple(map(str, mechanism)) if isinstance(mechanism, list | tuple) else (),
        variants=names,
        expecting=tuple(expecting),
        cases=len(_mapping(data, "cases")),
        refused=refused,
        wrong=wrong,
    )


def _said(scenario: Scenario) -> dict[str, Any]:
    keys = ("title", "source", "mechanism", "variants", "cases", "expect")
    return {key: getattr(scenario, key) for key in keys}


def _written(file: Path) -> Any:
    """Return what a file that is to be refused says, as far as it can be read."""
    from stateat.sim.scenario.tree import plain, read

    try:
        return plain(read(file)[0])
    except InputError:
        return {}


def _mapping(data: Any, key: str) -> Mapping[Any, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _expects(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("expect") is not None


def _text(data: Any, key: str) -> str:
    return " ".join(str(data.get(key) or "").split())


def by_folder(found: Sequence[Entry], root: Path) -> Iterator[tuple[str, list[Entry]]]:
    """The entries of each folder below ``root``, by name; '.' for ``root`` itself."""
    folders: dict[str, list[Entry]] = {}
    for entry in found:
        folder = Path(entry.path).parent
        name = folder.relative_to(root).as_posix() if folder.is_relative_to(root) else folder.as_posix()
        folders.setdefault(name, []).append(entry)
    yield from sorted(folders.items())
