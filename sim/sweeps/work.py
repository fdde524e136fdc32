"""A run of a sweep, as one row of its table."""

from __future__ import annotations

from typing import Any

from stateat.sim.errors import StateatError
from stateat.sim.run.result import Outcome
from stateat.sim.scenario.counts import COUNTS
from stateat.sim.sweeps.plan import Task

Row = dict[str, Any]
"""Plain values by column; the columns of :data:`CAME` are None in the row of a run that failed."""

SWEPT = tuple(name for name, count in COUNTS.items() if count.swept)
TIMES = {f"ttft_{name}_us": name for name in ("p50", "p95", "p99")}
"""Columns of the time to the first token, and the percentile that each holds."""
TEXTS = ("clock", "digest")
"""Columns that are no numbers: what the times count, and the digest of every decision."""
CAME = (*SWEPT, *TIMES, *TEXTS)
"""Columns of what a run came to, in the order of the table."""


def begun(task: Task) -> Row:
    """Return what is known of a row before the run; the variant of a base without any is its preset, known later."""
    row: Row = {"run": task.index, "point": task.point, "seed": task.seed, "variant": task.variant, "case": task.case}
    return row | task.values


def work(task: Task) -> Row:
    """Runs a task. Whatever goes wrong in it is in its row: the sweep goes on."""
    row = begun(task)
    try:
        run = task.run()
        row["variant"] = run.variant
        from stateat.sim.run.simulate import simulate

        outcome = simulate(run)
    except StateatError as error:
        return _failed(row, str(error))
    except Exception as error:
        return _failed(row, f"{type(error).__name__}: {error}")
    return row | _came(outcome, run.options.clock) | {"error": ""}


def _failed(row: Row, error: str) -> Row:
    """The row of a run without counts; what of the error is no UTF-8 is escaped."""
    return row | dict.fromkeys(CAME) | {"error": error.encode(errors="backslashreplace").decode()}


def _came(outcome: Outcome, clock: str) -> Row:
    """Return what a run came to, by column."""
    counts = {name: getattr(outcome, name) for name in SWEPT}
    times = {column: outcome.ttft_us.get(name) for column, name in TIMES.items()}
    return counts | times | {"clock": clock, "digest": outcome.digest}
