"""Other joint lookups: what releases and proposals had instead of the intersection.

Each group is looked up by itself, as if it were alone, and the joint length is made of the lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from stateat.sim.cache.lookup import Found, Hit, Sizes, family_hit, intersection
from stateat.sim.cache.pool import BlockPool
from stateat.sim.rules.answers import count, counts
from stateat.sim.rules.record import Argument, Rule, Signature, Standing, Value


def minimum(
    pool: BlockPool, geo: Sizes, hashes: Sequence[bytes], num_groups: int, limit: int, known: int | None = None
) -> Hit:
    """Return the shortest of the groups' own hits (vllm-ascend 11049).

    A state is a point: a group that has a longer one need not have this one, and its column is then null, or holds
    another offset.
    """
    own = _own(pool, geo, hashes, limit, limit if known is None else known)
    return _joined(geo, own, num_groups, _least(own))


def maximum(
    pool: BlockPool, geo: Sizes, hashes: Sequence[bytes], num_groups: int, limit: int, known: int | None = None
) -> Hit:
    """Return the longest of the groups' own hits (vLLM issue 46453): the others have less than that."""
    own = _own(pool, geo, hashes, limit, limit if known is None else known)
    return _joined(geo, own, num_groups, max((new for _, new in own), default=0))


def per_group(
    pool: BlockPool, geo: Sizes, hashes: Sequence[bytes], num_groups: int, limit: int, known: int | None = None
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


def _own(pool: BlockPool, geo: Sizes, hashes: Sequence[bytes], limit: int, known: int) -> list[Found]:
    """Return what each family has, whatever the others have."""
    return [family_hit(pool, geo, family, hashes, limit, limit, known, family.drops) for family in geo.families]


def _least(own: Iterable[Found]) -> int:
    return min((new for _, new in own), default=0)


def _joined(geo: Sizes, own: Sequence[Found], num_groups: int, tokens: int) -> Hit:
    """Cut the groups' blocks to a joint length; a group that has less keeps what it has."""
    blocks: list[list[int]] = [[] for _ in range(num_groups)]
    lengths = [0] * num_groups
    for family, (found, new) in zip(geo.families, own, strict=True):
        for group, ids in zip(family.groups, found, strict=True):
            blocks[group], lengths[group] = ids[: -(-tokens // family.block_size)], new
    longest = max(lengths)
    return Hit(tokens, blocks, longest if longest > tokens else 0, lengths)


def read_hit(answer: Any) -> Hit:
    """Read a plug-in's answer; raises ValueError for what is no hit."""
    if not issubclass(type(answer), Hit):
        raise ValueError
    blocks = [counts(each) for each in answer.blocks]
    return Hit(count(answer.tokens), blocks, count(answer.junction), counts(answer.group_hits))


LOOKUP: Rule[Callable[..., Hit]] = Rule(
    "On which length of a hit do the cache groups agree?",
    {
        "intersection": Value(
            intersection,
            "On the longest that all have: each group accepts the candidate length or lowers it, until none does.",
            "vLLM's hybrid coordinator, 0.29",
        ),
        "intersection-first-cut": Value(
            partial(intersection, cut_all=False),
            "As `intersection`; but of attention groups with different blocks those after the first keep what they "
            "have beyond the hit, and the request takes it over and computes it again (such a release stops with an "
            "assertion where the hit ends inside one of their blocks).",
            "vLLM to 0.28",
        ),
        "minimum": Value(
            minimum,
            "On the shortest of the groups' own hits; a group with a longer hit need not have a state there.",
            "vllm-ascend issue 11049",
            Standing.FAULT,
        ),
        "maximum": Value(
            maximum, "On the longest of the groups' own hits; the others have less.", "issue 46453", Standing.FAULT
        ),
        "per-group": Value(
            per_group,
            "On none: each group keeps its own hit, and the request starts where attention's ends, unless a state lies "
            "beyond that, or no group is full attention.",
            "PR 50344, without the connector that would bring the state",
            Standing.FAULT,
        ),
    },
    signature=Signature(
        (
            Argument("pool", "stateat.sim.cache.pool.BlockPool", "where published blocks are found by their hash"),
            Argument("geometry", "stateat.sim.cache.lookup.Geometry", "the families of groups, with sizes in tokens"),
            Argument("hashes", "list[bytes]", "the hash of each of the request's hash units, in order"),
            Argument("num_groups", "int", "the number of cache groups"),
            Argument("limit", "int", "the most tokens to hit"),
            Argument("known", "int", "tokens whose hash is known"),
        ),
        "a Hit",
        read_hit,
        "a `stateat.sim.cache.lookup.Hit`: tokens, each group's blocks, the junction, each group's own hit in tokens",
    ),
)
