"""Which states stay published: all, or those that an interval and whoever comes next need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Replays = Callable[[int, int, bool], tuple[int, ...]]
"""(prompt, block, drop) -> where somebody who sends this prompt again, or a longer one, starts."""


def unshifted(prompt: int, block: int, drop: bool) -> tuple[int, ...]:
    """The last boundary that leaves a token to compute, whatever a drafter gives up of it (vLLM 0.29, issue 53504)."""
    return (prompt - 1,)


def longer_only(prompt: int, block: int, drop: bool) -> tuple[int, ...]:
    """Where a longer prompt starts once a drafter has given its block up (before vLLM PR 54713)."""
    return (max(prompt // block * block - block, 0),) if drop else (prompt - 1,)


def resend_and_longer(prompt: int, block: int, drop: bool) -> tuple[int, ...]:
    """Where the same prompt starts too: another block where it is a multiple (vLLM PR 54713)."""
    if not drop:
        return (prompt - 1,)
    resend, longer = (prompt - 1) // block * block, prompt // block * block
    return tuple(sorted({max(resend - block, 0), max(longer - block, 0)}))


def with_and_without_drop(prompt: int, block: int, drop: bool) -> tuple[int, ...]:
    """Where the same prompt starts with the drafter, and without it (vLLM PRs 53479 and 52897, drafts)."""
    resend = (prompt - 1) // block * block
    return tuple(sorted({max(resend - block, 0), resend})) if drop else (resend,)


@dataclass(frozen=True, slots=True)
class Retention:
    """How a release decides which states stay published."""

    on: bool
    """Whether it knows an interval at all."""
    always: bool = False
    """Whether only the boundaries that somebody needs are kept, whatever the interval is."""
    replays: Replays | None = None
    """Which those are; None: as the rule ``boundaries`` says."""

    def interval(self, asked: int | None) -> int | None:
        """The interval in force (tokens); None: all stay published."""
        return 0 if self.always else asked if self.on else None


RETENTIONS: dict[str, object] = {
    "dense": Retention(False),
    "interval": Retention(True),
    "boundaries-only": Retention(True, always=True),
    "interval-unshifted": Retention(True, replays=unshifted),
    "interval-longer-only": Retention(True, replays=longer_only),
    "interval-resend-and-longer": Retention(True, replays=resend_and_longer),
    "interval-with-and-without-drop": Retention(True, replays=with_and_without_drop),
}


def on_grid(end: int, block: int, interval: int | None) -> bool:
    """Whether an interval keeps the state at a block's end, whoever may need it."""
    if interval is None:
        return True
    blocks = interval // block
    return interval > 0 and (blocks <= 1 or end // block % blocks == 0)


def floored(ends: Iterable[int], unit: int, block: int) -> frozenset[int]:
    """The block ends at or before these."""
    return frozenset(end // unit * unit // block * block for end in ends)
