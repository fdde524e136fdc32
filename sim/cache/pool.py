"""The pool of blocks of all groups: reference counts, hashes, and a free queue in the order of eviction."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from itertools import repeat

from stateat.sim.cache.victims import Ages, Chains, Chooser
from stateat.sim.events import NULL, Withdrawal

Entry = tuple[int, bytes, int]
"""A group, a hash in it, and the block that it leads to."""
OnUnclaim = Callable[[int, int, bytes, Withdrawal], None]
"""(group, block, hash, why)"""


class BlockPool:
    """Blocks 1 .. num_blocks - 1, each with a reference count and the hashes under which it is published.

    A freed block with a hash goes to the end of the free queue and keeps it until it is handed out again; one
    without goes to the front. Of blocks with the same hash the first inserted is found. The first hash of a
    block is its *primary* one and says how many tokens it stands for; others may join it.
    """

    def __init__(
        self,
        num_blocks: int,
        num_groups: int,
        *,
        on_unclaim: OnUnclaim | None = None,
        choose: Chooser | None = None,
        uncached_last: bool = False,
        chains: Chains | None = None,
        ages: Ages | None = None,
    ) -> None:
        """``on_unclaim`` hears of each hash that is withdrawn. ``choose``: which free block is handed out next, instead
        of the least recently freed one; ``chains`` and ``ages`` are kept for it. ``uncached_last``: a block without a
        hash is handed out again last, not first.
        """
        self.blocks = range(1, num_blocks)
        """Blocks that it hands out."""
        self.refs = [0] * num_blocks
        self.primary: list[bytes | None] = [None] * num_blocks
        self.primary_tokens = [0] * num_blocks
        self.owner = [-1] * num_blocks
        """The group under which a block is hashed."""
        self._others: dict[int, dict[bytes, int]] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(self.blocks)
        self._index: tuple[dict[bytes, int | dict[int, None]], ...] = tuple({} for _ in range(num_groups))
        self._on_unclaim = on_unclaim
        self._choose = choose
        self.chains = chains
        self.ages = ages
        self._uncached_last = uncached_last
        self._hidden: set[tuple[bytes, int]] = set()
        """Hashes and blocks that are published, and found by nobody yet."""
        self._waiting: deque[tuple[int, tuple[int, ...]]] = deque()
        """Blocks to free once a step in flight has run."""

    def beside(self, num_blocks: int, ages: Ages | None = None) -> BlockPool:
        """Return a pool of so many blocks more, which follow on those of this one. What is published is found in
        either; each hands out its own."""
        other = copy(self)
        first = len(self.refs)
        other.blocks = range(first, first + num_blocks)
        self.refs += [0] * num_blocks
        self.primary += [None] * num_blocks
        self.primary_tokens += [0] * num_blocks
        self.owner += [-1] * num_blocks
        other._free, other._waiting, other.ages = OrderedDict.fromkeys(other.blocks), deque(), ages
        return other

    @property
    def queue(self) -> Iterable[int]:
        """Free blocks: those under no claim first, then the least recently freed first."""
        return self._free

    def keys(self, block: int) -> Iterable[bytes]:
        """Return the hashes of a block, the primary first."""
        primary = self.primary[block]
        return () if primary is None else (primary, *self._others.get(block, ()))

    @property
    def num_free(self) -> int:
        """Blocks in the free queue."""
        return len(self._free)

    def hide(self, key: bytes, block: int) -> None:
        """Let nobody find a block under this hash until it is revealed."""
        self._hidden.add((key, block))

    def reveal(self, entries: Iterable[Entry]) -> None:
        """Let hidden publications be found."""
        self._hidden.difference_update((key, block) for _, key, block in entries)

    def find(self, group: int, key: bytes) -> int | None:
        """Return the block first inserted under this hash, or None."""
        found = self._index[group].get(key)
        if self._hidden and found is not None:
            blocks = (found,) if isinstance(found, int) else found
            return next((block for block in blocks if (key, block) not in self._hidden), None)
        if found is None or isinstance(found, int):
            return found
        return next(iter(found))

    def all_under(self, group: int, key: bytes) -> list[int]:
        """Return all blocks under this hash that anybody finds, the first inserted first."""
        found = self._index[group].get(key)
        blocks = [] if found is None else [found] if isinstance(found, int) else [*found]
        return [block for block in blocks if (key, block) not in self._hidden]

    def run(self, group: int, keys: Iterable[bytes]) -> list[int]:
        """Return the blocks under these hashes, up to the first that is not there."""
        get, blocks = self._index[group].get, list[int]()
        if self._hidden:
            for block in map(self.find, repeat(group), keys):
                if block is None:
                    break
                blocks.append(block)
            return blocks
        for key in keys:
            found = get(key)
            if found is None:
                break
            blocks.append(found if isinstance(found, int) else next(iter(found)))
        return blocks

    def holds(self, group: int, key: bytes, block: int) -> bool:
        """Return True if this hash leads to this block (perhaps among others)."""
        found = self._index[group].get(key)
        return found == block if not isinstance(found, dict) else block in found

    def insert(self, group: int, key: bytes, block: int, tokens: int) -> bool:
        """Publish a block under a hash; False if it already is."""
        index, primary = self._index[group], self.primary[block]
        found = index.get(key)
        if primary is None:
            self.primary[block] = key
            self.primary_tokens[block] = tokens
            self.owner[block] = group
        elif primary == key or (block in found if isinstance(found, dict) else found == block):
            return False
        else:
            self._others.setdefault(block, {})[key] = tokens
        if found is None:
            index[key] = block
        elif isinstance(found, int):
            index[key] = {found: None, block: None}
        else:
            found[block] = None
        return True

    def remove(self, block: int, why: Withdrawal) -> list[tuple[bytes, int]]:
        """Withdraw all hashes of a block; returns them with the tokens they stand for, the primary first."""
        primary = self.primary[block]
        if primary is None:
            return []
        group = self.owner[block]
        removed = [(primary, self.primary_tokens[block])]
        if block in self._others:
            removed += self._others.pop(block).items()
        index, told = self._index[group], self._on_unclaim
        self._hidden.difference_update((key, block) for key, _ in removed)
        for key, _ in removed:
            found = index[key]
            if isinstance(found, int):
                del index[key]
            else:
                del found[block]
                if not found:
                    del index[key]
            if self.chains is not None:
                self.chains.remove(group, key, block)
            if told is not None:
                told(group, block, key, why)
        self.primary[block] = None
        self.owner[block] = -1
        return removed

    def withdraw(self, entries: Iterable[Entry]) -> None:
        """Withdraw what an aborted step was to make true; a block whose primary hash that is loses the others too."""
        for group, key, block in entries:
            if not self.holds(group, key, block):
                continue
            if self.primary[block] == key:
                self.remove(block, Withdrawal.ABORT)
                continue
            del self._others[block][key]
            if self.chains is not None:
                self.chains.remove(group, key, block)
            self._hidden.discard((key, block))
            found = self._index[group][key]
            if isinstance(found, int):
                del self._index[group][key]
            else:
                del found[block]
                if not found:
                    del self._index[group][key]
            if self._on_unclaim is not None:
                self._on_unclaim(group, block, key, Withdrawal.ABORT)

    def take(self, count: int) -> list[int]:
        """Hand out the least recently freed blocks, and withdraw their hashes.

        Raises IndexError when fewer are free: callers ask :attr:`num_free` first.
        """
        free = self._free
        if count > len(free):
            raise IndexError(f"{count} blocks wanted, {len(free)} free")
        taken = [free.popitem(last=False)[0] if self._choose is None else self._next() for _ in range(count)]
        for block in taken:
            if self.primary[block] is not None:
                self.remove(block, Withdrawal.EVICT)
            self.refs[block] = 1
        return taken

    def _next(self) -> int:
        """Take the block that is chosen out of the queue."""
        assert self._choose is not None
        block = self._choose(self)
        del self._free[block]
        return block

    def expire(self) -> None:
        """Withdraw the claims of free blocks whose time to live is over; they are handed out first then."""
        for block in self.ages.expired(self) if self.ages is not None else ():
            self.remove(block, Withdrawal.EXPIRE)
            self._free.move_to_end(block, last=False)

    def refresh(self, blocks: Iterable[int]) -> None:
        """Let the free ones of these blocks, all under a claim, be evicted last, in this order."""
        for block in blocks:
            if block in self._free:
                self._free.move_to_end(block)
                self._age(block)

    def _age(self, block: int) -> None:
        key = self.primary[block]
        if self.ages is not None and key is not None:
            self.ages.freed(block, key, self.owner[block])

    @property
    def unused(self) -> bool:
        """True if all blocks are free."""
        return len(self._free) == len(self.blocks)

    def reset(self) -> bool:
        """Withdraw all hashes; False, and nothing happens, while a block is in use (vLLM's reset_prefix_cache)."""
        if not self.unused:
            return False
        for block in self.blocks:
            self.remove(block, Withdrawal.RESET)
        return True

    def touch(self, blocks: Iterable[int]) -> None:
        """Add a reference to each; a free block leaves the queue."""
        for block in blocks:
            if block == NULL:
                continue
            if self.refs[block] == 0:
                del self._free[block]
            self.refs[block] += 1

    def free(self, blocks: Sequence[int], after_step: int | None = None) -> None:
        """Drop a reference to each, the first to be evicted first: now, or once this step has run."""
        if after_step is not None:
            self._waiting.append((after_step, tuple(blocks)))
        else:
            self._free_now(blocks)

    def drain(self, step: int) -> None:
        """Free the blocks that waited for this step to run."""
        while self._waiting and self._waiting[0][0] <= step:
            self._free_now(self._waiting.popleft()[1])

    def _free_now(self, blocks: Sequence[int]) -> None:
        unhashed: list[int] = []
        free = self._free
        for block in blocks:
            if block == NULL:
                continue
            self.refs[block] -= 1
            if self.refs[block] == 0:
                if self.primary[block] is None and not self._uncached_last:
                    unhashed.append(block)
                else:
                    free[block] = None
                    if self.ages is not None:
                        self._age(block)
        for block in reversed(unhashed):
            free[block] = None
            free.move_to_end(block, last=False)
