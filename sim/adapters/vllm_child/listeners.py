"""Listeners on one scheduler and its cache: what it decides, claims, evicts and hands out, in order."""

from __future__ import annotations

import inspect

from objects import attribute


class Ears:
    """Wraps methods of one scheduler and its cache, and writes down what they did, in order."""

    def __init__(self, scheduler, wanted):
        self.scheduler = scheduler
        self.manager = scheduler.kv_cache_manager
        self.pool = self.manager.block_pool
        self.managers = self.manager.coordinator.single_type_managers
        self.groups = wanted["groups"]
        self.recurrent = [i for i, g in enumerate(self.groups) if g["recurrent"]]
        self.cap = scheduler.max_num_scheduled_tokens
        self.log = []
        self.given = [[] for _ in self.groups]
        self.copies = []
        self.why = "transient"
        self.asker = ""
        self.group = -1
        self.offset = None
        self.needs = []
        self.same_step = False
        self.stops = {}
        self.offered = {}
        self.offsets = {}
        self._wrap_scheduler()
        self._wrap_pool()
        for group, manager in enumerate(self.managers):
            self._wrap_manager(group, manager)

    def take(self):
        """Return what was heard since the last time."""
        log, self.log = self.log, []
        return log

    def take_step(self):
        """(blocks given to attention groups, copies on write) of this step."""
        given, copies = self.given, self.copies
        self.given, self.copies = [[] for _ in self.groups], []
        return given, copies

    def holds(self, name, group, block):
        """True if a request has a block in its table."""
        return any(held.block_id == block for held in self.managers[group].req_to_blocks.get(name, ()))

    # Decisions.

    def _wrap_scheduler(self):
        scheduler, manager = self.scheduler, self.manager
        scheduler._mamba_block_aligned_split = self._split(attribute(scheduler, "_mamba_block_aligned_split"))
        # Since 0.28.
        if hasattr(scheduler, "_reserve_prefill_lookahead"):
            scheduler._reserve_prefill_lookahead = self._reserve(scheduler._reserve_prefill_lookahead)
        scheduler._try_schedule_encoder_inputs = self._encode(scheduler._try_schedule_encoder_inputs)
        scheduler._preempt_request = self._preempt(scheduler._preempt_request)
        manager.allocate_slots = self._allocate(manager.allocate_slots)
        coordinator = manager.coordinator
        coordinator.get_num_blocks_to_allocate = self._count(coordinator.get_num_blocks_to_allocate)

    def _split(self, split):
        def wrapped(request, num_new_tokens, local=0, external=0, *args, **kwargs):
            scheduler = self.scheduler
            budget, scheduler.max_num_scheduled_tokens = scheduler.max_num_scheduled_tokens, self.cap
            try:
                count = split(request, num_new_tokens, local, external, *args, **kwargs)
            finally:
                scheduler.max_num_scheduled_tokens = budget
            self.offered[request.request_id] = num_new_tokens
            if count <= 0 < num_new_tokens:
                self.log.append(["defer", request.request_id, num_new_tokens, "split"])
            elif count < num_new_tokens:
                self.stops[request.request_id] = "split"
            return count

        return wrapped

    def _reserve(self, reserve):
        def wrapped(request, computed, count, *args, **kwargs):
            left = reserve(request, computed, count, *args, **kwargs)
            if left < count:
                self.stops[request.request_id] = "look-ahead"
                if left <= 0:
                    self.log.append(["defer", request.request_id, count, "look-ahead"])
            return left

        return wrapped

    def _encode(self, encode):
        def wrapped(request, computed, count, *args, **kwargs):
            answer = encode(request, computed, count, *args, **kwargs)
            if answer[1] < count:
                self.stops[request.request_id] = "encoder"
                if answer[1] <= 0:
                    self.log.append(["defer", request.request_id, count, "encoder"])
            return answer

        return wrapped

    def _preempt(self, preempt):
        def wrapped(request, *args, **kwargs):
            answer = preempt(request, *args, **kwargs)
            self.log.append(["preempt", request.request_id])
            return answer

        return wrapped

    def _count(self, count):
        def wrapped(*args, **kwargs):
            needed = count(*args, **kwargs)
            self.needs.append((needed, self.pool.get_num_free_blocks()))
            return needed

        return wrapped

    def _allocate(self, allocate):
        bind = inspect.signature(allocate).bind

        def wrapped(*args, **kwargs):
            said = bind(*args, **kwargs).arguments
            request = said["request"]
            waiting = request.status.name != "RUNNING"
            self.asker, self.needs, self.same_step = request.request_id, [], False
            blocks = allocate(*args, **kwargs)
            if waiting:
                if blocks is None:
                    self.log.append(["refuse", request.request_id, self._reason(said)])
                else:
                    self._admitted(request, said)
            self.asker = ""
            return blocks

        return wrapped

    def _reason(self, said):
        if self.same_step:
            return "same_step"
        if said.get("full_sequence_must_fit") and len(self.needs) == 1:
            return "full_sequence"
        needed, free = self.needs[-1] if self.needs else (1, 0)
        return "watermark" if needed <= free else "blocks"

    def _admitted(self, request, said):
        hit = said.get("num_new_computed_tokens") or 0
        blocks = said.get("new_computed_blocks")
        # The last block of each group, and how many there are.
        slots = (
            [[group[-1].block_id, len(group)] if group else [] for group in blocks.blocks]
            if hit and blocks is not None
            else []
        )
        resumed = request.num_preemptions > 0
        external = said.get("num_external_computed_tokens") or 0
        junction = request.shared_prefix_boundary
        loads = [[g, self._block_at(g, request, hit + external)] for g in self.recurrent] if external else []
        self.log.append(["admit", request.request_id, hit, external, resumed, slots, junction, loads])

    def _block_at(self, group, request, offset):
        """The slot of a request's column that holds its state@offset."""
        table = self.managers[group].req_to_blocks[request.request_id]
        return table[(offset - 1) // self.groups[group]["block_size"]].block_id

    # The cache.

    def _wrap_pool(self):
        pool = self.pool
        pool.cache_full_blocks = self._caching(pool.cache_full_blocks)
        pool.cache_partial_block = self._caching(pool.cache_partial_block)
        pool.move_block_hashes = self._because("move", pool.move_block_hashes)
        pool.reset_prefix_cache = self._resetting(pool.reset_prefix_cache)
        self._evict_blocks = attribute(pool, "evict_blocks")
        pool.evict_blocks = self._because("evict", self._evict_blocks)
        pool.get_new_blocks = self._handing_out(pool.get_new_blocks)
        pool._insert_block_hash = self._inserting(pool._insert_block_hash)
        self._wrap_index()

    def _wrap_index(self):
        index = self.pool.cached_block_hash_to_block
        index.insert = self._inserted(index.insert)
        index.pop = self._removed(index.pop)

    def evict(self, group, key):
        """Evict the blocks that are published in a group under a hash; False if none is."""
        found = self.pool.cached_block_hash_to_block._cache.get(key + group.to_bytes(4, "big"))
        if found is None:
            return False
        blocks = set(found) if isinstance(found, dict) else {found.block_id}
        self._because("asked", self._evict_blocks)(blocks)
        return True

    def _resetting(self, reset):
        def wrapped(*args, **kwargs):
            held = dict(self.pool.cached_block_hash_to_block._cache)
            done = reset(*args, **kwargs)
            if done:
                # The index is a new one, and nothing was popped off the old one.
                for key, found in held.items():
                    group = int.from_bytes(key[-4:], "big")
                    blocks = found if isinstance(found, dict) else [found.block_id]
                    if self.groups[group]["recurrent"]:
                        self.log += [["unclaim", group, block, key.hex(), "reset"] for block in blocks]
                self._wrap_index()
            return done

        return wrapped

    def _because(self, why, method):
        def wrapped(*args, **kwargs):
            before, self.why = self.why, why
            try:
                return method(*args, **kwargs)
            finally:
                self.why = before

        return wrapped

    def _caching(self, method):
        bind = inspect.signature(method).bind

        def wrapped(*args, **kwargs):
            before, asker = self.why, self.asker
            self.why = "rekey"
            self.asker = bind(*args, **kwargs).arguments["request"].request_id
            try:
                return method(*args, **kwargs)
            finally:
                self.why, self.asker = before, asker

        return wrapped

    def _handing_out(self, method):
        def wrapped(*args, **kwargs):
            before, self.why = self.why, "evict"
            try:
                blocks = method(*args, **kwargs)
            finally:
                self.why = before
            if self.group >= 0 and not self.groups[self.group]["recurrent"]:
                self.given[self.group] += [block.block_id for block in blocks]
            return blocks

        return wrapped

    def _inserting(self, method):
        bind = inspect.signature(method).bind

        def wrapped(*args, **kwargs):
            self.offset = bind(*args, **kwargs).arguments.get("num_tokens")
            return method(*args, **kwargs)

        return wrapped

    def _inserted(self, method):
        def wrapped(key, block, *args, **kwargs):
            answer = method(key, block, *args, **kwargs)
            group = int.from_bytes(key[-4:], "big")
            if self.groups[group]["recurrent"]:
                # A moved block's other hashes keep the offsets that they had.
                offset = self.offsets.get(key, self.offset) if self.why == "move" else self.offset
                self.offsets[key] = offset
                column = self._column(group, block, offset)
                self.log.append(["claim", group, block.block_id, self.asker, column, offset, key.hex()])
            return answer

        return wrapped

    def _removed(self, method):
        def wrapped(key, block_id, *args, **kwargs):
            answer = method(key, block_id, *args, **kwargs)
            group = int.from_bytes(key[-4:], "big")
            if answer is not None and self.groups[group]["recurrent"]:
                self.log.append(["unclaim", group, block_id, key.hex(), self.why])
            return answer

        return wrapped

    def _column(self, group, block, offset):
        """The column of the asker's table that a claimed block stands in."""
        size = self.groups[group]["block_size"]
        guess = -(-offset // size) - 1
        table = self.managers[group].req_to_blocks.get(self.asker, ())
        if guess < len(table) and table[guess] is block:
            return guess
        for column in range(len(table) - 1, -1, -1):
            if table[column] is block:
                return column
        return guess

    # Block tables.

    def _wrap_manager(self, group, manager):
        manager.allocate_new_blocks = self._extending(group, manager, manager.allocate_new_blocks)
        for name in ("allocate_external_computed_blocks", "add_local_computed_blocks"):
            setattr(manager, name, self._in_group(group, attribute(manager, name)))
        if self.groups[group]["recurrent"]:
            manager.get_num_blocks_to_allocate = self._needing(manager, manager.get_num_blocks_to_allocate)
            manager.remove_skipped_blocks = self._retiring(group, manager, manager.remove_skipped_blocks)
            manager.pop_blocks_for_free = self._freeing(group, manager.pop_blocks_for_free)

    def _in_group(self, group, method):
        def wrapped(*args, **kwargs):
            before, self.group = self.group, group
            try:
                return method(*args, **kwargs)
            finally:
                self.group = before

        return wrapped

    def _needing(self, manager, method):
        bind = inspect.signature(method).bind
        attribute(manager, "cached_blocks_this_step")

        def wrapped(*args, **kwargs):
            hit = bind(*args, **kwargs).arguments["new_computed_blocks"]
            fresh = bool(hit) and hit[-1].block_hash in manager.cached_blocks_this_step
            needed = method(*args, **kwargs)
            # By more blocks than there are it says to wait for the next step; a long prompt may really need so many.
            if fresh and needed > self.pool.num_gpu_blocks:
                self.same_step = True
            return needed

        return wrapped

    def _extending(self, group, manager, method):
        extend = self._in_group(group, method)
        recurrent = self.groups[group]["recurrent"]

        def wrapped(request_id, *args, **kwargs):
            table = manager.req_to_blocks[request_id]
            before, copied = len(table), len(manager._pending_cow_copies)
            blocks = extend(request_id, *args, **kwargs)
            for source, target in manager._pending_cow_copies[copied:]:
                self.copies.append([request_id, group, source.block_id, target.block_id])
            if recurrent and len(table) > before:
                new = [block.block_id for block in table[before:]]
                self.log.append(["allocate", request_id, group, before, new])
            return blocks

        return wrapped

    def _retiring(self, group, manager, method):
        def wrapped(request_id, *args, **kwargs):
            table = manager.req_to_blocks.get(request_id) or []
            before = list(table)
            answer = method(request_id, *args, **kwargs)
            gone = [b.block_id for b, now in zip(before, table, strict=False) if b is not now and not b.is_null]
            if gone:
                self.log.append(["release", request_id, group, gone])
            return answer

        return wrapped

    def _freeing(self, group, method):
        def wrapped(request_id, *args, **kwargs):
            blocks = method(request_id, *args, **kwargs)
            held = [block.block_id for block in blocks if not block.is_null]
            if held:
                self.log.append(["release", request_id, group, held[::-1]])
            return blocks

        return wrapped
