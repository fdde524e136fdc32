"""Facts of a model, and flags of a server, that decide the size of its blocks."""

from __future__ import annotations

from dataclasses import dataclass

from stateat.kernels.shapes import Shape

KV_DTYPES = ("bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "nvfp4")
"""Dtypes of keys and values, beside ``auto``: the model's, or what its quantization says."""
MODES = ("none", "align", "all")
"""``--mamba-cache-mode``; ``none``: without prefix caching."""
GDN_BACKENDS = ("auto", "flashinfer", "triton", "cutedsl")
"""``--gdn-prefill-backend``; ``auto`` is FlashInfer, as on Hopper and Blackwell."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The full-attention layers of a model, before tensor parallelism."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    """Entries of a key, and of a value; with ``latent`` those of the one vector that stands for both."""
    latent: bool = False
    """Multi-head latent attention (MLA): one vector a token, on every rank."""


@dataclass(frozen=True, slots=True)
class Model:
    """The few facts of a config file that count."""

    name: str
    family: str
    """A key of :data:`stateat.sim.geometry.families.FAMILIES`."""
    state: Shape
    """One recurrent layer."""
    recurrent_layers: int
    attention: Attention
    max_model_len: int
    dtype: str = "bfloat16"
    state_dtype: str = "auto"
    """Dtype that the config asks of the recurrent component; ``auto``: the model's dtype."""
    kv_dtype: str = "auto"
    """Dtype that its quantization asks of keys and values; ``auto``: the model's dtype."""
    chunk: int = 2048
    """Tokens of the recurrent kernel's own chunk."""
    mtp_layers: int = 1
    """Attention layers of its own draft module, if it is used."""
    bounded_gate: bool = False
    """True if a KDA layer's gate has a lower bound (``gate_lower_bound``), which FlashKDA asks for."""
    architectures: tuple[str, ...] = ()
    """Classes of the model by the config's own word, which choose the model runner in some releases."""
    assumed: tuple[str, ...] = ()
    """Keys that its config lacks, each with the value that was taken."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A server's flags, by vLLM's names; None: the release decides."""

    preset: str = "vllm-0.27.0"
    tensor_parallel_size: int = 1
    speculative_method: str = "mtp"
    num_speculative_tokens: int = 0
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    mamba_cache_mode: str | None = None
    enable_prefix_caching: bool | None = None
    block_size: int | None = None
    mamba_block_size: int | None = None
    prefix_match_unit: int | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int = 8192
    gdn_prefill_backend: str = "auto"
    attention_kernel_block: int = 16
    """The smallest block that the attention backend's kernels take; no flag of vLLM, which asks the backend."""
    kv_cache_size_tokens: int | None = None
    """Tokens of the pool, which the server's log says: ``GPU KV cache size: N tokens``."""
    kv_cache_memory_bytes: int | None = None
    """Bytes of the pool on a rank."""
