"""Presets: each a table of rule values, with one line on what changed since the release before."""

from __future__ import annotations

from collections.abc import Mapping

# Chunk ends keep to the grid only below last_cache_position.
VLLM_0_26_0: dict[str, str] = {
    "split": "last-cache-position",
    "grid": "cache-config",
    "seed": "state-block",
    "lookup": "intersection-first-cut",
    "drafter_guard": "drop",
    "fine_hits": "states-alone",
    "partial_hit": "copied",
    "window": "reachable",
    "boundaries": "floor",
    "checkpoint": "none",
    "junction": "block-floored",
    "snapshots": "not-kept",
    "retention": "dense",
    "publish": "at-schedule",
    "started": "when-given-a-block",
    "threshold": "always",
    "wide_block": "private",
    "retire": "stops-at-null-gap",
    "padding": "kept",
    "draft_slots": "max-num-seqs",
    "running": "max-num-seqs",
    "modules": "one",
    "kernel": "align-and-all",
    "worker": "v2",
    "state_slots": "scheduled",
    "offload": "any-length",
    "connector": "longest-group",
    "load_failure": "recompute",
    "admission": "wait",
    "blocked": "stop",
    "encoder": "before-split",
    "state_blocks": "one",
    "whole_items": "not-here",
    "item_hash": "last-if-late",
    "abort": "runs-on",
    "free": "when-run-unguarded",
    "eviction": "lru",
}

# PR 51113: chunk ends keep to the grid up to prefill_end, and a mid-block start always stops at its block's end.
# A connector is told of attention's own hit, if it brings more than that. Without prefix caching the block freed first
# is used again first.
VLLM_0_27_0: dict[str, str] = {
    **VLLM_0_26_0,
    "split": "prefill-end",
    "connector": "divergent",
    "eviction": "lru-uncached-last",
}

# A drafter's slots are charged for the requests that are scheduled; a request counts as started once it is. PR 51100:
# what an offload tier may return is cut to the recurrent block in ``all`` mode too. PR 51603: the encoder's cap comes
# after the split. All groups are asked for hits finer than a block.
VLLM_0_28_0: dict[str, str] = {
    **VLLM_0_27_0,
    "draft_slots": "scheduled",
    "started": "when-scheduled",
    "fine_hits": "every-group",
    "offload": "aligned-end",
    "connector": "exact-slot",
    "encoder": "after-split",
    "eviction": "lru",
}

# Placeholders that the split clips are dropped; internal checkpoints; retention intervals; a module for each draft.
# Groups that take part in caching are asked for hits finer than a block, which several ranks have too. All attention
# groups' blocks are cut to the hit; a window keeps what a hit inside a scheduler block can need.
VLLM_0_29_0: dict[str, str] = {
    **VLLM_0_28_0,
    "modules": "one-a-draft",
    "lookup": "intersection",
    "padding": "dropped",
    "fine_hits": "cacheable-groups",
    "window": "reachable-inside-blocks",
    "checkpoint": "any-aligned-start",
    "retention": "interval",
}

# Reusable ends leave a token for the logits, and the tail follows the drop; only the chunk that reaches the prefill's
# end exports a checkpoint; retirement walks gaps; the drop may be looked up past the end (in an offload tier too), or
# turned off; a block's hash names every encoded item in it (since 0.31); no ``all`` mode.
VLLM_0_32_0: dict[str, str] = {
    **VLLM_0_29_0,
    "kernel": "align",
    "offload": "aligned-end-one-more",
    "boundaries": "leaves-tokens",
    "checkpoint": "at-prefill-end",
    "junction": "exact",
    "drafter_guard": "drop-at-hashed",
    "retire": "walks-gaps",
    "padding": "dropped-and-alone",
    "threshold": "beside-others",
    "whole_items": "before",
    "free": "when-run",
    "item_hash": "every",
}

# Hashes cover the token behind their block instead of a drop; a drafter that fills in bounds how many requests run;
# verified tokens are published when their step commits; the encoder's cap knows no look-ahead, and whom it leaves no
# token steps aside.
VLLM_0_33_0: dict[str, str] = {
    **VLLM_0_32_0,
    "drafter_guard": "look-ahead-hash",
    "running": "fits-draft-pass",
    "publish": "at-schedule-and-commit",
    "blocked": "skip-capped",
    "encoder": "after-split-unshifted",
    "whole_items": "before-and-at",
}

PRESETS: dict[str, dict[str, str]] = {
    "vllm-0.26.0": VLLM_0_26_0,
    "vllm-0.27.0": VLLM_0_27_0,
    "vllm-0.28.0": VLLM_0_28_0,
    "vllm-0.29.0": VLLM_0_29_0,
    "vllm-0.32.0": VLLM_0_32_0,
    "vllm-0.33.0": VLLM_0_33_0,
}


def table(preset: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """The rule values of a preset, with some replaced."""
    return {**PRESETS[preset], **overrides}
