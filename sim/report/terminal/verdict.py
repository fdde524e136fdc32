"""Verdict on a scenario: does it come to what it expects, and what is there to expect where it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from math import inf
from typing import Any, Self

from rich.console import Console
from rich.text import Text

from stateat.sim.events import Finding, Severity
from stateat.sim.printable import few, one_line, plural, short
from stateat.sim.report.terminal.lines import say
from stateat.sim.report.words.failures import case_name, failure_lines, failure_name
from stateat.sim.report.words.findings import finding_line, findings_of, repeats, roots_first
from stateat.sim.run.result import Outcome, Result

READY_FINDINGS = 3
"""Findings in a line that is ready to be expected."""
NAMED = 8
"""Variants that a verdict names."""


class FileStanding(StrEnum):
    """Word for what a check counts a file as, with the mark of its line."""

    mark: str

    ERROR = "error", "ERR"
    """Something could not be run."""
    FAILED = "failed", "FAIL"
    """Something is not as expected."""
    SKIPPED = "skipped", "skip"
    """Nothing ran."""
    EXPECTED = "expected", "ok"
    """All that was compared is as expected."""
    SILENT = "silent", "ok"
    """Nothing was said to compare it with."""

    def __new__(cls, value: str, mark: str) -> Self:
        word = str.__new__(cls, value)
        word._value_, word.mark = value, mark
        return word

    @property
    def bad(self) -> bool:
        """True if a check fails because of it."""
        return self in (FileStanding.ERROR, FileStanding.FAILED)


def print_expectations(result: Result, seconds: float, console: Console) -> None:
    """A scenario as one line of a check, and beneath it what was expected otherwise, is unexpectedly wrong, or could
    not be run."""
    name = one_line(result.path or result.scenario)
    mark = standing(result).mark
    # Elsewhere the lines below name the engine.
    engines = dict.fromkeys(one_line(outcome.engine) for outcome in result.variants.values() if outcome.engine)
    on = f"on {few(list(engines), NAMED)}, " if engines and mark == "ok" else ""
    line = f"{mark:4} {name}: {verdict(result)} ({on}{seconds:.1f} s)"
    say(console, Text(line, style="red" if standing(result).bad else ""))
    _print_failures(result, console)
    _print_not_run(result, console)
    for name in dict.fromkeys([*result.wrong_where_silent, *(f.variant for f in result.failed_expectations)]):
        if name in result.variants and not result.baseline:
            _print_causes(name, result.variants[name], console, name not in result.elsewhere)


def standing(result: Result) -> FileStanding:
    """Return what a check counts a file as."""
    if any(not each.skipped for each in result.not_run):
        return FileStanding.ERROR
    if result.failed_expectations or result.wrong_where_silent:
        return FileStanding.FAILED
    if not result.variants:
        return FileStanding.SKIPPED
    return FileStanding.EXPECTED if result.held or result.baseline else FileStanding.SILENT


def print_sum(results: Sequence[Result], files: int, skipped: int, console: Console) -> None:
    """The last line of a check of several files. Those that are neither here nor skipped could not be run."""
    counts = Counter(map(standing, results))
    skipped += counts[FileStanding.SKIPPED]
    parts = [
        f"{counts[FileStanding.EXPECTED]} as expected",
        f"{counts[FileStanding.FAILED]} failed",
        f"{skipped} skipped",
    ]
    known = counts[FileStanding.EXPECTED] + counts[FileStanding.FAILED] + counts[FileStanding.SILENT] + skipped
    others = {"compared with nothing": counts[FileStanding.SILENT], "could not be run": files - known}
    parts += [f"{count} {what}" for what, count in others.items() if count]
    # Files that were skipped whole are counted above.
    runs = sum(
        each.skipped for result in results if standing(result) is not FileStanding.SKIPPED for each in result.not_run
    )
    also = [f"; within them {plural(runs, 'run')} skipped"] if runs else []
    say(console, Text("".join([f"{plural(files, 'file')}: {', '.join(parts)}", *also])))


def _print_causes(variant: str, outcome: Outcome, console: Console, ready: bool) -> None:
    """The first causes of what is grave, and where the file may expect them the line that would (``ready``)."""
    if not (outcome.grave or outcome.livelock):
        return
    for case, (finding, *again) in repeats(_causes(findings_of(outcome))):
        say(console, Text(f"    {one_line(case_name(variant, case))}: {finding_line(finding, again)}"))
    if ready:
        say(console, Text(f"    {one_line(variant)}: expect: {ready_expectation(outcome)}"))


def _causes(findings: Iterable[tuple[str, Finding]]) -> list[tuple[str, Finding]]:
    """The first roots, and the first request that waits in vain, each with its case."""
    ordered = roots_first(findings)
    roots = [pair for pair in ordered if pair[1].severity == Severity.POISON and pair[1].root is None]
    return roots[:READY_FINDINGS] + [pair for pair in ordered if pair[1].severity == Severity.LIVENESS][:1]


def ready_expectation(outcome: Outcome) -> str:
    """Return the YAML, on one line, with which a file would expect this outcome's poison, and that it never ends."""
    from yaml import safe_dump

    keys = ("invariant", "request", "column", "claimed", "held")
    found = [finding for _, finding in _causes(("", finding) for finding in outcome.findings)]
    entries = [{key: getattr(f, key) for key in keys if getattr(f, key) is not None} for f in found]
    expect: dict[str, Any] = {"poisoned": outcome.poisoned} if outcome.poisoned or not outcome.livelock else {}
    expect |= {"livelock": True} if outcome.livelock else {}
    expect |= {"findings": {"contains": entries}}
    return str(safe_dump(expect, default_flow_style=True, sort_keys=False, width=inf, allow_unicode=True)).strip()


