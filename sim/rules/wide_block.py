"""Wide blocks: a chunk that cannot fill one waits, goes on inside it, or is refused before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stateat.sim.options import Options
from stateat.sim.rules.record import Lack, Rule, Standing, Value


def never(block: int, cap: int) -> bool:
    """False: a chunk ends on the grid or waits."""
    return False


def wider(block: int, cap: int) -> bool:
    """True if no chunk can ever be as long as the block."""
    return block > cap


def always(block: int, cap: int) -> bool:
    """True: a chunk goes on inside its block whenever the budget that is left does not reach a boundary."""
    return True


@dataclass(frozen=True, slots=True)
class WideBlock:
    """A policy for blocks that a chunk does not fill."""

    private: Callable[[int, int], bool]
    """(block, the most that a chunk may ever take) -> whether a chunk may go on inside its block."""


def _block_above_a_limit(options: Options) -> Iterator[Lack]:
    blocks = [group.block_size for group in options.groups if group.aligned]
    if not blocks:
        return
    block, why = max(blocks), ": the recurrent block (rule wide_block=reject)"
    budget, threshold = options.max_num_batched_tokens, options.long_prefill_token_threshold
    if budget < block:
        yield Lack(("max_num_batched_tokens",), budget, f"at least {block}", why)
    if 0 < threshold < block:
        yield Lack(("long_prefill_token_threshold",), threshold, f"0 or at least {block}", why)


WIDE_BLOCK: Rule[WideBlock] = Rule(
    "How does a prefill go on where its next chunk cannot fill a block?",
    {
        "wait": Value(
            WideBlock(never),
            "It waits, for ever if no chunk can ever be as long as the block.",
            "before vLLM 0.27, in its split (issue 34445)",
        ),
        "private": Value(
            WideBlock(wider),
            "Where the block is wider than any chunk may be, it goes on inside the block; else it waits.",
            "PR 51113, vLLM 0.27",
        ),
        "private-always": Value(
            WideBlock(always),
            "It goes on inside the block, however wide that is.",
            "the position floor of PR 40709's thread",
            Standing.PROPOSAL,
        ),
        "reject": Value(
            WideBlock(never),
            "It waits; a `max_num_batched_tokens` or a `long_prefill_token_threshold` below a recurrent block is "
            "refused at load.",
            "vLLM 0.26's own check (PR 36697)",
            lacks=_block_above_a_limit,
        ),
    },
    note="`last-cache-position`, the split of 0.26, does not ask: it waits below `last_cache_position`.",
)
