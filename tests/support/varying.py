"""Worlds of proposals that vary, and what live releases schedule in them (``varying.json``)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stateat.sim.conformance.compare import Decisions
from stateat.sim.events import Group
from stateat.sim.options import Options, Speculative
from stateat.sim.run.engine import Make
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival


@dataclass(frozen=True)
class Server:
    """A server and its load."""

    options: Options
    arrivals: tuple[Arrival, ...]
    budgets: tuple[int, ...] = ()


ATTENTION, STATES = Group("attention", "full-attention", 4), Group("states", "recurrent", 8)
WINDOW = Group("window", "full-attention", 4, sliding_window=10)
OPTIONS = Options((ATTENTION, STATES), num_blocks=200, max_num_batched_tokens=32, max_model_len=200, clock="steps")


def world(options: Options, speculative: Speculative, *arrivals: Arrival, budgets: tuple[int, ...] = ()) -> Server:
    return Server(replace(options, speculative=speculative), arrivals, budgets)


WORLDS = {
    "a budget cuts drafts": world(
        OPTIONS,
        Speculative("ngram", 3, (2, 1), proposed_drafts=(3, 0, 2)),
        Arrival("a", 0, 0, ((1, 7),), 12),
        Arrival("b", 1, 1, ((1, 9),), 9, proposed_drafts=(1, 3)),
        budgets=(32, 32, 4, 3, 2, 1),
    ),
    "a pool preempts": world(
        replace(OPTIONS, num_blocks=17),
        Speculative("suffix", 3, (3, 0), proposed_drafts=(2, 3, 0)),
        Arrival("a", 0, 0, ((1, 9),), 20),
        Arrival("b", 1, 0, ((2, 9),), 20),
    ),
    "a batch's size, beside a window": world(
        replace(OPTIONS, groups=(ATTENTION, WINDOW, STATES)),
        Speculative(
            "mtp", 3, (3, 1), num_speculative_tokens_per_batch_size=((1, 1, 3), (3, 3, 0)), proposed_drafts=(3, 2)
        ),
        Arrival("a", 0, 0, ((1, 7),), 24),
        Arrival("b", 1, 3, ((1, 7), (2, 5)), 12),
        Arrival("c", 2, 5, ((1, 1),), 5),
    ),
}


def told(name: str, release: str) -> dict[str, Any]:
    """What a live release schedules and preempts in a world, as it was recorded."""
    recorded = json.loads(Path(__file__).with_suffix(".json").read_text())
    found: dict[str, Any] = next(said for said in recorded[name] if release in said["releases"])
    return {key: value for key, value in found.items() if key != "releases"}


def said(server: Server, preset: str, make: Make | None = None) -> dict[str, Any]:
    """The same of the reference engine under a preset, or of the engine that ``make`` makes."""
    decisions = Decisions()
    options = replace(server.options, preset=preset)
    drive(options, server.arrivals, server.budgets, observers=[decisions], fast_forward=make is None, make=make)
    # As JSON has it: keys are texts, and rows are lists.
    kept: dict[str, Any] = json.loads(json.dumps({k: getattr(decisions, k) for k in ("scheduled", "preempted")}))
    return kept
