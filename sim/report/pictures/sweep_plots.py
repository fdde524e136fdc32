"""Pictures of a sweep's table, which has a row for each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateat.sim.errors import InputError
from stateat.sim.report.pictures.style import (
    FAINT,
    INK,
    LEGEND_COLUMNS,
    SIZE,
    canvas,
    check_suffix,
    frame,
    legend,
    plain,
    save,
    say,
)
from stateat.sim.report.pictures.sweep_axes import (
    apart,
    check_series,
    good,
    groups,
    name_of,
    order,
    places_of,
    series_style,
    x_axis,
)
from stateat.sim.sweeps.stats import NO_HITS, PER, paired, rates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from stateat.sim.sweeps.plan import Plan

_LABELS = {
    "claim": "claims that are wrong (%)",
    "restore": "restores of a wrong state (%)",
    "request": "requests on a wrong state (%)",
    "run": "runs with a poisoned slot (%)",
    "hit_rate": "hit rate (% of prompt tokens)",
    "ttft_p50_us": "time to first token, p50",
    "ttft_p95_us": "time to first token, p95",
    "ttft_p99_us": "time to first token, p99",
    "time_us": "time",
    "deferred": "deferrals (a run)",
    "steps": "engine steps (a run)",
}
"""Names of measures, each with its unit (that of a time goes by the clock): a rate per claim and so on, or a column;
others have their own name."""
assert set(PER) <= set(_LABELS)


def _label(runs: DataFrame, what: str) -> str:
    """Return what an axis says of a measure."""
    if not what.endswith("_us"):
        return _LABELS.get(what, what)
    return f"{_LABELS.get(what, what.removesuffix('_us'))} ({'ms' if _scale(runs, what) < 1 else 'engine steps'})"


def _scale(runs: DataFrame, what: str) -> float:
    """Return what a column's numbers are multiplied by for their label."""
    if not what.endswith("_us"):
        return 100 if what == "hit_rate" else 1
    clocks = set(runs["clock"].dropna()) if "clock" in runs else set()
    if len(clocks) > 1:
        raise InputError(
            f"a picture of {what}: found runs of several clocks ({', '.join(sorted(clocks))}), allowed one"
        )
    return 1 if clocks == {"steps"} else 1e-3


@dataclass(frozen=True, slots=True)
class _Point:
    """A measure of some runs in the unit of its label, with what interval there is."""

    value: float
    wilson: tuple[float, float] | None = None
    over_runs: tuple[float, float] | None = None
    says: bool = True
    """False: nothing was hit, so nothing follows."""


def rate(sweep: DataFrame, ax: Axes, *, x: str, per: str = "request", by: str = "variant", label: str = "") -> None:
    """The poisoning rate against a swept key; a line for each value of ``by``.

    ``per``: as in :func:`stateat.sim.sweeps.stats.rates`. A bar is the 95 % Wilson interval, a band the one over
    runs (seeds), which there is not where nothing, or all, was wrong. ``label``: what the axis says of ``x``.
    """
    if per not in PER:
        raise InputError(f"per: found {per!r}, allowed: {', '.join(PER)}")
    _lines(sweep, ax, x, by, per, label)


def _lines(sweep: DataFrame, ax: Axes, x: str, by: str, what: str, label: str) -> None:
    """A measure against x."""
    runs = good(sweep, x, by)
    if by == "variant":
        runs = apart(runs)
    check_series(runs[by].nunique(), "a picture")
    places, names = places_of(runs[x])
    top, hollow, solid = 0.0, False, False
    for number, (series, mine) in enumerate(groups(runs, by)):
        color, marker, line = series_style(number)
        points = [(places[value], _point(group, what)) for value, group in groups(mine, x)]
        points.sort(key=lambda pair: pair[0])
        told = [(at, point) for at, point in points if point.says]
        solid = solid or bool(told)
        ax.plot(
            [at for at, _ in points], [point.value if point.says else nan for _, point in points], color=color,
            marker=marker, linestyle=line, linewidth=1.8, markersize=7, markeredgecolor="white",
            label=plain(str(series), 30), zorder=3, clip_on=False,
        )  # fmt: skip
        for at, point in told:
            low, high = point.wilson or (point.value, point.value)
            ax.plot([at, at], [low, high], color=color, marker="_", markersize=8, linewidth=1.6, alpha=0.75, zorder=2)
            top = max([top, high, *(point.over_runs or ())])
        _band(ax, points, color, bool(names))
        for at, _ in (pair for pair in points if not pair[1].says):
            hollow = True
            ax.plot(
                [at], [0], marker=marker, color=color, markerfacecolor="white", markersize=8, zorder=4, clip_on=False
            )
    ax.set_ylim(0, top * 1.08 or 1)
    x_axis(ax, places, names)
    frame(ax, label or x, _label(runs, what), SIZE)
    if not solid:
        say(ax, NO_HITS)
    elif hollow:
        ax.plot([], [], marker="o", color=INK, markerfacecolor="white", linestyle="none", markersize=8, label=NO_HITS)
    legend(ax)


