"""What scenario files there are, and what each says of itself: read from their heads, nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.errors import InputError

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
    """By name; a file without variants has one, ''."""
    expecting: tuple[str, ...]
    """Those that say what they must come to."""
    cases: int
    """How many, crossed with the variants; 0: none."""
    refused: tuple[str, ...] = ()
    """What the message must hold with which the file is to be refused; empty for one that is to run."""
    unreadable: str = ""
    """What is wrong with a file that should run and cannot be read."""

    @property
    def state(self) -> str:
        """What ``stateat check`` will look at."""
        if self.unreadable:
            return "unreadable"
        if self.refused:
            return "must be refused"
        if not self.expecting:
            return "expects nothing"
        return "all expect" if self.expecting == self.variants else f"{len(self.expecting)} expect"


def scenario_files(paths: Sequence[Path]) -> list[Path]:
    """Files as given, and those in folders by name, without sweeps. Raises InputError for a folder without any."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.suffix in (".yaml", ".yml") and p.is_file())
            found = [p for p in found if not _is_sweep(p)]
            if not found:
                raise InputError(f"{path}: no scenario files (*.yaml) in this folder")
            files += found
        else:
            files.append(path)
    return files


def _is_sweep(file: Path) -> bool:
    try:
        return re.search(rb"^schema:\s*stateat-sweep/", file.read_bytes(), re.M) is not None
    except OSError:
        return False


def refusal(file: Path) -> list[str] | None:
    """What the message must hold with which this file is to be refused; None for one that is to run."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return [line.removeprefix(REFUSED).strip() for line in lines if line.startswith(REFUSED)] or None


def entries(files: Sequence[Path]) -> list[Entry]:
    """What the files say of themselves, in this order."""
    return [_entry(file) for file in files]


def chosen(found: Sequence[Entry], classes: Sequence[str], sources: Sequence[str]) -> list[Entry]:
    """Those of one of the classes whose source holds one of the texts; none given: all."""
    wanted = [text.casefold() for text in sources]
    return [
        entry
        for entry in found
        if (not classes or set(classes) & set(entry.mechanism))
        and (not wanted or any(text in entry.source.casefold() for text in wanted))
    ]


def _entry(file: Path) -> Entry:
    from sim.scenario_yaml import plain, read

    if not file.is_file():
        raise InputError(f"{file}: no such file")
    refused = tuple(refusal(file) or ())
    data: Any = {}
    unreadable = ""
    try:
        data = plain(read(file)[0])
    except InputError as error:
        unreadable = "" if refused else str(error)
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
        mechanism=tuple(map(str, mechanism)) if isinstance(mechanism, list) else (),
        variants=names,
        expecting=tuple(expecting),
        cases=len(_mapping(data, "cases")),
        refused=refused,
        unreadable=unreadable,
    )


def _mapping(data: Any, key: str) -> Mapping[Any, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _expects(part: Any) -> bool:
    return isinstance(part, dict) and part.get("expect") is not None


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
