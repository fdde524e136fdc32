"""The prefix cache as a scheduler sees it: refusals leave no trace, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.cache.manager import KVCache
from stateat.sim.engine.request import Request
from stateat.sim.events import Group, Observer
from stateat.sim.options import Options, Speculative
from stateat.sim.releases import presets, rules
from stateat.sim.workload import Arrival

GROUPS = (Group("attention", "full-attention", 4), Group("gdn", "recurrent", 16))
OPTIONS = Options(GROUPS, num_blocks=60)


@dataclass
class World:
    """A cache, and whom it tells."""

    options: Options
    claims: list[tuple[Any, ...]] = field(default_factory=list)
    unclaims: list[tuple[Any, ...]] = field(default_factory=list)
    names: Iterator[int] = field(default_factory=lambda: iter(range(10**6)))

    def __post_init__(self) -> None:
        table = rules.resolve(presets.table(self.options.preset, self.options.rules))
        self.cache = KVCache(self.options, table, Told(self))

    def request(self, prompt: int, seed: int = 1, outputs: int = 4) -> Request:
        index = next(self.names)
        return Request(Arrival(f"r{index}", index, 0, ((seed, prompt),), outputs), self.options, 0)

    def admit(self, request: Request, new: int, reserve: bool = True, others: bool = False, external: int = 0) -> str:
        hit = self.cache.lookup(request)
        reason = self.cache.admit(
            request,
            new,
            hit=hit,
            external_tokens=external,
            reserve_full_sequence=reserve,
            beside_others=others,
        )
        if not reason:
            request.computed = hit.tokens + external
        return reason

    @property
    def trace(self) -> tuple[Any, ...]:
        """All that a refusal must leave as it was."""
        pool = self.cache.pool
        return (
            list(pool.refs), list(pool._free), list(pool.primary), list(self.claims), list(self.unclaims),
            [list(m.copies) for m in self.cache.managers], [list(g) for g in self.cache._given],
            dict(self.cache.layout.tables),
        )  # fmt: skip


class Told(Observer):
    """Hears of a world's claims."""

    def __init__(self, world: World) -> None:
        self.world = world

    def claim(self, *claim: Any) -> None:
        self.world.claims.append(claim)

    def unclaim(self, *claim: Any) -> None:
        self.world.unclaims.append(claim)


def tables(world: World, request: Request) -> list[list[int]]:
    return [list(t.blocks) for t in world.cache.layout.tables[request.id]]


def test_a_fresh_request_gets_its_blocks_and_advertises_what_its_chunk_ends_on() -> None:
    world = World(OPTIONS)
    request = world.request(40)
    assert world.admit(request, 32) == ""
    assert tables(world, request) == [[1, 2, 3, 4, 5, 6, 7, 8], [0, 9]]
    assert [(c[1], c[4]) for c in world.claims] == [(9, 32)]
    assert world.cache.decided().given[0] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_no_hit_covers_a_whole_prompt() -> None:
    for prompt, hit in ((48, 32), (49, 48)):
        world = World(replace(OPTIONS, partial_hits=False))
        first = world.request(48)
        for end in (16, 32, 48):
            if end == 16:
                world.admit(first, 16)
            else:
                assert world.cache.grow(first, 16)
            first.computed = end
        world.cache.new_step(0)
        assert world.cache.lookup(world.request(prompt)).tokens == hit


