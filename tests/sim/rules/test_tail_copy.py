"""A published tail stays as it is: every way in which it would not is caught, and the releases' way never is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateat.sim.events import Group
from stateat.sim.options import Options
from stateat.sim.rules.tail_copy import TAIL_COPY
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival


def outcome(tails: str, first: int, followers: list[tuple[int, int, int]], outputs: int, preset: str) -> Outcome:
    """An owner, and who shares some of its prompt: (step, shared tokens, more)."""
    groups = (Group("attention", "full-attention", 8), Group("gdn", "recurrent", 32))
    options = Options(groups, preset=f"vllm-{preset}", rules={"tail_copy": tails}, num_blocks=800, clock="steps")
    arrivals = [Arrival("owner", 0, 0, ((1, first),), outputs)]
    for i, (step, shared, more) in enumerate(followers, 1):
        arrivals.append(Arrival(f"f{i}", i, step, ((1, min(shared, first)), (i + 1, more)), outputs))
    return drive(options, arrivals)


FOLLOWERS = st.lists(st.tuples(st.integers(0, 9), st.integers(8, 70), st.integers(1, 40)), min_size=1, max_size=4)


@given(
    first=st.integers(9, 70),
    followers=FOLLOWERS,
    outputs=st.integers(1, 8),
    preset=st.sampled_from(["0.26.0", "0.27.0", "0.29.0", "0.32.0", "0.33.0"]),
)
@settings(max_examples=60)
def test_copied_tails_are_never_written_on(
    first: int, followers: list[tuple[int, int, int]], outputs: int, preset: str
) -> None:
    found = outcome("copied", first, followers, outputs, preset)
    assert (found.poisoned, found.wrong_restores, found.wrong_reads) == (0, 0, 0)


@pytest.mark.parametrize("tails", [name for name in TAIL_COPY if name != "copied"])
def test_every_other_way_is_caught(tails: str) -> None:
    """An owner of 30 tokens that stops at 24, one that asks while it goes on, and one that comes later."""
    found = outcome(tails, 30, [(1, 24, 2), (2, 24, 6), (12, 24, 6)], 6, "0.27.0")
    assert found.poisoned + found.wrong_restores > 0


def test_the_control_of_that_is_clean_and_hits() -> None:
    found = outcome("copied", 30, [(1, 24, 2), (2, 24, 6), (12, 24, 6)], 6, "0.27.0")
    assert (found.poisoned, found.wrong_restores, found.hit_tokens) == (0, 0, 72)
