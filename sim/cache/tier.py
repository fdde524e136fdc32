"""The tier below the pool (CPU memory): which full blocks it keeps, and how far a request can go on from them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import lcm

from stateat.sim.rules.record import Rule, Standing, Value, When

Key = tuple[int, bytes]
"""A group, and the hash of a full block."""


class Tier:
    """Keys of at most ``num_blocks`` full blocks; to make room the least recently used are evicted."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._used: OrderedDict[Key, None] = OrderedDict()
        """The least recently used first."""

    def __len__(self) -> int:
        return len(self._used)

    def __contains__(self, key: Key) -> bool:
        return key in self._used

    def touch(self, keys: Iterable[Key]) -> None:
        """Mark keys as used, the last one most recently; ignore unknown keys."""
        for key in keys:
            if key in self._used:
                self._used.move_to_end(key)

    def store(self, keys: Sequence[Key]) -> list[Key]:
        """Store keys; return those that were not here yet.

        A batch never evicts its own keys: if it does not fit as a whole, nothing is stored (vLLM's
        CPUOffloadingManager).
        """
        new = [key for key in dict.fromkeys(keys) if key not in self._used]
        kept = [key for key in keys if key in self._used]
        if len(new) + len(kept) > self.num_blocks:
            return []
        excess = len(self._used) + len(new) - self.num_blocks
        if excess > 0:
            protected = set(kept)
            for key in [key for key in self._used if key not in protected][:excess]:
                del self._used[key]
        self._used.update(dict.fromkeys(new))
        return new


@dataclass(frozen=True, slots=True)
class TierReturn:
    """Limits of what a tier may return."""

    modes: tuple[str, ...]
    """Cache modes of recurrent groups to whose blocks the longest possible prefix is cut."""
    exact: bool = False
    """A recurrent group returns only the state of exactly those tokens, wherever the prefix ends."""
    one_more: bool = False
    """Attention is asked for the block past the end that a look-ahead drafter makes it give up."""


TIER_RETURN: Rule[TierReturn] = Rule(
    "How many tokens may a tier below the pool return?",
    {
        "aligned-window": Value(
            TierReturn(("align", "all"), exact=True, one_more=True),
            "As many as end where every recurrent group has a state in it.",
            "the law",
            Standing.PROPOSAL,
        ),
        "aligned-end-one-more": Value(
            TierReturn(("align", "all"), one_more=True),
            "As under `aligned-end`; where a look-ahead drafter gives up an attention block, it is the one past the "
            "end, if that is there.",
            "vLLM issue 52735, 0.30",
        ),
        "aligned-end": Value(
            TierReturn(("align", "all")),
            "Those up to the end of the prompt less a token, cut to the recurrent blocks; then attention may shorten "
            "them, to inside a recurrent block too, and the state of that block is returned.",
            "PR 51100, vLLM 0.28",
        ),
        "any-length": Value(
            TierReturn(("align",)),
            "As under `aligned-end`, but groups in `all` mode do not cut them: a prompt of n whole blocks gets the "
            "state behind its last token.",
            "PR 44599, vLLM 0.26",
        ),
        "unaligned": Value(
            TierReturn(()),
            "As under `any-length`, but groups in `align` mode do not cut them either.",
            "before PR 44599",
            Standing.FAULT,
        ),
    },
    When("with an offload tier", lambda options, requests: options.offload.blocks > 0),
)


@dataclass(frozen=True, slots=True)
class GroupQuery:
    """A group's part of a lookup in the tier."""

    group: int
    block_size: int
    mode: str
    """Cache mode of a recurrent group; '' for attention."""
    drops: bool
    """A look-ahead drafter makes it give up a block."""
    known: int
    """Full blocks whose hash is known."""

    def count(self, holds: Callable[[int], bool], first: int, end: int, drops: bool, window: TierReturn) -> int:
        """Count the blocks from ``first`` on up to the end of what it can return of ``end`` tokens, before a drop.

        Attention: those in a row from the first; recurrent: up to the last one (or pair, for a drop).
        """
        last = end // self.block_size if window.exact and self.mode else -(-end // self.block_size)
        last = min(last + (drops and (window.one_more or bool(self.mode))), self.known)
        if not self.mode:
            return next((i for i in range(first, last) if not holds(i)), max(last, first)) - first
        wanted = 1 + drops
        row = 0
        for i in range(last - 1, first - 1, -1):
            row = row + 1 if holds(i) else 0
            if row == wanted:
                return i + wanted - first
        return 0


def loadable_tokens(
    tier: Tier,
    window: TierReturn,
    queries: Sequence[GroupQuery],
    key: Callable[[GroupQuery, int], Key],
    *,
    start_tokens: int,
    limit_tokens: int,
) -> int:
    """Return how many tokens, at most ``limit_tokens``, a request can skip whom the pool gave ``start_tokens``; these
    if the tier has no more.

    Attention's blocks are looked up first and then the recurrent states, until all agree, as vLLM's
    OffloadingConnector does. A group that would return less than a block returns nothing. ``key``: that of a group's
    block in a column.
    """
    # A state is a point: unless the prefix that is asked for ends on one, the state found lies behind it.
    cut = lcm(*(s.block_size for s in queries if s.mode in window.modes))
    start, end = start_tokens, limit_tokens // cut * cut
    dropped: set[int] = set()
    while True:
        before = end
        for query in queries:
            size, first = query.block_size, start // query.block_size
            drops = query.drops and query.group not in dropped
            end = min(end, query.known * size)
            if end - start < size:
                return start
            count = query.count(lambda column: key(query, column) in tier, first, end, drops, window)  # noqa: B023
            if drops:
                count -= 1
                dropped.add(query.group)
            found = min(end, (first + count) * size)
            if found - start < size:
                return start
            if found < end and not query.drops:
                dropped.clear()
            end = found
        if end == before:
            return end
