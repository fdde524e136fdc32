"""Conformance as a table for a terminal: scenario by release, and what diverges first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stateat.sim.conformance.compare import Conformance, Decisions, Divergence
from stateat.sim.conformance.recording import Recording
from stateat.sim.errors import InputError
from stateat.sim.printable import one_line, plural

MARKS = {
    "equal": ("=", "green"),
    "divergent": ("DIFF", "bold red"),
    "unsupported": ("-", "dim"),
    "error": ("ERR", "bold red"),
}


def print_conformance(results: Sequence[Conformance], console: Console, engine: str = "") -> None:
    """A row for each scenario, a column for each release; beneath it each first divergence.

    ``engine``: the live engine that met the recordings; '' for the presets. A scenario that was recorded more than once
    has a row for each.
    """
    if engine:
        whose = "each release" if engine == "vllm" else engine
        console.print(Text(f"{one_line(whose)} against what was recorded of:"), soft_wrap=True)
    releases = sorted({r.release for r in results}, key=lambda v: [int(part) for part in v.split(".")])
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("scenario", no_wrap=True)
    for release in releases:
        table.add_column(release, justify="right")
    rows: dict[str, list[dict[str, tuple[str, str]]]] = {}
    for r in results:
        same = rows.setdefault(r.scenario, [])
        row = next((row for row in same if r.release not in row), None)
        if row is None:
            same.append(row := {})
        row[r.release] = MARKS[r.status]
    for scenario, same in rows.items():
        for row in same:
            marks = [row.get(release, ("", "")) for release in releases]
            table.add_row(one_line(scenario), *(Text(mark, style=style) for mark, style in marks))
    console.print(table)
    console.print()
    for result in results:
        if result.first_divergence is not None:
            _print_divergence(result, result.first_divergence, console)
    counts = Counter(r.status for r in results)
    summary = ", ".join(f"{counts[status]:,} {status}" for status in MARKS if counts[status])
    console.print(Text(f"{summary} (=: equal, -: the release has no such thing)"), soft_wrap=True)


def _print_divergence(result: Conformance, first: Divergence, console: Console) -> None:
    where = " ".join(
        part
        for part in (
            f"step {first.step}" if first.step is not None else "",
            f"request {first.request}" if first.request is not None else "",
            first.what,
        )
        if part
    )
    console.print(Text(f"{result.scenario} {result.release}: {where}", style="bold red"), soft_wrap=True)
    console.print(Text(f"    recorded  {first.recorded}"), soft_wrap=True)
    rule = f"  (ended by {first.rule})" if first.rule else ""
    console.print(Text(f"    ours      {first.ours}{rule}"), soft_wrap=True)


def print_step(recording: Recording, ours: Decisions, step: int, console: Console) -> None:
    """Print one step of both sides, with the rule that ended each of our chunks."""
    recorded = next((s for s in recording.result["steps"] if s["n"] == step), None)
    theirs = {row[0]: row[1:] for row in recorded["scheduled"]} if recorded else {}
    own = ours.scheduled.get(step, {})
    if recorded is None and not own:
        last = max((*(s["n"] for s in recording.result["steps"]), *ours.scheduled), default=0)
        raise InputError(f"--step: found {step}, which schedules nothing in {recording.scenario}; the last is {last}")
    title = f"{recording.scenario} {recording.release}: step {step}, {plural(len(own), 'chunk')} (start, end, drafts)"
    console.print(Text(title, style="bold"), soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("request", "recorded", "ours", "ended by"):
        table.add_column(name)
    for request in dict.fromkeys((*theirs, *own)):
        same = list(theirs.get(request, ())) == list(own.get(request, ()))
        stop = ours.stops.get((step, request), "fast-forwarded" if request in own else "")
        cells = (request, str(theirs.get(request, "-")), str(list(own[request])) if request in own else "-", stop)
        table.add_row(*(Text(one_line(cell), style="" if same else "red") for cell in cells))
    console.print(table)
    preempted = recorded["preempted"] if recorded else []
    console.print(Text(f"preempted: recorded {preempted}, ours {ours.preempted.get(step, [])}"), soft_wrap=True)
