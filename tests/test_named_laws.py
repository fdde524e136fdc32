"""Laws of states that a scenario evicts and places: whatever is taken away or put there, nobody starts from a lie."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from worlds import World, worlds

from stateat.sim.errors import ChangeError
from stateat.sim.events import Group, Observer
from stateat.sim.options import Options
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival
from stateat.sim.workload.named_states import StateChange

PRESETS = ("vllm-0.29.0", "vllm-0.33.0")


class Standing(Observer):
    """States that stand at the end of each step: (next step, group, request, offset)."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int, str, int]] = []
        self._claims: dict[tuple[int, bytes], tuple[int, str, int]] = {}
        self._step = 0

    def step(self, index: int, time_us: int, budget: int) -> None:
        self._step = index

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        self._claims[slot, hash] = group, request, offset

    def unclaim(self, group: int, slot: int, hash: bytes, why: str) -> None:
        self._claims.pop((slot, hash), None)

    def commit(self, time_us: int) -> None:
        self.found += [(self._step + 1, *state) for state in self._claims.values()]

    def end(self, steps: int, time_us: int, livelock: bool) -> None:
        self.found = [state for state in self.found if state[0] < steps]


def run(world: World, *observers: Observer, **how: Any) -> Any:
    return drive(world.options, world.arrivals, world.budgets, observers=observers, **how)


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=50)
@given(data=st.data())
def test_an_eviction_and_a_placement_leave_a_right_cache(preset: str, data: st.DataObject) -> None:
    """Evicted states are placed again, in another slot; the run finds nothing that it did not find before."""
    world = data.draw(worlds(preset))
    world = replace(world, options=replace(world.options, clock="steps"))
    standing = Standing()
    plain = run(world, standing)
    # What poisons by itself is no matter of what is placed.
    assume(standing.found and not any(f.severity == "poison" for f in plain.findings))
    chosen = data.draw(st.lists(st.sampled_from(standing.found), min_size=1, max_size=3, unique=True))
    step, group, request, offset = min(chosen)
    places = data.draw(st.booleans())
    changes = [StateChange(step, False, group, request, offset)]
    if places:
        changes.append(StateChange(step, True, group, request, offset))
    try:
        slow = run(world, changes=changes, fast_forward=False)
        fast = run(world, changes=changes)
    except ChangeError as error:
        # The run ended, what was generated is placed, or no block is free.
        words = ("found no state", "allowed before the run ends", "found offset", "free blocks")
        assert any(word in str(error) for word in words), error
        return
    assert (slow.digest, slow.hits) == (fast.digest, fast.hits)
    assert (slow.poisoned, slow.wrong_restores, slow.wrong_reads) == (0, 0, 0)
    assert [f for f in slow.findings if f.severity == "poison"] == []


@pytest.mark.parametrize("fast_forward", [True, False])
def test_a_change_is_made_in_its_own_step_while_others_only_decode(fast_forward: bool) -> None:
    """At 5 everybody decodes, and b has not come; the step is not skipped for that."""
    groups = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 64))
    options = Options(groups, clock="steps", max_model_len=4096)
    arrivals = [Arrival("a", 0, 0, ((1, 100),), 60), Arrival("b", 1, 10, ((2, 100),), 4)]
    change = StateChange(time=5, request="b", group=1, offset=64, places=True, where="workload.place[0]")
    with pytest.raises(ChangeError, match="'b', which has not come by 5"):
        drive(options, arrivals, changes=[change], fast_forward=fast_forward)
