"""Laws of whole runs under splits that were proposed, policies for wide blocks, and resets that put requests back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, assume, event, find, given, settings
from hypothesis import strategies as st
from worlds import Padded, World, worlds

from stateat.sim.events import Observer
from stateat.sim.releases import presets
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive

SOUND = ("every-boundary", "granular", "no-back-off", "replay-boundary", "retain-mtp-block", "snapshot-points")
# The first world that is found will do: shrinking it takes minutes.
FIRST = settings(max_examples=5000, derandomize=True, database=None, phases=[Phase.generate])
RESETS = st.lists(st.integers(0, 30), max_size=5)


def run(
    world: World, observers: tuple[Observer, ...] = (), resets: tuple[int, ...] = (), fast_forward: bool = True
) -> Outcome:
    """The outcome, with resets that put running requests back."""
    outcome = drive(
        world.options,
        world.arrivals,
        world.budgets,
        observers=observers,
        resets=[r * 8000 for r in resets] if world.options.clock == "us" else resets,
        reset_running=bool(resets),
        fast_forward=fast_forward,
    )
    return replace(outcome, wall_s=0.0)


def poison(outcome: Outcome) -> list[str]:
    return [f.message for f in outcome.findings if f.severity == "poison"]


def asking(world: World, points: list[int]) -> World:
    """The same requests, each of which asks for states at these positions of its prompt."""
    arrivals = (replace(a, snapshots=tuple(p for p in points if p <= a.num_prompt_tokens)) for a in world.arrivals)
    return replace(world, arrivals=tuple(arrivals))


@pytest.mark.parametrize("split", SOUND)
@settings(max_examples=60)
@given(world=worlds("vllm-0.27.0", drafts_fit=True), snapshots=st.lists(st.integers(1, 40), max_size=3))
def test_a_sound_proposal_never_poisons(split: str, world: World, snapshots: list[int]) -> None:
    world, padded = asking(world.under("vllm-0.27.0", split=split), snapshots), Padded()
    outcome = run(world, (padded,))
    assume(not padded.found)
    event(f"hits: {outcome.restores > 0}")
    assert poison(outcome) == []


@settings(max_examples=200)
@given(world=worlds("vllm-0.27.0", drafts_fit=True), points=st.lists(st.integers(1, 150), min_size=1, max_size=4))
def test_states_kept_where_chunks_end_are_right(world: World, points: list[int]) -> None:
    padded = Padded()
    world = asking(world.under("vllm-0.27.0", split="snapshot-points", snapshots="kept"), points)
    outcome = run(world, (padded,))
    assume(not padded.found)
    event(f"hits: {outcome.restores > 0}")
    assert poison(outcome) == []


def test_states_kept_wherever_chunks_end_are_found_to_be_wrong() -> None:
    """Negative control: the split does not know the points."""
    points = [20, 40, 90]
    found = find(
        worlds("vllm-0.27.0", tight=False),
        lambda w: run(asking(w.under("vllm-0.27.0", snapshots="kept"), points)).poisoned > 0,
        settings=FIRST,
    )
    assert run(asking(found, points)).poisoned == 0


@pytest.mark.parametrize("policy", ["wait", "private-always"])
@settings(max_examples=60)
@given(world=worlds("vllm-0.27.0", drafts_fit=True))
def test_no_policy_for_wide_blocks_poisons(policy: str, world: World) -> None:
    padded = Padded()
    outcome = run(world.under("vllm-0.27.0", wide_block=policy), (padded,))
    assume(not padded.found)
    event(f"livelock: {outcome.livelock}")
    assert poison(outcome) == []


def test_size_floor_is_found_to_poison() -> None:
    """Negative control."""
    found = find(
        worlds("vllm-0.27.0", tight=False),
        lambda w: run(w.under("vllm-0.27.0", split="size-floor")).poisoned > 0,
        settings=FIRST,
    )
    assert run(found).poisoned == 0


def test_new_requests_only_is_found_to_poison_once_a_request_was_put_back() -> None:
    """Negative control; without a reset or a preemption there is no such request."""
    resets = (6, 9, 12)
    found = find(
        worlds("vllm-0.27.0", look_ahead=False, tight=False),
        lambda w: run(w.under("vllm-0.27.0", split="new-requests-only"), resets=resets).poisoned > 0,
        settings=FIRST,
    )
    assert run(found, resets=resets).poisoned == 0
    assert run(found.under("vllm-0.27.0", split="new-requests-only")).poisoned == 0


@settings(max_examples=150)
@given(world=worlds("vllm-0.27.0", drafts_fit=True), resets=RESETS)
def test_a_reset_that_puts_requests_back_poisons_nothing_and_loses_no_request(world: World, resets: list[int]) -> None:
    padded = Padded()
    outcome = run(world, (padded,), tuple(resets))
    assume(not padded.found)
    event(f"preempted: {outcome.preempted > 0}, resets: {outcome.resets > 0}")
    assert poison(outcome) == []
    # Nothing is in use any more, so that none is refused.
    assert outcome.livelock or outcome.finished == len(world.arrivals)


@settings(max_examples=80)
@given(world=worlds(), preset=st.sampled_from(sorted(presets.PRESETS)), resets=RESETS)
def test_fast_forwarding_changes_nothing_when_requests_are_put_back(
    world: World, preset: str, resets: list[int]
) -> None:
    world = world.under(preset)
    assert run(world, resets=tuple(resets)) == run(world, resets=tuple(resets), fast_forward=False)
