"""Findings and failed expectations in words: what the table and JUnit both say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import zip_longest
from typing import Any

from stateat.sim.events import Finding, Severity, Write
from stateat.sim.printable import one_line
from stateat.sim.run.result import Failure, Outcome

SHOWN_FINDINGS = 10
SHOWN_READERS = 8
SHOWN_SPANS = 4
SHOWN_CHARACTERS = 160
WRITES = {
    "cow": "copy of a shared slot before it is written",
    "pre": "copy before the step, into the column where its chunk ends",
    "post": "copy after verification, of the boundary that it passed",
    "load": "load from a connector or a tier",
}
"""Writes that are no chunk, in words."""
_SEVERITIES = tuple(Severity)
_ONE_OF_A_KIND = ("min", "max", "contains")


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
    """What led to a finding and what came of it, a line each."""
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
    """What differs of a run that was repeated step by step: digests, the first finding that does, or counts."""
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


def failure_name(failure: Failure) -> str:
    """``variant / case: key``."""
    return one_line(f"{case_name(failure.variant, failure.case)}: {failure.key}")


def case_name(variant: str, case: str) -> str:
    """``variant``, or ``variant / case``."""
    return f"{variant} / {case}" if case else variant


def failure_lines(failure: Failure) -> list[str]:
    """What was expected and what was found: only the parts that differ, where both have parts."""
    lines = _unmatched(failure.expected, failure.found)
    for path, expected, found in [] if lines else _differences(failure.expected, failure.found, ""):
        if path:
            lines.append(f"at {path}")
        lines += [f"expected  {shown(expected)}", f"found     {shown(found)}"]
    return [one_line(line) for line in lines]


def _unmatched(expected: Any, found: Any) -> list[str]:
    """Of expected findings, which match on the keys given and in any order: those missing and those too many."""
    if isinstance(expected, Mapping) and set(expected) == {"contains"}:
        wanted, only = expected["contains"], False
    else:
        wanted, only = expected, True
    if not (_is_list(wanted) and _is_list(found) and all(isinstance(entry, Mapping) for entry in [*wanted, *found])):
        return []
    left = list(found)
    missing = []
    for entry in wanted:
        match = next((i for i, other in enumerate(left) if _fits(entry, other)), None)
        if match is None:
            missing.append(entry)
        else:
            del left[match]
    lines = [f"missing       {shown(entry)}" for entry in missing]
    return lines + [f"not expected  {shown(entry)}" for entry in left if only or missing]


def _fits(entry: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    return all(key in found and found[key] == value for key, value in entry.items())


def _differences(expected: Any, found: Any, path: str) -> list[tuple[str, Any, Any]]:
    if isinstance(expected, Mapping) and isinstance(found, Mapping) and not set(expected) & set(_ONE_OF_A_KIND):
        parts = [
            _differences(value, found.get(key, "nothing"), f"{path}.{key}" if path else str(key))
            for key, value in expected.items()
            if key not in found or not _same(value, found[key])
        ]
        if parts:
            return [difference for part in parts for difference in part]
    if _is_list(expected) and _is_list(found) and len(shown(expected) + shown(found)) > SHOWN_CHARACTERS:
        return [_first_difference(expected, found, path)]
    return [(path, expected, found)]


def _first_difference(expected: Sequence[Any], found: Sequence[Any], path: str) -> tuple[str, Any, Any]:
    same = 0
    while same < min(len(expected), len(found)) and _same(expected[same], found[same]):
        same += 1
    ends = [values[same] if same < len(values) else f"nothing ({len(values)} in all)" for values in (expected, found)]
    return f"{path}[{same}]", ends[0], ends[1]


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _same(expected: Any, found: Any) -> bool:
    if _is_list(expected) and _is_list(found):
        return list(expected) == list(found)
    return bool(expected == found)


def shown(value: Any) -> str:
    """A value as a scenario file would have it, cut where it gets long."""
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if _is_list(value):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
