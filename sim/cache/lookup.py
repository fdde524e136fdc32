"""The joint lookup: the longest prefix on which all groups agree."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stateat.sim.cache.pool import BlockPool
from stateat.sim.events import NULL, Group
from stateat.sim.options import Options
from stateat.sim.rules.partial_hits import PARTIAL_HITS_WHEN


@dataclass(frozen=True, slots=True)
class GroupSet:
    """Groups of one kind, block size and mode: looked up together, a hit must be in all of them."""

    recurrent: bool
    block_size: int
    groups: tuple[int, ...]
    drops: bool
    """A look-ahead drafter makes it give up the last block (or hash unit) of a hit."""
    window: int = 0
    """Tokens that its layers attend to; 0: all before."""

    @property
    def dense(self) -> bool:
        """True if a hit of it covers all that is shorter."""
        return not self.recurrent and not self.window


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes in tokens that a lookup needs."""

    families: tuple[GroupSet, ...]
    """Attention first: its hits are downward-closed, and bound the others'."""
    hash_unit: int
    alignment: int
    """Hits are multiples of it: the hash unit where hits are finer than a block, else the scheduler block."""
    fine: bool
    past_the_end: bool = False
    """The block that a drafter drops may lie past the most tokens to hit."""
    states: StateSearch | None = None
    """Search of recurrent groups that a drafter makes drop; None: as if it did not (all releases)."""

    @property
    def attention_first(self) -> bool:
        return self.families[0].dense


class Hit(NamedTuple):
    """A lookup's answer."""

    tokens: int
    blocks: list[list[int]]
    """Blocks by group; null blocks stand for recurrent columns without a state."""
    junction: int
    """Length (tokens) of a longer prefix that some group has than all agree on; 0: none does."""
    group_hits: list[int]


Found = tuple[list[list[int]], int]
"""The blocks of each group of a family, and the tokens that they stand for."""

StateSearch = Callable[[BlockPool, Sizes, GroupSet, Sequence[bytes], int, int], Found]
"""(pool, geometry, family, hashes, candidate length, tokens whose hash is known)"""

Lookup = Callable[[BlockPool, Sizes, Sequence[bytes], int, int, int], Hit]
"""(pool, geometry, hashes of the request's units, number of groups, most tokens to hit, tokens whose hash is known)"""


def flagged_or_all(groups: Sequence[Group]) -> Collection[int]:
    """Return the groups that are flagged for the drafter; all of them if none is (vLLM to 0.33)."""
    return {i for i, g in enumerate(groups) if g.eagle} or set(range(len(groups)))


def geometry(
    options: Options,
    drops: bool,
    past_the_end: bool = False,
    scope: Collection[int] | None = None,
    states: StateSearch | None = None,
    fine: bool | None = None,
) -> Sizes:
    """Return the families of the options' groups, and the sizes that a lookup needs.

    ``drops``: a look-ahead drafter gives something up, of the groups in ``scope``. ``fine``: hits are finer than a
    block (None: as in vLLM 0.29).
    """
    eagle = set(flagged_or_all(options.groups) if scope is None else scope)
    members: dict[tuple[bool, int, int, str], list[int]] = {}
    for i, group in enumerate(options.groups):
        if group.prefix_cacheable:
            mode = group.mamba_cache_mode if group.recurrent else ""
            members.setdefault((group.recurrent, group.block_size, group.sliding_window, mode), []).append(i)
    families = [
        GroupSet(recurrent, size, tuple(groups), drops and not eagle.isdisjoint(groups), window)
        for (recurrent, size, window, _), groups in members.items()
    ]
    families.sort(key=lambda f: not f.dense)
    fine = PARTIAL_HITS_WHEN["cacheable-groups"].on(options) if fine is None else fine
    return Sizes(
        tuple(families),
        options.hash_unit,
        options.hash_unit if fine else options.scheduler_block_size,
        fine,
        past_the_end,
        states,
    )


