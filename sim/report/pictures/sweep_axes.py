"""Axes that the pictures of a sweep share: which runs they show, how series look, and where values of a key stand."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Real
from typing import TYPE_CHECKING, Any

from stateat.sim.errors import InputError
from stateat.sim.report.pictures.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

COLORS = (BLUE, ORANGE, GREEN, PURPLE, SKY, INK)
MARKERS = ("o", "s", "^", "D", "v", "P")
LINES = ("-", "--", "-.", ":")
MOST_SERIES = len(MARKERS) * len(LINES)


def good(sweep: DataFrame, *columns: str) -> DataFrame:
    """The runs that came to an end, with "none" for a value of these columns that is null; InputError if there is no
    run, or a column is missing."""
    for name in columns:
        if name not in sweep:
            raise InputError(f"found no column {name!r}, allowed: {', '.join(map(str, sweep.columns))}")
    runs = sweep[sweep["error"].fillna("") == ""] if "error" in sweep else sweep
    if runs.empty:
        raise InputError(f"nothing to draw: of {len(sweep):,} runs none came to an end")
    named = {name: "none" for name in columns if runs[name].isna().any()} | {"case": ""}
    return runs.assign(
        **{name: runs[name].astype(object).where(runs[name].notna(), text) for name, text in named.items()}
    )


def apart(runs: DataFrame) -> DataFrame:
    """Variants named with their case, where there are cases."""
    cases = runs["case"].astype(str)
    return runs.assign(variant=runs["variant"].astype(str) + cases.where(cases == "", ", " + cases))


def series_style(index: int) -> tuple[str, str, str]:
    """Colour, marker and line of a series: of MOST_SERIES no two have the same marker and line."""
    turn, at = divmod(index, len(COLORS))
    return COLORS[(at + turn) % len(COLORS)], MARKERS[at], LINES[(at + turn) % len(LINES)]


def check_series(count: int, what: str) -> None:
    """Raise InputError for more series than can be told apart."""
    if count > MOST_SERIES:
        raise InputError(f"{what}: found {count} series (variants and cases), allowed at most {MOST_SERIES}")


def groups(runs: DataFrame, key: str) -> Iterator[tuple[Any, DataFrame]]:
    """The runs by a column, in the order in which its values first appear."""
    for value in dict.fromkeys(runs[key]):
        yield value, runs[runs[key] == value]


def places_of(column: Any) -> tuple[dict[Any, float], list[str]]:
    """Return where each value of x stands; with names, where they are not all numbers."""
    values = sorted(set(column), key=order)
    if all(_is_number(value) for value in values):
        return {value: float(value) for value in values}, []
    return {value: float(i) for i, value in enumerate(values)}, [name_of(value) for value in values]


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def order(value: Any) -> tuple[bool, float, str]:
    """Numbers by size, then the rest by name."""
    return (False, float(value), "") if _is_number(value) else (True, 0.0, str(value))


def name_of(value: Any) -> str:
    return f"{value:,g}" if _is_number(value) else plain(str(value), 24)


def x_axis(ax: Axes, places: dict[Any, float], names: list[str]) -> None:
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
