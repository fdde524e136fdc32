"""Offloading: which blocks of a step are stored below the pool, and how far a waiting request gets from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from stateat.sim.cache.connector import by_position, drafters, longest_tail
from stateat.sim.cache.interface import Beyond
from stateat.sim.cache.layout import Layout
from stateat.sim.cache.ledger import FullBlock
from stateat.sim.cache.lookup import Hit, Lookup
from stateat.sim.cache.request import CacheRequest
from stateat.sim.cache.tier import GroupQuery, Key, Tier, loadable_tokens
from stateat.sim.events import NULL, Observer


class Offloading:
    """The tier below a pool, and the connector that fills it and asks it: a
    :class:`stateat.sim.cache.interface.LowerTier`, see there for what its methods promise."""

    def __init__(self, layout: Layout, lookup: Callable[[CacheRequest, Lookup], Hit], observer: Observer) -> None:
        """``lookup`` asks the pool by a rule of the connector's; ``observer`` is told of the states that are stored."""
        self.layout = layout
        self.lookup = lookup
        self.observer = observer
        self.rule = layout.rules.connector
        options = layout.options
        self.tier = Tier(options.offload.blocks) if options.offload.blocks else None
        self.drafters = drafters(options.groups)
        """The drafter's own attention groups."""
        self._recurrent = bool(options.recurrent)
        self._connected = self.tier is not None or options.kv_consumer
        """A connector is configured: by the options, for a tier, or since a request with external tokens has come."""

    def expect(self, external_tokens: int) -> None:
        self._connected |= external_tokens > 0

    def beyond(self, request: CacheRequest, hit: Hit, below_tokens: int | None = None) -> Beyond:
        if self.rule.refuses and self._recurrent:
            return Beyond(hit, 0, False)
        if below_tokens is not None:
            return self._offloaded(request, hit, below_tokens - 1)
        if self._connected:
            hit, external = self._joined(hit, self._local(request, hit), min(request.external, request.num_tokens - 1))
            if external:
                return Beyond(hit, external, True)
        return self._offloaded(request, hit, request.num_tokens - 1)

    def _offloaded(self, request: CacheRequest, hit: Hit, limit: int) -> Beyond:
        """Return what a hit becomes with the tier's blocks up to ``limit`` tokens."""
        if self.tier is None:
            return Beyond(hit, 0, False)
        layout, unit = self.layout, self.layout.hash_unit
        own = self._local(request, hit)
        start = self._start(own)
        hashed, hashes = layout.hashed(request), layout.hashes(request)
        # Attention first: its blocks bound what states are looked for.
        queries = [
            GroupQuery(
                m.group,
                m.block_size,
                layout.options.groups[m.group].mamba_cache_mode if m.recurrent else "",
                self.rule.drops and m.drops,
                hashed // m.block_size,
            )
            for m in sorted(layout.managers, key=lambda m: m.recurrent)
            if self.rule.asks_draft or m.group not in self.drafters
        ]

        def key(query: GroupQuery, column: int) -> Key:
            return query.group, hashes[(column + 1) * query.block_size // unit - 1]

        end = loadable_tokens(self.tier, layout.rules.tier_return, queries, key, start_tokens=start, limit_tokens=limit)
        if any(self.rule.tails) and layout.geometry.fine:
            end = longest_tail(self.tier, queries, hashes, unit, end, min(limit, hashed))
        for query in queries:
            # The start of a prompt is used most recently, its end is evicted first. Of states only those count that a
            # repeat can need.
            first = max(end // query.block_size - 1, 0) if query.mode else 0
            self.tier.touch(key(query, column) for column in range(query.known - 1, first - 1, -1))
        return Beyond(*self._joined(hit, own, end), False)

    def _start(self, hit: Hit) -> int:
        """Return where what is brought begins behind a hit: at the start of the scheduler block that it ends inside."""
        block = self.layout.scheduler_block
        return hit.tokens if self.rule.keeps_tail else hit.tokens // block * block

    def _joined(self, joint: Hit, own: Hit, end: int) -> tuple[Hit, int]:
        """Return what is left of a hit (``own``) where ``end`` tokens can be brought, and how many are; the joint hit
        if that is no more."""
        start = self._start(own)
        if end <= own.tokens:
            return (own if self.rule.unbacked else joint), 0
        if start == own.tokens:
            return own, end - start
        blocks = [
            [NULL] * ((end - 1) // m.block_size) if m.recurrent else own.blocks[m.group][: start // m.block_size]
            for m in self.layout.managers
        ]
        return own._replace(tokens=start, blocks=blocks), end - start

    def _local(self, request: CacheRequest, joint: Hit) -> Hit:
        """Return the hit that a connector is told of: the joint one, or a longer one of some groups alone, by its
        rule."""
        if self.rule.alone is None or not self._recurrent or not self.layout.options.enable_prefix_caching:
            return joint
        own = self.lookup(request, self.rule.alone)
        return own if own.tokens > joint.tokens else joint

    def key_of(self, request: CacheRequest, group: int, tokens: int) -> str:
        size, unit, hashes = self.layout.managers[group].block_size, self.layout.hash_unit, self.layout.hashes(request)
        if any(self.rule.tails) and tokens % size and tokens % unit == 0:
            return hashes[tokens // unit - 1].hex()
        return hashes[-(-tokens // size) * size // unit - 1].hex()

    def store(self, prefills: Sequence[tuple[CacheRequest, int]], published: Sequence[FullBlock]) -> None:
        """``prefills`` are for a connector that goes by its own copies of their tables."""
        if self.tier is None:
            return
        held = [f for f in published if self.layout.pool.holds(f.group, f.hash, f.block)]
        if self.rule.positional:
            held = [full for request, end in prefills for full in self._by_position(request, end)]
        if not self.rule.stores_draft:
            held = [f for f in held if f.group not in self.drafters]
        for _, batch in groupby(held, key=lambda f: f.request):
            self._store(self.tier, batch)

    def _by_position(self, request: CacheRequest, end: int) -> list[FullBlock]:
        """Return what the connector's own copies of a request's tables name up to ``end`` tokens."""
        layout, reconciled = self.layout, self.rule.reconciled
        hashes, tables = layout.hashes(request), layout.tables[request.id]
        tokens = min(end, request.num_prompt)
        named: list[FullBlock] = []
        for m in layout.managers:
            mirrored = m.recurrent and not reconciled
            table = request.pages[m.group] if mirrored else tables[m.group].blocks
            named += by_position(request.id, m.group, table, hashes, m.block_size, layout.hash_unit, tokens)
        return [full for full in named if full.block != NULL] if reconciled else named

    def save_cancelled(self, request: CacheRequest, unconfirmed_tokens: int = 0) -> None:
        tokens = request.computed - unconfirmed_tokens - 1
        if self.tier is None or not self.rule.saves_cancelled or tokens <= 0:
            return
        layout, unit = self.layout, self.layout.hash_unit
        hashes, tables = layout.hashes(request), layout.tables[request.id]
        left: list[FullBlock] = []
        for m in layout.managers:
            size, table = m.block_size, tables[m.group].blocks
            if not m.recurrent:
                left += by_position(request.id, m.group, table, hashes, size, unit, tokens)
            elif tokens % size == 0 and (slot := request.state_slot(m.group)) >= 0:
                left.append(FullBlock(request.id, m.group, hashes[tokens // unit - 1], slot, tokens))
        self._store(self.tier, left)

    def _store(self, tier: Tier, blocks: Iterable[FullBlock]) -> None:
        """Store a batch of blocks, and tell of the states that are new to the tier."""
        full = {(f.group, f.hash): f for f in blocks}
        for new in map(full.__getitem__, tier.store(list(full))):
            if self.layout.managers[new.group].recurrent:
                self.observer.store(new.group, new.block, new.hash.hex(), new.tokens)
