"""Compares what a variant came to with what the scenario expects of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from stateat.sim.events import GRAVE, Finding, Severity
from stateat.sim.run.result import Failure, Outcome
from stateat.sim.scenario.counts import number_matches, pins_to_zero

PLAIN = ("livelock", "digest")
"""Keys compared as they are; the others but those below are numbers."""
MEASURED = ("exact", "noise", "not_finite")
"""Keys that only a family with numbers has; ``digest`` says nothing of them."""
WRONG = ("wrong_restores", "wrong_reads", "tainted_requests")
"""Numbers that expect something grave, unless they are pinned to 0."""
STRUCTURED = ("ends", "hits", "loads", "findings", "invariants", "vacuous", "cases")
UNCOMPARED = ("vacuous", "cases")
"""Keys among them that are nothing a run can come to."""
FINDING_KEYS = (
    "invariant", "severity", "step", "request", "group", "column", "claimed", "held", "verdict", "root",
)  # fmt: skip


def compare(
    expect: Mapping[str, Any] | None, outcome: Outcome, measured: bool = True, absent: Collection[str] = ()
) -> list[Failure]:
    """The expectations that do not hold, in the order of the file; a run that never ends is one, unless it is named,
    and so is one that is expected to be clean and has a grave finding that nothing speaks of.

    ``expect`` is a run's (:class:`stateat.sim.scenario.load.Run`): its keys hold for the outcome, which is the sum
    of its cases where there are any, and ``cases`` for each of them. Without ``measured`` what only the file's own
    state family can come to is left out. ``absent``: cases that could not be run. Of a sum without them only what
    is too much already fails.
    """
    if expect is None:
        return []
    wanted = _at_most(expect) if absent else expect
    failures = [Failure(outcome.variant, "", *rest) for rest in _compare(wanted, outcome, measured)]
    for name, part in (expect.get("cases") or {}).items():
        case = outcome.cases.get(name)
        if name in absent:
            continue
        if case is None:
            failures.append(Failure(outcome.variant, name, "case", "an outcome", None))
        else:
            failures += [Failure(outcome.variant, name, *rest) for rest in _compare(part, case, measured)]
    failures += [Failure(outcome.variant, name, "findings", "none", found) for name, found in _unclean(expect, outcome)]
    if not _names_livelock(expect):
        failures += [Failure(outcome.variant, name, "livelock", False, True) for name in _endless(expect, outcome)]
    return failures


def compares(expect: Mapping[str, Any], outcome: Outcome, measured: bool = True, absent: Collection[str] = ()) -> bool:
    """True if :func:`compare` holds an outcome to anything that is written in an expectation."""
    cases = expect.get("cases") or {}
    parts = [(_at_most(expect) if absent else expect, outcome)]
    parts += [(part, outcome.cases[name]) for name, part in cases.items() if name in outcome.cases]
    return any(
        wanted not in (None, {}) and key not in UNCOMPARED and not _unmeasured(key, run, measured)
        for part, run in parts
        for key, wanted in part.items()
    )


def _unmeasured(key: str, outcome: Outcome, measured: bool) -> bool:
    return key in MEASURED and not (measured and outcome.states is not None)


def _at_most(expect: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rest of an expectation of a sum where some of it is missing: its numbers can only be too small."""
    highest = {key: most for key, wanted in expect.items() if key not in STRUCTURED and (most := _most(wanted))}
    counts = expect.get("invariants") or {}
    highest["invariants"] = {name: most for name, wanted in counts.items() if (most := _most(wanted))}
    return highest | {"livelock": False} if expect.get("livelock") is False else highest


def _most(wanted: Any) -> dict[str, Any]:
    most = wanted.get("max") if isinstance(wanted, Mapping) else wanted
    return {"max": most} if type(most) is int else {}


def _unclean(expect: Mapping[str, Any], outcome: Outcome) -> Iterator[tuple[str, str]]:
    """The cases ('' without cases) with ``poisoned: 0`` in which something else is grave, and what."""
    parts = expect.get("cases") or {}
    for name, run in (outcome.cases or {"": outcome}).items():
        said = (expect, parts.get(name) or {})
        if any(pins_to_zero(part.get("poisoned")) for part in said) and not any(map(_expects_wrong, said)):
            named = {invariant for part in said for invariant in part.get("invariants") or {}}
            grave = [f for f in run.findings if f.severity in GRAVE and f.invariant not in named]
            # Wrong claims have failed by their number.
            if grave and not run.poisoned:
                first = grave[0]
                text = f"{first.invariant} {first.severity}  step {first.step}  {first.message}"
                yield name, text if len(grave) == 1 else f"{len(grave):,}, the first of them: {text}"


