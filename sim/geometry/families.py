"""A Hugging Face ``config.json`` as a model: which of its fields say what, family by family."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from stateat.kernels.families import DTYPES
from stateat.kernels.shapes import Shape, delta, selective_scan, short_conv, ssd
from stateat.sim.errors import InputError
from stateat.sim.files import real
from stateat.sim.geometry.defaults import DEFAULTS
from stateat.sim.geometry.model import Attention, Model
from stateat.sim.inputs import MAX_DOCUMENT, as_json, read_bytes

NESTED = ("text_config", "llm_config", "language_config")
"""Keys under which a multimodal model keeps its language model's fields."""
LARGEST = 1 << 24
"""No width of a model is larger."""
MOST_LAYERS = 4096


class Fields:
    """The fields of a config file; raises InputError that names the file, the key, what was found and is allowed."""

    def __init__(self, where: str, values: Mapping[str, Any], defaults: Mapping[str, int] | None = None) -> None:
        self.where = where
        self.values = values
        self.defaults = defaults or {}
        """Defaults of the config's class, for keys that the file lacks."""
        self.assumed: list[str] = []
        """Each key that was taken from there, with its value."""

    def fail(self, text: str) -> NoReturn:
        raise InputError(f"{self.where}: {text}")

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def says(self, key: str) -> bool:
        """Return True if the file has a value, or is silent and the class has one; null is a word too: nothing."""
        return self.has(key) or (key not in self.values and key in self.defaults)

    def size(self, key: str, default: int | None = None, least: int = 1, most: int = LARGEST) -> int:
        """A whole number from ``least`` to ``most``; of a key that is not there the class's default, or this one."""
        value = self.values.get(key)
        if value is None and key in self.defaults and (default is None or self.says(key)):
            self.assumed.append(f"{key} {self.defaults[key]}")
            return self.defaults[key]
        if value is None and default is not None:
            return default
        if value is None:
            self.fail(f"{key}: found nothing, allowed a whole number")
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.fail(f"{key}: found {as_json(value)}, allowed a whole number from {least} to {most}")
        return value

    def layers(self) -> int:
        """Number of the model's layers."""
        return self.size("num_hidden_layers", most=MOST_LAYERS)

    def names(self, key: str) -> list[str]:
        """A list of layers' kinds, or a text with a letter for each."""
        value = self.values[key]
        if isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            if len(value) > MOST_LAYERS:
                self.fail(f"{key}: found {len(value):,} layers, allowed at most {MOST_LAYERS}")
            return list(value)
        self.fail(f"{key}: found {as_json(value)}, allowed a list of names")

    def places(self, key: str, first: int, last: int) -> list[int]:
        """A list of layers' numbers, each from ``first`` to ``last`` and there once."""
        value = self.values.get(key)
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            self.fail(f"{key}: found {as_json(value)}, allowed a list of layer numbers")
        if wrong := [item for item in value if not first <= item <= last]:
            self.fail(f"{key}: found the layer {as_json(wrong[0])}, allowed those of the model, {first} to {last}")
        if len(set(value)) < len(value):
            self.fail(f"{key}: found {as_json(value)}, allowed each layer once")
        return value

    def below(self, key: str) -> Fields:
        """The fields of a mapping inside."""
        value = self.values.get(key)
        if not isinstance(value, dict):
            self.fail(f"{key}: found {as_json(value)}, allowed a mapping")
        return Fields(f"{self.where}: {key}", value)

    def count(self, key: str, *kinds: str) -> int:
        """Count the layers of a list that are of these kinds."""
        return sum(name in kinds for name in self.names(key))

    def dtype(self, key: str, default: str = "auto") -> str:
        value = self.values.get(key)
        if value is None:
            return default
        name = value.removeprefix("torch.") if isinstance(value, str) else value
        if name not in ("auto", *DTYPES):
            self.fail(f"{key}: found {as_json(value)}, allowed {', '.join(DTYPES)}")
        return str(name)


def read(path: Path) -> Model:
    """The model of a config file. Raises InputError with one message."""
    raw = read_bytes(path, MAX_DOCUMENT, "a model's config.json")
    try:
        values = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: found no JSON ({error}), allowed a model's config.json") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: found {as_json(values)}, allowed a JSON object")
    # a checkpoint's folder has the model's name
    name = real(path).parent.name if path.stem == "config" else path.stem
    return model_of(values, str(path), name)


