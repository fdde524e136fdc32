"""Releases of vLLM as engines: where they are, what they take, how they get there.

One small base environment serves all: a scheduler needs neither torch nor the compiled parts of a release, so the
worker stands in for them (``--stub``) and of each release only the Python files are kept, in an overlay folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stateat.sim.adapters.vllm import pins
from stateat.sim.errors import EngineError, InputError
from stateat.sim.files import real

if TYPE_CHECKING:
    from stateat.sim.adapters.vllm.process import Child

CACHE = Path("~/.cache/stateat/vllm")
CHILD = Path(__file__).resolve().parent.parent / "vllm_child"
"""The folder that a Python with vLLM runs: ``python FOLDER``."""
BASE = "base"
NOTES = "stateat.json"
"""Note in each finished folder: what it is. A folder without it is not installed."""

REQUIREMENTS = ("pydantic>=2.12,<3", "msgspec>=0.19", "packaging>=23")
"""All that importing a scheduler needs beside the release, where the base environment is not pinned."""
PLATFORM = ("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux_2_31_x86_64", "--implementation", "cp")
"""Only Python files are kept, so a wheel of any one platform does."""
TARGET = ("--abi", "abi3", "--python-version", "3.11", "--only-binary", ":all:")
RELEASE = re.compile(r"\d+\.\d+(\.\d+)?((a|b|rc|\.post|\.dev)\d+)?")
SCHEDULER = Path("vllm", "v1", "core", "sched", "scheduler.py")
"""File that a checkout of vLLM has."""
ROOM = 1 << 30
"""Bytes that must be free: the largest wheel so far is 336 MB, and it is unpacked beside itself."""

HARMLESS = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "VLLM_LOGGING_LEVEL")
"""Variables that Python and releases read and that decide nothing; they are left as they are."""
WHY = ("ERROR", "Expected sha256", "Got")
"""Beginnings of the lines in which pip says why it failed."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Installed:
    """A release that is ready to run."""

    release: str
    package: str
    size: int
    """Bytes on the disk, without the base that all share."""
    folder: Path
    pinned: bool
    """True if what was fetched was held against a hash that this project knows."""


