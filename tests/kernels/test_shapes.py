"""Shapes have the sizes that the models' states have in serving."""

from __future__ import annotations

import pytest

from stateat.kernels.families import FAMILIES, shape

PUBLISHED = [
    ("gated-delta", "qwen3-next", "float32", 2_146_304),
    ("gated-delta", "qwen3-next", "bfloat16", 1_097_728),
    ("gated-delta", "qwen3.6-27b", "float32", 3_207_168),
    ("kda", "kimi-linear", "float32", 2_170_880),
    ("ssd", "nemotron-nano-9b-v2", "float32", 5_316_608),
    ("ssd", "nemotron-nano-9b-v2", "bfloat16", 2_695_168),
    ("ssd", "falcon-h1", "float32", 3_167_232),
    ("ssd", "falcon-h1", "bfloat16", 1_594_368),
    ("selective-scan", "jamba-v0.1", "float32", 573_440),
    ("selective-scan", "jamba-v0.1", "bfloat16", 311_296),
    ("short-conv", "lfm2-1.2b", "float32", 8_192),
]
"""Bytes of a layer's state of one request by vLLM's own rules; the conv part is stored in bfloat16."""


@pytest.mark.parametrize(("family", "preset", "dtype", "size"), PUBLISHED)
def test_a_layer_of_a_model_has_its_published_bytes(family: str, preset: str, dtype: str, size: int) -> None:
    assert shape(family, preset).bytes(dtype, "bfloat16") == size
    assert shape(family, f"{preset}*7").bytes(dtype, "bfloat16") == 7 * size


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_small_preset_within_4_kib(family: str) -> None:
    assert shape(family) == shape(family, "small") == shape(family, "small*1")
    assert shape(family).bytes() <= 4096


def test_components_are_conv_and_recurrent_or_one_of_them() -> None:
    assert all(name == family.name for name, family in FAMILIES.items())
    assert list(shape("ring").components) == ["recurrent"]
    assert list(shape("short-conv").components) == ["conv"]
    for family in ("gated-delta", "kda", "ssd", "selective-scan"):
        for preset in FAMILIES[family].widths:
            found = shape(family, f"{preset}*3")
            assert found.components == {
                "conv": (3, found.conv_width - 1, found.conv_channels),
                "recurrent": (3, found.heads, found.rows, found.columns),
            }
            assert found.heads % found.key_heads == 0


def test_the_convolution_runs_over_what_the_layer_projects() -> None:
    assert shape("gated-delta", "qwen3-next").conv_channels == 2 * 16 * 128 + 32 * 128
    assert shape("ssd", "nemotron-nano-9b-v2").conv_channels == 128 * 80 + 2 * 8 * 128


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no state family 'gdn'; there are ring, gated-delta, "):
        shape("gdn")
    for wrong in ("big", "small*0", "small*", "small*x", "*2", ""):
        with pytest.raises(ValueError, match=r"of kda; there are small, kimi-linear, each with \*N for N layers"):
            shape("kda", wrong)
    with pytest.raises(ValueError, match="no dtype 'fp8'; there are float32"):
        shape("kda").bytes("fp8")
