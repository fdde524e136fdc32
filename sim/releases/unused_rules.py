"""Rules that nothing in a run asks: under each of their values it decides, copies and claims the same."""

from __future__ import annotations

from collections.abc import Sequence

from stateat.sim.options import Options
from stateat.sim.releases.rules import RULES
from stateat.sim.workload import Arrival


def idle(options: Options, arrivals: Sequence[Arrival]) -> set[str]:
    """Name the rules that this run does not ask."""
    return {name for name, rule in RULES.items() if not rule.asked.holds(options, arrivals)}
