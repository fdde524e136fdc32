"""The rule of the split: its named values, those of releases, those that were proposed, and the control."""

from __future__ import annotations

from typing import Any

from stateat.sim.printable import short
from stateat.sim.rules.answers import number
from stateat.sim.rules.proposals import (
    floor_sizes,
    ignores_drop,
    keeps_last_block,
    replay_boundary,
    snapshot_points,
)
from stateat.sim.rules.record import Argument, Rule, Signature, Standing, Value
from stateat.sim.rules.split import (
    AlignedSplit,
    Cut,
    Split,
    align_below_cacheable,
    align_below_prefill_end,
    never_align,
    realign_always,
    realign_below_cacheable,
    realign_if_cacheable,
    realign_never,
)

MAX_STOP = 80
"""Characters of the name that a user's split gives to a stop."""


def read_cut(answer: Any) -> int | Cut:
    """Read a split's answer; the engine says of its tokens whether they are in range."""
    if not issubclass(type(answer), Cut):
        return number(answer)
    if not issubclass(type(answer.stop), str):
        raise ValueError
    return Cut(number(answer.tokens), short(answer.stop, MAX_STOP))


SPLIT: Rule[Split] = Rule(
    "How many of the offered tokens does a prefill chunk take?",
    {
        "last-cache-position": Value(
            AlignedSplit(align_below_cacheable, realign_if_cacheable),
            "Chunk ends keep to the block grid below `last_cache_position` only; a chunk that starts inside a block "
            "stops at that block's end if that boundary can be cached.",
            "vLLM 0.26",
        ),
        "prefill-end": Value(
            AlignedSplit(align_below_prefill_end, realign_always),
            "Every chunk but the prefill's last ends on the block grid; a chunk that starts inside a block always "
            "stops at that block's end.",
            "PR 51113, vLLM 0.27",
        ),
        "realign-below-last-cache-position": Value(
            AlignedSplit(align_below_prefill_end, realign_below_cacheable),
            "As `prefill-end`, but only a start below `last_cache_position` is re-aligned.",
            "PR 45477, not merged",
            Standing.PROPOSAL,
        ),
        "every-boundary": Value(
            AlignedSplit(align_below_prefill_end, realign_always, every_boundary=True),
            "As `prefill-end`, and a chunk that starts on a boundary stops at the next one too.",
            "PR 54076",
            Standing.PROPOSAL,
        ),
        "retained-boundaries": Value(
            AlignedSplit(align_below_prefill_end, realign_always, at_retained=True),
            "As `prefill-end`, and every chunk stops at the next boundary whose state the rule `retention` keeps.",
            "PRs 53479 and 52897, drafts",
            Standing.PROPOSAL,
        ),
        "unguarded": Value(
            AlignedSplit(never_align, realign_never),
            "Chunks keep to no grid and are not re-aligned; the other stops remain.",
            "the control",
            Standing.FAULT,
        ),
        "replay-boundary": Value(
            AlignedSplit(align_below_prefill_end, realign_always, extra=((replay_boundary, "replay-boundary"),)),
            "As `prefill-end`, and a chunk stops where whoever sends the prompt again can start at most: at the last "
            "boundary that leaves a token, or as many as a hash looks ahead; a unit less for a drop (also where "
            "`drop-at-hashed` would let it start a unit later).",
            "PR 50409, open",
            Standing.PROPOSAL,
        ),
        "retain-mtp-block": Value(
            AlignedSplit(align_below_prefill_end, realign_always, last=keeps_last_block),
            "As `prefill-end`, but the last reusable end is a block less for a drop only if the prompt ends on it.",
            "PR 48815, open",
            Standing.PROPOSAL,
        ),
        "size-floor": Value(
            AlignedSplit(floor_sizes, realign_never),
            "Below the last reusable end a chunk is whole blocks long, wherever it starts; a chunk of less than a "
            "block is kept.",
            "PR 40709, open",
            Standing.PROPOSAL,
        ),
        "new-requests-only": Value(
            AlignedSplit(align_below_prefill_end, realign_always, replays=False),
            "As `prefill-end`, but a request with outputs, which prefills again after a preemption, is not split.",
            "before PR 33706",
            Standing.FAULT,
        ),
        "granular": Value(
            AlignedSplit(align_below_cacheable, realign_if_cacheable, every_boundary=True),
            "As `last-cache-position`, and no chunk runs past the next boundary: a block a step.",
            "PR 43628, closed",
            Standing.PROPOSAL,
        ),
        "snapshot-points": Value(
            AlignedSplit(align_below_prefill_end, realign_always, extra=((snapshot_points, "snapshot-point"),)),
            "As `prefill-end`, and a chunk stops at the request's `snapshots`, rounded down to the grid, or to a hash "
            "unit under `snapshots: kept`.",
            "PR 56818 (the end of the last image), PR 43587",
            Standing.PROPOSAL,
        ),
        "no-back-off": Value(
            AlignedSplit(align_below_prefill_end, realign_always, last=ignores_drop, junctions=False),
            "As `prefill-end`, but the last reusable end is the last boundary even where a drafter gives up the block "
            "before it, and no shared prefix is known.",
            "issue 38898",
            Standing.FAULT,
        ),
    },
    signature=Signature(
        (Argument("chunk", "stateat.sim.rules.split.Chunk", "the chunk, with the fields of the table above"),),
        "a number of tokens, or a Cut",
        read_cut,
        "tokens of the chunk, 0 to `offered` (0 defers); a `Cut` also names the stop",
    ),
)
