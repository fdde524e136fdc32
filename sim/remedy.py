"""Which known value of a single rule avoids a finding, or lets a request hit: the same run again under each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from sim.engine.presets import PRESETS, table
from sim.engine.rules import RULES
from sim.engine.support import lacks
from sim.errors import StateatError
from sim.events import GRAVE, Finding
from sim.result import Outcome
from sim.scenario import Run
from sim.simulate import simulate
from sim.story import roots

MAX_CHUNKS = 200_000
"""All runs of a search together; a search that would take more stops there, and says so."""

Each = Callable[[Sequence["Value"]], Iterable["Value"]]
"""How the values are gone through, for whoever shows progress."""


@dataclass(frozen=True, slots=True)
class Value:
    """A rule and one of its values."""

    rule: str
    name: str

    @property
    def releases(self) -> str:
        """Which presets have it: ``vllm-0.27.0 and later``."""
        using = [preset for preset, values in PRESETS.items() if values[self.rule] == self.name]
        if not using:
            return "no release"
        first, last, everyone = using[0], using[-1], list(PRESETS)
        if last == everyone[-1]:
            return f"{first} and later"
        return first if first == last else f"{first} to {last}"

    def __str__(self) -> str:
        return f"{self.rule}={self.name} ({self.releases})"


@dataclass(slots=True)
class Search:
    """What became of one run under each value."""

    tried: dict[Value, Outcome] = field(default_factory=dict)
    complete: bool = True
    """Whether all values were tried."""

    def avoiding(self, finding: Finding, outcome: Outcome) -> list[Value]:
        """The values under which the run has no such finding, and not another in its stead; those of releases first.

        Whoever served fewer requests, or stood still, avoids nothing.
        """
        return _released_first(value for value, other in self.tried.items() if _avoids(finding, outcome, other))

    def raising(self, request: str, outcome: Outcome) -> dict[Value, int]:
        """The values under which a request that hit nothing hits something, and how many tokens; those of releases
        first. One that poisons more, or serves fewer, raises nothing."""
        hits = {value: other.hits.get(request, 0) for value, other in self.tried.items() if _as_good(outcome, other)}
        return {value: hits[value] for value in _released_first(value for value, tokens in hits.items() if tokens)}


def candidates(run: Run) -> list[Value]:
    """Every known value of every rule that differs from the run's, but for those that its options rule out."""
    options = run.options
    now = table(options.preset, options.rules)
    found = []
    for rule, values in RULES.items():
        for name in values:
            other = {**options.rules, rule: name}
            if name != now[rule] and not any(lacks(options, table(options.preset, other))):
                found.append(Value(rule, name))
    return found


def search(run: Run, each: Each = iter) -> Search:
    """The run under each candidate."""
    done, chunks = Search(), 0
    for value in each(candidates(run)):
        if chunks >= MAX_CHUNKS:
            done.complete = False
            break
        options = replace(run.options, rules={**run.options.rules, value.rule: value.name})
        try:
            other = simulate(replace(run, options=options))
        except StateatError:
            # A plug-in that does not get on with it.
            continue
        chunks += other.chunks + other.steps
        done.tried[value] = other
    return done


def _released_first(values: Iterable[Value]) -> list[Value]:
    return sorted(values, key=lambda value: value.releases == "no release")


def _serves(before: Outcome, after: Outcome) -> bool:
    """Whether as many requests get to their end."""
    fewer = after.finished + after.rejected < before.finished + before.rejected
    return not fewer and (before.livelock or not after.livelock)


def _as_good(before: Outcome, after: Outcome) -> bool:
    """Whether nothing else is worse."""
    return _serves(before, after) and all(a <= b for a, b in zip(_harm(after), _harm(before), strict=True))


def _harm(outcome: Outcome) -> tuple[int, ...]:
    """What is wrong of a run, root or not, and what was read of it."""
    grave = sum(finding.severity in GRAVE for finding in outcome.findings)
    return len(roots(outcome.findings)), grave, outcome.poisoned, outcome.wrong_restores, outcome.wrong_reads


def _avoids(finding: Finding, before: Outcome, after: Outcome) -> bool:
    if not _serves(before, after):
        return False
    if any(_same(finding, other) for other in after.findings):
        return False
    if finding.severity == "liveness":
        return len(roots(after.findings)) <= len(roots(before.findings))
    return len(roots(after.findings)) < len(roots(before.findings))


def _same(finding: Finding, other: Finding) -> bool:
    """Whether it is the same fault; a run that stands still stands still, whoever waits first."""
    if finding.severity == "liveness":
        return other.severity == "liveness"
    facts = ("invariant", "request", "group", "claimed")
    return all(getattr(finding, name) == getattr(other, name) for name in facts)
