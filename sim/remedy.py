"""Which known value of a single rule avoids a finding: the same run again under each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from sim.chronicle import roots
from sim.engine.presets import PRESETS, table
from sim.engine.rules import RULES
from sim.engine.support import lacks
from sim.errors import StateatError
from sim.events import Finding
from sim.result import Outcome
from sim.scenario import Run
from sim.simulate import simulate

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
        return sorted(
            (value for value, other in self.tried.items() if _avoids(finding, outcome, other)),
            key=lambda value: value.releases == "no release",
        )


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


def _avoids(finding: Finding, before: Outcome, after: Outcome) -> bool:
    if after.finished + after.rejected < before.finished + before.rejected or (after.livelock and not before.livelock):
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
