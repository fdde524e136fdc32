"""Results for people at a terminal: variants side by side, then what is wrong and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from sim.engine.options import Options
from sim.events import GRAVE, Finding
from sim.report.text import (
    SHOWN_FINDINGS,
    case_name,
    evidence_lines,
    failure_lines,
    failure_name,
    finding_line,
    findings_of,
    one_line,
    plural,
    roots_first,
    summary,
)
from sim.result import Failure, Outcome, Result, States
from sim.truth import SEVERAL

if TYPE_CHECKING:
    from sim.engine.rules import Rules

Row = tuple[str, Callable[[Outcome], str]]
READY_FINDINGS = 3
"""Findings in a line that is ready to be expected."""
_GAP = 2
"""Characters between two columns."""


def head(options: Options) -> str:
    """The line before a run: grid, hash unit, minimum cacheable prefix, blocks that a request pins."""
    parts = [f"grid {grid(options)}" if options.recurrent else "no recurrent group", f"hash unit {options.hash_unit}"]
    if options.enable_prefix_caching:
        shortest = shortest_cacheable(options)
        never = (
            f" (above max_model_len {options.max_model_len}: no hit ever)" if shortest > options.max_model_len else ""
        )
        parts.append(f"minimum cacheable prefix {shortest} tokens (first repeat){never}")
    else:
        parts.append("prefix caching off")
    parts.append(f"a request pins {' + '.join(_pinned(options))}")
    if options.attention:
        room = options.num_blocks * min(options.groups[i].block_size for i in options.attention)
        parts.append(f"the pool's {options.num_blocks:,} blocks are {room:,} tokens of attention")
    return " · ".join(parts)


def grid(options: Options) -> int:
    """The block size that the split aligns to, by the rule in force (tokens)."""
    return _rules(options).grid(options)


def shortest_cacheable(options: Options) -> int:
    """The shortest prompt (tokens) of which an exact repeat can be hit.

    One token is always computed, so one unit of a hit (a hash unit where hits are finer than a block, else a scheduler
    block) and a token; where a look-ahead drafter gives up a unit, two. Up to vLLM 0.29 it gives up a block: two
    recurrent (or scheduler) blocks, and an attention block more than one. A third sender may hit earlier: attention
    then knows a junction, at which the second one stopped.
    """
    rules = _rules(options)
    fine = rules.fine_hits.on(options)
    unit = options.hash_unit if fine else options.scheduler_block_size
    if not rules.drafter_guard.lookup_drops(options):
        return unit + 1
    if rules.boundaries.tail_drops:
        return 2 * unit
    block = max(options.groups[i].block_size for i in options.recurrent) if fine else unit
    dropped = max((options.groups[i].block_size for i in options.attention), default=0)
    return max(2 * block, block + dropped + 1)


def _rules(options: Options) -> Rules:
    from sim.engine.presets import table
    from sim.engine.rules import resolve

    return resolve(table(options.preset, options.rules))


def _pinned(options: Options) -> Iterator[str]:
    for i in options.recurrent:
        yield f"{2 + options.speculative.num_speculative_tokens} blocks of {options.groups[i].name}"
    for i in options.attention:
        group = options.groups[i]
        if group.sliding_window:
            most = -(-(group.sliding_window - 1 + options.max_num_batched_tokens) // group.block_size) + 1
            yield f"up to {most} blocks of {group.name}"
        else:
            yield f"1 per {group.block_size} tokens of {group.name}"


def print_result(result: Result, console: Console, verbose: bool = False) -> None:
    """The comparison of a scenario's variants, their findings, and what was expected otherwise."""
    title = " — ".join(one_line(part) for part in (result.scenario, result.title) if part)
    _say(console, Text(title, style="bold"))
    if result.source:
        _say(console, Text(one_line(result.source), style="dim"))
    _compare(result, console, verbose)
    for variant, outcome in result.variants.items():
        _print_findings(variant, outcome, console, verbose)
        if verbose:
            _print_requests(variant, outcome, console)
    _print_verdict(result, console)