def verdict(result: Result) -> str:
    """Return what could not be run, whether all that was compared is as expected, in the same words wherever it is
    said, what was compared with nothing, and what was skipped."""
    parts = [_without_outcome(result, "error", "could not be run")]
    if result.baseline and result.variants:
        parts.append(_against_baseline(result))
    elif result.failed_expectations:
        parts.append(plural(len(result.failed_expectations), "expectation") + " failed")
    elif result.wrong_where_silent:
        parts.append(_unexpected(result))
    elif result.held:
        parts.append("all else as expected" if parts[0] else "as expected")
    else:
        parts += _of_nothing(result)
    unjudged = sum(outcome.not_judged for outcome in result.variants.values())
    if unjudged:
        what = "1 claim or hit" if unjudged == 1 else f"{unjudged:,} claims or hits"
        parts.append(f"{what} not judged: the write of its slot, or the end of its step, is not in the log")
    if result.unheld:
        names = few([one_line(name) for name in result.unheld], NAMED)
        parts.append(f"nothing that the file expects of {names} was compared")
    if result.uncompared:
        parts.append(f"not compared: {few([one_line(name) for name in result.uncompared], NAMED)}")
    parts.append(_without_outcome(result, "skipped", "skipped"))
    return "; ".join(filter(None, parts))


def _without_outcome(result: Result, kind: str, what: str) -> str:
    names = [one_line(case_name(n.variant, n.case)) for n in result.not_run if n.kind == kind]
    return f"{what}: {few(names, NAMED)}" if names else ""


def _of_nothing(result: Result) -> list[str]:
    """Return what is said where nothing failed, and nothing was compared with an expectation."""
    judged = {name: outcome for name, outcome in result.variants.items() if name not in result.uncompared}
    if not judged:
        return []
    if not result.judged:
        return ["nothing was judged"]
    parts = [_grave(judged.values())]
    if not parts[0]:
        hits = any(outcome.restores or outcome.loaded_tokens for outcome in judged.values())
        whole = not any(outcome.not_judged for outcome in judged.values())
        parts = [
            ("nothing poisoned" if whole else "nothing poisoned of what was judged")
            + ("" if hits else ", but nothing was hit either: that proves nothing")
        ]
    if result.is_scenario and not result.unheld:
        away = set(judged) <= set(result.elsewhere)
        where = " of this engine" if away else " of what ran" if result.has_expectations else ""
        parts.append(f"the file expects nothing{where}")
    return parts


