"""Block sizes and bytes: the published values, and what must hold for any model and any flags."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stateat.kernels.families import DTYPES
from stateat.kernels.shapes import BYTES, delta
from stateat.sim.errors import InputError
from stateat.sim.geometry.derive import derive, fits
from stateat.sim.geometry.layout import Geometry
from stateat.sim.geometry.model import KV_DTYPES, Model, Serving
from stateat.sim.geometry.named import NAMED, named
from stateat.sim.geometry.releases import SIZING, sizing
from stateat.sim.releases.presets import PRESETS

RANKS = (1, 2, 4, 8, 16)


def of(name: str, **flags: object) -> Geometry:
    return derive(named(name), Serving(**flags))  # type: ignore[arg-type]


PUBLISHED = [
    ("qwen3-next", {"tensor_parallel_size": 2}, 548_864, 1_024, 544),
    ("qwen3.6-27b", {}, 3_207_168, 4_096, 784),
    ("qwen3.6-27b", {"kv_cache_dtype": "fp8"}, 3_207_168, 2_048, 1568),
    ("qwen3.6-27b", {"kv_cache_dtype": "fp8", "num_speculative_tokens": 3}, 3_268_608, 2_048, 1600),
    ("qwen3.6-27b", {"kv_cache_dtype": "fp8", "num_speculative_tokens": 7}, 3_350_528, 2_048, 1648),
    (
        "nemotron-nano-9b-v2",
        {"mamba_ssm_cache_dtype": "bfloat16", "mamba_cache_mode": "align"},
        2_695_168,
        4_096,
        672,
    ),
    ("nemotron-nano-9b-v2", {"mamba_cache_mode": "all"}, 5_316_608, 4_096, 1408),
]
"""Met by logs and reports: vLLM PRs 51113 and 54076, issues 24280 and 51094."""


@pytest.mark.parametrize(("name", "flags", "state", "token", "block"), PUBLISHED)
def test_published_values_are_met(name: str, flags: dict[str, object], state: int, token: int, block: int) -> None:
    found = of(name, **flags)
    assert (found.state_bytes, found.token_bytes, found.block_size) == (state, token, block)


def test_the_conv_window_grows_with_the_drafts_where_the_release_widens_it() -> None:
    def grows(name: str, preset: str) -> bool:
        plain = of(name, preset=preset)
        return of(name, preset=preset, num_speculative_tokens=4).conv_bytes > plain.conv_bytes

    first = {name: next((p for p in PRESETS if grows(name, p)), None) for name in NAMED}
    assert first == {
        "qwen3-next": "vllm-0.26.0",
        "qwen3.6-27b": "vllm-0.26.0",
        "qwen3.6-35b-a3b": "vllm-0.26.0",
        "nemotron-nano-9b-v2": "vllm-0.26.0",
        "falcon-h1": "vllm-0.32.0",
        "jamba-v0.1": None,
        "kimi-linear": "vllm-0.27.0",
        "lfm2-1.2b": None,
    }


def test_flashinfers_checkpoints_make_gdn_blocks_multiples_of_64_since_0_33() -> None:
    assert of("qwen3.6-27b", preset="vllm-0.32.0").block_size == 784
    found = of("qwen3.6-27b", preset="vllm-0.33.0")
    assert (found.block_size, found.checkpoint_blocks) == (832, 1)
    triton = of("qwen3.6-27b", preset="vllm-0.33.0", gdn_prefill_backend="triton")
    assert (triton.block_size, triton.checkpoint_blocks) == (784, 0)


def test_a_latent_vector_is_on_every_rank_and_its_blocks_are_multiples_of_128_since_0_27() -> None:
    assert of("kimi-linear", preset="vllm-0.26.0").block_size == 1888
    assert of("kimi-linear").block_size == 1920
    assert of("kimi-linear", tensor_parallel_size=8).token_bytes == of("kimi-linear").token_bytes == 1152


def test_the_mode_is_as_the_release_settles_it() -> None:
    def mode(name: str, preset: str, **flags: object) -> str:
        return of(name, preset=preset, **flags).mode

    assert mode("nemotron-nano-9b-v2", "vllm-0.27.0") == "all"
    assert mode("nemotron-nano-9b-v2", "vllm-0.28.0") == "align"
    assert mode("qwen3-next", "vllm-0.27.0") == "align"
    assert mode("qwen3-next", "vllm-0.27.0", mamba_cache_mode="all") == "align"
    assert mode("qwen3-next", "vllm-0.27.0", mamba_cache_mode="none") == "none"
    assert mode("qwen3-next", "vllm-0.27.0", mamba_cache_mode="none", enable_prefix_caching=True) == "align"
    assert mode("qwen3-next", "vllm-0.27.0", mamba_cache_mode="align", enable_prefix_caching=False) == "none"
    with pytest.raises(InputError, match=r"--mamba-cache-mode: found 'all', allowed none, align: vllm-0.32.0"):
        of("nemotron-nano-9b-v2", preset="vllm-0.32.0", mamba_cache_mode="all")


def test_a_request_pins_two_states_and_one_for_each_draft() -> None:
    found = of("qwen3.6-27b", num_speculative_tokens=3)
    assert found.state_blocks(1) == found.state_blocks(100_000) == 3 * (2 + 3)
    assert of("qwen3.6-27b", num_speculative_tokens=3, mamba_cache_mode="none").state_blocks(9) == 3 * (1 + 3)
    every = of("nemotron-nano-9b-v2", mamba_cache_mode="all")
    assert every.state_blocks(1408 * 3 + 1) == 7 * 4


def test_layers_are_grouped_as_the_pool_does() -> None:
    grouped = {
        name: (of(name).layers_per_group, of(name).attention_groups, of(name).recurrent_groups) for name in NAMED
    }
    assert grouped["qwen3.6-27b"] == (16, 1, 3)
    assert grouped["falcon-h1"] == (44, 1, 1)
    assert grouped["lfm2-1.2b"] == (6, 1, 2)
    # the draft module's layer: 17 attention layers; a drafter without layers of its own adds none
    assert of("qwen3.6-27b", num_speculative_tokens=1).layers_per_group == 17
    assert of("qwen3.6-27b", num_speculative_tokens=1, speculative_method="ngram").layers_per_group == 16


def test_what_does_not_divide_is_refused_with_what_does() -> None:
    with pytest.raises(InputError, match=r"--tensor-parallel-size: found 3, allowed for qwen3-next 1, 2, 4, 8, 16: "):
        of("qwen3-next", tensor_parallel_size=3)
    with pytest.raises(InputError, match="--block-size: found 24, allowed a multiple of 16"):
        of("qwen3-next", block_size=24)
    with pytest.raises(InputError, match="--mamba-ssm-cache-dtype: found 'float16', allowed auto, float32, bfloat16"):
        of("kimi-linear", preset="vllm-0.32.0", mamba_ssm_cache_dtype="float16")
    with pytest.raises(InputError, match="--kv-cache-dtype: found 'nvfp4'"):
        of("kimi-linear", kv_cache_dtype="nvfp4")
    with pytest.raises(InputError, match=r"--preset: found 'vllm-0.33', allowed .*vllm-0.33.0"):
        of("kimi-linear", preset="vllm-0.33")
    with pytest.raises(InputError, match=r"--model: found 'qwen3.6', allowed qwen3-next, "):
        named("qwen3.6")


def test_every_preset_has_a_row_or_that_of_the_one_before() -> None:
    same = {"vllm-0.27.1": "vllm-0.27.0", "vllm-0.31.0": "vllm-0.30.0"}
    assert [*SIZING] == [preset for preset in PRESETS if preset not in same]
    assert all(sizing(preset) is sizing(before) for preset, before in same.items())


models = st.sampled_from(list(NAMED.values()))
servings = st.builds(
    Serving,
    preset=st.sampled_from(list(PRESETS)),
    tensor_parallel_size=st.sampled_from(RANKS),
    num_speculative_tokens=st.integers(0, 16),
    dtype=st.sampled_from(("auto", *DTYPES)),
    kv_cache_dtype=st.sampled_from([name for name in ("auto", *KV_DTYPES) if name != "nvfp4"]),
    mamba_cache_dtype=st.sampled_from(("auto", *DTYPES)),
    mamba_ssm_cache_dtype=st.sampled_from(("auto", "float32", "bfloat16")),
    mamba_cache_mode=st.sampled_from((None, "none", "align")),
    block_size=st.sampled_from((None, 16, 64, 1600)),
    gdn_prefill_backend=st.sampled_from(("auto", "triton")),
)


@given(models, servings)
def test_a_page_holds_a_state_and_no_block_less_would(model: Model, serving: Serving) -> None:
    assume(fits(model, serving.tensor_parallel_size))
    found = derive(model, serving)
    assert found.block_size % 16 == 0
    assert found.block_size % found.granularity == 0
    assert found.block_size % (serving.block_size or 16) == 0
    assert found.page_bytes >= found.state_bytes > 0
    assert (found.block_size - found.granularity) * found.token_bytes < found.state_bytes
    assert found.padding < found.granularity * found.token_bytes
    assert found.attention_groups * found.layers_per_group >= model.attention.layers
    assert found.recurrent_groups * found.layers_per_group >= model.recurrent_layers


@given(models, servings, st.integers(1, 8))
def test_blocks_grow_with_the_state(model: Model, serving: Serving, more: int) -> None:
    assume(fits(model, serving.tensor_parallel_size))
    small, large = derive(model, serving), derive(model, replace(serving, num_speculative_tokens=16 + more))
    assert large.state_bytes >= small.state_bytes
    assert large.block_size >= small.block_size
    wide = derive(model, replace(serving, mamba_cache_dtype="float32", mamba_ssm_cache_dtype="float32"))
    assert wide.block_size >= derive(model, replace(serving, mamba_cache_dtype="bfloat16")).block_size


@given(st.integers(1, 4), st.integers(1, 8), st.sampled_from((64, 128)), servings)
def test_ranks_change_no_block_where_all_is_split_evenly(groups: int, heads: int, dim: int, serving: Serving) -> None:
    """State and token shrink alike, so their ratio stays, until there are fewer KV heads than ranks."""
    base = NAMED["qwen3-next"]
    wide = replace(
        base,
        state=delta("gated-delta", 16 * groups, 16 * groups * heads, dim),
        attention=replace(base.attention, heads=16, kv_heads=16),
    )
    one = derive(wide, replace(serving, tensor_parallel_size=1))
    many = derive(wide, serving)
    assert many.block_size == one.block_size
    assert many.state_bytes * serving.tensor_parallel_size == one.state_bytes
    assert many.token_bytes * serving.tensor_parallel_size == one.token_bytes


@given(models, servings)
def test_a_state_without_drafts_on_one_rank_is_the_shape_of_the_kernels(model: Model, serving: Serving) -> None:
    found = derive(model, replace(serving, tensor_parallel_size=1, num_speculative_tokens=0))
    assert found.state_bytes == model.state.bytes(found.state_dtype, found.conv_dtype)
    assert set(BYTES) >= {found.state_dtype, found.conv_dtype}


def test_repeated_kv_heads_stop_shrinking() -> None:
    two, four = of("qwen3-next", tensor_parallel_size=2), of("qwen3-next", tensor_parallel_size=4)
    assert four.token_bytes == two.token_bytes
    assert four.state_bytes * 2 == two.state_bytes


def test_a_single_group_of_b_and_c_is_repeated_on_each_rank() -> None:
    # falcon-h1: 24 heads of 128, one group of 256 columns, 3 inputs, bfloat16
    for ranks in (1, 2, 4):
        assert of("falcon-h1", tensor_parallel_size=ranks).conv_bytes == 3 * (3072 // ranks + 2 * 256) * 2


def test_sizing_is_read_by_name() -> None:
    assert sizing("vllm-0.33.0").gdn_checkpoint == 64


@pytest.mark.parametrize(("recurrent", "wanted"), [(5, (5, 1, 1)), (6, (4, 1, 2)), (8, (4, 1, 2)), (9, (4, 1, 3))])
def test_groups_are_padded_to_the_larger_kind_below_one_and_a_half_times_the_smaller(
    recurrent: int, wanted: tuple[int, int, int]
) -> None:
    """Layers of a group, attention groups, recurrent groups (vLLM ``_get_kv_cache_groups_uniform_page_size``)."""
    model = named("qwen3.6-27b")
    model = replace(model, attention=replace(model.attention, layers=4), recurrent_layers=recurrent)
    found = derive(model, Serving())
    assert (found.layers_per_group, found.attention_groups, found.recurrent_groups) == wanted
