"""Results and outcomes: counts, findings and decisions of each variant (the JSON of ``replay``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from stateat.sim.errors import MissingError, RefusedError, StateatError
from stateat.sim.events import GRAVE, Finding, Group
from stateat.sim.printable import plural, short
from stateat.sim.scenario.counts import Counts
from stateat.sim.scenario.truth import Truth

READS = ("I10", "I12")
"""Invariants whose findings are wrong reads."""
LISTED_REQUESTS = 1000
"""``ends`` and ``hits`` are listed for so many requests at most."""


@dataclass(frozen=True, slots=True, repr=False)
class States:
    """Verdicts of a state family's arithmetic on the claimed slots."""

    truth: Truth
    """Backend and device are those that were taken."""
    state_bytes: int
    """Bytes of one request's state, as it is computed."""
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """Slots by what they held: ``exact``, ``noise``, ``not finite``, and what I1 found."""
    worst: tuple[Mapping[str, Any], ...] = ()
    """The noisiest: request, group, slot, claimed, step, rel_error."""
    nearest_wrong: float | None = None
    """The least relative error of a wrong state."""

    @property
    def checked(self) -> int:
        return sum(self.verdicts.values())

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{count:,} {name}" for name, count in self.verdicts.items())
        return f"<States {short(self.truth.state)}: {short(verdicts) or 'no slot checked'}>"


@dataclass(frozen=True, slots=True, repr=False)
class Outcome(Counts):
    """Counts, findings and decisions of one run of one variant (and case)."""

    variant: str
    preset: str
    """Whose rules it ran; of a live engine those of the release that it stands nearest to."""
    groups: tuple[Group, ...]
    rules: Mapping[str, str]
    findings: tuple[Finding, ...] = ()
    ttft_us: Mapping[str, float] = field(default_factory=dict)
    """``p50``, ``p95``, ``p99``; empty when no request produced a token."""
    digest: str = ""
    ends: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Prefill chunk ends of each request."""
    hits: Mapping[str, int] = field(default_factory=dict)
    """Hit tokens of each request's first admission."""
    loads: Mapping[str, int] = field(default_factory=dict)
    """Tokens that each request's first admission had from a tier or a connector."""
    cases: Mapping[str, Outcome] = field(default_factory=dict)
    """Outcomes of the cases, of which this one is the sum; empty without cases."""
    tainted: Mapping[str, int] = field(default_factory=dict)
    """The requests that read a wrong state, and when each did so first; microseconds, or a step."""
    wrong_claims: Mapping[int, int] = field(default_factory=dict)
    """First finding (I1, I13) about a claim, by the claim's number in the order in which they were made."""
    states: States | None = None
    """Numbers of the states; None for ``digest``, which has none."""
    engine: str = ""
    """The live engine that ran it, as its label; '' for the reference engine, and for a log."""
    not_asked: tuple[str, ...] = ()
    """Checks that were not made, since a log never tells what they need."""
    free_blocks: int = field(default=-1, compare=False)
    """Blocks in the free queue at the end; -1 where nobody can say (a log). Never part of the JSON."""
    wall_s: float = 0.0
    """Seconds that it took to simulate; never part of the JSON."""

    @property
    def wrongs(self) -> dict[str, int]:
        """Counts of what is grave: wrong claims, or else wrong reads and findings that are neither."""
        if self.poisoned:
            return {"poisoned": self.poisoned}
        reads = {"wrong restore": self.wrong_restores, "wrong read": self.wrong_reads}
        found = {noun: count for noun, count in reads.items() if count}
        told = READS if found else ()
        others = Counter(f.invariant for f in self.findings if f.severity in GRAVE and f.invariant not in told)
        return found | {f"{invariant} finding": count for invariant, count in sorted(others.items())}

    @property
    def text(self) -> str:
        """The outcome on one short line."""
        wrong = {noun: count for noun, count in self.wrongs.items() if noun != "poisoned"}
        roots = f" ({plural(self.poisoned_roots, 'root')})" if self.poisoned else ""
        parts = [f"{self.poisoned:,} poisoned{roots}", *(plural(count, noun) for noun, count in wrong.items())]
        parts += [f"{self.hit_tokens / self.prompt_tokens:.1%} hit"] if self.prompt_tokens else []
        parts += [plural(self.finished, "request"), plural(self.steps, "step")]
        return ", ".join([*parts, *["never ends"] * self.livelock])

    @property
    def grave(self) -> bool:
        """True if something is poisoned, or no number."""
        return any(finding.severity in GRAVE for finding in self.findings)

    def __repr__(self) -> str:
        digest = f", digest {self.digest[:16]}" if self.digest else ""
        return f"<Outcome {short(self.variant)} ({short(self.preset) or '-'}): {self.text}{digest}>"

    def _verdict(self, name: str) -> int:
        return 0 if self.states is None else self.states.verdicts.get(name, 0)

    @property
    def exact(self) -> int:
        """Claimed slots that held the true state bit for bit."""
        return self._verdict("exact")

    @property
    def noise(self) -> int:
        """Claimed slots that held the right state with other bits."""
        return self._verdict("noise")

    @property
    def not_finite(self) -> int:
        """Claimed slots that held NaN or infinity."""
        return self._verdict("not finite")


@dataclass(frozen=True, slots=True, repr=False)
class Failure:
    """Something that is not as expected."""

    variant: str
    case: str
    key: str
    expected: Any
    found: Any

    def __repr__(self) -> str:
        where = f"{short(self.variant)}{f' / {short(self.case)}' if self.case else ''}: {short(self.key)}"
        return f"<Failure {where}: expected {short(str(self.expected))}, found {short(str(self.found))}>"


