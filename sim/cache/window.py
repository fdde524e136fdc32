"""Attention that reaches back a window of tokens, and groups that take no part in prefix caching."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stateat.sim.cache.groups import AttentionCache, Place, Table
from stateat.sim.cache.lookup import window_blocks
from stateat.sim.events import NULL
from stateat.sim.rules.record import Rule, Standing, Value, When


@dataclass(frozen=True, slots=True)
class WindowRow:
    """Blocks that a hit needs before its end, and the one behind that a drafter looks at and drops."""

    size: int
    """Tokens in a block."""
    wanted: int
    """Number of them, with the one that is dropped."""
    shift: int
    """Number of them behind the end."""

    def before_each(self, segment: int) -> Callable[[int], bool] | None:
        """Return which block ends (tokens) lie in the row before a multiple of ``segment`` blocks; None: all, with 0
        none."""
        if segment and self.wanted >= segment:
            return None

        def kept(end: int) -> bool:
            column = end // self.size - 1 - self.shift
            return segment > 0 and column >= 0 and column % segment >= segment - self.wanted

        return kept

    def before(self, hit: int) -> range:
        """Return the block ends (tokens) of the row before one hit."""
        last = hit // self.size + self.shift
        return range(max(last - self.wanted + 1, 1) * self.size, last * self.size + 1, self.size)


@dataclass(frozen=True, slots=True)
class WindowPublishing:
    """Published blocks of a window: those that some hit can need."""

    dense: bool = False
    """All blocks are."""
    shifted: bool = True
    """The block that a drafter looks at past a boundary, and drops, counts."""
    fine: bool = False
    """Hits may end inside a scheduler block, where they are finer than one (0.29)."""

    def row(self, size: int, window: int, drops: bool) -> WindowRow:
        """Return what a hit needs of blocks of ``size`` tokens."""
        return WindowRow(size, window_blocks(window, size, drops), int(drops and self.shifted))


WINDOW_PUBLISHING: Rule[WindowPublishing] = Rule(
    "Which blocks of a sliding window are published?",
    {
        "reachable": Value(
            WindowPublishing(),
            "Those in the row of blocks that a hit needs before each multiple of the scheduler block, and the one "
            "behind it that a drafter drops.",
            "vLLM to 0.28",
        ),
        "reachable-inside-blocks": Value(
            WindowPublishing(fine=True),
            "As `reachable`; where hits are finer than a block, the row before each hash unit.",
            "vLLM 0.29",
        ),
        "unshifted": Value(
            WindowPublishing(shifted=False),
            "As `reachable`, but the row ends at the multiple though a drafter drops one.",
            "PR 51771",
            Standing.FAULT,
        ),
        "dense": Value(WindowPublishing(dense=True), "All of them.", "the control", Standing.PROPOSAL),
    },
    When("with a sliding window", lambda options, requests: any(group.sliding_window for group in options.groups)),
)


class WindowCache(AttentionCache):
    """Sliding-window attention: blocks before the window are freed, and need not be there to hit."""

    def __init__(self, place: Place, *, window: int, row: WindowRow, most_tokens: int) -> None:
        """``window``: tokens that its layers attend to. ``row``: the blocks that a hit needs. ``most_tokens``: those of
        a window and a step."""
        super().__init__(place)
        self.window = window
        self.most = (-(-most_tokens // place.block_size) + 1) * place.block_size
        """Tokens of the blocks that a request holds at most."""
        self.row = row

    def skipped(self, computed: int) -> int:
        """Return how many leading columns no token from ``computed`` on reaches back to."""
        return max(computed - self.window + 1, 0) // self.block_size

    def load(self, table: Table, total: int) -> list[int]:
        """Allocate for tokens that a connector computed; a window of one token needs none of them."""
        return super().load(table, total) if self.window > 1 else []

    def retire(self, table: Table, computed: int) -> list[int]:
        """Free the blocks that no token from ``computed`` on reaches back to; return them."""
        columns = min(self.skipped(computed), len(table.blocks))
        return self.drop(table, [c for c in range(columns - 1, -1, -1) if table.blocks[c] != NULL])


class ScratchCache(AttentionCache):
    """Groups that opt out of prefix caching: nothing of them is hit or published."""

    def publish(
        self, request: str, table: Table, hashes: list[bytes], tokens: int, kept: Callable[[int], bool] | None = None
    ) -> list[bytes]:
        """Publish nothing."""
        return []

    def publish_prompt_tail(self, request: str, table: Table, hashes: list[bytes], boundary: int, tokens: int) -> None:
        """Publish nothing."""
