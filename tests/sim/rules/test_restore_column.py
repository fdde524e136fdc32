"""Which column of its row a restored request's state is taken from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.events import Group
from stateat.sim.options import Options
from stateat.sim.releases.rules import RULES
from stateat.sim.rules.restore_column import (
    RESTORE_COLUMN,
    config_block,
    divisor,
    fresh_slot_column,
    scheduler_block_column,
    stale_config_column,
    state_block_column,
)


def options(block: int, config: int | None = None, initial: int = 16) -> Options:
    groups = (Group("attention", "full-attention", block), Group("gdn", "recurrent", block))
    return Options(groups, cache_config_block_size=config, initial_block_size=initial)


@pytest.mark.parametrize(
    ("computed", "state", "config", "wrong", "right"),
    [
        (100_096, 2176, 128, 781, 45),
        (11_520, 1152, 16, 719, 9),
        (134_400, 4480, 16, 8399, 29),
        (110_592, 12_288, 768, 143, 8),
        (110_593, 12_288, 768, 144, 9),
    ],
)
def test_the_columns_of_the_reports(computed: int, state: int, config: int, wrong: int, right: int) -> None:
    """Mechanisms 4.5."""
    assert scheduler_block_column(computed, state, config) == stale_config_column(computed, state, config) == wrong
    assert state_block_column(computed, state, config) == right


@given(st.integers(1, 10**6), st.integers(1, 5000), st.integers(1, 5000))
def test_a_wrong_seed_is_right_where_the_blocks_are_equal(computed: int, block: int, other: int) -> None:
    right = state_block_column(computed, block, other)
    assert scheduler_block_column(computed, block, block) == right
    assert (scheduler_block_column(computed, block, other) == right) == ((computed - 1) // other == right)


def test_each_seed_reads_its_own_place_of_the_configuration() -> None:
    asked = options(1152, 128, 32)
    assert config_block(scheduler_block_column, asked, 1152) == 128
    assert config_block(stale_config_column, asked, 1152) == 32
    assert config_block(scheduler_block_column, options(1152), 48) == 48


def test_a_seed_in_state_blocks_counts_in_no_other() -> None:
    asked = options(1152, 128)
    assert divisor(state_block_column, asked, 128) is None
    assert divisor(scheduler_block_column, asked, 1152) == 128
    assert divisor(stale_config_column, asked, 128) == 16
    assert divisor(lambda *_: 0, asked, 128) is None


def test_every_named_seed_is_a_rule() -> None:
    assert list(RULES["restore_column"].values()) == list(RESTORE_COLUMN.values())
    assert [*RESTORE_COLUMN] == ["state-block", "scheduler-block", "stale-config", "fresh-slot"]
    assert fresh_slot_column(4096, 16, 16) == -1
