"""Which states a request lets go of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.cache.skipped_states import SKIPPED_STATES, KeepsServed, stops_at_null_gap, walks_gaps
from stateat.sim.events import NULL


@pytest.mark.parametrize(
    ("table", "before", "columns"),
    [
        ([1, 2, 3], 3, [2, 1, 0]),
        ([1, 2, 3], 2, [1, 0]),
        ([1, 2, 3], 0, []),
        ([1, 0, 3], 3, [2]),
        ([1, 2, 0], 3, []),
        ([0, 2, 3], 2, [1]),
        ([1, 2], 9, [1, 0]),
        ([], 4, []),
    ],
)
def test_backwards_until_a_null_column(table: list[int], before: int, columns: list[int]) -> None:
    assert stops_at_null_gap(table, before) == columns


@given(st.lists(st.integers(0, 2)), st.integers(0, 12))
def test_what_is_freed_lies_before_and_has_no_gap(table: list[int], before: int) -> None:
    columns = stops_at_null_gap(table, before)
    end = min(before, len(table))
    assert columns == list(range(end - 1, end - 1 - len(columns), -1))
    assert all(table[c] != NULL for c in columns)
    stop = end - 1 - len(columns)
    assert stop < 0 or table[stop] == NULL


@given(st.lists(st.integers(0, 2)), st.integers(0, 12), st.integers(0, 12))
def test_walking_gaps_frees_every_state_between(table: list[int], before: int, done: int) -> None:
    columns = walks_gaps(table, before, done)
    assert columns == [c for c in reversed(range(len(table))) if done <= c < before and table[c] != NULL]
    rule = SKIPPED_STATES["keeps-what-is-served"]
    assert isinstance(rule, KeepsServed)
    assert rule(table, before, done) == columns
    # Whoever does not say how far it freed before has freed nothing.
    assert walks_gaps(table, before) == walks_gaps(table, before, 0)
