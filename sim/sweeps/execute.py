"""Runs what is left of a plan, and writes its table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from stateat.sim.errors import EngineError
from stateat.sim.files import nearby
from stateat.sim.sweeps.journal import Journal, path_of, written
from stateat.sim.sweeps.plan import Plan
from stateat.sim.sweeps.pool import Pool
from stateat.sim.sweeps.table import frame, write
from stateat.sim.sweeps.work import Row

if TYPE_CHECKING:
    import pandas as pd

LIMIT = 10_000
"""Runs of a sweep that nobody has to confirm."""

Told = Callable[[int, int, Row | None], None]
"""Called with the runs done and in all, and the row that came; None: it is one of an earlier try."""


def execute(
    plan: Plan, pool: Pool, out: Path | None = None, restart: bool = False, told: Told = lambda *_: None
) -> pd.DataFrame:
    """The table of all runs; with ``out`` in that file too, and each run in the journal beside it as it ends.

    The runs of an earlier try that the journal holds are not repeated. Whatever ends it before its time,
    KeyboardInterrupt too, leaves the journal whole.
    """
    pool.check()
    journal = None if out is None else Journal(path_of(out), plan, restart)
    with journal if journal is not None else nullcontext():
        rows = dict(journal.rows) if journal is not None else {}
        told(len(rows), plan.runs, None)
        left = [index for index in range(plan.runs) if index not in rows]
        try:
            with closing(pool.rows((plan.task(index) for index in left), len(left))) as coming:
                for row in coming:
                    if journal is not None:
                        journal.add(row)
                    rows[row["run"]] = row
                    told(len(rows), plan.runs, row)
        except EngineError as error:
            raise EngineError(f"{error}: {kept(len(rows), plan, out)}") from error
        table = frame(rows.values(), [axis.key for axis in plan.axes])
        if out is not None:
            write(table, out)
    return table


def kept(done: int, plan: Plan, out: Path | None) -> str:
    """Return what is left of a sweep that was stopped when so many of its runs were done."""
    if out is None:
        return f"{done:,} of {plan.runs:,} runs were done, and nothing is kept without --out"
    # The journal has the last word: it may hold one that nobody was told of.
    path = path_of(out)
    return f"{written(path):,} of {plan.runs:,} runs are kept in {nearby(path)}; the same command goes on from there"
