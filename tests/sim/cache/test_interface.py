"""The interface of a cache: a scheduler that has no more than that decides the same, and needs all of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from worlds import World, worlds

from stateat.sim.cache.interface import Cache, LowerTier
from stateat.sim.cache.manager import KVCache
from stateat.sim.engine.scheduler import Scheduler
from stateat.sim.events import Group, Observer
from stateat.sim.options import Offload, Options, Speculative
from stateat.sim.releases.policy import Policy
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival
from stateat.sim.workload.named_states import StateChange


def members(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


class Narrow:
    """Has of another object what a protocol says, and nothing else; notes what was asked for."""

    def __init__(self, real: Any, protocol: type, used: set[str]) -> None:
        self._real, self._members, self._used = real, members(protocol), used

    def __getattr__(self, name: str) -> Any:
        if name not in self._members:
            raise AssertionError(f"{name} is not in the interface")
        self._used.add(name)
        found = getattr(self._real, name)
        return Narrow(found, LowerTier, self._used) if name == "lower_tier" else found

    def __setattr__(self, name: str, value: Any) -> None:
        assert name in ("_real", "_members", "_used"), f"{name} is set from outside"
        super().__setattr__(name, value)


def agree(options: Options, arrivals: tuple[Arrival, ...], budgets: tuple[int, ...] = (), **how: Any) -> set[str]:
    """A run on the interface decides what one on the cache does; the members that it used."""
    used: set[str] = set()

    def make(policy: Policy, observer: Observer, seed: int) -> Scheduler:
        def cache(*args: Any) -> Any:
            return Narrow(KVCache(*args), Cache, used)

        return Scheduler(policy, observer, seed, True, cache)

    narrow = drive(options, arrivals, budgets, make=make, **how)
    assert narrow.digest == drive(options, arrivals, budgets, **how).digest
    return used


@given(worlds(), st.sampled_from(["vllm-0.27.0", "vllm-0.29.0", "vllm-0.33.0"]))
def test_a_scheduler_decides_the_same_on_the_interface_alone(world: World, preset: str) -> None:
    agree(replace(world.options, preset=preset), world.arrivals, world.budgets)


def test_a_scheduler_needs_every_member_of_the_interface() -> None:
    groups = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 64))
    options = Options(groups, num_blocks=100, clock="steps", max_num_batched_tokens=64, preset="vllm-0.33.0")
    first = Arrival("a", 0, 0, ((1, 200),), 9)
    again = replace(first, id="b", index=1, time=20, after="a")
    rules = {"split": "retained-boundaries", "connector": "saves-cancelled", "aborted_steps": "dropped-and-unpublished"}
    tiered = replace(options, offload=Offload(50), rules=rules, num_prefill_checkpoint_blocks=1)
    used = agree(tiered, (first, again, replace(first, id="c", index=2, time=40, abort=43)), resets=(20,))
    piped = replace(tiered, max_concurrent_batches=3, num_prefill_checkpoint_blocks=0)
    used |= agree(piped, (first, replace(first, id="c", index=2, abort=3)))
    used |= agree(replace(options, speculative=Speculative("mtp", 2)), (first,))
    groups_of_a = [StateChange(21, places, 1, "a", 128) for places in (False, True)]
    used |= agree(options, (first, again), changes=groups_of_a)
    assert used == members(Cache) | members(LowerTier)
