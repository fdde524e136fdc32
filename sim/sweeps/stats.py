"""Statistics of a sweep's table: rates and paired differences, each with an interval.

Two rules hold everywhere. A run in which nothing started from a cached state says nothing about poisoning, so it is
left out and counted. What changes nothing, seed or point, is one run, not several (:mod:`stateat.sim.sweeps.distinct`).

Claims of one run depend on each other: a poisoned slot is read, and what is computed from it is published too. The
Wilson interval treats them as if they did not, and is too narrow; the interval over runs resamples seeds with all
their runs, since points of a seed share one workload, and is the honest one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan, nan, sqrt
from numbers import Integral
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from stateat.sim.errors import InputError
from stateat.sim.scenario.messages import choice
from stateat.sim.sweeps.distinct import NO_METRIC, groups, normal, once, pairs, sound
from stateat.sim.workload.streams import stream

if TYPE_CHECKING:
    import pandas as pd

Floats = np.ndarray[Any, np.dtype[np.float64]]

PER = {
    "claim": ("poisoned", "claims"),
    "restore": ("wrong_restores", "starts"),
    "request": ("tainted_requests", "requests"),
    "run": ("poisoned", ""),
}
"""Counts of what is wrong, and out of what; of a run: whether anything was poisoned in it."""
WRONG = ("poisoned", "poisoned_roots", "wrong_restores", "wrong_reads", "tainted_requests")
"""Metrics of which a run without hits says nothing."""
BASIS = ("starts", "hit_tokens", "prompt_tokens")
"""Columns that any comparison needs of a run."""
NO_HITS = "no hits: no conclusion"
NO_RUNS = "every run failed: no conclusion"
NO_PAIRS = "no pairs: no conclusion"
NO_VALUES = "no pair has a value in both: no conclusion"
FEWEST = 5
"""Seeds that an interval by resampling takes: that of fewer is far too narrow."""
FEW_SEEDS = f"fewer than {FEWEST} seeds: no interval over runs"
FEW_PAIRS = f"fewer than {FEWEST} seeds: no interval"
ALIKE = "every run gave the same rate: no interval over runs"
DRAWS = 2000
"""Draws of a bootstrap."""
_AT_ONCE = 5_000_000
"""Numbers that a bootstrap draws at a time."""


def wilson(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The Wilson score interval of a proportion (Wilson, 1927); (0, 1) without trials.

    >>> low, high = wilson(0, 10)
    >>> f"{low:.4f} {high:.4f}"
    '0.0000 0.2775'
    """
    _check_level(level)
    for count in (successes, trials):
        if not isinstance(count, Integral):
            raise InputError(f"found {count!r}, allowed a whole number")
    if not 0 <= successes <= trials:
        raise InputError(f"found {successes} successes in {trials} trials, allowed 0 to {trials}")
    if not trials:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + level) / 2)
    p = successes / trials
    middle = p + z * z / (2 * trials)
    reach = z * sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    whole = 1 + z * z / trials
    low = 0.0 if successes == 0 else (middle - reach) / whole
    high = 1.0 if successes == trials else (middle + reach) / whole
    return low, high


def rates(frame: pd.DataFrame, by: str | Sequence[str] = "variant", per: str = "claim", level: float = 0.95) -> Any:
    """Return how often something was wrong, a row for each group of runs.

    ``per``: poisoned slots a ``claim``, wrong reads a ``restore`` (whatever started from a cached state), requests on a
    wrong state a ``request``, ``run`` with a poisoned slot. ``low`` and ``high`` are the Wilson interval, ``run_low``
    and ``run_high`` that over runs, which resamples ``seeds``; ``wrong_without_hits`` was wrong in the runs that are
    left out; ``conclusion`` says what the runs do not allow to say. Raises InputError for columns that are not there,
    for a run that is there twice, and for counts that are missing.
    """
    import pandas as pd

    if per not in PER:
        raise InputError(f"per: {choice(per, PER)}")
    _check_level(level)
    by = _names(by)
    _check_by(by, RATES)
    wrong, total = PER[per]
    frame = normal(frame, by, [*BASIS, wrong, *filter(None, [total])])
    found = []
    for key, group in groups(frame, by):
        runs = once(sound(group))
        hit = (runs["starts"] > 0).to_numpy(dtype=bool)
        events = _numbers(runs[wrong]) if total else (_numbers(runs[wrong]) > 0).astype(float)
        trials = _numbers(runs[total]) if total else np.ones(len(runs))
        seeds = runs["seed"].to_numpy()[hit]
        row = {
            **key, "runs": len(runs), "failed": int((group["error"] != "").sum()), "without_hits": int((~hit).sum()),
            "wrong_without_hits": int(events[~hit].sum()), "seeds": len(set(seeds.tolist())),
        }  # fmt: skip
        rate = _rate(_by_seed(seeds, events[hit]), _by_seed(seeds, trials[hit]), f"rates {per}", level)
        found.append(row | rate | _hits(runs) | {"conclusion": _why(row, rate, per)})
    return pd.DataFrame(found, columns=[*by, *RATES])


