"""What a run came to: counts, findings and decisions of each variant (the JSON of ``replay``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sim.events import GRAVE, Finding, Group
from sim.truth import Truth

if TYPE_CHECKING:
    import pandas as pd

    from sim.columns import Columns

LISTED_REQUESTS = 1000
"""``ends`` and ``hits`` are listed for so many requests at most."""


@dataclass(frozen=True, slots=True)
class States:
    """What the arithmetic of a state family said of the claimed slots."""

    truth: Truth
    """Backend and device are those that were taken."""
    state_bytes: int
    """Of one request's state, as it is computed."""
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """Slots by what they held: ``exact``, ``noise``, ``not finite``, and what I1 found."""
    worst: tuple[Mapping[str, Any], ...] = ()
    """The noisiest: request, group, slot, claimed, step, rel_error."""
    nearest_wrong: float | None = None
    """The least relative error of a wrong state."""

    @property
    def checked(self) -> int:
        return sum(self.verdicts.values())


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of one variant (and case). Counts are defined in ``docs/scenario-files.md``."""

    variant: str
    preset: str
    groups: tuple[Group, ...]
    rules: Mapping[str, str]
    poisoned: int = 0
    poisoned_roots: int = 0
    findings: tuple[Finding, ...] = ()
    wrong_restores: int = 0
    wrong_reads: int = 0
    tainted_requests: int = 0
    not_judged: int = 0
    null_boundaries: int = 0
    materialized_boundaries: int = 0
    deferred: int = 0
    same_step_refused: int = 0
    hit_tokens: int = 0
    resume_hit_tokens: int = 0
    loaded_tokens: int = 0
    prefill_tokens: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0
    finished: int = 0
    steps: int = 0
    chunks: int = 0
    preempted: int = 0
    evicted: int = 0
    claims: int = 0
    restores: int = 0
    resets: int = 0
    rejected: int = 0
    livelock: bool = False
    time_us: int = 0
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
    """Under ``cases``: the outcome of each, of which this one is the sum."""
    violated: int = 0
    """Cases (or this run) with an I1 or a mid-block-start I2 finding."""
    tainted: Mapping[str, int] = field(default_factory=dict)
    """The requests that read a wrong state, and when each did so first; microseconds, or a step."""
    wrong_claims: Mapping[int, int] = field(default_factory=dict)
    """By number of a claim, in the order in which they were made: the first finding (I1, I13) about it."""
    states: States | None = None
    """None for ``digest``."""
    not_asked: tuple[str, ...] = ()
    """What no verdict is about, since a log never tells it."""
    free_blocks: int = field(default=-1, compare=False)
    """Blocks in the free queue at the end; -1 where nobody can say (a log). Never part of the JSON."""
    wall_s: float = 0.0
    """How long it took to simulate; never part of the JSON."""

    @property
    def grave(self) -> bool:
        """Whether something is poisoned, or no number."""
        return any(finding.severity in GRAVE for finding in self.findings)

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


@dataclass(frozen=True, slots=True)
class Failure:
    """An expectation that did not hold."""

    variant: str
    case: str
    key: str
    expected: Any
    found: Any


@dataclass(frozen=True, slots=True)
class Result:
    """All variants of one scenario."""

    scenario: str
    title: str
    source: str
    path: str
    clock: str
    variants: Mapping[str, Outcome]
    failures: tuple[Failure, ...] = ()
    expected: bool = False
    """Whether the file expects anything of what ran."""
    is_scenario: bool = True
    """False for a log."""
    silent: tuple[str, ...] = ()
    """Variants that expect nothing: nothing may be poisoned there, and they must end."""
    elsewhere: tuple[str, ...] = ()
    """Variants on a release for which the file expects nothing."""
    uncompared: tuple[str, ...] = ()
    """Variants whose own rules the engine does not run: they are held to nothing."""
    columns: Mapping[tuple[str, str], Columns] = field(default_factory=dict, compare=False, repr=False)
    """By variant and case: what was recorded for the frames. Empty unless it was asked for."""

    @property
    def unexpected(self) -> list[str]:
        """Variants that expect nothing, and are poisoned, hold what is no number, or never end."""
        names = self.silent if self.expected else [name for name in self.variants if name not in self.uncompared]
        return [name for name in names if self.variants[name].grave or self.variants[name].livelock]

    def _repr_html_(self) -> str:
        """In a notebook: a line for each variant."""
        from sim.frames import summary

        return summary(self).to_html(index=False)

    # As pandas frames, with variant and case in front (docs/python.md). Each access makes a new one. All but
    # ``findings`` need a recording, and raise InputError without.

    @property
    def findings(self) -> pd.DataFrame:
        """What was found."""
        from sim.frames import findings

        return findings(self)

    @property
    def requests(self) -> pd.DataFrame:
        """Each request: its hit, its first token, its end, whether it read a wrong state."""
        from sim.frames import requests

        return requests(self)

    @property
    def steps(self) -> pd.DataFrame:
        """Each step that was told. Those between two rows were fast-forwarded: nothing but decoding happened in
        them, and ``chunks`` says how many steps a row of it covers."""
        from sim.frames import steps

        return steps(self)

    @property
    def claims(self) -> pd.DataFrame:
        """Each claim: what it said of a slot, how long, who restored from it, and the finding about it."""
        from sim.frames import claims

        return claims(self)

    @property
    def chunks(self) -> pd.DataFrame:
        """Each chunk; a run of decode steps that was fast-forwarded is one row."""
        from sim.frames import chunks

        return chunks(self)
