"""The conv state is a window of draws, wherever a call begins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state_cases import at, in_pieces, tokens

from stateat.kernels.backends import states_at
from stateat.kernels.families import shape
from stateat.kernels.reference import absorb
from stateat.kernels.work import Work


@pytest.mark.parametrize("family", ["short-conv", "gated-delta"])
@given(length=st.integers(0, 9), cuts=st.lists(st.integers(0, 9), max_size=5))
def test_short_runs_shift_the_carried_window(family: str, length: int, cuts: list[int]) -> None:
    found, ids = shape(family, "small*2"), tokens(length)
    split = in_pieces(found, ids, [cut for cut in cuts if cut <= length], backend="numpy")
    assert (split["conv"] == absorb(found, ids)["conv"]).all()


@settings(max_examples=20)
@given(st.lists(st.integers(0, 70), min_size=1, max_size=6, unique=True))
def test_every_offset_of_a_run_has_its_own_window(offsets: list[int]) -> None:
    found, ids = shape("short-conv", "small*2"), tokens(70)
    states = states_at(found, [Work(ids, tuple(sorted(offsets)))], backend="numpy")[0]
    for offset, state in zip(sorted(offsets), states, strict=True):
        assert (state["conv"] == absorb(found, ids[:offset])["conv"]).all()


def test_a_window_forgets_all_but_its_last_tokens() -> None:
    found = shape("short-conv")
    starts = [at(found, tokens(9, seed=seed), backend="numpy") for seed in (1, 2)]
    for count, equal in ((1, False), (2, True)):
        one, other = (at(found, np.arange(count), start, backend="numpy")["conv"] for start in starts)
        assert (one == other).all() == equal
