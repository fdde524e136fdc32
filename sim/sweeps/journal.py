"""The journal of a sweep: each run's row as a line of JSON, written when the run ends.

It is what a sweep that was interrupted goes on from. The first line names the plan; a journal of another plan is
refused. A line is there as a whole or not at all: one that was cut off is dropped when the journal is opened.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from stateat.sim.errors import InputError
from stateat.sim.files import lock, nearby
from stateat.sim.inputs import bounded
from stateat.sim.sweeps.plan import Plan
from stateat.sim.sweeps.work import CAME, TEXTS, Row, begun

SCHEMA = "stateat-sweep-runs/1"


def path_of(out: Path) -> Path:
    """The journal that lies beside a table."""
    return out.with_name(out.name + ".runs.jsonl")


def written(path: Path) -> int:
    """The runs of a journal that are there as a whole."""
    try:
        with path.open("rb") as stream:
            return max(sum(line.endswith(b"\n") for line in bounded(path, stream)) - 1, 0)
    except (OSError, InputError):
        return 0


class Journal:
    """A context manager; ``rows`` are the runs that are done, by number.

    Raises InputError for a journal of another plan, one that another sweep is writing, and one that cannot be written.
    """

    def __init__(self, path: Path, plan: Plan, restart: bool = False) -> None:
        self.path = path
        self.plan = plan
        self.restart = restart
        self.rows: dict[int, Row] = {}
        self._file = -1
        self._end = 0

    def __enter__(self) -> Journal:
        try:
            # Nothing is buffered: what a full disk does not take must not turn up later.
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise InputError(f"{self.path}: the journal, allowed is a regular file")
            _lock(self._file, self.path)
            self._read()
        except OSError as error:
            self._close()
            raise InputError(f"{self.path}: {error.strerror or error}") from error
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def add(self, row: Row) -> None:
        """A run has ended. On a full disk nothing of it stays, and what was there before does."""
        try:
            self._write(row)
        except OSError as error:
            kept = f"{len(self.rows):,} of {self.plan.runs:,} runs are kept; the same command goes on from there"
            raise InputError(f"{self.path}: {error.strerror or error}: {kept}") from error
        self.rows[row["run"]] = row

    def _read(self) -> None:
        if self.restart:
            os.ftruncate(self._file, 0)
        with open(self._file, "rb", closefd=False) as lines:
            for number, line in enumerate(bounded(self.path, lines), 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    said = json.loads(line)
                    if number == 1:
                        self._check_head(said)
                    else:
                        self._check_row(said)
                        self.rows[said["run"]] = said
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    text = "found no run of a sweep; to discard all that is in it: --restart"
                    raise InputError(f"{self.path}:{number}: {text}") from error
                self._end += len(line)
        os.ftruncate(self._file, self._end)
        os.lseek(self._file, self._end, os.SEEK_SET)
        if not self._end:
            self._write({"schema": SCHEMA, "sweep": self.plan.name, "plan": self.plan.fingerprint()})

    def _check_row(self, said: Any) -> None:
        """Raises ValueError for what is not the row of one of the plan's runs."""
        index = said["run"]
        if type(index) is not int or not 0 <= index < self.plan.runs:
            raise ValueError(index)
        task = self.plan.task(index)
        known = begun(task) | ({} if task.variant else {"variant": said["variant"]})
        same = all(type(said[name]) is type(value) and said[name] == value for name, value in known.items())
        named = ("variant", "error", *(name for name in TEXTS if said[name] is not None))
        texts = all(isinstance(said[name], str) for name in named)
        counts = all(isinstance(said[name], int | float | None) for name in CAME if name not in TEXTS)
        if set(said) != {*known, *CAME, "error"} or not (same and texts and counts):
            raise ValueError(index)

    def _check_head(self, said: Any) -> None:
        if said["schema"] != SCHEMA:
            raise ValueError(said["schema"])
        if said["plan"] != self.plan.fingerprint():
            raise InputError(
                f"{self.path}: these are {said['sweep']!r} runs of another plan (the sweep file, its base or "
                "--variant was different); to discard them: --restart; to keep them: another --out"
            )

    def _write(self, said: Row) -> None:
        line = json.dumps(said, ensure_ascii=False).encode() + b"\n"
        try:
            left = line
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._end)
                os.lseek(self._file, self._end, os.SEEK_SET)
            raise
        self._end += len(line)

    def _close(self) -> None:
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
            self._file = -1


def _lock(file: int, path: Path) -> None:
    """Nobody else writes it meanwhile; where the system has no such locks, that is the user's care."""
    with suppress(OSError):
        if not lock(file):
            raise InputError(f"{nearby(path)}: another sweep is writing it")
