"""Files that a workload names: where they lie."""

from __future__ import annotations

import os
from pathlib import Path

import sim.errors
from sim.errors import InputError
from sim.inputs import cut, shown

SHARED = "shared:"


class NotShared(InputError):
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
    message = f"{where}: found {shown(path)}, allowed an existing file (looked for {cut(looked, 1000)}){hint}"
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
