"""Draws are the function that their docstring says, in every library, on every machine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.kernels import draws

TOKENS = st.integers(-(2**40), 2**40)
LAYERS = st.integers(0, 200)
STREAMS = st.integers(0, 63)
INDICES = st.integers(0, 2**31)
WORDS = st.integers(0, 2**32 - 1)


def plain_mix(x: int) -> int:
    x ^= x >> 16
    x = x * 0x7FEB352D % 2**32
    x ^= x >> 15
    x = x * 0x846CA68B % 2**32
    return x ^ (x >> 16)


def plain_key(layer: int, stream: int, index: int) -> int:
    return plain_mix(plain_mix((layer * 64 + stream + 1) % 2**32) ^ (index * 0x9E3779B1 % 2**32))


def plain_bits(token: int, key: int) -> int:
    return plain_mix((token * 0x85EBCA77 % 2**32) ^ key)


def test_the_mixer_gives_these_values() -> None:
    mixed = draws.mix(np.array([0, 1, 0xFFFFFFFF, 12345], np.uint32))
    assert [hex(x) for x in mixed] == ["0x0", "0x688990c0", "0x6768824a", "0x912efcf7"]


def test_keys_and_bits_have_these_values() -> None:
    assert [hex(x) for x in draws.key(0, 0, np.arange(3))] == ["0x58f54975", "0x11704d35", "0x750a8343"]
    assert [hex(x) for x in draws.key(3, 5, np.arange(3))] == ["0x2c864c25", "0x273ee5fb", "0x8e559072"]
    drawn = draws.bits(np.array([-1, 0, 1, 49999]), draws.key(0, 1, 7))
    assert [hex(x) for x in drawn] == ["0x731f1d1d", "0x8ca080c7", "0x178a5313", "0x49c7eb32"]
    assert hex(draws.wide(17, 1, 2, 3).item()) == "0xddfff35c44d4b779"


@given(TOKENS, LAYERS, STREAMS, INDICES)
def test_draws_are_the_formula_in_whole_numbers(token: int, layer: int, stream: int, index: int) -> None:
    key = draws.key(layer, stream, index)
    assert int(key) == plain_key(layer, stream, index)
    assert int(draws.bits(token, key)) == plain_bits(token, int(key))


@given(TOKENS, LAYERS, STREAMS, st.integers(0, 2**29))
def test_wide_draws_are_two_neighbours(token: int, layer: int, stream: int, index: int) -> None:
    low, high = (plain_bits(token, plain_key(layer, stream, 2 * index + part)) for part in (0, 1))
    assert int(draws.wide(token, layer, stream, index)) == low | high << 32


def test_a_token_is_taken_modulo_two_to_the_32() -> None:
    keys = draws.key(0, 1, np.arange(50))
    assert (draws.bits(-1, keys) == draws.bits(2**32 - 1, keys)).all()
    assert (draws.bits(2**32 + 5, keys) == draws.bits(5, keys)).all()
    assert (draws.bits(-1, keys) != draws.bits(0, keys)).any()


@given(st.lists(WORDS, min_size=1, max_size=20))
def test_unit_and_half_are_exact(words: list[int]) -> None:
    drawn = np.array(words, np.uint32)
    assert draws.unit(drawn).dtype == draws.half(drawn).dtype == np.float32
    assert draws.unit(drawn).tolist() == [(w >> 8) * 2.0**-23 - 1 for w in words]
    assert draws.half(drawn).tolist() == [(w >> 8) * 2.0**-24 for w in words]


def test_streams_layers_entries_and_tokens_draw_apart() -> None:
    entries = np.arange(200)
    vectors = [
        draws.unit(draws.bits(token, draws.key(layer, stream, entries)))
        for token in (0, 1, 49_999)
        for layer in (0, 1)
        for stream in range(6)
    ]
    correlations = np.corrcoef(np.stack(vectors)) - np.eye(len(vectors))
    # 630 pairs of 200 entries: five standard deviations
    assert np.abs(correlations).max() < 5 / np.sqrt(200)
    assert abs(np.mean(vectors)) < 5 * np.sqrt(1 / 3 / np.size(vectors))


@given(st.lists(TOKENS, min_size=1, max_size=6), LAYERS, STREAMS)
def test_torch_draws_the_same_bits(tokens: list[int], layer: int, stream: int) -> None:
    torch = pytest.importorskip("torch")
    from stateat.kernels import torch_draws

    ids, keys = np.array(tokens), draws.key(layer, stream, np.arange(40))
    expected = draws.bits(ids[:, None], keys)
    found = torch_draws.bits(torch.from_numpy(ids)[:, None], torch.from_numpy(keys.astype(np.int64)))
    assert (found.numpy() == expected).all()
    assert (torch_draws.unit(found).numpy() == draws.unit(expected)).all()
    assert (torch_draws.half(found).numpy() == draws.half(expected)).all()
