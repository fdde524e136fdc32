"""How many requests of a plain serving load (``serving.yaml``) are simulated in a second, cache and oracle on."""

from __future__ import annotations

import argparse
import gc
from pathlib import Path
from statistics import median
from time import perf_counter

from stateat.sim.run.simulate import drive
from stateat.sim.scenario.load import load, runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="timed runs, whose median counts")
    args = parser.parse_args()
    run = next(iter(runs(load(Path(__file__).with_suffix(".yaml")))))
    requests = run.arrivals()
    rates = []
    for _ in range(args.runs):
        gc.collect()
        started = perf_counter()
        outcome = drive(run.options, requests, seed=run.seed, truth=run.truth)
        rates.append(len(requests) / (perf_counter() - started))
    print(
        f"{outcome.finished} requests in {outcome.time_us / 1e6:.0f} simulated seconds: {outcome.steps} steps, "
        f"{outcome.chunks} chunks, {outcome.claims} claims, {outcome.poisoned} poisoned"
    )
    print(f"{median(rates):.0f} requests/s, median of {args.runs} ({min(rates):.0f} to {max(rates):.0f})")


if __name__ == "__main__":
    main()
