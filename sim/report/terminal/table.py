"""Results for people at a terminal: variants side by side, then what is wrong and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stateat.sim.events import Finding, Severity
from stateat.sim.printable import one_line, plural
from stateat.sim.report.terminal.lines import say
from stateat.sim.report.terminal.verdict import print_verdict
from stateat.sim.report.words.failures import case_name
from stateat.sim.report.words.findings import (
    SHOWN_FINDINGS,
    evidence_lines,
    finding_line,
    findings_of,
    repeats,
    roots_first,
    summary,
)
from stateat.sim.run.result import Outcome, Result, States
from stateat.sim.scenario.counts import COUNTS
from stateat.sim.scenario.truth import SEVERAL

Row = tuple[str, Callable[[Outcome], str]]
_GAP = 2
"""Characters between two columns."""


def print_result(result: Result, console: Console, verbose: bool = False) -> None:
    """The comparison of a scenario's variants, their findings, and what was expected otherwise."""
    title = " — ".join(one_line(part) for part in (result.scenario, result.title) if part)
    say(console, Text(title, style="bold"))
    if result.source:
        say(console, Text(one_line(result.source), style="dim"))
    _compare(result, console, verbose)
    for variant, outcome in result.variants.items():
        _print_findings(variant, outcome, console, verbose)
        if verbose:
            _print_requests(variant, outcome, console)
    for variant, outcome in result.variants.items():
        for text in outcome.not_asked:
            say(console, Text(f"{one_line(variant)}: not asked: {text}"))
    print_verdict(result, console)


def _print_requests(variant: str, outcome: Outcome, console: Console) -> None:
    """Hit tokens and prefill chunk ends of each request, as a file expects them."""
    for case, one in (outcome.cases or {"": outcome}).items():
        if one.ends:
            say(console, Text(f"{case_name(variant, case)}: requests"))
        for request, ends in one.ends.items():
            hit = one.hits.get(request)
            started = "never admitted" if hit is None else f"hit {hit}"
            started += f", loaded {one.loads[request]}" if one.loads.get(request) else ""
            say(console, Text(f"  {one_line(request)}: {started}, ends {', '.join(map(str, ends)) or '-'}"))


def _compare(result: Result, console: Console, verbose: bool) -> None:
    rows = _rows(result, verbose)
    label_width = max(len(label) for label, _ in rows)
    columns = [
        (one_line(name), [show(outcome) for _, show in rows], outcome.poisoned > 0)
        for name, outcome in result.variants.items()
    ]
    # A variant of which nothing ran has its column all the same.
    kinds = {each.variant: "skipped" if each.skipped else "not run" for each in result.not_run}
    columns += [
        (one_line(name), [kind if label == "poisoned" else "-" for label, _ in rows], False)
        for name, kind in kinds.items()
        if name not in result.variants
    ]
    longest = max(console.width - label_width - 2 * _GAP, 12)
    widths = [min(max(len(name), *(len(cell) for cell in cells)), longest) for name, cells, _ in columns]
    for batch in _fitting(widths, console.width - label_width - _GAP):
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP, 0, 0))
        table.add_column("", no_wrap=True)
        for i in batch:
            table.add_column(Text(columns[i][0]), justify="right", overflow="fold", width=widths[i])
        for r, (label, _) in enumerate(rows):
            cells = [columns[i][1][r] for i in batch]
            styles = ["bold red" if label == "poisoned" and columns[i][2] else "" for i in batch]
            table.add_row(label, *(Text(cell, style=style) for cell, style in zip(cells, styles, strict=True)))
        console.print(table)
        console.print()


