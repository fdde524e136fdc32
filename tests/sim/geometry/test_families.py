"""Config files: each family's fields say what the named models say, and what is wrong with one is told in a line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_configs import CONFIGS, config

from stateat.sim.errors import InputError
from stateat.sim.geometry.defaults import DEFAULTS
from stateat.sim.geometry.families import FAMILIES, MODEL_TYPES, model_of, read
from stateat.sim.geometry.named import NAMED


def parsed(values: dict[str, Any]) -> Any:
    return model_of(values, "config.json", "it")


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_config_file_is_the_named_model(name: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIGS[name]))
    assert read(file).name == tmp_path.name
    expected = NAMED[name]
    found = replace(read(file), name=name)
    # no family asks a KDA model for a draft module, and its config says that it has none
    assert found == replace(expected, mtp_layers=found.mtp_layers)


def test_every_family_has_a_config_here_and_a_model_type() -> None:
    assert {parsed(config(name)).family for name in CONFIGS} == set(FAMILIES) == set(MODEL_TYPES.values())


def test_layers_are_counted_whichever_way_they_are_listed() -> None:
    qwen = config("qwen3.6-27b")
    inner = qwen["text_config"]
    del inner["full_attention_interval"]
    inner["layer_types"] = (["linear_attention"] * 3 + ["full_attention"]) * 16
    assert parsed(qwen) == parsed(config("qwen3.6-27b"))
    nemotron = config("nemotron-nano-9b-v2")
    letters = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
    nemotron["layers_block_type"] = [letters[c] for c in nemotron.pop("hybrid_override_pattern")]
    assert parsed(nemotron) == parsed(config("nemotron-nano-9b-v2"))
    lfm2 = config("lfm2-1.2b")
    attending = lfm2.pop("full_attn_idxs")
    lfm2["layer_types"] = ["full_attention" if i in attending else "conv" for i in range(16)]
    assert parsed(lfm2) == parsed(config("lfm2-1.2b"))
    falcon = config("falcon-h1")
    falcon["mamba_d_ssm"], falcon["mamba_expand"] = None, 1
    assert parsed(falcon) == parsed(config("falcon-h1"))


def test_a_multimodal_models_fields_lie_deeper() -> None:
    nested = {"model_type": "NemotronH_Nano_VL_V2", "llm_config": config("nemotron-nano-9b-v2")}
    assert parsed(nested) == parsed(config("nemotron-nano-9b-v2"))


@pytest.mark.parametrize(
    ("quantization", "dtype"),
    [
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quant_method": "modelopt", "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}, "fp8"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, "auto"),
        ({"quant_method": "fp8"}, "auto"),
        (None, "auto"),
    ],
)
def test_a_quantized_checkpoint_says_what_its_keys_are(quantization: Any, dtype: str) -> None:
    assert parsed({**config("qwen3-next"), "quantization_config": quantization}).kv_dtype == dtype


def test_dtypes_are_the_configs() -> None:
    assert parsed({**config("jamba-v0.1"), "torch_dtype": "torch.float16"}).dtype == "float16"
    assert parsed({**config("jamba-v0.1"), "torch_dtype": "float32"}).dtype == "bfloat16"
    nemotron = {**config("nemotron-nano-9b-v2"), "mamba_ssm_cache_dtype": "float16"}
    assert parsed(nemotron).state_dtype == "float16"
    assert parsed(config("qwen3-next")).state_dtype == "auto"


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_missing_field_is_named(name: str) -> None:
    """Every field counts, or has a default that is the one of its family."""
    whole = config(name)
    inner = whole.get("text_config", whole)
    missed = []
    for key in list(inner):
        value = inner.pop(key)
        try:
            parsed(whole)
        except InputError as error:
            assert key in str(error) or key in ("num_hidden_layers", "layer_types"), error
            missed.append(key)
        inner[key] = value
    assert len(missed) >= 3


@pytest.mark.parametrize(
    ("name", "key", "field", "value"),
    [
        ("nemotron-nano-9b-v2", "chunk_size", "chunk", 128),
        ("nemotron-nano-9b-v2", "max_position_embeddings", "max_model_len", 4096),
        ("falcon-h1", "mamba_chunk_size", "chunk", 256),
        ("falcon-h1", "max_position_embeddings", "max_model_len", 8192),
        ("jamba-v0.1", "max_position_embeddings", "max_model_len", 262_144),
        ("qwen3-next", "max_position_embeddings", "max_model_len", 32_768),
        ("lfm2-1.2b", "max_position_embeddings", "max_model_len", 128_000),
        ("nemotron-nano-9b-v2", "torch_dtype", "dtype", "bfloat16"),
    ],
)
def test_a_silent_config_is_its_classs_and_it_is_told(name: str, key: str, field: str, value: object) -> None:
    """transformers 5.24: the defaults of each family's config class."""
    values = config(name)
    assert parsed(values).assumed == ()
    del values[key]
    found = parsed(values)
    assert getattr(found, field) == value
    assert found.assumed == (f"{key.removeprefix('torch_')} {value}",)


