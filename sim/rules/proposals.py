"""Small rules of splits that somebody proposed, or that came before: see :mod:`stateat.sim.rules.splits`."""

from __future__ import annotations

from stateat.sim.rules.split import Chunk, last_cache_position


def floor_sizes(chunk: Chunk, end: int) -> int:
    """Below the last cacheable position a chunk is whole blocks long, wherever it starts; one that is shorter than a
    block is kept (vLLM PR 40709)."""
    if end >= last_cache_position(chunk):
        return end
    size = (end - chunk.start) // chunk.block * chunk.block
    return chunk.start + size if size else end


def keeps_last_block(chunk: Chunk) -> int:
    """The last reusable end, less a block for a drop only where no token follows that end (vLLM PR 48815)."""
    last = chunk.num_tokens - chunk.num_tokens % chunk.block
    kept = chunk.drop and not chunk.exempt and last < chunk.num_tokens
    return last if kept else last_cache_position(chunk)


def ignores_drop(chunk: Chunk) -> int:
    """The last boundary, although a look-ahead drafter gives up the block before it."""
    return 0 if chunk.exempt else chunk.num_tokens - chunk.num_tokens % chunk.block


def replay_boundary(chunk: Chunk) -> tuple[int, ...]:
    """The position where whoever sends the prompt again can start at most: a token is left to compute, or as many as a
    hash looks ahead; a drop is given up."""
    unit = chunk.hash_unit or chunk.block
    reach = (chunk.num_prompt - max(1, chunk.lookahead)) // unit * unit - (unit if chunk.drop else 0)
    return () if chunk.exempt else (max(reach, 0) // chunk.block * chunk.block,)


def snapshot_points(chunk: Chunk) -> tuple[int, ...]:
    """The positions that the client asked for, each rounded down to the grid, or to where a hit can end."""
    unit = chunk.hash_unit if chunk.exact_snapshots else chunk.block
    return tuple(point // unit * unit for point in chunk.snapshots)
