"""Engines that ``--engine`` and ``--vllm-python`` name: how each is called, and which release it stands nearest to."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stateat.sim.adapters.vllm import install
from stateat.sim.errors import InputError
from stateat.sim.files import absolute, real
from stateat.sim.releases import presets

REFERENCE = "reference"
OWN = "vllm"
"""Each variant on the release of its preset."""
PREFIX = "vllm:"
GIT_S = 30
"""Seconds for one question to git."""
VERSION = re.compile(r"^(?:__version__ = (?:version = )?['\"]|Version: )v?(\d+\.\d+[\w.]*)", re.M)


@dataclass(frozen=True, slots=True)
class AskedEngine:
    """An engine that was asked for. Two of them are two engines, whatever release both say that they are."""

    spec: str
    """Name under which it was asked for."""
    label: str
    """Name in tables, test cases, JSON and messages; no other engine of the command has it."""
    release: str = ""
    """The release that it is; '' for a checkout or a Python of one's own, which may be edited."""
    folder: Path | None = None
    """The checkout."""
    python: Path | None = None

    @property
    def place(self) -> str:
        """Path of its files; of a release its name."""
        where = self.folder or self.python
        return self.spec if where is None else str(real(where))

    def source(self, cache: Path) -> install.Source:
        """Return what starts it. Raises InputError for what is not installed, EngineError for a folder without one."""
        if self.folder is not None:
            return install.of_checkout(self.folder, cache=cache)
        if self.python is not None:
            return install.of_python(self.python)
        return install.of_release(self.release, cache=cache)

    @property
    def version(self) -> str:
        """The release that a folder says it comes from: git's tag, what a build wrote, or the notes of a package."""
        if self.folder is None:
            return self.release
        if _tracked(self.folder):
            tag = _git(self.folder, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
            if tag:
                return tag.removeprefix("v")
        files = [self.folder / "vllm" / "_version.py", *sorted(self.folder.glob("vllm*.dist-info/METADATA"))]
        for file in files:
            try:
                found = VERSION.search(file.read_text(encoding="utf-8", errors="replace"))
            except OSError:
                continue
            if found:
                return found[1]
        return ""


def asked(spec: str) -> AskedEngine | None:
    """The engine of a spec that names one by itself; None for ``reference`` and ``vllm``. Its label is not final.

    Raises InputError for what names none.
    """
    if spec in (REFERENCE, OWN):
        return None
    what = spec.removeprefix(PREFIX)
    if not spec.startswith(PREFIX) or not what:
        raise InputError(f"--engine {spec}: allowed are reference, vllm, vllm:RELEASE and vllm:FOLDER")
    if "/" in what or what.startswith((".", "~")):
        return AskedEngine(spec, spec, folder=absolute(Path(what).expanduser()))
    if not install.RELEASE.fullmatch(what):
        raise InputError(
            f"--engine {spec}: found release {what!r}, allowed is one such as 0.27.0, or a folder: vllm:./{what}"
        )
    return AskedEngine(spec, spec, what)


def of_release(release: str) -> AskedEngine:
    """An installed release, as ``vllm:RELEASE`` names it."""
    return AskedEngine(PREFIX + release, PREFIX + release, release)


def of_python(python: str) -> AskedEngine:
    """Somebody's Python: a path where the text has a separator (``./python3``), else a program on ``PATH``."""
    text = os.path.expanduser(python)
    path = absolute(Path(text)) if os.path.dirname(text) else Path(text)
    return AskedEngine(f"vllm (--vllm-python {python})", "", python=path)


def check_apart(engines: Sequence[AskedEngine]) -> None:
    """Raises InputError where two are the same engine: the second would only do the same again."""
    seen: dict[str, str] = {}
    for each in engines:
        if each.place in seen:
            raise InputError(f"--engine {each.spec}: the same as --engine {seen[each.place]}, allowed once")
        seen[each.place] = each.spec


def labelled(engines: Sequence[AskedEngine]) -> list[AskedEngine]:
    """The same, each once, with final labels: of a folder the last parts of its path, as few as tell it from others.

    A git checkout has its commit behind that, with ``+dirty`` where a Python file is not as committed. Raises
    InputError where two would be called the same.
    """
    engines = list({each.place: each for each in reversed(engines)}.values())[::-1]
    paths = [path for each in engines if (path := each.folder or each.python) is not None]
    found = []
    for each in engines:
        label = each.label
        if (path := each.folder or each.python) is not None:
            label = PREFIX + _name(path, paths, 1 if each.python is None else 3)
            label += _commit(each.folder) if each.folder is not None else ""
        found.append(AskedEngine(each.spec, label, each.release, each.folder, each.python))
    for i, each in enumerate(found):
        for other in found[:i]:
            if other.label == each.label:
                raise InputError(f"--engine {other.spec} and --engine {each.spec}: both would be called {each.label}")
    return found


def nearest(version: str) -> str:
    """The preset of the newest release that is no newer than this version; the oldest where all are newer."""
    older = [preset for preset in presets.PRESETS if not is_newer(preset, version)]
    return older[-1] if older else next(iter(presets.PRESETS))


def is_newer(preset: str, version: str) -> bool:
    """True if a preset's release is newer than this version."""
    return _numbers(preset) > _numbers(version)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def _name(path: Path, paths: Sequence[Path], least: int) -> str:
    """The last parts of a path that no other path ends with, and that no release is called."""
    for count in range(least, len(path.parts)):
        name = _end(path, count)
        if not install.RELEASE.fullmatch(name) and all(_end(other, count) != name for other in paths if other != path):
            return name
    return str(path)


def _end(path: Path, count: int) -> str:
    return "/".join(path.parts[1 if path.is_absolute() else 0 :][-count:])


def _tracked(folder: Path) -> bool:
    """True if git knows this folder's scheduler: a copy that lies in somebody's repository has no commit."""
    return bool(_git(folder, "ls-files", "--error-unmatch", str(install.SCHEDULER)))


def _commit(folder: Path) -> str:
    """``@3f2a91c``, with ``+dirty``; '' where git does not know this folder, or cannot say."""
    if not _tracked(folder):
        return ""
    commit = _git(folder, "rev-parse", "--short=7", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=all", "--", "*.py")
    return "" if not commit or changed is None else f"@{commit}{'+dirty' if changed else ''}"


def _git(folder: Path, *question: str) -> str | None:
    """Return what git says of a folder; None where it refuses, or is not here."""
    # Inside a hook or a bisect git's own variables speak of another repository.
    env: Mapping[str, str] = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "--no-optional-locks", "-C", str(folder), *question]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=env, timeout=GIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
