"""Other joint lookups: what releases and proposals had instead of the intersection.

Each group is looked up by itself, as if it were alone, and the joint length is made of the lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from stateat.sim.cache.lookup import Found, Geometry, Hit, family_hit, intersection
from stateat.sim.cache.pool import BlockPool


def minimum(
    pool: BlockPool, geo: Geometry, hashes: Sequence[bytes], num_groups: int, limit: int, known: int | None = None
) -> Hit:
    """Return the shortest of the groups' own hits (vllm-ascend 11049).

    A state is a point: a group that has a longer one need not have this one, and its column is then null, or holds
    another offset.
    """
    own = _own(pool, geo, hashes, limit, limit if known is None else known)
    return _joined(geo, own, num_groups, _least(own))


def maximum(
    pool: BlockPool, geo: Geometry, hashes: Sequence[bytes], num_groups: int, limit: int, known: int | None = None
) -> Hit:
    """Return the longest of the groups' own hits (vLLM issue 46453): the others have less than that."""
    own = _own(pool, geo, hashes, limit, limit if known is None else known)
    return _joined(geo, own, num_groups, max((new for _, new in own), default=0))


def per_group(
    pool: BlockPool, geo: Geometry, hashes: Sequence[bytes], num_groups: int, limit: int, known: int | None = None
) -> Hit:
    """Let each group keep its own hit, and start the request where attention's ends (vLLM PR 50344's lookup for a
    connector that brings the missing states; here none does).

    Where a state lies beyond attention's hit, or there is no attention, the groups are reconciled.
    """
    own = _own(pool, geo, hashes, limit, limit if known is None else known)
    dense = own[0][1]
    if not geo.attention_first or any(new > dense for _, new in own):
        return intersection(pool, geo, hashes, num_groups, limit, known)
    return _joined(geo, own, num_groups, dense)


def _own(pool: BlockPool, geo: Geometry, hashes: Sequence[bytes], limit: int, known: int) -> list[Found]:
    """Return what each family has, whatever the others have."""
    return [family_hit(pool, geo, family, hashes, limit, limit, known, family.drops) for family in geo.families]


def _least(own: Iterable[Found]) -> int:
    return min((new for _, new in own), default=0)


def _joined(geo: Geometry, own: Sequence[Found], num_groups: int, tokens: int) -> Hit:
    """Cut the groups' blocks to a joint length; a group that has less keeps what it has."""
    blocks: list[list[int]] = [[] for _ in range(num_groups)]
    lengths = [0] * num_groups
    for family, (found, new) in zip(geo.families, own, strict=True):
        for group, ids in zip(family.groups, found, strict=True):
            blocks[group], lengths[group] = ids[: -(-tokens // family.block_size)], new
    longest = max(lengths)
    return Hit(tokens, blocks, longest if longest > tokens else 0, lengths)


LOOKUPS: dict[str, Callable[..., Hit]] = {
    "intersection": intersection,
    "intersection-first-cut": partial(intersection, cut_all=False),
    "minimum": minimum,
    "maximum": maximum,
    "per-group": per_group,
}
