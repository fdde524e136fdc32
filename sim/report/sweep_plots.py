"""Pictures of a sweep's table, which has a row for each run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.report.style import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SIZE,
    SKY,
    canvas,
    check_suffix,
    frame,
    legend,
    plain,
    save,
)
from sim.stats import NO_HITS, PER, paired, rates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from sim.sweeps.plan import Plan

_SERIES = (
    (BLUE, "o", "-"),
    (ORANGE, "s", "--"),
    (GREEN, "^", "-."),
    (PURPLE, "D", ":"),
    (SKY, "v", "-"),
    (INK, "P", "--"),
)
"""Colour, marker and line of each series: no two differ in colour alone."""

_LABELS = {
    "claim": "claims that are wrong (%)",
    "restore": "restores of a wrong state (%)",
    "request": "requests on a wrong state (%)",
    "run": "runs with a poisoned slot (%)",
    "hit_rate": "hit rate (% of prompt tokens)",
    "ttft_p50_us": "time to first token, p50 (ms)",
    "ttft_p95_us": "time to first token, p95 (ms)",
    "ttft_p99_us": "time to first token, p99 (ms)",
    "time_us": "time (ms)",
    "deferred": "deferrals (a run)",
    "steps": "engine steps (a run)",
}
"""What a measure is called, with its unit: a rate per claim and so on, or a column; others have their own name."""
assert set(PER) <= set(_LABELS)


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

    ``per``: as in :func:`sim.stats.rates`. A bar is the 95 % Wilson interval, a band the one over runs (seeds), which
    there is not where nothing, or all, was wrong. ``label``: what the axis says of ``x``.
    """
    if per not in PER:
        raise InputError(f"per: found {per!r}, allowed: {', '.join(PER)}")
    _lines(sweep, ax, x, by, per, label)


def _lines(sweep: DataFrame, ax: Axes, x: str, by: str, what: str, label: str) -> None:
    """A measure against x."""
    runs = _good(sweep, x, by)
    places, names = _places(runs[x])
    top, hollow = 0.0, False
    for (series, mine), (color, marker, line) in zip(_groups(runs, by), cycle(_SERIES), strict=False):
        points = [(places[value], _point(group, what)) for value, group in _groups(mine, x)]
        points.sort(key=lambda pair: pair[0])
        told = [(at, point) for at, point in points if point.says]
        ax.plot(
            [at for at, _ in told], [point.value for _, point in told], color=color, marker=marker, linestyle=line,
            linewidth=1.8, markersize=7, markeredgecolor="white", label=plain(str(series), 30), zorder=3,
            clip_on=False,
        )  # fmt: skip
        for at, point in told:
            low, high = point.wilson or (point.value, point.value)
            ax.plot([at, at], [low, high], color=color, marker="_", markersize=8, linewidth=1.6, alpha=0.75, zorder=2)
            top = max([top, high, *(point.over_runs or ())])
        band = [(at, *point.over_runs) for at, point in told if point.over_runs]
        if len(band) > 1 and not names:
            xs, lows, highs = zip(*band, strict=True)
            ax.fill_between(xs, lows, highs, color=color, alpha=0.15, linewidth=0, zorder=1)
        for at, _ in (pair for pair in points if not pair[1].says):
            hollow = True
            ax.plot(
                [at], [0], marker=marker, color=color, markerfacecolor="white", markersize=8, zorder=4, clip_on=False
            )
    ax.set_ylim(0, top * 1.08 or 1)
    _x_axis(ax, places, names)
    frame(ax, label or x, _LABELS.get(what, what), SIZE)
    if hollow:
        ax.plot([], [], marker="o", color=INK, markerfacecolor="white", linestyle="none", markersize=8, label=NO_HITS)
    legend(ax)


def _point(runs: DataFrame, what: str) -> _Point:
    """A measure of these runs together: a rate, the hit rate, or the mean of a column."""
    if what in PER:
        (row,) = rates(runs, by=[], per=what).itertuples(index=False)
        return _Point(
            100 * row.rate,
            (100 * row.low, 100 * row.high),
            (100 * row.run_low, 100 * row.run_high) if row.runs > 1 and 0 < row.wrong < row.trials else None,
            row.trials > 0,
        )
    if what == "hit_rate":
        return _Point(100 * float(runs["hit_tokens"].sum()) / float(runs["prompt_tokens"].sum()))
    if what not in runs:
        allowed = ", ".join([*PER, "hit_rate", *map(str, runs.columns)])
        raise InputError(f"found no measure {what!r}, allowed: {allowed}")
    return _Point(float(runs[what].mean()) * (1e-3 if what.endswith("_us") else 1))