RATES = (
    "runs", "failed", "without_hits", "wrong_without_hits", "seeds", "wrong", "trials", "rate", "low", "high",
    "run_low", "run_high", "hit_rate", "conclusion",
)  # fmt: skip
PAIRED = (
    "metric", "pairs", "without_hits", "seeds", "baseline", "other", "difference", "low", "high", "conclusion",
)  # fmt: skip


def paired(
    frame: pd.DataFrame,
    baseline: str,
    other: str,
    metric: str | Sequence[str],
    by: str | Sequence[str] = (),
    level: float = 0.95,
) -> Any:
    """The mean difference of a metric between two variants, over the pairs of runs at the same point, seed and case.

    A row for each metric and group. ``metric``: ``hit_rate``, or any column of numbers (``ttft_p50_us``, ``steps``,
    ``deferred``). The mean is that of the means of each seed, and the interval a percentile bootstrap over seeds. Pairs
    without a hit in either run are left out; where the metric counts what was wrong (``poisoned`` and the like), those
    without a hit in one of them. Raises InputError for a variant or a column that is not there, for what is no metric,
    and for a run that is there twice.
    """
    import pandas as pd

    by, metrics = _names(by), _names(metric)
    _check_level(level)
    _check_by(by, PAIRED, "variant", "run", "digest")
    frame = normal(frame, [*by, *(name for name in metrics if name != "hit_rate")], BASIS)
    _check_metrics(frame, metrics)
    there = list(dict.fromkeys(frame["variant"]))
    for name in (baseline, other):
        if name not in there:
            raise InputError(f"variant: {choice(name, there)}")
    frame = frame.assign(hit_rate=frame["hit_tokens"] / frame["prompt_tokens"])
    found = []
    for key, group in groups(frame, by):
        both = pairs(group, baseline, other)
        for name in metrics:
            hits = (both["starts_a"] > 0) & (both["starts_b"] > 0)
            if name not in WRONG:
                hits = (both["starts_a"] > 0) | (both["starts_b"] > 0)
            told = both[hits & both[f"{name}_a"].notna() & both[f"{name}_b"].notna()]
            row = {**key, "metric": name, "pairs": len(told), "without_hits": int((~hits).sum())}
            nothing = NO_PAIRS if both.empty else NO_VALUES if hits.any() else NO_HITS
            found.append(row | _difference(told, name, level, nothing))
    return pd.DataFrame(found, columns=[*by, *PAIRED])


def _difference(told: pd.DataFrame, name: str, level: float, nothing: str) -> dict[str, Any]:
    seeds = told["seed"].to_numpy()
    sizes = _by_seed(seeds, np.ones(len(told)))
    if not len(told):
        empty = dict.fromkeys(("baseline", "other", "difference", "low", "high"), nan)
        return {"seeds": 0, **empty, "conclusion": nothing}
    a, b = (_by_seed(seeds, _numbers(told[f"{name}_{side}"])) / sizes for side in "ab")
    difference = b - a
    low, high = nan, nan
    if len(sizes) >= FEWEST:
        means = [difference[draw].mean(axis=1) for draw in _resampled(len(sizes), f"paired {name}")]
        low, high = _percentiles(np.concatenate(means), level)
    return {
        "seeds": len(sizes), "baseline": a.mean(), "other": b.mean(), "difference": difference.mean(), "low": low,
        "high": high, "conclusion": FEW_PAIRS if isnan(low) else "",
    }  # fmt: skip


