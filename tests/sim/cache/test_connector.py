"""What a connector takes for the state at a boundary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sim.cache.connector import attention_hit, by_position, drafters
from sim.cache.lookup import geometry, intersection
from sim.cache.pool import BlockPool
from sim.engine.options import Options
from sim.events import Group


def test_a_copy_of_the_table_names_a_slot_for_each_whole_block() -> None:
    hashes = [bytes([i]) for i in range(12)]
    saved = by_position("a", 1, [7, 0, 9], hashes, 4, 2, 11)
    assert [(f.block, f.tokens, f.hash) for f in saved] == [(7, 4, b"\x01"), (0, 8, b"\x03")]


@given(columns=st.integers(0, 6), tokens=st.integers(0, 40))
def test_columns_that_the_copy_does_not_have_are_left_out(columns: int, tokens: int) -> None:
    hashes = [bytes([i]) for i in range(40)]
    saved = by_position("a", 1, list(range(1, columns + 1)), hashes, 4, 1, tokens)
    assert [f.tokens for f in saved] == [4 * (i + 1) for i in range(min(columns, tokens // 4))]


def test_the_drafters_own_groups_are_the_flagged_ones_beside_others() -> None:
    plain, flagged = Group("a", "full-attention", 4), Group("d", "full-attention", 4, eagle=True)
    states = Group("s", "recurrent", 4, eagle=True)
    assert drafters([plain, flagged, states]) == {1}
    assert drafters([flagged, states]) == drafters([plain, states]) == frozenset()


@given(attention=st.integers(0, 5), states=st.sets(st.integers(0, 4)), limit=st.integers(0, 20))
def test_attentions_own_hit_is_never_shorter_than_the_joint_one(attention: int, states: set[int], limit: int) -> None:
    options = Options(groups=(Group("a", "full-attention", 4), Group("s", "recurrent", 4)))
    geo = geometry(options, drops=False)
    pool, hashes = BlockPool(64, 2), [bytes([i]) for i in range(5)]
    for column in range(attention):
        pool.insert(0, hashes[column], 1 + column, 4 * (column + 1)) if column < 5 else None
    for column in states:
        pool.insert(1, hashes[column], 20 + column, 4 * (column + 1))
    own = attention_hit(pool, geo, hashes, 2, limit, limit)
    joint = intersection(pool, geo, hashes, 2, limit, limit)
    assert own.tokens == min(attention, limit // 4) * 4 >= joint.tokens
    assert own.blocks == [list(range(1, own.tokens // 4 + 1)), []]


def test_a_model_without_attention_has_no_such_hit() -> None:
    options = Options(groups=(Group("s", "recurrent", 4),))
    assert attention_hit(BlockPool(8, 1), geometry(options, drops=False), [b"a"], 1, 4, 4).tokens == 0
