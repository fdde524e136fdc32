"""Rules that nothing in a run asks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.releases.presets import PRESETS, table
from stateat.sim.releases.rules import RULES
from stateat.sim.releases.support import lacks
from stateat.sim.releases.unused_rules import idle
from stateat.sim.rules.record import ALWAYS
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.scenario.load import load
from tests.support.worlds import World, worlds

ASKED = {name for name, rule in RULES.items() if rule.asked is not ALWAYS}
ROOT = Path(__file__).resolve().parents[3]
CONTROLS = {("freed-while-in-flight", "deferred_free"), ("s20-states-of-two-sizes", "state_blocks")}
"""Files with a variant in which their rule makes no difference, on purpose."""


def came_to(world: World) -> Outcome:
    outcome = drive(world.options, world.arrivals, world.budgets)
    return replace(outcome, rules={}, wall_s=0.0)


@given(st.data(), st.sampled_from(sorted(PRESETS)))
def test_under_every_value_of_an_idle_rule_the_run_is_the_same(data: st.DataObject, preset: str) -> None:
    world = data.draw(worlds(preset=preset))
    rule = data.draw(st.sampled_from(sorted(idle(world.options, world.arrivals))))
    value = data.draw(st.sampled_from(sorted(RULES[rule])))
    if not any(lacks(world.options, table(preset, {rule: value}))):
        assert came_to(world.under(preset, **{rule: value})) == came_to(world)


def test_no_scenario_shows_a_rule_that_its_run_does_not_ask() -> None:
    shown: set[str] = set()
    found: set[tuple[str, str]] = set()
    for folder in ("seeds", "field"):
        for file in sorted((ROOT / "scenarios" / folder).glob("*.yaml")):
            for run in load(file).expanded:
                rules = set(run.options.rules)
                unasked = idle(run.options, run.arrivals()) & rules
                found |= {(file.stem, rule) for rule in unasked}
                shown |= rules - unasked
    assert found == CONTROLS
    # Each of them is asked somewhere: by a variant that says so, or by what its preset decides.
    assert ASKED - shown <= {
        "draft_slots",
        "drafter_modules",
        "checkpoint",
        "threshold",
        "running",
        "stale_output",
        "state_need",
    }
