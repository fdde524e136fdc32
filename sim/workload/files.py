"""Files that a workload names: where they lie."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stateat.sim.errors import InputError, MissingError
from stateat.sim.files import shared_folder
from stateat.sim.inputs import shown
from stateat.sim.printable import short

SHARED = "shared:"


class NotShared(MissingError):
    """A scenario wants a recorded trace, and there is no folder of them here."""


def resolve(path: str, base: Path, where: str) -> Path:
    """The file of a path that is absolute, relative to ``base`` (the scenario file's folder), or ``shared:NAME``.

    ``shared:NAME`` is NAME, or traces/NAME, in the folder that STATEAT_SHARED names; without it, in a folder
    ``shared`` beside the checkout. Raises InputError, with ``where``, for no such file, and for a NAME that leads out
    of that folder; its subclass NotShared where there is no folder.
    """
    if path.startswith(SHARED):
        name, shared = path.removeprefix(SHARED), shared_folder()
        if not name or Path(name).is_absolute() or ".." in Path(name).parts:
            raise InputError(f"{where}: found {path!r}, allowed shared:NAME, a file inside the shared folder")
        if shared is None:
            raise NotShared(f"{where}: found {shown(path)}, and there is no shared folder; name it in STATEAT_SHARED")
        folder, candidates = shared, [shared / name, shared / "traces" / name]
        hint = "; set STATEAT_SHARED to the folder that holds it"
    else:
        folder, candidates, hint = base, [base / path], ""
    for candidate in candidates:
        if is_file(candidate):
            if path.startswith(SHARED) and not inside(candidate, folder):
                raise InputError(f"{where}: found {path!r}, a link out of the shared folder, allowed a file inside it")
            return candidate
    looked = " or ".join(str(c) for c in candidates)
    message = f"{where}: found {shown(path)}, allowed an existing file (looked for {short(looked, 1000)}){hint}"
    raise NotShared(message) if path.startswith(SHARED) and not folder.is_dir() else InputError(message)


def inside(path: Path, folder: Path) -> bool:
    """Return True if a path leads into a folder, links followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def outside(paths: Iterable[str], base: Path) -> list[Path]:
    """Return where those paths lead that a file in the folder ``base`` names and that leave it. ``shared:`` is not
    among them: whoever runs the file has chosen that folder."""
    own = [base / path for path in paths if not path.startswith(SHARED) and "\0" not in path]
    return list(dict.fromkeys(Path(os.path.realpath(path)) for path in own if not inside(path, base)))


def is_file(path: Path) -> bool:
    """Return True if there is such a file; no name is an error."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


@contextmanager
def discreet(file: Path, base: Path) -> Iterator[None]:
    """Quote no line of a file outside ``base`` (the scenario file's folder): its scenario may be a stranger's, and the
    file anybody's. InputError then names the line alone."""
    try:
        yield
    except InputError as error:
        place = re.match(re.escape(f"{file}:") + r"\d+: ", str(error))
        if place is None or inside(file, base):
            raise
        text = f"{place[0]}not as its format has it (not quoted: it lies outside the scenario's folder)"
        raise InputError(text) from None
