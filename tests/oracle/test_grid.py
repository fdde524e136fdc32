"""I3: one grid, asked of the options in force."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from stateat.oracle.grid import disagreements
from stateat.sim.events import Group
from stateat.sim.options import Options
from stateat.sim.releases import presets
from stateat.sim.releases.policy import Policy
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

ATTENTION = Group("attention", "full-attention", 16)


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from(["grid", "seed_block"]))
def test_a_component_disagrees_exactly_where_its_block_is_another(block: int, other: int, key: str) -> None:
    found = list(disagreements([ATTENTION, Group("gdn", "recurrent", block)], {key: other}))
    assert [(d.group, d.block, d.other) for d in found] == ([] if block == other else [("gdn", block, other)])


def test_what_is_not_said_is_not_asked() -> None:
    assert not list(disagreements([Group("gdn", "recurrent", 64)], {"grid": None}))
    assert not list(disagreements([Group("gdn", "recurrent", 64, False, "all"), ATTENTION], {"grid": 3}))


def test_presets_agree_with_themselves() -> None:
    options = Options((ATTENTION, Group("gdn", "recurrent", 64)))
    assert not list(disagreements(options.groups, Policy.of(options).in_force()))


def test_only_a_cache_makes_it_a_finding() -> None:
    groups = (ATTENTION, Group("gdn", "recurrent", 64))
    for caching in (True, False):
        options = Options(groups, cache_config_block_size=32, enable_prefix_caching=caching, clock="steps")
        outcome = drive(options, [Arrival("a", 0, 0, ((1, 40),))])
        wanted = [("I3", "shape", 64, 32)] * caching
        assert [(f.invariant, f.severity, f.claimed, f.held) for f in outcome.findings] == wanted


@given(
    aligned=st.integers(1, 24),
    every=st.integers(1, 24),
    prompts=st.lists(st.integers(1, 60), min_size=1, max_size=3),
    preset=st.sampled_from(sorted(presets.PRESETS)),
)
def test_a_group_in_all_mode_sets_no_grid_wherever_it_stands(
    aligned: int, every: int, prompts: list[int], preset: str
) -> None:
    """The split is for groups in align mode alone; the order of groups changes nothing that is decided or found."""
    assume(presets.PRESETS[preset]["state_writes"] != "align")
    states = Group("gdn", "recurrent", aligned), Group("ssd", "recurrent", every, False, "all")
    found = []
    for groups in ((*states, ATTENTION), (*reversed(states), ATTENTION), (ATTENTION, *reversed(states))):
        options = Options(groups, preset=preset, max_num_batched_tokens=64, clock="steps")
        assert Policy.of(options).in_force()["grid"] == aligned
        outcome = drive(options, [Arrival(str(i), i, i, ((1, n),), 9) for i, n in enumerate(prompts)])
        found.append((outcome.digest, outcome.chunks, outcome.hits, sorted(f.invariant for f in outcome.findings)))
        assert "I3" not in found[-1][-1]
    assert found[0] == found[1] == found[2]


def test_another_block_is_still_found_in_both_orders() -> None:
    """Negative control of the law above."""
    states = Group("gdn", "recurrent", 16), Group("ssd", "recurrent", 8, False, "all")
    for groups in (states, states[::-1]):
        options = Options(groups, cache_config_block_size=8, clock="steps")
        outcome = drive(options, [Arrival("a", 0, 0, ((1, 40),))])
        assert [(f.group, f.claimed, f.held) for f in outcome.findings if f.invariant == "I3"] == [("gdn", 16, 8)]
