"""The split: how many of the tokens that a request was offered its next prefill chunk takes.

In align mode a recurrent state exists only where a chunk ends, so chunk ends are steered onto positions that
can be cached. The releases' split functions are one function with five small rules (docs/rules.md): until where
chunk ends keep to the grid, when a mid-block start stops at its block's end, where the last reusable end lies,
what a checkpoint chunk is exempt from, and where a shared-prefix junction stops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Chunk:
    """Question to a split: positions and sizes in tokens."""

    start: int
    offered: int
    """Tokens that the budget, the threshold and the request's length leave."""
    prefill_end: int
    """max(num_prompt, num_tokens - 1): where the prefill, or its replay after a preemption, ends."""
    num_prompt: int
    num_tokens: int
    block: int
    """The grid: the block size that the split aligns to."""
    hash_unit: int
    """The granularity of hits, 0 when hits are not finer than a block."""
    cap: int
    """The most that a prefill chunk may ever take (configured budget and threshold, not what is left of them)."""
    drop: bool
    """True if a look-ahead drafter gives up a block of each hit."""
    lookahead: int
    junction: int
    """The position where this prefix leaves a longer one that attention has cached; 0: none known."""
    last: int | None = None
    """The last reusable end on the grid (None: num_tokens rounded down, less a block for a drop)."""
    tail: int | None = None
    """The reusable end of the prompt for hits finer than a block, 0: none (None: the last hash boundary)."""
    exempt: bool = False
    """True if the chunk exports a checkpoint on its way, and may end off the grid and past its block."""
    exact_junction: bool = False
    """True if a state at the junction itself can be cached, inside a block too."""
    private: bool | None = None
    """True if it may end inside a block that it cannot fill; None: where the block is wider than any chunk may be."""
    snapshots: tuple[int, ...] = ()
    """Positions where the client asks for a state: ends of its images, its tools, its system prompt."""
    exact_snapshots: bool = False
    """True if a state there can be cached inside a block too."""
    retained: tuple[int, ...] = ()
    """Boundaries inside the chunk whose states retention keeps; told to splits that stop there."""


class Cut(NamedTuple):
    """The split's answer: tokens, and the rule that ended the chunk."""

    tokens: int
    stop: str


Split = Callable[[Chunk], Cut | int]


def last_cache_position(chunk: Chunk) -> int:
    """The last reusable end on the grid."""
    if chunk.last is not None:
        return chunk.last
    last = chunk.num_tokens - chunk.num_tokens % chunk.block
    return max(last - chunk.block, 0) if chunk.drop else last


def partial_tail(chunk: Chunk) -> int:
    """The prompt's reusable end, where an entry finer than a block can be registered; 0: none."""
    if chunk.tail is not None:
        return chunk.tail
    return chunk.num_prompt // chunk.hash_unit * chunk.hash_unit if chunk.hash_unit else 0


def align_below_cacheable(chunk: Chunk, end: int) -> int:
    """Chunk ends keep to the grid only below the last cacheable position (vLLM 0.26: the old gate)."""
    return end // chunk.block * chunk.block if end < last_cache_position(chunk) else end


def align_below_prefill_end(chunk: Chunk, end: int) -> int:
    """Every chunk but the prefill's last ends on the grid, unless the block is wider than any chunk may be
    and no boundary is in reach (vLLM PR 51113; rule ``wide_block``)."""
    if end >= chunk.prefill_end:
        return end
    private = chunk.block > chunk.cap if chunk.private is None else chunk.private
    aligned = end // chunk.block * chunk.block
    return aligned if aligned > chunk.start or not private else end


def never_align(chunk: Chunk, end: int) -> int:
    """The offered end: chunks keep to no grid."""
    return end


def realign_if_cacheable(chunk: Chunk) -> bool:
    """A mid-block start stops at its block's end if that boundary can be cached (vLLM 0.26)."""
    return (chunk.start // chunk.block + 1) * chunk.block <= last_cache_position(chunk)


def realign_always(chunk: Chunk) -> bool:
    """A mid-block start always stops at its block's end (vLLM PR 51113)."""
    return True


def realign_below_cacheable(chunk: Chunk) -> bool:
    """Only a start below the last cacheable position is re-aligned (vLLM PR 45477, not merged)."""
    return chunk.start < last_cache_position(chunk)


def realign_never(chunk: Chunk) -> bool:
    """A mid-block start runs on."""
    return False


@dataclass(frozen=True, slots=True)
class AlignedSplit:
    """The split of vLLM's align mode as rules. Called only for chunks that start before ``prefill_end``."""

    align: Callable[[Chunk, int], int]
    realign: Callable[[Chunk], bool]
    every_boundary: bool = False
    """Stop at the next boundary from an aligned start too (vLLM PR 54076)."""
    last: Callable[[Chunk], int] = last_cache_position
    """The last reusable end on the grid, where a chunk stops."""
    extra: tuple[tuple[Callable[[Chunk], tuple[int, ...]], str], ...] = ()
    """More positions where a chunk must not run past, and what they are called."""
    junctions: bool = True
    """True if it stops for a shared prefix."""
    replays: bool = True
    """True if it is asked for a request that has outputs: one that was preempted and prefills again."""
    at_retained: bool = False
    """Stop at the next boundary whose state retention keeps (vLLM PRs 53479 and 52897)."""

    def __call__(self, chunk: Chunk) -> Cut:
        if chunk.num_tokens > chunk.num_prompt and not self.replays:
            return Cut(chunk.offered, "")
        start, offered_end = chunk.start, chunk.start + chunk.offered
        end = offered_end if chunk.exempt else self.align(chunk, offered_end)
        stop = "block-boundary" if end != offered_end else ""
        if chunk.exempt and end < chunk.prefill_end and end % chunk.block:
            stop = "checkpoint"
        for position, name in self._stops(chunk, end):
            if start < position < end:
                end, stop = position, name
        return Cut(max(end - start, 0), stop)

    def _stops(self, chunk: Chunk, end: int) -> tuple[tuple[int, str], ...]:
        """Positions where a chunk must not run past, in the order in which ties are named."""
        start, block = chunk.start, chunk.block
        boundary = (start // block + 1) * block
        last, tail, junction = self.last(chunk), partial_tail(chunk), chunk.junction if self.junctions else 0
        mid_block = boundary if start % block and not chunk.exempt and self.realign(chunk) else 0
        floored = start + (junction - start) // block * block
        return (
            (mid_block, "mid-block"),
            (boundary if self.every_boundary and not chunk.exempt else 0, "every-boundary"),
            (chunk.retained[0] if chunk.retained and not chunk.exempt else 0, "retained"),
            (last, "last-cache-position"),
            (tail if last < tail < chunk.num_prompt else 0, "partial-tail"),
            ((junction if chunk.exact_junction else floored) if start < junction < end else 0, "junction"),
            *((position, name) for find, name in self.extra for position in find(chunk)),
        )
