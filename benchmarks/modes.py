"""Compare the CPU time of asynchronous and synchronous runs of scenarios, as ratios in one run.

    python benchmarks/modes.py scenarios/load/demo.yaml scenarios/load/shared-prefix-tree.yaml

Prints, for each variant, seconds of CPU in both modes (the least of three) and the asynchronous one over the other.
"""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from time import process_time

from stateat.sim.run.simulate import simulate
from stateat.sim.scenario.load import Run, load


def seconds(run: Run) -> float:
    """Return the least CPU time of three runs."""
    taken = []
    for _ in range(3):
        gc.collect()
        started = process_time()
        simulate(run)
        taken.append(process_time() - started)
    return min(taken)


def main() -> None:
    print(f"{'scenario':<28}{'variant':<16}{'synchronous':>12}{'asynchronous':>14}{'ratio':>8}")
    for file in sys.argv[1:]:
        scenario = load(file)
        for run in scenario.expanded:
            plain = seconds(replace(run, options=replace(run.options, async_scheduling=False)))
            ahead = seconds(replace(run, options=replace(run.options, async_scheduling=True)))
            print(f"{scenario.name:<28}{run.name:<16}{plain:>11.2f}s{ahead:>13.2f}s{ahead / plain:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
