"""Boundaries at which a state can be reused: one object for the split, the partial tail, checkpoints and retention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stateat.sim.options import Options
from stateat.sim.rules.record import Lack, Rule, Standing, Value
from stateat.sim.rules.retention import resend_and_longer, unshifted

Reusable = Callable[[int, int, bool, int], int]
"""(tokens, unit, drop, look-ahead) -> the last multiple of the unit from which this prompt could be resumed."""


def floor(tokens: int, unit: int, drop: bool, lookahead: int) -> int:
    """The last multiple, and the one before for a drafter that drops one (vLLM to 0.31)."""
    last = tokens // unit * unit
    return max(last - unit, 0) if drop else last


def leaves_tokens(tokens: int, unit: int, drop: bool, lookahead: int) -> int:
    """The last multiple that leaves a token to compute (0.32), or as many as a hash looks ahead (0.33); a drop does."""
    last = (tokens if drop else tokens - max(1, lookahead)) // unit * unit
    return max(last - unit, 0) if drop else max(last, 0)


def below_the_last_token(tokens: int, unit: int, drop: bool, lookahead: int) -> int:
    """The last multiple that a lookup capped at the last token but one can reach, drop or not (PR 52244)."""
    last = (tokens - 1) // unit * unit
    return max(last - unit, 0) if drop else last


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The reusable ends of a prompt."""

    reusable: Reusable
    tail_drops: bool
    """True: the partial tail is what ``reusable`` makes of hash units; False: it is the last hash boundary."""
    at_block_ends: bool
    """True if a tail that ends a block is published too, and attention's tail leaves a token (0.32)."""
    tail_by_group: bool = False
    """True if a recurrent group publishes the tail that its own flag says, wherever the split stops (0.30)."""
    stops_at_tail: bool = True
    """True if the split stops at the partial tail at all."""

    def tail(self, prompt: int, unit: int, drop: bool, lookahead: int) -> int:
        """Return the prompt's reusable end for hits finer than a block, in tokens; 0: none."""
        if not self.stops_at_tail:
            return 0
        return self.reusable(prompt, unit, drop, lookahead) if self.tail_drops else prompt // unit * unit

    def attention_tail(self, prompt: int, unit: int, drops: bool, hashed: int) -> int:
        """Return where attention publishes the prompt's tail, in tokens; 0: nowhere. ``drops``: its group gives up a
        unit; ``hashed``: units whose hash is known."""
        if not self.stops_at_tail:
            return 0
        if not self.at_block_ends:
            return prompt // unit * unit
        return min((prompt if drops else prompt - 1) // unit, hashed) * unit

    def replays(self, prompt: int, block: int, drop: bool) -> tuple[int, ...]:
        """Return the ends that retention keeps for whoever sends the prompt again, or a longer one."""
        return resend_and_longer(prompt, block, drop) if self.tail_drops else unshifted(prompt, block, drop)


@dataclass(frozen=True, slots=True)
class Junction:
    """Stop of a chunk for a prefix that is known to be shared."""

    exact: bool
    """True: exactly there, with ``shared_prefix_checkpoint``; False: rounded down to the grid."""
    published: bool = True
    """True if the state there is published; else the split was in vain."""


def _knows_no_exact_junction(options: Options) -> Iterator[Lack]:
    if options.shared_prefix_checkpoint:
        yield Lack(("shared_prefix_checkpoint",), "true", "false")


JUNCTION: Rule[Junction] = Rule(
    "Where does a chunk stop for a prefix that is known to be shared?",
    {
        "block-floored": Value(
            Junction(exact=False),
            "At the junction, rounded down to the grid from the chunk's start.",
            "vLLM to 0.29",
            lacks=_knows_no_exact_junction,
        ),
        "exact": Value(
            Junction(exact=True),
            "Exactly at the junction, and that state is published, if `shared_prefix_checkpoint` is on, hits are finer "
            "than a block, and groups are a look-ahead drafter's, of one module: flagged ones (`eagle`), whatever they "
            "give up, or all where none is flagged and something is given up; else as `block-floored`.",
            "vLLM 0.30",
        ),
        "exact-unpublished": Value(
            Junction(exact=True, published=False),
            "As `exact`, but that state is not published.",
            "the control",
            Standing.FAULT,
        ),
    },
)

BOUNDARIES: Rule[Boundaries] = Rule(
    "Where do a prompt's reusable ends lie?",
    {
        "floor": Value(
            Boundaries(floor, tail_drops=False, at_block_ends=False),
            "At the last multiple of the block, one less for a drop; the tail at the prompt's last hash boundary, if "
            "its hash is known (one that looks ahead may not be).",
            "vLLM to 0.29",
        ),
        "floor-with-tail-by-group": Value(
            Boundaries(floor, tail_drops=True, at_block_ends=False, tail_by_group=True),
            "As under `floor`, and the split stops a unit before the tail for a drop; but of recurrent groups only "
            "those that drop something in the lookup (flagged ones, `eagle`, or all where none is flagged) publish "
            "that state; the others publish the last hash boundary, where no chunk ends unless the prompt does.",
            "vLLM 0.30",
        ),
        "floor-with-tail": Value(
            Boundaries(floor, tail_drops=True, at_block_ends=False),
            "As under `floor`, with the tail of recurrent groups a unit less for a drop.",
            "vLLM 0.31",
        ),
        "leaves-tokens": Value(
            Boundaries(leaves_tokens, tail_drops=True, at_block_ends=True),
            "At the last multiple of the block that leaves a token to compute, or as many as a hash looks ahead; for a "
            "drop one unit less than the last multiple; the tail likewise, in hash units.",
            "vLLM 0.32, 0.33",
        ),
        "below-the-last-token": Value(
            Boundaries(below_the_last_token, tail_drops=True, at_block_ends=True),
            "At the last multiple of the block that a lookup can reach which may not see the last token, less a block "
            "or unit for a drop; the tail likewise.",
            "PR 52244",
            Standing.PROPOSAL,
        ),
        "whole-blocks": Value(
            Boundaries(floor, tail_drops=False, at_block_ends=False, stops_at_tail=False),
            "As under `floor`; but the split stops at no tail, and none is published, of attention neither.",
            "the control",
            Standing.PROPOSAL,
        ),
    },
)