@dataclass(frozen=True, slots=True)
class Source:
    """A scheduler that can be started: a release, a development checkout, or somebody's own environment."""

    name: str
    command: tuple[str, ...]
    path: Path | None = None
    """Folder in front of the import path."""
    edited: bool = False
    """True if its files may change between two runs; nothing is written beside them then."""

    def open(self, **limits: float) -> Child:
        """Start its worker; raises EngineError. ``limits``: seconds, as :class:`Child` takes them."""
        from stateat.sim.adapters.vllm.process import Child

        # Releases read options from their own variables, and what is not in the scenario must not decide.
        env = {k: v for k, v in os.environ.items() if k in HARMLESS or not k.startswith(("PYTHON", "VLLM_"))}
        env |= {"PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore::SyntaxWarning"}
        env |= {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        env.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        if self.path is not None:
            env["PYTHONPATH"] = str(self.path)
        if self.edited:
            # What runs is what its files say now: of a cached module Python looks at seconds and size alone.
            env |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": os.devnull}
        return Child(self.name, self.command, env, **limits)


def install(release: str, *, unpinned: bool = False, cache: Path = CACHE, progress: Say = lambda _: None) -> Installed:
    """Fetch a release unless it is there. Raises InputError (name, registry, hash, disk) or EngineError (no import).

    What is fetched must have the hash that :mod:`stateat.sim.adapters.vllm.pins` knows; ``unpinned`` lets what has
    none there be taken on the registry's word. ``progress`` is told what happens, sizes before anything is fetched.
    Whatever interrupts it, nothing half-done is taken for an installed release.
    """
    _check_name(release)
    cache = cache.expanduser()
    found = _look(cache, release)
    if not unpinned:
        _check_pins(release, found is None, _look(cache, BASE) is None)
    if found is None or _look(cache, BASE) is None:
        _check_room(cache)
    if _look(cache, BASE) is None:
        _make_base(cache, progress)
    if found is not None:
        progress(f"vLLM {release} is installed ({megabytes(found.size)}{'' if found.pinned else ', unpinned'})")
        return found
    return _fetch(cache, release, progress)


def installed(*, cache: Path = CACHE) -> list[Installed]:
    """The releases that are ready to run, oldest first."""
    cache = cache.expanduser()
    names = [entry.name for entry in cache.iterdir()] if cache.is_dir() else []
    found = [_look(cache, name) for name in names if RELEASE.fullmatch(name)]
    return sorted((f for f in found if f is not None), key=lambda f: _order(f.release))


def base(*, cache: Path = CACHE) -> Installed | None:
    """The environment that all releases share, if there is one."""
    return _look(cache.expanduser(), BASE)


def of_release(release: str, *, cache: Path = CACHE) -> Source:
    """An installed release. Raises InputError that says how to install it."""
    _check_name(release)
    found = _look(cache.expanduser(), release)
    if found is None or _look(cache.expanduser(), BASE) is None:
        have = [i.release for i in installed(cache=cache)]
        how = f"Install it: stateat vllm install {release}" + ("" if pins.of_release(release) else " --unpinned")
        near = f"Did you mean {release}.0?" if f"{release}.0" in have else how
        raise InputError(f"vLLM {release} is not installed (installed: {', '.join(have) or 'none'}). {near}")
    return Source(f"vLLM {release}", (_python(cache.expanduser()), str(CHILD), "--stub"), found.folder)


def of_checkout(folder: Path, *, cache: Path = CACHE) -> Source:
    """A source tree of vLLM, built or not; needs the base environment, and raises InputError without it.

    Raises EngineError for a folder in which there is no scheduler, as in a commit from before there was one.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: found no such folder, allowed is a checkout of vLLM")
    if _look(cache.expanduser(), BASE) is None:
        raise InputError(
            "a checkout needs the base environment. Install any release first: stateat vllm install 0.27.0"
        )
    if not (folder / SCHEDULER).is_file():
        raise EngineError(f"{folder}: found no {SCHEDULER.as_posix()} in it, allowed is a checkout of vLLM")
    command = (_python(cache.expanduser()), str(CHILD), "--stub")
    return Source(f"vLLM at {folder}", command, real(folder), edited=True)


def of_python(python: Path) -> Source:
    """A Python that has vLLM. Raises InputError when there is no such program."""
    found = shutil.which(str(python.expanduser()))
    if found is None:
        raise InputError(f"--vllm-python {python}: found no program there, allowed is a Python that has vLLM")
    return Source(f"vLLM of {python}", (found, str(CHILD)))


def megabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1e6:.0f} MB"


# The parts of an installation.


def _check_name(release: str) -> None:
    if not RELEASE.fullmatch(release):
        raise InputError(f"found vLLM release {release!r}, allowed is a release such as 0.27.0")


def _check_pins(release: str, fetch_release: bool, fetch_base: bool) -> None:
    anyway = f"fetch it on the registry's word: stateat vllm install {release} --unpinned"
    if fetch_release and pins.of_release(release) is None:
        known = pins.releases()
        near = f" Did you mean {release}.0?" if f"{release}.0" in known else ""
        raise InputError(f"vLLM {release}: no hash of it is known here (known: {', '.join(known)}).{near} To {anyway}")
    if fetch_base and not pins.base_is_known():
        raise InputError(
            f"no hashes are known of the base environment for this Python and machine (known: CPython 3.11 to 3.14 on "
            f"Linux and macOS). To {anyway}"
        )


def _check_room(cache: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(cache).free
    except OSError as error:
        raise InputError(f"{cache}: {error.strerror or error}") from error
    if free < ROOM:
        raise InputError(f"{cache}: found {megabytes(free)} free on its disk, needed are {megabytes(ROOM)}")


def _look(cache: Path, name: str) -> Installed | None:
    """Return what a finished folder is; None for an unfinished one or none."""
    folder = cache / name
    try:
        notes = json.loads((folder / NOTES).read_text(encoding="utf-8"))
        return Installed(name, str(notes["package"]), int(notes["size"]), folder, notes.get("pinned") is True)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _order(release: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", release)]


def _python(cache: Path) -> str:
    return str(cache / BASE / "bin" / "python")


@contextmanager
def _building(cache: Path, name: str) -> Iterator[Path]:
    """A folder to build in, which becomes ``cache/name`` when all went well and is removed when not."""
    for left in cache.glob(".partial-*"):
        if not _alive(left.name):
            shutil.rmtree(left, ignore_errors=True)
    folder = cache / f".partial-{os.getpid()}-{name}"
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield folder
        final = cache / name
        if final.exists():
            shutil.rmtree(final)
        folder.rename(final)
    except OSError as error:
        raise InputError(f"{error.filename or cache}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _alive(name: str) -> bool:
    """True if the process that made a partial folder still runs."""
    try:
        os.kill(int(name.split("-")[1]), 0)
    except (ValueError, IndexError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def _make_base(cache: Path, progress: Say) -> None:
    progress("making the base environment that all releases share (about 40 MB on the disk)")
    pinned = pins.base_is_known()
    with _building(cache, BASE) as folder:
        _run([sys.executable, "-m", "venv", str(folder)], "cannot make a virtual environment", lambda _: None)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--no-cache-dir", "--progress-bar", "off"]
        what = _pinned(folder / "pins.txt", pins.base()) if pinned else REQUIREMENTS
        _run([*pip, "--disable-pip-version-check", *what], "cannot fetch the base environment", progress)
        _note(folder, "base", pinned)


def _pinned(file: Path, names: Sequence[str]) -> list[str]:
    """pip's arguments for these packages, of which it takes wheels with the known hashes alone."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(pins.requirements(names), encoding="utf-8")
    return ["--require-hashes", "--only-binary", ":all:", "-r", str(file)]


def _fetch(cache: Path, release: str, progress: Say) -> Installed:
    progress(f"looking for vLLM {release} in the package registry")
    with _building(cache, release) as folder:
        wheels = folder / "wheels"
        package, pinned = _download(cache, release, wheels, progress)
        wheel = next(wheels.glob("*.whl"))
        progress(f"unpacking the Python files of {wheel.name} ({megabytes(wheel.stat().st_size)})")
        _unpack(wheel, folder)
        shutil.rmtree(wheels)
        progress("checking that its scheduler can be imported")
        said = Source(f"vLLM {release}", (_python(cache), str(CHILD), "--stub"), folder).open()
        said.close()
        _note(folder, package, pinned)
    found = _look(cache, release)
    if found is None:
        raise EngineError(f"vLLM {release}: {cache / release} vanished while it was installed")
    progress(f"vLLM {release} is installed ({megabytes(found.size)} in {found.folder})")
    return found


def _download(cache: Path, release: str, target: Path, progress: Say) -> tuple[str, bool]:
    """Fetch the wheel of a release, from the first distribution that has it; which that is, and if it is pinned."""
    pip = [_python(cache), "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--progress-bar", "off"]
    pip += ["--disable-pip-version-check", *PLATFORM, *TARGET, "-d", str(target)]
    if known := pins.of_release(release):
        _run([*pip, *_pinned(target / "pins.txt", [known])], f"cannot fetch vLLM {release}", progress)
        return known.partition("==")[0], True
    failure = ""
    for package in pins.PACKAGES:
        try:
            _run([*pip, f"{package}=={release}"], f"cannot fetch vLLM {release}", progress)
        except InputError as error:
            if "No matching distribution" not in str(error):
                raise
            if "from versions: none" in str(error):
                raise InputError(f"{error}\nThe package registry did not answer, or its proxy hides it.") from error
            failure = failure or str(error)
        else:
            return package, False
    raise InputError(f"{failure}\nNeither {' nor '.join(pins.PACKAGES)} has a wheel of release {release}.")


def _run(command: Sequence[str], failure: str, progress: Say) -> None:
    """Run a program and pass on what it fetches, with sizes; raises InputError with its own last words."""
    env = os.environ | {"PYTHONUNBUFFERED": "1", "PIP_NO_INPUT": "1"}
    lines: list[str] = []
    try:
        process = subprocess.Popen(
            list(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=env
        )
    except OSError as error:
        raise InputError(f"{failure}: {command[0]}: {error.strerror or error}") from error
    with process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line.strip())
                if line.strip().startswith("Downloading "):
                    progress("fetching " + line.strip().removeprefix("Downloading "))
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        errors = [line for line in lines if line.startswith(WHY)] or [line for line in lines if line]
        raise InputError("\n  ".join([f"{failure}:", *(_short(line) for line in errors[-4:])]))


def _short(line: str) -> str:
    return line if len(line) <= 300 else f"{line[:140]} ... {line[-140:]}"


def _unpack(wheel: Path, folder: Path) -> None:
    """The Python files of a wheel, and what it says of itself."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                parts = Path(name).parts
                wanted = (parts[0] == "vllm" and name.endswith(".py")) or name.endswith(".dist-info/METADATA")
                if wanted and ".." not in parts:
                    archive.extract(name, folder)
    except zipfile.BadZipFile as error:
        raise InputError(f"{wheel.name}: the fetched file is damaged ({error}); try again") from error


def _note(folder: Path, package: str, pinned: bool) -> None:
    """Mark a folder as finished; the last thing that is written into it."""
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink())
    notes = {"package": package, "size": size, "pinned": pinned}
    (folder / NOTES).write_text(json.dumps(notes) + "\n", encoding="utf-8")