def heat_map(sweep: DataFrame, ax: Axes, *, x: str, y: str, value: str = "request") -> None:
    """A measure over two swept keys: each cell its number, and hatched where nothing was hit.

    ``value``: what a poisoning rate is per (``claim``, ``restore``, ``request``, ``run``), ``hit_rate``, or a column,
    whose mean is shown.
    """
    from matplotlib.patches import Rectangle

    runs = _good(sweep, x, y)
    if len(variants := list(dict.fromkeys(runs["variant"]))) > 1:
        raise InputError(f"a heat map of one variant: found {', '.join(variants)}; choose one of them")
    columns, rows = (sorted(set(runs[key]), key=_order) for key in (x, y))
    cells = {(a, b): _point(group, value) for a, more in _groups(runs, x) for b, group in _groups(more, y)}
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
    ax.set_xticks(range(len(columns)), [_name(a) for a in columns])
    ax.set_yticks(range(len(rows)), [_name(b) for b in rows])
    frame(ax, x, y, SIZE)
    bar = ax.figure.colorbar(image, ax=ax)
    bar.set_label(_LABELS.get(value, value), fontsize=SIZE)
    bar.ax.tick_params(labelsize=SIZE - 1, colors=INK)


def before_after(sweep: DataFrame, ax: Axes, *, metric: str = "hit_rate") -> None:
    """A measure of each variant, run by run: a faint line is one point and seed, the mark is the mean.

    Under each later variant stands its mean difference to the first one over the same points and seeds, with the
    95 % bootstrap interval (:func:`sim.stats.paired`).
    """
    runs, top = _good(sweep), 0.0
    variants = list(dict.fromkeys(runs["variant"]))
    paths: dict[Any, dict[int, float]] = {}
    for at, (_, group) in enumerate(_groups(runs, "variant")):
        color, marker, _ = _SERIES[at % len(_SERIES)]
        values = [_point(group.iloc[i : i + 1], metric).value for i in range(len(group))]
        for key, value in zip(group[["point", "seed", "case"]].itertuples(index=False), values, strict=True):
            paths.setdefault(tuple(key), {})[at] = value
        mean = sum(values) / len(values)
        top = max([top, *values])
        ax.plot([at] * len(values), values, color=color, marker=marker, linestyle="none", alpha=0.35, zorder=2)
        ax.plot([at], [mean], color=color, marker=marker, markersize=12, markeredgecolor="white", zorder=4)
        ax.annotate(
            _number(mean, metric), (at, mean), (12, 0), textcoords="offset points", fontsize=SIZE, va="center",
            zorder=5, bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )  # fmt: skip
    for path in paths.values():
        ax.plot(list(path), list(path.values()), color=FAINT, linewidth=0.8, zorder=1)
    ax.set_xlim(-0.5, len(variants) - 0.3)
    ax.set_ylim(0, top * 1.08 or 1)
    labels = [
        plain(variants[0], 24),
        *(f"{plain(name, 24)}\n{_change(runs, variants[0], name, metric)}" for name in variants[1:]),
    ]
    ax.set_xticks(range(len(variants)), labels)
    frame(ax, "", _LABELS.get(metric, metric), SIZE)


def _change(runs: DataFrame, first: str, other: str, metric: str) -> str:
    """A mean difference with its interval, in the unit of the label."""
    (row,) = paired(runs, first, other, metric).itertuples(index=False)
    scale = 100 if metric == "hit_rate" else 1e-3 if metric.endswith("_us") else 1
    if not row.pairs:
        return str(row.conclusion)
    digits = 2 if metric == "hit_rate" else 1  # a tenth of a point can be all that an interval holds
    told = [f"{scale * value:+z,.{digits}f}" for value in (row.difference, row.low, row.high)]
    return told[0] if row.pairs == 1 else f"{told[0]} [{told[1]}, {told[2]}]"


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


