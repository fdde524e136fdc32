"""A scenario's options as the worker wants them, and what of them a release cannot be told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from stateat.sim.events import Group
from stateat.sim.options import Offload, Options, Speculative, spread
from stateat.sim.workload import Arrival

SENT = "sent"
"""Told to the release: in :func:`wire`, or with each request, as it is or as what follows from it."""
OURS = "ours"
"""Options of the clock, the sampling or the physical model, which stay here: no scheduler sees them."""
ALONE = "alone"
"""The reference engine's alone: refused wherever it is not at its default."""
NOBODYS = "nobody's"
"""No release has such a thing, and under the rules of every preset it does nothing."""

PARTS = "parts"
"""A part with a table of its own."""

REACH: Mapping[type, Mapping[str, str]] = {
    Options: {
        "groups": PARTS,
        "preset": OURS,
        "rules": OURS,
        "num_blocks": SENT,
        "num_state_blocks": ALONE,
        "group_retention_intervals": ALONE,
        "group_times_to_live": ALONE,
        "max_num_batched_tokens": SENT,
        "max_num_seqs": SENT,
        "max_concurrent_batches": SENT,
        "async_scheduling": SENT,
        "kv_consumer": SENT,
        "max_model_len": SENT,
        "long_prefill_token_threshold": SENT,
        "enable_prefix_caching": SENT,
        "partial_hits": SENT,
        "decode_context_parallel_size": SENT,
        "prefix_match_unit": SENT,
        "cache_config_block_size": SENT,
        "initial_block_size": OURS,
        "watermark": SENT,
        "scheduler_reserve_full_isl": SENT,
        "num_prefill_checkpoint_blocks": SENT,
        "prefill_checkpoint_alignment": SENT,
        "prefix_cache_retention_interval": SENT,
        "shared_prefix_checkpoint": SENT,
        "encoder_cache_size": SENT,
        "max_num_encoder_input_tokens": SENT,
        "mamba_chunk_size": OURS,
        "disable_chunked_mm_input": SENT,
        "offload": PARTS,
        "speculative": PARTS,
        "clock": OURS,
        "costs": OURS,
    },
    Group: {
        "name": SENT,
        "kind": SENT,
        "block_size": SENT,
        "eagle": SENT,
        "mamba_cache_mode": SENT,
        "sliding_window": SENT,
        "prefix_cacheable": ALONE,
    },
    Speculative: {
        "method": SENT,
        "num_speculative_tokens": SENT,
        "accepted_drafts": OURS,
        "acceptance_rate": OURS,
        "num_speculative_tokens_per_batch_size": SENT,
        "proposed_drafts": OURS,
        "draft_slots": SENT,
        "multi_module": SENT,
        "block_drop": SENT,
        "hash_lookahead": SENT,
    },
    Offload: {"blocks": ALONE},
    Arrival: {
        "id": SENT,
        "index": OURS,
        "time": OURS,
        "segments": SENT,
        "max_tokens": SENT,
        "accepted_drafts": OURS,
        "proposed_drafts": OURS,
        "external": SENT,
        "load_error": ALONE,
        "abort": SENT,
        "abort_late": SENT,
        "encoder": SENT,
        "after": OURS,
        "snapshots": NOBODYS,
    },
}
"""Fate of each option and of each property of a request on a live release."""

PHYSICAL = ("grid", "restore_column", "state_writes", "undrafted_rows", "worker")
"""Rules of the model that runs the release's decisions; all others are the release's own."""


def refused(said: Options | Arrival, place: str) -> Iterator[str]:
    """Return what a release cannot be told, by name: ``engine.offload.blocks: found 8, allowed 0``, and why.

    ``place`` is where ``said`` stands, such as ``engine``.
    """
    yield from _alone(said, place)
    for rule, value in said.rules.items() if isinstance(said, Options) else ():
        if rule not in PHYSICAL:
            yield f"{place}.rules.{rule}: found {value}, allowed none: a release decides by rules of its own"


def _default(field: Field[Any]) -> Any:
    return field.default if field.default is not MISSING else {}