@pytest.mark.parametrize(
    ("name", "heads", "width"),
    [
        ("qwen3-next", 2, 256),
        ("qwen3.6-27b", 4, 256),
        ("nemotron-nano-9b-v2", 8, 128),
        ("falcon-h1", 8, 3072 // 12),
        ("jamba-v0.1", 8, 4096 // 32),
        ("lfm2-1.2b", 8, 2048 // 32),
    ],
)
def test_a_silent_configs_heads_are_its_classs_and_null_is_what_vllm_makes_of_it(
    name: str, heads: int, width: int
) -> None:
    values = config(name)
    inner = values.get("text_config", values)
    for key in ("num_key_value_heads", "head_dim"):
        inner.pop(key, None)
    found = parsed(values)
    assert (found.attention.kv_heads, found.attention.head_dim) == (heads, width)
    assert f"num_key_value_heads {heads}" in found.assumed
    inner |= {"num_key_value_heads": None, "head_dim": None}
    found = parsed(values)
    assert found.attention.kv_heads == inner["num_attention_heads"]
    assert found.attention.head_dim == inner["hidden_size"] // inner["num_attention_heads"]
    assert found.assumed == ()


def test_every_model_type_has_a_class() -> None:
    assert set(DEFAULTS) == set(MODEL_TYPES)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("linear_num_key_heads", "16", 'linear_num_key_heads: found "16", allowed a whole number from 1 to'),
        ("linear_num_key_heads", True, "linear_num_key_heads: found true, allowed a whole number"),
        ("linear_num_key_heads", 0, "linear_num_key_heads: found 0, allowed a whole number from 1"),
        ("linear_num_key_heads", 16777217, "found 16777217, allowed a whole number from 1 to 16777216"),
        ("num_attention_heads", 1e3, "num_attention_heads: found 1000.0, allowed a whole number"),
        ("layer_types", 3, "layer_types: found 3, allowed a list of names"),
        ("dtype", "int8", 'dtype: found "int8", allowed float32, bfloat16, float16'),
        ("model_type", "llama", 'model_type: found "llama", allowed qwen3_next, '),
        ("model_type", None, "model_type: found nothing, allowed qwen3_next, "),
        ("full_attention_interval", 100, "found no attention layer, allowed a hybrid model"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_allowed(key: str, value: object, text: str) -> None:
    with pytest.raises(InputError) as error:
        parsed({**config("qwen3-next"), key: value})
    assert str(error.value).startswith("config.json: ")
    assert text in str(error.value)


def test_a_field_inside_a_mapping_is_named_with_it() -> None:
    kimi = config("kimi-linear")
    del kimi["linear_attn_config"]["head_dim"]
    with pytest.raises(InputError, match=r"config.json: linear_attn_config: head_dim: found nothing"):
        parsed(kimi)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found no JSON"),
        ("{", "found no JSON"),
        ("[1, 2]", r"found \[1, 2\], allowed a JSON object"),
        ("[" * 100_000, "found no JSON"),
        ("\xff", "found no JSON"),
    ],
)
def test_what_is_no_config_file_is_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=said):
        read(file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "config.json")
    with pytest.raises(InputError, match="is a directory, allowed a model"):
        read(tmp_path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(list(CONFIGS)), st.data())
def test_any_value_of_any_field_is_taken_or_refused_in_one_line(name: str, data: st.DataObject) -> None:
    values = config(name)
    inner = values.get("text_config", values)
    inner[data.draw(st.sampled_from([*inner, "quantization_config", "text_config"]))] = data.draw(json_values)
    try:
        parsed(values)
    except InputError as error:
        assert "\n" not in str(error)