def model_of(values: Mapping[str, Any], where: str, name: str) -> Model:
    """The model that the fields of a config file describe. Raises InputError."""
    outer = Fields(where, values)
    config = next((outer.below(key) for key in NESTED if isinstance(values.get(key), dict)), outer)
    kind = config.values.get("model_type") or values.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        outer.fail(f"model_type: found {as_json(kind)}, allowed {', '.join(MODEL_TYPES)}")
    family = MODEL_TYPES[kind]
    config.defaults = DEFAULTS[kind]
    state, recurrent, attending = FAMILIES[family](config)
    if not recurrent or not attending:
        which = "recurrent" if attending else "attention"
        outer.fail(f"found no {which} layer, allowed a hybrid model: blocks grow where both share a pool")
    weights = config.dtype("dtype", config.dtype("torch_dtype", outer.dtype("dtype", outer.dtype("torch_dtype"))))
    if weights == "auto":
        config.assumed.append("dtype bfloat16")
    attention = _attention(config, attending, family == "kimi-linear" and config.has("kv_lora_rank"))
    length = next((key for key in ("max_position_embeddings", "model_max_length") if config.has(key)), None)
    chunk = next((key for key in ("mamba_chunk_size", "chunk_size") if config.says(key)), None)
    return Model(
        name=name,
        family=family,
        state=state,
        recurrent_layers=recurrent,
        attention=attention,
        max_model_len=config.size(length or "max_position_embeddings"),
        # where a checkpoint is in float32, vLLM runs it in bfloat16 unless it is told otherwise
        dtype="bfloat16" if weights in ("auto", "float32") else weights,
        state_dtype=_state_dtype(config, family),
        kv_dtype=_kv_dtype(outer.values.get("quantization_config") or config.values.get("quantization_config")),
        # a kernel without chunks of its own (Mamba-1) counts as one of 2048
        chunk=config.size(chunk) if chunk else 2048,
        mtp_layers=config.size("mtp_num_hidden_layers", config.size("num_nextn_predict_layers", 1, 0), 0),
        bounded_gate=family == "kimi-linear" and config.below("linear_attn_config").has("gate_lower_bound"),
        architectures=_architectures(outer),
        assumed=tuple(config.assumed),
    )


def _architectures(outer: Fields) -> tuple[str, ...]:
    return tuple(outer.names("architectures")) if isinstance(outer.values.get("architectures"), list) else ()


def _attention(config: Fields, layers: int, latent: bool) -> Attention:
    heads = config.size("num_attention_heads")
    if latent:
        width = config.size("kv_lora_rank") + config.size("qk_rope_head_dim")
        return Attention(layers, heads, 1, width, latent=True)
    dim = config.size("head_dim") if config.says("head_dim") else config.size("hidden_size", least=heads) // heads
    return Attention(layers, heads, config.size("num_key_value_heads", heads), dim)


def _state_dtype(config: Fields, family: str) -> str:
    """Only these families' configs are asked; a Nemotron-H that says nothing is kept in float32."""
    if family == "nemotron-h":
        return config.dtype("mamba_ssm_cache_dtype", "float32")
    return config.dtype("mamba_ssm_dtype") if family == "qwen3.5" else "auto"


def _kv_dtype(quantization: Any) -> str:
    """Dtype that a quantized checkpoint gives keys and values: ModelOpt's algorithm, compressed-tensors' scheme."""
    if not isinstance(quantization, dict):
        return "auto"
    inner = quantization.get("quantization", quantization)
    inner = inner if isinstance(inner, dict) else {}
    names = ("kv_cache_scheme", "kv_cache_quant_algo")
    found = next((part[name] for name in names for part in (inner, quantization) if part.get(name)), None)
    if isinstance(found, dict):
        bits = found.get("num_bits") if found.get("type") == "float" else None
        return {8: "fp8", 4: "nvfp4"}.get(bits, "auto") if isinstance(bits, int) else "auto"
    return {"fp8": "fp8", "nvfp4": "nvfp4"}.get(found.lower(), "auto") if isinstance(found, str) else "auto"


