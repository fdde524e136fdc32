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
from stateat.sim.rules.record import Rule, Standing, Value, When


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


CONNECTOR: Rule[Connector] = Rule(
    "Which slot does a connector, or the tier, take for the state at a boundary, and how far does it count on hits of "
    "groups that differ?",
    {
        "exact-slot": Value(
            Connector(),
            "The slot that the cache advertises; it counts on the hit on which all groups agree, given up back to its "
            "scheduler block's start where more is brought.",
            "vLLM's OffloadingConnector, 0.28",
        ),
        "positional": Value(
            Connector(positional=True, drops=False),
            "For each full block of a prompt, the slot that an append-only copy of the block table names in its "
            "column; a look-ahead drafter gives nothing up.",
            "vLLM issue 51358, LMCache issue 4984",
            Standing.FAULT,
        ),
        "reconciled": Value(
            Connector(positional=True, reconciled=True, drops=False),
            "As `positional`, but that copy follows the table, and columns that are null there are left out.",
            "LMCache issue 5004",
            Standing.PROPOSAL,
        ),
        "fails-closed": Value(
            Connector(refuses=True),
            "None where a group is recurrent: nothing is found there, `external` tokens neither.",
            "LMCache issue 2879",
            Standing.PROPOSAL,
        ),
        "longest-group": Value(
            Connector(alone=maximum, unbacked=True, keeps_tail=True),
            "As `exact-slot`, but it counts on the longest of the groups' own hits, whether the rest is brought or "
            "not; it is kept inside a block too, so that the copy of its state runs over the one that is brought.",
            "vLLM 0.26 (every connector), issue 46453",
        ),
        "divergent": Value(
            Connector(alone=per_group),
            "As `exact-slot`; attention's own longer hit is kept where more is brought, and with it the states there.",
            "vLLM 0.27 (every connector), PR 50344 (capable ones)",
        ),
        "divergent-unbacked": Value(
            Connector(alone=per_group, unbacked=True),
            "As `divergent`, and attention's longer hit is kept where no more is brought too, so that nothing brings "
            "the state.",
            "vLLM issue 43090",
            Standing.FAULT,
        ),
        "hands-over-last-token": Value(
            Connector(whole=True),
            "As `exact-slot`; `external` tokens that are all but the prompt's last come with the state behind that one "
            "too.",
            "before vLLM PR 37310",
            Standing.FAULT,
        ),
        "saves-cancelled": Value(
            Connector(saves_cancelled=True, drops=False),
            "As `exact-slot`, without the drop; a request taken away leaves its state in the tier under its tokens "
            "less one, if those end a block.",
            "mlx-vlm issue 2206",
            Standing.FAULT,
        ),
        "draft-group-missing": Value(
            Connector(stores_draft=False),
            "As `exact-slot`; attention groups with `eagle: true`, beside one without, are not stored, but asked for.",
            "vLLM issue 47890",
            Standing.FAULT,
        ),
        "draft-group-left-out": Value(
            Connector(stores_draft=False, asks_draft=False),
            "As `exact-slot`; attention groups with `eagle: true`, beside one without, are neither stored nor asked "
            "for.",
            "vLLM issue 47891",
            Standing.PROPOSAL,
        ),
        "tails-that-are-copied": Value(
            Connector(tails=(True, False)),
            "As `exact-slot`; a prompt's tail inside a block is stored too, once the next chunk has it copied.",
            "before vLLM PR 49502",
            Standing.FAULT,
        ),
        "tails": Value(
            Connector(tails=(True, True)),
            "As `exact-slot`; a prompt's tail inside a block is stored when it is published, so of a request that ends "
            "there too.",
            "vLLM PR 49502",
            Standing.PROPOSAL,
        ),
    },
    When(
        "with an offload tier, `kv_consumer`, or a request that has `external` tokens",
        lambda options, requests: (
            options.offload.blocks > 0 or options.kv_consumer or any(r.external for r in requests)
        ),
    ),
)


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
