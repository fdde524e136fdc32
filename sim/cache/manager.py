"""The prefix cache as a scheduler sees it: look up, allocate, publish, free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stateat.sim.cache.groups import AllModeCache, AttentionCache, CopyOnWrite, OnClaim, RecurrentCache, Table
from stateat.sim.cache.lookup import Hit, Lookup, geometry
from stateat.sim.cache.offload import Offloading
from stateat.sim.cache.pool import BlockPool, Entry, OnUnclaim
from stateat.sim.cache.publishing import Publishing
from stateat.sim.cache.window import ScratchCache, WindowCache
from stateat.sim.events import Refusal
from stateat.sim.options import Options
from stateat.sim.rules.checkpoint import Query

if TYPE_CHECKING:
    from stateat.sim.engine.request import Request
    from stateat.sim.releases.rules import Rules


class KVCache:
    """One pool and a manager for each group."""

    def __init__(self, options: Options, rules: Rules, claim: OnClaim, unclaim: OnUnclaim) -> None:
        self.options = options
        self.num_groups = len(options.groups)
        self.rules = rules
        self.enabled = options.enable_prefix_caching
        guard = rules.drafter_drop
        self.drop = guard.drop(options)
        """Whether something is given up of each hit."""
        self.ahead = guard.ahead(options)
        """Tokens behind a block that its hash covers."""
        self.geometry = geometry(
            options,
            guard.lookup_drops(options),
            guard.past_the_end and self.num_groups > 1,
            guard.scope(options.groups),
            guard.states,
            rules.partial_hits_when.on(options) and self.enabled,
        )
        self.unit = self.geometry.hash_unit
        self.pool = BlockPool(options.num_blocks, len(options.groups))
        recurrent = frozenset(options.recurrent)
        if rules.eviction.deepest:
            self.pool.deepest = recurrent
        self.pool.last = rules.eviction.uncached_last and not self.enabled
        self.pool.on_unclaim = lambda group, *rest: unclaim(group, *rest) if group in recurrent else None
        self.watermark_blocks = int(options.watermark * options.num_blocks)
        self.lookahead = options.speculative.lookahead_tokens
        self.max_model_len = options.max_model_len
        self.scheduler_block = options.scheduler_block_size
        self.drops = dict.fromkeys(range(self.num_groups), False)
        self.drops.update((g, f.drops) for f in self.geometry.families for g in f.groups)
        spare = options.speculative.num_speculative_tokens
        self.managers: list[AttentionCache | RecurrentCache] = []
        for i, group in enumerate(options.groups):
            where = (i, group.block_size, self.pool, self.geometry)
            if group.aligned:
                scratch = rules.checkpoint.claims_scratch
                retire, eager, tails = rules.skipped_states, rules.started.when_scheduled, rules.tail_copy
                self.managers.append(RecurrentCache(*where, claim, spare, retire, eager, scratch, tails))
            elif group.recurrent:
                self.managers.append(AllModeCache(*where, claim, spare, rules.skipped_states))
            elif not group.prefix_cacheable:
                self.managers.append(ScratchCache(*where, None))
            elif group.sliding_window:
                size, drops = group.block_size, self.drops[i]
                row = rules.window_publishing.row(size, group.sliding_window, drops)
                reach = min(group.sliding_window - 1 + options.max_num_batched_tokens, options.max_model_len)
                self.managers.append(WindowCache(*where, None, group.sliding_window, row, reach))
            else:
                self.managers.append(AttentionCache(*where, None))
        self.aligned = [m for m in self.managers if isinstance(m, RecurrentCache)]
        self.states = [m for m in self.managers if isinstance(m, RecurrentCache | AllModeCache)]
        """Managers of recurrent groups, whatever their mode."""
        self.windows = [m for m in self.managers if isinstance(m, WindowCache)]
        self.publishing = Publishing(self)
        """What is advertised, and when."""
        self.offload = Offloading(self)
        """The tier below the pool, if there is one."""
        self.tier = self.offload.tier
        self.journal: list[tuple[str, Entry]] = []
        """What this step advertised, where that can be hidden or withdrawn."""
        if rules.publish.hides or options.max_concurrent_batches > 1:
            for manager in self.managers:
                manager.journal, manager.hides = self.journal, rules.publish.hides
        self.given: list[list[int]] = [[] for _ in options.groups]
        """Blocks newly given to each attention group in this step."""

    def new_step(self) -> None:
        """Forget what was published and given in the step before."""
        for manager in self.states:
            manager.published_now.clear()
        for blocks in self.given:
            blocks.clear()
        self.offload.published.clear()

    # Looking up.

    def lookup(self, request: Request, rule: Lookup | None = None) -> Hit:
        """The longest prefix that all groups hold, one token short of everything at most; ``rule``: asked instead."""
        if not self.enabled:
            return self.miss()
        return (rule or self.rules.lookup)(
            self.pool,
            self.geometry,
            self.hashes(request),
            self.num_groups,
            request.num_tokens - 1,
            self.hashed(request),
        )

    def hashes(self, request: Request) -> list[bytes]:
        """Of each hash unit of a request; those past :meth:`hashed` are not to be used yet."""
        return request.hashes(self.unit, self.ahead, self.rules.item_hash.names_every_item)

    def hashed(self, request: Request) -> int:
        """Tokens whose hashes are known."""
        return max(request.num_tokens - self.ahead, 0) // self.unit * self.unit

    def miss(self) -> Hit:
        """A hit of nothing."""
        return Hit(0, [[] for _ in range(self.num_groups)], 0, [0] * self.num_groups)

    def reset(self) -> bool:
        """Forget all that the pool advertises; False while somebody uses a block. The tier keeps what it has."""
        return self.pool.reset()

    # Allocating.

    def admit(self, request: Request, new: int, hit: Hit, external: int, reserve: bool, others: bool) -> str:
        """Allocate for a waiting request; '' or the Refusal, which leaves everything as it was.

        ``reserve``: refuse unless its whole sequence would fit; ``others``: whether anything runs beside it (the
        watermark then applies).
        """
        total = min(hit.tokens + external, self.max_model_len)
        watermark = self.watermark_blocks if others else 0
        if self.rules.publish.refuses_same_step and any(
            hit.blocks[m.group] and self.pool.primary[hit.blocks[m.group][-1]] in m.published_now for m in self.states
        ):
            return Refusal.SAME_STEP
        if reserve:
            full = min(request.num_tokens, self.max_model_len)
            if self._needed(request, hit, total, full, full, commit=False) + watermark > self.pool.num_free:
                return Refusal.FULL_SEQUENCE
        end = total + new
        slots = min(end + self.lookahead, self.max_model_len)
        needed = self._needed(request, hit, total, slots, end, commit=True)
        # The state that a connector brings has a block of its own, unless the chunk ends in the same one. Releases do
        # not ask for it, and stop with an error where it is not there; here such a request is refused.
        loaded = sum((total - 1) // m.block_size < (end - 1) // m.block_size for m in self.aligned) if external else 0
        if needed + max(watermark, loaded) > self.pool.num_free:
            needed += loaded
            if self.rules.admission.piecemeal and needed > self.pool.num_free:
                # It took what there was before it found too few; nobody gives them back.
                self.pool.take(self.pool.num_free)
            return Refusal.WATERMARK if needed <= self.pool.num_free else Refusal.BLOCKS
        if external or any(hit.blocks):
            self._adopt(request, hit, external, total)
        self._extend(request, slots, end)
        self.publishing.publish(request, end, total)
        return ""

    def grow(self, request: Request, new: int, unconfirmed: int = 0) -> bool:
        """Allocate for a running request; False if the pool cannot.

        ``unconfirmed``: of what it has computed that which steps in flight have yet to.
        """
        start, end = request.computed, request.computed + new
        slots = min(end + self.lookahead, self.max_model_len)
        for manager in self.managers:
            if isinstance(manager, RecurrentCache | AllModeCache | WindowCache):
                freed = manager.retire(request.tables[manager.group], start - unconfirmed)
                if freed and manager in self.states:
                    request.released(manager.group, freed)
        if self._needed(request, None, start, slots, end, commit=True) > self.pool.num_free:
            return False
        self._extend(request, slots, end)
        self.publishing.publish(request, end, start)
        return True

    def _needed(self, request: Request, hit: Hit | None, start: int, slots: int, end: int, commit: bool) -> int:
        """Blocks for tokens [start, end); attention holds look-ahead slots too, a recurrent group does not.

        ``commit``: remember which checkpoints the chunk would export.
        """
        needed = 0
        for manager in self.managers:
            table = request.tables[manager.group]
            blocks = hit.blocks[manager.group] if hit is not None else []
            tokens, checkpoint = slots, None
            if isinstance(manager, RecurrentCache):
                tokens = slots if self.rules.state_slots.with_look_ahead else end
                if self.options.num_prefill_checkpoint_blocks:
                    checkpoint = self._checkpoint(request, manager, table, start, end, tokens)
                    if commit:
                        table.checkpoint = checkpoint
            if isinstance(manager, WindowCache) and not commit:
                tokens = min(tokens, manager.most)
            hit_tokens = hit.tokens if hit is not None else 0
            needed += manager.needed(table, blocks, hit_tokens, tokens, checkpoint is not None, start)
        return needed

    def _checkpoint(
        self, request: Request, manager: RecurrentCache, table: Table, start: int, end: int, tokens: int
    ) -> tuple[int, int] | None:
        """The offset that a chunk would export on its way, and the column that it has for it.

        ``tokens``: those that it reserves blocks for. Where they reach into another block than ``end``, the running
        column is not the one behind that column, and nothing is reserved.
        """
        if -(-tokens // manager.block_size) != -(-end // manager.block_size):
            return None
        # Only where nothing but resends is retained does it matter whether the prefill ends here.
        prefill_end = request.prefill_end if self.publishing.interval == 0 else 0
        query = self._query(start, end, prefill_end, end, manager.block_size, self.geometry.alignment)
        offset = self.rules.checkpoint.exports(query)
        column = manager.room_for_checkpoint(table, end) if offset else -1
        return (offset, column) if column >= 0 else None

    def exported(self, start: int, end: int, block: int) -> tuple[int, int]:
        """The offset of the state that a kernel exports of a prefill chunk (0: none), and its column."""
        query = self._query(start, end, 0, end, block, self.geometry.alignment)
        return self.rules.checkpoint.exported(query), -(-end // block) - 2

    def _query(self, start: int, end: int, prefill_end: int, tokens: int, block: int, unit: int) -> Query:
        position = self.rules.boundaries.reusable(tokens, unit, self.drop, self.ahead)
        return Query(start, end, prefill_end, position, block, self.unit, self.options.prefill_checkpoint_alignment)

    def exempts(self, start: int, end: int, prefill_end: int, grid: int) -> bool:
        """Whether the split lets a prefill chunk run on, since it exports a checkpoint on its way."""
        if not self.options.num_prefill_checkpoint_blocks:
            return False
        unit = self.unit if self.geometry.fine else self.scheduler_block
        query = self._query(start, end, prefill_end, prefill_end, grid, unit)
        return self.rules.checkpoint.exempts(query, self.options.speculative.eagle)

    def _adopt(self, request: Request, hit: Hit, external: int, total: int) -> None:
        for manager in self.managers:
            manager.adopt(request.tables[manager.group], hit.blocks[manager.group], hit.tokens, total)
        if external:
            for manager in self.managers:
                new = manager.load(request.tables[manager.group], total)
                if manager not in self.states:
                    self.given[manager.group] += new

    def _extend(self, request: Request, slots: int, end: int) -> None:
        for manager in self.managers:
            table = request.tables[manager.group]
            if manager in self.states:
                before = len(table.blocks)
                tokens = (
                    end if isinstance(manager, RecurrentCache) and not self.rules.state_slots.with_look_ahead else slots
                )
                request.appended(manager.group, before, manager.extend(request.id, table, tokens))
            else:
                self.given[manager.group] += manager.extend(request.id, table, slots)

    # Quiet requests.

    def quiet_until(self, request: Request) -> int:
        """The first chunk end at which a decoding request would allocate, publish, retire or copy anything.

        0 when it might at once.
        """
        end = self.max_model_len
        for manager in self.managers:
            table, size = request.tables[manager.group], manager.block_size
            if table.partial is not None or table.unpublished or isinstance(manager, AllModeCache | WindowCache):
                return 0
            if self.enabled:
                end = min(end, self.publishing.next_publication(manager.group, size, (table.cached + 1) * size))
            if isinstance(manager, RecurrentCache):
                running = len(table.blocks) - 1 - manager.spare
                if not self._settled(manager, table, running, request):
                    return 0
                end = min(end, (running + 1) * size)
            else:
                end = min(end, len(table.blocks) * size - self.lookahead + 1)
        return end

    def _settled(self, manager: RecurrentCache, table: Table, running: int, request: Request) -> bool:
        """Whether a request is past the start of its running column, with nothing behind it left to retire and
        no claim on what it writes: the worker's table names the blocks that are its own."""
        blocks = table.blocks
        return (
            request.computed > running * manager.block_size
            and request.pages[manager.group][running:] == blocks[running:]
            and not manager.retire_rule(blocks, running, table.retired)
            and not (0 <= table.last_state < running and blocks[table.last_state])
            and all(self.pool.primary[b] is None for b in blocks[running:])
        )

    # Letting go.

    def free(self, request: Request) -> None:
        """Let go of all of a request's blocks, each group's last first."""
        for manager in self.managers:
            table = request.tables[manager.group]
            self.pool.free(table.blocks[::-1])
            if manager in self.states:
                request.released(manager.group, table.blocks)
            request.tables[manager.group] = Table()

    def take_copies(self) -> list[CopyOnWrite]:
        """This step's copy-on-write copies; what they pin stays pinned until they have run (:meth:`unpin`)."""
        copies = [copy for manager in self.managers for copy in manager.copies]
        for manager in self.managers:
            manager.copies.clear()
        return copies if self.rules.tail_copy.ordered else copies[::-1]

    def unpin(self, copies: list[CopyOnWrite]) -> None:
        """Let go of what these copies pinned."""
        self.pool.free([block for copy in copies for block in (copy.source, copy.target)])

    def take_journal(self) -> list[tuple[str, Entry]]:
        """What was advertised since the last time."""
        taken = self.journal.copy()
        self.journal.clear()
        return taken

    def reveal(self, published: list[tuple[str, Entry]]) -> None:
        """The step that makes these true has committed."""
        self.pool.hidden.difference_update((key, block) for _, (_, key, block) in published)
