"""What a connector takes for the state at a boundary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.cache.connector import by_position, drafters
from stateat.sim.events import Group


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
