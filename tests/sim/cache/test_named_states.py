"""States that a scenario evicts or places by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.errors import ChangeError
from stateat.sim.events import Group, Observer
from stateat.sim.options import Options, Speculative
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival
from stateat.sim.workload.named_states import StateChange

ATTENTION, GDN = 0, 1
GROUPS = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 64))
OPTIONS = Options(GROUPS, num_blocks=100, max_num_batched_tokens=64, clock="steps", partial_hits=False)
OWNER = Arrival("a", 0, 0, ((1, 260),))
SIBLING = Arrival("b", 1, 20, ((1, 260), (2, 9)))


def evict(group: int, offset: int, time: int = 20, request: str = "a") -> StateChange:
    return StateChange(time, False, group, request, offset, "f.yaml:7: workload.evict[0]")


def place(group: int, offset: int, time: int = 20, request: str = "a") -> StateChange:
    return StateChange(time, True, group, request, offset, "f.yaml:8: workload.place[0]")


def ran(*changes: StateChange, arrivals: Any = (OWNER, SIBLING), **options: Any) -> Outcome:
    return drive(replace(OPTIONS, **options), arrivals, changes=changes)


@pytest.mark.parametrize(
    ("changes", "hit"),
    [
        ([], 256),
        ([evict(GDN, 256)], 192),
        ([evict(GDN, 256), evict(GDN, 192)], 128),
        ([evict(GDN, 128)], 256),
        ([evict(ATTENTION, 144)], 128),
        ([evict(ATTENTION, 144), place(ATTENTION, 144)], 256),
        ([evict(GDN, 256), place(GDN, 256)], 256),
        ([evict(ATTENTION, 16)], 0),
    ],
)
def test_a_hit_is_what_is_left_with_what_is_put_there(changes: list[StateChange], hit: int) -> None:
    outcome = ran(*changes)
    assert outcome.hits["b"] == hit
    assert (outcome.poisoned, outcome.findings) == (0, ())


def test_a_prefix_that_nobody_computed_is_hit_where_it_is_placed() -> None:
    only = replace(SIBLING, index=0)
    outcome = ran(place(GDN, 128, 20, "b"), place(ATTENTION, 256, 20, "b"), arrivals=[only])
    assert (outcome.hits["b"], outcome.poisoned, outcome.wrong_restores) == (128, 0, 0)


@pytest.mark.parametrize("preset", ["vllm-0.27.0", "vllm-0.29.0", "vllm-0.33.0"])
@pytest.mark.parametrize("method", ["ngram", "mtp"])
@given(offset=st.integers(1, 4), partial=st.booleans())
def test_a_placed_state_is_the_true_one(preset: str, method: str, offset: int, partial: bool) -> None:
    """Whoever starts from it is right, with drafters and hits inside a block too."""
    options = {"speculative": Speculative(method, 2), "preset": preset, "partial_hits": partial}
    changes = [evict(GDN, 64 * n) for n in range(offset, 5) if 64 * n <= (192 if method == "mtp" else 256)]
    try:
        outcome = ran(*changes[:1], place(GDN, 64 * offset), **options)
    except ChangeError as error:
        # A drop leaves the last state out.
        assert "there already" in str(error) or "found no state" in str(error)
        return
    assert (outcome.poisoned, outcome.wrong_restores) == (0, 0)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (evict(GDN, 320), {}, "found no state@320 of request 'a' in group 'gdn', allowed one that is published then"),
        (evict(GDN, 16 * 10**6), {}, "found no state@16000000 of request 'a' in group 'gdn'"),
        (evict(ATTENTION, 272), {}, "found no block@272 of request 'a' in group 'attention'"),
        (evict(GDN, 64, 3, "b"), {}, "found request 'b', which has not come by 3, allowed one that has"),
        (evict(GDN, 64, 500), {}, "found at 500, allowed before the run ends, at 2"),
        (place(GDN, 256), {}, "found state@256 of request 'a' in group 'gdn' there already, allowed one that is not"),
        (place(ATTENTION, 256), {}, "found block@256 of request 'a' in group 'attention' there already"),
        (place(GDN, 80), {}, "found offset 80, allowed a multiple of the block 64, at most 256"),
        (place(GDN, 320), {}, "found offset 320, allowed a multiple of the block 64, at most 256"),
        (
            place(GDN, 272),
            {"partial_hits": True},
            "found offset 272, allowed a multiple of the hash unit 16, at most 256",
        ),
    ],
)
def test_what_cannot_be_done_is_one_message(change: StateChange, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ChangeError) as caught:
        ran(change, **options)
    assert str(caught.value).startswith(f"{change.where}: {message}")
    assert caught.value.exit_code == 2


def test_a_pool_that_is_in_use_has_no_room_for_a_placed_state() -> None:
    busy = Arrival("c", 2, 0, ((9, 300),), 40)
    change = place(ATTENTION, 256, 8, "b")
    with pytest.raises(ChangeError, match=r"found \d free blocks, allowed at least the 16 that it takes"):
        ran(change, arrivals=[busy, replace(SIBLING, time=8)], num_blocks=26)


def test_a_claim_of_what_is_used_goes_and_its_user_goes_on() -> None:
    """As with vLLM's evict_blocks the slot stays with who has it."""
    runs = replace(OWNER, max_tokens=30)
    outcome = ran(evict(GDN, 256, 8), arrivals=[runs, SIBLING])
    assert (outcome.finished, outcome.poisoned, outcome.hits["b"]) == (2, 0, 192)


@pytest.mark.parametrize("fast_forward", [False, True])
def test_fast_forwarding_stops_for_a_change(fast_forward: bool) -> None:
    runs = replace(OWNER, max_tokens=90)
    late = replace(SIBLING, time=60)
    found = drive(OPTIONS, [runs, late], fast_forward=fast_forward, changes=[evict(GDN, 192, 40), evict(GDN, 256, 41)])
    assert found.hits["b"] == 128


class Order(Observer):
    """The order of what happens in step 20."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._step = -1

    def step(self, index: int, time_us: int, budget: int) -> None:
        self._step = index

    def _tell(self, word: str) -> None:
        if self._step == 20:
            self.told.append(word)

    def reset(self, done: bool) -> None:
        self._tell("reset")

    def unclaim(self, group: int, slot: int, hash: bytes, why: str) -> None:
        self._tell(why)

    def place(self, request: str, group: int, slot: int, offset: int) -> None:
        self._tell("place")

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        self._tell("claim")

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        self._tell("admit")


def test_resets_come_before_changes_and_changes_before_decisions() -> None:
    order = Order()
    drive(OPTIONS, [OWNER, SIBLING], observers=[order], changes=[evict(GDN, 64), place(GDN, 64)])
    assert order.told[:4] == ["asked", "place", "claim", "admit"]
    order = Order()
    changes = [place(GDN, 64)]
    drive(OPTIONS, [OWNER, SIBLING], observers=[order], changes=changes, resets=[20])
    assert order.told.index("reset") < order.told.index("place")
