"""Pictures of a sweep's table, which has a row for each run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InputError
from sim.report.measures import Measure, measure, total
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

_SERIES = (
    (BLUE, "o", "-"),
    (ORANGE, "s", "--"),
    (GREEN, "^", "-."),
    (PURPLE, "D", ":"),
    (SKY, "v", "-"),
    (INK, "P", "--"),
)
"""Colour, marker and line of each series: no two differ in colour alone."""
NO_HITS = "no hits: no conclusion"


def rate(sweep: DataFrame, ax: Axes, *, x: str, per: str = "request", by: str = "variant", label: str = "") -> None:
    """The poisoning rate against a swept key, with its 95 % Wilson interval; a line for each value of ``by``.

    ``per``: ``claim``, ``restore`` or ``request``; ``label``: what the axis says of ``x``. The runs of a point (its
    seeds) are added up.
    """
    what = measure({"claim": "poisoned_per_claim", "restore": "wrong_per_restore"}.get(per, "tainted_per_request"))
    if per not in ("claim", "restore", "request"):
        raise InputError(f"per: found {per!r}, allowed: claim, restore, request")
    _lines(_good(sweep, x, by), ax, x, by, what, label)


def _lines(runs: DataFrame, ax: Axes, x: str, by: str, what: Measure, label: str) -> None:
    """A measure against x, with intervals where it is a proportion; hollow points where nothing was hit."""
    places, names = _places(runs[x])
    top, hollow = 0.0, False
    for (series, mine), (color, marker, line) in zip(_groups(runs, by), cycle(_SERIES), strict=False):
        points = [(places[value], total(what, group)) for value, group in _groups(mine, x)]
        told = [(at, point) for at, point in points if point.concludes]
        ax.plot(
            [at for at, _ in told], [point.value for _, point in told], color=color, marker=marker, linestyle=line,
            linewidth=1.8, markersize=7, markeredgecolor="white", label=plain(str(series), 30), zorder=3,
        )  # fmt: skip
        for at, point in told:
            ax.vlines(at, point.low, point.high, color=color, linewidth=1.6, alpha=0.75, zorder=2)
            ax.plot(
                [at, at], [point.low, point.high], color=color, marker="_", linestyle="none", markersize=8, zorder=2
            )
            top = max(top, point.high)
        if len(told) > 1 and not names:
            lows, highs = [p.low for _, p in told], [p.high for _, p in told]
            ax.fill_between([at for at, _ in told], lows, highs, color=color, alpha=0.12, linewidth=0, zorder=1)
        for at, _ in (pair for pair in points if not pair[1].concludes):
            hollow = True
            ax.plot(
                [at], [0], marker=marker, color=color, markerfacecolor="white", markersize=8, zorder=4, clip_on=False
            )
    ax.set_ylim(0, top * 1.08 or 1)
    _x_axis(ax, places, names)
    frame(ax, label or x, what.label, SIZE)
    if hollow:
        ax.plot([], [], marker="o", color=INK, markerfacecolor="white", linestyle="none", markersize=8, label=NO_HITS)
    legend(ax)


def heat_map(sweep: DataFrame, ax: Axes, *, x: str, y: str, value: str = "tainted_per_request") -> None:
    """A measure over two swept keys: each cell its number, and hatched where nothing was hit.

    ``value``: one of :data:`sim.report.measures.MEASURES`, or a column of the table.
    """
    from matplotlib.patches import Rectangle

    runs, what = _good(sweep, x, y), measure(value)
    if len(variants := list(dict.fromkeys(runs["variant"]))) > 1:
        raise InputError(f"a heat map of one variant: found {', '.join(variants)}; choose one of them")
    columns, rows = (sorted(set(runs[key]), key=_order) for key in (x, y))
    cells = {(a, b): total(what, group) for a, more in _groups(runs, x) for b, group in _groups(more, y)}
    shown = [
        [cells[a, b].value if (a, b) in cells and cells[a, b].concludes else float("nan") for a in columns]
        for b in rows
    ]
    highest = max((value for row in shown for value in row if value == value), default=0.0)
    image = ax.imshow(shown, origin="lower", aspect="auto", cmap="cividis", vmin=0, vmax=highest or 1)
    for j, b in enumerate(rows):
        for i, a in enumerate(columns):
            cell = cells.get((a, b))
            if cell is not None and cell.concludes:
                ink = "black" if cell.value > 0.55 * (highest or 1) else "white"
                ax.text(i, j, what.format(cell.value), ha="center", va="center", fontsize=SIZE, color=ink)
                continue
            ax.add_patch(
                Rectangle((i - 0.5, j - 0.5), 1, 1, facecolor="white", edgecolor=FAINT, hatch="////", zorder=2)
            )
            ax.text(
                i, j, "no hits" if cell else "not run", ha="center", va="center", fontsize=SIZE - 1, zorder=3,
                bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"},
            )  # fmt: skip
    ax.set_xticks(range(len(columns)), [_name(a) for a in columns])
    ax.set_yticks(range(len(rows)), [_name(b) for b in rows])
    frame(ax, x, y, SIZE)
    bar = ax.figure.colorbar(image, ax=ax)
    bar.set_label(what.label, fontsize=SIZE)
    bar.ax.tick_params(labelsize=SIZE - 1, colors=INK)


def before_after(sweep: DataFrame, ax: Axes, *, metric: str = "hit_rate") -> None:
    """A measure of each variant, run by run: a faint line is one point and seed, the mark is the mean.

    Under each later variant stands its mean difference to the first one over the same points and seeds, with the
    95 % bootstrap interval.
    """
    runs, what, top = _good(sweep), measure(metric), 0.0
    variants = list(dict.fromkeys(runs["variant"]))
    keys = [key for key in ("point", "seed", "case") if key in runs]
    paths: dict[Any, dict[int, float]] = {}
    for row, group in enumerate([runs[runs["variant"] == name] for name in variants]):
        color, marker, _ = _SERIES[row % len(_SERIES)]
        values = [total(what, group.iloc[i : i + 1]) for i in range(len(group))]
        for key, point in zip(group[keys].itertuples(index=False, name=None), values, strict=True):
            paths.setdefault(key, {})[row] = point.value
        mean = sum(point.value for point in values) / len(values)
        top = max([top, *(point.value for point in values)])
        ax.plot(
            [row] * len(values),
            [p.value for p in values],
            color=color,
            marker=marker,
            linestyle="none",
            alpha=0.35,
            zorder=2,
        )
        ax.plot([row], [mean], color=color, marker=marker, markersize=12, markeredgecolor="white", zorder=4)
        ax.annotate(
            what.format(mean), (row, mean), (12, 0), textcoords="offset points", fontsize=SIZE, color=INK, va="center",
        )  # fmt: skip
    for path in paths.values():
        ax.plot(list(path), list(path.values()), color=FAINT, linewidth=0.8, zorder=1)
    ax.set_xlim(-0.5, len(variants) - 0.3)
    ax.set_ylim(0, top * 1.08 or 1)
    labels = [plain(name, 24) + _difference(runs, variants[0], name, what) for name in variants]
    ax.set_xticks(range(len(variants)), labels)
    frame(ax, "", what.label, SIZE)


def sweep_picture(sweep: DataFrame, path: str | Path) -> None:
    """What a sweep's table calls for: rate and hit rate against one swept key, or a heat map over two, as a file."""
    check_suffix(path)
    keys = _swept(sweep)
    variants = list(dict.fromkeys(sweep["variant"]))
    if len(keys) == 1:
        figure = canvas(8, 6.4)
        upper, lower = figure.subplots(2, 1, sharex=True)
        rate(sweep, upper, x=keys[0])
        _lines(_good(sweep, keys[0]), lower, keys[0], "variant", measure("hit_rate"), "")
        upper.set_xlabel("")
    elif len(keys) == 2:
        figure = canvas(8, 0.6 + 2.9 * len(variants))
        axes = figure.subplots(len(variants), 1, squeeze=False)[:, 0]
        for name, ax in zip(variants, axes, strict=True):
            heat_map(sweep[sweep["variant"] == name], ax, x=keys[0], y=keys[1])
            ax.set_title(plain(name), fontsize=SIZE + 1, loc="left", color=INK)
    elif not keys:
        figure = canvas(8, 6.4)
        for ax, metric in zip(figure.subplots(2, 1), ("tainted_per_request", "hit_rate"), strict=True):
            before_after(sweep, ax, metric=metric)
    else:
        raise InputError(f"a picture of a sweep: found {len(keys)} swept keys ({', '.join(keys)}), allowed: 0 to 2")
    save(figure, path, dpi=100)


def _difference(runs: DataFrame, first: str, other: str, what: Measure) -> str:
    return ""


def _swept(sweep: DataFrame) -> list[str]:
    """The swept keys that have more than one value."""
    return [name for name in sweep.columns if "." in name and sweep[name].nunique() > 1]


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
    """Ticks at the values; powers of two apart where they are."""
    at = list(places.values())
    if names:
        ax.set_xticks(at, names)
        ax.set_xlim(-0.5, len(at) - 0.5)
        return
    low, high = min(at), max(at)
    if low > 0 and high >= 16 * low:
        ax.set_xscale("log", base=2)
        ax.set_xlim(low / 1.15, high * 1.15)
    else:
        ax.set_xlim(0 if low >= 0 else low, high * 1.05 or 1)
    if len(at) <= 12:
        ax.set_xticks(at, [f"{value:,g}" for value in at])
        ax.set_xticks([], minor=True)
