"""Inputs in float32: the formulas of the reference, the same in every library, for any block of units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_cases import tokens

from stateat.kernels.draws import bits, scale_tokens
from stateat.kernels.families import FAMILIES, shape
from stateat.kernels.inputs import NumpySource, draw, draw_inputs, stream_keys, total_sum, units
from stateat.kernels.shapes import Shape

IDS = tokens(12).reshape(4, 3)
GVA = Shape("gated-delta", 2, 6, 2, 8, 24, 4, 40)
SHAPES = [*(shape(family, "small*2") for family in FAMILIES if FAMILIES[family].update), GVA]


@pytest.mark.parametrize("found", SHAPES, ids=lambda found: f"{found.family}-{found.heads}")
def test_torch_draws_the_same_inputs(found: Shape) -> None:
    """To the bit, but for the square root and the division of a normalised key."""
    pytest.importorskip("torch")
    from stateat.kernels.torch_draws import TorchSource

    count = found.layers * units(found)
    ours = draw_inputs(found, NumpySource(found, IDS), 0, count)
    theirs = draw_inputs(found, TorchSource(found, IDS, "cpu"), 0, count)
    for one, other in zip(ours, theirs, strict=True):
        if one.dtype == np.uint64:
            assert (one == other.numpy().view(np.uint64)).all()
        else:
            assert one.dtype == np.float32
            np.testing.assert_allclose(other.numpy(), one, rtol=2e-7)


@pytest.mark.parametrize("found", SHAPES, ids=lambda found: f"{found.family}-{found.heads}")
def test_a_block_of_units_has_the_inputs_that_the_whole_has(found: Shape) -> None:
    count = found.layers * units(found)
    whole = draw_inputs(found, NumpySource(found, IDS), 0, count)
    for first, last in [(0, 1), (1, count), (count // 2, count), (count // 2 - 1, count // 2 + 1)]:
        block = draw_inputs(found, NumpySource(found, IDS), first, last)
        for one, other in zip(block, whole, strict=True):
            assert np.broadcast_to(one, other[:, :, first:last].shape).tobytes() == other[:, :, first:last].tobytes()


@given(st.lists(st.integers(-8, 8), min_size=1, max_size=70))
def test_the_sum_by_halving_is_the_sum(values: list[int]) -> None:
    assert total_sum(np.array([values, values], np.float32)).tolist() == [[sum(values)]] * 2


@pytest.mark.parametrize("family", ["gated-delta", "kda"])
def test_keys_have_length_one_and_decays_and_writes_are_fractions(family: str) -> None:
    found = shape(family, "small*2")
    g, k, v, beta = draw_inputs(found, NumpySource(found, IDS), 0, found.layers * found.heads)
    np.testing.assert_allclose((k.astype(np.float64) ** 2).sum(-1), 1, atol=1e-5)
    assert (g <= 0).all() and (g > -0.5).all() and (beta >= 0).all() and (beta < 1).all() and (np.abs(v) <= 1).all()


def test_draws_in_blocks_are_the_draws_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stateat.kernels.inputs.BLOCK", 100)
    found = shape("kda")
    for stream in FAMILIES["kda"].streams:
        keys = stream_keys(found, stream)
        assert (draw(scale_tokens(IDS), keys) == bits(IDS[..., None], keys)).all()
