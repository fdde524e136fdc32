"""Differences of the releases where they size blocks: one row each, read in their sources.

``platforms/interface.py`` (``_align_hybrid_block_size``), ``layers/mamba/mamba_utils.py``, ``models/config.py`` and
each model's ``get_mamba_state_shape_from_config``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stateat.sim.errors import InputError
from stateat.sim.releases.presets import PRESETS

GDN = frozenset({"qwen3-next", "qwen3.5"})
MAMBA2 = frozenset({"nemotron-h", "falcon-h1"})


@dataclass(frozen=True, slots=True)
class BlockSizing:
    """Sizing of blocks in one release, for a hybrid model."""

    caches: bool
    """True if prefix caching is on unless a flag says otherwise."""
    prefers_all: bool
    """True if prefix caching means ``all`` mode where the model can, unless a flag says otherwise."""
    all_mode: bool
    """True if the release has ``all`` mode."""
    rejects_wide: bool
    """True if it refuses a block above ``max_num_batched_tokens`` (``align`` mode)."""
    widened: frozenset[str]
    """The families whose convolution keeps K more inputs for K drafts."""
    latent_block: int
    """Blocks of MLA models are multiples of this."""
    kda_dtypes: tuple[str, ...]
    """Dtypes that ``--mamba-ssm-cache-dtype`` may give a KDA state; where there is one, the flag is not asked."""
    checkpointed: frozenset[str]
    """The families whose kernels can export a state inside a chunk (one more block of each group for a request)."""
    gdn_checkpoint: int
    """Blocks of a GDN model are multiples of this where FlashInfer runs its prefill (``align`` mode); 0: not asked."""
    kda_checkpoint: int
    """Tokens at multiples of which FlashKDA exports a state inside a chunk; 0: it exports none."""
    retention: int | None
    """``prefix_cache_retention_interval`` unless a flag says otherwise."""


_0_26 = BlockSizing(
    caches=False,
    prefers_all=True,
    all_mode=True,
    rejects_wide=True,
    widened=GDN | {"nemotron-h"},
    latent_block=1,
    kda_dtypes=("float32",),
    checkpointed=frozenset(),
    gdn_checkpoint=0,
    kda_checkpoint=0,
    retention=None,
)
_0_27 = replace(_0_26, rejects_wide=False, widened=_0_26.widened | {"kimi-linear"}, latent_block=128)
_0_28 = replace(_0_27, caches=True, prefers_all=False)
_0_29 = replace(_0_28, kda_checkpoint=16, retention=0)
_0_30 = replace(_0_29, kda_dtypes=("float32", "bfloat16"))
_0_32 = replace(_0_30, all_mode=False, widened=_0_30.widened | {"falcon-h1"}, checkpointed=MAMBA2)
_0_33 = replace(_0_32, gdn_checkpoint=64)

SIZING = {
    "vllm-0.26.0": _0_26,
    "vllm-0.27.0": _0_27,
    "vllm-0.28.0": _0_28,
    "vllm-0.29.0": _0_29,
    "vllm-0.30.0": _0_30,
    "vllm-0.32.0": _0_32,
    "vllm-0.33.0": _0_33,
}
"""Sizing by the preset since which it holds."""

ALL_MODE = MAMBA2 | {"jamba"}
"""The families that have ``all`` mode, in the releases that do."""


def sizing(preset: str) -> BlockSizing:
    """Return the row of a preset, or of the last one before it that has one; InputError names the known presets."""
    from stateat.sim.schema import choice

    if preset not in PRESETS:
        raise InputError(f"--preset: {choice(preset, PRESETS)}")
    known = list(PRESETS)
    return next(SIZING[each] for each in reversed(known[: known.index(preset) + 1]) if each in SIZING)
