"""Arguments of public functions, made plain, or refused by the argument's name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from stateat.sim.errors import InputError
from stateat.sim.inputs import shown


def refuse(what: str, value: object, allowed: str) -> NoReturn:
    """Raise InputError: argument ``what`` has a value that is not allowed."""
    raise InputError(f"{what}: found {shown(value)}, allowed {allowed}")


def path(what: str, value: object, allowed: str = "a path") -> Path:
    """Return a path. Raises InputError for another type, and for bytes."""
    if isinstance(value, str | PathLike):
        plain = fspath(value)
        if isinstance(plain, str):
            return Path(plain)
    refuse(what, value, allowed)


def names(what: str, value: object) -> list[str]:
    """Return one name, or any iterable of names, as a list, a set's in the order of the alphabet.

    Raises InputError for something else, and if there is none: that would mean all of them, or a default.
    """
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Iterable) or isinstance(value, Mapping | bytes):
        refuse(what, value, "a name or a list of names")
    found = list(value)
    for name in found:
        if not isinstance(name, str):
            refuse(what, name, "a name or a list of names")
    if not found:
        raise InputError(f"{what}: found no name, allowed at least one, or leave it out")
    return sorted(found) if isinstance(value, Set) else found


def text(what: str, value: object) -> str:
    """Return a text. Raises InputError for something else, and for an empty one."""
    if not (isinstance(value, str) and value):
        refuse(what, value, "a text")
    return value


def whole(what: str, value: object, low: int, high: int) -> int:
    """Return a whole number (also NumPy's) from ``low`` to ``high``. Raises InputError for something else."""
    plain = value.item() if isinstance(value, np.generic) else value
    if not (type(plain) is int and low <= plain <= high):
        refuse(what, value, f"a whole number from {low} to {high}")
    return plain


def table(what: str, value: object) -> Mapping[str, Any]:
    """Return a mapping from names. Raises InputError for something else."""
    if not isinstance(value, Mapping):
        refuse(what, value, "a mapping from names to values")
    for name in value:
        text(what, name)
    return value
