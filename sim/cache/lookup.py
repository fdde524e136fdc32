"""The joint lookup: the longest prefix on which all groups agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sim.cache.pool import NULL, BlockPool
from sim.engine.options import Options


@dataclass(frozen=True, slots=True)
class Family:
    """Groups of one kind and block size: looked up together, a hit must be in all of them."""

    recurrent: bool
    block_size: int
    groups: tuple[int, ...]
    drops: bool
    """Whether a look-ahead drafter makes it give up the last block (or hash unit) of a hit."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes in tokens that a lookup needs."""

    families: tuple[Family, ...]
    """Attention first: its hits are downward-closed, and bound the others'."""
    hash_unit: int
    alignment: int
    """Hits are multiples of it: the hash unit where hits are finer than a block, else the scheduler block."""
    fine: bool
    past_the_end: bool = False
    """Whether what a drafter drops may lie past the most tokens to hit."""

    @property
    def attention_first(self) -> bool:
        return not self.families[0].recurrent


class Hit(NamedTuple):
    """What a lookup found."""

    tokens: int
    blocks: list[list[int]]
    """Of each group; null blocks stand for recurrent columns without a state."""
    junction: int
    """Where some group has cached a longer prefix than all agree on: how long; 0: none."""
    group_hits: list[int]


Lookup = Callable[[BlockPool, Geometry, Sequence[bytes], int, int, int], Hit]
"""(pool, geometry, hashes of the request's units, number of groups, most tokens to hit, tokens whose hash is known)"""


def geometry(options: Options, drops: bool, past_the_end: bool = False) -> Geometry:
    """The families of the options' groups; ``drops``: whether a look-ahead drafter gives something up."""
    eagle = {i for i, g in enumerate(options.groups) if g.eagle} or set(range(len(options.groups)))
    members: dict[tuple[bool, int], list[int]] = {}
    for i, group in enumerate(options.groups):
        members.setdefault((group.recurrent, group.block_size), []).append(i)
    families = [
        Family(recurrent, size, tuple(groups), drops and not eagle.isdisjoint(groups))
        for (recurrent, size), groups in members.items()
    ]
    families.sort(key=lambda f: f.recurrent)
    fine = options.fine_hits
    return Geometry(
        tuple(families),
        options.hash_unit,
        options.hash_unit if fine else options.scheduler_block_size,
        fine,
        past_the_end,
    )


def intersection(
    pool: BlockPool, geo: Geometry, hashes: Sequence[bytes], num_groups: int, limit: int, known: int | None = None
) -> Hit:
    """Each family accepts the candidate length or lowers it, until none does (vLLM's hybrid coordinator)."""
    if known is None:
        known = limit
    blocks: list[list[int]] = [[] for _ in range(num_groups)]
    lengths = [0] * num_groups
    dense_done = [False] * len(geo.families)
    dropped: set[int] = set()
    length, longest = limit, 0
    simple = len(geo.families) == 2 and geo.attention_first
    while True:
        current = length
        for i, family in enumerate(geo.families):
            if dense_done[i]:
                current = min(current, lengths[family.groups[0]])
                continue
            drop = family.drops and i not in dropped
            if family.recurrent:
                found, new = _recurrent_hit(pool, geo, family, hashes, min(current, known))
            else:
                reach = current + _margin(geo, family) if drop else current
                reach = min(reach, known if geo.past_the_end and drop else limit, known)
                found, new = _dense_hit(pool, geo, family, hashes, reach, drop)
                dense_done[i] = True
            if drop:
                dropped.add(i)
            elif new < current:
                dropped.clear()
            current = new
            for group, ids in zip(family.groups, found, strict=True):
                blocks[group], lengths[group] = ids, new
            longest = max(longest, current)
        if current >= length:
            break
        length = current
        if simple:
            break
    group_hits = list(lengths)
    for family in geo.families:
        if not family.recurrent:
            for group in family.groups:
                del blocks[group][-(-length // family.block_size) :]
    return Hit(length, blocks, longest if longest > length else 0, group_hits)


def _margin(geo: Geometry, family: Family) -> int:
    """How far a dense family looks past the candidate, so that what it drops lands back on it."""
    return geo.hash_unit if geo.fine and family.block_size > geo.hash_unit else family.block_size


def _joint(pool: BlockPool, family: Family, key: bytes) -> list[int] | None:
    """The block under this hash in each group of a family, or None."""
    found = []
    for group in family.groups:
        block = pool.find(group, key)
        if block is None:
            return None
        found.append(block)
    return found


def _dense_hit(
    pool: BlockPool, geo: Geometry, family: Family, hashes: Sequence[bytes], limit: int, drop: bool
) -> tuple[list[list[int]], int]:
    """Full blocks from the left while they are there, then (fine hits) the longest tail inside the next one."""
    size, unit = family.block_size, geo.hash_unit
    scale = size // unit
    keys = hashes[scale - 1 : limit // unit // scale * scale : scale]
    runs = [pool.run(group, keys) for group in family.groups]
    full = min(map(len, runs))
    found = [ids[:full] for ids in runs]
    length = full * size
    if geo.alignment < size:
        first = full * scale
        for i in range(min(first + scale - 1, limit // unit) - 1, first - 1, -1):
            joint = _joint(pool, family, hashes[i])
            if joint is not None:
                for ids, block in zip(found, joint, strict=True):
                    ids.append(block)
                length = (i + 1) * unit
                break
    if drop and length > 0:
        length -= min(geo.alignment, size)
    length -= length % geo.alignment
    for ids in found:
        del ids[-(-length // size) :]
    return found, length


def _recurrent_hit(
    pool: BlockPool, geo: Geometry, family: Family, hashes: Sequence[bytes], limit: int
) -> tuple[list[list[int]], int]:
    """The rightmost published state at or below the limit; the columns before it are null."""
    size, unit = family.block_size, geo.hash_unit
    stride = unit if geo.alignment < size and size % geo.alignment == 0 else size
    for length in range(limit // stride * stride, 0, -stride):
        if length % geo.alignment:
            continue
        joint = _joint(pool, family, hashes[length // unit - 1])
        if joint is not None:
            column = (length - 1) // size
            return [[NULL] * column + [block] for block in joint], length
    return [[] for _ in family.groups], 0