def _print_requests(variant: str, outcome: Outcome, console: Console) -> None:
    """Hit tokens and prefill chunk ends of each request."""
    for case, one in (outcome.cases or {"": outcome}).items():
        if one.ends:
            _say(console, Text(f"{case_name(variant, case)}: requests"))
        for request, ends in one.ends.items():
            hit = one.hits.get(request)
            started = "never admitted" if hit is None else f"hit {hit:,}"
            started += f", loaded {one.loads[request]:,}" if one.loads.get(request) else ""
            _say(console, Text(f"  {one_line(request)}: {started}, ends {', '.join(map(str, ends)) or '-'}"))


def _say(console: Console, text: Text) -> None:
    """One line, whatever the width: a terminal folds it, a pipe keeps it whole."""
    console.print(text, soft_wrap=True)


def print_trimmed(table: RenderableType, console: Console) -> None:
    """A table without the spaces that pad its lines."""
    with console.capture() as shown:
        console.print(table)
    for line in shown.get().splitlines():
        _say(console, Text.from_ansi(line.rstrip()))


def _compare(result: Result, console: Console, verbose: bool) -> None:
    rows = _rows(result, verbose)
    label_width = max(len(label) for label, _ in rows)
    columns = [
        (one_line(name), [show(outcome) for _, show in rows], outcome.poisoned > 0)
        for name, outcome in result.variants.items()
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
    loaded: list[Row] = []
    if any(outcome.loaded_tokens for outcome in result.variants.values()):
        loaded = [("loaded tokens", lambda o: f"{o.loaded_tokens:,}")]
    rejected: list[Row] = []
    if any(outcome.rejected for outcome in result.variants.values()):
        rejected = [("rejected", lambda o: f"{o.rejected:,}")]
    rows: list[Row] = [
        ("preset", lambda o: one_line(o.preset) or "-"),
        *_overrides(result),
        ("requests", lambda o: _of(o.finished, o.requests, "finished")),
        ("steps", lambda o: f"{o.steps:,}"),
        ("chunks", lambda o: f"{o.chunks:,}"),
        ("poisoned", poisoned_text),
        ("wrong restores", lambda o: f"{o.wrong_restores:,}"),
        ("requests on a wrong state", lambda o: _share(o.tainted_requests, o.requests)),
        ("hit rate", lambda o: _percent(o.hit_tokens, o.prompt_tokens)),
        *loaded,
        ("deferred", lambda o: f"{o.deferred:,}"),
        ("same-step refused", lambda o: f"{o.same_step_refused:,}"),
        ("null boundaries", lambda o: f"{o.null_boundaries:,}"),
        ("materialized boundaries", lambda o: f"{o.materialized_boundaries:,}"),
        ("preempted", lambda o: f"{o.preempted:,}"),
        ("evicted", lambda o: f"{o.evicted:,}"),
        *((f"TTFT {name} ({unit})", _ttft(name, result.clock)) for name in ("p50", "p95", "p99")),
        *rejected,
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


def _overrides(result: Result) -> list[Row]:
    """A row for each rule that some variant takes otherwise than its preset."""
    from sim.engine.presets import PRESETS

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
    parts = [truth.state, truth.dtype if truth.family != "ring" else "uint64"]
    parts += [truth.kernel] * (truth.kernel != "sequential") + [truth.rounding] * (truth.rounding != "nearest")
    return " ".join(parts)


def _measured(states: States | None, verdict: str) -> str:
    return "-" if states is None else f"{states.verdicts.get(verdict, 0):,}"


def _noise(outcome: Outcome) -> str:
    states = outcome.states
    worst = f" (up to {states.worst[0]['rel_error']:.1e})" if states is not None and states.worst else ""
    return _measured(states, "noise") + worst


def _wrong(outcome: Outcome) -> str:
    """How many, and how far off the nearest of them is."""
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
    _say(console, Text(f"{one_line(variant)}: {plural(len(findings), 'finding')}", style="bold"))
    case = ""
    shown = findings if verbose else findings[:SHOWN_FINDINGS]
    causes = {finding.root for _, finding in findings}
    for name, finding in shown:
        if name != case:
            case = name
            _say(console, Text(f"  {one_line(case_name(variant, case))}"))
        _print_finding(finding, console, is_cause=finding.id in causes)
    if len(findings) > len(shown):
        counts = summary(finding for _, finding in findings)
        _say(console, Text(f"  … and {len(findings) - len(shown):,} more; in all: {counts}"))
    console.print()


def _print_finding(finding: Finding, console: Console, is_cause: bool) -> None:
    style = "red" if finding.severity == "poison" and finding.root is None else ""
    _say(console, Text(f"  {finding_line(finding)}{f'  (#{finding.id})' if is_cause else ''}", style=style))
    for line in evidence_lines(finding):
        _say(console, Text(f"      {line}", style="dim"))


def print_expectations(result: Result, seconds: float, console: Console) -> None:
    """A scenario as one line of a check, and beneath it what was expected otherwise or is poisoned unexpectedly."""
    unexpected = result.unexpected
    if result.failures:
        verdict = plural(len(result.failures), "expectation") + " failed"
    elif unexpected:
        verdict = poisoned_verdict(result)
    else:
        verdict = "as expected" if result.expected else "nothing poisoned; the file expects nothing"
    failed = bool(result.failures or unexpected)
    line = f"{'FAIL' if failed else 'ok  '} {one_line(result.path or result.scenario)}: {verdict} ({seconds:.1f} s)"
    _say(console, Text(line, style="red" if failed else ""))
    for failure in result.failures:
        _print_failure(failure, console)
    for name in dict.fromkeys([*unexpected, *(failure.variant for failure in result.failures)]):
        if name in result.variants and _is_poisoned(result.variants[name]):
            _print_ready(name, result.variants[name], console)


def _print_ready(variant: str, outcome: Outcome, console: Console) -> None:
    """The first roots, and a line that would expect them."""
    roots = [(case, f) for case, f in roots_first(findings_of(outcome)) if f.severity == "poison" and f.root is None]
    for case, finding in roots[:READY_FINDINGS]:
        _say(console, Text(f"    {one_line(case_name(variant, case))}: {finding_line(finding)}"))
    _say(console, Text(f"    {one_line(variant)}: expect: {ready_expectation(outcome)}"))


def ready_expectation(outcome: Outcome) -> str:
    """What a scenario file would say to expect this outcome's poison: YAML on one line."""
    from yaml import safe_dump

    keys = ("invariant", "request", "column", "claimed", "held")
    roots = [f for f in outcome.findings if f.severity == "poison" and f.root is None]
    entries = [{key: getattr(f, key) for key in keys if getattr(f, key) is not None} for f in roots[:READY_FINDINGS]]
    expect = {"poisoned": outcome.poisoned, "findings": {"contains": entries}}
    return str(safe_dump(expect, default_flow_style=True, sort_keys=False, width=inf, allow_unicode=True)).strip()


def poisoned_verdict(result: Result) -> str:
    """What is said where variants are poisoned that expect nothing."""
    if not result.expected:
        return "poisoned, and the file expects nothing"
    return f"poisoned, and nothing is expected of {', '.join(map(one_line, result.unexpected))}"


def _is_poisoned(outcome: Outcome) -> bool:
    return any(finding.severity in GRAVE for _, finding in findings_of(outcome))


def _print_verdict(result: Result, console: Console) -> None:
    for failure in result.failures:
        _print_failure(failure, console)
    if result.failures:
        _say(console, Text(plural(len(result.failures), "expectation") + " failed", style="bold red"))
    elif result.expected and result.unexpected:
        _say(console, Text(poisoned_verdict(result), style="bold red"))
    elif result.expected:
        _say(console, Text("as expected", style="green"))
    elif any(map(_is_poisoned, result.variants.values())):
        _say(console, Text("poisoned" + ", and the file expects nothing" * result.is_scenario, style="bold red"))
    else:
        hits = any(outcome.restores or outcome.loaded_tokens for outcome in result.variants.values())
        proof = "" if hits else ", but nothing was hit either: that proves nothing"
        _say(console, Text("nothing poisoned" + proof + "; the file expects nothing" * result.is_scenario))


def _print_failure(failure: Failure, console: Console) -> None:
    _say(console, Text(f"expectation failed  {failure_name(failure)}", style="red"))
    for line in failure_lines(failure):
        _say(console, Text(f"    {line}"))
