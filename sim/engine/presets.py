"""Presets: each a table of rule values, with one line on what changed since the release before."""

from __future__ import annotations

from collections.abc import Mapping

# Chunk ends keep to the grid only below last_cache_position.
VLLM_0_26_0: dict[str, str] = {
    "split": "last-cache-position",
    "grid": "cache-config",
    "seed": "state-block",
    "lookup": "intersection",
    "drafter_guard": "drop",
    "retention": "dense",
    "publish": "at-schedule",
    "retire": "stops-at-null-gap",
    "padding": "kept",
    "draft_slots": "max-num-seqs",
    "kernel": "align",
    "worker": "v2",
    "admission": "wait",
}

# PR 51113: chunk ends keep to the grid up to prefill_end, and a mid-block start always stops at its block's end.
VLLM_0_27_0: dict[str, str] = {**VLLM_0_26_0, "split": "prefill-end"}

PRESETS: dict[str, dict[str, str]] = {"vllm-0.26.0": VLLM_0_26_0, "vllm-0.27.0": VLLM_0_27_0}


def table(preset: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """The rule values of a preset, with some replaced."""
    return {**PRESETS[preset], **overrides}
