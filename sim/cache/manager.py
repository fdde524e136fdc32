"""The prefix cache as a scheduler sees it: look up, allocate, free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.cache.groups import AttentionCache, CopyOnWrite, OnClaim, RecurrentCache, Table
from sim.cache.lookup import Hit, geometry
from sim.cache.pool import BlockPool, OnUnclaim
from sim.engine.options import Options

if TYPE_CHECKING:
    from sim.engine.request import Request
    from sim.engine.rules import Rules


class KVCache:
    """One pool and a manager for each group."""

    def __init__(self, options: Options, rules: Rules, claim: OnClaim, unclaim: OnUnclaim) -> None:
        self.enabled = options.enable_prefix_caching
        self.geometry = geometry(options, options.speculative.eagle and rules.drafter_guard.on)
        self.pool = BlockPool(options.num_blocks, len(options.groups))
        recurrent = frozenset(options.recurrent)
        self.pool.on_unclaim = lambda group, *rest: unclaim(group, *rest) if group in recurrent else None
        self.num_groups = len(options.groups)
        self.lookup_rule = rules.lookup
        self.refuse_same_step = rules.publish.on
        self.watermark_blocks = int(options.watermark * options.num_blocks)
        self.lookahead = options.speculative.lookahead_tokens
        self.max_model_len = options.max_model_len
        self.scheduler_block = options.scheduler_block_size
        self.drops = {g: f.drops for f in self.geometry.families for g in f.groups}
        self.managers: list[AttentionCache | RecurrentCache] = [
            RecurrentCache(
                i,
                group.block_size,
                self.pool,
                self.geometry,
                claim,
                options.speculative.num_speculative_tokens,
                rules.retire,
            )
            if group.recurrent
            else AttentionCache(i, group.block_size, self.pool, self.geometry, None)
            for i, group in enumerate(options.groups)
        ]
        self.recurrent = [m for m in self.managers if isinstance(m, RecurrentCache)]
        self.attention = [m for m in self.managers if isinstance(m, AttentionCache)]
        self.given: list[list[int]] = [[] for _ in options.groups]
        """Blocks newly given to each attention group in this step."""

    def new_step(self) -> None:
        """Forget what was published and given in the step before."""
        for manager in self.recurrent:
            manager.published_now.clear()
        for blocks in self.given:
            blocks.clear()

    def lookup(self, request: Request) -> Hit:
        """The longest prefix that all groups hold, one token short of everything at most."""
        if not self.enabled:
            return self.miss()
        return self.lookup_rule(
            self.pool, self.geometry, request.hashes(self.geometry.hash_unit), self.num_groups, request.num_tokens - 1
        )

    def miss(self) -> Hit:
        """A hit of nothing."""
        return Hit(0, [[] for _ in range(self.num_groups)], 0, [0] * self.num_groups)

    def admit(self, request: Request, new: int, hit: Hit, external: int, reserve: bool, others: bool) -> str:
        """Allocate for a waiting request; '' or the reason of a refusal, which leaves everything as it was.

        ``reserve``: refuse unless its whole sequence would fit; ``others``: whether anything runs beside it (the
        watermark then applies).
        """
        total = min(hit.tokens + external, self.max_model_len)
        watermark = self.watermark_blocks if others else 0
        if self.refuse_same_step and any(
            hit.blocks[m.group] and self.pool.primary[hit.blocks[m.group][-1]] in m.published_now
            for m in self.recurrent
        ):
            return "same_step"
        if reserve:
            full = min(request.num_tokens, self.max_model_len)
            if self._needed(request, hit, full, full) + watermark > self.pool.num_free:
                return "full_sequence"
        end = total + new
        slots = min(end + self.lookahead, self.max_model_len)
        needed = self._needed(request, hit, slots, end)
        if external:
            # The state that the connector brings has a block of its own, unless the chunk ends in the same one.
            needed += sum((total - 1) // m.block_size < (end - 1) // m.block_size for m in self.recurrent)
        if needed + watermark > self.pool.num_free:
            return "watermark" if needed <= self.pool.num_free else "blocks"
        if external or any(hit.blocks):
            self._adopt(request, hit, external, total)
        self._extend(request, slots, end)
        self._publish(request, end)
        return ""

    def _needed(self, request: Request, hit: Hit, slots: int, end: int) -> int:
        """Blocks that a waiting request takes; attention holds look-ahead slots too, a recurrent group does not."""
        return sum(
            m.needed(request.tables[m.group], hit.blocks[m.group], hit.tokens, end if m in self.recurrent else slots)
            for m in self.managers
        )

    def _adopt(self, request: Request, hit: Hit, external: int, total: int) -> None:
        for manager in self.managers:
            table, blocks = request.tables[manager.group], hit.blocks[manager.group]
            if isinstance(manager, RecurrentCache) and external and (total - 1) // manager.block_size >= len(blocks):
                blocks = []
            manager.adopt(table, blocks, hit.tokens, total)
            if isinstance(manager, RecurrentCache) and external:
                manager.skip_to(table, total)
        if external:
            for manager in self.managers:
                new = manager.load(request.tables[manager.group], total)
                if isinstance(manager, AttentionCache):
                    self.given[manager.group] += new

    def grow(self, request: Request, new: int) -> bool:
        """Allocate for a running request; False if the pool cannot."""
        end = request.computed + new
        slots = min(end + self.lookahead, self.max_model_len)
        for recurrent in self.recurrent:
            freed = recurrent.retire(request.tables[recurrent.group], request.computed)
            if freed:
                request.released(recurrent.group, freed)
        needed = 0
        for manager in self.managers:
            tokens = end if isinstance(manager, RecurrentCache) else slots
            needed += manager.needed(request.tables[manager.group], [], 0, tokens)
        if needed > self.pool.num_free:
            return False
        self._extend(request, slots, end)
        self._publish(request, end)
        return True

    def _extend(self, request: Request, slots: int, end: int) -> None:
        for manager in self.managers:
            table = request.tables[manager.group]
            if isinstance(manager, RecurrentCache):
                before = len(table.blocks)
                request.appended(manager.group, before, manager.extend(request.id, table, end))
            else:
                self.given[manager.group] += manager.extend(request.id, table, slots)

    def _publish(self, request: Request, end: int) -> None:
        if not self.enabled:
            return
        hashes = request.hashes(self.geometry.hash_unit)
        known = min(end, request.num_tokens)
        for manager in self.managers:
            table = request.tables[manager.group]
            tokens = self._publishable(manager.group, manager.block_size, known)
            new = manager.publish(request.id, table, hashes, tokens)
            if manager.scale > 1:
                manager.publish_prompt_tail(request.id, table, hashes, request.num_prompt, tokens)
            if isinstance(manager, RecurrentCache):
                manager.published_now.update(new)

    def _publishable(self, group: int, block_size: int, known: int) -> int:
        """Of ``known`` tokens those that a hit could reach; a drafter's group needs the block that it drops too."""
        if self.geometry.fine:
            return known
        aligned = known // self.scheduler_block * self.scheduler_block
        return min(known, aligned + block_size) if self.drops[group] and aligned else aligned

    def quiet_until(self, request: Request) -> int:
        """The first chunk end at which a decoding request would allocate, publish, retire or copy anything.

        0 when it might at once.
        """
        end = self.max_model_len
        for manager in self.managers:
            table, size = request.tables[manager.group], manager.block_size
            if table.partial is not None:
                return 0
            if self.enabled:
                end = min(end, self._next_publication(manager.group, size, (table.cached + 1) * size))
            if isinstance(manager, RecurrentCache):
                running = len(table.blocks) - 1 - manager.spare
                if not self._settled(manager, table, running, request.computed):
                    return 0
                end = min(end, (running + 1) * size)
            else:
                end = min(end, len(table.blocks) * size - self.lookahead + 1)
        return end

    def _settled(self, manager: RecurrentCache, table: Table, running: int, computed: int) -> bool:
        """Whether a request is past the start of its running column, with nothing behind it left to retire and
        no claim on what it writes."""
        blocks = table.blocks
        return (
            computed > running * manager.block_size
            and (running == 0 or blocks[running - 1] == 0)
            and not (0 <= table.last_state < running and blocks[table.last_state])
            and all(self.pool.primary[b] is None for b in blocks[running:])
        )

    def _next_publication(self, group: int, block_size: int, tokens: int) -> int:
        """The least number of known tokens with which block ``tokens // block_size`` is published."""
        if self.geometry.fine:
            return tokens
        base = tokens // self.scheduler_block * self.scheduler_block
        if tokens == base or (self.drops[group] and base and tokens <= base + block_size):
            return tokens
        return base + self.scheduler_block

    def free(self, request: Request) -> None:
        """Let go of all of a request's blocks, each group's last first."""
        for manager in self.managers:
            table = request.tables[manager.group]
            self.pool.free(table.blocks[::-1])
            if isinstance(manager, RecurrentCache):
                request.released(manager.group, table.blocks)
            request.tables[manager.group] = Table()

    def take_copies(self) -> list[CopyOnWrite]:
        """This step's copy-on-write copies; unpins what they pinned."""
        copies = [copy for manager in self.managers for copy in manager.copies]
        self.pool.free([block for copy in copies for block in (copy.source, copy.target)])
        for manager in self.managers:
            manager.copies.clear()
        return copies
