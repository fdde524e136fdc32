"""Output files: refused before a long run when they cannot be written, and never left half-written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from sim.errors import InputError


def real(path: Path) -> Path:
    """Where a path leads; a link that leads to itself stays what it is."""
    return Path(os.path.realpath(path))


def absolute(path: Path) -> Path:
    """A path from the root, links as they are."""
    return Path(os.path.abspath(path))


def check_writable(path: Path, what: str) -> None:
    """Raise InputError, naming the option, when a file could not be written here."""
    if str(path) == "-":
        raise InputError(f"{what} -: only --json writes to standard output")
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        # Of the folder there is more to say.
        pass
    except OSError as error:
        raise InputError(f"{what} {path}: {error.strerror or error}") from error
    folder = (real(path) if path.is_symlink() else path).parent
    if path.is_dir():
        raise InputError(f"{what} {path}: found a folder, allowed is a file")
    if path.exists() and not path.is_file():
        # A device or a pipe: nothing is put beside it.
        if not os.access(path, os.W_OK):
            raise InputError(f"{what} {path}: no permission to write")
        return
    if not folder.is_dir():
        raise InputError(f"{what} {path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise InputError(f"{what} {path}: no permission to write")


def check_apart(outputs: Mapping[str, Path], inputs: Iterable[Path]) -> None:
    """Raise InputError when two outputs are one file, or an output is an input."""
    taken = {real(path): f"the input {path}" for path in inputs}
    for what, path in outputs.items():
        if not path.exists() or path.is_file():
            if real(path) in taken:
                raise InputError(f"{what} {path}: that is {taken[real(path)]} too")
            taken[real(path)] = f"{what} {path}"


@contextmanager
def atomic(path: Path, what: str) -> Iterator[Path]:
    """A path beside ``path`` to write to; it takes its place when all went well, and is removed otherwise."""
    check_writable(path, what)
    path = real(path)
    special = path.exists() and not path.is_file()
    folder = Path(tempfile.gettempdir()) if special else path.parent
    partial = folder / f".{path.stem}.{os.getpid()}.partial{path.suffix}"
    try:
        yield partial
        if special:
            # It cannot be replaced, only written to.
            path.write_bytes(partial.read_bytes())
        else:
            if path.exists():
                shutil.copymode(path, partial)
            partial.replace(path)
    except OSError as error:
        raise InputError(f"{what} {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def write_text(path: Path, text: str, what: str) -> None:
    """Write a whole file, or nothing; of a name that is not UTF-8 the bytes are escaped."""
    with atomic(path, what) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