def _band(ax: Axes, points: Sequence[tuple[float, _Point]], color: str, apart: bool) -> None:
    """The intervals over runs, joined where neighbours have one; a bar where there is no neighbour, or all are
    ``apart``."""
    spans = [(at, *(point.over_runs or (nan, nan))) for at, point in points]
    there = [False, *(not isnan(low) for _, low, _ in spans), False]
    if any(there) and not apart:
        xs, lows, highs = zip(*spans, strict=True)
        ax.fill_between(xs, lows, highs, color=color, alpha=0.15, linewidth=0, zorder=1)
    for i, (at, low, high) in enumerate(spans, 1):
        if there[i] and (apart or not (there[i - 1] or there[i + 1])):
            ax.plot([at, at], [low, high], color=color, alpha=0.15, linewidth=9, solid_capstyle="butt", zorder=1)


def _point(runs: DataFrame, what: str) -> _Point:
    """A measure of these runs together: a rate, the hit rate, or the mean of a column."""
    if what in PER:
        (row,) = rates(runs, by=[], per=what).itertuples(index=False)
        return _Point(
            100 * row.rate,
            (100 * row.low, 100 * row.high),
            None if isnan(row.run_low) or row.wrong in (0, row.trials) else (100 * row.run_low, 100 * row.run_high),
            row.trials > 0,
        )
    if what == "hit_rate":
        prompts = float(runs["prompt_tokens"].sum())
        return _Point(100 * float(runs["hit_tokens"].sum()) / prompts if prompts else nan)
    from pandas.api.types import is_numeric_dtype

    if what not in runs or not is_numeric_dtype(runs[what]):
        allowed = ", ".join([*PER, "hit_rate", *(str(name) for name in runs if is_numeric_dtype(runs[name]))])
        raise InputError(f"found no measure {what!r}, allowed: {allowed}")
    told = runs[what].dropna()
    return _Point(_scale(runs, what) * float(told.mean()) if len(told) else nan)


def heat_map(sweep: DataFrame, ax: Axes, *, x: str, y: str, value: str = "request") -> None:
    """A measure over two swept keys: each cell its number, and hatched where nothing was hit.

    ``value``: what a poisoning rate is per (``claim``, ``restore``, ``request``, ``run``), ``hit_rate``, or a column,
    whose mean is shown.
    """
    from matplotlib.patches import Rectangle

    runs = apart(good(sweep, x, y))
    if len(variants := list(dict.fromkeys(runs["variant"]))) > 1:
        raise InputError(f"a heat map of one variant: found {', '.join(variants)}; choose one of them")
    columns, rows = (sorted(set(runs[key]), key=order) for key in (x, y))
    cells = {(a, b): _point(group, value) for a, more in groups(runs, x) for b, group in groups(more, y)}
    told = {key: cell.value for key, cell in cells.items() if cell.says}
    highest = max(told.values(), default=0.0) or 1.0
    shown = [[told.get((a, b), float("nan")) for a in columns] for b in rows]
    image = ax.imshow(shown, origin="lower", aspect="auto", cmap="cividis", vmin=0, vmax=highest)
    for j, b in enumerate(rows):
        for i, a in enumerate(columns):
            if (a, b) in told:
                ink = "black" if told[a, b] > 0.55 * highest else "white"
                ax.text(i, j, _number(told[a, b], value), ha="center", va="center", fontsize=SIZE, color=ink)
                continue
            ax.add_patch(
                Rectangle((i - 0.5, j - 0.5), 1, 1, facecolor="white", edgecolor=FAINT, hatch="////", zorder=2)
            )
            ax.text(
                i, j, "no hits" if (a, b) in cells else "not run", ha="center", va="center", fontsize=SIZE - 1,
                zorder=3, bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"},
            )  # fmt: skip
    ax.set_xticks(range(len(columns)), [name_of(a) for a in columns])
    ax.set_yticks(range(len(rows)), [name_of(b) for b in rows])
    frame(ax, x, y, SIZE)
    bar = ax.figure.colorbar(image, ax=ax)
    bar.set_label(_label(runs, value), fontsize=SIZE)
    bar.ax.tick_params(labelsize=SIZE - 1, colors=INK)


