"""What can never fit is refused with a reason, or waits; who waits behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import World, worlds

from stateat.sim.events import Group, Observer
from stateat.sim.options import Options, Speculative
from stateat.sim.rules.admission import BLOCKED, Blocked
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival


class Reasons(Observer):
    """Who was refused and aborted, and why."""

    def __init__(self) -> None:
        self.refused: list[tuple[str, str]] = []
        self.gone: list[str] = []

    def refuse(self, request: str, reason: str) -> None:
        self.refused.append((request, reason))

    def abort(self, request: str) -> None:
        self.gone.append(request)


def options(blocks: int, drafts: int = 0, **more: Any) -> Options:
    """J4: attention 16, states 64, a prompt of 256 in chunks of 64."""
    return Options(
        groups=(Group("attention", "full-attention", 16), Group("gdn", "recurrent", 64)),
        num_blocks=blocks,
        max_num_batched_tokens=64 + drafts,
        partial_hits=False,
        speculative=Speculative("ngram", drafts) if drafts else Speculative(),
        clock="steps",
        **more,
    )


LONG = Arrival("long", 0, 0, ((1, 256),))


@pytest.mark.parametrize("drafts", [0, 2, 3])
@pytest.mark.parametrize("reserve", [True, False])
def test_the_bound_pays_for_the_null_block(drafts: int, reserve: bool) -> None:
    """ceil(256 / 16) + 2 + K, and one for the null block: a block less stands still."""
    bound = 256 // 16 + 2 + drafts + 1
    enough = drive(options(bound, drafts, scheduler_reserve_full_isl=reserve), [LONG])
    assert (enough.finished, enough.livelock) == (1, False)
    less = drive(options(bound - 1, drafts, scheduler_reserve_full_isl=reserve), [LONG])
    assert (less.finished, less.livelock) == (0, True)
    told = drive(options(bound - 1, drafts, scheduler_reserve_full_isl=reserve, rules={"admission": "reject"}), [LONG])
    assert (told.finished, told.livelock, told.rejected) == (0, False, 1)


def test_who_can_never_fit_is_told_why_and_taken_away() -> None:
    heard = Reasons()
    drive(options(12, rules={"admission": "reject"}), [LONG], observers=[heard])
    assert heard.refused == [("long", "never_blocks")]
    assert heard.gone == ["long"]


def test_an_output_that_outgrows_the_pool_is_refused_at_once() -> None:
    heard = Reasons()
    wordy = Arrival("wordy", 0, 0, ((1, 32),), 400)
    outcome = drive(options(19, rules={"admission": "reject"}), [wordy], observers=[heard])
    assert heard.refused == [("wordy", "never_blocks")]
    assert outcome.chunks == 0


@pytest.mark.parametrize("arrival", [Arrival("a", 0, 0, ((1, 1023),)), Arrival("a", 0, 0, ((1, 1000),), 24)])
def test_who_is_refused_for_good_has_run_nothing(arrival: Arrival) -> None:
    """68 blocks: 64 of attention at its end, and of the states a column before the running one and three behind it."""
    groups = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 16))
    told = Options(
        groups,
        preset="vllm-0.28.0",
        rules={"admission": "reject"},
        num_blocks=69,
        max_num_batched_tokens=256,
        max_model_len=1024,
        speculative=Speculative("ngram", 3),
        clock="steps",
    )
    outcome = drive(told, [arrival])
    assert (outcome.rejected, outcome.chunks, outcome.steps) == (1, 0, 1)
    enough = drive(replace(told, num_blocks=70), [arrival])
    assert (enough.rejected, enough.finished) == (0, 1)


@given(world=worlds(), blocks=st.integers(8, 60))
def test_alone_a_request_ends_or_is_refused_before_it_runs(world: World, blocks: int) -> None:
    waits = replace(world.options, num_blocks=blocks)
    told = replace(waits, rules={"admission": "reject"})
    for arrival in world.arrivals:
        alone = [replace(arrival, after=None, time=0)]
        with_rule, without = drive(told, alone), drive(waits, alone)
        assert with_rule.finished or (with_rule.rejected, with_rule.chunks) == (1, 0) or with_rule.livelock
        if with_rule.finished:
            assert with_rule.digest == without.digest


@given(world=worlds())
def test_who_fits_is_never_refused_for_good(world: World) -> None:
    """In pools that hold each request alone nobody is: the decisions are the same with the rule and without."""
    with_it = drive(replace(world.options, rules={"admission": "reject"}), world.arrivals, world.budgets)
    without = drive(world.options, world.arrivals, world.budgets)
    assert with_it.rejected == 0
    assert with_it.digest == without.digest


@given(world=worlds(), factor=st.floats(0.1, 0.9))
def test_nobody_waits_for_what_can_never_be(world: World, factor: float) -> None:
    """Whatever the pool: with the rule no run stands still for want of blocks."""
    least = 2 + len(world.options.groups) + world.options.speculative.num_speculative_tokens
    blocks = max(int(world.options.num_blocks * factor), least)
    how = replace(world.options, num_blocks=blocks, watermark=0.0, rules={"admission": "reject"})
    outcome = drive(how, world.arrivals, world.budgets)
    assert not outcome.livelock
    assert outcome.finished + outcome.rejected == len(world.arrivals)


@pytest.mark.parametrize(("name", "aside"), [
    ("stop", []), ("skip-capped", ["encoder", "look-ahead"]),
    ("skip-deferred", ["encoder", "look-ahead", "block-boundary"]),
    ("skip", ["encoder", "look-ahead", "block-boundary", ""]),
])  # fmt: skip
def test_who_steps_aside(name: str, aside: list[str]) -> None:
    rule = BLOCKED[name]
    assert isinstance(rule, Blocked)
    assert [why for why in ("encoder", "look-ahead", "block-boundary", "") if rule.steps_aside(why)] == aside


@pytest.mark.parametrize(("blocked", "first"), [("stop", "head"), ("skip-deferred", "behind"), ("skip", "behind")])
def test_the_rest_of_a_budget_is_for_whoever_fits_it(blocked: str, first: str) -> None:
    """J5: 63 tokens are left, below the block of 64, which the head needs and the one behind does not."""

    class Admitted(Observer):
        def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
            heard.append(request)

    heard: list[str] = []
    decodes = Arrival("decodes", 0, 0, ((1, 10),), 60)
    head, behind = Arrival("head", 1, 1, ((2, 100),)), Arrival("behind", 2, 1, ((3, 20),))
    drive(options(200, rules={"blocked": blocked}), [decodes, head, behind], observers=[Admitted()])
    assert heard[1] == first


def test_who_steps_aside_keeps_its_place() -> None:
    heard: list[str] = []

    class Admitted(Observer):
        def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
            heard.append(request)

    arrivals = [
        Arrival("decodes", 0, 0, ((1, 10),), 20),
        Arrival("first", 1, 1, ((2, 100),)),
        Arrival("second", 2, 1, ((3, 100),)),
        Arrival("small", 3, 1, ((4, 20),)),
    ]
    drive(options(200, rules={"blocked": "skip"}), arrivals, observers=[Admitted()])
    assert heard == ["decodes", "small", "first", "second"]
