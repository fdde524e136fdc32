"""The fields of published config files that count, one model of each family; and random ones of the same form."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]

QWEN3_NEXT: dict[str, Any] = {
    "model_type": "qwen3_next",
    "dtype": "bfloat16",
    "full_attention_interval": 4,
    "head_dim": 256,
    "hidden_size": 2048,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 262144,
    "num_attention_heads": 16,
    "num_hidden_layers": 48,
    "num_key_value_heads": 2,
}
QWEN3_6: dict[str, Any] = json.loads((ROOT / "docs" / "examples" / "qwen3.6-27b.json").read_text())
NEMOTRON: dict[str, Any] = {
    "model_type": "nemotron_h",
    "torch_dtype": "bfloat16",
    "chunk_size": 128,
    "conv_kernel": 4,
    "head_dim": 128,
    "hidden_size": 4480,
    "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
    "mamba_head_dim": 80,
    "mamba_num_heads": 128,
    "max_position_embeddings": 131072,
    "n_groups": 8,
    "num_attention_heads": 40,
    "num_hidden_layers": 56,
    "num_key_value_heads": 8,
    "ssm_state_size": 128,
}
FALCON_H1: dict[str, Any] = {
    "model_type": "falcon_h1",
    "torch_dtype": "bfloat16",
    "head_dim": 128,
    "hidden_size": 3072,
    "mamba_chunk_size": 256,
    "mamba_d_conv": 4,
    "mamba_d_head": 128,
    "mamba_d_ssm": 3072,
    "mamba_d_state": 256,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 24,
    "max_position_embeddings": 262144,
    "num_attention_heads": 12,
    "num_hidden_layers": 44,
    "num_key_value_heads": 2,
}
JAMBA: dict[str, Any] = {
    "model_type": "jamba",
    "torch_dtype": "bfloat16",
    "attn_layer_offset": 4,
    "attn_layer_period": 8,
    "hidden_size": 4096,
    "mamba_d_conv": 4,
    "mamba_d_state": 16,
    "mamba_expand": 2,
    "max_position_embeddings": 262144,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
}
KIMI_LINEAR: dict[str, Any] = {
    "model_type": "kimi_linear",
    "dtype": "bfloat16",
    "head_dim": 72,
    "hidden_size": 2304,
    "kv_lora_rank": 512,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "head_dim": 128,
        "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26],
        "num_heads": 32,
        "short_conv_kernel_size": 4,
    },
    "model_max_length": 1048576,
    "num_attention_heads": 32,
    "num_hidden_layers": 27,
    "num_key_value_heads": 32,
    "num_nextn_predict_layers": 0,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
}
LFM2: dict[str, Any] = {
    "model_type": "lfm2",
    "torch_dtype": "bfloat16",
    "conv_L_cache": 3,
    "conv_dim": 2048,
    "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    "hidden_size": 2048,
    "max_position_embeddings": 128000,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
}

CONFIGS = {
    "qwen3-next": QWEN3_NEXT,
    "qwen3.6-27b": QWEN3_6,
    "nemotron-nano-9b-v2": NEMOTRON,
    "falcon-h1": FALCON_H1,
    "jamba-v0.1": JAMBA,
    "kimi-linear": KIMI_LINEAR,
    "lfm2-1.2b": LFM2,
}
"""By the name that the model has in ``stateat geometry --model``."""


def config(name: str) -> dict[str, Any]:
    """A copy, to be changed."""
    return deepcopy(CONFIGS[name])


WIDTHS = {
    "linear_num_key_heads": (8, 16, 32),
    "linear_num_value_heads": (32, 64),
    "linear_key_head_dim": (64, 128),
    "linear_value_head_dim": (64, 128, 256),
    "linear_conv_kernel_dim": (2, 4),
    "mamba_num_heads": (64, 128, 256),
    "mamba_head_dim": (64, 80),
    "ssm_state_size": (64, 128),
    "n_groups": (1, 8, 16),
    "chunk_size": (128, 256),
    "mamba_d_state": (16, 64, 256),
    "mamba_chunk_size": (128, 256),
    "kv_lora_rank": (256, 512),
    "qk_rope_head_dim": (32, 64),
    "head_dim": (64, 128, 256),
    "num_key_value_heads": (2, 4, 8),
    "num_heads": (16, 32, 96),
    "conv_dim": (1024, 2048, 6144),
}


def varied(name: str, rng: np.random.Generator) -> dict[str, Any]:
    """The config with some other widths."""

    def change(values: dict[str, Any]) -> None:
        for key, value in values.items():
            if isinstance(value, dict):
                change(value)
            elif key in WIDTHS and rng.random() < 0.5:
                values[key] = int(rng.choice(WIDTHS[key]))

    made = config(name)
    change(made)
    return made
