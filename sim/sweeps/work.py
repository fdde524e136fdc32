"""One run of a sweep, as one row of its table."""

from __future__ import annotations

from typing import Any

from stateat.sim.errors import StateatError
from stateat.sim.events import Observer
from stateat.sim.run.result import Outcome
from stateat.sim.sweeps.plan import Task

Row = dict[str, Any]
"""Plain values by column; the columns of :data:`COUNTS` are None in the row of a run that failed."""

COUNTS = (
    "poisoned", "poisoned_roots", "claims", "restores", "starts", "wrong_restores", "wrong_reads", "tainted_requests",
    "not_judged",
    "requests", "finished", "hit_tokens", "resume_hit_tokens", "loaded_tokens", "prompt_tokens", "prefill_tokens",
    "deferred", "steps", "preempted", "evicted", "livelock", "ttft_p50_us", "ttft_p95_us", "ttft_p99_us", "time_us",
    "clock", "digest",
)  # fmt: skip
"""What a run came to, in the order of the table. ``starts``: admissions that started from a state: that of a hit, a
tier or a connector; ``clock``: what its times count; the others are an outcome's."""
TEXTS = ("clock", "digest")
"""Those that are no numbers."""


class Starts(Observer):
    """Counts admissions that start from a state."""

    def __init__(self) -> None:
        self.count = 0

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        self.count += hit + external > 0


def begun(task: Task) -> Row:
    """What is known of a row before the run; the variant of a base without any is its preset, known later."""
    row: Row = {"run": task.index, "point": task.point, "seed": task.seed, "variant": task.variant, "case": task.case}
    return row | task.values


def work(task: Task) -> Row:
    """Runs a task. Whatever goes wrong in it is in its row: the sweep goes on."""
    row = begun(task)
    try:
        run = task.run()
        row["variant"] = run.variant
        starts = Starts()
        from stateat.sim.run.simulate import simulate

        outcome = simulate(run, [starts])
    except StateatError as error:
        return _failed(row, str(error))
    except Exception as error:
        return _failed(row, f"{type(error).__name__}: {error}")
    return row | _counts(outcome, starts.count, run.options.clock) | {"error": ""}


def _failed(row: Row, error: str) -> Row:
    """The row of a run without counts; what of the error is no UTF-8 is escaped."""
    return row | dict.fromkeys(COUNTS) | {"error": error.encode(errors="backslashreplace").decode()}


def _counts(outcome: Outcome, starts: int, clock: str) -> Row:
    found: Row = {name: getattr(outcome, name) for name in COUNTS if hasattr(outcome, name)}
    found["starts"], found["clock"] = starts, clock
    for name in ("p50", "p95", "p99"):
        found[f"ttft_{name}_us"] = outcome.ttft_us.get(name)
    return {name: found[name] for name in COUNTS}
