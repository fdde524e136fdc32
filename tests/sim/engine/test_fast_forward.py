"""Decode steps that are told at once: as if each had been scheduled, however often a request falls quiet again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from stateat.sim.events import Group, Observer
from stateat.sim.options import Options, Speculative
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

GROUPS = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 32))
ARRIVALS = (Arrival("a", 0, 0, ((1, 40),), 150), Arrival("b", 1, 7, ((2, 33),), 90), Arrival("c", 2, 30, ((1, 70),), 9))


class Runs(Observer):
    """Steps that were told at once, of each chunk that was told so."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        if steps:
            self.steps.append(steps)


def ran(options: Options, fast_forward: bool) -> tuple[Outcome, list[int]]:
    heard = Runs()
    outcome = drive(options, ARRIVALS, observers=[heard], fast_forward=fast_forward)
    return replace(outcome, wall_s=0.0), heard.steps


@pytest.mark.parametrize("drafter", [Speculative(), Speculative("ngram", 3, (1, 0, 3, 2))], ids=["plain", "drafts"])
def test_a_request_that_falls_quiet_again_says_what_it_would_have_said(drafter: Speculative) -> None:
    options = Options(GROUPS, num_blocks=200, speculative=drafter, clock="steps")
    (quick, steps), (slow, none) = ran(options, fast_forward=True), ran(options, fast_forward=False)
    assert quick == slow
    assert none == [] and len(steps) > 8 and min(steps) > 1


def test_a_first_output_comes_when_it_comes_though_its_request_falls_quiet_at_once() -> None:
    # The last token of the prompt is a row of its own, like those of decodes.
    options = Options(GROUPS[:1], max_num_batched_tokens=28, clock="steps", async_scheduling=True)
    quick, slow = (drive(options, [Arrival("a", 0, 0, ((1, 85),), 4)], fast_forward=fast) for fast in (True, False))
    assert quick.ttft_us == slow.ttft_us
