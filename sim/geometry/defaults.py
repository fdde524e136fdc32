"""Defaults of the Hugging Face config classes, where a config file is silent, as transformers 5 has them.

A server builds the class from the file, so a key that the file lacks is the class's default. Kimi-Linear's class is
vLLM's own. Only keys that a file may lack here are listed: what decides the state has to be in the file.
"""

from __future__ import annotations

from collections.abc import Mapping

_QWEN = {"head_dim": 256, "num_key_value_heads": 2, "max_position_embeddings": 32_768}
_LFM2 = {"num_key_value_heads": 8, "max_position_embeddings": 128_000}

DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "qwen3_next": _QWEN,
    "qwen3_5": {**_QWEN, "num_key_value_heads": 4},
    "qwen3_5_text": {**_QWEN, "num_key_value_heads": 4},
    "qwen3_5_moe": _QWEN,
    "qwen3_5_moe_text": _QWEN,
    "nemotron_h": {"head_dim": 128, "num_key_value_heads": 8, "max_position_embeddings": 4096, "chunk_size": 128},
    "falcon_h1": {"num_key_value_heads": 8, "max_position_embeddings": 8192, "mamba_chunk_size": 256},
    "jamba": {"num_key_value_heads": 8, "max_position_embeddings": 262_144},
    "kimi_linear": {"max_position_embeddings": 4096},
    "lfm2": _LFM2,
    "lfm2_moe": _LFM2,
}
"""Defaults by ``model_type``."""
