"""Report of what is installed here, and what each part that is not would add (``stateat doctor``).

Nothing that is looked for is imported into this process: versions come from the packages' metadata, and
torch is asked for the GPU in a child process, so that a broken driver can neither crash nor hang the report.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stateat.sim.adapters.vllm.install import CACHE, installed
from stateat.sim.cli.options import console_on, write_text_or_stdout
from stateat.sim.files import shared_folder

if TYPE_CHECKING:
    from rich.console import Console

NEEDED = {
    "simpy": "the clock: arrivals and engine steps",
    "numpy": "token streams and states",
    "click": "the command line",
    "pydantic": "the scenario schema",
    "typing_extensions": "recordings, checked",
    "PyYAML": "scenario files",
    "rich": "tables in the terminal",
    "matplotlib": "pictures (--plot)",
    "pandas": "results as frames",
    "pyarrow": "tables of sweeps as Parquet",
    "joblib": "sweeps in several processes",
}
"""The distributions that stateat needs, and what each is for."""

OPTIONAL = {
    "states": {
        "torch": "floating-point state families, on CPU and GPU",
        "triton": "their kernels as Triton code (Linux on x86_64)",
    },
    "cluster": {
        "dask": "sweeps on a Dask cluster",
        "ray": "sweeps on a Ray cluster",
    },
}
"""The distributions that each extra brings, and what each adds."""

GPU_PROBE = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(json.dumps([torch.cuda.get_device_name(i) for i in range(count)]))
"""
GPU_TIMEOUT_S = 60.0
"""A first import of torch with its CUDA libraries from a cold disk can take half of it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One line of the report."""

    name: str
    ok: bool
    needed: bool
    """True if stateat does not work without it."""
    found: str
    """The version, the place, or why it counts as missing."""
    adds: str
    """Purpose."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def doctor(as_json: bool) -> None:
    """Say what is installed, and what is missing and would add.

    \b
    Example:
      stateat doctor
    """
    found = report()
    if as_json:
        write_text_or_stdout(Path("-"), json.dumps(found, indent=2) + "\n")
    else:
        print_report(console_on())
    sys.exit(0 if found["ok"] else 1)


def report() -> dict[str, Any]:
    """Return all that ``stateat doctor`` knows, ready for JSON; ``ok`` is false when something needed is missing."""
    parts = tuple(_parts())
    return {
        "stateat": _version("stateat") or "not installed",
        "ok": all(part.ok for part in parts if part.needed),
        "parts": [asdict(part) for part in parts],
    }


def print_report(console: Console) -> None:
    """The report as a table: what is there, what is missing, and what it is for or would add."""
    from rich.table import Table
    from rich.text import Text

    told = report()
    table = Table(title=f"stateat {told['stateat']}", title_justify="left", box=None, pad_edge=False)
    for heading in ("part", "", "found", "for"):
        table.add_column(heading, overflow="fold")
    for part in told["parts"]:
        style = "green" if part["ok"] else "red" if part["needed"] else "yellow"
        table.add_row(
            Text(part["name"]),
            Text("ok" if part["ok"] else "missing", style=style),
            Text(part["found"]),
            Text(part["adds"] if part["ok"] or part["needed"] else f"would add: {part['adds']}"),
        )
    console.print(table)
    if not told["ok"]:
        console.print(Text("Something that stateat needs is missing: pip install stateat"))
    elif not all(part["ok"] for part in told["parts"]):
        console.print(Text("What is missing is optional."))


def _parts() -> Iterator[Part]:
    yield Part("Python", sys.version_info >= (3, 11), True, platform.python_version(), "3.11 or later")
    yield Part("platform", True, True, platform.platform(), "results do not depend on it")
    yield Part("CPUs", True, True, str(_cpus()), "many runs at once")
    for name, adds in NEEDED.items():
        version = _version(name)
        yield Part(name, version is not None, True, version or "not installed", adds)
    for extra, parts in OPTIONAL.items():
        for name, adds in parts.items():
            version = _version(name)
            found = version or f"not installed: pip install 'stateat[{extra}]'"
            yield Part(name, version is not None, False, found, adds)
    ok, found = _gpu()
    yield Part("GPU", ok, False, found, "the same kernels, at a model's real sizes")
    releases = [found.release for found in installed()]
    found = ", ".join(releases) or f"no release in {CACHE.expanduser()}: stateat vllm install 0.27.0"
    yield Part("vLLM", bool(releases), False, found, "real schedulers to compare with")
    shared = shared_folder()
    there = shared is not None and shared.is_dir()
    found = str(shared) if there else f"no folder {shared or 'shared'}: name it in STATEAT_SHARED"
    yield Part("shared folder", there, False, found, "recorded traces and schedules (shared:NAME in a scenario)")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _gpu(timeout_s: float = GPU_TIMEOUT_S) -> tuple[bool, str]:
    """True if torch sees a GPU, with its name or why not."""
    if _version("torch") is None:
        return False, "not looked for: torch is not installed"
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", GPU_PROBE], capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return False, f"torch did not answer within {timeout_s:g} s"
    if child.returncode != 0:
        last = child.stderr.strip().splitlines()[-1:] or [f"exit status {child.returncode}"]
        return False, f"torch could not be asked: {last[0]}"
    said = (child.stdout.strip().splitlines() or [""])[-1]
    try:
        names: list[str] = json.loads(said)
    except ValueError:
        return (
            False,
            f"torch could not be asked: it said {said!r}" if said else "torch could not be asked: it said nothing",
        )
    return bool(names), ", ".join(names) or "torch sees none"
