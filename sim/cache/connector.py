"""Connectors: what they take for the state at a boundary, and how far a prompt goes that several groups share.

The tier below the pool (:mod:`stateat.sim.cache.tier`) says which blocks are there. A connector says which slot it
saved under a block's hash, and what of a hit it counts on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stateat.sim.cache.joint import maximum, per_group
from stateat.sim.cache.ledger import FullBlock
from stateat.sim.cache.lookup import Lookup
from stateat.sim.cache.tier import GroupQuery, Tier
from stateat.sim.events import Group


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector's way of resolving what it saves and loads."""

    positional: bool = False
    """The connector saves, for each boundary of a prompt, what its own append-only copy of the block table names in
    that column; else only what the cache publishes."""
    reconciled: bool = False
    """The copy follows the table: columns that were freed, or moved, are null there too, and left out."""
    drops: bool = True
    """A look-ahead drafter's groups give up a block of what it finds."""
    refuses: bool = False
    """The connector finds nothing for a model with recurrent groups."""
    alone: Lookup | None = None
    """Lookup that asks groups by themselves; its hit is kept where it is longer than the joint one and the states are
    brought."""
    keeps_tail: bool = False
    """A hit that ends inside a scheduler block is kept where more is brought; else it is given up back to its start."""
    unbacked: bool = False
    """The hit of :attr:`alone` is kept where no states are brought, too."""
    whole: bool = False
    """The producer of a prompt computed its last token too, although a request computes that itself."""
    saves_cancelled: bool = False
    """A request that is taken away leaves its state under the prompt that it had, less a token."""
    stores_draft: bool = True
    """Blocks of the drafter's own attention groups are saved."""
    asks_draft: bool = True
    """A prompt ends where such a group has no more."""
    tails: tuple[bool, bool] = (False, False)
    """A prompt's tail inside a block is saved: when a copy keeps it, and when it is published."""


CONNECTORS: dict[str, object] = {
    "exact-slot": Connector(),
    "positional": Connector(positional=True, drops=False),
    "reconciled": Connector(positional=True, reconciled=True, drops=False),
    "fails-closed": Connector(refuses=True),
    "longest-group": Connector(alone=maximum, unbacked=True, keeps_tail=True),
    "divergent": Connector(alone=per_group),
    "divergent-unbacked": Connector(alone=per_group, unbacked=True),
    "hands-over-last-token": Connector(whole=True),
    "saves-cancelled": Connector(saves_cancelled=True, drops=False),
    "draft-group-missing": Connector(stores_draft=False),
    "draft-group-left-out": Connector(stores_draft=False, asks_draft=False),
    "tails-that-are-copied": Connector(tails=(True, False)),
    "tails": Connector(tails=(True, True)),
}


def drafters(groups: Sequence[Group]) -> frozenset[int]:
    """Return the drafter's own attention groups: those flagged for it, if there is attention without the flag too."""
    flagged = [i for i, g in enumerate(groups) if not g.recurrent and g.eagle]
    return frozenset(flagged) if any(not g.recurrent and not g.eagle for g in groups) else frozenset()


def longest_tail(
    tier: Tier, queries: Sequence[GroupQuery], hashes: Sequence[bytes], unit: int, end: int, limit: int
) -> int:
    """Return the longest prefix beyond ``end`` that every group has to its very end, inside a block too; else
    ``end``."""

    def holds(query: GroupQuery, tokens: int) -> bool:
        every = query.block_size // unit
        before = () if query.mode else hashes[every - 1 : tokens // unit : every]
        return all((query.group, key) in tier for key in (*before, hashes[tokens // unit - 1]))

    lengths = range(limit // unit * unit, end, -unit)
    return next((tokens for tokens in lengths if all(holds(query, tokens) for query in queries)), end)


def by_position(
    request: str, group: int, pages: Sequence[int], hashes: Sequence[bytes], block: int, unit: int, tokens: int
) -> list[FullBlock]:
    """Return the blocks that an append-only copy of a block table names for each boundary up to ``tokens``."""
    return [
        FullBlock(request, group, hashes[end // unit - 1], pages[end // block - 1], end)
        for end in range(block, tokens + 1, block)
        if end // block <= len(pages)
    ]
