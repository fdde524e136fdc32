"""What the table of a sweep can be asked: proportions with their intervals, and means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class Measure:
    """A column, or the share of one in another."""

    column: str
    label: str
    """With its unit."""
    over: str = ""
    """The column that it is a share of; '' for a mean over runs."""
    scale: float = 1.0
    """From the column's unit to the label's."""
    needs_hits: bool = False
    """Whether a run without hits says nothing of it."""
    digits: int = 1

    def format(self, value: float) -> str:
        """A value as a picture shows it: percent, or a number."""
        return f"{value:,.{self.digits}f}" + (" %" if self.over else "")


@dataclass(frozen=True, slots=True)
class Point:
    """A measure of some runs, with the bounds of its 95 % interval; both are the value where it is a mean."""

    value: float
    low: float
    high: float
    concludes: bool
    """False: these runs had no hits, and the measure needs them."""


MEASURES = {
    "poisoned_per_claim": Measure("poisoned", "claims that are wrong (%)", "claims", 100, True),
    "wrong_per_restore": Measure("wrong_restores", "restores of a wrong state (%)", "restores", 100, True),
    "tainted_per_request": Measure("tainted_requests", "requests on a wrong state (%)", "requests", 100, True),
    "hit_rate": Measure("hit_tokens", "hit rate (% of prompt tokens)", "prompt_tokens", 100),
    "ttft_p50_us": Measure("ttft_p50_us", "time to first token, p50 (ms)", scale=1e-3),
    "ttft_p95_us": Measure("ttft_p95_us", "time to first token, p95 (ms)", scale=1e-3),
    "ttft_p99_us": Measure("ttft_p99_us", "time to first token, p99 (ms)", scale=1e-3),
    "deferred": Measure("deferred", "deferrals (a run)"),
    "steps": Measure("steps", "engine steps (a run)"),
}
"""By name. Any other column of numbers is a mean over runs."""


def measure(name: str) -> Measure:
    """A measure by its name, or a column's own."""
    return MEASURES.get(name, Measure(name, name))


def total(what: Measure, runs: DataFrame) -> Point:
    """A measure of these runs together: counts are added up, others averaged. Raises InputError without the column."""
    for column in filter(None, (what.column, what.over)):
        if column not in runs:
            raise InputError(f"found no column {column!r}, allowed: {', '.join(map(str, runs.columns))}")
    if not what.over:
        mean = float(runs[what.column].mean()) * what.scale
        return Point(mean, mean, mean, True)
    part, whole = int(runs[what.column].sum()), int(runs[what.over].sum())
    concludes = whole > 0 and not (what.needs_hits and not part and not int(runs["restores"].sum()))
    if not whole:
        return Point(float("nan"), float("nan"), float("nan"), False)
    value = part / whole * what.scale
    if not what.needs_hits:
        return Point(value, value, value, concludes)
    low, high = _wilson(part, whole)
    return Point(value, low * what.scale, high * what.scale, concludes)


def _wilson(part: int, whole: int) -> tuple[float, float]:
    z = 1.959963984540054
    p, spread = part / whole, z * z / whole
    middle = (p + spread / 2) / (1 + spread)
    half = z / (1 + spread) * (p * (1 - p) / whole + spread / (4 * whole)) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)
