"""One pool of blocks for all groups: reference counts, hashes, and a free queue in the order of eviction."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

NULL = 0
"""The null block: the shared placeholder of a column without a slot."""

OnClaim = Callable[[int, int, bytes, int], None]
OnUnclaim = Callable[[int, int, bytes, str], None]


class BlockPool:
    """Blocks 1 .. num_blocks - 1, each with a reference count and the hashes that advertise it.

    A freed block with a hash goes to the end of the free queue and keeps it until it is handed out again; one
    without goes to the front. Of blocks with the same hash the first inserted is found. The first hash of a
    block is its *primary* one and says how many tokens it stands for; others may join it.
    """

    def __init__(self, num_blocks: int, num_groups: int) -> None:
        self.num_blocks = num_blocks
        self.refs = [0] * num_blocks
        self.primary: list[bytes | None] = [None] * num_blocks
        self.primary_tokens = [0] * num_blocks
        self.owner = [-1] * num_blocks
        """The group under which a block is hashed."""
        self._others: dict[int, dict[bytes, int]] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self._index: tuple[dict[bytes, int | dict[int, None]], ...] = tuple({} for _ in range(num_groups))
        self.on_unclaim: OnUnclaim | None = None

    @property
    def num_free(self) -> int:
        return len(self._free)

    def find(self, group: int, key: bytes) -> int | None:
        """The block first inserted under this hash, or None."""
        found = self._index[group].get(key)
        if found is None or isinstance(found, int):
            return found
        return next(iter(found))

    def run(self, group: int, keys: Iterable[bytes]) -> list[int]:
        """The blocks under these hashes, up to the first that is not there."""
        get, blocks = self._index[group].get, list[int]()
        for key in keys:
            found = get(key)
            if found is None:
                break
            blocks.append(found if isinstance(found, int) else next(iter(found)))
        return blocks

    def holds(self, group: int, key: bytes, block: int) -> bool:
        """Whether this hash leads to this block (perhaps among others)."""
        found = self._index[group].get(key)
        return found == block if not isinstance(found, dict) else block in found

    def insert(self, group: int, key: bytes, block: int, tokens: int) -> bool:
        """Advertise a block under a hash; False when it already is."""
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

    def remove(self, block: int, why: str) -> list[tuple[bytes, int]]:
        """Withdraw all hashes of a block; returns them with the tokens they stand for, the primary first."""
        primary = self.primary[block]
        if primary is None:
            return []
        group = self.owner[block]
        removed = [(primary, self.primary_tokens[block])]
        if block in self._others:
            removed += self._others.pop(block).items()
        index, told = self._index[group], self.on_unclaim
        for key, _ in removed:
            found = index[key]
            if isinstance(found, int):
                del index[key]
            else:
                del found[block]
                if not found:
                    del index[key]
            if told is not None:
                told(group, block, key, why)
        self.primary[block] = None
        self.owner[block] = -1
        return removed

    def take(self, count: int) -> list[int]:
        """Hand out the least recently freed blocks, withdrawing what they advertised.

        Raises IndexError when fewer are free: callers ask :attr:`num_free` first.
        """
        free = self._free
        if count > len(free):
            raise IndexError(f"{count} blocks wanted, {len(free)} free")
        taken = [free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            if self.primary[block] is not None:
                self.remove(block, "evict")
            self.refs[block] = 1
        return taken

    def reset(self) -> bool:
        """Withdraw all hashes; False, and nothing happens, while a block is in use (vLLM's reset_prefix_cache)."""
        if len(self._free) != self.num_blocks - 1:
            return False
        for block in range(1, self.num_blocks):
            self.remove(block, "reset")
        return True

    def touch(self, blocks: Iterable[int]) -> None:
        """One more reference to each; a free block leaves the queue."""
        for block in blocks:
            if block == NULL:
                continue
            if self.refs[block] == 0:
                del self._free[block]
            self.refs[block] += 1

    def free(self, blocks: Sequence[int]) -> None:
        """Drop a reference to each, the first to be evicted first."""
        unhashed: list[int] = []
        free = self._free
        for block in blocks:
            if block == NULL:
                continue
            self.refs[block] -= 1
            if self.refs[block] == 0:
                if self.primary[block] is None:
                    unhashed.append(block)
                else:
                    free[block] = None
        for block in reversed(unhashed):
            free[block] = None
            free.move_to_end(block, last=False)
