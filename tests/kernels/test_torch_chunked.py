"""Chunk by chunk: as right as token by token, but with bits that a split within a chunk does change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state_cases import at, distance, in_pieces, same, tokens, truths

pytest.importorskip("torch")

from stateat.kernels import torch_chunked
from stateat.kernels.backends import states_at
from stateat.kernels.families import CHUNKED, shape
from stateat.kernels.reference import absorb
from stateat.kernels.shapes import Shape
from stateat.kernels.work import Work

GVA = Shape("gated-delta", 2, 6, 2, 8, 24, 4, 40)


def shapes_of(family: str) -> list[Shape]:
    return [shape(family), shape(family, "small*2"), *([GVA] if family == "gated-delta" else [])]


@pytest.mark.parametrize("family", CHUNKED)
@pytest.mark.parametrize("chunk", [1, 16, 63, 64, 128, 256])
def test_states_are_within_4e_6_of_float64(family: str, chunk: int) -> None:
    """Measured: at most 1.5e-6 with chunks of 256, 4e-7 with 64: the sums of log decays grow with the chunk."""
    for found in shapes_of(family):
        ids = tokens(300)
        offsets = (0, 1, 63, 64, 65, 130, 256, 300)
        states = states_at(found, [Work(ids, offsets)], form="chunked", chunk=chunk)[0]
        for offset, state, truth in zip(offsets, states, truths(found, tuple(ids), offsets), strict=True):
            assert (state["conv"] == truth["conv"]).all()
            if offset == 0:
                assert not state["recurrent"].any()
            else:
                assert distance(state["recurrent"], truth["recurrent"]) < 4e-6


@pytest.mark.parametrize("family", CHUNKED)
@pytest.mark.parametrize(("length", "cuts"), [(64, [1]), (64, [30]), (64, [63]), (128, [64, 100]), (130, [65])])
def test_a_split_within_a_chunk_changes_the_bits(family: str, length: int, cuts: list[int]) -> None:
    """Looked at soon after: layers forget, and 128 tokens later the fastest heads have the same bits again."""
    for found in shapes_of(family):
        ids = tokens(length)
        whole = at(found, ids, form="chunked")
        split = in_pieces(found, ids, cuts, form="chunked")
        assert not same(split, whole)
        assert 0 < distance(split["recurrent"], whole["recurrent"]) < 2e-6


@pytest.mark.parametrize("family", CHUNKED)
@settings(max_examples=15)
@given(
    chunk=st.sampled_from([16, 64]),
    cuts=st.lists(st.integers(0, 12), max_size=4),
    length=st.sampled_from([63, 65, 130, 192]),
)
def test_a_split_between_chunks_changes_no_bit(family: str, chunk: int, cuts: list[int], length: int) -> None:
    found, ids = shape(family), tokens(length)
    aligned = [cut * chunk for cut in cuts if cut * chunk <= length]
    whole = at(found, ids, form="chunked", chunk=chunk)
    assert same(in_pieces(found, ids, aligned, form="chunked", chunk=chunk), whole)


@pytest.mark.parametrize("family", CHUNKED)
@settings(max_examples=15)
@given(offsets=st.lists(st.integers(0, 130), min_size=1, max_size=6, unique=True))
def test_other_offsets_change_no_bit(family: str, offsets: list[int]) -> None:
    found, ids = shape(family), tokens(130)
    together = states_at(found, [Work(ids, tuple(sorted(offsets)))], form="chunked")[0]
    for offset, state in zip(sorted(offsets), together, strict=True):
        assert same(state, at(found, ids[:offset], form="chunked"))


@pytest.mark.parametrize("family", CHUNKED)
@settings(max_examples=15)
@given(lengths=st.lists(st.sampled_from([0, 1, 63, 64, 65, 130]), min_size=2, max_size=7))
def test_the_rest_of_the_batch_changes_no_bit(family: str, lengths: list[int]) -> None:
    found = shape(family)
    works = [Work(tokens(length, seed=number), (length,)) for number, length in enumerate(lengths)]
    for work, (state,) in zip(works, states_at(found, works, form="chunked"), strict=True):
        assert same(state, at(found, work.tokens, form="chunked"))


@pytest.mark.parametrize("family", CHUNKED)
def test_the_form_is_another_arithmetic_than_the_sequential_one(family: str) -> None:
    found, ids = shape(family), tokens(130)
    chunked, sequential = at(found, ids, form="chunked"), at(found, ids)
    assert not same(chunked, sequential)
    assert distance(chunked["recurrent"], sequential["recurrent"]) < 2e-6


@pytest.mark.parametrize("family", CHUNKED)
def test_a_carried_state_is_not_written_to(family: str) -> None:
    found = shape(family)
    start = at(found, tokens(9))
    kept = {name: array.copy() for name, array in start.items()}
    states_at(found, [Work(tokens(130), (0, 7, 130), start)], form="chunked")
    assert same(start, kept)


@given(st.integers(1, 256), st.integers(1, 256))
def test_a_shorter_chunk_is_padded_to_a_size_of_its_own_length(count: int, chunk: int) -> None:
    if count <= chunk:
        assert count <= torch_chunked._padded(count, chunk) <= min(chunk, max(8, 2 * count - 1))


def test_the_largest_decay_of_the_largest_chunk_stays_finite() -> None:
    """Tokens chosen for the strongest decay of one channel, one after the other."""
    found = shape("kda")
    from stateat.kernels.draws import GATE, bits, half, key

    gates = half(bits(np.arange(50_000)[:, None], key(0, GATE, np.arange(found.rows))))
    strongest = np.argsort(-gates[:, 0])[:512]
    state = at(found, strongest, form="chunked", chunk=256)
    assert distance(state["recurrent"], absorb(found, strongest)["recurrent"]) < 4e-6
