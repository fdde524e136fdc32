"""The scenarios that come with stateat, by name, from whatever folder it was installed into."""

from __future__ import annotations

from pathlib import Path

import stateat
from stateat.sim.errors import InputError
from stateat.sim.printable import short

ROOT = Path(stateat.__file__).resolve().parent / "scenarios"


def named(source: Path) -> Path:
    """Return a path as it is, or the shipped file or folder of this name where no such path exists.

    Names are a folder (``seeds``), a file without its suffix (``s02-anatomy``), or both (``seeds/s02-anatomy``). What
    has the suffix of a file, or is absolute, is a path. Raises InputError for a name that is unknown, with the nearest
    ones, and for a file's name that stands in two folders.
    """
    if _exists(source) or source.suffix or source.is_absolute() or ".." in source.parts or not source.parts:
        return source
    names: dict[str, list[Path]] = {}
    for path in sorted(ROOT.rglob("*")):
        place = path.relative_to(ROOT).with_suffix("")
        if path.is_dir() or path.suffix == ".yaml":
            for name in {place.name, place.as_posix()}:
                names.setdefault(name, []).append(path)
    found = names.get(source.as_posix(), [])
    if len(found) == 1:
        return found[0]
    told = short(str(source))
    if found:
        which = " and ".join(path.relative_to(ROOT).with_suffix("").as_posix() for path in found)
        raise InputError(f"{told}: no such file here, and two scenarios of stateat have this name: {which}")
    from difflib import get_close_matches

    near = get_close_matches(source.as_posix(), [n for n in names if n.count("/") == len(source.parts) - 1], n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "they are: stateat list"
    raise InputError(f"{told}: no such file here, and no scenario of stateat has this name; {hint}")


def here_or_shipped() -> Path:
    """Return the folder ``scenarios`` of the current one, or where there is none the shipped one."""
    here = Path("scenarios")
    return here if _exists(here) else ROOT


def shown(path: str) -> str:
    """Return the name of a shipped file that is given by its whole path (``seeds/s02-anatomy``); any other as it is."""
    place = Path(path)
    return place.relative_to(ROOT).with_suffix("").as_posix() if place.is_relative_to(ROOT) else path


def _exists(path: Path) -> bool:
    try:
        return path.exists() or path.is_symlink()
    except (OSError, ValueError):
        # A name that no file can have: whoever reads it says so.
        return True