@dataclass(frozen=True, slots=True, repr=False)
class NotRun:
    """A variant (or a case of one) without an outcome."""

    variant: str
    case: str
    error: StateatError
    """The reason."""
    engine: str = ""
    """The label of the live engine on which it was to run; '' for the reference engine."""
    known: bool = False
    """The baseline ends with the same error."""
    below: bool = False
    """True for a run on the baseline, so that nothing is held against the run that it is for."""

    @property
    def skipped(self) -> bool:
        """True if it is nobody's fault: the engine has no such thing, what computes its states or a trace is not here,
        or the baseline cannot run it either."""
        return self.known or isinstance(self.error, RefusedError | MissingError)

    @property
    def kind(self) -> str:
        """``skipped`` or ``error``."""
        return "skipped" if self.skipped else "error"

    @property
    def why(self) -> str:
        """The error in words."""
        return str(self.error)

    def __repr__(self) -> str:
        where = f"{short(self.variant)}{f' / {short(self.case)}' if self.case else ''}"
        return f"<NotRun {where}: {self.kind}: {short(self.why)}>"


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """All variants of one scenario. Whether all came out well is :attr:`ok`, and nothing else says so."""

    scenario: str
    title: str
    source: str
    path: str
    clock: str
    variants: Mapping[str, Outcome]
    """Outcomes of the variants that ran; with several engines each is ``VARIANT@ENGINE``."""
    failed_expectations: tuple[Failure, ...] = ()
    """Expectations of the file that did not hold; with a baseline, what is new against it. Empty too where nothing is
    expected."""
    has_expectations: bool = False
    """The file expects something of what was to run; not: it came."""
    is_scenario: bool = True
    """False for a log."""
    silent: tuple[str, ...] = ()
    """Variants that expect nothing: nothing may be poisoned there, and they must end."""
    elsewhere: tuple[str, ...] = ()
    """Variants on an engine for which the file expects nothing."""
    uncompared: tuple[str, ...] = ()
    """Variants whose own rules the engine does not run: they are held to nothing."""
    unheld: tuple[str, ...] = ()
    """Variants that ran, and of which the file expects something that could not be compared with it: it is about a case
    that did not run, or about states of another family."""
    not_run: tuple[NotRun, ...] = ()
    """Variants and cases that were to run and have no outcome."""
    baseline: str = ""
    """The engine that it was compared with; '' for none."""
    in_baseline: tuple[Failure, ...] = ()
    """Failures that are so in the baseline too."""

    @property
    def ok(self) -> bool:
        """True if everything ran and is as expected: no expectation failed, and where nothing is expected nothing is
        poisoned, no state is wrong or no number, and the run ends.

        ``stateat check`` exits with 0 for it, unless nothing was judged. What an engine cannot express makes this
        false, for nobody knows; check goes on, and counts it as skipped.
        """
        return not self.failures

    @property
    def judged(self) -> bool:
        """True if anything was judged: what is compared with nothing, and a log of which no claim and no hit can be
        judged, prove nothing."""
        if self.is_scenario:
            return bool(set(self.variants) - set(self.uncompared))
        return any(outcome.judged for outcome in self.variants.values())

    @property
    def failures(self) -> tuple[Failure, ...]:
        """All that stands against :attr:`ok`: expectations, what is wrong where none is, what could not be run."""
        told = {failure.variant for failure in self.failed_expectations}
        silent = [self.variants[name] for name in self.wrong_where_silent if name not in told]
        return (
            *self.failed_expectations,
            *(failure for outcome in silent for failure in unexplained(outcome)),
            *(Failure(each.variant, each.case, "run", "an outcome", each.why) for each in self.not_run),
        )

    @property
    def held(self) -> list[str]:
        """Variants that ran and were compared with what the file expects of them."""
        others = {*self.silent, *self.elsewhere, *self.uncompared, *self.unheld}
        return [name for name in self.variants if name not in others] if self.has_expectations else []

    @property
    def wrong_where_silent(self) -> list[str]:
        """Variants that expect nothing, and are poisoned, hold what is no number, or never end."""
        names = self.silent if self.has_expectations else [n for n in self.variants if n not in self.uncompared]
        if self.baseline:
            # What is wrong in the baseline too is no news, and what is not has failed.
            return []
        there = {name: self.variants[name] for name in names if name in self.variants}
        return [name for name, outcome in there.items() if outcome.grave or outcome.livelock]

    def raise_if_nothing_ran(self) -> None:
        """Raise why, where there is no outcome at all."""
        if self.not_run and not self.variants:
            texts = dict.fromkeys(each.why for each in self.not_run)
            raise self.not_run[0].error if len(texts) == 1 else type(self.not_run[0].error)("\n".join(texts))

    def __bool__(self) -> NoReturn:
        """``assert stateat.replay(file)`` would pass whatever came out."""
        raise TypeError("a result is neither true nor false: ask result.ok")

    def __repr__(self) -> str:
        return f"<Result {short(self.scenario)}: {plural(len(self.variants), 'variant')}>"


def unexplained(outcome: Outcome) -> list[Failure]:
    """Return what is grave of a run of which nothing is expected, by case, and that it never ends."""
    found = []
    for case, run in (outcome.cases or {"": outcome}).items():
        grave = [finding for finding in run.findings if finding.severity in GRAVE]
        if grave:
            first = f"{grave[0].invariant} {grave[0].severity}  step {grave[0].step}  {grave[0].message}"
            more = "" if len(grave) == 1 else f"{len(grave):,}, the first of them: "
            found.append(Failure(outcome.variant, case, "findings", "none", more + first))
        if run.livelock:
            found.append(Failure(outcome.variant, case, "livelock", False, True))
    return found
