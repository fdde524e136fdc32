"""Any mapping as a config, under any flags: all sizes are positive, or one message says what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_configs import CONFIGS, config

from stateat.sim.errors import InputError
from stateat.sim.geometry.derive import derive
from stateat.sim.geometry.example import complaints, options
from stateat.sim.geometry.families import MODEL_TYPES, model_of
from stateat.sim.geometry.layout import Geometry
from stateat.sim.geometry.model import KV_DTYPES, MODES, Serving
from stateat.sim.geometry.remarks import remarks
from stateat.sim.releases.presets import PRESETS
from stateat.sim.report.terminal.geometry import to_json

KEYS = sorted({key for values in CONFIGS.values() for key in values.get("text_config", values)})
widths = st.integers(-1, 20) | st.sampled_from([32, 64, 4096, 4097, 1 << 24, 1 << 40])
values = st.one_of(
    widths,
    st.none() | st.booleans() | st.floats() | st.text(max_size=3),
    st.lists(st.integers(-1, 20), max_size=6),
    st.lists(st.sampled_from(["linear_attention", "full_attention", "conv", "mamba", "attention"]), max_size=4),
    st.dictionaries(st.sampled_from(KEYS), widths, max_size=3),
)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """A published one with some fields changed, or fields at random."""
    if draw(st.integers(0, 4)) == 0:
        kind = {"model_type": draw(st.sampled_from(list(MODEL_TYPES)))}
        return kind | draw(st.dictionaries(st.sampled_from(KEYS), values, max_size=12))
    whole = config(draw(st.sampled_from(list(CONFIGS))))
    parts = [part for part in (whole, *whole.values()) if isinstance(part, dict)]
    for _ in range(draw(st.integers(1, 3))):
        part = draw(st.sampled_from(parts))
        part[draw(st.sampled_from(list(part)))] = draw(values)
    if draw(st.booleans()):
        whole["quantization_config"] = {"kv_cache_quant_algo": draw(st.sampled_from(["FP8", "NVFP4"]))}
    return whole


@st.composite
def flags(draw: st.DrawFn) -> Serving:
    return Serving(
        preset=draw(st.sampled_from(list(PRESETS))),
        tensor_parallel_size=draw(st.sampled_from([1, 1, 2, 3, 1024])),
        num_speculative_tokens=draw(st.sampled_from([0, 1, 1024])),
        kv_cache_dtype=draw(st.sampled_from(["auto", *KV_DTYPES])),
        mamba_cache_mode=draw(st.sampled_from([None, *MODES])),
        block_size=draw(st.sampled_from([None, 1, 16, 32, 1 << 30])),
        mamba_block_size=draw(st.sampled_from([None, 1, 1 << 30])),
        prefix_match_unit=draw(st.sampled_from([None, 1, 16])),
    )


def sizes(found: Geometry) -> list[int]:
    return [
        found.state_bytes,
        found.token_bytes,
        found.granularity,
        found.block_size,
        found.page_bytes,
        found.block_bytes,
        found.mamba_block_size,
        found.max_model_len,
        found.layers_per_group,
        found.attention_groups,
        found.recurrent_groups,
        found.state_blocks(1),
        found.attention_blocks(1),
    ]


@given(configs(), flags())
def test_every_size_is_positive_or_one_message_says_what_is_wrong(given: dict[str, Any], serving: Serving) -> None:
    try:
        found = derive(model_of(given, "config.json", "it"), serving)
        assert min(sizes(found)) > 0
        assert min(found.conv_bytes, found.recurrent_bytes, found.padding) >= 0
        engine = options(found)
        list(complaints(found))
        to_json(found, None, engine.hash_unit, remarks(found, None, engine.hash_unit))
    except InputError as error:
        assert len(str(error)) < 1000
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("lfm2-1.2b", {"hidden_size": 1}, "hidden_size: found 1, allowed a whole number from 32"),
        ("lfm2-1.2b", {"num_hidden_layers": 1}, "full_attn_idxs: found the layer 2, allowed those of the model, 0"),
        ("lfm2-1.2b", {"full_attn_idxs": [1, 1]}, "full_attn_idxs: found [1, 1], allowed each layer once"),
        ("lfm2-1.2b", {"full_attn_idxs": [True]}, "full_attn_idxs: found [true], allowed a list of layer numbers"),
        ("lfm2-1.2b", {"conv_L_cache": 1}, "conv_L_cache: found 1, allowed a whole number from 2"),
        ("lfm2-1.2b", {"num_hidden_layers": 4097}, "num_hidden_layers: found 4097, allowed a whole number from 1"),
        ("lfm2-1.2b", {"layer_types": ["conv"] * 5000}, "layer_types: found 5,000 layers, allowed at most 4096"),
        ("kimi-linear", {"num_hidden_layers": 3}, "kda_layers: found the layer 5, allowed those of the model, 1 to 3"),
    ],
)  # fmt: skip
def test_fields_that_contradict_each_other_are_named(name: str, change: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as error:
        model_of(config(name) | change, "config.json", "it")
    assert text in str(error.value)


def test_a_layer_is_of_one_kind() -> None:
    kimi = config("kimi-linear")
    kimi["linear_attn_config"]["kda_layers"][0] = 4
    with pytest.raises(InputError, match="kda_layers: found the layer 4, which is one of full_attn_layers"):
        model_of(kimi, "config.json", "it")


def test_packed_keys_want_heads_that_can_be_packed() -> None:
    with pytest.raises(InputError, match="found 'nvfp4' with heads of 8, allowed with a multiple of 16"):
        derive(model_of(config("qwen3-next") | {"head_dim": 8}, "c", "it"), Serving(kv_cache_dtype="nvfp4"))


def test_more_groups_than_a_scenario_can_say_are_counted() -> None:
    many = config("lfm2-1.2b") | {"num_hidden_layers": 200, "full_attn_idxs": [3]}
    with pytest.raises(InputError, match="it: found 200 groups of 1 layers, allowed at most 64"):
        options(derive(model_of(many, "c", "it"), Serving()))
