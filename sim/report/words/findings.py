"""Findings in words: a line each, what led to it and what came of it, and how several are ordered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import zip_longest

from stateat.sim.events import Finding, Severity, Write
from stateat.sim.printable import one_line
from stateat.sim.run.result import Outcome

SHOWN_FINDINGS = 10
SHOWN_READERS = 8
SHOWN_SPANS = 4
WRITES = {
    "cow": "copy of a shared slot before it is written",
    "pre": "copy before the step, into the column where its chunk ends",
    "post": "copy after verification, of the boundary that it passed",
    "load": "load from a connector or a tier",
    "place": "placed by the scenario",
}
"""Writes that are no chunk, in words."""
_SEVERITIES = tuple(Severity)


def findings_of(outcome: Outcome) -> Iterator[tuple[str, Finding]]:
    """The findings of a run with the name of their case; '' where there are no cases."""
    if not outcome.cases:
        yield from (("", finding) for finding in outcome.findings)
    for name, case in outcome.cases.items():
        yield from ((name, finding) for finding in case.findings)


def roots_first(findings: Iterable[tuple[str, Finding]]) -> list[tuple[str, Finding]]:
    """Causes before consequences, what poisons before what is only a shape, then in the order of time."""
    return sorted(findings, key=lambda pair: _rank(pair[1]))


def _rank(finding: Finding) -> tuple[bool, int, int, int]:
    return finding.root is not None, _SEVERITIES.index(finding.severity), finding.step, finding.id


def repeats(pairs: Iterable[tuple[str, Finding]]) -> list[tuple[str, list[Finding]]]:
    """Findings in the same order, those that differ in nothing but the step as one."""
    found: dict[tuple[str, Finding], list[Finding]] = {}
    for case, finding in pairs:
        found.setdefault((case, replace(finding, id=0, step=0, time_us=0)), []).append(finding)
    return [(case, same) for (case, _), same in found.items()]


def finding_line(finding: Finding, again: Sequence[Finding] = ()) -> str:
    """``I1 poison  step 1  gdn column 0 (slot 17, request a) is hashed as state@1600 but holds state@364``; ``again``:
    the same once more, in this step or in later ones."""
    steps = [finding.step, *(other.step for other in again)]
    times = f" ({len(steps):,} times)" if len(steps) > len(set(steps)) else ""
    return one_line(f"{finding.invariant} {finding.severity}  {steps_text(steps)}{times}  {finding.message}")


def steps_text(steps: Sequence[int]) -> str:
    """``step 4``, ``steps 1 to 7``, ``steps 1 to 3, 5, 9 to 12``; many gaps: ``40 steps from 1 to 200``."""
    if len(set(steps)) == 1:
        return f"step {steps[0]}"
    spans: list[tuple[int, int]] = []
    for step in sorted(set(steps)):
        if spans and step == spans[-1][1] + 1:
            spans[-1] = spans[-1][0], step
        else:
            spans.append((step, step))
    if len(spans) > SHOWN_SPANS:
        return f"{len(set(steps)):,} steps from {spans[0][0]} to {spans[-1][1]}"
    return f"steps {', '.join(str(a) if a == b else f'{a} to {b}' for a, b in spans)}"


def evidence_lines(finding: Finding) -> Iterator[str]:
    """Return what led to a finding and what came of it, a line each."""
    if finding.write is not None:
        yield one_line(f"written   {write_text(finding.write)}")
    if finding.rel_error is not None:
        yield f"differs   by {finding.rel_error:.2e} of the true state"
    if finding.claimed_by:
        yield one_line(f"claimed   by {finding.claimed_by}")
    if finding.root is not None:
        yield f"caused    by finding #{finding.root}" if finding.root >= 0 else "caused    by what has no finding"
    if finding.readers:
        more = len(finding.readers) - SHOWN_READERS
        names = ", ".join(finding.readers[:SHOWN_READERS]) + (f" and {more:,} more" if more > 0 else "")
        yield one_line(f"restored  by {names}")


def write_text(write: Write) -> str:
    """``by a in step 0: chunk [0, 364)``."""
    if write.kind == "null":
        return "by nobody: memory comes zeroed"
    span = f" [{write.start}, {write.end})" if write.kind == "chunk" else ""
    return f"by {write.request} in step {write.step}: {WRITES.get(write.kind, write.kind)}{span}"


def summary(findings: Iterable[Finding]) -> str:
    """Counts per invariant and verdict: ``I1 wrong offset 3, I1 tainted 12, I2 2``."""
    counts = Counter(f"{f.invariant} {f.verdict}".strip() for f in findings)
    return ", ".join(f"{kind} {count:,}" for kind, count in sorted(counts.items()))


def disagreement(outcome: Outcome, again: Outcome) -> str:
    """Return what differs of a run that was repeated step by step: digests, the first finding that does, or counts."""
    parts = []
    if outcome.digest != again.digest:
        parts.append(f"digests {outcome.digest[:16]} and {again.digest[:16]}")
    if outcome.findings != again.findings:
        pairs = enumerate(zip_longest(outcome.findings, again.findings))
        number, (found, other) = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
        counts = f"{len(outcome.findings):,} and {len(again.findings):,}"
        parts.append(f"findings ({counts}), the first of them #{number}: {_instead(found, other)}")
    if not parts:
        names = [f.name for f in fields(Outcome) if f.compare and getattr(outcome, f.name) != getattr(again, f.name)]
        parts = [f"{name} {getattr(outcome, name)} and {getattr(again, name)}" for name in names]
    return "; ".join(parts)


def _instead(found: Finding | None, again: Finding | None) -> str:
    one, other = ("none" if finding is None else finding_line(finding) for finding in (found, again))
    if found is not None and again is not None and one == other:
        name = next(f.name for f in fields(Finding) if getattr(found, f.name) != getattr(again, f.name))
        one, other = f"{one}, {name} {getattr(found, name)}", str(getattr(again, name))
    return f"{one}; step by step: {other}"
