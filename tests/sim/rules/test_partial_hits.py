"""Which configurations have hits finer than a block, release by release."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateat.sim.events import Group
from stateat.sim.options import Options
from stateat.sim.rules.partial_hits import PARTIAL_HITS_WHEN

STATES = (Group("attention", "full-attention", 4), Group("gdn", "recurrent", 8))
WINDOW = Group("window", "full-attention", 4, sliding_window=4)
SCRATCH = Group("ring", "full-attention", 7, prefix_cacheable=False)


@pytest.mark.parametrize(
    ("value", "alone", "window", "scratch", "ranks"),
    [
        ("states-alone", True, True, True, False),
        ("every-group", True, False, False, False),
        ("cacheable-groups", True, False, True, True),
    ],
)
def test_f10_f11_who_is_asked(value: str, alone: bool, window: bool, scratch: bool, ranks: bool) -> None:
    options = Options(STATES, prefix_match_unit=2)
    asked = [options, replace(options, groups=(*STATES, WINDOW)), replace(options, groups=(*STATES, SCRATCH))]
    asked.append(replace(options, decode_context_parallel_size=2))
    assert [PARTIAL_HITS_WHEN[value].on(o) for o in asked] == [alone, window, scratch, ranks]


@pytest.mark.parametrize("value", PARTIAL_HITS_WHEN)
def test_a_state_no_wider_than_the_unit_is_hit_inside_on_several_ranks_alone(value: str) -> None:
    options = Options(STATES, prefix_match_unit=8)
    assert not PARTIAL_HITS_WHEN[value].on(options)
    assert PARTIAL_HITS_WHEN[value].on(replace(options, decode_context_parallel_size=2)) is (
        value == "cacheable-groups"
    )


@pytest.mark.parametrize("value", PARTIAL_HITS_WHEN)
def test_a_window_of_the_units_size_may_stay_and_the_option_turns_all_off(value: str) -> None:
    window = replace(WINDOW, block_size=2)
    options = Options((*STATES, window), prefix_match_unit=2)
    assert PARTIAL_HITS_WHEN[value].on(options) and not PARTIAL_HITS_WHEN[value].on(
        replace(options, partial_hits=False)
    )


@pytest.mark.parametrize("value", PARTIAL_HITS_WHEN)
def test_a_wider_attention_block_alone_makes_chunks_stop_at_tails_up_to_0_27(value: str) -> None:
    groups = (Group("attention", "full-attention", 96), Group("gdn", "recurrent", 48))
    options = Options(groups)
    assert not PARTIAL_HITS_WHEN[value].on(options)
    assert PARTIAL_HITS_WHEN[value].stops(options) is (value == "states-alone")
    assert not PARTIAL_HITS_WHEN[value].stops(replace(options, partial_hits=False))