def _expects_wrong(expect: Mapping[str, Any]) -> bool:
    """True if an expectation says what is wrong beside wrong claims."""
    numbers = [expect[key] for key in WRONG if expect.get(key) is not None]
    return expect.get("findings") is not None or not all(map(pins_to_zero, numbers))


def _endless(expect: Mapping[str, Any], outcome: Outcome) -> list[str]:
    """The cases ('' without cases) that never end although nothing says so."""
    parts = expect.get("cases") or {}
    runs = outcome.cases or {"": outcome}
    return [name for name, run in runs.items() if run.livelock and not _names_livelock(parts.get(name) or {})]


def _names_livelock(expect: Mapping[str, Any]) -> bool:
    """True if an expectation speaks of a run that never ends, by its key or as I14."""
    found = expect.get("findings") or ()
    entries = found["contains"] if isinstance(found, Mapping) else found
    named = any(entry.get("invariant") == "I14" or entry.get("severity") == "liveness" for entry in entries)
    return named or "livelock" in expect or "I14" in (expect.get("invariants") or {})


def _compare(expect: Mapping[str, Any], outcome: Outcome, measured: bool) -> Iterator[tuple[str, Any, Any]]:
    """Key, expected and found of each failure."""
    for key, wanted in expect.items():
        if wanted is None or _unmeasured(key, outcome, measured):
            continue
        if key == "findings":
            if not findings_match(wanted, outcome.findings):
                yield key, wanted, [finding_facts(finding) for finding in outcome.findings]
        elif key == "invariants":
            counts = Counter(finding.invariant for finding in outcome.findings)
            for name, number in wanted.items():
                if not number_matches(number, counts[name]):
                    yield f"{key}.{name}", number, counts[name]
        elif key == "ends":
            for request, ends in wanted.items():
                got = outcome.ends.get(request)
                if got is None or not _ends_match(ends, got):
                    yield f"ends.{request}", ends, None if got is None else list(got)
        elif key in ("hits", "loads"):
            for request, number in wanted.items():
                tokens = getattr(outcome, key).get(request)
                if tokens is None or not number_matches(number, tokens):
                    yield f"{key}.{request}", number, tokens
        elif key in PLAIN:
            if getattr(outcome, key) != wanted:
                yield key, wanted, getattr(outcome, key)
        elif key not in STRUCTURED and not number_matches(wanted, getattr(outcome, key)):
            yield key, wanted, getattr(outcome, key)


def _ends_match(wanted: Sequence[int] | Mapping[str, Sequence[int]], ends: Sequence[int]) -> bool:
    if isinstance(wanted, Mapping):
        return set(wanted["contains"]) <= set(ends)
    return list(wanted) == list(ends)


def finding_facts(finding: Finding) -> dict[str, Any]:
    """Return all that an expectation can say of a finding: a ready entry for ``findings``."""
    facts = {key: getattr(finding, key) for key in FINDING_KEYS}
    facts["root"] = finding.root is None
    return facts


def findings_match(wanted: Sequence[Mapping[str, Any]] | Mapping[str, Any], findings: Sequence[Finding]) -> bool:
    """True if each entry has a finding of its own, and (for a list) no finding is left over.

    A list speaks of poison, and of what its entries name: a fault has chunks of a wrong shape (I2) beside it, which
    a list that does not mention I2 says nothing about. Order does not matter. An entry may fit several findings, so
    this is a matching, not a walk.
    """
    entries: Sequence[Mapping[str, Any]] = wanted if not isinstance(wanted, Mapping) else wanted["contains"]
    if not isinstance(wanted, Mapping):
        named = {(key, entry[key]) for entry in entries for key in ("invariant", "severity") if entry.get(key)}
        findings = [
            f
            for f in findings
            if f.severity == Severity.POISON or ("invariant", f.invariant) in named or ("severity", f.severity) in named
        ]
        if len(entries) != len(findings):
            return False
    facts = [finding_facts(finding) for finding in findings]
    fits = [[j for j, fact in enumerate(facts) if entry.items() <= fact.items()] for entry in entries]
    taken: dict[int, int] = {}
    return all(_place(i, fits, taken, set()) for i in range(len(entries)))


def _place(entry: int, fits: Sequence[Sequence[int]], taken: dict[int, int], tried: set[int]) -> bool:
    """Gives an entry a finding, moving others to another one where that helps (an augmenting path)."""
    for j in fits[entry]:
        if j not in tried:
            tried.add(j)
            if j not in taken or _place(taken[j], fits, taken, tried):
                taken[j] = entry
                return True
    return False
