"""A run against the same run on a baseline: only what is new there fails.

Findings are compared by what they say, less when it was and in which slot: a checkout may decide in other steps. What
is expected of the baseline is expected of both; numbers of what is wrong may be smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from stateat.sim.events import GRAVE, Finding
from stateat.sim.run.expect import WRONG, compare
from stateat.sim.run.result import Failure, Outcome

TOLD = ("poisoned", "poisoned_roots", "findings", "livelock")
"""Expectations of what the findings tell by themselves."""
COUNTED = ("violated", "not_finite", *WRONG)
"""Numbers of what is wrong: the fewer the better."""
CONTENT = ("invariant", "severity", "request", "group", "column", "claimed", "held", "verdict")
NOTHING = Outcome("", "", (), {})


def against(
    expect: Mapping[str, Any] | None,
    outcome: Outcome,
    base: Outcome | None,
    measured: bool = True,
    absent: Collection[str] = (),
) -> tuple[list[Failure], list[Failure]]:
    """Return what is new in an outcome, and what would fail and is in the baseline too.

    ``expect`` is what the file expects of the baseline; ``base`` None: it could not run this, so that all is new.
    """
    base = base or NOTHING
    new: list[Failure] = []
    known: list[Failure] = []
    fresh: list[str] = []
    for case, lacking, shared in _sorted(outcome, base):
        if lacking:
            fresh.append(case)
            new.append(Failure(outcome.variant, case, "findings", "as in the baseline", _text(lacking)))
        if shared:
            known.append(Failure(outcome.variant, case, "findings", "none", _text(shared)))
    for case, run in _cases(outcome):
        if run.livelock:
            into = known if _case(base, case).livelock else new
            into.append(Failure(outcome.variant, case, "livelock", False, True))
    there = {(f.case, f.key): f for f in compare(expect, base, measured, absent)} if base is not NOTHING else {}
    for failure in compare(expect, outcome, measured, absent):
        twin = there.get((failure.case, failure.key))
        if failure.key in TOLD:
            continue
        if twin is not None and twin.found == failure.found:
            known.append(failure)
        elif base is NOTHING or not _no_worse(failure, base, fresh):
            new.append(failure)
        elif twin is not None:
            known.append(failure)
    return new, known


def _no_worse(failure: Failure, base: Outcome, fresh: Collection[str]) -> bool:
    """True if something that is not as expected is wrong no more often than in the baseline, and nowhere else."""
    if failure.case in fresh or (not failure.case and fresh):
        return False
    run = _case(base, failure.case)
    name = failure.key.removeprefix("invariants.")
    if name != failure.key:
        return bool(failure.found <= Counter(finding.invariant for finding in run.findings)[name])
    return failure.key in COUNTED and bool(failure.found <= getattr(run, failure.key))


def _sorted(outcome: Outcome, base: Outcome) -> Iterator[tuple[str, list[Finding], list[Finding]]]:
    """Return, by case, the grave findings that the baseline lacks, and those that it has too."""
    for case, run in _cases(outcome):
        left = Counter(map(_content, _grave(_case(base, case))))
        new: list[Finding] = []
        known: list[Finding] = []
        for finding in _grave(run):
            left[_content(finding)] -= 1
            (new if left[_content(finding)] < 0 else known).append(finding)
        yield case, new, known


def _text(found: list[Finding]) -> str:
    first = found[0]
    text = f"{first.invariant} {first.severity}  step {first.step}  {first.message}"
    return text if len(found) == 1 else f"{len(found):,}, the first of them: {text}"


def _grave(outcome: Outcome) -> list[Finding]:
    return [finding for finding in outcome.findings if finding.severity in GRAVE]


def _content(finding: Finding) -> tuple[Any, ...]:
    return (*(getattr(finding, name) for name in CONTENT), finding.root is None)


def _cases(outcome: Outcome) -> Iterator[tuple[str, Outcome]]:
    yield from (outcome.cases or {"": outcome}).items()


def _case(outcome: Outcome, case: str) -> Outcome:
    return outcome.cases.get(case, NOTHING) if case else outcome
