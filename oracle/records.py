"""Records of the auditor: claims, requests, and its counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stateat.sim.tokens import Tokens


@dataclass(slots=True)
class Now:
    """The step that events belong to."""

    index: int = 0
    time_us: int = 0
    decided: int = 0
    """The last step that was decided."""
    launched: int = 0
    """The last step that ran."""


@dataclass(slots=True)
class Claimed:
    """Claim: what a hash says of a slot."""

    group: int
    request: str
    column: int
    offset: int
    truth: Any
    step: int
    number: int
    """Claims made before this one."""


@dataclass(slots=True)
class Seen:
    """Request as the auditor has seen it."""

    tokens: Tokens
    num_prompt: int
    outputs: int = 0
    next: int = 0
    """The token that it must process next."""
    kept: int = 1
    """Tokens that stay of the last row of a run."""
    known: int = 0
    """Tokens of the stream that its last chunk consumed, drafts apart."""
    hit: int = 0
    external: int = 0
    since: int = 0
    """The step that admitted or preempted it last; one before that may be in flight."""
    fresh: bool = False
    """Admitted, and no chunk told since."""
    brought: bool = False
    """True if a state was restored or loaded for it since."""
    unread: frozenset[int] = frozenset()
    """Groups of which it has read no state since it was admitted."""
    seeds: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Columns from which the worker took its state when it was admitted, by group, with the width of its row."""
    misled: bool = False
    """True if this admission's restore was wrong."""
    misread: tuple[int, int] = (-1, -1)
    """Step and start of the last chunk that read a wrong state."""
    prefilled: bool = False
    waits: str = ""
    """Reason for which it was given nothing, when that last was so."""

    @property
    def prefill_end(self) -> int:
        return max(self.num_prompt, self.num_prompt + self.outputs - 1)


@dataclass(slots=True)
class AuditCounts:
    """Counts of the auditor; defined in ``docs/scenario-files.md``."""

    poisoned: int = 0
    poisoned_roots: int = 0
    wrong_restores: int = 0
    wrong_reads: int = 0
    tainted: dict[str, int] = field(default_factory=dict)
    """Time in microseconds at which each request first read a wrong state."""
    null_boundaries: int = 0
    materialized_boundaries: int = 0
    claims: int = 0
    not_judged: set[tuple[Any, int]] = field(default_factory=set)
    """(hash, slot) of claims, and (request, group) of reads, of slots whose write was never told, or that were still to
    come when the last was told."""
    judged: int = 0
    """Claims, and first reads after a hit, of which it was found whether they are right."""
    wrong: dict[int, int] = field(default_factory=dict)
    """Claims, by number, that were wrong: the first finding (I1, I13) about it."""
    verdicts: dict[str, int] = field(default_factory=dict)
    """Slots that I1 found wrong, by what they held."""
    mid_block: int = 0
    """Chunks that started inside a block and ran past its end."""
