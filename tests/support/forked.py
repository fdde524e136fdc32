"""Runs the command line in forks of this process, each with standard streams as it says: quick, as nothing is loaded
again.

Each line of input is a list of cells, and is answered by a line with a list of exit codes. A cell is ``{"args": [...],
"streams": {"0": HOW, "1": HOW, "2": HOW}, "folder": WHERE, "env": {...}}``; HOW is closed, full, broken (a pipe whose
reader has gone) or a file. Tests ask by the fixture ``forked``.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

LOADED = (
    "pandas",
    "stateat.sim.api",
    "stateat.sim.cli.main",
    "stateat.sim.conformance.compare",
    "stateat.sim.conformance.recording",
    "stateat.sim.geometry.example",
    "stateat.sim.report.terminal.sweep",
    "stateat.sim.report.terminal.table",
    "stateat.sim.sweeps.execute",
    "stateat.sim.sweeps.read",
)
"""Before the first fork."""


class Codes(Protocol):
    """Runs cells, and gives their exit codes."""

    def __call__(self, cells: Sequence[dict[str, Any]]) -> list[int]: ...


@contextmanager
def running() -> Iterator[Codes]:
    """A process that answers for as long as the context is open; it starts with the first cells."""
    process: subprocess.Popen[str] | None = None

    def codes(cells: Sequence[dict[str, Any]]) -> list[int]:
        nonlocal process
        if process is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            process = subprocess.Popen([sys.executable, __file__], text=True, **pipes)  # type: ignore[call-overload]
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(cells) + "\n")
        process.stdin.flush()
        found: list[int] = json.loads(process.stdout.readline())
        return found

    try:
        yield codes
    finally:
        if process is not None:
            process.communicate()


@dataclass(frozen=True)
class Done:
    """A command that ran in a process of its own."""

    returncode: int
    stdout: str
    stderr: str


def done(codes: Codes, folder: Path, *args: str, stdout: str = "") -> Done:
    """Runs a command in a folder; what it prints goes to files elsewhere, or its standard output as is said."""
    with TemporaryDirectory() as away:
        out, err = Path(away, "out"), Path(away, "err")
        out.touch()
        streams = {"1": stdout or str(out), "2": str(err)}
        (code,) = codes([{"args": args, "streams": streams, "folder": str(folder)}])
        return Done(code, out.read_text(), err.read_text())


def put(number: int, how: str) -> None:
    """Makes a standard stream what it is to be."""
    if how == "closed":
        os.close(number)
        return
    if how == "broken":
        ours, theirs = os.pipe()
        os.close(ours)
    else:
        path = "/dev/full" if how == "full" else how
        theirs = os.open(path, os.O_RDWR if how == "full" else os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.dup2(theirs, number)
    os.close(theirs)


def child(cell: dict[str, object]) -> None:
    """One command, to the end of its process."""
    from stateat.sim.cli.entry import main

    signal.alarm(300)
    os.chdir(cell.get("folder", "."))  # type: ignore[arg-type]
    os.environ |= cell.get("env", {})  # type: ignore[arg-type]
    for number, how in cell["streams"].items():  # type: ignore[attr-defined]
        put(int(number), how)
        if how == "closed":
            name = ("stdin", "stdout", "stderr")[int(number)]
            setattr(sys, name, None)
            setattr(sys, f"__{name}__", None)
    sys.argv = ["stateat", *cell["args"]]  # type: ignore[misc]
    main()


def run(cell: dict[str, object]) -> int:
    """The exit code of a command."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        code = 99
        try:
            child(cell)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 98
        finally:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    for module in LOADED:
        import_module(module)
    gc.freeze()  # a collection in a fork would copy all that is loaded
    for line in sys.stdin:
        print(json.dumps([run(cell) for cell in json.loads(line)]), flush=True)
