"""Logs of runs with steps in flight, over any world: an audit finds what the run found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import World, worlds

from stateat.sim.adapters.log import Recorder
from stateat.sim.options import Offload
from stateat.sim.releases.presets import PRESETS
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import audit, drive, simulate
from stateat.sim.scenario.counts import COUNTS
from stateat.sim.scenario.load import load, runs

ROOT = Path(__file__).resolve().parents[3]
MODES = (
    {"async_scheduling": True},
    {"async_scheduling": True, "max_concurrent_batches": 3},
    {"max_concurrent_batches": 2},
)
EVERY = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def heard(path: Path) -> Outcome:
    (outcome,) = audit(path).variants.values()
    return next(iter(outcome.cases.values()), outcome)


def same(ran: Outcome, heard: Outcome) -> bool:
    counted = all(getattr(ran, name) == getattr(heard, name) for name in COUNTS if name != "free_blocks")
    return counted and (ran.findings, ran.digest, ran.ends) == (heard.findings, heard.digest, heard.ends)


@EVERY
@given(
    world=worlds(),
    preset=st.sampled_from(sorted(PRESETS)),
    mode=st.sampled_from(MODES),
    fast_forward=st.booleans(),
    aborts=st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=3),
    resets=st.lists(st.integers(1, 40), max_size=2).map(sorted),
    loads=st.sampled_from(["", "", "connector", "tier"]),
)
def test_an_audit_of_a_log_finds_what_the_run_found_however_many_steps_were_in_flight(
    world: World,
    preset: str,
    mode: dict[str, Any],
    fast_forward: bool,
    aborts: list[tuple[int, bool]],
    resets: list[int],
    loads: str,
    tmp_path: Path,
) -> None:
    world = world.under(preset)
    tier = Offload(20 if loads == "tier" else 0)
    options = replace(world.options, **mode, kv_consumer=loads == "connector", offload=tier)
    arrivals = [
        replace(a, abort=a.time + aborts[i // 2 % len(aborts)][0], abort_late=aborts[i // 2 % len(aborts)][1])
        if aborts and i % 2 and a.after is None
        else a
        for i, a in enumerate(world.arrivals)
    ]
    path = tmp_path / "run.jsonl"
    with path.open("w") as stream:
        # vLLM 0.26 drops outputs after a reset, and computes behind the end for as many.
        ran = drive(
            options,
            arrivals,
            world.budgets,
            observers=[Recorder(stream)],
            fast_forward=fast_forward,
            resets=resets,
            reset_running=preset != "vllm-0.26.0",
        )
    assert same(ran, heard(path))


FILES = [
    "field/padded-clipped",
    "field/hit-on-a-moved-claim",
    "field/freed-while-in-flight",
    "seeds/s03-resume-mid-block",
]


@pytest.mark.parametrize("file", FILES)
def test_a_scenario_run_asynchronously_is_audited_as_it_ran(file: str, tmp_path: Path) -> None:
    """All seed and field scenarios were run so once."""
    for run in runs(load(ROOT / "scenarios" / f"{file}.yaml")):
        path = tmp_path / "run.jsonl"
        with path.open("w") as stream:
            on = replace(run, options=replace(run.options, async_scheduling=True))
            ran = simulate(on, [Recorder(stream)])
        assert same(ran, heard(path))
