"""The float64 recurrences against what can be said of them without computing one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stateat.kernels.draws import CONV, key, unit
from stateat.kernels.draws import bits as draw_bits
from stateat.kernels.families import FAMILIES, shape
from stateat.kernels.reference import STEPS, absorb

TOKENS = np.array([7, 49_999, 7, -1, 0, 12])


@pytest.mark.parametrize("family", FAMILIES)
def test_absorbing_is_a_homomorphism(family: str) -> None:
    found = shape(family, "small*2")
    whole = absorb(found, TOKENS)
    for cut in range(len(TOKENS) + 1):
        parts = absorb(found, TOKENS[cut:], absorb(found, TOKENS[:cut]))
        assert all((parts[name] == whole[name]).all() for name in whole)


@pytest.mark.parametrize("family", sorted(STEPS))
def test_the_first_token_writes_a_matrix_of_rank_one_in_each_head(family: str) -> None:
    first = absorb(shape(family), TOKENS[:1])["recurrent"].astype(np.float64)
    if family != "ring":
        assert {int(np.linalg.matrix_rank(head)) for head in first[0]} == {1}
    assert (first != 0).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_absorb_apart(family: str) -> None:
    both, one = absorb(shape(family, "small*2"), TOKENS), absorb(shape(family), TOKENS)
    for name, array in both.items():
        assert (array[0] == one[name][0]).all()
        assert (array[1] != array[0]).any()


def test_a_delta_rule_without_decay_recalls_the_last_value_that_it_wrote_fully() -> None:
    # k.S after the write is (1 - beta |k|^2) k.S + beta |k|^2 v, and here |k| is 1 to within 1e-6
    from stateat.kernels import reference

    found = replace(shape("gated-delta"), heads=1)
    k = np.random.default_rng(0).normal(size=(1, found.rows))
    k /= np.linalg.norm(k)
    before, v = np.ones((1, found.rows, found.columns)), np.arange(found.columns, dtype=np.float64)[None]
    after = reference._delta(before, k, v, np.ones(1))
    np.testing.assert_allclose(np.einsum("hkv,hk->hv", after, k), v, atol=1e-12)


def test_value_heads_of_a_key_head_share_its_key() -> None:
    first = absorb(shape("gated-delta"), TOKENS[:1])["recurrent"][0]
    ratios = first[0][:, :1] / first[1][:, :1]
    np.testing.assert_allclose(ratios, ratios[0, 0], rtol=1e-12)


def test_the_ring_never_makes_one_state_of_two() -> None:
    found = shape("ring")
    one = absorb(found, TOKENS)["recurrent"]
    other = one.copy()
    other[0, 0, 3, 5] ^= np.uint64(1) << np.uint64(63)
    again = [absorb(found, np.arange(200), {"recurrent": state})["recurrent"] for state in (one, other)]
    assert (again[0] != again[1]).any()


@pytest.mark.parametrize("family", ["gated-delta", "short-conv"])
def test_the_conv_state_is_the_last_inputs_after_zeros(family: str) -> None:
    found = shape(family)
    keys = key(0, CONV, np.arange(found.conv_channels))
    for count in range(6):
        rows = [np.zeros(found.conv_channels)] * 10 + [unit(draw_bits(int(t), keys)) for t in TOKENS[:count]]
        assert (absorb(found, TOKENS[:count])["conv"][0] == np.stack(rows[1 - found.conv_width :])).all()
