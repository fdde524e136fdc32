"""Laws of whole runs with a connector, over any world (:mod:`worlds`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import Phase, assume, event, find, given, settings
from hypothesis import strategies as st
from worlds import Padded, World, worlds

from sim.engine.options import Offload
from sim.result import Outcome
from sim.simulate import drive

FIRST = settings(max_examples=5000, derandomize=True, database=None, phases=[Phase.generate])
CLEAN = (
    "exact-slot",
    "reconciled",
    "fails-closed",
    "divergent",
    "draft-group-missing",
    "draft-group-left-out",
    "tails",
)
WRONG = ("positional", "divergent-unbacked")


@dataclass(frozen=True)
class Case:
    """A world with a tier, and when its pool is emptied."""

    world: World
    resets: tuple[int, ...]

    def run(self, fast_forward: bool = True) -> tuple[Outcome, bool]:
        padded, world = Padded(), self.world
        outcome = drive(
            world.options, world.arrivals, world.budgets, observers=[padded], fast_forward=fast_forward,
            resets=self.resets,
        )  # fmt: skip
        return replace(outcome, wall_s=0.0), padded.found


@st.composite
def cases(
    draw: st.DrawFn,
    connectors: tuple[str, ...],
    failures: tuple[str, ...] = ("recompute", "shorter-prefix"),
    odds: int = 4,
) -> Case:
    """vLLM 0.28's rules, and a lookup that returns states only where they are; one load in ``odds`` fails."""
    world = draw(worlds("vllm-0.28.0", drafts_fit=True))
    rules = {
        "offload": "aligned-window",
        "connector": draw(st.sampled_from(connectors)),
        "load_failure": draw(st.sampled_from(failures)),
    }
    arrivals = tuple(
        replace(
            a,
            load_error=draw(st.integers(1, odds)) == 1,
            abort=a.time + draw(st.integers(0, 9)) if a.after is None and draw(st.integers(0, 3)) == 0 else None,
        )
        for a in world.arrivals
    )
    options = replace(world.options, rules=rules, offload=Offload(draw(st.integers(1, 200))))
    resets = tuple(draw(st.lists(st.integers(0, 40), max_size=6)))
    if options.clock == "us":
        resets = tuple(8000 * time for time in resets)
    return Case(replace(world, options=options, arrivals=arrivals), resets)


@settings(max_examples=250)
@given(case=cases(CLEAN))
def test_a_connector_that_goes_by_what_is_advertised_never_brings_a_wrong_state(case: Case) -> None:
    outcome, padded = case.run()
    assume(not padded)
    event(f"loaded: {outcome.loaded_tokens > 0}")
    assert [f.message for f in outcome.findings if f.severity == "poison"] == []


@pytest.mark.parametrize("connector", WRONG)
def test_one_that_does_not_is_found_to(connector: str) -> None:
    """Negative controls of the law above."""

    def wrong(case: Case) -> bool:
        outcome, padded = case.run()
        return not padded and outcome.wrong_restores > 0

    assert wrong(find(cases((connector,)), wrong, settings=FIRST))


def test_a_load_that_fails_unnoticed_is_found() -> None:
    def wrong(case: Case) -> bool:
        outcome, padded = case.run()
        return not padded and outcome.wrong_restores > 0

    assert wrong(find(cases(("exact-slot",), ("ignored",), odds=1), wrong, settings=FIRST))


@settings(max_examples=80)
@given(case=cases((*CLEAN, *WRONG, "saves-cancelled"), ("recompute", "shorter-prefix", "ignored")))
def test_telling_decode_steps_at_once_changes_nothing(case: Case) -> None:
    assert case.run()[0] == case.run(fast_forward=False)[0]
