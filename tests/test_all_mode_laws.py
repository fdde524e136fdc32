"""Laws of whole runs of groups in ``all`` mode, over any world (:mod:`worlds`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, assume, find, given, settings
from hypothesis import strategies as st
from worlds import Padded, World, worlds

from stateat.sim.events import Group, Observer
from stateat.sim.options import Options, Speculative
from stateat.sim.releases import presets
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

WITH_ALL_MODE = [name for name, values in presets.PRESETS.items() if values["state_writes"] != "align"]
FIRST = settings(max_examples=5000, derandomize=True, database=None, phases=[Phase.generate])


@st.composite
def all_mode(draw: st.DrawFn, drafts: bool | None = None) -> World:
    """A world whose recurrent groups are in ``all`` mode, with room for their states."""
    world = draw(worlds(draw(st.sampled_from(WITH_ALL_MODE)), look_ahead=None if drafts is None else drafts))
    options = world.options
    groups = tuple(replace(g, mamba_cache_mode="all") if g.recurrent else g for g in options.groups)
    longest = max(a.num_prompt_tokens + a.max_tokens for a in world.arrivals)
    smallest = min(g.block_size for g in groups if g.recurrent)
    more = len(options.recurrent) * (longest // smallest + 16)
    options = replace(options, groups=groups, partial_hits=False, num_blocks=options.num_blocks + more)
    return replace(world, options=options)


def run(world: World, fast_forward: bool = True, observers: Sequence[Observer] = ()) -> tuple[Outcome, bool]:
    padded = Padded()
    everyone = [padded, *observers]
    outcome = drive(world.options, world.arrivals, world.budgets, observers=everyone, fast_forward=fast_forward)
    return replace(outcome, wall_s=0.0), padded.found


class Clipped(Observer):
    """Whether a row had some drafts, and fewer than K: ``scenarios/field/fewer-drafts-in-all-mode.yaml``."""

    def __init__(self, drafts: int) -> None:
        self.num_drafts = drafts
        self.found = False

    def chunk(
        self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Sequence[int]
    ) -> None:
        self.found = self.found or 0 < drafts < self.num_drafts


@settings(max_examples=150, suppress_health_check=[HealthCheck.filter_too_much])
@given(world=all_mode())
def test_a_request_that_hits_nothing_reads_its_own_state_whatever_its_drafts_were_worth(world: World) -> None:
    """Rejected drafts do not stay in the state that is read next."""
    options = replace(world.options, enable_prefix_caching=False)
    clipped = Clipped(options.speculative.num_speculative_tokens)
    outcome, padded = run(replace(world, options=options), observers=[clipped])
    assume(not padded and not clipped.found)
    assert (outcome.wrong_reads, outcome.poisoned) == (0, 0)


@settings(max_examples=100)
@given(world=all_mode(drafts=False))
def test_without_drafts_all_mode_never_poisons(world: World) -> None:
    plain = replace(world.options.speculative, num_speculative_tokens=0, accepted_drafts=(0,))
    outcome, _ = run(replace(world, options=replace(world.options, speculative=plain)))
    assert [f.message for f in outcome.findings if f.severity == "poison"] == []


def test_with_drafts_a_boundary_that_decoding_passes_is_found_to_be_wrong() -> None:
    """Nobody saves it: ``scenarios/field/drafts-in-all-mode.yaml``."""
    world = find(all_mode(drafts=True), lambda w: run(w)[0].poisoned > 0, settings=FIRST)
    assert run(world)[0].poisoned > 0


@settings(max_examples=60)
@given(world=all_mode())
def test_telling_decode_steps_at_once_changes_nothing(world: World) -> None:
    assert run(world)[0] == run(world, fast_forward=False)[0]


def short(world: World, spare: int) -> World:
    """The same world, in which the last rows of the longest request have no room for all drafts."""
    longest = max(a.num_prompt_tokens + a.max_tokens for a in world.arrivals)
    return replace(world, options=replace(world.options, max_model_len=longest + spare))


def miscounted(world: World) -> list[str]:
    return [f.message for f in run(world)[0].findings if f.invariant == "I11"]


@settings(max_examples=150)
@given(world=all_mode(), spare=st.integers(0, 5))
def test_every_release_applies_each_requests_own_count_however_few_drafts_have_room(world: World, spare: int) -> None:
    assert miscounted(short(world, spare)) == []


@pytest.mark.parametrize("worker", ["one-too-many", "never-rolled-back"])
def test_a_worker_that_applies_another_count_is_found_to(worker: str) -> None:
    """Negative controls of the law above."""
    world = find(
        all_mode(drafts=True), lambda w: bool(miscounted(w.under(w.options.preset, worker=worker))), settings=FIRST
    )
    assert not miscounted(world)


def test_after_a_row_of_fewer_drafts_a_wrong_column_is_no_wrong_count() -> None:
    """[7, 10) leaves state@8 in column 1; the next row looks for it in column 0. Its count of 1 is its own."""
    groups = Group("attention", "full-attention", 8), Group("ssd", "recurrent", 8, False, "all")
    speculative = Speculative("ngram", 3)
    options = Options(groups, speculative=speculative, enable_prefix_caching=False, clock="steps")
    outcome = drive(options, [Arrival("a", 0, 0, ((1, 6),), 9)], [6, 4, 3])
    assert [(f.invariant, f.step, f.claimed, f.held) for f in outcome.findings] == [("I12", 3, 8, 6)]
