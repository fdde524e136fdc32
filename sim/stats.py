"""What the table of a sweep allows to say: rates and paired differences, each with an interval.

Two rules hold everywhere. A run in which nothing started from a cached state says nothing about poisoning, so it is
left out and counted. Seeds that change nothing (the same digest under each) are one run, not several.

Claims of one run depend on each other: a poisoned slot is read, and what is computed from it is published too. The
Wilson interval treats them as if they did not, and is too narrow; the interval over runs resamples whole runs (seeds),
and is the honest one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.errors import InputError
from sim.scenario_errors import choice
from sim.workload.streams import stream

if TYPE_CHECKING:
    import pandas as pd

Floats = np.ndarray[Any, np.dtype[np.float64]]

PER = {
    "claim": ("poisoned", "claims"),
    "restore": ("wrong_restores", "starts"),
    "request": ("tainted_requests", "requests"),
    "run": ("poisoned", ""),
}
"""What is counted, and out of what; of a run: whether anything was poisoned in it."""
WRONG = ("poisoned", "poisoned_roots", "wrong_restores", "wrong_reads", "tainted_requests")
"""Metrics of which a run without hits says nothing."""
NO_HITS = "no hits: no conclusion"
NO_RUNS = "every run failed: no conclusion"
NO_PAIRS = "no pairs: no conclusion"
ONE_RUN = "one run: no interval over runs"
ONE_PAIR = "one pair: no interval"
DRAWS = 2000
"""Of a bootstrap."""
_AT_ONCE = 5_000_000
"""Numbers that a bootstrap draws at a time."""


def wilson(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The Wilson score interval of a proportion (Wilson, 1927); (0, 1) without trials.

    >>> low, high = wilson(0, 10)
    >>> f"{low:.4f} {high:.4f}"
    '0.0000 0.2775'
    """
    if not 0 < level < 1:
        raise InputError(f"level: found {level}, allowed more than 0 and less than 1")
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
    """How often something was wrong, a row for each group of runs.

    ``per``: poisoned slots a ``claim``, wrong reads a ``restore`` (whatever started from a cached state), requests on a
    wrong state a ``request``, ``run`` with a poisoned slot. ``low`` and ``high`` are the Wilson interval, ``run_low``
    and ``run_high`` that over runs; ``conclusion`` says what the runs do not allow to say. Raises InputError for
    columns that are not there.
    """
    import pandas as pd

    if per not in PER:
        raise InputError(f"per: {choice(per, PER)}")
    by = _names(by)
    wrong, total = PER[per]
    needed = [*by, *DISTINCT, "starts", "error", "digest", "hit_tokens", "prompt_tokens", wrong, *filter(None, [total])]
    _check(frame, needed)
    found = []
    for key, group in _groups(frame, by):
        runs, failed = _sound(group)
        tried = runs[runs["starts"] > 0]
        events = _numbers(tried[wrong]) if per != "run" else (_numbers(tried[wrong]) > 0).astype(float)
        trials = _numbers(tried[total]) if total else np.ones(len(tried))
        row = {**key, "runs": len(runs), "failed": failed, "without_hits": len(runs) - len(tried)}
        found.append(row | _rate(events, trials, f"rates {per}", level) | _hits(runs) | _why(runs, tried))
    return pd.DataFrame(found, columns=[*by, *RATES])


