"""The state inside a chunk that the kernel exports, asked of the release's own functions."""

from __future__ import annotations

import importlib.util
import inspect

from configuration import hash_lookahead
from objects import Strange, attribute, has_field


class Checkpoints:
    """The state inside a chunk that the kernel exports, asked of the release's own functions."""

    def __init__(self, scheduler, wanted):
        self.of = lambda start, end: 0
        if not wanted["num_prefill_checkpoint_blocks"]:
            return
        self.scheduler = scheduler
        group, self.block = next(
            (i, g["block_size"]) for i, g in enumerate(wanted["groups"]) if g["mamba_cache_mode"] == "align"
        )
        self.manager = scheduler.kv_cache_manager.coordinator.single_type_managers[group]
        self.alignment = wanted["prefill_checkpoint_alignment"]
        self.of = self._rule()

    def _rule(self):
        """(start, end) of a chunk to the offset that is exported, or 0"""
        from vllm.v1 import kv_cache_interface as interface

        if importlib.util.find_spec("vllm.model_executor.layers.mamba.checkpoint"):  # 0.31
            from vllm.model_executor.layers.mamba.checkpoint import compute_mamba_prefill_checkpoints as compute

            if inspect.isfunction(compute):
                return self._computed(compute)
        elif hasattr(interface, "get_mamba_prefill_checkpoint_position"):  # 0.30
            return self._positioned(interface)
        elif not has_field(interface.MambaSpec, "prefill_checkpoint_alignment"):  # 0.29, inside its kernel's metadata
            return self._last_boundary
        raise Strange("it does not say where a chunk exports a checkpoint")

    def _drops(self):
        """True if a hit gives up a block for the drafter; since 0.30."""
        speculative = self.scheduler.vllm_config.speculative_config
        return speculative is not None and attribute(speculative, "use_eagle_block_drop")()

    def _computed(self, compute):
        ahead = hash_lookahead(self.scheduler.vllm_config)
        wanted = {
            "hash_block_size": self.scheduler.hash_block_size,
            "mamba_block_size": self.block,
            "checkpoint_alignment": self.alignment,
            "drop_eagle_block": bool(self._drops() and not ahead),
        }
        known = inspect.signature(compute).parameters
        if "cache_hit_alignment_tokens" in known:  # 0.32
            wanted["cache_hit_alignment_tokens"] = attribute(self.manager, "cache_hit_alignment_tokens")
        if "num_hash_lookahead_tokens" in known:  # 0.33
            wanted["num_hash_lookahead_tokens"] = ahead

        def of(start, end):
            offsets, _ = compute(seq_lens=[end], query_lens=[end - start], **wanted)
            return start + offsets[0] if offsets[0] else 0

        return of

    def _positioned(self, interface):
        def of(start, end):
            unit = self.scheduler.hash_block_size
            position = interface.get_mamba_prefill_checkpoint_position(end, unit, drop_eagle_block=self._drops())
            valid = interface.is_mamba_prefill_checkpoint_valid(
                query_start=start,
                query_end=end,
                checkpoint_position=position,
                hash_block_size=unit,
                mamba_block_size=self.block,
                checkpoint_alignment=self.alignment,
            )
            return position if valid else 0

        return of

    def _last_boundary(self, start, end):
        """The last block boundary inside the chunk."""
        offset = end // self.block * self.block
        return offset if start < offset < end and (offset - start) % self.alignment == 0 else 0
