"""Laws of whole runs with a tier below the pool, over any world (:mod:`worlds`)."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, event, find, given, settings
from hypothesis import strategies as st
from worlds import Padded, World, worlds

from stateat.oracle.audit import Auditor
from stateat.sim.adapters.log import Recorder
from stateat.sim.cache.manager import KVCache
from stateat.sim.cache.tier import TIER_RETURN
from stateat.sim.engine.scheduler import Scheduler
from stateat.sim.events import Fanout, Observer
from stateat.sim.options import Offload, Speculative
from stateat.sim.releases import presets
from stateat.sim.releases.policy import Policy
from stateat.sim.run.clock import Simulation
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import audit, drive

FIRST = settings(max_examples=5000, derandomize=True, database=None, phases=[Phase.generate])
WITH_ALL_MODE = [name for name, values in presets.PRESETS.items() if values["state_writes"] != "align"]


@dataclass(frozen=True)
class Tiered:
    """A world, and when its pool is emptied."""

    world: World
    resets: tuple[int, ...]

    def under(self, preset: str, **values: str) -> Tiered:
        return replace(self, world=self.world.under(preset, **values))


@st.composite
def tiered(draw: st.DrawFn, drafts_fit: bool = False, mode: str | None = None) -> Tiered:
    """``mode``: of the recurrent groups; a preset without ``all`` mode is asked for ``align``."""
    world = draw(worlds(drafts_fit=drafts_fit))
    mode = mode or draw(st.sampled_from(["align", "all"]))
    options = world.options
    groups = tuple(replace(g, mamba_cache_mode=mode) if g.recurrent else g for g in options.groups)
    most = sum(-(-a.num_prompt_tokens // min(g.block_size for g in groups)) for a in world.arrivals)
    # In all mode a request holds as many states as attention holds blocks, and K more.
    more = 0
    if mode == "all":
        longest = max(a.num_prompt_tokens + a.max_tokens for a in world.arrivals)
        more = len(options.recurrent) * (longest // min(options.groups[g].block_size for g in options.recurrent) + 8)
    options = replace(
        options,
        groups=groups,
        num_blocks=options.num_blocks + more,
        partial_hits=options.partial_hits and mode == "align",
        # With drafts in all mode nobody saves the boundaries that decoding passes, with or without a tier.
        speculative=options.speculative if mode == "align" else Speculative(),
        offload=Offload(draw(st.one_of(st.integers(1, 12), st.integers(1, 2 * most + 2)))),
    )
    resets = draw(st.lists(st.integers(0, 60), max_size=6))
    if options.clock == "us":
        resets = [time * 8000 for time in resets]
    return Tiered(replace(world, options=options), tuple(resets))


def run(case: Tiered, observers: list[Observer] | None = None, fast_forward: bool = True) -> Outcome:
    world = case.world
    outcome = drive(
        world.options,
        world.arrivals,
        world.budgets,
        observers=observers or [],
        fast_forward=fast_forward,
        resets=case.resets,
    )
    return replace(outcome, wall_s=0.0)


def presets_of(case: Tiered) -> list[str]:
    modes = {g.mamba_cache_mode for g in case.world.options.groups if g.recurrent}
    return WITH_ALL_MODE if "all" in modes else list(presets.PRESETS)


class Ledger(Auditor):
    """Keeps what each store took, by itself, and compares it with what each load brings."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[tuple[int, str], Any] = {}
        self.due: list[tuple[int, str, int]] = []
        self.loaded = 0

    def store(self, group: int, slot: int, key: str, offset: int) -> None:
        super().store(group, slot, key, offset)
        self.due.append((group, key, slot))

    def commit(self, time_us: int) -> None:
        for group, key, slot in self.due:
            self.taken[group, key] = self._state(slot)
        self.due.clear()
        super().commit(time_us)

    def load(self, request: str, group: int, key: str, slot: int, offset: int) -> None:
        super().load(request, group, key, slot, offset)
        assert self._state(slot) == self.taken[group, key]
        self.loaded += 1

    def _state(self, slot: int) -> Any:
        content = self.slots.get(slot)
        return None if content is None else content.state