RATES = (
    "runs", "failed", "without_hits", "wrong", "trials", "rate", "low", "high", "run_low", "run_high", "hit_rate",
    "conclusion",
)  # fmt: skip
PAIRED = (
    "metric", "pairs", "without_hits", "baseline", "other", "difference", "low", "high", "conclusion",
)  # fmt: skip
DISTINCT = ("point", "seed", "variant", "case")


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
    ``deferred``). The interval is a percentile bootstrap over pairs. Pairs without a hit in either run are left out;
    where the metric counts what was wrong (``poisoned`` and the like), those without a hit in one of them. Raises
    InputError for a variant or a column that is not there.
    """
    import pandas as pd

    by, metrics = _names(by), _names(metric)
    columns = [name for name in metrics if name != "hit_rate"] + ["hit_tokens", "prompt_tokens"]
    _check(frame, [*by, *DISTINCT, "starts", "error", "digest", *columns])
    there = list(dict.fromkeys(frame["variant"]))
    for name in (baseline, other):
        if name not in there:
            raise InputError(f"variant: {choice(name, map(str, there))}")
    frame = frame.assign(hit_rate=frame["hit_tokens"] / frame["prompt_tokens"])
    found = []
    for key, group in _groups(frame, by):
        runs, _ = _sound(group, together=(baseline, other))
        same = ["point", "seed", "case"]
        sides = [runs[runs["variant"] == name] for name in (baseline, other)]
        both = sides[0].merge(sides[1], on=same, suffixes=("_a", "_b"), validate="one_to_one")
        for name in metrics:
            hits = (both["starts_a"] > 0) & (both["starts_b"] > 0)
            if name not in WRONG:
                hits = (both["starts_a"] > 0) | (both["starts_b"] > 0)
            told = both[hits & both[f"{name}_a"].notna() & both[f"{name}_b"].notna()]
            row = {**key, "metric": name, "pairs": len(told), "without_hits": int((~hits).sum())}
            found.append(row | _difference(told, name, level, len(both)))
    return pd.DataFrame(found, columns=[*by, *PAIRED])


def _difference(pairs: pd.DataFrame, name: str, level: float, all_pairs: int) -> dict[str, Any]:
    if not len(pairs):
        nothing = dict.fromkeys(("baseline", "other", "difference", "low", "high"), nan)
        return nothing | {"conclusion": NO_HITS if all_pairs else NO_PAIRS}
    a, b = _numbers(pairs[f"{name}_a"]), _numbers(pairs[f"{name}_b"])
    difference = b - a
    low, high = nan, nan
    if len(pairs) > 1:
        means = [difference[draw].mean(axis=1) for draw in _resampled(len(pairs), f"paired {name}")]
        low, high = _percentiles(np.concatenate(means), level)
    return {
        "baseline": a.mean(), "other": b.mean(), "difference": difference.mean(), "low": low, "high": high,
        "conclusion": "" if len(pairs) > 1 else ONE_PAIR,
    }  # fmt: skip


def _rate(events: Floats, trials: Floats, name: str, level: float) -> dict[str, Any]:
    """Wrong in trials over runs (an entry each), with both intervals."""
    wrong, total = int(events.sum()), int(trials.sum())
    row = {"wrong": wrong, "trials": total}
    if not total:
        return row | dict.fromkeys(("rate", "low", "high", "run_low", "run_high"), nan)
    low, high = wilson(wrong, total, level)
    run_low, run_high = nan, nan
    if len(events) > 1:
        parts = [(events[draw].sum(axis=1), trials[draw].sum(axis=1)) for draw in _resampled(len(events), name)]
        drawn, out_of = (np.concatenate(side) for side in zip(*parts, strict=True))
        run_low, run_high = _percentiles(drawn[out_of > 0] / out_of[out_of > 0], level)
        if wrong in (0, total):
            # Nothing varies, so resampling has no width: what so many equal runs allow to say of one more.
            bounds = wilson(0 if wrong == 0 else len(events), len(events), level)
            run_low, run_high = min(run_low, bounds[0]), max(run_high, bounds[1])
    return row | {"rate": wrong / total, "low": low, "high": high, "run_low": run_low, "run_high": run_high}


def _hits(runs: pd.DataFrame) -> dict[str, float]:
    prompts = float(runs["prompt_tokens"].sum())
    return {"hit_rate": float(runs["hit_tokens"].sum()) / prompts if prompts else nan}


def _why(runs: pd.DataFrame, tried: pd.DataFrame) -> dict[str, str]:
    if not len(runs):
        return {"conclusion": NO_RUNS}
    if not len(tried):
        return {"conclusion": NO_HITS}
    return {"conclusion": ONE_RUN if len(tried) == 1 else ""}


def _sound(group: pd.DataFrame, together: Sequence[str] = ()) -> tuple[pd.DataFrame, int]:
    """The runs that count, and how many failed. Seeds that change nothing are one run; of ``together``, in all of these
    variants."""
    well = group["error"].fillna("") == ""
    # Whatever the order of the table: what is drawn goes by row.
    runs, failed = group[well].sort_values(["point", "seed", "variant", "case"]), int((~well).sum())
    if together:
        runs = runs[runs["variant"].isin(together)]
    keys = ["point", "case"] if together else ["point", "variant", "case"]
    told = runs.assign(_digests=runs.groupby([*dict.fromkeys([*keys, "variant"])])["digest"].transform("nunique"))
    same = told.groupby(keys)["_digests"].transform("max") == 1
    first = ~told.duplicated([*dict.fromkeys([*keys, "variant"])])
    return told[~same | first].drop(columns="_digests"), failed


def _groups(frame: pd.DataFrame, by: list[str]) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Groups in the order in which they first appear."""
    if not by:
        yield {}, frame
        return
    for key, group in frame.groupby(by, sort=False, dropna=False):
        yield dict(zip(by, key if isinstance(key, tuple) else (key,), strict=True)), group


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
    return [names] if isinstance(names, str) else list(names)


def _check(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    for name in columns:
        if name not in frame.columns:
            raise InputError(f"column: {choice(name, map(str, frame.columns))}")
