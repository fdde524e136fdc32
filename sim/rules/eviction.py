"""Eviction: which free block is handed out next, and with it what the cache forgets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from stateat.sim.rules.record import Rule, Standing, Value


class Victim(Enum):
    """Free block under a claim that is handed out next, once there is none without a claim."""

    LEAST_RECENT = auto()
    """The one that was freed first."""
    DEEPEST_STATE = auto()
    """The same, but in the place of a state the free state of its group that stands for most tokens."""
    SUPERSEDED_STATE = auto()
    """A state of which a longer one of the same prefix is published; else the one that was freed first."""


class Refresh(Enum):
    """Blocks that become the most recently used by a hit."""

    TAKEN = auto()
    """Blocks that the request uses: of a recurrent group the state from which it starts."""
    PREFIX = auto()
    """Blocks that are published of the prefix that is hit."""
    NOTHING = auto()
    """No block: each keeps the place that it had when it was free for the first time."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """Order in which free blocks are handed out."""

    victim: Victim = Victim.LEAST_RECENT
    refresh: Refresh = Refresh.TAKEN
    uncached_last: bool = False
    """True: without prefix caching blocks are handed out in the order in which they were freed (vLLM 0.27)."""


EVICTION: Rule[Eviction] = Rule(
    "Which free block is handed out next?",
    {
        "lru": Value(
            Eviction(),
            "First those under no claim, the one freed last first; then those under a claim, in the order "
            "in which they were freed. A hit refreshes the blocks that the request uses: of states the one from which "
            "it starts.",
            "vLLM to 0.33",
        ),
        "lru-uncached-last": Value(
            Eviction(uncached_last=True),
            "As `lru`, but without prefix caching the one freed first.",
            "vLLM 0.27",
        ),
        "lru-of-prefixes": Value(
            Eviction(refresh=Refresh.PREFIX),
            "As `lru`, but a hit refreshes all free blocks of the prefix, the states before the one that is used too.",
            "SGLang before PRs 31643 and 31648",
            Standing.FAULT,
        ),
        "fifo": Value(
            Eviction(refresh=Refresh.NOTHING),
            "As `lru`, but a hit refreshes nothing: those under a claim in the order in which they were freed for the "
            "first time.",
            "SGLang's `--radix-eviction-policy fifo`",
            Standing.PROPOSAL,
        ),
        "deepest-state-first": Value(
            Eviction(victim=Victim.DEEPEST_STATE),
            "As `lru`, but where that block holds a state, the free state of its group that stands for most tokens.",
            "SGLang issue 38000",
            Standing.PROPOSAL,
        ),
        "superseded-state-first": Value(
            Eviction(victim=Victim.SUPERSEDED_STATE),
            "As `lru`, but before all others under a claim the free states of which a longer one of the same prefix is "
            "published.",
            "vllm-mlx PR 766",
            Standing.PROPOSAL,
        ),
    },
)
