"""Explanation of a finding: what was written and claimed, what the slot had absorbed, and who started from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stateat.sim.events import Finding, Holding, Severity
from stateat.sim.tokens import Ids

TORN = Holding.TORN
"""The verdict on a slot whose matrix is right, and whose convolution is not (I13)."""
Span = tuple[int, int]
"""Tokens [start, end)."""


@dataclass(frozen=True, slots=True)
class ChunkDecision:
    """A decision: tokens [start, end) of a request in one step."""

    step: int
    time_us: int
    budget: int
    """Tokens that the step could schedule."""
    request: str
    start: int
    end: int
    stop: str
    """The rule that ended it."""
    steps: int
    """Decode steps in a row, ``step`` being the last of them; 0: it is no such run."""
    others: int
    """Tokens that other requests had in the same step."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens that a state absorbed: [start, end) of a request's stream, and then drafts that it refused."""

    request: str
    start: int
    end: int
    drafts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """A request's word that the slot holds state@offset: in which step, and its chunk then (None: it had none)."""

    request: str
    step: int
    time_us: int
    offset: int
    chunk: ChunkDecision | None


@dataclass(frozen=True, slots=True)
class Reader:
    """A request that started at ``offset`` from the slot."""

    request: str
    step: int
    time_us: int
    offset: int
    prompt: int
    """Tokens of the request's prompt."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Tokens that a state has absorbed, against the prefix that its claim names."""

    missing: tuple[Span, ...] = ()
    """Parts of the prefix that were never absorbed."""
    twice: tuple[Span, ...] = ()
    """Parts of the prefix that were absorbed more than once."""
    ahead: tuple[Span, ...] = ()
    """Behind the prefix in the same prompt: whoever restores feeds them once more."""
    foreign: int = 0
    """Tokens that are not of this prompt at their position."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A continuation to look at: this prompt, restored at ``offset`` from a state that absorbed ``held``."""

    request: str
    hypothetical: bool
    """Nobody restored from the slot: this is who would have, with the prompt of the request that claimed it."""
    prompt: Ids
    offset: int
    held: tuple[tuple[Ids, int], ...]
    """(ids, start): absorbed ids[start:], in this order."""


@dataclass(frozen=True, slots=True)
class Story:
    """A finding with what led to it."""

    finding: Finding
    chunk: ChunkDecision | None
    """The chunk that made what the slot holds; None where no chunk did (a connector, or nothing at all)."""
    loaded: int | None
    """The step in which a connector, or the tier that had kept it, brought it; None: neither did."""
    held: tuple[Piece, ...] | None
    """Tokens that the slot's state had absorbed; None where nothing was ever written, or no slot is concerned."""
    claim: Claim | None
    coverage: Coverage
    readers: tuple[Reader, ...]
    downstream: int
    """Findings that follow from it."""
    prompts: dict[str, int]
    """Prompt tokens of the requests that are named."""
    subject: Subject | None = field(compare=False, repr=False)


def roots(findings: Iterable[Finding]) -> list[Finding]:
    """The poison findings that follow from no other, those to be told first in front."""
    return sorted((f for f in findings if f.severity == Severity.POISON and f.root is None), key=rank)


def rank(finding: Finding) -> tuple[bool, bool, int, int]:
    """Wrong claims that somebody read come first, then wrong claims, then the others; each by time."""
    return finding.invariant != "I1", not finding.readers, finding.step, finding.id