def sweep_picture(sweep: DataFrame, path: str | Path) -> None:
    """What a sweep's table calls for: rate and hit rate against one swept key, or a heat map over two, as a file."""
    check_suffix(path)
    keys = [key for key in swept(sweep) if sweep[key].nunique() > 1]
    variants = list(dict.fromkeys(sweep["variant"]))
    if len(keys) == 1:
        figure = canvas(8, 6.4)
        upper, lower = figure.subplots(2, 1)
        rate(sweep, upper, x=keys[0])
        _lines(sweep, lower, keys[0], "variant", "hit_rate", "")
    elif len(keys) == 2:
        figure = canvas(8, 0.6 + 2.9 * len(variants))
        axes = figure.subplots(len(variants), 1, squeeze=False)[:, 0]
        for name, ax in zip(variants, axes, strict=True):
            heat_map(sweep[sweep["variant"] == name], ax, x=keys[0], y=keys[1])
            ax.set_title(plain(name), fontsize=SIZE + 1, loc="left", color=INK)
    elif not keys:
        figure = canvas(8, 6.4)
        for ax, metric in zip(figure.subplots(2, 1), ("ttft_p50_us", "hit_rate"), strict=True):
            before_after(sweep, ax, metric=metric)
    else:
        raise InputError(f"a picture of a sweep: found {len(keys)} swept keys ({', '.join(keys)}), allowed: 0 to 2")
    save(figure, path, dpi=100)


def swept(sweep: DataFrame) -> list[str]:
    """The swept keys: the columns between the case and the counts."""
    columns: Sequence[str] = list(sweep.columns)
    return list(columns[columns.index("case") + 1 : columns.index("poisoned")])


def _good(sweep: DataFrame, *columns: str) -> DataFrame:
    """The runs that came to an end; InputError if there is none, or a column is missing."""
    for name in columns:
        if name not in sweep:
            raise InputError(f"found no column {name!r}, allowed: {', '.join(map(str, sweep.columns))}")
    runs = sweep[sweep["error"].fillna("") == ""] if "error" in sweep else sweep
    if runs.empty:
        raise InputError(f"nothing to draw: of {len(sweep):,} runs none came to an end")
    return runs


def _groups(runs: DataFrame, key: str) -> Iterator[tuple[Any, DataFrame]]:
    """The runs by a column, in the order in which its values first appear."""
    for value in dict.fromkeys(runs[key]):
        yield value, runs[runs[key] == value]


def _places(column: Any) -> tuple[dict[Any, float], list[str]]:
    """Where each value of x stands; with names, where they are not all numbers."""
    values = sorted(set(column), key=_order)
    if all(_is_number(value) for value in values):
        return {value: float(value) for value in values}, []
    return {value: float(i) for i, value in enumerate(values)}, [_name(value) for value in values]


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _order(value: Any) -> tuple[bool, float, str]:
    """Numbers by size, then the rest by name."""
    return (False, float(value), "") if _is_number(value) else (True, 0.0, str(value))


def _name(value: Any) -> str:
    return f"{value:,g}" if _is_number(value) else plain(str(value), 24)


def _x_axis(ax: Axes, places: dict[Any, float], names: list[str]) -> None:
    """Ticks at the values, as far as they are apart; on a log scale where they span much."""
    at = list(places.values())
    if names:
        ax.set_xticks(at, names)
        ax.set_xlim(-0.5, len(at) - 0.5)
        return
    low, high = at[0], at[-1]
    if low > 0 and high >= 16 * low:
        ax.set_xscale("log", base=2)
        ax.set_xlim(low / 1.15, high * 1.15)
    else:
        ax.set_xlim(0 if low >= 0 else low, high * 1.05 or 1)
    ends = ax.transData.transform([(value, 0) for value in at])[:, 0] / ax.bbox.width
    shown = [0]
    for i in range(1, len(at)):
        if ends[i] - ends[shown[-1]] > 0.07:
            shown.append(i)
    ax.set_xticks([at[i] for i in shown], [f"{at[i]:,.6g}" for i in shown])
    ax.set_xticks([], minor=True)
