"""Laws of whole runs of groups in ``all`` mode, over any world (:mod:`worlds`)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, Phase, assume, find, given, settings
from hypothesis import strategies as st
from worlds import Padded, World, worlds

from sim.engine import presets
from sim.result import Outcome
from sim.simulate import drive

WITH_ALL_MODE = [name for name, values in presets.PRESETS.items() if values["kernel"] == "align-and-all"]
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


def run(world: World, fast_forward: bool = True) -> tuple[Outcome, bool]:
    padded = Padded()
    outcome = drive(world.options, world.arrivals, world.budgets, observers=[padded], fast_forward=fast_forward)
    return replace(outcome, wall_s=0.0), padded.found


@settings(max_examples=150, suppress_health_check=[HealthCheck.filter_too_much])
@given(world=all_mode())
def test_a_request_that_hits_nothing_reads_its_own_state_whatever_its_drafts_were_worth(world: World) -> None:
    """Rejected drafts do not stay in the state that is read next."""
    outcome, padded = run(replace(world, options=replace(world.options, enable_prefix_caching=False)))
    assume(not padded)
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
