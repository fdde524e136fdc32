"""The digest family: a state that is the fingerprint of what it absorbed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.oracle.states import family
from stateat.oracle.states.digest import DigestFamily
from stateat.sim.tokens import PLACEHOLDER, Tokens

FAMILY = DigestFamily()
IDS = st.lists(st.integers(0, 49_999), min_size=1, max_size=40)


def test_it_is_the_family_of_that_name() -> None:
    assert isinstance(family("digest"), DigestFamily)
    assert FAMILY.name == "digest"


@given(IDS, st.data())
def test_any_chunking_leads_to_the_same_state(ids: list[int], data: st.DataObject) -> None:
    tokens = Tokens.explicit(ids)
    cuts = sorted({0, len(ids), *data.draw(st.lists(st.integers(0, len(ids))))})
    state = FAMILY.zero()
    for start, end in pairwise(cuts):
        state = FAMILY.advance(state, tokens, start, end, ())
        assert FAMILY.equal(state, FAMILY.state_at(tokens, end))
        assert FAMILY.find(state, tokens) == end


@given(IDS, st.data())
def test_right_drafts_are_tokens_of_the_stream_and_wrong_ones_are_not(ids: list[int], data: st.DataObject) -> None:
    tokens = Tokens.explicit(ids)
    known = data.draw(st.integers(0, len(ids) - 1))
    drafts = ids[known:]
    state = FAMILY.advance(FAMILY.zero(), tokens, 0, known, drafts)
    assert FAMILY.equal(state, FAMILY.state_at(tokens, len(ids)))
    place = data.draw(st.integers(0, len(drafts) - 1))
    drafts[place] = data.draw(st.sampled_from([PLACEHOLDER, (drafts[place] + 1) % 50_000]))
    assert not FAMILY.equal(FAMILY.advance(FAMILY.zero(), tokens, 0, known, drafts), state)


def test_nothing_absorbed_leaves_the_state_as_it_was() -> None:
    tokens = Tokens.explicit([1, 2, 3])
    state = FAMILY.state_at(tokens, 2)
    assert FAMILY.advance(state, tokens, 2, 2, ()) == state


@given(IDS, st.data())
def test_a_skipped_or_repeated_span_is_noticed(ids: list[int], data: st.DataObject) -> None:
    tokens = Tokens.explicit(ids)
    end = data.draw(st.integers(1, len(ids)))
    start = data.draw(st.integers(0, end - 1))
    skipped = FAMILY.advance(FAMILY.zero(), tokens, start, end, ())
    repeated = FAMILY.advance(FAMILY.state_at(tokens, end), tokens, start, end, ())
    truth = FAMILY.state_at(tokens, end)
    # Only spans that say the same again could agree: none, since the lengths differ.
    assert FAMILY.equal(skipped, truth) == (start == 0)
    assert not FAMILY.equal(repeated, truth)


def test_a_zero_state_is_found_nowhere() -> None:
    assert FAMILY.find(FAMILY.zero(), Tokens.explicit([1, 2, 3])) is None


def test_an_offset_past_the_stream_is_an_error() -> None:
    with pytest.raises(IndexError):
        FAMILY.state_at(Tokens.explicit([1, 2, 3]), 4)
