"""Output files: refused before a long run if they cannot be written, and never left half-written. Also the folder of
shared input files."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import ENOSYS
from itertools import count
from pathlib import Path

from stateat.sim.errors import InputError


def real(path: Path) -> Path:
    """Path behind all links; a link that leads to itself stays what it is."""
    return Path(os.path.realpath(path))


def nearby(path: str | Path) -> Path:
    """Path as a message shows it: from the current folder, if it lies below."""
    with suppress(ValueError, OSError):
        return Path(path).relative_to(Path.cwd())
    return Path(path)


def absolute(path: Path) -> Path:
    """Path from the root, links as they are."""
    return Path(os.path.abspath(path))


def shared_folder() -> Path | None:
    """Return the folder that ``shared:`` in a scenario stands for: the one that STATEAT_SHARED names, else ``shared``
    beside a checkout of stateat; None for an installed stateat without the variable."""
    named = os.environ.get("STATEAT_SHARED")
    if named:
        return Path(named)
    root = Path(__file__).resolve().parent.parent
    return root.parent / "shared" if (root / "setup.cfg").is_file() else None


def check_writable(path: Path, what: str) -> None:
    """Raise InputError, naming the option, when a file could not be written here."""
    if str(path) == "-":
        raise InputError(f"{what} -: only --json writes to standard output")
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        # The folder has its own messages, below.
        pass
    except OSError as error:
        raise InputError(f"{what} {nearby(path)}: {error.strerror or error}") from error
    folder = (real(path) if path.is_symlink() else path).parent
    if path.is_dir():
        raise InputError(f"{what} {nearby(path)}: found a folder, allowed is a file")
    if path.exists() and not path.is_file():
        # A device or a pipe: nothing is put beside it.
        if not os.access(path, os.W_OK):
            raise InputError(f"{what} {nearby(path)}: no permission to write")
        return
    if not folder.is_dir():
        raise InputError(f"{what} {nearby(path)}: there is no folder {nearby(folder)}")
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise InputError(f"{what} {nearby(path)}: no permission to write")


def check_apart(outputs: Mapping[str, Path], inputs: Iterable[Path]) -> None:
    """Raise InputError when two outputs are one file, or an output is an input."""
    taken = {real(path): f"the input {nearby(path)}" for path in inputs}
    for what, path in outputs.items():
        if not path.exists() or path.is_file():
            if real(path) in taken:
                raise InputError(f"{what} {nearby(path)}: that is {taken[real(path)]} too")
            taken[real(path)] = f"{what} {nearby(path)}"


@contextmanager
def atomic(path: Path, what: str) -> Iterator[Path]:
    """Give a path beside ``path`` to write to: it takes its place if all goes well, and is removed otherwise.

    Leftovers of earlier runs that were killed are removed too. ``what``: the option, for the message of InputError.
    """
    check_writable(path, what)
    path = real(path)
    special = path.exists() and not path.is_file()
    folder = Path(tempfile.gettempdir()) if special else path.parent
    _clear(folder, path)
    try:
        with _claimed(folder, path) as partial:
            yield partial
            if not partial.stat().st_size:
                raise OSError("nothing was written")
            if special:
                # It cannot be replaced, only written to.
                with partial.open("rb") as source, path.open("wb") as target:
                    shutil.copyfileobj(source, target)
            else:
                if path.exists():
                    shutil.copymode(path, partial)
                partial.replace(path)
    except OSError as error:
        raise InputError(f"{what} {nearby(path)}: {error.strerror or error}") from error


def lock(file: int) -> bool:
    """Lock an open file for its owner alone; False if another process has it.

    The lock ends with its process, however that ends. Raises OSError where there are no such locks.
    """
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:
        raise OSError(ENOSYS, os.strerror(ENOSYS)) from None
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _claimed(folder: Path, path: Path) -> Iterator[Path]:
    """Make an empty file for what will be ``path``, locked and in the end removed."""
    for i in count():
        partial = folder / f".{path.stem}.{os.getpid()}{f'-{i}' if i else ''}.partial{path.suffix}"
        try:
            file = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            # A process with this number has it, on another machine or in another container.
            continue
        if os.name == "nt":
            # An open file could not be renamed there, and there are no locks.
            os.close(file)
            file = os.open(os.devnull, os.O_RDONLY)
        try:
            if not _is_held(file, partial):
                continue
            try:
                yield partial
            finally:
                with suppress(OSError):
                    partial.unlink(missing_ok=True)
            return
        finally:
            os.close(file)


def _is_held(file: int, partial: Path) -> bool:
    """Lock a new file; False if another process took it for a leftover in the moment before, and removed it."""
    try:
        return lock(file) and os.path.samestat(os.fstat(file), partial.stat())
    except FileNotFoundError:
        return False
    except OSError:
        # Where there are no locks nobody clears.
        return True


def _clear(folder: Path, path: Path) -> None:
    """Remove leftovers of ``path`` from runs that are gone: nobody holds their lock any more."""
    name = re.compile(rf"\.{re.escape(path.stem)}\.\d+(-\d+)?\.partial{re.escape(path.suffix)}")
    with suppress(OSError):
        for left in [entry for entry in os.scandir(folder) if name.fullmatch(entry.name)]:
            with suppress(OSError):
                file = os.open(left.path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
                try:
                    if left.is_file(follow_symlinks=False) and lock(file):
                        os.unlink(left.path)
                finally:
                    os.close(file)


def write_text(path: Path, text: str, what: str) -> None:
    """Write a whole file, or nothing; bytes of a name that is not UTF-8 are escaped."""
    with atomic(path, what) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
