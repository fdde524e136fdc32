"""What hostile inputs taught: each fault stays found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateat.sim.events import Group
from stateat.sim.options import Options, Speculative
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

RECURRENT = (Group("g", "recurrent", 64),)


def outcome(options: Options, arrivals: list[Arrival], fast_forward: bool) -> Outcome:
    return replace(drive(options, arrivals, fast_forward=fast_forward), wall_s=0.0)


@pytest.mark.parametrize(
    ("requests", "limits"),
    [
        (1, {"max_num_batched_tokens": 3}),
        (2, {"max_num_batched_tokens": 6}),
        (1, {"long_prefill_token_threshold": 2}),
        (3, {"max_num_batched_tokens": 9, "max_num_seqs": 2}),
    ],
)
def test_decodes_that_a_limit_cuts_are_the_same_step_by_step(requests: int, limits: dict[str, int]) -> None:
    options = Options(RECURRENT, speculative=Speculative("ngram", 3, (3,)), **limits)  # type: ignore[arg-type]
    arrivals = [Arrival(f"r{i}", i, 0, ((i, 2),), 40) for i in range(requests)]
    assert outcome(options, arrivals, True) == outcome(options, arrivals, False)


def test_a_request_that_takes_its_own_blocks_away_for_ever_is_a_livelock() -> None:
    options = Options(
        (Group("a", "full-attention", 4),),
        num_blocks=4,
        enable_prefix_caching=False,
        scheduler_reserve_full_isl=False,
        max_num_batched_tokens=4,
    )
    found = outcome(options, [Arrival("a", 0, 0, ((1, 20),), 1)], True)
    assert found.livelock
    assert [f.invariant for f in found.findings] == ["I14"]


def test_long_recomputation_after_a_preemption_is_no_livelock() -> None:
    """Nobody gets further for more than 200 steps, and yet all of them finish."""
    options = Options(
        (Group("a", "full-attention", 4),), num_blocks=520, max_num_batched_tokens=4, enable_prefix_caching=False,
        scheduler_reserve_full_isl=False, max_num_seqs=2,
    )  # fmt: skip
    arrivals = [Arrival(f"r{i}", i, 0, ((i, 1300),), 300) for i in range(2)]
    found = outcome(options, arrivals, True)
    assert found.preempted > 0
    assert (found.livelock, found.finished) == (False, 2)


def test_two_recurrent_groups_that_read_wrong_are_one_wrong_read_a_step() -> None:
    """A one-token prompt beside decodes reads a state that nobody wrote, in every group (scenarios/field)."""
    reads = []
    for count in (1, 2):
        groups = (Group("a", "full-attention", 16), *(Group(f"g{i}", "recurrent", 16) for i in range(count)))
        options = Options(groups, speculative=Speculative("ngram", 3, (1,)), clock="steps")
        arrivals = [Arrival("decodes", 0, 0, ((1, 20),), 40), Arrival("one", 1, 3, ((2, 1),), 30)]
        reads.append(outcome(options, arrivals, False).wrong_reads)
    assert reads[0] > 0
    assert reads[0] == reads[1]
