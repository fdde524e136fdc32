"""Laws of steps in flight, over any world (:mod:`worlds`): what the rules keep, and what their opposites break."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import Phase, assume, event, find, given, settings
from hypothesis import strategies as st
from worlds import Padded, World, worlds

from stateat.sim.releases import presets
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive

FIRST = settings(max_examples=5000, derandomize=True, database=None, phases=[Phase.generate])
PRESETS = st.sampled_from(sorted(presets.PRESETS))
FIXED = st.sampled_from([preset for preset in presets.PRESETS if preset >= "vllm-0.28.0"])
DEPTHS = st.integers(1, 4)


def run(
    world: World,
    depth: int = 1,
    aborts: tuple[int, ...] = (),
    padded: Padded | None = None,
    resets: tuple[int, ...] = (),
    asynchronous: bool = False,
    late: bool = False,
    fast_forward: bool = True,
) -> Outcome:
    """Every other request is taken away so many steps (or µs) after it arrives, ``late``: once the step of that time is
    decided; a reset puts back those that run."""
    arrivals = [
        replace(a, abort=a.time + aborts[i // 2 % len(aborts)], abort_late=late)
        if aborts and i % 2 and a.after is None
        else a
        for i, a in enumerate(world.arrivals)
    ]
    options = replace(world.options, max_concurrent_batches=depth, async_scheduling=asynchronous)
    watch = [padded] if padded is not None else []
    return drive(
        options, arrivals, world.budgets, observers=watch, fast_forward=fast_forward, resets=resets, reset_running=True
    )


def wrong(outcome: Outcome) -> Counter[str]:
    return Counter(f.invariant for f in outcome.findings if f.severity in ("poison", "hazard"))


ABORTS = st.lists(st.integers(0, 40), max_size=4).map(tuple)


@settings(max_examples=300)
@given(world=worlds("vllm-0.27.0", drafts_fit=True), preset=FIXED, depth=DEPTHS, aborts=ABORTS)
def test_a_release_reads_no_state_before_its_step_and_writes_none_that_is_in_use(
    world: World, preset: str, depth: int, aborts: tuple[int, ...]
) -> None:
    padded = Padded()
    outcome = run(world.under(preset), depth, aborts, padded)
    assume(not padded.found)
    event(f"hits: {outcome.restores > 0}, depth {depth}")
    assert [f.message for f in outcome.findings if f.severity in ("poison", "hazard")] == []


@settings(max_examples=200)
@given(
    world=worlds("vllm-0.27.0", drafts_fit=True),
    preset=FIXED,
    depth=DEPTHS,
    resets=st.lists(st.integers(1, 40), max_size=3).map(sorted).map(tuple),
)
def test_who_a_reset_puts_back_while_its_steps_are_in_flight_starts_anew(
    world: World, preset: str, depth: int, resets: tuple[int, ...]
) -> None:
    padded = Padded()
    outcome = run(world.under(preset), depth, (), padded, resets)
    assume(not padded.found)
    event(f"preempted: {outcome.preempted > 0}, depth {depth}")
    bad = [f.message for f in outcome.findings if f.severity in ("poison", "hazard") or f.invariant == "I11"]
    assert bad == []
    assert outcome.livelock or outcome.free_blocks == world.options.num_blocks - 1


@settings(max_examples=200)
@given(
    world=worlds("vllm-0.32.0", drafts_fit=True),
    preset=st.sampled_from(["vllm-0.32.0", "vllm-0.33.0"]),
    depth=st.integers(2, 4),
    aborts=ABORTS,
)
def test_asynchronously_too_from_032_on(world: World, preset: str, depth: int, aborts: tuple[int, ...]) -> None:
    """Earlier releases publish a whole prompt's tail again (``a-whole-prompt-is-published-again``)."""
    padded = Padded()
    outcome = run(world.under(preset), depth, aborts, padded, asynchronous=True)
    assume(not padded.found)
    event(f"hits: {outcome.restores > 0}, depth {depth}")
    assert [f.message for f in outcome.findings if f.severity in ("poison", "hazard")] == []


def test_asynchronously_an_earlier_release_is_found_to_poison() -> None:
    """Negative control: without a drafter, and with the gate that is right one step at a time."""
    world = find(
        worlds("vllm-0.29.0", tight=False),
        lambda w: (
            run(w.under("vllm-0.29.0"), 2, asynchronous=True).poisoned > 0 and not run(w.under("vllm-0.29.0")).poisoned
        ),
        settings=FIRST,
    )
    assert run(world.under("vllm-0.33.0"), 2, asynchronous=True).poisoned == 0


@settings(max_examples=120)
@given(world=worlds(), preset=PRESETS, aborts=ABORTS, late=st.booleans())
def test_fast_forwarding_asynchronously_changes_nothing(
    world: World, preset: str, aborts: tuple[int, ...], late: bool
) -> None:
    outcomes = [
        run(world.under(preset), 2, aborts, asynchronous=True, late=late, fast_forward=on) for on in (True, False)
    ]
    assert replace(outcomes[0], wall_s=0.0) == replace(outcomes[1], wall_s=0.0)


@settings(max_examples=200)
@given(world=worlds(), preset=PRESETS, depth=DEPTHS, aborts=ABORTS)
def test_every_block_comes_back_and_every_request_ends_however_many_steps_are_in_flight(
    world: World, preset: str, depth: int, aborts: tuple[int, ...]
) -> None:
    outcome = run(world.under(preset), depth, aborts)
    assume(not outcome.livelock)
    assert outcome.free_blocks == world.options.num_blocks - 1
    if not aborts:
        assert outcome.finished == outcome.requests


@settings(max_examples=200)
@given(world=worlds("vllm-0.27.0", drafts_fit=True), preset=FIXED, depth=DEPTHS, aborts=ABORTS)
def test_a_dropped_step_poisons_nothing_that_is_published_at_commit(
    world: World, preset: str, depth: int, aborts: tuple[int, ...]
) -> None:
    padded = Padded()
    outcome = run(world.under(preset, publish="at-commit", aborted_steps="dropped"), depth, aborts, padded)
    assume(not padded.found)
    event(f"hits: {outcome.restores > 0}")
    assert wrong(outcome) == {}


@settings(max_examples=200)
@given(world=worlds("vllm-0.27.0", drafts_fit=True), preset=FIXED, depth=DEPTHS, aborts=ABORTS)
def test_a_dropped_step_poisons_nothing_if_its_claims_go_with_it(
    world: World, preset: str, depth: int, aborts: tuple[int, ...]
) -> None:
    padded = Padded()
    outcome = run(world.under(preset, aborted_steps="dropped-and-unpublished"), depth, aborts, padded)
    assume(not padded.found)
    assert not {"I1", "I9"} & wrong(outcome).keys() or outcome.restores


def test_a_dropped_step_whose_claims_stay_is_found_to_poison() -> None:
    """Negative control of the laws above."""
    world = find(
        worlds("vllm-0.28.0", tight=False),
        lambda w: run(w.under("vllm-0.28.0", aborted_steps="dropped"), 3, (1, 2)).poisoned > 0,
        settings=FIRST,
    )
    assert run(world.under("vllm-0.28.0"), 3, (1, 2)).poisoned == 0


@pytest.mark.parametrize("depth", [1, 2, 3])
@settings(max_examples=60)
@given(world=worlds(), preset=PRESETS)
def test_the_same_run_again_is_the_same(world: World, preset: str, depth: int) -> None:
    first, again = (run(world.under(preset), depth) for _ in range(2))
    assert replace(first, wall_s=0.0) == replace(again, wall_s=0.0)
