"""Remedy: known values of a single rule that avoid a finding, or let a request hit; the same run again under each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from stateat.sim.errors import StateatError
from stateat.sim.events import GRAVE, Finding, Severity
from stateat.sim.explain.explanation import roots
from stateat.sim.releases.presets import PRESETS, table
from stateat.sim.releases.rules import RULES
from stateat.sim.releases.support import lacks
from stateat.sim.releases.unused_rules import idle
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import simulate
from stateat.sim.scenario.load import Run

MAX_CHUNKS = 400_000
"""All runs of a search together, about 20 s; a search that would take more stops there, and says so."""

Each = Callable[[Sequence["RuleValue"]], Iterable["RuleValue"]]
"""Progress of a search through values, for whoever shows it."""


@dataclass(frozen=True, slots=True)
class RuleValue:
    """A rule and one of its values."""

    rule: str
    name: str

    @property
    def released(self) -> bool:
        """Some preset has it."""
        return any(values[self.rule] == self.name for values in PRESETS.values())

    @property
    def releases(self) -> str:
        """Presets that have it: ``vllm-0.27.0 and later``, ``every preset``."""
        using = [preset for preset, values in PRESETS.items() if values[self.rule] == self.name]
        if not using:
            return "no release"
        if len(using) == len(PRESETS):
            return "every preset"
        first, last = using[0], using[-1]
        if first == last:
            return first
        return f"{first} and later" if last == list(PRESETS)[-1] else f"{first} to {last}"

    def __str__(self) -> str:
        return f"{self.rule}={self.name} ({self.releases})"


class Search:
    """Search through values for what becomes of one run: those of releases, and others where these have no answer."""

    def __init__(self, run: Run, each: Each = iter) -> None:
        self._run, self._each = run, each
        self.values = candidates(run)
        self.tried: dict[RuleValue, Outcome] = {}
        self._seen: set[bool] = set()
        """Values of releases were gone through, and the others."""
        self._untried: dict[bool, int] = {True: 0, False: 0}
        self._chunks = 0

    def avoiding(self, finding: Finding, outcome: Outcome) -> list[RuleValue]:
        """The values under which the run has no root of this invariant at this request, and fewer roots in all.

        Whoever served fewer requests, or stood still, avoids nothing.
        """
        return self._first(lambda other: _avoids(finding, outcome, other))

    def raising(self, request: str, outcome: Outcome) -> dict[RuleValue, int]:
        """The values under which a request that hit nothing hits something, and how many tokens. One that poisons
        more, or serves fewer, raises nothing."""
        found = self._first(lambda other: bool(other.hits.get(request)) and _as_good(outcome, other))
        return {value: self.tried[value].hits[request] for value in found}

    def untried(self, found: Collection[RuleValue]) -> int:
        """Return how many values could not be tried that might have been among these."""
        released = any(value.released for value in found)
        return self._untried[True] + (0 if released else self._untried[False])

    def _first(self, good: Callable[[Outcome], bool]) -> list[RuleValue]:
        """The values of releases that are good, or else the others."""
        for released in (True, False):
            values = [value for value in self.values if value.released is released]
            if released not in self._seen:
                self._seen.add(released)
                self._untried[released] = len(values) - self._try(values)
            if found := [value for value in values if value in self.tried and good(self.tried[value])]:
                return found
        return []

    def _try(self, values: Sequence[RuleValue]) -> int:
        """The run under each of them, as long as there is room for more; returns how many there was room for."""
        for i, value in enumerate(self._each(values)):
            if self._chunks >= MAX_CHUNKS:
                return i
            options = replace(self._run.options, rules={**self._run.options.rules, value.rule: value.name})
            try:
                other = simulate(replace(self._run, options=options))
            except StateatError:
                # A plug-in that does not get on with it.
                continue
            self._chunks += other.chunks + other.steps
            self.tried[value] = other
        return len(values)


def candidates(run: Run) -> list[RuleValue]:
    """Every known value of every rule that differs from the run's, but for those that its options rule out, and for
    those of rules that it never asks."""
    options = run.options
    now, unasked = table(options.preset, options.rules), idle(options, run.arrivals())
    found = []
    for rule, values in RULES.items():
        for name in values if rule not in unasked else ():
            other = {**options.rules, rule: name}
            if name != now[rule] and not any(lacks(options, table(options.preset, other))):
                found.append(RuleValue(rule, name))
    return found


def _serves(before: Outcome, after: Outcome) -> bool:
    """True if as many requests get to their end."""
    fewer = after.finished + after.rejected < before.finished + before.rejected
    return not fewer and (before.livelock or not after.livelock)


def _as_good(before: Outcome, after: Outcome) -> bool:
    """True if nothing else is worse."""
    return _serves(before, after) and all(a <= b for a, b in zip(_harm(after), _harm(before), strict=True))


def _harm(outcome: Outcome) -> tuple[int, ...]:
    """Return what is wrong of a run, root or not, and what was read of it."""
    grave = sum(finding.severity in GRAVE for finding in outcome.findings)
    return len(roots(outcome.findings)), grave, outcome.poisoned, outcome.wrong_restores, outcome.wrong_reads


def _avoids(finding: Finding, before: Outcome, after: Outcome) -> bool:
    if not _serves(before, after):
        return False
    if finding.severity == Severity.LIVENESS:
        # A run that stands still stands still, whoever waits first.
        stands = any(other.severity == Severity.LIVENESS for other in after.findings)
        return not stands and len(roots(after.findings)) <= len(roots(before.findings))
    old, new = roots(before.findings), roots(after.findings)
    # The same fault at another offset is the same fault, and one of another kind is none the better.
    again = any((root.invariant, root.request) == (finding.invariant, finding.request) for root in new)
    others = {root.invariant for root in new} - {root.invariant for root in old}
    more = after.tainted_requests > before.tainted_requests
    return not (again or others or more) and len(new) < len(old)
