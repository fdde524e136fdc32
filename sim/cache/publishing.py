"""Publications of a chunk: full blocks, the ends of chunks inside one, checkpoints, snapshots; and what is retained."""

from __future__ import annotations

from collections.abc import Callable

from stateat.sim.cache.groups import AllModeCache, RecurrentCache, Table
from stateat.sim.cache.layout import Layout, Manager
from stateat.sim.cache.request import CacheRequest
from stateat.sim.cache.window import WindowCache
from stateat.sim.rules.checkpoint import Export
from stateat.sim.rules.retention import floored, on_grid

Kept = Callable[[int], bool]
"""(end of a block in tokens) -> True if the block is published."""


class Publishing:
    """The publications of a cache."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.rules = layout.rules
        options, guard, fine = layout.options, layout.rules.drafter_drop, layout.geometry.fine
        self.enabled = options.enable_prefix_caching
        self.rewritten = max(options.speculative.prefill_lookahead - 1, 0)
        """Tokens before a chunk's end that the drafter may write again (multi-module MTP)."""
        retention = self.rules.retention
        self.intervals = [retention.interval(options.interval_of(i)) for i in range(len(options.groups))]
        """Tokens between what stays published of each group; None: all of it does."""
        self.replay_drops = guard.replay_drops(options)
        """Blocks that are kept for a repeat of the prompt lie a block lower."""
        self.exact_junctions = (
            options.shared_prefix_checkpoint
            and self.rules.junction.exact
            and guard.marks(options)
            and fine
            and not self.rewritten
        )
        """A chunk may end, and be published, where a prefix is known to be shared."""
        self.exact_snapshots = self.rules.snapshots.kept and fine and not self.rewritten
        """A state behind a position that a client asked for is published under it."""

    def learn(self, request: CacheRequest, known: int, new: int) -> None:
        """Publish what an outcome has made known: the last ``new`` of ``known`` tokens, of whose chunk all else is."""
        unit, before = self.layout.hash_unit, known - new - self.rewritten - self.layout.ahead - 1
        tables = self.layout.tables[request.id]
        if (known + 2) // unit != before // unit or any(table.checkpoint is not None for table in tables):
            self.publish(request, known)

    def publish(self, request: CacheRequest, end: int, start: int | None = None) -> None:
        """Publish what will be true once tokens up to ``end`` are computed, drafts apart.

        ``start``: where a chunk starts that ends there; None: it has run.
        """
        if not self.enabled:
            return
        layout = self.layout
        hashes, hashed, tables = layout.hashes(request), layout.hashed(request), layout.tables[request.id]
        known = min(end, request.num_tokens)
        for manager in layout.managers:
            table = tables[manager.group]
            tokens = self._publishable(manager, known)
            if isinstance(manager, RecurrentCache):
                self._publish_states(request, manager, table, hashes, tokens, hashed, start is not None)
                if self.rules.publish.under_node and known % self.rules.grid(layout.options) == 0:
                    manager.publish_under_node(request.id, table, hashes, known, hashed)
                if self.exact_snapshots and start is not None:
                    self._publish_snapshots(request, manager, table, hashes, start, tokens, hashed)
            elif isinstance(manager, AllModeCache):
                manager.publish(request.id, table, hashes, min(tokens, hashed), self._kept_states(request, manager))
            else:
                kept = self._kept_rows(request, manager) if isinstance(manager, WindowCache) else None
                manager.publish(request.id, table, hashes, min(tokens, hashed), kept)
                if manager.scale > 1 and not isinstance(manager, WindowCache):
                    unit = layout.hash_unit
                    tail = self.rules.boundaries.attention_tail(request.num_prompt, unit, manager.drops, hashed // unit)
                    manager.publish_prompt_tail(request.id, table, hashes, tail, min(tokens, hashed))

    def _publish_states(
        self,
        request: CacheRequest,
        manager: RecurrentCache,
        table: Table,
        hashes: list[bytes],
        tokens: int,
        hashed: int,
        scheduled: bool,
    ) -> None:
        """Publish full columns, then the end of a chunk that stops at a reusable end, or what it exported.

        ``scheduled``: a step is, so that tails which wait for one are published.
        """
        manager.publish(request.id, table, hashes, min(tokens, hashed), self._kept_states(request, manager))
        if table.unpublished and scheduled:
            manager.publish_end(request.id, table, hashes, table.unpublished)
            table.unpublished = 0
        if table.checkpoint is not None and self.rules.checkpoint.rekeys:
            offset, block = table.checkpoint[0], manager.block_size
            export = Export(
                prompt_end=offset == self.checkpoint_position(request.num_prompt),
                junction=offset == request.junction,
                on_grid=offset % block == 0 and on_grid(offset, block, self.intervals[manager.group]),
                prompt_done=tokens >= request.num_prompt,
                interval=self.intervals[manager.group],
            )
            wanted = self.rules.checkpoint.publishes(export)
            manager.publish_checkpoint(request.id, table, hashes, wanted and offset <= hashed)
        elif manager.scale > 1 or self.rules.boundaries.at_block_ends:
            self._publish_end(request, manager, table, hashes, tokens, hashed)

    def _publish_end(
        self,
        request: CacheRequest,
        manager: RecurrentCache,
        table: Table,
        hashes: list[bytes],
        tokens: int,
        hashed: int,
    ) -> None:
        """Publish the end of a chunk, where that is a reusable one whose hash is known."""
        boundaries = self.rules.boundaries
        if (
            not 0 < tokens <= hashed
            or tokens % self.layout.hash_unit
            or (tokens % manager.block_size == 0 and not boundaries.at_block_ends)
        ):
            return
        drop = manager.drops if boundaries.tail_by_group else self.layout.drop
        tail = boundaries.tail(request.num_prompt, self.layout.hash_unit, drop, self.layout.ahead)
        shared = self.exact_junctions and tokens == request.junction and request.computed < tokens <= request.num_prompt
        if self.rules.tail_copy.late and tokens == tail:
            table.unpublished = tokens
        elif tokens == tail or (shared and self.rules.junction.published):
            manager.publish_end(request.id, table, hashes, tokens, self.rules.publish.once)

    def checkpoint_position(self, tokens: int) -> int:
        """Return the reusable end of so many tokens that a chunk would export."""
        layout, rule = self.layout, self.rules.checkpoint
        unit = layout.hash_unit if rule.in_hash_units else layout.geometry.alignment
        return (rule.position or self.rules.boundaries.reusable)(tokens, unit, layout.drop, layout.ahead)

    def _publish_snapshots(
        self,
        request: CacheRequest,
        manager: RecurrentCache,
        table: Table,
        hashes: list[bytes],
        start: int,
        tokens: int,
        hashed: int,
    ) -> None:
        """Publish the state that lives at the end of this chunk under each position asked for that it passes.

        It is that position's state only if the chunk ends there (rule ``split``).
        """
        unit = self.layout.hash_unit
        for point in {point // unit * unit: None for point in request.snapshots}:
            if point > hashed:
                continue
            if point == tokens and start < point:
                manager.publish_end(request.id, table, hashes, tokens, self.rules.publish.once)
            elif start < point < tokens:
                manager.publish_tail(request.id, table, hashes, -(-tokens // manager.block_size) - 1, point)

    def _kept_states(self, request: CacheRequest, manager: RecurrentCache | AllModeCache) -> Kept | None:
        """Return which block ends of a recurrent group stay published, whatever its mode; None: all."""
        interval, block = self.intervals[manager.group], manager.block_size
        if interval is None:
            return None
        layout = self.layout
        unit = layout.scheduler_block if self.rules.retention.whole_blocks else layout.geometry.alignment
        reachable = floored(self._hits(request, manager), unit, block)
        return lambda end: on_grid(end, block, interval) or end in reachable

    def _kept_rows(self, request: CacheRequest, manager: WindowCache) -> Kept | None:
        """Return which block ends of a sliding window stay published: whole rows, as a hit needs them; None: all."""
        window, row = self.rules.window_publishing, manager.row
        if window.dense:
            return None
        alignment = self.layout.geometry.alignment if window.fine else self.layout.scheduler_block
        interval = self.intervals[manager.group]
        if interval is None:
            return row.before_each(alignment // row.size)
        on_row = row.before_each(interval // row.size)
        if on_row is None:
            return None
        needed = {end for hit in self._hits(request, manager) for end in row.before(hit // alignment * alignment)}
        return lambda end: on_row(end) or end in needed

    def _hits(self, request: CacheRequest, manager: Manager) -> list[int]:
        """Return where a resend, a longer prompt or whoever shares the prefix would start, where not all is
        retained."""
        replays = self.rules.retention.replays or self.rules.boundaries.replays
        hits = [*replays(request.num_prompt, self.layout.scheduler_block, self.replay_drops)]
        if request.junction:
            hits.append(request.junction)
            if manager.drops and self.rules.drafter_drop.hashes_ahead:
                hits.append(request.junction - manager.block_size)
        return hits

    def retained(self, request: CacheRequest, start: int, end: int) -> tuple[int, ...]:
        """Return the boundaries inside (start, end) whose states retention keeps, of any recurrent group in ``align``
        mode."""
        found: set[int] = set()
        for manager in self.layout.managers:
            if not isinstance(manager, RecurrentCache):
                continue
            kept, block = self._kept_states(request, manager), manager.block_size
            boundaries = range((start // block + 1) * block, end, block)
            found.update(p for p in boundaries if kept is None or kept(p))
        return tuple(sorted(found))

    def _align(self, tokens: int) -> int:
        """Return the longest prefix that a hit could reach."""
        block = self.layout.scheduler_block
        return tokens if self.layout.geometry.fine else tokens // block * block

    def _publishable(self, manager: Manager, known: int) -> int:
        """Return those of ``known`` tokens that a hit could reach; a drafter's group needs the block that it drops too.

        What a drafter may write again counts where the last block counts: in such a group, and in one that is alone.
        """
        aligned = self._align(known)
        if not aligned or not (manager.drops or len(self.layout.managers) == 1):
            return aligned
        final = max(known - self.rewritten, 0)
        return min(final, self._align(final) + manager.block_size)

    def next_publication(self, manager: Manager, tokens: int) -> int:
        """Return the least number of known tokens with which the group's block that ends at ``tokens`` is published."""
        if self.layout.geometry.fine:
            return tokens
        block = self.layout.scheduler_block
        base = tokens // block * block
        if tokens == base or (manager.drops and base and tokens <= base + manager.block_size):
            return tokens
        return base + block
