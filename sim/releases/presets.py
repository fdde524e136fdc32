"""Presets: each a table of rule values, with what changed since the release before."""

from __future__ import annotations

from collections.abc import Mapping

VLLM_0_26_0: dict[str, str] = {
    "split": "last-cache-position",
    "grid": "cache-config",
    "restore_column": "state-block",
    "lookup": "intersection-first-cut",
    "drafter_drop": "drop",
    "partial_hits_when": "states-alone",
    "tail_copy": "copied",
    "window_publishing": "reachable",
    "boundaries": "floor",
    "checkpoint": "none",
    "junction": "block-floored",
    "snapshots": "not-kept",
    "retention": "interval-in-whole-blocks",
    "publish": "at-schedule",
    "started": "when-given-a-block",
    "threshold": "always",
    "wide_block": "private",
    "skipped_states": "stops-at-null-gap",
    "padding": "kept",
    "draft_slots": "max-num-seqs",
    "running": "max-num-seqs",
    "drafter_modules": "one",
    "state_writes": "align-and-all",
    "worker": "v1",
    "undrafted_rows": "running-column",
    "state_slots": "scheduled",
    "state_need": "most",
    "tier_return": "any-length",
    "connector": "longest-group",
    "load_failure": "recompute",
    "admission": "wait",
    "blocked": "stop",
    "encoder_cap": "before-split",
    "state_blocks": "one",
    "whole_items": "not-here",
    "item_hash": "last-if-late",
    "aborted_steps": "runs-on",
    "deferred_free": "when-run-unguarded",
    "stale_output": "counted",
    "eviction": "lru",
}

VLLM_0_27_0: dict[str, str] = {
    **VLLM_0_26_0,
    "split": "prefill-end",
    "connector": "divergent",
    "stale_output": "delivered-late-in-turn",
    "eviction": "lru-uncached-last",
}

VLLM_0_27_1: dict[str, str] = {**VLLM_0_27_0}

VLLM_0_28_0: dict[str, str] = {
    **VLLM_0_27_1,
    "draft_slots": "scheduled",
    "started": "when-scheduled",
    "partial_hits_when": "every-group",
    "tier_return": "aligned-end",
    "connector": "exact-slot",
    "encoder_cap": "after-split",
    "eviction": "lru",
}

VLLM_0_29_0: dict[str, str] = {
    **VLLM_0_28_0,
    "worker": "v2",
    "restore_column": "scheduler-block",
    "drafter_modules": "one-a-draft",
    "lookup": "intersection",
    "padding": "dropped",
    "partial_hits_when": "cacheable-groups",
    "window_publishing": "reachable-inside-blocks",
    "checkpoint": "any-aligned-start",
    "retention": "interval",
}

VLLM_0_30_0: dict[str, str] = {
    **VLLM_0_29_0,
    "boundaries": "floor-with-tail-by-group",
    "checkpoint": "each-chunk",
    "junction": "exact",
    "drafter_drop": "drop-optional",
    "skipped_states": "walks-gaps",
    "padding": "dropped-and-alone",
    "state_need": "most-or-checkpoint",
    "tier_return": "aligned-end-one-more",
    "deferred_free": "when-run",
}

VLLM_0_31_0: dict[str, str] = {
    **VLLM_0_30_0,
    "boundaries": "floor-with-tail",
    "checkpoint": "hash-unit",
    "state_writes": "align-and-all-indexed",
    "stale_output": "delivered-late",
    "threshold": "beside-others",
    "state_need": "missing-and-spare",
    "item_hash": "every",
}

VLLM_0_32_0: dict[str, str] = {
    **VLLM_0_31_0,
    "restore_column": "state-block",
    "undrafted_rows": "accepted-state",
    "state_writes": "align",
    "boundaries": "leaves-tokens",
    "checkpoint": "at-prefill-end",
    "drafter_drop": "drop-at-hashed",
    "state_need": "missing",
    "whole_items": "before",
}

