"""Where a state can be reused: one object for the split, the partial tail, the checkpoint and retention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sim.cache.retention import resend_and_longer, unshifted

Reusable = Callable[[int, int, bool, int], int]
"""(tokens, unit, drop, look-ahead) -> the last multiple of the unit from which this prompt could be resumed."""


def floor(tokens: int, unit: int, drop: bool, lookahead: int) -> int:
    """The last multiple, and the one before for a drafter that drops one (vLLM up to 0.29)."""
    last = tokens // unit * unit
    return max(last - unit, 0) if drop else last


def leaves_tokens(tokens: int, unit: int, drop: bool, lookahead: int) -> int:
    """At least one token is left to compute (0.32), or as many as a hash looks ahead (0.33); a drop leaves some."""
    last = (tokens if drop else tokens - max(1, lookahead)) // unit * unit
    return max(last - unit, 0) if drop else max(last, 0)


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The reusable ends of a prompt."""

    reusable: Reusable
    tail_drops: bool
    """Whether the partial tail follows the drop and leaves a token too (0.32+), or is the last hash boundary."""

    def tail(self, prompt: int, unit: int, drop: bool, lookahead: int) -> int:
        """The prompt's end for hits finer than a block."""
        return self.reusable(prompt, unit, drop, lookahead) if self.tail_drops else prompt // unit * unit

    def attention_tail(self, prompt: int, unit: int, drops: bool, hashed: int) -> int:
        """Where attention advertises the prompt's tail; ``drops``: its group gives up a unit; ``hashed``: units
        whose hash is known."""
        if not self.tail_drops:
            return prompt // unit * unit
        return min((prompt if drops else prompt - 1) // unit, hashed) * unit

    def replays(self, prompt: int, block: int, drop: bool) -> tuple[int, ...]:
        """Ends that retention keeps for whoever sends the prompt again, or a longer one."""
        return resend_and_longer(prompt, block, drop) if self.tail_drops else unshifted(prompt, block, drop)


BOUNDARIES: dict[str, object] = {
    "floor": Boundaries(floor, tail_drops=False),
    "leaves-tokens": Boundaries(leaves_tokens, tail_drops=True),
}
