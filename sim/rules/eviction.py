"""Eviction: which free block is handed out next, and with it what the cache forgets."""

from __future__ import annotations

from dataclasses import dataclass

from stateat.sim.rules.record import Rule, Standing, Value


@dataclass(frozen=True, slots=True)
class Eviction:
    """Choice of the free block that is handed out next."""

    deepest: bool = False
    """True: if that is a state, the free state of its group that stands for most tokens (SGLang issue 38000)."""
    uncached_last: bool = False
    """True: without prefix caching blocks are handed out in the order in which they were freed (vLLM 0.27)."""


EVICTION: Rule[Eviction] = Rule(
    "Which free block is handed out next?",
    {
        "lru": Value(
            Eviction(),
            "First those under no claim, the one freed last first; then those under a claim, in the order "
            "in which they were freed.",
            "vLLM to 0.33",
        ),
        "lru-uncached-last": Value(
            Eviction(uncached_last=True),
            "As `lru`, but without prefix caching the one freed first.",
            "vLLM 0.27",
        ),
        "deepest-state-first": Value(
            Eviction(deepest=True),
            "As `lru`, but where that block holds a state, the free state of its group that stands for most tokens.",
            "SGLang issue 38000",
            Standing.PROPOSAL,
        ),
    },
)
