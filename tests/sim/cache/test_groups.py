"""Block tables: what is allocated, relocated, copied before writing, let go of and advertised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.cache.groups import AttentionCache, Place, RecurrentCache, Table
from stateat.sim.cache.ledger import Ledger
from stateat.sim.cache.lookup import geometry
from stateat.sim.cache.pool import BlockPool, OnUnclaim
from stateat.sim.cache.skipped_states import stops_at_null_gap
from stateat.sim.conformance.compare import Decisions
from stateat.sim.events import NULL, Group
from stateat.sim.options import Options
from stateat.sim.run.simulate import drive
from stateat.sim.tokens import Tokens
from stateat.sim.workload import Arrival

B = 16
GEO = geometry(Options((Group("attention", "full-attention", 4), Group("gdn", "recurrent", B))), False)
HASHES = Tokens.generate([(1, 400)], 0, 0).block_hashes(GEO.hash_unit)

Claims = list[tuple[int, int, str, int, int, bytes]]


def recurrent(
    spare: int = 0, blocks: int = 60, on_unclaim: OnUnclaim | None = None
) -> tuple[RecurrentCache, BlockPool, Claims]:
    pool = BlockPool(blocks, 2, on_unclaim=on_unclaim)
    claims: Claims = []
    place = Place(1, B, GEO.hash_unit, pool, Ledger(lambda *claim: claims.append(claim)))
    return RecurrentCache(place, spare_blocks=spare, retire=stops_at_null_gap), pool, claims


def attention(size: int = 16) -> tuple[AttentionCache, BlockPool]:
    pool = BlockPool(60, 2)
    return AttentionCache(Place(0, size, GEO.hash_unit, pool, Ledger(lambda *claim: None))), pool


def key(offset: int) -> bytes:
    return HASHES[offset // GEO.hash_unit - 1]


# Growing.


def test_a_first_chunk_takes_its_last_column_and_the_drafters_behind_it() -> None:
    cache, pool, _ = recurrent(spare=2)
    table = Table()
    assert cache.needed(table, [], 0, 40) == 3
    assert cache.extend("a", table, 40) == [NULL, NULL, 1, 2, 3]
    assert table.blocks == [NULL, NULL, 1, 2, 3]
    assert pool.num_free == 56


def test_within_its_column_a_request_takes_nothing() -> None:
    cache, pool, _ = recurrent(spare=2)
    table = Table()
    cache.extend("a", table, 40)
    for end in (41, 47, 48):
        assert cache.needed(table, [], 0, end) == 0
        assert cache.extend("a", table, end) == []
    assert pool.num_free == 56


def test_into_the_next_column_a_request_takes_one() -> None:
    cache, _, _ = recurrent(spare=2)
    table = Table()
    cache.extend("a", table, 40)
    assert cache.needed(table, [], 0, 49) == 1
    assert cache.extend("a", table, 49) == [4]
    assert table.blocks == [NULL, NULL, 1, 2, 3, 4]
    assert table.last_state == 2


def test_over_a_gap_the_drafters_columns_are_relocated() -> None:
    cache, _, _ = recurrent(spare=2)
    table = Table()
    cache.extend("a", table, 40)
    assert cache.needed(table, [], 0, 120) == 1
    # Columns 3 and 4 move to 7 and 8, where the chunk ends; the worker's table keeps what it had.
    assert cache.extend("a", table, 120) == [NULL, NULL, 2, 3, 4]
    assert table.blocks == [NULL, NULL, 1, NULL, NULL, NULL, NULL, 2, 3, 4]


def test_a_restored_request_takes_its_drafters_columns_too() -> None:
    cache, pool, _ = recurrent(spare=2)
    table = Table()
    (block,) = pool.take(1)
    pool.insert(1, key(32), block, 32)
    pool.free([block])
    hit = [NULL, block]
    assert cache.needed(table, hit, 32, 40) == 1 + 2 + 1  # the hit leaves the free queue
    cache.adopt(table, hit, 32, 32)
    assert table.cached == 2 and table.partial is None
    assert cache.extend("a", table, 40) == [2, 3, 4]
    assert table.blocks == [NULL, block, 2, 3, 4]


@pytest.mark.parametrize("spare", [0, 2])
def test_a_checkpoint_counts_and_takes_a_block_of_its_own(spare: int) -> None:
    """Of a first chunk and of a later one: states behind 32 and 112 tokens, on the way to 40 and 120."""
    cache, pool, _ = recurrent(spare=spare)
    table = Table()
    for end, offset, others in ((40, 32, 1 + spare), (120, 112, 1)):
        table.checkpoint = (offset, offset // B - 1)
        free = pool.num_free
        assert cache.needed(table, [], 0, end, checkpoint=True) == 1 + others
        cache.extend("a", table, end)
        assert free - pool.num_free == 1 + others
        assert table.blocks[offset // B - 1] != NULL


@given(spare=st.integers(0, 3), steps=st.lists(st.integers(1, 60), min_size=1, max_size=12))
def test_i16_a_request_holds_its_running_column_k_behind_it_and_one_state_before(spare: int, steps: list[int]) -> None:
    cache, pool, _ = recurrent(spare=spare)
    table, pages, end = Table(), list[int](), 0
    for step in steps:
        free = pool.num_free
        freed = cache.retire(table, end)
        end += step
        needed = cache.needed(table, [], 0, end)
        new = cache.extend("a", table, end)
        pages += new
        assert free + len(freed) - needed == pool.num_free
        running = -(-end // B) - 1
        assert len(table.blocks) == len(pages) == running + 1 + spare
        held = [b for b in table.blocks if b != NULL]
        assert len(set(held)) == len(held) == 59 - pool.num_free
        assert all(pool.refs[b] == 1 for b in held)
        assert NULL not in table.blocks[running:]
        assert len(held) <= 2 + spare
        # The worker only ever sees its table grow, and finds the running column and those behind it there.
        assert pages[running:] == table.blocks[running:]


def test_the_state_before_the_running_one_goes_once_the_request_is_past_it() -> None:
    cache, pool, _ = recurrent()
    table = Table()
    cache.extend("a", table, 16)
    assert cache.retire(table, 16) == []
    cache.extend("a", table, 64)
    assert table.blocks == [1, NULL, NULL, 2]
    assert cache.retire(table, 16) == []
    assert cache.retire(table, 64) == [1]
    assert table.blocks == [NULL, NULL, NULL, 2]
    assert pool.refs[1] == 0


# Attention.


def test_attention_has_a_block_for_every_sixteen_tokens() -> None:
    cache, pool = attention()
    table = Table()
    for tokens, blocks in ((1, 1), (16, 1), (17, 2), (100, 7), (50, 7)):
        needed = cache.needed(table, [], 0, tokens)
        assert len(cache.extend("a", table, tokens)) == needed
        assert len(table.blocks) == blocks == 59 - pool.num_free


@given(st.lists(st.integers(0, 100), max_size=8), st.integers(0, 3))
def test_attention_takes_what_it_said_it_needs(ends: list[int], shared: int) -> None:
    cache, pool = attention()
    table = Table()
    hit = pool.take(shared)
    for i, block in enumerate(hit):
        pool.insert(0, key(16 * (i + 1)), block, 16 * (i + 1))
    pool.free(hit)
    cache.adopt(table, [], 0, 0)
    for i, end in enumerate(sorted(ends)):
        before = pool.num_free
        if i == 0:
            needed = cache.needed(table, hit, 16 * shared, end)
            cache.adopt(table, hit, 16 * shared, 16 * shared)
        else:
            needed = cache.needed(table, [], 0, end)
        cache.extend("a", table, end)
        assert before - pool.num_free == needed


# Advertising.


def test_full_columns_are_advertised_and_null_ones_are_not() -> None:
    cache, pool, claims = recurrent()
    table = Table()
    cache.extend("a", table, 48)
    assert cache.publish("a", table, HASHES, 48) == [key(48)]
    assert claims == [(1, 1, "a", 2, 48, key(48))]
    assert pool.find(1, key(48)) == 1 and pool.find(1, key(16)) is None


def test_a_column_is_advertised_once() -> None:
    cache, _, claims = recurrent()
    table = Table()
    cache.extend("a", table, 16)
    for _ in range(3):
        cache.publish("a", table, HASHES, 20)
    assert [c[4] for c in claims] == [16]


def test_a_column_that_is_not_full_is_not_advertised() -> None:
    cache, _, claims = recurrent()
    table = Table()
    cache.extend("a", table, 15)
    assert cache.publish("a", table, HASHES, 15) == []
    cache.extend("a", table, 16)
    assert cache.publish("a", table, HASHES, 16) == [key(16)]
    assert len(claims) == 1


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8))
def test_only_columns_that_hold_a_block_are_advertised_each_under_its_own_end(steps: list[int]) -> None:
    cache, _, claims = recurrent()
    table, end = Table(), 0
    for step in steps:
        cache.retire(table, end)
        end += step
        cache.extend("a", table, end)
        cache.publish("a", table, HASHES, end)
    for group, block, request, column, offset, hash in claims:
        assert (group, request, offset, hash) == (1, "a", (column + 1) * B, key(offset))
        assert block != NULL
    assert len({c[3] for c in claims}) == len(claims)


def test_the_end_of_a_chunk_is_advertised_and_is_a_tail_only_inside_a_block() -> None:
    for tokens, tail in ((36, True), (40, True), (48, False)):
        cache, _, claims = recurrent()
        table = Table()
        cache.extend("a", table, tokens)
        cache.publish_end("a", table, HASHES, tokens)
        assert [(c[3], c[4]) for c in claims] == [(2, tokens)]
        assert table.partial == ((2, 1) if tail else None)


def test_an_end_that_a_block_has_already_is_advertised_once() -> None:
    cache, _, claims = recurrent()
    table = Table()
    cache.extend("a", table, 36)
    cache.publish_end("a", table, HASHES, 36, once=True)
    cache.publish_end("a", table, HASHES, 36, once=True)
    assert len(claims) == 1


def test_attention_advertises_its_own_tail_once_it_is_computed() -> None:
    cache, pool = attention()
    table = Table()
    cache.extend("a", table, 38)
    cache.publish_prompt_tail("a", table, HASHES, 36, 35)
    assert pool.find(0, key(36)) is None
    cache.publish_prompt_tail("a", table, HASHES, 36, 38)
    assert pool.find(0, key(36)) == table.blocks[2]
    # When the block is full its own hash takes the place of the tail's.
    cache.extend("a", table, 48)
    cache.publish("a", table, HASHES, 48)
    assert pool.find(0, key(36)) is None
    assert pool.find(0, key(48)) == table.blocks[2]


def test_a_tail_joins_the_hash_of_a_block_that_is_already_full() -> None:
    cache, pool = attention()
    table = Table()
    cache.extend("a", table, 48)
    cache.publish("a", table, HASHES, 48)
    cache.publish_prompt_tail("a", table, HASHES, 36, 48)
    assert pool.find(0, key(48)) == pool.find(0, key(36)) == table.blocks[2]
    assert pool.primary[table.blocks[2]] == key(48)


# Copy-on-write.


def test_a_restored_tail_is_redirected_to_a_private_copy() -> None:
    cache, pool, claims = recurrent()
    (shared,) = pool.take(1)
    pool.insert(1, key(36), shared, 36)
    pool.free([shared])
    table, hit = Table(), [NULL, NULL, shared]
    needed = cache.needed(table, hit, 36, 44)
    cache.adopt(table, hit, 36, 36)
    assert (table.partial, table.cached) == ((2, shared), 2)
    free = pool.num_free
    cache.extend("a", table, 44)
    copy = table.blocks[2]
    assert copy not in (NULL, shared)
    assert [(c.source, c.target) for c in cache.copies] == [(shared, copy)]
    # The hit left the free queue, and the copy is a new block; one more was counted (as vLLM does) and not taken.
    assert needed == 3 and free - pool.num_free == 1
    # Both stay until the copy has run; the shared block keeps its hash, the copy has none.
    assert (pool.refs[shared], pool.refs[copy]) == (1, 2)
    assert pool.find(1, key(36)) == shared and pool.primary[copy] is None
    assert not claims and table.partial is None


@pytest.mark.parametrize(("has", "shares"), [(0, False), (1, False), (2, False), (3, True)])
def test_a_group_that_has_less_of_a_hit_than_was_agreed_on_shares_no_tail(has: int, shares: bool) -> None:
    """The hit ends inside its third block, at 36 tokens."""
    cache, pool = attention()
    table, hit = Table(), pool.take(has)
    assert cache.shares_tail(hit, 36) is shares
    cache.adopt(table, hit, 36, 36)
    assert (table.partial, table.cached) == ((2, hit[-1]) if shares else None, min(has, 2))


def test_attention_takes_one_block_for_the_copy_of_a_shared_tail() -> None:
    cache, pool = attention()
    table, hit = Table(), pool.take(3)
    cache.adopt(table, hit, 36, 36)
    free = pool.num_free
    assert cache.extend("a", table, 60) == [4, 5]
    assert table.blocks == [*hit[:2], 4, 5] and free - pool.num_free == 2
    assert [(copy.source, copy.target) for copy in cache.copies] == [(hit[2], 4)]


def test_an_own_tail_moves_its_claim_to_a_copy_and_the_request_stays_on_its_block() -> None:
    told: list[tuple[int, int, bytes, str]] = []
    cache, pool, claims = recurrent(on_unclaim=lambda *event: told.append(event))
    table = Table()
    cache.extend("a", table, 36)
    cache.publish_end("a", table, HASHES, 36)
    own = table.blocks[2]
    cache.published_now.clear()
    assert cache.needed(table, [], 0, 38) == 2  # the copy, and (as vLLM counts) one more
    assert cache.extend("a", table, 38) == []
    (copy,) = (c.target for c in cache.copies)
    assert table.blocks == [NULL, NULL, own] and copy != own
    assert told == [(1, own, key(36), "move")]
    assert claims[-1] == (1, copy, "a", 2, 36, key(36))
    assert pool.find(1, key(36)) == copy and pool.primary[own] is None
    assert (pool.refs[own], pool.refs[copy]) == (2, 1)
    # A hit on the moved claim waits for the step in which it is copied.
    assert key(36) in cache.published_now
    assert table.partial is None


def test_a_connectors_state_comes_alone_into_its_column() -> None:
    cache, pool, _ = recurrent(spare=1)
    table = Table()
    cache.adopt(table, [], 0, 40)
    assert cache.load(table, 40) == [1]
    assert table.blocks == [NULL, NULL, 1]
    assert cache.extend("a", table, 60) == [2, 3]
    assert table.blocks == [NULL, NULL, 1, 2, 3]
    assert pool.num_free == 56


@pytest.mark.parametrize(("release", "slot"), [("0.26.0", 6), ("0.27.0", 6), ("0.28.0", 8), ("0.33.0", 8)])
def test_a_copy_for_who_was_given_no_block_yet_goes_one_column_too_far_to_0_27(release: str, slot: int) -> None:
    """As each release decides it: what the request reads and writes once it has outgrown the block that was loaded."""
    groups = (Group("attention", "full-attention", 2), Group("gdn", "recurrent", 8))
    heard = Decisions()
    options = Options(groups, preset=f"vllm-{release}", clock="steps")
    drive(options, [Arrival("a", 0, 0, ((1, 7),), 3, external=3)], observers=[heard], fast_forward=False)
    assert heard.launches[3, "a"][-1] == slot
