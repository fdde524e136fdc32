"""I3: one grid, asked of the options in force."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oracle.grid import disagreements
from sim.engine.options import Options
from sim.events import Group
from sim.simulate import drive, options_in_force
from sim.workload import Arrival

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
    assert not list(disagreements(options.groups, options_in_force(options)))


def test_only_a_cache_makes_it_a_finding() -> None:
    groups = (ATTENTION, Group("gdn", "recurrent", 64))
    for caching in (True, False):
        options = Options(groups, cache_config_block_size=32, enable_prefix_caching=caching, clock="steps")
        outcome = drive(options, [Arrival("a", 0, 0, ((1, 40),))])
        wanted = [("I3", "shape", 64, 32)] * caching
        assert [(f.invariant, f.severity, f.claimed, f.held) for f in outcome.findings] == wanted
