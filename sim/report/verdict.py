"""Whether a scenario came to what it expects, and what there is to expect where it did not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from rich.console import Console
from rich.text import Text

from sim.events import Finding
from sim.report.lines import say
from sim.report.text import (
    case_name,
    failure_lines,
    failure_name,
    finding_line,
    findings_of,
    one_line,
    plural,
    repeats,
    roots_first,
    wrongs,
)
from sim.result import Outcome, Result

READY_FINDINGS = 3
"""Findings in a line that is ready to be expected."""


def print_expectations(result: Result, seconds: float, console: Console) -> None:
    """A scenario as one line of a check, and beneath it what was expected otherwise, or is unexpectedly wrong."""
    unexpected = result.unexpected
    failed = bool(result.failures or unexpected)
    name = one_line(result.path or result.scenario)
    line = f"{'FAIL' if failed else 'ok  '} {name}: {verdict(result)} ({seconds:.1f} s)"
    say(console, Text(line, style="red" if failed else ""))
    _print_failures(result, console)
    for name in dict.fromkeys([*unexpected, *(failure.variant for failure in result.failures)]):
        if name in result.variants and name not in result.elsewhere:
            _print_ready(name, result.variants[name], console)


def print_sum(results: Sequence[Result], files: int, skipped: int, console: Console) -> None:
    """The last line of a check of several files. Those that are neither here nor skipped could not be run."""
    passed = [result for result in results if not (result.failures or result.unexpected)]
    expected = sum(result.expected for result in passed)
    parts = [f"{expected} as expected", f"{len(results) - len(passed)} failed", f"{skipped} skipped"]
    others = {"compared with nothing": len(passed) - expected, "could not be run": files - skipped - len(results)}
    parts += [f"{count} {what}" for what, count in others.items() if count]
    say(console, Text(f"{plural(files, 'file')}: {', '.join(parts)}"))


def _print_ready(variant: str, outcome: Outcome, console: Console) -> None:
    """The first causes of what is grave, and a line that would expect them."""
    if not (outcome.grave or outcome.livelock):
        return
    for case, (finding, *again) in repeats(_causes(findings_of(outcome))):
        say(console, Text(f"    {one_line(case_name(variant, case))}: {finding_line(finding, again)}"))
    say(console, Text(f"    {one_line(variant)}: expect: {ready_expectation(outcome)}"))


def _causes(findings: Iterable[tuple[str, Finding]]) -> list[tuple[str, Finding]]:
    """The first roots, and the first request that waits in vain, each with its case."""
    ordered = roots_first(findings)
    roots = [pair for pair in ordered if pair[1].severity == "poison" and pair[1].root is None]
    return roots[:READY_FINDINGS] + [pair for pair in ordered if pair[1].severity == "liveness"][:1]


def ready_expectation(outcome: Outcome) -> str:
    """What a scenario file would say to expect this outcome's poison, and that it never ends: YAML on one line."""
    from yaml import safe_dump

    keys = ("invariant", "request", "column", "claimed", "held")
    found = [finding for _, finding in _causes(("", finding) for finding in outcome.findings)]
    entries = [{key: getattr(f, key) for key in keys if getattr(f, key) is not None} for f in found]
    expect: dict[str, Any] = {"poisoned": outcome.poisoned} if outcome.poisoned or not outcome.livelock else {}
    expect |= {"livelock": True} if outcome.livelock else {}
    expect |= {"findings": {"contains": entries}}
    return str(safe_dump(expect, default_flow_style=True, sort_keys=False, width=inf, allow_unicode=True)).strip()


def verdict(result: Result) -> str:
    """Whether all is as expected, in the same words wherever it is said, and what was compared with nothing."""
    parts = []
    judged = [name for name in result.variants if name not in result.uncompared]
    if result.failures:
        parts.append(plural(len(result.failures), "expectation") + " failed")
    elif result.unexpected:
        parts.append(_unexpected(result))
    elif result.expected:
        parts.append("as expected")
    elif judged:
        hits = any(result.variants[name].restores or result.variants[name].loaded_tokens for name in judged)
        whole = not any(result.variants[name].not_judged for name in judged)
        parts.append(
            ("nothing poisoned" if whole else "nothing poisoned of what was judged")
            + ("" if hits else ", but nothing was hit either: that proves nothing")
        )
        if result.is_scenario:
            where = " of this release" if set(judged) <= set(result.elsewhere) else ""
            parts.append(f"the file expects nothing{where}")
    unjudged = sum(outcome.not_judged for outcome in result.variants.values())
    if unjudged:
        what = "1 claim or hit" if unjudged == 1 else f"{unjudged:,} claims or hits"
        parts.append(f"{what} not judged, of slots whose write is not in the log")
    if result.uncompared:
        parts.append(f"not compared: {', '.join(map(one_line, result.uncompared))}")
    return "; ".join(parts)


def _unexpected(result: Result) -> str:
    """What is said where variants that expect nothing are poisoned, read wrong states or never end."""
    outcomes = [result.variants[name] for name in result.unexpected]
    grave = dict.fromkeys(noun if noun == "poisoned" else f"{noun}s" for o in outcomes if o.grave for noun in wrongs(o))
    what = " and ".join([*grave, *["never ends"] * any(o.livelock for o in outcomes)])
    if not result.is_scenario:
        return what
    if not result.expected:
        return f"{what}, and the file expects nothing"
    return f"{what}, and nothing is expected of {', '.join(map(one_line, result.unexpected))}"


def print_verdict(result: Result, console: Console) -> None:
    """The last line of a replay: whether all is as expected, and what was expected otherwise."""
    _print_failures(result, console)
    style = "bold red" if result.failures or result.unexpected else "green" if result.expected else ""
    say(console, Text(verdict(result), style=style))


def _print_failures(result: Result, console: Console) -> None:
    for failure in result.failures:
        say(console, Text(f"expectation failed  {failure_name(failure)}", style="red"))
        for line in failure_lines(failure):
            say(console, Text(f"    {line}"))
    for variant in dict.fromkeys(f.variant for f in result.failures if f.variant in result.elsewhere):
        text = "the file expects nothing of this release, on which nothing may be poisoned and a run must end"
        say(console, Text(f"    {one_line(variant)}: {text}"))
