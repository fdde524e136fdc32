"""A scenario's options as the worker wants them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.engine.options import Options

PLAIN = {
    "num_prefill_checkpoint_blocks": 0,
    "prefill_checkpoint_alignment": 1,
    "retention_interval": None,
    "shared_prefix_checkpoint": False,
    "multi_module_mtp": False,
    "draft_slots": 0,
    "eagle_block_drop": True,
    "hash_lookahead": True,
}
"""Features beside the common ones, and what stands for their absence."""

NAMES = {
    "retention_interval": "prefix_cache_retention_interval",
    "multi_module_mtp": "multi_module",
    "eagle_block_drop": "block_drop",
}
"""Where our option is called otherwise."""


def wire(options: Options, features: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The configuration that a worker is given; ``features`` override what the options say of :data:`PLAIN`."""
    widest = max(group.block_size for group in options.groups)
    speculative = options.speculative
    return {
        "groups": [
            {
                "name": group.name,
                "recurrent": group.recurrent,
                "block_size": group.block_size,
                # Only a drafter's own layers flag a group.
                "eagle": group.eagle and options.speculative.eagle,
                "sliding_window": group.sliding_window,
                "mode": group.mamba_cache_mode if group.recurrent else "",
            }
            for group in options.groups
        ],
        "hash_unit": options.hash_unit,
        "scheduler_block_size": options.scheduler_block_size,
        "cache_config_block_size": options.cache_config_block_size or options.state_block or widest,
        "num_blocks": options.num_blocks,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "max_num_seqs": options.max_num_seqs,
        "max_model_len": options.max_model_len,
        "long_prefill_token_threshold": options.long_prefill_token_threshold,
        "enable_prefix_caching": options.enable_prefix_caching,
        "partial_hits": options.partial_hits,
        "watermark": options.watermark,
        "reserve_full_isl": options.scheduler_reserve_full_isl,
        "encoder_cache_size": options.encoder_slots,
        "max_num_encoder_input_tokens": options.encoder_tokens,
        "disable_chunked_mm_input": options.disable_chunked_mm_input,
        "num_speculative_tokens": speculative.num_speculative_tokens,
        "method": speculative.method,
        **{name: _option(options, name, absent) for name, absent in PLAIN.items()},
        **(features or {}),
    }


def _option(options: Options, name: str, absent: Any) -> Any:
    """A feature as the options say it, under either of their parts."""
    ours = NAMES.get(name, name)
    for part in (options, options.speculative):
        if hasattr(part, ours):
            return getattr(part, ours)
    return absent