Layers = tuple[Shape, int, int]
"""One recurrent layer, how many there are, and how many attention layers."""


def _gated_delta(config: Fields) -> Layers:
    state = delta(
        "gated-delta",
        config.size("linear_num_key_heads"),
        config.size("linear_num_value_heads"),
        config.size("linear_key_head_dim"),
        config.size("linear_conv_kernel_dim"),
        value_dim=config.size("linear_value_head_dim"),
    )
    if config.has("layer_types"):
        return state, config.count("layer_types", "linear_attention"), config.count("layer_types", "full_attention")
    layers = config.layers()
    attending = layers // config.size("full_attention_interval")
    return state, layers - attending, attending


def _nemotron_h(config: Fields) -> Layers:
    state = ssd(
        config.size("mamba_num_heads"),
        config.size("mamba_head_dim"),
        config.size("ssm_state_size"),
        config.size("n_groups"),
        config.size("conv_kernel"),
    )
    for key in ("hybrid_override_pattern", "layers_block_type"):
        if config.has(key):
            return state, config.count(key, "M", "mamba"), config.count(key, "*", "attention")
    config.fail("hybrid_override_pattern: found nothing, allowed a letter for each layer (M mamba, * attention)")


def _falcon_h1(config: Fields) -> Layers:
    heads, columns = config.size("mamba_n_heads"), config.size("mamba_d_state")
    wide = config.size("mamba_d_ssm") if config.has("mamba_d_ssm") else _expanded(config)
    if wide != heads * config.size("mamba_d_head"):
        config.fail(f"mamba_d_ssm: found {wide}, allowed mamba_n_heads * mamba_d_head")
    state = ssd(heads, config.size("mamba_d_head"), columns, config.size("mamba_n_groups"), config.size("mamba_d_conv"))
    # both in every layer, side by side
    layers = config.layers()
    return state, layers, layers


def _expanded(config: Fields) -> int:
    return config.size("mamba_expand") * config.size("hidden_size")


def _jamba(config: Fields) -> Layers:
    state = selective_scan(_expanded(config), config.size("mamba_d_state"), config.size("mamba_d_conv"))
    layers, period = config.size("num_hidden_layers"), config.size("attn_layer_period")
    offset = config.size("attn_layer_offset", least=0)
    attending = len(range(offset, layers, period)) if offset < period else 0
    return state, layers - attending, attending


def _kimi_linear(config: Fields) -> Layers:
    linear = config.below("linear_attn_config")
    heads = linear.size("num_heads")
    state = delta("kda", heads, heads, linear.size("head_dim"), linear.size("short_conv_kernel_size"))
    # counted from 1
    recurrent, attending = (linear.places(key, 1, config.layers()) for key in ("kda_layers", "full_attn_layers"))
    if both := sorted({*recurrent} & {*attending}):
        linear.fail(f"kda_layers: found the layer {both[0]}, which is one of full_attn_layers, allowed in one of them")
    return state, len(recurrent), len(attending)


def _lfm2(config: Fields) -> Layers:
    state = short_conv(config.size("conv_dim", config.size("hidden_size")), config.size("conv_L_cache", least=2))
    if config.has("layer_types"):
        return state, config.count("layer_types", "conv"), config.count("layer_types", "full_attention")
    layers = config.layers()
    attending = len(config.places("full_attn_idxs", 0, layers - 1))
    return state, layers - attending, attending


FAMILIES: dict[str, Callable[[Fields], Layers]] = {
    "qwen3-next": _gated_delta,
    "qwen3.5": _gated_delta,
    "nemotron-h": _nemotron_h,
    "falcon-h1": _falcon_h1,
    "jamba": _jamba,
    "kimi-linear": _kimi_linear,
    "lfm2": _lfm2,
}

MODEL_TYPES = {
    "qwen3_next": "qwen3-next",
    "qwen3_5": "qwen3.5",
    "qwen3_5_text": "qwen3.5",
    "qwen3_5_moe": "qwen3.5",
    "qwen3_5_moe_text": "qwen3.5",
    "nemotron_h": "nemotron-h",
    "falcon_h1": "falcon-h1",
    "jamba": "jamba",
    "kimi_linear": "kimi-linear",
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2",
}
"""The family of each ``model_type``; Qwen3.6 calls itself Qwen3.5."""
