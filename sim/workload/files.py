"""Files that a workload names: where they lie, and how they are read."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import sim.errors
from sim.errors import InputError, MissingError

SHARED = "shared:"


class NotShared(MissingError):
    """A scenario wants a recorded trace, and there is no folder of them here."""


def resolve(path: str, base: Path, where: str) -> Path:
    """The file of a path that is absolute, relative to ``base`` (the scenario file's folder), or ``shared:NAME``.

    ``shared:NAME`` is NAME, or traces/NAME, in the folder that STATEAT_SHARED names; without it, in a folder
    ``shared`` beside the checkout that holds this package. Raises InputError, with ``where``, for no such file.
    """
    if path.startswith(SHARED):
        name, folder = path.removeprefix(SHARED), shared_folder()
        candidates = [folder / name, folder / "traces" / name]
        hint = "; set STATEAT_SHARED to the folder that holds it"
    else:
        folder, candidates, hint = base, [base / path], ""
    for candidate in candidates:
        if is_file(candidate):
            return candidate
    looked = " or ".join(str(c) for c in candidates)
    message = f"{where}: found {path!r}, allowed an existing file (looked for {looked}){hint}"
    raise NotShared(message) if path.startswith(SHARED) and not folder.is_dir() else InputError(message)


def shared_folder() -> Path:
    """The folder that ``shared:`` stands for."""
    named = os.environ.get("STATEAT_SHARED")
    if named:
        return Path(named)
    checkout = Path(sim.errors.__file__).resolve().parent.parent
    return checkout.parent / "shared"


def is_file(path: Path) -> bool:
    """Whether there is such a file; no name is an error."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


@contextmanager
def open_lines(file: Path) -> Iterator[Iterator[str]]:
    """The lines of a UTF-8 file, which is closed whatever becomes of them. Raises InputError for one that cannot be
    read."""
    with closing(_lines(file)) as lines:
        yield lines


def _lines(file: Path) -> Generator[str, None, None]:
    line = 0
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            for line, text in enumerate(stream, 1):  # noqa: B007 - told when the next line cannot be read
                yield text
    except UnicodeDecodeError:
        raise InputError(f"{file}:{line + 1}: not UTF-8") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
