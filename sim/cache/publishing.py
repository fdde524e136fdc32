"""What a chunk advertises: full blocks, the ends of chunks inside one, checkpoints, snapshots; and what is retained."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stateat.sim.cache.groups import AllModeCache, AttentionCache, RecurrentCache, Table
from stateat.sim.cache.window import WindowCache
from stateat.sim.rules.retention import floored, on_grid

if TYPE_CHECKING:
    from stateat.sim.cache.manager import KVCache
    from stateat.sim.engine.request import Request


Kept = Callable[[int], bool]
"""Whether a block that ends there (tokens) is published."""


class Publishing:
    """A cache's advertisements."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self.rules = cache.rules
        options, geometry = cache.options, cache.geometry
        self.rewritten = max(options.speculative.prefill_lookahead - 1, 0)
        """Tokens before a chunk's end that the drafter may write again (multi-module MTP)."""
        self.interval = self.rules.retention.interval(options.prefix_cache_retention_interval)
        """Tokens between states that stay published; None: all do."""
        self.replay_drops = self.rules.drafter_drop.replay_drops(options)
        """Whether what is kept for a repeat of the prompt lies a block lower."""
        self.exact_junctions = (
            options.shared_prefix_checkpoint
            and self.rules.junction.exact
            and self.rules.drafter_drop.marks(options)
            and geometry.fine
            and not self.rewritten
        )
        """Whether a chunk may end, and be published, where a prefix is known to be shared."""
        self.exact_snapshots = self.rules.snapshots.kept and geometry.fine and not self.rewritten
        """Whether what lives behind a position that a client asked for is published under it."""

    def publish(self, request: Request, end: int, start: int | None = None) -> None:
        """Advertise what will be true once tokens up to ``end`` are computed, drafts apart.

        ``start``: where a chunk starts that ends there; None: it has run.
        """
        cache = self.cache
        if not cache.enabled:
            return
        hashes, hashed = cache.hashes(request), cache.hashed(request)
        known = min(end, request.num_tokens)
        for manager in cache.managers:
            table = request.tables[manager.group]
            tokens = self._publishable(manager.group, manager.block_size, known)
            if isinstance(manager, RecurrentCache):
                self._publish_states(request, manager, table, hashes, tokens, hashed, start is not None)
                if self.rules.publish.under_node and known % self.rules.grid(cache.options) == 0:
                    manager.publish_under_node(request.id, table, hashes, known, hashed)
                if self.exact_snapshots and start is not None:
                    self._publish_snapshots(request, manager, table, hashes, start, tokens, hashed)
            elif isinstance(manager, AllModeCache):
                kept = self._kept_states(request, manager)
                manager.published_now.update(manager.publish(request.id, table, hashes, min(tokens, hashed), kept))
            else:
                kept = self._kept_rows(request, manager) if isinstance(manager, WindowCache) else None
                manager.publish(request.id, table, hashes, min(tokens, hashed), kept)
                if manager.scale > 1 and manager not in cache.windows:
                    tail = self.rules.boundaries.attention_tail(
                        request.num_prompt, cache.unit, cache.drops[manager.group], hashed // cache.unit
                    )
                    manager.publish_prompt_tail(request.id, table, hashes, tail, min(tokens, hashed))

    def _publish_states(
        self,
        request: Request,
        manager: RecurrentCache,
        table: Table,
        hashes: list[bytes],
        tokens: int,
        hashed: int,
        scheduled: bool,
    ) -> None:
        """Full columns first, then the end of a chunk that stops at a reusable end, or what it exported.

        ``scheduled``: a step is, so that what is published late now is.
        """
        new = manager.publish(request.id, table, hashes, min(tokens, hashed), self._kept_states(request, manager))
        if table.unpublished and scheduled:
            manager.publish_end(request.id, table, hashes, table.unpublished)
            table.unpublished = 0
        if table.checkpoint is not None and self.rules.checkpoint.rekeys:
            offset = table.checkpoint[0]
            tail = self.rules.boundaries.tail(
                request.num_prompt, self.cache.geometry.alignment, self.cache.drop, self.cache.ahead
            )
            wanted = offset in (tail, request.junction) or (
                offset % manager.block_size == 0 and on_grid(offset, manager.block_size, self.interval)
            )
            manager.publish_checkpoint(request.id, table, hashes, wanted and offset <= hashed)
        elif manager.scale > 1 or self.rules.boundaries.tail_drops:
            self._publish_end(request, manager, table, hashes, tokens, hashed)
        manager.published_now.update(new)

    def _publish_end(
        self, request: Request, manager: RecurrentCache, table: Table, hashes: list[bytes], tokens: int, hashed: int
    ) -> None:
        """The end of a chunk, where that is a reusable one whose hash is known."""
        boundaries = self.rules.boundaries
        if (
            not 0 < tokens <= hashed
            or tokens % self.cache.unit
            or (tokens % manager.block_size == 0 and not boundaries.tail_drops)
        ):
            return
        tail = boundaries.tail(request.num_prompt, self.cache.unit, self.cache.drop, self.cache.ahead)
        shared = self.exact_junctions and tokens == request.junction and request.computed < tokens <= request.num_prompt
        if self.rules.tail_copy.late and tokens == tail:
            table.unpublished = tokens
        elif tokens == tail or (shared and self.rules.junction.published):
            manager.publish_end(request.id, table, hashes, tokens, self.rules.publish.once)

    def _publish_snapshots(
        self,
        request: Request,
        manager: RecurrentCache,
        table: Table,
        hashes: list[bytes],
        start: int,
        tokens: int,
        hashed: int,
    ) -> None:
        """Advertise the state that lives at the end of this chunk under each position asked for that it passes.

        It is that position's state only if the chunk ends there (rule ``split``).
        """
        for point in {point // self.cache.unit * self.cache.unit: None for point in request.snapshots}:
            if point > hashed:
                continue
            if point == tokens and start < point:
                manager.publish_end(request.id, table, hashes, tokens, self.rules.publish.once)
            elif start < point < tokens:
                manager.publish_tail(request.id, table, hashes, -(-tokens // manager.block_size) - 1, point)

    def _kept_states(self, request: Request, manager: RecurrentCache | AllModeCache) -> Kept | None:
        """Which block ends of a recurrent group stay published, whatever its mode; None: all."""
        interval, block = self.interval, manager.block_size
        if interval is None:
            return None
        reachable = floored(self._hits(request, manager), self.cache.geometry.alignment, block)
        return lambda end: on_grid(end, block, interval) or end in reachable

    def _kept_rows(self, request: Request, manager: WindowCache) -> Kept | None:
        """Which block ends of a sliding window stay published: whole rows, as a hit needs them; None: all."""
        mask, row = self.rules.window_publishing, manager.row
        if mask.dense:
            return None
        alignment = self.cache.geometry.alignment if mask.fine else self.cache.scheduler_block
        if self.interval is None:
            return row.before_each(alignment // row.size)
        on_row = row.before_each(self.interval // row.size)
        if on_row is None:
            return None
        needed = {end for hit in self._hits(request, manager) for end in row.before(hit // alignment * alignment)}
        return lambda end: on_row(end) or end in needed

    def _hits(self, request: Request, manager: AttentionCache | RecurrentCache) -> list[int]:
        """Where a resend, a longer prompt or whoever shares the prefix would start, where not all is retained."""
        replays = self.rules.retention.replays or self.rules.boundaries.replays
        hits = [*replays(request.num_prompt, self.cache.scheduler_block, self.replay_drops)]
        if request.junction:
            hits.append(request.junction)
            if self.cache.drops[manager.group] and self.rules.drafter_drop.hashes_ahead:
                hits.append(request.junction - manager.block_size)
        return hits

    def retained(self, request: Request, start: int, end: int) -> tuple[int, ...]:
        """Boundaries inside (start, end) whose states retention keeps, of any recurrent group in ``align`` mode."""
        found: set[int] = set()
        for manager in self.cache.aligned:
            kept, block = self._kept_states(request, manager), manager.block_size
            boundaries = range((start // block + 1) * block, end, block)
            found.update(p for p in boundaries if kept is None or kept(p))
        return tuple(sorted(found))

    def _align(self, tokens: int) -> int:
        """The longest prefix that a hit could reach."""
        return tokens if self.cache.geometry.fine else tokens // self.cache.scheduler_block * self.cache.scheduler_block

    def _publishable(self, group: int, block_size: int, known: int) -> int:
        """Of ``known`` tokens those that a hit could reach; a drafter's group needs the block that it drops too.

        What a drafter may write again counts where the last block counts: in such a group, and in one that is alone.
        """
        aligned = self._align(known)
        if not aligned or not (self.cache.drops[group] or self.cache.num_groups == 1):
            return aligned
        final = max(known - self.rewritten, 0)
        return min(final, self._align(final) + block_size)

    def next_publication(self, group: int, block_size: int, tokens: int) -> int:
        """The least number of known tokens with which block ``tokens // block_size`` is published."""
        if self.cache.geometry.fine:
            return tokens
        base = tokens // self.cache.scheduler_block * self.cache.scheduler_block
        if tokens == base or (self.cache.drops[group] and base and tokens <= base + block_size):
            return tokens
        return base + self.cache.scheduler_block
