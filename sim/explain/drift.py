"""Drift: what a poisoned restore does to an output, on the oracle's small seeded language model."""

from __future__ import annotations

from stateat.oracle.drift import MAX_TOKENS as LONGEST_DRIFT
from stateat.oracle.drift import Absorbed, Drift, Token
from stateat.oracle.drift import drift as continuations
from stateat.sim.explain.explanation import Subject

__all__ = ["LONGEST_DRIFT", "Drift", "Token", "drift"]
"""Names that reports may know of the oracle's drift."""


def drift(subject: Subject, tokens: int) -> Drift | None:
    """Return the two continuations of a request that restored from a poisoned slot; None: its prompt is too long."""
    if subject.prompt.size > LONGEST_DRIFT:
        return None
    held = [Absorbed(ids, start) for ids, start in subject.held]
    return continuations(subject.prompt, subject.offset, held, tokens)