def _by_seed(seeds: np.ndarray[Any, Any], values: Floats) -> Floats:
    """Sums of the values of each seed."""
    _, places = np.unique(seeds, return_inverse=True)
    return np.bincount(places, weights=values).astype(np.float64)


def _rate(events: Floats, trials: Floats, name: str, level: float) -> dict[str, Any]:
    """Wrong in trials over seeds (an entry each), with both intervals."""
    wrong, total = int(events.sum()), int(trials.sum())
    row = {"wrong": wrong, "trials": total}
    if not total:
        return row | dict.fromkeys(("rate", "low", "high", "run_low", "run_high"), nan)
    low, high = wilson(wrong, total, level)
    run_low, run_high = nan, nan
    events, trials = events[trials > 0], trials[trials > 0]
    if len(events) > 1 and wrong in (0, total):
        # Nothing varies, and resampling has no width: what so many equal seeds allow to say of one more.
        run_low, run_high = wilson(0 if wrong == 0 else len(events), len(events), level)
    elif len(events) >= FEWEST and np.ptp(events / trials) > 0:
        drawn = [events[draw].sum(axis=1) / trials[draw].sum(axis=1) for draw in _resampled(len(events), name)]
        run_low, run_high = _percentiles(np.concatenate(drawn), level)
    return row | {"rate": wrong / total, "low": low, "high": high, "run_low": run_low, "run_high": run_high}


def _hits(runs: pd.DataFrame) -> dict[str, float]:
    prompts = float(runs["prompt_tokens"].sum())
    return {"hit_rate": float(runs["hit_tokens"].sum()) / prompts if prompts else nan}


def _why(row: dict[str, Any], rate: dict[str, Any], per: str) -> str:
    if not row["runs"]:
        return NO_RUNS
    if row["without_hits"] == row["runs"]:
        return NO_HITS
    if not rate["trials"]:
        return f"no {per}s: no conclusion"
    if isnan(rate["run_low"]):
        return FEW_SEEDS if row["seeds"] < FEWEST else ALIKE
    return ""


def _resampled(count: int, name: str) -> Iterator[np.ndarray[Any, np.dtype[np.intp]]]:
    """Rows of ``count`` indices drawn with replacement, DRAWS in all; the same for the same name."""
    rng = stream(0, f"bootstrap {name}")
    each = max(1, _AT_ONCE // count)
    for start in range(0, DRAWS, each):
        yield (rng.random((min(each, DRAWS - start), count)) * count).astype(np.intp)


def _percentiles(values: Floats, level: float) -> tuple[float, float]:
    tail = (1 - level) / 2 * 100
    low, high = np.percentile(values, [tail, 100 - tail]).tolist()
    return low, high


def _numbers(column: pd.Series[Any]) -> Floats:
    return column.to_numpy(dtype=np.float64, na_value=nan)


def _names(names: str | Sequence[str]) -> list[str]:
    return list(dict.fromkeys([names] if isinstance(names, str) else names))


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise InputError(f"level: found {level}, allowed more than 0 and less than 1")


def _check_by(by: Sequence[str], answers: Sequence[str], *apart: str) -> None:
    """Raises InputError for a column that the answer has too, and for one in which no two runs of a pair agree."""
    for name in by:
        if name in answers:
            raise InputError(f"by: found {name!r}, which is a column of the answer; allowed any other")
        if name in apart:
            raise InputError(f"by: found {name!r}, in which the runs of a pair differ; allowed any other column")


def _check_metrics(frame: pd.DataFrame, metrics: Sequence[str]) -> None:
    from pandas.api.types import is_numeric_dtype

    for name in metrics:
        if name != "hit_rate" and (name in NO_METRIC or not is_numeric_dtype(frame[name])):
            raise InputError(f"metric: found {name!r}, allowed hit_rate or a column of numbers that a run comes to")