def _against_baseline(result: Result) -> str:
    new = plural(len(result.failed_expectations), "failure") if result.failed_expectations else "nothing"
    also = f"; also in the baseline: {len(result.in_baseline):,}" if result.in_baseline else ""
    return f"{new} new against the baseline {one_line(result.baseline)}{also}"


def _unexpected(result: Result) -> str:
    """Return what is said where variants that expect nothing are poisoned, read wrong states or never end."""
    names = result.wrong_where_silent
    what = _grave([result.variants[name] for name in names])
    if not result.is_scenario:
        return what
    if not result.has_expectations:
        return f"{what}, and the file expects nothing"
    return f"{what}, and nothing is expected of {few([one_line(name) for name in names], NAMED)}"


def _grave(outcomes: Collection[Outcome]) -> str:
    """Return what is wrong in any of them, in words; '' for nothing."""
    grave = dict.fromkeys(noun if noun == "poisoned" else f"{noun}s" for o in outcomes if o.grave for noun in o.wrongs)
    return " and ".join([*grave, *["never ends"] * any(o.livelock for o in outcomes)])


def screen(result: Result, most: int) -> str:
    """A result on a few lines: what each of at most so many variants came to, what did not run, and the verdict."""
    lines = [f"{short(result.scenario)}: {short(verdict(result), 300)}"]
    rows = [(short(name, 40), outcome.text) for name, outcome in result.variants.items()]
    rows += [(short(case_name(n.variant, n.case), 40), f"not run ({n.kind}): {short(n.why)}") for n in result.not_run]
    width = max((len(name) for name, _ in rows[:most]), default=0)
    lines += [f"  {name:{width}}  {text}" for name, text in rows[:most]]
    lines += [f"  and {len(rows) - most:,} more"] if len(rows) > most else []
    return "\n".join(lines)


def print_verdict(result: Result, console: Console) -> None:
    """The last line of a replay: whether all is as expected, and what was expected otherwise."""
    _print_failures(result, console)
    _print_not_run(result, console)
    good = standing(result) is FileStanding.EXPECTED and not result.not_run
    say(console, Text(verdict(result), style="bold red" if standing(result).bad else "green" if good else ""))


def _print_not_run(result: Result, console: Console) -> None:
    """Print what did not run, and why: a line for each reason, with what the engine wrote beneath it."""
    reasons: dict[tuple[str, bool, str], list[str]] = {}
    for each in result.not_run:
        reasons.setdefault((each.kind, each.known, each.why), []).append(one_line(case_name(each.variant, each.case)))
    for (kind, is_known, why), names in reasons.items():
        style = "" if kind == "skipped" else "red"
        where = few(names, NAMED)
        known = "also in the baseline: " if is_known else ""
        first, *rest = why.splitlines() or [""]
        what = "skipped" if kind == "skipped" else "could not be run"
        say(console, Text(f"{what}  {where}: {known}{one_line(first)}", style))
        for line in rest:
            say(console, Text(f"    {one_line(line)}", style="dim"))


def _print_failures(result: Result, console: Console) -> None:
    for failure in result.failed_expectations:
        what = "new against the baseline" if result.baseline else "expectation failed"
        say(console, Text(f"{what}  {failure_name(failure)}", style="red"))
        for line in failure_lines(failure):
            say(console, Text(f"    {line}"))
    for failure in result.in_baseline:
        say(console, Text(f"also in the baseline  {failure_name(failure)}", style="dim"))
        for line in failure_lines(failure):
            say(console, Text(f"    {line}", style="dim"))
    if result.baseline:
        return
    for variant in dict.fromkeys(f.variant for f in result.failed_expectations if f.variant in result.elsewhere):
        text = "the file expects nothing of this engine, on which nothing may be poisoned and a run must end"
        say(console, Text(f"    {one_line(variant)}: {text}"))
