"""States that a scenario evicts from the pool by name, or places into it.

A state is named by its group and the prefix that it stands for. Who evicts one does as vLLM's ``evict_blocks``: its
block keeps its place among the free ones, and whoever uses it keeps it; it is found no more, under none of its hashes.
"""

from __future__ import annotations

from collections.abc import Sequence

from stateat.sim.cache.groups import AllModeCache
from stateat.sim.cache.layout import Layout, Manager
from stateat.sim.cache.request import CacheRequest
from stateat.sim.cache.window import WindowCache
from stateat.sim.events import Observer, Withdrawal
from stateat.sim.options import Options


def named(options: Options, request: str, group: int, offset: int) -> str:
    """Return a state, or a block, in words."""
    what = options.groups[group]
    return f"{'state' if what.recurrent else 'block'}@{offset} of request {request!r} in group {what.name!r}"


def not_there(options: Options, request: str, group: int, offset: int) -> str:
    """Return what is found and allowed where what is to be evicted is not published."""
    return f"found no {named(options, request, group, offset)}, allowed one that is published then"


class NamedStates:
    """The changes that a scenario makes to one pool; each answers '' or what is found and allowed instead."""

    def __init__(self, layout: Layout, given: Sequence[list[int]], observer: Observer) -> None:
        """``given``: blocks newly given to each attention group in this step, which are told with it."""
        self.layout = layout
        self.given = given
        self.observer = observer

    def evict(self, request: CacheRequest, group: int, offset: int) -> str:
        """Withdraw all claims of the blocks that are found under a prefix."""
        hashes, index = self.layout.hashes(request), offset // self.layout.hash_unit - 1
        pool = self.layout.managers[group].pool
        blocks = pool.all_under(group, hashes[index]) if index < len(hashes) else []
        for block in blocks:
            pool.remove(block, Withdrawal.ASKED)
        return "" if blocks else not_there(self.layout.options, request.id, group, offset)

    def place(self, request: CacheRequest, group: int, offset: int) -> str:
        """Publish a state in a block of its own, or the blocks of attention up to an offset that are not there."""
        manager, hashes, unit = self.layout.managers[group], self.layout.hashes(request), self.layout.hash_unit
        grid = self._grid(manager)
        most = min(len(hashes) * unit, request.num_prompt) // grid * grid
        if offset % grid or offset > most:
            multiple = "the block" if grid == manager.block_size else "the hash unit"
            return (
                f"found offset {offset}, allowed a multiple of {multiple} {grid}, at most {most}: what is hit, and "
                f"hashed, of the prompt of {request.id!r}"
            )
        pool, size = manager.pool, manager.block_size
        ends = [offset] if manager.recurrent else [*range(size, offset + 1, size), *([offset] if offset % size else [])]
        missing = [end for end in ends if not pool.all_under(group, hashes[end // unit - 1])]
        if not missing:
            return (
                f"found {named(self.layout.options, request.id, group, offset)} there already, allowed one that is not"
            )
        if len(missing) > pool.num_free:
            return f"found {pool.num_free} free blocks, allowed at least the {len(missing)} that it takes"
        blocks = pool.take(len(missing))
        if not manager.recurrent:
            self.given[group].extend(blocks)
        for block, end in zip(blocks, missing, strict=True):
            key = hashes[end // unit - 1]
            pool.insert(group, key, block, end)
            if pool.chains is not None and manager.recurrent:
                pool.chains.insert(group, key, block, hashes[: end // unit - 1])
            if manager.recurrent:
                self.observer.place(request.id, group, block, end)
                self.layout.ledger.claim(group, block, request.id, (end - 1) // size, end, key)
        # As a request frees its blocks: the first is evicted last.
        pool.free(blocks[::-1])
        return ""

    def _grid(self, manager: Manager) -> int:
        """Return the tokens that the ends of hits in a group are multiples of, as far as it alone decides."""
        geometry, whole = self.layout.geometry, isinstance(manager, WindowCache | AllModeCache)
        return geometry.hash_unit if geometry.fine and not whole else manager.block_size