def before_after(sweep: DataFrame, ax: Axes, *, metric: str = "hit_rate") -> None:
    """A measure of each variant, run by run: a faint line is one point and seed, the mark is the mean.

    Under each later variant stands its mean difference to the first one over the same points and seeds, with the
    95 % bootstrap interval (:func:`stateat.sim.sweeps.stats.paired`).
    """
    runs, top = good(sweep), 0.0
    if metric in PER:
        raise InputError(f"found no measure {metric!r} of single runs, allowed: hit_rate, or a column of numbers")
    if len(cases := list(dict.fromkeys(runs["case"]))) > 1:
        raise InputError(f"before and after of one case: found {', '.join(cases)}; choose one of them")
    variants = list(dict.fromkeys(runs["variant"]))
    paths: dict[Any, dict[int, float]] = {}
    for at, (_, group) in enumerate(groups(runs, "variant")):
        color, marker, _ = series_style(at)
        told = [_point(group.iloc[i : i + 1], metric).value for i in range(len(group))]
        for key, value in zip(group[["point", "seed", "case"]].itertuples(index=False), told, strict=True):
            paths.setdefault(tuple(key), {})[at] = value
        values = [value for value in told if not isnan(value)]
        if not values:
            continue
        mean = sum(values) / len(values)
        top = max([top, *values])
        ax.plot([at] * len(values), values, color=color, marker=marker, linestyle="none", alpha=0.35, zorder=2)
        ax.plot([at], [mean], color=color, marker=marker, markersize=12, markeredgecolor="white", zorder=4)
        ax.annotate(
            _number(mean, metric), (at, mean), (12, 0), textcoords="offset points", fontsize=SIZE, va="center",
            zorder=5, bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )  # fmt: skip
    if not ax.lines:
        say(ax, "no run has one")
    for path in paths.values():
        ax.plot(list(path), list(path.values()), color=FAINT, linewidth=0.8, zorder=1)
    ax.set_xlim(-0.5, len(variants) - 0.3)
    ax.set_ylim(0, top * 1.08 or 1)
    labels = [
        plain(variants[0], 24),
        *(f"{plain(name, 24)}\n{_change(runs, variants[0], name, metric)}" for name in variants[1:]),
    ]
    ax.set_xticks(range(len(variants)), labels)
    frame(ax, "", _label(runs, metric), SIZE)


def _change(runs: DataFrame, first: str, other: str, metric: str) -> str:
    """A mean difference with its interval, in the unit of the label."""
    (row,) = paired(runs, first, other, metric).itertuples(index=False)
    scale = _scale(runs, metric)
    if not row.pairs:
        return str(row.conclusion)
    digits = 2 if metric == "hit_rate" else 1  # a tenth of a point can be all that an interval holds
    told = [f"{scale * value:+z,.{digits}f}" for value in (row.difference, row.low, row.high)]
    return told[0] if isnan(row.low) else f"{told[0]} [{told[1]}, {told[2]}]"


def _number(value: float, what: str) -> str:
    return f"{value:,.1f} %" if what in PER or what == "hit_rate" else f"{value:,.1f}"


def check_picture(plan: Plan, path: str | Path) -> None:
    """Raise InputError unless a sweep can be drawn to this path: before it runs."""
    check_suffix(path, "--plot")
    keys = [axis.key for axis in plan.axes if len(axis.values) > 1]
    most = 2 if plan.crossed else 1
    if len(keys) > most:
        kind = "a grid" if plan.crossed else "a sample"
        raise InputError(f"--plot {path}: found {len(keys)} swept keys ({', '.join(keys)}), allowed for {kind}: {most}")
    if len(keys) == 1:
        check_series(len(plan.picks), f"--plot {path}")


def sweep_picture(sweep: DataFrame, path: str | Path) -> None:
    """Draw what a sweep's table calls for: rate and hit rate against a swept key, or a heat map over two, as a file."""
    check_suffix(path)
    keys = [key for key in swept(sweep) if sweep[key].nunique(dropna=False) > 1]
    if len(keys) == 1:
        rows = -(-apart(good(sweep))["variant"].nunique() // LEGEND_COLUMNS)
        figure = canvas(8, 6.4 + 2 * 0.18 * (rows - 1))
        upper, lower = figure.subplots(2, 1)
        rate(sweep, upper, x=keys[0])
        _lines(sweep, lower, keys[0], "variant", "hit_rate", "")
    elif len(keys) == 2:
        runs = good(sweep, *keys)
        named = apart(runs)["variant"]
        variants = list(dict.fromkeys(named))
        figure = canvas(8, 0.6 + 2.9 * len(variants))
        axes = figure.subplots(len(variants), 1, squeeze=False)[:, 0]
        for name, ax in zip(variants, axes, strict=True):
            heat_map(runs[named == name], ax, x=keys[0], y=keys[1])
            ax.set_title(plain(name), fontsize=SIZE + 1, loc="left", color=INK)
    elif not keys:
        cases = list(groups(good(sweep), "case"))
        figure = canvas(8, 6.4 * len(cases))
        axes = iter(figure.subplots(2 * len(cases), 1))
        for case, runs in cases:
            for metric, ax in zip(("ttft_p50_us", "hit_rate"), axes, strict=False):
                before_after(runs, ax, metric=metric)
                ax.set_title(plain(case), fontsize=SIZE + 1, loc="left", color=INK)
    else:
        raise InputError(f"a picture of a sweep: found {len(keys)} swept keys ({', '.join(keys)}), allowed: 0 to 2")
    save(figure, path, dpi=100)


def swept(sweep: DataFrame) -> list[str]:
    """The swept keys: the columns between the case and the counts."""
    columns: Sequence[str] = list(sweep.columns)
    return list(columns[columns.index("case") + 1 : columns.index("poisoned")])
