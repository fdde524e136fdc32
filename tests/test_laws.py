"""Laws of whole runs, over any world (:mod:`worlds`)."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, assume, event, find, given, settings
from hypothesis import strategies as st
from worlds import Padded, World, worlds

from stateat.sim.adapters.log import Recorder
from stateat.sim.cache.manager import KVCache
from stateat.sim.engine.scheduler import Scheduler
from stateat.sim.events import Fanout, Observer
from stateat.sim.releases import presets
from stateat.sim.releases.policy import Policy
from stateat.sim.run.clock import Simulation
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import audit, drive

ROOT = Path(__file__).resolve().parents[1]
# The first world that is found will do: shrinking it takes minutes.
FIRST = settings(max_examples=5000, derandomize=True, database=None, phases=[Phase.generate])
PRESETS = st.sampled_from(sorted(presets.PRESETS))


def run(world: World, observers: list[Observer] | None = None, fast_forward: bool = True) -> Outcome:
    outcome = drive(world.options, world.arrivals, world.budgets, observers=observers or [], fast_forward=fast_forward)
    return replace(outcome, wall_s=0.0)


@settings(max_examples=400)
@given(world=worlds("vllm-0.27.0", drafts_fit=True))
def test_the_fixed_gate_never_poisons(world: World) -> None:
    """No budgets, block size, prompts, K below the block or arrivals give a poison finding, padded rows aside.

    What lies outside is kept as ``scenarios/field/padded-*.yaml`` and ``drafts-wider-than-a-block.yaml``.
    """
    padded = Padded()
    outcome = run(world, [padded])
    assume(not padded.found)
    event(f"hits: {outcome.restores > 0}")
    event(f"preempted: {outcome.preempted > 0}")
    assert [f.message for f in outcome.findings if f.severity == "poison"] == []


def test_the_old_gate_with_a_look_ahead_drafter_is_found_to_poison_within_seconds() -> None:
    """Negative control of the law above: Hypothesis finds a world in which 0.26.0 poisons, and 0.27.0 does not."""
    world = find(
        worlds("vllm-0.26.0", look_ahead=True, tight=False),
        lambda w: run(w).poisoned > 0,
        settings=FIRST,
    )
    assert run(world).poisoned > 0
    assert run(world.under("vllm-0.27.0")).poisoned == 0


@pytest.mark.parametrize("split", ["unguarded", "last-cache-position", "realign-below-last-cache-position"])
def test_each_weaker_split_is_found_to_poison(split: str) -> None:
    """The detector is not blind to any of them."""
    found = find(
        worlds("vllm-0.27.0", look_ahead=True, tight=False),
        lambda w: run(w.under("vllm-0.27.0", split=split)).poisoned > 0,
        settings=FIRST,
    )
    assert run(found).poisoned == 0


@settings(max_examples=200)
@given(world=worlds(), preset=PRESETS)
def test_fast_forwarding_changes_nothing_that_is_decided_or_found(world: World, preset: str) -> None:
    world = world.under(preset)
    assert run(world, fast_forward=True) == run(world, fast_forward=False)


@settings(max_examples=60)
@given(world=worlds(), preset=PRESETS)
def test_the_log_gives_the_same_findings_as_the_run(world: World, preset: str) -> None:
    world = world.under(preset)
    stream = io.StringIO()
    live = run(world, [Recorder(stream)])
    path = Path(f"{os.environ.get('TMPDIR', '/tmp')}/stateat-law-{os.getpid()}.jsonl")
    try:
        path.write_text(stream.getvalue())
        (heard,) = audit(path).variants.values()
    finally:
        path.unlink()
    assert replace(heard, variant=live.variant) == live


class Ledger(Observer):
    """How many tokens each request computed, from what was told of its chunks."""

    def __init__(self) -> None:
        self.computed: dict[str, int] = {}
        self.hits: dict[str, int] = {}
        self.outputs: dict[str, int] = {}
        self.preempted = 0

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        self.hits[request] = hit
        self.computed.setdefault(request, 0)

    def chunk(self, request: str, start: int, end: int, drafts: int, stop: str, steps: int, accepted: Any) -> None:
        if steps:
            self.computed[request] += sum(accepted) + steps
        else:
            self.computed[request] += end - start - drafts

    def accept(self, request: str, drafted: int, accepted: int) -> None:
        self.computed[request] += accepted

    def output(self, request: str, count: int, tokens: Any) -> None:
        self.outputs[request] = self.outputs.get(request, 0) + count

    def preempt(self, request: str) -> None:
        self.preempted += 1


@settings(max_examples=150)
@given(world=worlds(), preset=PRESETS)
def test_hit_tokens_are_exactly_the_tokens_not_computed(world: World, preset: str) -> None:
    world = world.under(preset)
    ledger, padded = Ledger(), Padded()
    outcome = run(world, [ledger, padded])
    assume(not padded.clipped and not ledger.preempted and not outcome.livelock)
    for arrival in world.arrivals:
        # All but the last output are computed; the last step may verify more drafts than were still wanted.
        least = arrival.num_prompt_tokens + ledger.outputs[arrival.id] - 1 - ledger.hits[arrival.id]
        most = least + world.options.speculative.num_speculative_tokens
        assert least <= ledger.computed[arrival.id] <= most
    assert outcome.hit_tokens == sum(ledger.hits.values())


@settings(max_examples=150)
@given(world=worlds(), preset=PRESETS, fast_forward=st.booleans())
def test_every_reference_is_returned_at_the_end(world: World, preset: str, fast_forward: bool) -> None:
    options = replace(world.options, preset=preset)
    scheduler = Scheduler(Policy.of(replace(options, rules={})), Fanout([]), 0, fast_forward)
    simulation = Simulation(scheduler, options, world.arrivals, world.budgets, Fanout([]))
    simulation.run()
    assert isinstance(scheduler.cache, KVCache)
    pool = scheduler.cache.pool
    if simulation.livelock:
        assert scheduler.waiting or scheduler.running
    else:
        assert pool.refs == [0] * options.num_blocks
        assert pool.num_free == options.num_blocks - 1


@settings(max_examples=100)
@given(world=worlds(tight=False), preset=PRESETS)
def test_a_pool_with_room_and_a_cap_above_the_block_let_every_request_finish(world: World, preset: str) -> None:
    options = world.options
    block = max(g.block_size for g in options.groups)
    threshold = options.long_prefill_token_threshold
    assume(options.max_num_batched_tokens >= block + 5 and (not threshold or threshold >= block + 5))
    outcome = run(world.under(preset))
    assert not outcome.livelock
    assert outcome.finished == len(world.arrivals)


PROGRAM = """
import sys
from stateat.sim.run.simulate import replay
from stateat.sim.scenario.load import load
from stateat.sim.report.machine.json import dumps
sys.stdout.write(dumps(replay(load("scenarios/seeds/s05-concurrency.yaml"), only=["8 clients"])))
"""


def test_results_do_not_depend_on_the_process_or_its_hash_seed() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "4242")
    }
    assert len(texts) == 1
    assert json.loads(texts.pop())["variants"]["8 clients"]["poisoned"] == 9


def test_the_worlds_reach_what_they_are_meant_to_test() -> None:
    """Sometimes-marks: hits, preemptions, resumed hits, evictions, deferrals, drafts and quiet runs all occur."""
    seen: dict[str, int] = {}

    @settings(max_examples=150, derandomize=True, database=None)
    @given(world=worlds())
    def explore(world: World) -> None:
        facts = asdict(run(world.under("vllm-0.26.0")))
        for name in ("hit_tokens", "preempted", "resume_hit_tokens", "evicted", "deferred", "poisoned", "livelock"):
            seen[name] = seen.get(name, 0) + bool(facts[name])

    explore()
    assert all(seen.values()), seen
