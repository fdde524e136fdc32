"""Victims: which free block is handed out next, where that is not the least recently freed one (rule ``eviction``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from heapq import heappop, heappush
from typing import Protocol

from stateat.sim.rules.eviction import Eviction, Refresh, Victim


class Queue(Protocol):
    """The free blocks of a pool, and under which claims they are."""

    primary: list[bytes | None]
    primary_tokens: list[int]
    owner: list[int]
    refs: list[int]
    chains: Chains | None
    ages: Ages | None

    @property
    def queue(self) -> Iterable[int]:
        """Free blocks: those under no claim first, then the least recently freed first."""

    def keys(self, block: int) -> Iterable[bytes]:
        """Return the hashes of a block, the primary first."""


class Chooser(Protocol):
    """A choice among the free blocks."""

    def __call__(self, pool: Queue) -> int:
        """Return the free block to hand out next; the first in the queue is under no claim, if there is such a one."""


def chooser(eviction: Eviction, states: Collection[int]) -> Chooser | None:
    """Return the choice of a rule's value, given the groups of states; None: the first in the queue."""
    if eviction.victim is Victim.DEEPEST_STATE:
        return _Deepest(frozenset(states))
    if eviction.victim is Victim.SUPERSEDED_STATE:
        return _Superseded(frozenset(states))
    return _first_published if eviction.refresh is Refresh.NOTHING else None


class _Deepest:
    """The least recently freed block, or the state of its group that stands for most tokens."""

    def __init__(self, states: frozenset[int]) -> None:
        self.states = states

    def __call__(self, pool: Queue) -> int:
        block = next(iter(pool.queue))
        group = pool.owner[block]
        if group in self.states:
            block = max((b for b in pool.queue if pool.owner[b] == group), key=pool.primary_tokens.__getitem__)
        return block


class _Superseded:
    """The least recently freed state that a longer one supersedes, or the least recently freed block."""

    def __init__(self, states: frozenset[int]) -> None:
        self.states = states

    def __call__(self, pool: Queue) -> int:
        first = next(iter(pool.queue))
        chains = pool.chains
        if pool.primary[first] is None or chains is None:
            return first
        superseded = (b for b in pool.queue if pool.owner[b] in self.states and chains.superseded(pool, b))
        return next(superseded, first)


def _first_published(pool: Queue) -> int:
    """Return the block that has been free, or in use again, for longest since it was first free under its claim."""
    first, ages = next(iter(pool.queue)), pool.ages
    if pool.primary[first] is None or ages is None:
        return first
    return min(pool.queue, key=ages.place)


class Chains:
    """Prefixes of what is published: which state has a longer one of the same prefix beside it."""

    def __init__(self) -> None:
        self._longer: Counter[tuple[int, bytes]] = Counter()
        """(group, hash) -> how many published states go on from there."""
        self._before: dict[tuple[int, bytes, int], Sequence[bytes]] = {}
        """(group, hash, block) -> the hashes of all shorter prefixes."""

    def insert(self, group: int, key: bytes, block: int, before: Sequence[bytes]) -> None:
        """Note that a block is published, with the hashes of the prefixes before its own."""
        self._before[group, key, block] = before
        self._longer.update((group, shorter) for shorter in before)

    def remove(self, group: int, key: bytes, block: int) -> None:
        """Forget a block under a hash."""
        for shorter in self._before.pop((group, key, block), ()):
            self._longer[group, shorter] -= 1
            if not self._longer[group, shorter]:
                del self._longer[group, shorter]

    def before(self, group: int, key: bytes, block: int) -> Sequence[bytes]:
        """Return the hashes of the prefixes before a published one."""
        return self._before.get((group, key, block), ())

    def superseded(self, pool: Queue, block: int) -> bool:
        """Return True if a longer state of the same prefix is published for each hash of a block."""
        return all((pool.owner[block], key) in self._longer for key in pool.keys(block))


class Ages:
    """Ages of free blocks under a claim: their place in the order of eviction, and when their time to live is over."""

    def __init__(self, times_to_live: dict[int, int], refreshed: bool) -> None:
        """``times_to_live``: of the groups that have one, in the unit of the clock. ``refreshed``: a block that is used
        again is young again."""
        self.now = 0
        self.times_to_live = times_to_live
        self.refreshed = refreshed
        self._freed = 0
        self._since: dict[int, tuple[bytes, int, int]] = {}
        """Block -> its primary hash, its place and the time from when it counts as unused."""
        self._due: list[tuple[int, int, int]] = []
        """(time, place, block) of what expires then, unless it was used again."""

    def freed(self, block: int, key: bytes, group: int) -> None:
        """Let a block age that nobody uses any more."""
        known = self._since.get(block)
        if known is None or known[0] != key or self.refreshed:
            self._freed += 1
            self._since[block] = known = key, self._freed, self.now
        if group in self.times_to_live:
            heappush(self._due, (known[2] + self.times_to_live[group], known[1], block))

    def place(self, block: int) -> int:
        """Return the place of a free block: less is longer unused."""
        return self._since[block][1]

    def expired(self, pool: Queue) -> list[int]:
        """Return the free blocks whose time is over, the oldest first."""
        found = []
        while self._due and self._due[0][0] <= self.now:
            _, place, block = heappop(self._due)
            key, current, _ = self._since[block]
            if current == place and pool.primary[block] == key and not pool.refs[block] and block not in found:
                found.append(block)
        return found
