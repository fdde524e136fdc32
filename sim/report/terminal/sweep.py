"""Results of a sweep: a line for each point and variant, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stateat.sim.printable import one_line, plural
from stateat.sim.sweeps.stats import NO_HITS, PER, paired, rates

if TYPE_CHECKING:
    import pandas as pd

    from stateat.sim.sweeps.plan import Plan

SHOWN = 60
"""Lines of the table; the others are in the file."""
SHOWN_ERRORS = 5
ERROR = 300
"""Characters of one; the file has all."""
WIDTH = 1000
"""Characters, whatever the terminal: half of an interval says nothing."""


COSTS = ("hit_rate", "ttft_p50_us", "steps", "deferred")
"""Columns that variants are compared in, over all points and seeds."""


def print_sweep(plan: Plan, table: pd.DataFrame, console: Console) -> None:
    """Print for each point and variant poisoned claims with the Wilson interval and that over runs, requests on a wrong
    state, the hit rate; then what each variant costs against the first."""
    title = " — ".join(one_line(part) for part in (plan.name, plan.title) if part)
    console.print(Text(title, style="bold"), soft_wrap=True)
    keys = [axis.key for axis in plan.axes]
    by = [*keys, "variant", *(["case"] if any(case for _, case in plan.picks) else [])]
    claims, requests = rates(table, by, "claim"), rates(table, by, "request")
    shown = Table(box=None, pad_edge=False)
    for name in [*short(keys), *by[len(keys) :]]:
        shown.add_column(name, no_wrap=True)
    for name in ("runs", "poisoned", "of claims", "95 %", "95 % (runs)", "requests", "hit rate"):
        shown.add_column(name, justify="right", no_wrap=True)
    for claim, request in zip(claims.head(SHOWN).to_dict("records"), requests.to_dict("records"), strict=False):
        cells = [one_line(_shown(claim[name])) for name in by]
        counts = [f"{claim['runs']:,}", f"{claim['wrong']:,}"]
        if not claim["trials"]:
            why, nothing = claim["conclusion"].split(": ")
            unread = f", {claim['wrong_without_hits']:,} poisoned" if claim["wrong_without_hits"] else ""
            shown.add_row(*map(Text, [*cells, counts[0], f"{why}{unread}", nothing]))
            continue
        found = (
            _percent(claim["rate"]), _between(claim["low"], claim["high"]),
            _between(claim["run_low"], claim["run_high"]), _percent(request["rate"]), _percent(claim["hit_rate"]),
        )  # fmt: skip
        shown.add_row(*map(Text, [*cells, *counts, *found]))
    _print_table(shown, console)
    if len(claims) > SHOWN:
        _say(console, f"… and {len(claims) - SHOWN:,} more (--out keeps all, --json prints all)")
    _print_notes(plan, table, claims, console)
    _print_differences(table, console)


def short(keys: Sequence[str]) -> list[str]:
    """Return as much of each key's end as tells it from the others."""
    parts = [key.split(".") for key in keys]
    sizes = [
        next(
            (n for n in range(1, len(mine)) if sum(other[-n:] == mine[-n:] for other in parts) == 1),
            len(mine),
        )
        for mine in parts
    ]
    return [".".join(mine[-size:]) for mine, size in zip(parts, sizes, strict=True)]


def _print_differences(table: pd.DataFrame, console: Console) -> None:
    first, *others = dict.fromkeys(table["variant"])
    found = [(name, paired(table, first, name, COSTS).to_dict("records")) for name in others]
    if not any(row["pairs"] for _, rows in found for row in rows):
        return
    shown = Table(box=None, pad_edge=False)
    shown.add_column(f"against {one_line(first)}", no_wrap=True)
    steps = set(table["clock"].dropna()) == {"steps"}
    for name in ("pairs", *(name.replace("_us", " (steps)") if steps else name for name in COSTS)):
        shown.add_column(name, justify="right", no_wrap=True)
    for name, rows in found:
        shown.add_row(*map(Text, [one_line(name), f"{rows[0]['pairs']:,}", *map(_difference, rows)]))
    _say(console, "")
    _print_table(shown, console)


def _difference(row: Mapping[str, Any]) -> str:
    """A mean difference, with the interval over pairs; that of a rate in percentage points."""
    if not row["pairs"]:
        return str(row["conclusion"])
    scale, digits, unit = (100, 2, " points") if row["metric"] == "hit_rate" else (1, 1, "")
    mean, low, high = (f"{scale * row[key]:+z,.{digits}f}" for key in ("difference", "low", "high"))
    return f"{mean}{unit}" if isnan(row["low"]) else f"{mean}{unit} [{low}, {high}]"


def _print_table(table: Table, console: Console) -> None:
    lines = "".join(part.text for part in console.render(table, console.options.update(width=WIDTH)))
    for line in lines.splitlines():
        _say(console, line.rstrip())


def _print_notes(plan: Plan, table: pd.DataFrame, claims: pd.DataFrame, console: Console) -> None:
    failed = table[table["error"] != ""]
    counted = int(claims["runs"].sum()) + len(failed)
    if counted < len(table):
        _say(console, f"note: where the seeds change nothing they count as one run ({len(table) - counted:,} repeats)")
    without, unread = (int(claims[name].sum()) for name in ("without_hits", "wrong_without_hits"))
    if unread or (without and not (claims["conclusion"] == NO_HITS).all()):
        read = f"; {plural(unread, 'poisoned slot')} in them, which nobody read" if unread else ""
        _say(console, f"note: {without:,} runs without hits are left out of the rates{read}")
    for text, group in list(failed.groupby("error", sort=False))[:SHOWN_ERRORS]:
        _say(console, f"{len(group):,} failed (first: run {group['run'].iloc[0]}): {one_line(str(text))[:ERROR]}")
    kinds = failed["error"].nunique()
    if kinds > SHOWN_ERRORS:
        _say(console, f"… and {kinds - SHOWN_ERRORS:,} more kinds of errors")


def to_json(plan: Plan, table: pd.DataFrame) -> dict[str, Any]:
    """Rows and rates as plain data; null where there is no number."""
    by = [*(axis.key for axis in plan.axes), "variant", "case"]
    return {
        "sweep": plan.name,
        "rows": _records(table),
        "differences": _differences(table),
        "rates": {per: _records(rates(table, by, per)) for per in PER},
    }


def _differences(table: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Differences by variant but the first, which is the baseline."""
    first, *others = dict.fromkeys(table["variant"])
    return {name: _records(paired(table, first, name, COSTS)) for name in others}


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return json.loads(frame.to_json(orient="records", double_precision=15))  # type: ignore[no-any-return]


def _say(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _percent(rate: float) -> str:
    return "–" if isnan(rate) else f"{100 * rate:.1f} %"


def _between(low: float, high: float) -> str:
    return "–" if isnan(low) else f"[{100 * low:.1f}, {100 * high:.1f}]"
