"""Going on from what lies below the pool: which blocks of a step are stored, and how far a waiting request gets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from stateat.sim.cache.connector import by_position, drafters, longest_tail
from stateat.sim.cache.groups import Full
from stateat.sim.cache.lookup import Hit
from stateat.sim.cache.tier import Key, Shelf, Tier, reach
from stateat.sim.events import NULL

if TYPE_CHECKING:
    from stateat.sim.cache.manager import KVCache
    from stateat.sim.engine.request import Request


class Offloading:
    """A cache's tier, and the connector that fills it and asks it."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        options = cache.options
        self.tier = Tier(options.offload.blocks) if options.offload.blocks else None
        self.published: list[Full] = []
        """Full blocks advertised in this step, where there is a tier to store them in."""
        if self.tier is not None:
            for manager in cache.managers:
                manager.full = self.published
                manager.tails = cache.rules.connector.tails
        self.on = self.tier is not None
        """Whether a connector is configured: there is a tier, or a request with `external` tokens has come."""
        self.drafters = drafters(options.groups)
        """The drafter's own attention groups."""

    def connected(self, request: Request, hit: Hit) -> tuple[Hit, int]:
        """What is left of a hit, and how many of the request's `external` tokens a connector adds to it."""
        if not self.on or self._refuses:
            return hit, 0
        return self._beyond(hit, self._local(request, hit), min(request.external, request.num_tokens - 1))

    def offloaded(self, request: Request, hit: Hit, below: int | None = None) -> tuple[Hit, int]:
        """What is left of a hit, and how many tokens the tier adds to it; ``below``: it is not to reach this far."""
        limit = request.num_tokens - 1 if below is None else below - 1
        connector = self.cache.rules.connector
        if self.tier is None or self._refuses:
            return hit, 0
        own = self._local(request, hit)
        start = self._start(own)
        hashed = self.cache.hashed(request)
        # Attention first: its blocks bound what states are looked for.
        shelves = [
            Shelf(
                m.group,
                m.block_size,
                self._mode(m.group),
                connector.drops and self.cache.drops[m.group],
                hashed // m.block_size,
            )
            for m in sorted(self.cache.managers, key=lambda m: m in self.cache.states)
            if connector.asks_draft or m.group not in self.drafters
        ]
        hashes = self.cache.hashes(request)

        def key(shelf: Shelf, column: int) -> Key:
            return shelf.group, hashes[(column + 1) * shelf.block_size // self.cache.unit - 1]

        end = reach(self.tier, self.cache.rules.offload, shelves, key, start, limit)
        if any(connector.tails) and self.cache.geometry.fine:
            end = longest_tail(self.tier, shelves, hashes, self.cache.unit, end, min(limit, hashed))
        for shelf in shelves:
            # The start of a prompt is used most recently, its end is put out first. Of states only those count that
            # a repeat can need.
            first = max(end // shelf.block_size - 1, 0) if shelf.mode else 0
            self.tier.touch(key(shelf, column) for column in range(shelf.known - 1, first - 1, -1))
        return self._beyond(hit, own, end)

    @property
    def _refuses(self) -> bool:
        """Whether the connector finds nothing for these groups."""
        return self.cache.rules.connector.refuses and bool(self.cache.states)

    def _start(self, hit: Hit) -> int:
        """Where what is brought begins behind a hit: at the start of the scheduler block that it ends inside."""
        if self.cache.rules.connector.keeps_tail:
            return hit.tokens
        return hit.tokens // self.cache.scheduler_block * self.cache.scheduler_block

    def _beyond(self, joint: Hit, own: Hit, end: int) -> tuple[Hit, int]:
        """What is left of a hit (``own``) where ``end`` tokens can be brought; the joint one if that is no more."""
        start = self._start(own)
        if end <= own.tokens:
            return (own if self.cache.rules.connector.unbacked else joint), 0
        if start == own.tokens:
            return own, end - start
        blocks = [
            [NULL] * ((end - 1) // m.block_size)
            if m in self.cache.states
            else own.blocks[m.group][: start // m.block_size]
            for m in self.cache.managers
        ]
        return own._replace(tokens=start, blocks=blocks), end - start

    def _local(self, request: Request, joint: Hit) -> Hit:
        """What a connector is told of: the joint hit, or a longer one of some groups alone, by the rule."""
        alone = self.cache.rules.connector.alone
        if alone is None or not self.cache.states or not self.cache.enabled:
            return joint
        own = self.cache.lookup(request, alone)
        return own if own.tokens > joint.tokens else joint

    def _mode(self, group: int) -> str:
        return self.cache.options.groups[group].mamba_cache_mode if self.cache.options.groups[group].recurrent else ""

    def key_of(self, request: Request, group: int, tokens: int) -> str:
        """The tier's name for the block from which a request goes on at ``tokens``."""
        size, hashes = self.cache.managers[group].block_size, self.cache.hashes(request)
        if any(self.cache.rules.connector.tails) and tokens % size and tokens % self.cache.unit == 0:
            return hashes[tokens // self.cache.unit - 1].hex()
        return hashes[-(-tokens // size) * size // self.cache.unit - 1].hex()

    def store(self, prefills: Sequence[tuple[Request, int]], published: Sequence[Full]) -> list[Full]:
        """Put the full blocks that a step advertised, and still does, into the tier; returns those that are new.

        ``prefills``: who computed tokens of its prompt, and up to where, for a connector that goes by its own copies
        of their tables.
        """
        if self.tier is None:
            return []
        stored: list[Full] = []
        held = [f for f in published if self.cache.pool.holds(f.group, f.hash, f.block)]
        if self.cache.rules.connector.positional:
            held = [full for request, end in prefills for full in self._by_position(request, end)]
        if not self.cache.rules.connector.stores_draft:
            held = [f for f in held if f.group not in self.drafters]
        for _, batch in groupby(held, key=lambda f: f.request):
            full = {(f.group, f.hash): f for f in batch}
            stored += [full[key] for key in self.tier.store(list(full))]
        return stored

    def _by_position(self, request: Request, end: int) -> list[Full]:
        hashes = self.cache.hashes(request)
        tokens, reconciled = min(end, request.num_prompt), self.cache.rules.connector.reconciled
        named: list[Full] = []
        for m in self.cache.managers:
            mirrored = m in self.cache.states and not reconciled
            table = request.pages[m.group] if mirrored else request.tables[m.group].blocks
            named += by_position(request.id, m.group, table, hashes, m.block_size, self.cache.unit, tokens)
        return [full for full in named if full.block != NULL] if reconciled else named

    def save_cancelled(self, request: Request, unconfirmed: int = 0) -> list[Full]:
        """What a request that is taken away leaves in the tier: its state, under the prompt less a token.

        ``unconfirmed``: of what it has computed that which steps in flight have yet to.
        """
        tokens = request.computed - unconfirmed - 1
        if self.tier is None or not self.cache.rules.connector.saves_cancelled or tokens <= 0:
            return []
        hashes = self.cache.hashes(request)
        left: list[Full] = []
        for m in self.cache.managers:
            size, table = m.block_size, request.tables[m.group].blocks
            if m not in self.cache.states:
                left += by_position(request.id, m.group, table, hashes, size, self.cache.unit, tokens)
            elif tokens % size == 0 and request.running[m.group] >= 0:
                slot = request.pages[m.group][request.running[m.group] + request.accepted[m.group] - 1]
                left.append(Full(request.id, m.group, hashes[tokens // self.cache.unit - 1], slot, tokens))
        full = {(f.group, f.hash): f for f in left}
        return [full[key] for key in self.tier.store(list(full))]
