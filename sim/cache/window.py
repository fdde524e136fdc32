"""Attention that reaches back a window of tokens, and groups that take no part in prefix caching."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stateat.sim.cache.groups import AttentionCache, OnClaim, Table
from stateat.sim.cache.lookup import Geometry, window_blocks
from stateat.sim.cache.pool import BlockPool
from stateat.sim.events import NULL


@dataclass(frozen=True, slots=True)
class Row:
    """The blocks that a hit needs before its end, and the one behind that a drafter looks at and drops."""

    size: int
    """Tokens in a block."""
    wanted: int
    """How many they are, with the one that is dropped."""
    shift: int
    """How many of them lie behind the end."""

    def before_each(self, segment: int) -> Callable[[int], bool] | None:
        """Which block ends (tokens) lie in the row of a multiple of ``segment`` blocks; None: all, with 0 none."""
        if segment and self.wanted >= segment:
            return None

        def kept(end: int) -> bool:
            column = end // self.size - 1 - self.shift
            return segment > 0 and column >= 0 and column % segment >= segment - self.wanted

        return kept

    def before(self, hit: int) -> range:
        """The block ends (tokens) of the row of one hit."""
        last = hit // self.size + self.shift
        return range(max(last - self.wanted + 1, 1) * self.size, last * self.size + 1, self.size)


@dataclass(frozen=True, slots=True)
class Mask:
    """Which blocks of a window are published: those that some hit can need."""

    dense: bool = False
    """All of them."""
    shifted: bool = True
    """Whether the block that a drafter looks at past a boundary, and drops, counts."""
    fine: bool = False
    """Whether hits may end inside a scheduler block, where they are finer than one (0.29)."""

    def row(self, size: int, window: int, drops: bool) -> Row:
        """What a hit needs of blocks of ``size`` tokens."""
        return Row(size, window_blocks(window, size, drops), int(drops and self.shifted))


MASKS: dict[str, object] = {
    "reachable": Mask(),
    "reachable-inside-blocks": Mask(fine=True),
    "unshifted": Mask(shifted=False),
    "dense": Mask(dense=True),
}


class WindowCache(AttentionCache):
    """Sliding-window attention: blocks that lie before the window are let go of, and need not be there to hit."""

    def __init__(
        self,
        group: int,
        block_size: int,
        pool: BlockPool,
        geo: Geometry,
        claim: OnClaim | None,
        window: int,
        row: Row,
        reach: int,
    ) -> None:
        super().__init__(group, block_size, pool, geo, claim)
        self.window = window
        self.most = (-(-reach // block_size) + 1) * block_size
        """Tokens of the blocks that a request holds at most: a window and a step."""
        self.row = row
        """What a hit needs of it."""

    def skipped(self, computed: int) -> int:
        """Those that no token from ``computed`` on reaches back to."""
        return max(computed - self.window + 1, 0) // self.block_size

    def load(self, table: Table, total: int) -> list[int]:
        """Blocks for tokens that a connector computed, of which a window of a token needs none."""
        return super().load(table, total) if self.window > 1 else []

    def retire(self, table: Table, computed: int) -> list[int]:
        """Let go of the blocks that no token from ``computed`` on reaches back to; returns them."""
        columns = min(self.skipped(computed), len(table.blocks))
        return self.drop(table, [c for c in range(columns - 1, -1, -1) if table.blocks[c] != NULL])


class ScratchCache(AttentionCache):
    """A group that opts out of prefix caching: nothing of it is hit or published."""

    def publish(
        self, request: str, table: Table, hashes: list[bytes], tokens: int, kept: Callable[[int], bool] | None = None
    ) -> list[bytes]:
        """Nothing."""
        return []

    def publish_prompt_tail(self, request: str, table: Table, hashes: list[bytes], boundary: int, tokens: int) -> None:
        """Nothing either."""
