"""Laws of the accepted counts of whole runs (I11), over any world (:mod:`worlds`)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, assume, event, find, given, settings
from hypothesis import strategies as st
from worlds import Padded, World, worlds

from stateat.sim.releases import presets
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive

FIRST = settings(max_examples=3000, derandomize=True, database=None, phases=[Phase.generate])
FORGETFUL = ("v1", "row-indexed", "one-too-many", "never-rolled-back", "shared-count")


def run(world: World, fast_forward: bool = True) -> tuple[Outcome, bool]:
    padded = Padded()
    outcome = drive(world.options, world.arrivals, world.budgets, observers=[padded], fast_forward=fast_forward)
    return replace(outcome, wall_s=0.0), padded.found


def miscounted(world: World) -> bool:
    return any(f.invariant == "I11" for f in run(world)[0].findings)


def misread(world: World) -> bool:
    return any(f.invariant == "I12" for f in run(world)[0].findings)


@settings(max_examples=250)
@given(world=st.one_of(worlds(), worlds(varying=True)), preset=st.sampled_from(sorted(presets.PRESETS)))
def test_every_release_applies_each_requests_own_count_if_its_worker_keeps_it(world: World, preset: str) -> None:
    outcome, padded = run(world.under(preset))
    assume(not padded)
    event(f"drafts: {world.options.speculative.num_speculative_tokens > 0}")
    assert [f.message for f in outcome.findings if f.invariant == "I11"] == []


@pytest.mark.parametrize("worker", FORGETFUL)
def test_a_worker_that_applies_another_count_is_found_to(worker: str) -> None:
    """Negative controls of the law above; the same world under the release's own worker has no such finding."""
    world = find(worlds(), lambda w: miscounted(w.under("vllm-0.27.0", worker=worker)), settings=FIRST)
    assert not miscounted(world.under("vllm-0.27.0"))


def test_a_row_without_drafts_is_found_to_read_the_running_column() -> None:
    """The last of the negative controls: a rule of its own."""
    world = find(
        worlds(), lambda w: miscounted(w.under("vllm-0.27.0", undrafted_rows="running-column")), settings=FIRST
    )
    assert not miscounted(world.under("vllm-0.27.0"))


@settings(max_examples=60)
@given(world=worlds(), worker=st.sampled_from(["v1", "v2"]))
def test_telling_decode_steps_at_once_changes_nothing_where_rows_without_drafts_are_plain(
    world: World, worker: str
) -> None:
    world = world.under("vllm-0.27.0", worker=worker, undrafted_rows="running-column")
    assert run(world)[0] == run(world, fast_forward=False)[0]


@pytest.mark.parametrize("worker", [name for name in FORGETFUL if name != "v1"])
def test_a_state_taken_by_another_count_is_found_where_proposals_vary(worker: str) -> None:
    """Negative controls with rows of fewer drafts than K alone, or of none: a read behind them is a wrong state's."""

    def found(world: World) -> bool:
        speculative = world.options.speculative
        fewer = max(speculative.proposed_drafts or ()) < speculative.num_speculative_tokens
        return fewer and misread(world.under("vllm-0.33.0", worker=worker))

    assert not misread(find(worlds(varying=True), found, settings=FIRST).under("vllm-0.33.0"))


@settings(max_examples=100)
@given(
    world=st.one_of(worlds(), worlds(varying=True)),
    worker=st.sampled_from([*FORGETFUL, "padded-as-prefill", "no-backward-copy"]),
)
def test_telling_decode_steps_at_once_changes_nothing_for_any_worker(world: World, worker: str) -> None:
    world = world.under("vllm-0.27.0", worker=worker)
    assert run(world)[0] == run(world, fast_forward=False)[0]


@settings(max_examples=60)
@given(world=worlds())
def test_reserving_for_the_look_ahead_changes_nothing_when_told_at_once(world: World) -> None:
    world = world.under("vllm-0.27.0", state_slots="with-look-ahead")
    assert run(world)[0] == run(world, fast_forward=False)[0]
