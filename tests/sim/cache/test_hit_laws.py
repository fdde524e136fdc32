"""The closed laws of fine hits: what a prompt hits when it is sent again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateat.sim.events import Group
from stateat.sim.options import Options, Speculative
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

UNITS = st.sampled_from([(4, 16), (4, 32), (8, 16), (8, 32), (16, 64), (16, 48), (2, 8), (5, 20), (1, 4)])
"""Nine pairs of a hash unit, which is attention's block too, and a recurrent block."""


def resend(
    length: int, unit: int, block: int, preset: str, cap: int = 512, more: int = 0, method: str = "mtp", **rules: str
) -> int:
    """What a prompt of this length (and ``more`` tokens behind it) hits, once it was sent."""
    groups = (Group("attention", "full-attention", unit), Group("gdn", "recurrent", block))
    options = Options(
        groups,
        preset=f"vllm-{preset}",
        rules=rules,
        num_blocks=3000,
        max_num_batched_tokens=cap,
        speculative=Speculative(method, 3),
        clock="steps",
    )
    prompts = [((1, length),), ((1, length), (2, more)) if more else ((1, length),)]
    outcome = drive(options, [Arrival(f"r{i}", i, i * 300, prompt) for i, prompt in enumerate(prompts)])
    assert outcome.poisoned == 0 and not [f for f in outcome.findings if f.invariant == "I5"]
    return outcome.hits["r1"]


@given(n=st.integers(1, 200), units=UNITS, cap=st.sampled_from([64, 512]))
@settings(max_examples=60)
def test_fine_unit_under_a_drop_with_the_lookup_capped_at_the_last_token(
    n: int, units: tuple[int, int], cap: int
) -> None:
    unit, block = units
    found = resend(n, unit, block, "0.29.0", cap, boundaries="below-the-last-token")
    assert found == max((n - 1 - unit) // unit * unit, 0)


@given(n=st.integers(1, 200), units=UNITS, cap=st.sampled_from([64, 512]), more=st.sampled_from([0, 7, 40]))
@settings(max_examples=60)
def test_the_tail_stop_under_a_drop_is_a_unit_below_the_last_whole_one(
    n: int, units: tuple[int, int], cap: int, more: int
) -> None:
    """A longer sibling hits it too."""
    unit, block = units
    assert resend(n, unit, block, "0.32.0", cap, more) == max(n // unit * unit - unit, 0)


@given(n=st.integers(1, 200), units=UNITS, cap=st.sampled_from([64, 512]))
@settings(max_examples=60)
def test_hashes_that_look_ahead_lose_no_unit(n: int, units: tuple[int, int], cap: int) -> None:
    unit, block = units
    assert resend(n, unit, block, "0.33.0", cap) == (n - 1) // unit * unit


@given(n=st.integers(1, 200), units=UNITS, method=st.sampled_from(["dflash", "dspark"]))
@settings(max_examples=30)
def test_s15_a_drafter_that_fills_in_loses_no_unit_where_the_drop_is_scoped(
    n: int, units: tuple[int, int], method: str
) -> None:
    unit, block = units
    assert resend(n, unit, block, "0.33.0", method=method) == (n - 1) // unit * unit
    assert resend(n, unit, block, "0.32.0", method=method) == max(n // unit * unit - unit, 0)


@pytest.mark.parametrize("n", [24576, 24577])
def test_d14_the_tail_stop_of_the_report(n: int) -> None:
    assert resend(n, 128, 4096, "0.32.0", 8192) == 24448


@given(n=st.integers(1, 160), blocks=st.sampled_from([(8, 8), (16, 16)]), more=st.integers(20, 60))
@settings(max_examples=40)
def test_d10_a_follower_hits_by_the_length_of_who_left_the_states(n: int, blocks: tuple[int, int], more: int) -> None:
    """Equal blocks: hits are as coarse as a block."""
    unit, block = blocks
    assert resend(n, unit, block, "0.27.0", block, more) == max(n // block - 1, 0) * block
