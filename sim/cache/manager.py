"""The prefix cache of the releases: one pool of blocks, and a manager for each group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

from stateat.sim.cache.groups import AllModeCache, CopyOnWrite, RecurrentCache, StateCache, Table
from stateat.sim.cache.interface import Decided, SplitFacts
from stateat.sim.cache.layout import layout
from stateat.sim.cache.lookup import Hit, Lookup
from stateat.sim.cache.named_states import NamedStates
from stateat.sim.cache.offload import Offloading
from stateat.sim.cache.pool import BlockPool, Entry
from stateat.sim.cache.publishing import Publishing
from stateat.sim.cache.request import CacheRequest
from stateat.sim.cache.rules import CacheRules
from stateat.sim.cache.window import WindowCache
from stateat.sim.events import Observer, Refusal
from stateat.sim.options import Options
from stateat.sim.rules.checkpoint import Query
from stateat.sim.rules.eviction import Refresh


class KVCache:
    """A :class:`stateat.sim.cache.interface.Cache`: see there for what its methods promise."""

    def __init__(self, options: Options, rules: CacheRules, observer: Observer) -> None:
        """``observer`` is told of claims, and of the slots of recurrent groups that are allocated and released."""
        self.options = options
        self.rules = rules
        self.observer = observer
        self.layout = layout(options, rules, observer)
        self.pool = self.layout.pool
        self.pools = self.layout.pools
        self.managers = self.layout.managers
        self.lower_tier = Offloading(self.layout, self.lookup, observer)
        self._publishing = Publishing(self.layout)
        self.publish = self._publishing.publish
        self.learn = self._publishing.learn
        self.retained = self._publishing.retained
        self.split_facts = SplitFacts(
            self.layout.drop,
            self.layout.ahead,
            self._publishing.exact_junctions,
            self._publishing.exact_snapshots,
        )
        self._ledger, self._tables = self.layout.ledger, self.layout.tables
        self._states = [m for m in self.managers if isinstance(m, StateCache)]
        self._freeing = [m for m in self.managers if isinstance(m, StateCache | WindowCache)]
        """Managers of groups that free a running request's blocks."""
        self._lookahead = options.speculative.lookahead_tokens
        self._longest = options.max_model_len
        self._state_slots = rules.state_slots.with_look_ahead
        sizes = (options.num_blocks, options.num_state_blocks)[: len(self.pools)]
        self._watermark_blocks = [int(options.watermark * size) for size in sizes]
        """Blocks of each pool that admission keeps free."""
        self._place = [self.pools.index(manager.pool) for manager in self.managers]
        """The pool of each group, by its place."""
        self._refreshes_prefix = rules.eviction.refresh is Refresh.PREFIX
        self._in_flight = options.batch_queue > 1
        self._given: list[list[int]] = [[] for _ in options.groups]
        """Blocks newly given to each attention group in this step."""
        named = NamedStates(self.layout, self._given, observer)
        self.evict, self.place = named.evict, named.place

    @property
    def free_blocks(self) -> int:
        return sum(pool.num_free for pool in self.pools)

    # A step.

    def new_step(self, time: int) -> None:
        for pool in self.pools:
            if pool.ages is not None:
                pool.ages.now = time
                pool.expire()
        for manager in self._states:
            manager.published_now.clear()
        for blocks in self._given:
            blocks.clear()
        self._ledger.full.clear()

    def decided(self) -> Decided:
        copies = [copy for manager in self.managers for copy in manager.copies]
        for manager in self.managers:
            manager.copies.clear()
        if not self.rules.tail_copy.ordered:
            copies.reverse()
        given, full = self._given, self._ledger.full
        if self._in_flight:
            # Else the step runs before the next one is decided, and what its commit publishes counts as its own.
            given, full = [*map(list, given)], full.copy()
        return Decided(copies, given, full, self._ledger.take_journal())

    def unpin(self, copies: Sequence[CopyOnWrite], after_step: int | None = None) -> None:
        for pool in self.pools:
            own = [copy for copy in copies if self.managers[copy.group].pool is pool]
            if own:
                pool.free([block for copy in own for block in (copy.source, copy.target)], after_step)

    def run(self, step: int) -> None:
        for pool in self.pools:
            pool.drain(step)

    def commit(self, published: Sequence[tuple[str, Entry]]) -> None:
        self.pool.reveal(entry for _, entry in (*published, *self._ledger.take_journal()))

    def withdraw(self, published: Sequence[Entry]) -> None:
        self.pool.withdraw(published)

    def reset(self) -> bool:
        """Withdraw all hashes of the pool; False while somebody uses a block. The tier keeps what it has."""
        return all(pool.unused for pool in self.pools) and all(pool.reset() for pool in self.pools)

    # Looking up.

    def lookup(self, request: CacheRequest, rule: Lookup | None = None) -> Hit:
        """``rule``: asked instead of the table's."""
        groups = len(self.managers)
        if not self.options.enable_prefix_caching:
            return Hit(0, [[] for _ in range(groups)], 0, [0] * groups)
        layout = self.layout
        return (rule or self.rules.lookup)(
            self.pool,
            layout.geometry,
            layout.hashes(request),
            groups,
            request.num_tokens - 1,
            layout.hashed(request),
        )

    # Allocating.

    def admit(
        self,
        request: CacheRequest,
        tokens: int,
        *,
        hit: Hit,
        external_tokens: int,
        reserve_full_sequence: bool,
        beside_others: bool,
    ) -> str:
        total = min(hit.tokens + external_tokens, self._longest)
        none = [0] * len(self.pools)
        watermark = self._watermark_blocks if beside_others else none
        if self.rules.publish.refuses_same_step and any(
            hit.blocks[m.group] and self.pool.primary[hit.blocks[m.group][-1]] in m.published_now for m in self._states
        ):
            return Refusal.SAME_STEP
        tables = [Table() for _ in self.managers]
        if reserve_full_sequence:
            full = min(request.num_tokens, self._longest)
            if self._lacks(self._needed(request, tables, hit, total, full, full, commit=False), watermark):
                return Refusal.FULL_SEQUENCE
        end = total + tokens
        slots = min(end + self._lookahead, self._longest)
        needed = self._needed(request, tables, hit, total, slots, end, commit=True)
        # The state that a connector brings has a block of its own, unless the chunk ends in the same one. Releases do
        # not ask for it, and stop with an error where it is not there; here such a request is refused.
        aligned = [m.block_size for m in self._states if isinstance(m, RecurrentCache)]
        loaded = list(none)
        loaded[-1] = sum((total - 1) // size < (end - 1) // size for size in aligned) if external_tokens else 0
        if self._lacks(needed, map(max, watermark, loaded)):
            lacking = self._lacks(needed, loaded)
            if self.rules.admission.piecemeal:
                for pool in lacking:
                    # It took what there was before it found too few; nobody gives them back.
                    pool.take(pool.num_free)
            return Refusal.BLOCKS if lacking else Refusal.WATERMARK
        self._tables[request.id] = tables
        if external_tokens or any(hit.blocks):
            self._adopt(tables, hit, external_tokens, total)
            if self._refreshes_prefix:
                self._refresh(request, hit.tokens)
        self._extend(request, tables, slots, end)
        self.publish(request, end, total)
        return ""

    def grow(self, request: CacheRequest, tokens: int, *, unconfirmed_tokens: int = 0) -> bool:
        start = request.computed
        end = start + tokens
        slots = min(end + self._lookahead, self._longest)
        tables = self._tables[request.id]
        for manager in self._freeing:
            freed = manager.retire(tables[manager.group], start - unconfirmed_tokens)
            if freed and manager.recurrent:
                self._tell_released(request, manager.group, freed)
        if self._lacks(self._needed(request, tables, None, start, slots, end, commit=True)):
            return False
        self._extend(request, tables, slots, end)
        self.publish(request, end, start)
        return True

    def _needed(
        self,
        request: CacheRequest,
        tables: Sequence[Table],
        hit: Hit | None,
        start: int,
        slots: int,
        end: int,
        commit: bool,
    ) -> list[int]:
        """Count the blocks, by pool, for tokens [start, end); attention holds look-ahead slots too, states do not.

        ``commit``: remember which checkpoints the chunk would export.
        """
        needed = [0] * len(self.pools)
        hit_tokens = hit.tokens if hit is not None else 0
        for manager in self.managers:
            table = tables[manager.group]
            blocks = hit.blocks[manager.group] if hit is not None else []
            tokens, checkpoint = slots, None
            if isinstance(manager, RecurrentCache):
                tokens = slots if self._state_slots else end
                if self.options.num_prefill_checkpoint_blocks:
                    checkpoint = self._checkpoint(request, manager, table, start, end, tokens)
                    if commit:
                        table.checkpoint = checkpoint
            elif isinstance(manager, WindowCache) and not commit:
                tokens = min(tokens, manager.most)
            more = manager.needed(table, blocks, hit_tokens, tokens, checkpoint is not None, start)
            needed[self._place[manager.group]] += more
        return needed

    def _lacks(self, needed: Sequence[int], beside: Iterable[int] = repeat(0)) -> list[BlockPool]:
        """Return the pools in which fewer blocks are free than are needed of each, with so many ``beside`` them."""
        return [pool for pool, n, more in zip(self.pools, needed, beside, strict=False) if n + more > pool.num_free]

    def _adopt(self, tables: Sequence[Table], hit: Hit, external_tokens: int, total: int) -> None:
        """Give a request the blocks of its hit, and blocks for what is brought behind it: ``total`` tokens of both."""
        for manager in self.managers:
            manager.adopt(tables[manager.group], hit.blocks[manager.group], hit.tokens, total)
        if external_tokens:
            for manager in self.managers:
                new = manager.load(tables[manager.group], total)
                if not manager.recurrent:
                    self._given[manager.group] += new

    def _refresh(self, request: CacheRequest, tokens: int) -> None:
        """Let all that is published of a prefix be evicted last, its end last of all."""
        keys = self.layout.hashes(request)[: tokens // self.layout.hash_unit]
        for manager in self.managers:
            manager.pool.refresh(block for key in keys for block in manager.pool.all_under(manager.group, key))

    def _extend(self, request: CacheRequest, tables: Sequence[Table], slots: int, end: int) -> None:
        """Allocate for a chunk that ends at ``end``; the observer is told of the slots of recurrent groups."""
        for manager in self.managers:
            table, group = tables[manager.group], manager.group
            if not manager.recurrent:
                self._given[group] += manager.extend(request.id, table, slots)
                continue
            before = len(table.blocks)
            exact = isinstance(manager, RecurrentCache) and not self._state_slots
            request.appended(group, manager.extend(request.id, table, end if exact else slots), table.blocks)
            if any(new := table.blocks[before:]):
                self.observer.allocate(request.id, group, before, new)

    # Checkpoints.

    def _checkpoint(
        self, request: CacheRequest, manager: RecurrentCache, table: Table, start: int, end: int, tokens: int
    ) -> tuple[int, int] | None:
        """Return the offset that a chunk would export on its way, and the column that it has for it.

        ``tokens``: those that it reserves blocks for. Where they reach into another block than ``end``, the running
        column is not the one behind that column, and nothing is reserved.
        """
        if -(-tokens // manager.block_size) != -(-end // manager.block_size):
            return None
        # Only where nothing but resends is retained does it matter whether the prefill ends here.
        ends = self._publishing.intervals[manager.group] == 0 and not self.rules.checkpoint.every_chunk
        query = self._query(start, end, request.prefill_end if ends else 0, end, manager.block_size)
        offset = self.rules.checkpoint.exports(query)
        column = manager.room_for_checkpoint(table, end) if offset else -1
        return (offset, column) if column >= 0 else None

    def exported(self, start: int, end: int, block: int) -> tuple[int, int]:
        query = self._query(start, end, 0, end, block)
        return self.rules.checkpoint.exported(query), -(-end // block) - 2

    def exempts(self, start: int, end: int, prefill_end: int, grid: int) -> bool:
        if not self.options.num_prefill_checkpoint_blocks:
            return False
        query = self._query(start, end, prefill_end, prefill_end, grid)
        return self.rules.checkpoint.exempts(query, self.options.speculative.eagle)

    def _query(self, start: int, end: int, prefill_end: int, tokens: int, block: int) -> Query:
        layout = self.layout
        position = self._publishing.checkpoint_position(tokens)
        alignment = self.options.prefill_checkpoint_alignment
        return Query(start, end, prefill_end, position, block, layout.hash_unit, alignment)

    # Quiet requests.

    def quiet_until(self, request: CacheRequest) -> int:
        if self.options.group_times_to_live:
            # Something may expire while it decodes.
            return 0
        end, tables = self._longest, self._tables[request.id]
        for manager in self.managers:
            table, size = tables[manager.group], manager.block_size
            if table.partial is not None or table.unpublished or isinstance(manager, AllModeCache | WindowCache):
                return 0
            if self.options.enable_prefix_caching:
                end = min(end, self._publishing.next_publication(manager, (table.cached + 1) * size))
            if isinstance(manager, RecurrentCache):
                running = len(table.blocks) - 1 - manager.spare
                if not self._settled(manager, table, running, request):
                    return 0
                end = min(end, (running + 1) * size)
            else:
                end = min(end, len(table.blocks) * size - self._lookahead + 1)
        return end

    def _settled(self, manager: RecurrentCache, table: Table, running: int, request: CacheRequest) -> bool:
        """Return True if a request is past the start of its running column, with nothing behind it left to free and
        no claim on what it writes: the worker's table names the blocks that are its own."""
        blocks = table.blocks
        return (
            request.computed - request.in_flight > running * manager.block_size
            and request.pages[manager.group][running:] == blocks[running:]
            and not manager.retire_rule(blocks, running, table.retired)
            and not (0 <= table.last_state < running and blocks[table.last_state])
            and all(self.pool.primary[b] is None for b in blocks[running:])
        )

    # Freeing.

    def free(self, request: CacheRequest, after_step: int | None = None) -> None:
        """Free a request's blocks, each group's last first; those that wait, ``after_step``, the last group's first."""
        tables = self._tables.pop(request.id, None)
        if tables is None:
            return
        together: list[list[int]] = [[] for _ in self.pools]
        for manager in self.managers:
            blocks = tables[manager.group].blocks
            if after_step is None:
                manager.pool.free(blocks[::-1])
            together[self._place[manager.group]] += blocks
            if manager.recurrent:
                self._tell_released(request, manager.group, blocks)
        if after_step is not None:
            # One list a pool, so that its blocks without a hash come to the front of the queue in its order.
            for pool, blocks in zip(self.pools, together, strict=True):
                pool.free(blocks[::-1], after_step)

    def held(self, request: CacheRequest) -> set[int]:
        return {block for table in self._tables.get(request.id, ()) for block in table.blocks}

    def _tell_released(self, request: CacheRequest, group: int, blocks: Sequence[int]) -> None:
        if held := [block for block in blocks if block]:
            self.observer.release(request.id, group, held)