def intersection(
    pool: BlockPool,
    geo: Sizes,
    hashes: Sequence[bytes],
    num_groups: int,
    limit: int,
    known: int | None = None,
    cut_all: bool = True,
) -> Hit:
    """Ask each family, which accepts the candidate length or lowers it, until none does (vLLM's hybrid coordinator).

    ``cut_all``: the blocks of all attention families are cut to it; else those of the first alone.
    """
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
            found, new = family_hit(pool, geo, family, hashes, current, limit, known, drop)
            dense_done[i] = family.dense
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
    for family in geo.families if cut_all else geo.families[:1]:
        if family.dense:
            for group in family.groups:
                del blocks[group][-(-length // family.block_size) :]
    return Hit(length, blocks, longest if longest > length else 0, group_hits)


def family_hit(
    pool: BlockPool,
    geo: Sizes,
    family: GroupSet,
    hashes: Sequence[bytes],
    candidate: int,
    limit: int,
    known: int,
    drop: bool,
) -> Found:
    """Return what one family has of the candidate length, after what it gives up (``drop``)."""
    if family.recurrent:
        if drop and geo.states is not None:
            return geo.states(pool, geo, family, hashes, candidate, known)
        return state_hit(pool, geo, family, hashes, min(candidate, known))
    reach = candidate + margin(geo, family) if drop else candidate
    reach = min(reach, known if geo.past_the_end and drop else limit, known)
    if family.window:
        return _window_hit(pool, geo, family, hashes, reach, drop)
    return _dense_hit(pool, geo, family, hashes, reach, drop)


def margin(geo: Sizes, family: GroupSet) -> int:
    """Return how far (tokens) a family looks past the candidate, so that what it drops lands back on it."""
    fine = geo.fine and not family.window
    return geo.hash_unit if fine and family.block_size > geo.hash_unit else family.block_size


def _joint(pool: BlockPool, family: GroupSet, key: bytes) -> list[int] | None:
    """Return the block under this hash in each group of a family, or None."""
    found = []
    for group in family.groups:
        block = pool.find(group, key)
        if block is None:
            return None
        found.append(block)
    return found


def _dense_hit(pool: BlockPool, geo: Sizes, family: GroupSet, hashes: Sequence[bytes], limit: int, drop: bool) -> Found:
    """Find full blocks from the left while they are there, then (fine hits) the longest tail inside the next one."""
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


def window_blocks(window: int, block_size: int, drops: bool) -> int:
    """Count the blocks in a row that a hit needs: those that the next token attends to, and one that is dropped."""
    return -(-(window - 1) // block_size) + drops


def _window_hit(
    pool: BlockPool, geo: Sizes, family: GroupSet, hashes: Sequence[bytes], limit: int, drop: bool
) -> Found:
    """Find the rightmost row of as many blocks as a window reaches back to, or what there is of one from the start."""
    size, align = family.block_size, geo.alignment
    scale = size // geo.hash_unit
    wanted = window_blocks(family.window, size, drop)
    columns = min(limit // size, len(hashes) // scale)
    table: list[list[int] | None] = [None] * columns
    row = end = 0
    for i in range(columns - 1, -1, -1):
        joint = _joint(pool, family, hashes[(i + 1) * scale - 1])
        if joint is None or (row == 0 and (i + 1 - drop) * size % align):
            row = row if joint is not None else 0
            continue
        table[i], row = joint, row + 1
        if row >= wanted:
            end = i + row
            break
    else:
        # Cut to the alignment before the drop, and again after it: such a hit loses a scheduler block more.
        end = row - row * size % align // size
    if end and drop:
        end -= 1
    end -= end * size % align // size
    nulls = [NULL] * len(family.groups)
    return [[ids[g] for ids in (b or nulls for b in table[:end])] for g in range(len(family.groups))], end * size


def state_hit(pool: BlockPool, geo: Sizes, family: GroupSet, hashes: Sequence[bytes], limit: int) -> Found:
    """Find the rightmost published state at or below the limit; the columns before it are null."""
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
