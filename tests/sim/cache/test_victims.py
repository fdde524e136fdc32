"""Which block is evicted next: what a hit refreshes, superseded states first, times to live, a pool apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.cache.pool import BlockPool
from stateat.sim.cache.victims import Ages, Chains, chooser
from stateat.sim.conformance.compare import Decisions
from stateat.sim.events import Group, Observer
from stateat.sim.options import Options
from stateat.sim.rules.eviction import EVICTION
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

GROUPS = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 64))
OPTIONS = Options(GROUPS, num_blocks=300, max_num_batched_tokens=64, clock="steps", partial_hits=False)


class Withdrawn(Observer):
    """Offsets of the states that are withdrawn, by reason, with the step."""

    def __init__(self) -> None:
        self.claims: dict[tuple[int, bytes], int] = {}
        self.told: list[tuple[int, int, str]] = []
        self._step = 0

    def step(self, index: int, time_us: int, budget: int) -> None:
        self._step = index

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        self.claims[slot, hash] = offset

    def unclaim(self, group: int, slot: int, hash: bytes, why: str) -> None:
        self.told.append((self._step, self.claims[slot, hash], why))


def served(*prompts: Any, observer: Observer | None = None, **changes: Any) -> Outcome:
    """Requests one behind the other; a prompt is (segments) or (segments, arrival)."""
    arrivals = []
    for i, (time, segments) in enumerate(prompts):
        arrivals.append(Arrival(f"r{i}", i, time, segments))
    return drive(replace(OPTIONS, **changes), arrivals, observers=[observer] if observer else [])


def hashes(*lengths: int) -> Mapping[int, bytes]:
    return {n: bytes([n]) * 4 for n in lengths}


@pytest.mark.parametrize(
    ("rule", "order"),
    [("lru", [1, 3, 2]), ("fifo", [1, 2, 3]), ("superseded-state-first", [2, 1, 3])],
)
def test_the_next_victim_is_the_one_of_the_rule(rule: str, order: list[int]) -> None:
    """Blocks 1, 2, 3 become free in this order, and 2 is used once more; it has a longer state beside it, 3."""
    eviction = EVICTION[rule]
    pool = BlockPool(4, 2, choose=chooser(eviction, [1]), chains=Chains(), ages=Ages({}, rule != "fifo"))
    blocks = pool.take(3)
    keys = [b"other", b"short", b"long"]
    for block, key in zip(blocks, keys, strict=True):
        pool.insert(1, key, block, 64)
        assert pool.chains is not None
        pool.chains.insert(1, key, block, [b"short"] if key == b"long" else [])
        pool.free([block])
    pool.touch([blocks[1]])
    pool.free([blocks[1]])
    assert [pool.take(1)[0] for _ in blocks] == [blocks[i - 1] for i in order]


@pytest.mark.parametrize("rule", EVICTION)
def test_a_block_under_no_claim_goes_before_all_others(rule: str) -> None:
    pool = BlockPool(4, 2, choose=chooser(EVICTION[rule], [1]), chains=Chains(), ages=Ages({}, True))
    one, other, third = pool.take(3)
    pool.insert(1, b"a", one, 64)
    pool.free([one, other, third])
    assert {pool.take(1)[0], pool.take(1)[0]} == {other, third}


def test_a_state_is_superseded_only_while_the_longer_one_is_published() -> None:
    chains = Chains()
    pool = BlockPool(4, 2, chains=chains)
    short, long, _ = pool.take(3)
    pool.insert(1, b"s", short, 64)
    chains.insert(1, b"s", short, [])
    assert not chains.superseded(pool, short)
    pool.insert(1, b"l", long, 128)
    chains.insert(1, b"l", long, [b"s"])
    assert chains.superseded(pool, short) and not chains.superseded(pool, long)
    pool.remove(long, "evict")
    assert not chains.superseded(pool, short)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6)), min_size=1, max_size=6), st.integers(4, 9))
def test_chains_say_what_a_search_of_all_prefixes_would(prompts: list[tuple[int, int]], blocks: int) -> None:
    """After any run the superseded states are those of which another published one has a longer prefix."""
    from stateat.sim.engine.scheduler import Scheduler
    from stateat.sim.releases.policy import Policy

    schedulers = []

    def make(policy: Policy, observer: Observer, seed: int) -> Scheduler:
        schedulers.append(Scheduler(policy, observer, seed, True))
        return schedulers[-1]

    options = replace(OPTIONS, num_state_blocks=blocks, rules={"eviction": "superseded-state-first"})
    arrivals = [Arrival(f"r{i}", i, 20 * i, ((seed, 64 * n + 1),)) for i, (seed, n) in enumerate(prompts)]
    drive(options, arrivals, make=make)
    pool = schedulers[0].cache.managers[1].pool  # type: ignore[attr-defined]
    known = {
        key: (seed, 64 * n)
        for i, (seed, n) in enumerate(prompts)
        for n, key in enumerate(drive_hashes(arrivals[i], options)[3::4], 1)
    }
    standing = {block: known[pool.primary[block]] for block in pool.blocks if pool.primary[block]}
    for block, (seed, offset) in standing.items():
        longer = any(s == seed and n > offset for s, n in standing.values())
        assert pool.chains.superseded(pool, block) == longer


def drive_hashes(arrival: Arrival, options: Options) -> list[bytes]:
    from stateat.sim.engine.request import Request

    return Request(arrival, options, 0).hashes(options.hash_unit)[: arrival.num_prompt_tokens // options.hash_unit]


A, B = ((1, 257),), ((2, 257),)
LATER = (0, A), (20, B), (40, (*A, (3, 64))), (60, ((4, 193),)), (80, (*B, (5, 64)))


@pytest.mark.parametrize(("rule", "last"), [("lru", 256), ("lru-of-prefixes", 0), ("fifo", 256)])
def test_a_hit_that_refreshes_states_it_does_not_use_costs_another_session_its_own(rule: str, last: int) -> None:
    outcome = served(*LATER, num_state_blocks=9, rules={"eviction": rule})
    assert outcome.hits["r2"] == 256
    assert outcome.hits["r4"] == last


@pytest.mark.parametrize(("rule", "hits"), [("lru", [192, 192]), ("fifo", [192, 0]), ("lru-of-prefixes", [192, 192])])
def test_a_time_to_live_counts_from_the_last_use_unless_a_hit_refreshes_nothing(rule: str, hits: list[int]) -> None:
    prompts = [(time, ((1, 200), (time, 30))) for time in (0, 40, 80)]
    prompts[0] = (0, ((1, 200),))
    outcome = served(*prompts, group_times_to_live={"gdn": 60, "attention": 60}, rules={"eviction": rule})
    assert [outcome.hits["r1"], outcome.hits["r2"]] == hits


def test_what_is_used_lives_and_what_is_not_is_withdrawn_when_its_time_is_over() -> None:
    heard = Withdrawn()
    short = Arrival("a", 0, 0, ((1, 130),))
    runs = Arrival("b", 1, 0, ((2, 70),), 40)
    options = replace(OPTIONS, group_times_to_live={"gdn": 10}, max_num_batched_tokens=64)
    drive(options, [short, runs], observers=[heard])
    steps = {(offset, why): step for step, offset, why in heard.told}
    # a has state@64 until it ends, in step 2 or 3; b lets go of its own when it computes past 128 tokens or ends.
    assert {why for _, why in steps} == {"expire"}
    assert min(steps.values()) == 10 + 2


@given(st.integers(1, 60))
def test_fast_forwarding_changes_nothing_where_something_expires(time: int) -> None:
    arrivals = [Arrival(f"r{i}", i, 25 * i, ((1, 150 + i),), 30) for i in range(3)]
    options = replace(OPTIONS, group_times_to_live={"gdn": time})
    heard = []
    for fast in (False, True):
        withdrawn = Withdrawn()
        outcome = drive(options, arrivals, observers=[withdrawn], fast_forward=fast)
        heard.append((outcome.digest, outcome.hits, withdrawn.told))
    assert heard[0] == heard[1]


@pytest.mark.parametrize(("apart", "hit"), [(0, 0), (24, 192)])
def test_attention_evicts_no_state_of_a_pool_apart(apart: int, hit: int) -> None:
    long = (5, ((2, 1200),))
    outcome = served((0, ((1, 200),)), long, (60, ((1, 200), (3, 30))), num_blocks=90, num_state_blocks=apart)
    assert outcome.hits["r2"] == hit


@pytest.mark.parametrize("preset", ["vllm-0.26.0", "vllm-0.29.0", "vllm-0.33.0"])
@given(st.data())
def test_a_pool_apart_decides_as_one_pool_where_both_have_room(preset: str, data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 300), min_size=1, max_size=6))
    arrivals = [Arrival(f"r{i}", i, 3 * i, ((1, n), (i + 2, 9)), 5) for i, n in enumerate(lengths)]
    heard = []
    for apart in (0, 300):
        decisions = Decisions()
        options = replace(OPTIONS, preset=preset, num_state_blocks=apart)
        outcome = drive(options, arrivals, observers=[decisions])
        heard.append((outcome.digest, outcome.hits, outcome.poisoned, outcome.claims))
        assert outcome.free_blocks == 299 + apart
    assert heard[0] == heard[1]


def test_slots_of_a_pool_apart_follow_on_those_of_the_first() -> None:
    class Slots(Observer):
        def __init__(self) -> None:
            self.by_group: dict[int, set[int]] = {0: set(), 1: set()}

        def allocate(self, request: str, group: int, column: int, slots: Any) -> None:
            self.by_group[group] |= set(slots) - {0}

    slots = Slots()
    served((0, A), (20, B), observer=slots, num_state_blocks=20)
    assert slots.by_group[0] and max(slots.by_group[0]) < 300
    assert slots.by_group[1] and min(slots.by_group[1]) >= 300


def test_a_reset_waits_until_neither_pool_is_used() -> None:
    pool = BlockPool(4, 2)
    states = pool.beside(3)
    taken = states.take(1)
    assert pool.unused and not states.unused
    states.free(taken)
    assert states.unused and sorted(states.queue) == [4, 5, 6]
