"""What of a chunk that cannot fill a block: it waits, goes on inside the block, or is refused before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def never(block: int, cap: int) -> bool:
    """A chunk ends on the grid or waits."""
    return False


def wider(block: int, cap: int) -> bool:
    """Only where no chunk can ever be as long as the block."""
    return block > cap


def always(block: int, cap: int) -> bool:
    """Whenever the budget that is left does not reach a boundary."""
    return True


@dataclass(frozen=True, slots=True)
class WideBlock:
    """A policy for blocks that a chunk does not fill."""

    private: Callable[[int, int], bool]
    """(block, the most that a chunk may ever take) -> whether a chunk may go on inside its block."""
    rejects: bool = False
    """Whether a block wider than the budget or the threshold is refused when the engine is configured."""


WIDE_BLOCKS = {
    "wait": WideBlock(never),
    "private": WideBlock(wider),
    "private-always": WideBlock(always),
    "reject": WideBlock(never, rejects=True),
}
