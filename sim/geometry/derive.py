"""The arithmetic: a model, a server's flags and a release's row give block sizes and bytes.

Attention and recurrent layers share one pool of equal pages. So the attention block grows until its page holds one
recurrent state, and the state's page is padded to match:

    block = granularity * ceil(state bytes / (granularity * token bytes))     page = block * token bytes

per layer and rank. All sizes are in bytes or tokens.
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm

from stateat.kernels.families import DTYPES
from stateat.kernels.shapes import BYTES, Shape
from stateat.sim.errors import InputError
from stateat.sim.geometry.capacity import blocks_of
from stateat.sim.geometry.layout import Geometry
from stateat.sim.geometry.model import KV_DTYPES, Attention, Model, Serving
from stateat.sim.geometry.releases import ALL_MODE, GDN, BlockSizing, sizing

MOST_RANKS = 1024
KV_BYTES = {**{name: BYTES[name] for name in DTYPES}, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
"""Bytes of one entry of a key or value; nvfp4 packs two, with a scale for each sixteen."""
NVFP4_SHARE = 16
PADDED_LAYERS = 1.5
"""Groups have as many layers as the larger kind where it has fewer than so many times the smaller one's."""


def derive(model: Model, serving: Serving) -> Geometry:
    """The geometry. Raises InputError, which names the flag, for what vLLM refuses and what is not known here."""
    row = sizing(serving.preset)
    _check_ranks(model, serving.tensor_parallel_size)
    mode = _mode(model, serving, row)
    dtype = model.dtype if serving.dtype == "auto" else serving.dtype
    conv_dtype = dtype if serving.mamba_cache_dtype == "auto" else serving.mamba_cache_dtype
    state_dtype = _state_dtype(model, serving, row, conv_dtype)
    kv_dtype = next(name for name in (serving.kv_cache_dtype, model.kv_dtype, dtype) if name != "auto")
    conv, recurrent = _state_bytes(model, serving, row)
    conv_bytes, recurrent_bytes = conv * BYTES[conv_dtype], recurrent * BYTES[state_dtype]
    token = token_bytes(model.attention, kv_dtype, serving.tensor_parallel_size)
    granularity = _granularity(model, serving, row, mode)
    block = granularity * -(-(conv_bytes + recurrent_bytes) // (granularity * token))
    unit = serving.prefix_match_unit
    if unit is not None and block % unit:
        raise InputError(f"--prefix-match-unit: found {unit}, allowed a divisor of the block, which is {block}")
    per_group, attention, groups = _groups(model, serving)
    found = Geometry(
        model=model,
        serving=serving,
        mode=mode,
        kv_dtype=kv_dtype,
        conv_dtype=conv_dtype,
        state_dtype=state_dtype,
        conv_bytes=conv_bytes,
        recurrent_bytes=recurrent_bytes,
        token_bytes=token,
        granularity=granularity,
        block_size=block,
        layers_per_group=per_group,
        attention_groups=attention,
        recurrent_groups=groups,
        checkpoint_blocks=int(mode == "align" and _exports(model, serving, row)),
    )
    return replace(found, num_blocks=blocks_of(found))


def fits(model: Model, ranks: int) -> bool:
    """Return True if a model can be split over so many ranks: only KV heads are repeated where there are fewer."""
    s, a = model.state, model.attention
    shares = [a.heads]
    if s.family == "selective-scan":
        shares.append(s.rows)
    elif s.family == "short-conv":
        shares.append(s.conv_channels)
    else:
        shares.append(s.heads)
        # a single group of B and C is repeated
        shares.append(ranks if s.family == "ssd" and s.key_heads == 1 else s.key_heads)
    return all(share % ranks == 0 for share in shares) and (a.kv_heads % ranks == 0 or ranks % a.kv_heads == 0)


def _check_ranks(model: Model, ranks: int) -> None:
    if not 1 <= ranks <= MOST_RANKS or not fits(model, ranks):
        allowed = [n for n in range(1, MOST_RANKS + 1) if fits(model, n)]
        raise InputError(
            f"--tensor-parallel-size: found {ranks}, allowed for {model.name} {', '.join(map(str, allowed))}: the "
            "heads, the channels and the groups of its layers are split evenly, or KV heads repeated"
        )


def _mode(model: Model, serving: Serving, row: BlockSizing) -> str:
    """The mode in force, as ``MambaModelConfig`` settles it; unless a flag says otherwise, prefix caching is on."""
    asked = serving.mamba_cache_mode
    if serving.enable_prefix_caching is False or (asked == "none" and serving.enable_prefix_caching is None):
        return "none"
    if asked == "all" and not row.all_mode:
        raise InputError(f"--mamba-cache-mode: found 'all', allowed none, align: {serving.preset} has no such mode")
    able = model.family in ALL_MODE
    if asked == "all" or (asked in (None, "none") and row.prefers_all):
        return "all" if able else "align"
    return "align"


def _state_dtype(model: Model, serving: Serving, row: BlockSizing, conv_dtype: str) -> str:
    asked = serving.mamba_ssm_cache_dtype
    if model.state.family == "kda":
        if len(row.kda_dtypes) == 1 or asked == "auto":
            return row.kda_dtypes[0]
        if asked not in row.kda_dtypes:
            raise InputError(
                f"--mamba-ssm-cache-dtype: found {asked!r}, allowed auto, {', '.join(row.kda_dtypes)} for a KDA state"
            )
        return asked
    return next(name for name in (asked, model.state_dtype, conv_dtype) if name != "auto")


def _state_bytes(model: Model, serving: Serving, row: BlockSizing) -> tuple[int, int]:
    """Entries of the conv and of the recurrent component, of one layer on one rank."""
    s, ranks = model.state, serving.tensor_parallel_size
    drafts = serving.num_speculative_tokens if model.family in row.widened else 0
    inputs = s.conv_width - 1 + drafts
    return inputs * _channels(s, ranks), s.recurrent_entries // ranks


def _channels(s: Shape, ranks: int) -> int:
    """Channels of the convolution on one rank; where there are fewer groups of B and C than ranks, each has its own."""
    repeated = ranks - s.key_heads if s.family == "ssd" and s.key_heads % ranks else 0
    return (s.conv_channels + 2 * repeated * s.columns) // ranks


def token_bytes(attention: Attention, kv_dtype: str, ranks: int) -> int:
    """Bytes of one token in one attention layer on one rank."""
    if kv_dtype == "nvfp4":
        if attention.latent:
            raise InputError(
                f"--kv-cache-dtype: found 'nvfp4', allowed {', '.join(n for n in KV_DTYPES if n != 'nvfp4')} with MLA"
            )
        if attention.head_dim % NVFP4_SHARE:
            raise InputError(
                f"--kv-cache-dtype: found 'nvfp4' with heads of {attention.head_dim}, allowed with a multiple of "
                f"{NVFP4_SHARE}: so many entries share a scale"
            )
        entry = attention.head_dim // 2 + attention.head_dim // NVFP4_SHARE
    else:
        entry = attention.head_dim * KV_BYTES[kv_dtype]
    return entry if attention.latent else 2 * max(1, attention.kv_heads // ranks) * entry


def _granularity(model: Model, serving: Serving, row: BlockSizing, mode: str) -> int:
    """Tokens that the block is a multiple of."""
    # --block-size, or the backend's preference: vLLM's default of 16, or what its kernels want at least
    unit = max(serving.attention_kernel_block, serving.block_size or 16)
    if serving.block_size is not None and serving.block_size % serving.attention_kernel_block:
        raise InputError(
            f"--block-size: found {serving.block_size}, allowed a multiple of {serving.attention_kernel_block}, "
            "which the attention kernel wants (--attention-kernel-block)"
        )
    if model.attention.latent:
        unit = max(unit, row.latent_block)
    if mode == "all":
        return lcm(serving.mamba_block_size or model.chunk, unit)
    if mode == "align" and row.gdn_checkpoint and _flashinfer(model, serving):
        return lcm(unit, row.gdn_checkpoint)
    return unit


def _flashinfer(model: Model, serving: Serving) -> bool:
    return model.family in GDN and serving.gdn_prefill_backend in ("auto", "flashinfer")


def _exports(model: Model, serving: Serving, row: BlockSizing) -> bool:
    """Return True if the kernels can export a state inside a chunk."""
    if model.state.family == "kda":
        return bool(row.kda_checkpoint) and _flashkda(model, serving)
    return model.family in row.checkpointed or (bool(row.gdn_checkpoint) and _flashinfer(model, serving))


def _flashkda(model: Model, serving: Serving) -> bool:
    """Return True if FlashKDA runs a prefill, on Hopper and Blackwell."""
    dtype = model.dtype if serving.dtype == "auto" else serving.dtype
    return model.bounded_gate and model.state.rows == 128 and dtype == "bfloat16"


def _groups(model: Model, serving: Serving) -> tuple[int, int, int]:
    """Layers of a group, attention groups and recurrent groups: as many layers in each, the last ones padded.

    ``_get_kv_cache_groups_uniform_page_size``, without pipeline parallelism. The layers of the model's own draft
    module count as attention.
    """
    drafted = serving.num_speculative_tokens > 0 and serving.speculative_method == "mtp"
    attending = model.attention.layers + (model.mtp_layers if drafted else 0)
    least, most = sorted((attending, model.recurrent_layers))
    size = most if most < least * PADDED_LAYERS else least
    return size, -(-attending // size), -(-model.recurrent_layers // size)