@settings(max_examples=200)
@given(case=tiered(), data=st.data())
def test_what_is_loaded_is_what_was_stored_right_or_wrong(case: Tiered, data: st.DataObject) -> None:
    preset = data.draw(st.sampled_from(presets_of(case)))
    case = case.under(preset, tier_return=data.draw(st.sampled_from(list(TIER_RETURN))))
    ledger = Ledger()
    outcome = run(case, [ledger])
    event(f"loads: {ledger.loaded > 0}")
    event(f"resets: {outcome.resets > 0}")


@settings(max_examples=300, suppress_health_check=[HealthCheck.filter_too_much])
@given(case=tiered(drafts_fit=True), data=st.data())
def test_an_aligned_window_never_poisons(case: Tiered, data: st.DataObject) -> None:
    """Any prompt length, any blocks, any tier: nobody is started from another state than his own."""
    preset = data.draw(st.sampled_from([p for p in presets_of(case) if p != "vllm-0.26.0"]))
    padded = Padded()
    outcome = run(case.under(preset, tier_return="aligned-window"), [padded])
    assume(not padded.found)
    event(f"loads: {outcome.loaded_tokens > 0}")
    assert [f.message for f in outcome.findings if f.severity == "poison"] == []


@pytest.mark.parametrize(
    ("preset", "value", "mode"),
    [
        ("vllm-0.27.0", "any-length", "all"),
        ("vllm-0.27.0", "unaligned", "align"),
        ("vllm-0.28.0", "aligned-end", "align"),
        ("vllm-0.33.0", "aligned-end-one-more", "align"),
    ],
)
def test_each_weaker_window_is_found_to_start_somebody_wrong(preset: str, value: str, mode: str) -> None:
    """The detector is not blind to any of them; the law's window clears the same world."""

    def likely(case: Tiered) -> bool:
        """A tier that keeps a whole prompt, and somebody to ask for it again: the others need not be run."""
        return case.world.options.offload.blocks > 12 and len(case.world.arrivals) > 3

    def wrong(case: Tiered) -> bool:
        outcome = run(case.under(preset, tier_return=value))
        return bool(outcome.loaded_tokens) and any(f.invariant == "I10" for f in outcome.findings)

    def clean(case: Tiered) -> bool:
        return not any(f.severity == "poison" for f in run(case.under(preset, tier_return="aligned-window")).findings)

    found = find(
        tiered(drafts_fit=True, mode=mode), lambda case: likely(case) and wrong(case) and clean(case), settings=FIRST
    )
    assert run(found.under(preset, tier_return=value)).wrong_restores > 0


@settings(max_examples=150)
@given(case=tiered(), data=st.data())
def test_fast_forwarding_changes_nothing_and_a_run_is_the_same_again(case: Tiered, data: st.DataObject) -> None:
    case = case.under(data.draw(st.sampled_from(presets_of(case))))
    assert run(case) == run(case, fast_forward=False) == run(case)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=tiered(), data=st.data())
def test_the_log_gives_the_same_findings_as_the_run(tmp_path: Path, case: Tiered, data: st.DataObject) -> None:
    case = case.under(data.draw(st.sampled_from(presets_of(case))))
    stream = io.StringIO()
    live = run(case, [Recorder(stream)])
    path = tmp_path / "tier.jsonl"
    path.write_text(stream.getvalue())
    (heard,) = audit(path).variants.values()
    assert replace(heard, variant=live.variant) == live


@settings(max_examples=100)
@given(case=tiered(), data=st.data(), fast_forward=st.booleans())
def test_every_reference_is_returned_at_the_end(case: Tiered, data: st.DataObject, fast_forward: bool) -> None:
    options = replace(case.world.options, preset=data.draw(st.sampled_from(presets_of(case))))
    scheduler = Scheduler(Policy.of(replace(options, rules={})), Fanout([]), 0, fast_forward)
    simulation = Simulation(scheduler, options, case.world.arrivals, case.world.budgets, Fanout([]), resets=case.resets)
    simulation.run()
    assert isinstance(scheduler.cache, KVCache)
    tier = scheduler.cache.lower_tier.tier
    assert tier is not None and len(tier) <= options.offload.blocks
    if not simulation.livelock:
        assert scheduler.cache.pool.refs == [0] * options.num_blocks
