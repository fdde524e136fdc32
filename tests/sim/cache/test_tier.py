"""The tier below the pool: what it keeps, how far it reaches, and when the pool is emptied."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.cache.pool import BlockPool
from stateat.sim.cache.tier import TIER_RETURN, GroupQuery, Key, Tier, loadable_tokens
from stateat.sim.events import Group, Observer
from stateat.sim.options import Offload, Options
from stateat.sim.run.simulate import drive
from stateat.sim.scenario.load import load, runs
from stateat.sim.workload import Arrival

KEYS = st.lists(st.sampled_from([(g, bytes([k])) for g in (0, 1) for k in range(8)]), max_size=8, unique=True)


@given(size=st.integers(1, 8), calls=st.lists(st.tuples(st.booleans(), KEYS), max_size=20))
def test_the_least_recently_used_go_first_and_never_more_than_fit_stay(
    size: int, calls: list[tuple[bool, list[Key]]]
) -> None:
    tier, model = Tier(size), list[Key]()
    for stores, keys in calls:
        if not stores:
            tier.touch(keys)
            for key in keys:
                if key in model:
                    model.remove(key)
                    model.append(key)
            continue
        new = tier.store(keys)
        wanted = [key for key in keys if key not in model]
        if len(keys) > size:
            assert new == []
            continue
        assert new == wanted
        while len(model) + len(wanted) > size:
            model.remove(next(key for key in model if key not in keys))
        model += wanted
    assert len(tier) == len(model) <= size
    assert all(key in tier for key in model)


def queries(attention: int, recurrent: int, tokens: int, mode: str, drops: bool = False) -> list[GroupQuery]:
    return [
        GroupQuery(0, attention, "", drops, tokens // attention),
        GroupQuery(1, recurrent, mode, False, tokens // recurrent),
    ]


def key(query: GroupQuery, column: int) -> Key:
    return query.group, bytes([query.group]) + column.to_bytes(4, "little")


def full(found: Sequence[GroupQuery], lost: Sequence[Key] = ()) -> Tier:
    tier = Tier(10_000)
    tier.store([k for query in found for column in range(query.known) if (k := key(query, column)) not in lost])
    return tier


@pytest.mark.parametrize(
    ("attention", "tokens", "mode", "lost", "drops", "reached"),
    [
        # As the lookup of the releases' own connector answers: 0.26.0 and 0.27.0 are any-length, 0.28.0 and
        # 0.29.0 aligned-end, 0.32.0 and 0.33.0 aligned-end-one-more.
        (1408, 2816, "all", False, False, (1408, 1408, 1408, 2815, 2815)),
        (1408, 2816, "align", False, False, (1408, 1408, 1408, 1408, 2815)),
        (1408, 2817, "all", False, False, (2816, 2816, 2816, 2816, 2816)),
        (1408, 2817, "align", False, False, (2816, 2816, 2816, 2816, 2816)),
        (1408, 2817, "align", True, False, (1408, 1408, 1408, 1408, 1408)),
        # Attention's blocks are smaller, and the last one is lost, or given up for a drafter.
        (16, 2817, "align", True, False, (1408, 2800, 2800, 2800, 2800)),
        (16, 2817, "all", True, False, (1408, 2800, 2800, 2800, 2800)),
        # Two more blocks of attention: since 0.32 the one that is given up lies past the end.
        (16, 2849, "align", False, True, (2816, 2816, 2800, 2800, 2816)),
        (16, 2817, "align", False, True, (1408, 2800, 2800, 2800, 2800)),
    ],
)
def test_how_far_a_request_can_go_on(
    attention: int, tokens: int, mode: str, lost: bool, drops: bool, reached: tuple[int, ...]
) -> None:
    """In the order of the values: aligned-window, aligned-end-one-more, aligned-end, any-length, unaligned."""
    found = queries(attention, 1408, tokens, mode, drops)
    tier = full(found, [key(found[0], found[0].known - 1)] if lost else [])
    answers = tuple(
        loadable_tokens(tier, rule, found, key, start_tokens=0, limit_tokens=tokens - 1)
        for rule in TIER_RETURN.values()
    )
    assert answers == reached


def test_less_than_a_block_more_than_the_pool_gave_is_nothing() -> None:
    found, rule = queries(16, 64, 128, "all"), TIER_RETURN["any-length"]
    for start, end in ((0, 127), (64, 64)):
        assert loadable_tokens(full(found), rule, found, key, start_tokens=start, limit_tokens=127) == end
    # A prompt of one block: 63 tokens are less than a block.
    found = queries(16, 64, 64, "all")
    assert loadable_tokens(full(found), rule, found, key, start_tokens=0, limit_tokens=63) == 0


@given(
    attention=st.integers(1, 9),
    blocks=st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["align", "all"])), min_size=1, max_size=3),
    tokens=st.integers(1, 80),
    start=st.integers(0, 40),
    drops=st.booleans(),
    data=st.data(),
)
def test_an_aligned_window_ends_where_every_state_in_it_is_that_of_its_end(
    attention: int, blocks: list[tuple[int, str]], tokens: int, start: int, drops: bool, data: st.DataObject
) -> None:
    found = [GroupQuery(0, attention, "", drops, tokens // attention)]
    found += [GroupQuery(i, size, mode, False, tokens // size) for i, (size, mode) in enumerate(blocks, 1)]
    every = [key(query, column) for query in found for column in range(query.known)]
    tier = full(found, data.draw(st.lists(st.sampled_from(every), max_size=9)) if every else [])
    end = loadable_tokens(tier, TIER_RETURN["aligned-window"], found, key, start_tokens=start, limit_tokens=tokens - 1)
    if end == start:
        return
    assert start < end < tokens
    for query in found:
        if query.mode:
            assert end % query.block_size == 0 and key(query, end // query.block_size - 1) in tier
        else:
            first, last = start // attention, -(-end // attention)
            assert all(key(query, column) in tier for column in range(first, last))


def test_a_pool_in_use_is_not_emptied() -> None:
    told = list[tuple[int, str]]()
    pool = BlockPool(5, 1, on_unclaim=lambda group, block, key, why: told.append((block, why)))
    first, second = pool.take(2)
    pool.insert(0, b"a", first, 16)
    pool.insert(0, b"b", second, 32)
    pool.free([first])
    assert not pool.reset() and pool.find(0, b"a") == first and told == []
    pool.free([second])
    assert pool.reset() and pool.find(0, b"a") is pool.find(0, b"b") is None
    assert told == [(first, "reset"), (second, "reset")] and pool.num_free == 4


class Told(Observer):
    def __init__(self) -> None:
        self.resets: list[tuple[int, bool]] = []
        self.loads: list[tuple[str, str, int]] = []
        self.index = -1

    def step(self, index: int, time_us: int, budget: int) -> None:
        self.index = index

    def reset(self, done: bool) -> None:
        self.resets.append((self.index, done))

    def load(self, request: str, group: int, key: str, slot: int, offset: int) -> None:
        self.loads.append((request, key, offset))


GROUPS = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 64))


@pytest.mark.parametrize("fast_forward", [False, True])
@pytest.mark.parametrize("clock", ["steps", "us"])
def test_resets_come_before_the_next_step_and_are_refused_while_somebody_runs(clock: str, fast_forward: bool) -> None:
    told = Told()
    options = Options(GROUPS, clock=clock, max_num_batched_tokens=64)
    # a decodes for 50 steps and is quiet; b comes when it is long gone, c after another reset.
    scale = 1 if clock == "steps" else 10**6
    arrivals = [
        Arrival("a", 0, 0, ((1, 129),), 50),
        Arrival("b", 1, 100 * scale, ((1, 129),)),
        Arrival("c", 2, 200 * scale, ((1, 129),)),
    ]
    early = 20 if clock == "steps" else 200_000
    outcome = drive(
        options, arrivals, observers=[told], fast_forward=fast_forward, resets=[150 * scale, early, 10**9 * scale]
    )
    assert [done for _, done in told.resets] == [False, True]
    assert outcome.resets == 1 and outcome.hits == {"a": 0, "b": 128, "c": 0}
    if clock == "steps":
        assert told.resets == [(20, False), (200, True)]


def test_a_connectors_tokens_go_before_the_tier_and_are_named_by_the_request() -> None:
    told = Told()
    options = Options(GROUPS, clock="steps", max_num_batched_tokens=64, offload=Offload(100))
    arrivals = [
        Arrival("a", 0, 0, ((1, 129),)),
        Arrival("b", 1, 5, ((1, 129),), external=64),
        Arrival("c", 2, 9, ((1, 129),)),
    ]
    outcome = drive(options, arrivals, observers=[told], resets=[4, 8])
    assert [(name, offset) for name, _, offset in told.loads] == [("b", 64), ("c", 128)]
    assert told.loads[0][1] == "b" and bytes.fromhex(told.loads[1][1])
    assert outcome.loads == {"a": 0, "b": 64, "c": 128} and outcome.loaded_tokens == 192 and not outcome.findings


def test_a_tier_that_reaches_further_takes_the_place_of_a_tail_in_the_pool() -> None:
    """b finds 80 tokens of a's tail in the pool; the tier has the 128 that c left before the pool was emptied."""
    options = Options(GROUPS, clock="steps", max_num_batched_tokens=64, offload=Offload(100))
    arrivals = [
        Arrival("c", 0, 0, ((1, 200),)),
        Arrival("a", 1, 8, ((1, 85),)),
        Arrival("b", 2, 20, ((1, 200),)),
        Arrival("d", 3, 30, ((1, 85),)),
    ]
    outcome = drive(options, arrivals, resets=[7])
    assert outcome.loads == {"c": 0, "a": 64, "b": 128, "d": 0}
    assert outcome.hits == {"c": 0, "a": 0, "b": 64, "d": 80}
    assert not outcome.findings


def test_a_file_says_how_large_it_is(tmp_path: Path) -> None:
    path = tmp_path / "tier.yaml"
    path.write_text(
        """
schema: stateat/1
name: tier
engine:
  offload: {blocks: 7}
  groups:
    - {name: attention, kind: full-attention, block_size: 16}
workload:
  resets: [9, 3]
  requests:
    - {id: a, prompt: [[1, 20]]}
expect: {poisoned: 0, loads: {a: {min: 1}}}
"""
    )
    [run] = runs(load(path))
    assert run.options.offload == Offload(7) and run.workload.resets == [9, 3]
