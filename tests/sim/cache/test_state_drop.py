"""What a recurrent group makes of a drop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.cache.lookup import Found, GroupSet, Sizes, geometry
from stateat.sim.cache.pool import BlockPool
from stateat.sim.cache.state_drop import gains, pops, pops_to_null, searches_again
from stateat.sim.events import NULL, Group
from stateat.sim.options import Options
from stateat.sim.tokens import Tokens

TOKENS = Tokens.generate([(1, 96)], 0, 0)
FAMILY = GroupSet(True, 16, (0,), True)
HASHES = TOKENS.block_hashes(16)
STATES = st.sets(st.sampled_from(range(16, 97, 16)))


def cache(states: set[int]) -> tuple[BlockPool, Sizes]:
    pool = BlockPool(50, 1)
    for offset in sorted(states):
        (block,) = pool.take(1)
        pool.insert(0, HASHES[offset // 16 - 1], block, offset)
    return pool, geometry(Options((Group("gdn", "recurrent", 16),)), True)


def ask(search: object, states: set[int], candidate: int) -> Found:
    assert callable(search)
    return search(*cache(states), FAMILY, HASHES, candidate, 96)


@pytest.mark.parametrize(("search", "tokens"), [(gains, 64), (pops, 0), (pops_to_null, 48), (searches_again, 32)])
def test_d3_states_at_16_32_48_and_64_and_a_candidate_of_48(search: object, tokens: int) -> None:
    assert ask(search, {16, 32, 48, 64}, 48)[1] == tokens


@given(states=STATES, candidate=st.integers(0, 96))
def test_searching_again_gives_the_last_state_a_block_below_the_one_it_has(states: set[int], candidate: int) -> None:
    first = max((s for s in states if s <= candidate), default=0)
    assert ask(searches_again, states, candidate)[1] == max((s for s in states if s <= first - 16), default=0)


@given(states=STATES, candidate=st.integers(0, 96))
def test_without_a_drop_of_its_own_the_hit_may_grow_by_a_block(states: set[int], candidate: int) -> None:
    assert ask(gains, states, candidate)[1] == max((s for s in states if s <= candidate + 16), default=0)


@given(states=STATES, candidate=st.integers(0, 96))
def test_popping_leaves_null_columns(states: set[int], candidate: int) -> None:
    ((table,), left) = ask(pops_to_null, states, candidate)
    assert set(table) <= {NULL} and len(table) == left // 16
    assert ask(pops, states, candidate) == ([[]], 0)