def _fitting(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Columns in groups that fit beside each other, each group at least one."""
    batch: list[int] = []
    used = 0
    for i, width in enumerate(widths):
        if batch and used + width + _GAP > room:
            yield batch
            batch, used = [], 0
        batch.append(i)
        used += width + _GAP
    if batch:
        yield batch


def _rows(result: Result, verbose: bool) -> list[Row]:
    unit = "steps" if result.clock == "steps" else "ms"
    plain = {name: _plain(name) for name, count in COUNTS.items() if count.heading and _worth_a_row(name, result)}

    def named(*names: str) -> list[Row]:
        return [plain.pop(name) for name in names if name in plain]

    rows: list[Row] = [
        ("preset", lambda o: one_line(o.preset) or "-"),
        *_overrides(result),
        ("requests", lambda o: _of(o.finished, o.requests, "finished")),
        *named("steps", "chunks"),
        ("poisoned", poisoned_text),
        *named("wrong_restores"),
        ("requests on a wrong state", lambda o: _share(o.tainted_requests, o.requests)),
        *named("not_judged"),
        ("hit rate", lambda o: _percent(o.hit_tokens, o.prompt_tokens)),
        *named("loaded_tokens", "deferred", "same_step_refused", "null_boundaries", "materialized_boundaries"),
        *named("preempted", "evicted"),
        *((f"TTFT {name} ({unit})", _ttft(name, result.clock)) for name in ("p50", "p95", "p99")),
        *named(*plain),
        ("livelock", lambda o: "yes" if o.livelock else "no"),
    ]
    if any(outcome.states for outcome in result.variants.values()):
        rows += [
            ("states", lambda o: states_text(o.states)),
            (
                "computed by",
                lambda o: "-" if o.states is None else f"{o.states.truth.backend}, {o.states.truth.device}",
            ),
            ("claimed slots exact", lambda o: _measured(o.states, "exact")),
            ("claimed slots with noise", _noise),
            ("claimed slots wrong", _wrong),
        ]
        if any(outcome.not_finite for outcome in result.variants.values()):
            rows.append(("claimed slots not finite", lambda o: _measured(o.states, "not finite")))
    names = list(dict.fromkeys(name for outcome in result.variants.values() for name in outcome.cases))
    if names:
        rows.append(("cases violated", lambda o: f"{o.violated} of {len(o.cases)}" if o.cases else "-"))
    if verbose:
        rows += [(f"poisoned in {one_line(name)}"[:40], _poisoned_in(name)) for name in names]
    return rows


def _worth_a_row(name: str, result: Result) -> bool:
    """True of a count that is shown always, or that some variant has."""
    return not COUNTS[name].rare or any(getattr(outcome, name) for outcome in result.variants.values())


def _plain(name: str) -> Row:
    return COUNTS[name].heading, lambda outcome: f"{getattr(outcome, name):,}"


def _overrides(result: Result) -> list[Row]:
    """A row for each rule that some variant takes otherwise than its preset."""
    from stateat.sim.releases.presets import PRESETS

    names = dict.fromkeys(
        name
        for outcome in result.variants.values()
        for name, value in outcome.rules.items()
        if PRESETS.get(outcome.preset, outcome.rules).get(name) != value
    )
    return [(f"rule {name}", _rule(name)) for name in names]


def _rule(name: str) -> Callable[[Outcome], str]:
    return lambda outcome: one_line(outcome.rules.get(name, "-"))


def poisoned_text(outcome: Outcome) -> str:
    """``3 (1 root)``: never without its roots."""
    return f"{outcome.poisoned:,} ({plural(outcome.poisoned_roots, 'root')})" if outcome.poisoned else "0"


def states_text(states: States | None) -> str:
    """``gated-delta float16``, and what of its arithmetic is not the default."""
    if states is None:
        return "digest"
    truth = states.truth
    if truth.state == SEVERAL:
        return "several, by case"
    parts = [truth.state, truth.stored]
    parts += [truth.form] * (truth.form != "sequential") + [truth.rounding] * (truth.rounding != "nearest")
    return " ".join(parts)


def _measured(states: States | None, verdict: str) -> str:
    return "-" if states is None else f"{states.verdicts.get(verdict, 0):,}"


def _noise(outcome: Outcome) -> str:
    states = outcome.states
    worst = f" (up to {states.worst[0]['rel_error']:.1e})" if states is not None and states.worst else ""
    return _measured(states, "noise") + worst


def _wrong(outcome: Outcome) -> str:
    """Return how many slots are wrong, and how far off the nearest of them is."""
    states = outcome.states
    if states is None:
        return "-"
    wrong = sum(count for verdict, count in states.verdicts.items() if verdict not in ("exact", "noise", "not finite"))
    near = "" if states.nearest_wrong is None else f" (from {states.nearest_wrong:.1e})"
    return f"{wrong:,}{near}"


def _poisoned_in(case: str) -> Callable[[Outcome], str]:
    return lambda outcome: poisoned_text(outcome.cases[case]) if case in outcome.cases else "-"


def _ttft(name: str, clock: str) -> Callable[[Outcome], str]:
    def show(outcome: Outcome) -> str:
        value = outcome.ttft_us.get(name)
        if value is None or value != value:
            return "-"
        return f"{value:,.4g}" if clock == "steps" and value < 1000 else _number(value, clock)

    return show


def _number(value: float, clock: str) -> str:
    return f"{value:,.0f}" if clock == "steps" else f"{value / 1000:,.1f}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({_percent(part, whole)})" if part else "0"


def _of(part: int, whole: int, what: str) -> str:
    return f"{whole:,}" if part == whole else f"{whole:,} ({part:,} {what})"


def _print_findings(variant: str, outcome: Outcome, console: Console, verbose: bool) -> None:
    findings = roots_first(findings_of(outcome))
    if not findings:
        return
    say(console, Text(f"{one_line(variant)}: {plural(len(findings), 'finding')}", style="bold"))
    case = ""
    told = repeats(findings)
    shown = told if verbose else told[:SHOWN_FINDINGS]
    causes = {finding.root for _, finding in findings}
    for name, (finding, *again) in shown:
        if name != case:
            case = name
            say(console, Text(f"  {one_line(case_name(variant, case))}"))
        _print_finding(finding, again, console, causes)
    if len(told) > len(shown):
        left = sum(len(same) for _, same in told[len(shown) :])
        counts = summary(finding for _, finding in findings)
        say(console, Text(f"  … and {left:,} more; in all: {counts}"))
    console.print()


def _print_finding(finding: Finding, again: Sequence[Finding], console: Console, causes: set[int | None]) -> None:
    style = "red" if finding.severity == Severity.POISON and finding.root is None else ""
    numbers = ", ".join(f"#{same.id}" for same in (finding, *again) if same.id in causes)
    say(console, Text(f"  {finding_line(finding, again)}{f'  ({numbers})' if numbers else ''}", style=style))
    for line in evidence_lines(finding):
        say(console, Text(f"      {line}", style="dim"))
