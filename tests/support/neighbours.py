"""Small worlds that tell vLLM 0.29, 0.30, 0.31 and 0.32 apart, with what each release itself made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stateat.sim.events import Group
from stateat.sim.options import Options, Speculative
from stateat.sim.run.engine import Make
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

UNRECORDED = frozenset({"0.27.1", "0.30.0", "0.31.0"})
"""Releases with a preset of which there are no recordings: they are held live alone."""


class Facts(NamedTuple):
    """What comes of a world."""

    steps: int
    hits: tuple[int, ...]
    """Tokens that each request hit."""
    claims: int
    preempted: int


@dataclass(frozen=True)
class World:
    """One or two prompts on attention and states."""

    sizes: tuple[int, int]
    """Tokens of a block of attention, and of the states."""
    prompts: tuple[int, ...]
    """Tokens of each prompt; one goes on from the other, and comes once that has ended."""
    found: Mapping[str, Facts]
    """By release; one that lacks what is asked for is left out."""
    outputs: int = 1
    drafts: int = 0
    """Drafts of MTP, all wrong."""
    method: str = "mtp"
    flagged: bool = False
    """Attention is the drafter's own group."""
    drop: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    def facts(self, release: str, make: Make | None = None) -> Facts:
        """What comes of it under a preset, or on the engine that ``make`` makes."""
        attention, states = self.sizes
        speculative = Speculative()
        if self.drafts:
            speculative = Speculative(self.method, self.drafts, (0,), block_drop=self.drop)  # type: ignore[arg-type]
        groups = (Group("attention", "full-attention", attention, self.flagged), Group("states", "recurrent", states))
        said = {"num_blocks": 200, "max_num_batched_tokens": 64, "scheduler_reserve_full_isl": False, **self.options}
        options = Options(groups, preset=f"vllm-{release}", speculative=speculative, clock="steps", **said)
        arrivals = [
            Arrival(f"r{i}", i, 0, ((1, prompt),), self.outputs, after=f"r{i - 1}" if i else None)
            for i, prompt in enumerate(self.prompts)
        ]
        outcome = drive(options, arrivals, fast_forward=make is None, make=make)
        return Facts(outcome.steps, tuple(outcome.hits.values()), outcome.claims, outcome.preempted)


WORLDS: Mapping[str, World] = {
    "a lone prompt longer than the threshold": World(
        (2, 2),
        (3,),
        {
            "0.29.0": Facts(2, (0,), 1, 0),
            "0.30.0": Facts(2, (0,), 1, 0),
            "0.31.0": Facts(1, (0,), 0, 0),
            "0.32.0": Facts(1, (0,), 0, 0),
        },
        drafts=1,
        options={"long_prefill_token_threshold": 2},
    ),
    "a prompt of two blocks, and checkpoints": World(
        (4, 4),
        (8,),
        {
            "0.29.0": Facts(1, (0,), 1, 0),
            "0.30.0": Facts(1, (0,), 2, 0),
            "0.31.0": Facts(1, (0,), 2, 0),
            "0.32.0": Facts(1, (0,), 2, 0),
        },
        options={"num_prefill_checkpoint_blocks": 1},
    ),
    "a resend of a prompt whose end lies inside a block, under retention 0": World(
        (4, 4),
        (10, 10),
        {
            "0.29.0": Facts(2, (0, 8), 1, 0),
            "0.30.0": Facts(3, (0, 0), 2, 0),
            "0.31.0": Facts(2, (0, 8), 1, 0),
            "0.32.0": Facts(2, (0, 8), 1, 0),
        },
        options={"num_prefill_checkpoint_blocks": 1, "prefix_cache_retention_interval": 0},
    ),
    "a prompt of a hash unit, whose attention alone is flagged": World(
        (4, 16),
        (4,),
        {
            "0.29.0": Facts(1, (0,), 1, 0),
            "0.30.0": Facts(1, (0,), 1, 0),
            "0.31.0": Facts(1, (0,), 0, 0),
            "0.32.0": Facts(1, (0,), 0, 0),
        },
        drafts=1,
        flagged=True,
    ),
    "a prompt of a hash unit, and no flag": World(
        (2, 4),
        (2,),
        {
            "0.29.0": Facts(1, (0,), 1, 0),
            "0.30.0": Facts(1, (0,), 0, 0),
            "0.31.0": Facts(1, (0,), 0, 0),
            "0.32.0": Facts(1, (0,), 0, 0),
        },
        drafts=1,
    ),
    "a prompt of a hash unit, without a drafter": World(
        (2, 4),
        (2,),
        {
            "0.29.0": Facts(1, (0,), 1, 0),
            "0.30.0": Facts(1, (0,), 1, 0),
            "0.31.0": Facts(1, (0,), 1, 0),
            "0.32.0": Facts(1, (0,), 0, 0),
        },
    ),
    "a resend of two blocks with a drafter": World(
        (4, 2),
        (8, 8),
        {
            "0.29.0": Facts(4, (0, 0), 4, 0),
            "0.30.0": Facts(4, (0, 0), 4, 0),
            "0.31.0": Facts(4, (0, 0), 4, 0),
            "0.32.0": Facts(5, (0, 0), 5, 0),
        },
        drafts=1,
    ),
    "a drafter that is not to drop": World(
        (2, 2),
        (3,),
        {"0.30.0": Facts(2, (0,), 1, 0), "0.31.0": Facts(2, (0,), 1, 0), "0.32.0": Facts(2, (0,), 1, 0)},
        drafts=1,
        drop=False,
    ),
    "a longer prompt, and a junction inside a block": World(
        (4, 16),
        (24, 28),
        {"0.30.0": Facts(4, (0, 16), 5, 0), "0.31.0": Facts(4, (0, 16), 5, 0), "0.32.0": Facts(3, (0, 20), 4, 0)},
        drafts=1,
        options={"num_prefill_checkpoint_blocks": 1, "shared_prefix_checkpoint": True},
    ),
    "a decode in a pool with a block too few": World(
        (4, 16),
        (25,),
        {
            "0.29.0": Facts(407, (0,), 202, 200),
            "0.30.0": Facts(407, (0,), 202, 200),
            "0.31.0": Facts(11, (0,), 5, 1),
            "0.32.0": Facts(11, (0,), 5, 1),
        },
        outputs=7,
        drafts=3,
        options={"num_blocks": 15},
    ),
    "a prefill in three chunks that export, in a scarce pool": World(
        (4, 4),
        (60,),
        {
            "0.29.0": Facts(6, (0,), 5, 0),
            "0.30.0": Facts(5, (0,), 8, 1),
            "0.31.0": Facts(4, (0,), 10, 0),
            "0.32.0": Facts(4, (0,), 6, 0),
        },
        outputs=2,
        drafts=2,
        method="ngram",
        options={"num_blocks": 23, "max_num_batched_tokens": 22, "num_prefill_checkpoint_blocks": 1},
    ),
    "the same with a block less": World(
        (4, 4),
        (60,),
        {
            "0.29.0": Facts(6, (0,), 5, 0),
            "0.30.0": Facts(5, (0,), 8, 1),
            "0.31.0": Facts(5, (0,), 8, 1),
            "0.32.0": Facts(4, (0,), 6, 0),
        },
        outputs=2,
        drafts=2,
        method="ngram",
        options={"num_blocks": 22, "max_num_batched_tokens": 22, "num_prefill_checkpoint_blocks": 1},
    ),
}