@pytest.mark.parametrize(("drafts", "known"), [(0, 32), (3, 36)])
def test_attention_is_advertised_as_far_as_a_hit_could_reach_and_a_drafters_block_further(
    drafts: int, known: int
) -> None:
    groups = (replace(GROUPS[0], eagle=True), GROUPS[1])
    world = World(replace(OPTIONS, groups=groups, partial_hits=False, speculative=Speculative("mtp", drafts)))
    request = world.request(47)
    assert world.admit(request, 47) == ""
    hashes = request.hashes(4)
    found = [n for n in range(4, 48, 4) if world.cache.pool.find(0, hashes[n // 4 - 1]) is not None]
    assert found == list(range(4, known + 1, 4))


def test_without_prefix_caching_nothing_is_hit_nor_advertised() -> None:
    world = World(replace(OPTIONS, enable_prefix_caching=False))
    assert world.admit(world.request(32), 32) == ""
    world.cache.new_step(0)
    assert world.cache.lookup(world.request(40)).tokens == 0
    assert not world.claims


@pytest.mark.parametrize(
    ("publish", "reason"), [("at-schedule", "same_step"), ("at-schedule-at-once", "")], ids=["refused", "at once"]
)
def test_a_hit_on_a_state_of_the_same_step(publish: str, reason: str) -> None:
    world = World(replace(OPTIONS, rules={"publish": publish}))
    world.admit(world.request(40), 32)
    before = world.trace
    sibling = world.request(40)
    assert world.cache.lookup(sibling).tokens == 32
    assert world.admit(sibling, 8) == reason
    if reason:
        assert world.trace == before
        world.cache.new_step(0)
        assert world.admit(sibling, 8) == ""


def test_a_request_is_refused_when_its_whole_sequence_would_not_fit() -> None:
    world = World(replace(OPTIONS, num_blocks=12))
    before, request = world.trace, world.request(48)
    # 12 attention blocks and a state: 13, of 11.
    assert world.admit(request, 16) == "full_sequence"
    assert world.trace == before
    assert world.admit(request, 16, reserve=False) == ""


def test_a_request_is_refused_when_its_chunk_does_not_fit() -> None:
    world = World(replace(OPTIONS, num_blocks=12))
    before, request = world.trace, world.request(48)
    assert world.admit(request, 48, reserve=False) == "blocks"
    assert world.trace == before


def test_the_watermark_keeps_blocks_back_only_beside_others() -> None:
    world = World(replace(OPTIONS, num_blocks=20, watermark=0.5))
    before, request = world.trace, world.request(40)
    # 10 and 1 blocks, and 10 of the watermark: 21, of 19.
    assert world.admit(request, 40, reserve=False, others=True) == "watermark"
    assert world.trace == before
    assert world.admit(request, 40, reserve=False) == ""


@pytest.mark.parametrize(("tokens", "reason"), [(40, "watermark"), (41, "blocks")])
def test_what_the_pool_just_has_is_refused_for_the_watermark_and_a_block_more_for_want_of_it(
    tokens: int, reason: str
) -> None:
    """11 blocks are free: 40 tokens take 10 and a state, 41 one more."""
    world = World(replace(OPTIONS, num_blocks=12, watermark=0.5))
    assert world.admit(world.request(48), tokens, reserve=False, others=True) == reason


def test_a_running_request_that_does_not_fit_takes_nothing() -> None:
    world = World(replace(OPTIONS, num_blocks=12))
    request = world.request(48)
    world.admit(request, 16, reserve=False)
    request.computed = 16
    before = world.trace
    assert not world.cache.grow(request, 32)
    assert world.trace == before
    assert world.cache.grow(request, 16)


def test_blocks_are_freed_in_reverse_so_that_a_prefix_outlives_its_end() -> None:
    world = World(replace(OPTIONS, num_blocks=8, partial_hits=False))
    request = world.request(16)
    world.admit(request, 16)
    world.cache.free(request)
    # Unhashed first (there are three more blocks); then attention's last block.
    pool = world.cache.pool
    assert pool.take(2) == [6, 7]
    assert pool.take(4) == [4, 3, 2, 1]


@given(
    prompts=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 90)), min_size=1, max_size=6),
    drafts=st.integers(0, 3),
    fine=st.booleans(),
    data=st.data(),
)
def test_every_block_comes_back(prompts: list[tuple[int, int]], drafts: int, fine: bool, data: st.DataObject) -> None:
    speculative = Speculative("mtp" if drafts else "ngram", drafts)
    world = World(replace(OPTIONS, num_blocks=80, partial_hits=fine, speculative=speculative))
    pool, live = world.cache.pool, list[Request]()
    for seed, length in prompts:
        world.cache.new_step(0)
        request = world.request(length, seed)
        hit = world.cache.lookup(request).tokens
        if not world.admit(request, data.draw(st.integers(1, length - hit)), reserve=False):
            live.append(request)
        for running in live:
            new = data.draw(st.integers(0, running.num_prompt - running.computed), label="more")
            if new and world.cache.grow(running, new):
                running.computed += new
        world.cache.unpin(world.cache.decided().copies)
        held = set().union(*(world.cache.held(r) for r in live)) - {0}
        assert {b for b, n in enumerate(pool.refs) if n} == held
        assert pool.num_free + len(held) + 1 == 80
        if live and data.draw(st.booleans()):
            world.cache.free(live.pop(0))
    for request in live:
        world.cache.free(request)
    assert pool.num_free == 79
    assert not any(pool.refs)


def test_copies_are_taken_once_and_unpinned() -> None:
    world = World(OPTIONS)
    first = world.request(38)
    world.admit(first, 36)
    first.computed = 36
    world.cache.new_step(0)
    second = world.request(44)
    assert world.admit(second, 8) == ""
    copies = world.cache.decided().copies
    # Attention's blocks are no wider than the unit: only the state's tail is shared.
    assert [(c.request, c.group) for c in copies] == [(second.id, 1)]
    world.cache.unpin(copies)
    assert world.cache.pool.refs[copies[0].source] == 1  # its owner's
    assert world.cache.pool.refs[copies[0].target] == 1
    assert world.cache.decided().copies == []


def test_a_connectors_tokens_come_with_blocks_of_their_own() -> None:
    world = World(OPTIONS)
    request = world.request(60)
    assert world.admit(request, 16, external=40) == ""
    attention, states = tables(world, request)
    assert len(attention) == 14 and 0 not in attention
    assert states[:2] == [0, 0] and 0 not in states[2:] and len(states) == 4
    assert request.computed == 40


@pytest.mark.parametrize(("end", "states"), [(44, 1), (48, 1), (49, 2), (60, 2)])
def test_a_connectors_state_counts_as_a_block_unless_the_chunk_ends_in_it(end: int, states: int) -> None:
    """With one block less than it takes a request is refused, and nothing is half done."""
    needed = -(-end // 4) + states
    for free, reason in ((needed, ""), (needed - 1, "blocks")):
        world = World(replace(OPTIONS, num_blocks=free + 1))
        request, before = world.request(60), world.trace
        assert world.admit(request, end - 40, reserve=False, external=40) == reason
        if reason:
            assert world.trace == before
        else:
            assert world.cache.pool.num_free == 0


@pytest.mark.parametrize(
    ("preset", "hash_lookahead", "kept"),
    [("0.32.0", True, (64, 176)), ("0.33.0", True, (64, 192)), ("0.33.0", False, (48, 64, 176))],
)
def test_retention_keeps_where_a_prefix_is_shared_and_in_0_33_what_a_drafter_falls_back_to(
    preset: str, hash_lookahead: bool, kept: tuple[int, ...]
) -> None:
    """Beside the state that a repeat of the prompt would start from. A hash that looks ahead spares the drop."""
    drafter = Speculative("mtp", 1, hash_lookahead=hash_lookahead)
    options = replace(OPTIONS, preset=f"vllm-{preset}", prefix_cache_retention_interval=0, speculative=drafter)
    world = World(options)
    request = world.request(200)
    request.junction = 64
    assert world.cache.retained(request, 0, 200) == kept