def _alone(said: Any, place: str) -> Iterator[str]:
    for field in fields(said):
        value, reach = getattr(said, field.name), REACH[type(said)][field.name]
        if reach == ALONE and value != (default := _default(field)):
            found, allowed = (
                str(v).lower() if isinstance(v, bool) else "none" if v == {} else v for v in (value, default)
            )
            yield f"{place}.{field.name}: found {found}, allowed {allowed}: it is the reference engine's alone"
        elif reach == PARTS and is_dataclass(value):
            yield from _alone(value, f"{place}.{field.name}")
        elif reach == PARTS:
            for i, part in enumerate(value):
                yield from _alone(part, f"{place}.{field.name}.{i}")


def drafts_behind(options: Options) -> list[int] | None:
    """Return the drafts behind a step of 1, 2 and so on requests, to be held against what the release makes of the
    ranges; None: always K."""
    speculative = options.speculative
    if speculative.num_speculative_tokens_per_batch_size is None:
        return None
    return [speculative.drafts_behind(requests) for requests in range(1, options.max_num_seqs + 1)]


def wire(options: Options, runner_v2: bool = True) -> dict[str, Any]:
    """The configuration that a worker is given, under the options' own names where it is the option itself.

    ``runner_v2``: the worker is vLLM's model runner V2, which a release asks where it schedules asynchronously.
    """
    widest = max(group.block_size for group in options.groups)
    ranks = options.decode_context_parallel_size
    speculative = options.speculative
    return {
        "groups": [
            {
                "name": group.name,
                "recurrent": group.recurrent,
                "block_size": group.block_size,
                "rank_block_size": group.block_size // (ranks if spread(group) else 1),
                # Only a drafter's own layers flag a group.
                "eagle": group.eagle and speculative.eagle,
                "sliding_window": group.sliding_window,
                "mamba_cache_mode": group.mamba_cache_mode if group.recurrent else "",
            }
            for group in options.groups
        ],
        "decode_context_parallel_size": ranks,
        "hash_unit": options.hash_unit,
        "scheduler_block_size": options.scheduler_block_size,
        "cache_config_block_size": options.cache_config_block_size or options.state_block or widest,
        "num_blocks": options.num_blocks,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "max_num_seqs": options.max_num_seqs,
        "max_concurrent_batches": options.max_concurrent_batches,
        "async_scheduling": options.async_scheduling,
        "runner_v2": runner_v2,
        "kv_consumer": options.kv_consumer,
        "max_model_len": options.max_model_len,
        "long_prefill_token_threshold": options.long_prefill_token_threshold,
        "enable_prefix_caching": options.enable_prefix_caching,
        "partial_hits": options.partial_hits,
        "watermark": options.watermark,
        "scheduler_reserve_full_isl": options.scheduler_reserve_full_isl,
        "num_prefill_checkpoint_blocks": options.num_prefill_checkpoint_blocks,
        "prefill_checkpoint_alignment": options.prefill_checkpoint_alignment,
        "prefix_cache_retention_interval": options.prefix_cache_retention_interval,
        "shared_prefix_checkpoint": options.shared_prefix_checkpoint,
        "encoder_cache_size": options.encoder_slots,
        "max_num_encoder_input_tokens": options.encoder_tokens,
        "disable_chunked_mm_input": options.disable_chunked_mm_input,
        # A drafter that fills slots of the batch has a model of its own, which vLLM calls by another name.
        "method": "draft_model" if speculative.draft_model else speculative.method,
        "num_speculative_tokens": speculative.num_speculative_tokens,
        "num_speculative_tokens_per_batch_size": speculative.num_speculative_tokens_per_batch_size,
        "drafts_behind": drafts_behind(options),
        "draft_slots": speculative.draft_slots,
        "multi_module": speculative.multi_module,
        "block_drop": speculative.block_drop,
        "hash_lookahead": speculative.hash_lookahead,
        # What follows from the drafter, to be held against what the release makes of it.
        "look_ahead": speculative.eagle,
        "lookahead_tokens": speculative.lookahead_tokens,
        "prefill_lookahead": speculative.prefill_lookahead,
    }
