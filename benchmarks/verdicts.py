"""Compare the verdicts of scenarios one step at a time and asynchronously: which change, and in what.

    python benchmarks/verdicts.py scenarios/seeds/*.yaml scenarios/field/*.yaml

Takes every run of a file that neither is in a pipeline nor cannot be asynchronous. A verdict is whether something is
poisoned, a restore is wrong, or the run never ends; the last line counts runs and changes.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from stateat.sim.errors import StateatError
from stateat.sim.releases.presets import table
from stateat.sim.releases.support import lacks
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import simulate
from stateat.sim.scenario.load import load


def verdict(outcome: Outcome) -> tuple[bool, bool, bool]:
    """Return whether something is poisoned, a restore is wrong, and the run never ends."""
    return outcome.poisoned > 0, outcome.wrong_restores > 0, outcome.livelock


def main() -> None:
    runs = changes = 0
    for file in map(Path, sys.argv[1:]):
        for run in load(file).expanded:
            options = replace(run.options, async_scheduling=True)
            if run.options.batch_queue > 1 or any(lacks(options, table(options.preset, options.rules))):
                continue
            try:
                plain, ahead = simulate(run), simulate(replace(run, options=options))
            except StateatError as error:
                print(f"{file.stem}, {run.name}: {error}")
                continue
            runs += 1
            if verdict(plain) != verdict(ahead):
                changes += 1
                numbers = [(o.poisoned, o.wrong_restores, o.livelock) for o in (plain, ahead)]
                print(f"{file.stem}, {run.name} ({options.preset}): {numbers[0]} -> {numbers[1]}", flush=True)
    print(f"{runs:,} runs in both modes, {changes} verdicts change")


if __name__ == "__main__":
    main()
