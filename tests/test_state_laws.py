"""Whatever the load: a family in numbers finds what the digest finds, and in float32 nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from worlds import World, worlds

from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.scenario.truth import Truth

LAWS = settings(max_examples=40, suppress_health_check=list(HealthCheck))
COUNTS = ("poisoned", "poisoned_roots", "wrong_restores", "wrong_reads", "null_boundaries", "materialized_boundaries")
PRESETS = ("vllm-0.26.0", "vllm-0.27.0", "vllm-0.29.0", "vllm-0.33.0")


def run(world: World, state: str, fast_forward: bool = True, **how: str) -> Outcome:
    truth = Truth(state, backend="auto" if state == "digest" else "numpy", **how)
    outcome = drive(world.options, world.arrivals, world.budgets, seed=1, truth=truth, fast_forward=fast_forward)
    return replace(outcome, wall_s=0.0)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("state", ["ring", "short-conv"])
@LAWS
@given(world=worlds())
def test_every_family_finds_what_the_digest_finds_and_torn_slots_are_no_ones(
    preset: str, state: str, world: World
) -> None:
    world = world.under(preset)
    truth, found = run(world, "digest"), run(world, state)
    assert found.states is not None
    assert [getattr(found, name) for name in COUNTS] == [getattr(truth, name) for name in COUNTS]
    assert [replace(f, rel_error=None) for f in found.findings] == list(truth.findings)
    assert found.digest == truth.digest
    # Float32 absorbed token by token has one value, whatever the chunks.
    assert found.noise == found.not_finite == 0


@LAWS
@given(world=worlds())
def test_a_narrow_state_is_as_far_off_step_by_step_as_fast_forwarded(world: World) -> None:
    how = {"dtype": "bfloat16", "rounding": "stochastic"}
    assert run(world, "gated-delta", True, **how) == run(world, "gated-delta", False, **how)
