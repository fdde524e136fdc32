"""The drop in recurrent groups, where a policy lets them take part in it.

A look-ahead drafter gives up the end of a hit. Attention's blocks are a row, from which the last can be taken; a state
is one block behind null columns. In all releases recurrent groups neither look further nor drop (``Geometry.states``
is None); these are the other policies that were there.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateat.sim.cache.lookup import Found, GroupSet, Sizes, margin, state_hit
from stateat.sim.cache.pool import BlockPool
from stateat.sim.events import NULL


def gains(pool: BlockPool, geo: Sizes, family: GroupSet, hashes: Sequence[bytes], candidate: int, known: int) -> Found:
    """Search one block past the candidate but do not drop it: the hit may exceed the candidate (vLLM issue 45614)."""
    return state_hit(pool, geo, family, hashes, min(candidate + margin(geo, family), known))


def pops(pool: BlockPool, geo: Sizes, family: GroupSet, hashes: Sequence[bytes], candidate: int, known: int) -> Found:
    """Drop the last block, which is a state's only one: nothing is left (PR 48375)."""
    return [[] for _ in family.groups], 0


def pops_to_null(
    pool: BlockPool, geo: Sizes, family: GroupSet, hashes: Sequence[bytes], candidate: int, known: int
) -> Found:
    """Drop the last block as :func:`pops` does, but let the null columns that are left be a hit (vllm-ascend 12038)."""
    found, new = gains(pool, geo, family, hashes, candidate, known)
    unit = min(geo.alignment, family.block_size)
    left = max(new - unit, 0)
    return [[NULL] * -(-left // family.block_size) for _ in found], left


def searches_again(
    pool: BlockPool, geo: Sizes, family: GroupSet, hashes: Sequence[bytes], candidate: int, known: int
) -> Found:
    """Give the state up for the last one at least a drop before it (issue 48375's third way)."""
    found, new = state_hit(pool, geo, family, hashes, min(candidate, known))
    if not new:
        return found, 0
    return state_hit(pool, geo, family, hashes, new - min(geo.alignment, family.block_size))