VLLM_0_33_0: dict[str, str] = {
    **VLLM_0_32_0,
    "drafter_drop": "look-ahead-hash",
    "running": "fits-draft-pass",
    "publish": "at-schedule-and-commit",
    "blocked": "skip-capped",
    "encoder_cap": "after-split-unshifted",
    "whole_items": "before-and-at",
}

PRESETS: dict[str, dict[str, str]] = {
    "vllm-0.26.0": VLLM_0_26_0,
    "vllm-0.27.0": VLLM_0_27_0,
    "vllm-0.27.1": VLLM_0_27_1,
    "vllm-0.28.0": VLLM_0_28_0,
    "vllm-0.29.0": VLLM_0_29_0,
    "vllm-0.30.0": VLLM_0_30_0,
    "vllm-0.31.0": VLLM_0_31_0,
    "vllm-0.32.0": VLLM_0_32_0,
    "vllm-0.33.0": VLLM_0_33_0,
}

CHANGES: dict[str, str] = {
    "vllm-0.27.0": (
        "PR 51113: chunk ends keep to the grid up to `prefill_end`, and a mid-block start always stops at its "
        "block's end; a connector is told of attention's own hit, less what lies inside a block, if it brings "
        "more; without prefix caching the block freed first is used again first."
    ),
    "vllm-0.27.1": "Nothing: its scheduler, cache and workers are those of 0.27.0.",
    "vllm-0.28.0": (
        "A connector is told of the joint hit; a drafter's slots are charged for the requests that are scheduled; "
        "a request counts as started once it is scheduled; PR 51100: what an offload tier may return is cut to "
        "the recurrent block in `all` mode too; PR 51603: the encoder's cap comes after the split; a group that "
        "cannot be hit inside a block takes such hits from all."
    ),
    "vllm-0.29.0": (
        "Placeholders that the split clips are dropped; prefill checkpoints, a module for "
        "each draft; hits inside a block ask the groups that take part in prefix caching, under context "
        "parallelism too; attention groups with different blocks are all cut to the hit; a window keeps a row "
        "before each end that such a hit may have; hybrids run on model runner v2, which keeps the accepted count of a "
        "request that is skipped for a step, and counts a restored request's column in the configuration's block."
    ),
    "vllm-0.30.0": (
        "The split's stop at the prompt's tail follows the drop, but a recurrent group publishes the tail that its own "
        "flag says; only the chunk that reaches the prefill's end runs on for a checkpoint, which lies at its own "
        "reusable end; exact junctions; retention keeps what a resend and a longer prompt reach once something is "
        "dropped; the drop may be turned off; retirement walks gaps; a single token is padded alone too; nobody is "
        "preempted whose blocks would have to wait for a step in flight; an offload tier is asked for the attention "
        "block that a look-ahead drafter gives up."
    ),
    "vllm-0.31.0": (
        "Every recurrent group publishes the tail where the split stops; where only what resends need is retained, a "
        "prompt's own checkpoint is, and no block is reserved for others; a chunk asks for the state blocks that it "
        "lacks, not for the most that it might; a lone request knows no threshold; a block's hash names every encoded "
        "item in it; in `all` mode kernel chunks are counted one by one; a request that was passed over for what "
        "it has in flight comes behind those that are preempted later."
    ),
    "vllm-0.32.0": (
        "Reusable ends leave a token for the logits, and a tail that ends a block is published too; a checkpoint lies "
        "where hits can, moves speculative blocks as other chunks do, and is published where retention keeps it; what "
        "is dropped may be looked up past the end; under `disable_chunked_mm_input` items that are encoded already "
        "count; no `all` mode; a decode row without drafts reads its own state, and a restored request's column is "
        "counted in recurrent blocks."
    ),
    "vllm-0.33.0": (
        "Hashes cover the token behind their block instead of a drop; a drafter that fills in bounds how many "
        "requests run; verified tokens are published when their step commits; the encoder's cap knows no "
        "look-ahead, and a waiting request that it leaves no token steps aside; no chunk starts in an item that it "
        "cannot end, under `disable_chunked_mm_input`."
    ),
}
"""Changes by preset: how it decides otherwise than the one before it."""


def table(preset: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the rule values of a preset, with some replaced."""
    return {**PRESETS[preset], **overrides}
