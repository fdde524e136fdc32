"""The block pool against a naive model of it, and each of its laws by itself."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stateat.sim.cache.pool import BlockPool
from stateat.sim.cache.victims import chooser
from stateat.sim.events import NULL
from stateat.sim.rules.eviction import Eviction, Victim

BLOCKS, GROUPS = 9, 2
KEYS = [b"a", b"b", b"c", b"d"]


class Pool(RuleBasedStateMachine):
    """Lists and loops instead of queues and indices."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, int, bytes, str]] = []
        self.pool = BlockPool(BLOCKS, GROUPS, on_unclaim=lambda *event: self.told.append(event))
        self.expected: list[tuple[int, int, bytes, str]] = []
        self.queue = list(range(1, BLOCKS))
        self.refs = dict.fromkeys(range(1, BLOCKS), 0)
        self.hashes: dict[int, list[tuple[bytes, int]]] = {b: [] for b in self.refs}
        self.owner: dict[int, int] = {}
        self.inserted: list[tuple[int, bytes, int]] = []
        """(group, key, block) in the order of insertion."""

    @property
    def used(self) -> list[int]:
        return [b for b, count in self.refs.items() if count]

    def withdraw(self, block: int, why: str) -> None:
        group = self.owner.pop(block, -1)
        for key, _ in self.hashes[block]:
            self.expected.append((group, block, key, why))
            self.inserted.remove((group, key, block))
        self.hashes[block] = []

    @rule(count=st.integers(0, BLOCKS))
    def take(self, count: int) -> None:
        if count > len(self.queue):
            with pytest.raises(IndexError):
                self.pool.take(count)
            return
        taken, self.queue = self.queue[:count], self.queue[count:]
        for block in taken:
            self.withdraw(block, "evict")
            self.refs[block] = 1
        assert self.pool.take(count) == taken

    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        hashed = [b for b in self.refs if self.hashes[b] or self.refs[b]]
        blocks = data.draw(st.lists(st.sampled_from([NULL, *hashed]), max_size=4))
        self.pool.touch(blocks)
        for block in blocks:
            if block == NULL:
                continue
            if not self.refs[block]:
                self.queue.remove(block)
            self.refs[block] += 1

    @precondition(lambda self: self.used)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        held = [b for b in self.used for _ in range(self.refs[b])]
        blocks = data.draw(st.lists(st.sampled_from(range(len(held))), unique=True, max_size=5))
        freed = [held[i] for i in blocks]
        freed.insert(data.draw(st.integers(0, len(freed))), NULL)
        self.pool.free(freed)
        front: list[int] = []
        for block in freed:
            if block == NULL:
                continue
            self.refs[block] -= 1
            if not self.refs[block]:
                (self.queue if self.hashes[block] else front).append(block)
        self.queue = front + self.queue

    @precondition(lambda self: self.used)
    @rule(data=st.data(), key=st.sampled_from(KEYS), tokens=st.integers(1, 99), group=st.integers(0, GROUPS - 1))
    def insert(self, data: st.DataObject, key: bytes, tokens: int, group: int) -> None:
        block = data.draw(st.sampled_from(self.used))
        group = self.owner.get(block, group)
        known = any(k == key for k, _ in self.hashes[block])
        assert self.pool.insert(group, key, block, tokens) is not known
        if not known:
            self.owner[block] = group
            self.hashes[block].append((key, tokens))
            self.inserted.append((group, key, block))

    @rule(data=st.data(), why=st.sampled_from(["rekey", "move"]))
    def remove(self, data: st.DataObject, why: str) -> None:
        block = data.draw(st.sampled_from(sorted(self.used) or [1]))
        if self.refs[block]:
            assert self.pool.remove(block, why) == self.hashes[block]
            self.withdraw(block, why)

    @invariant()
    def free_and_referenced_and_null_are_all(self) -> None:
        assert self.pool.num_free + sum(1 for count in self.pool.refs[1:] if count) + 1 == BLOCKS
        assert self.pool.refs == [0, *self.refs.values()]
        assert all(count >= 0 for count in self.pool.refs)

    @invariant()
    def the_next_to_be_evicted_are_those_of_the_model(self) -> None:
        assert list(self.pool._free) == self.queue

    @invariant()
    def the_first_inserted_is_found(self) -> None:
        for group in range(GROUPS):
            for key in KEYS:
                blocks = [b for g, k, b in self.inserted if (g, k) == (group, key)]
                assert self.pool.find(group, key) == (blocks[0] if blocks else None)
                for block in self.refs:
                    assert self.pool.holds(group, key, block) is (block in blocks)

    @invariant()
    def each_withdrawal_is_told_once(self) -> None:
        assert self.told == self.expected

    @invariant()
    def the_first_hash_is_the_primary_one(self) -> None:
        for block, hashes in self.hashes.items():
            assert self.pool.primary[block] == (hashes[0][0] if hashes else None)
            assert not hashes or self.pool.primary_tokens[block] == hashes[0][1]
            assert self.pool.owner[block] == self.owner.get(block, -1)


Pool.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestPool = Pool.TestCase


def test_a_new_pool_hands_out_its_blocks_in_order_and_never_the_null_block() -> None:
    pool = BlockPool(5, 1)
    assert pool.num_free == 4
    assert pool.take(4) == [1, 2, 3, 4]
    with pytest.raises(IndexError, match="1 blocks wanted, 0 free"):
        pool.take(1)


def test_more_than_is_free_takes_nothing() -> None:
    pool = BlockPool(5, 1)
    pool.take(2)
    with pytest.raises(IndexError):
        pool.take(3)
    assert pool.num_free == 2


def test_hashed_blocks_are_evicted_after_all_others_and_in_the_order_of_their_freeing() -> None:
    pool = BlockPool(7, 1)
    one = pool.take(6)
    for block in one[:4]:
        pool.insert(0, bytes([block]), block, 16)
    # In reverse, as a request lets go of its blocks: its last is evicted first.
    pool.free(one[::-1])
    assert pool.take(6) == [6, 5, 4, 3, 2, 1]


def test_a_block_without_a_hash_goes_to_the_front() -> None:
    pool = BlockPool(6, 1)
    pool.free(pool.take(2))
    assert pool.take(1) == [1]
    pool.free([1])
    assert pool.take(3) == [1, 2, 3]


def test_a_freed_block_keeps_its_hash_until_it_is_handed_out() -> None:
    pool = BlockPool(3, 1)
    (block,) = pool.take(1)
    pool.insert(0, b"x", block, 16)
    pool.free([block])
    assert pool.find(0, b"x") == block
    assert pool.take(1) == [2]
    assert pool.find(0, b"x") == block
    assert pool.take(1) == [block]
    assert pool.find(0, b"x") is None and pool.primary[block] is None


def test_a_hit_saves_a_block_from_eviction() -> None:
    pool = BlockPool(3, 1)
    (block,) = pool.take(1)
    pool.insert(0, b"x", block, 16)
    pool.free([block])
    pool.touch([block])
    assert pool.take(1) == [2]
    with pytest.raises(IndexError):
        pool.take(1)


def test_of_equal_hashes_the_next_is_found_once_the_first_is_gone() -> None:
    pool = BlockPool(4, 1)
    for block in pool.take(3):
        pool.insert(0, b"x", block, 16)
    assert pool.find(0, b"x") == 1
    pool.remove(1, "rekey")
    assert pool.find(0, b"x") == 2
    pool.remove(3, "rekey")
    assert pool.find(0, b"x") == 2
    pool.remove(2, "rekey")
    assert pool.find(0, b"x") is None


def test_groups_do_not_share_hashes() -> None:
    pool = BlockPool(4, 2)
    one, other = pool.take(2)
    pool.insert(0, b"x", one, 16)
    assert pool.find(1, b"x") is None
    pool.insert(1, b"x", other, 16)
    assert (pool.find(0, b"x"), pool.find(1, b"x")) == (one, other)


def test_all_hashes_of_a_block_go_together_the_primary_first() -> None:
    pool = BlockPool(3, 1)
    (block,) = pool.take(1)
    for key, tokens in ((b"z", 8), (b"a", 12), (b"m", 16)):
        assert pool.insert(0, key, block, tokens)
    assert not pool.insert(0, b"a", block, 12)
    assert pool.remove(block, "rekey") == [(b"z", 8), (b"a", 12), (b"m", 16)]
    assert pool.remove(block, "rekey") == []


def test_what_is_hidden_is_found_by_nobody_until_it_is_shown() -> None:
    pool = BlockPool(BLOCKS, GROUPS)
    first, second = pool.take(2)
    pool.insert(0, b"a", first, 4)
    pool.insert(0, b"b", second, 8)
    pool.hide(b"b", second)
    assert (pool.find(0, b"a"), pool.find(0, b"b")) == (first, None)
    assert pool.run(0, [b"a", b"b"]) == [first]
    # A block that is shown already stands in for it.
    pool.insert(0, b"b", first, 8)
    assert pool.find(0, b"b") == first
    pool.reveal([(0, b"b", second)])
    assert pool.run(0, [b"a", b"b"]) == [first, second]


def test_what_goes_is_hidden_no_more() -> None:
    pool = BlockPool(BLOCKS, GROUPS)
    (block,) = pool.take(1)
    pool.insert(0, b"a", block, 4)
    pool.hide(b"a", block)
    pool.remove(block, "rekey")
    pool.insert(0, b"a", block, 4)
    assert pool.find(0, b"a") == block


def test_withdrawing_takes_back_one_hash_and_those_behind_a_first_one() -> None:
    told = list[tuple[int, int, bytes, str]]()
    pool = BlockPool(BLOCKS, GROUPS, on_unclaim=lambda *event: told.append(event))
    one, other = pool.take(2)
    for block, key in ((one, b"a"), (one, b"b"), (other, b"b"), (other, b"c")):
        pool.insert(0, key, block, 4)
    pool.withdraw([(0, b"b", one), (0, b"d", one)])
    assert (pool.find(0, b"a"), pool.find(0, b"b")) == (one, other)
    pool.withdraw([(0, b"b", other)])
    assert (pool.find(0, b"b"), pool.find(0, b"c"), pool.primary[other]) == (None, None, None)
    assert told == [(0, one, b"b", "abort"), (0, other, b"b", "abort"), (0, other, b"c", "abort")]


def test_blocks_that_a_step_in_flight_may_use_come_back_once_it_has_run() -> None:
    pool = BlockPool(BLOCKS, GROUPS)
    taken = pool.take(3)
    pool.free(taken[:2], after_step=5)
    pool.free(taken[2:])
    assert pool.num_free == BLOCKS - 3
    pool.drain(4)
    assert pool.num_free == BLOCKS - 3
    pool.drain(5)
    assert pool.num_free == BLOCKS - 1


@pytest.mark.parametrize(("deepest", "order"), [([], [4, 8, 12]), ([1], [12, 8, 4])])
def test_the_deepest_state_goes_first_where_that_is_the_rule(deepest: list[int], order: list[int]) -> None:
    pool = BlockPool(4, GROUPS, choose=chooser(Eviction(Victim.DEEPEST_STATE), deepest))
    blocks = pool.take(3)
    for block, tokens in zip(blocks, (4, 8, 12), strict=True):
        pool.insert(1, str(tokens).encode(), block, tokens)
    pool.free(blocks)
    assert [pool.primary_tokens[pool.take(1)[0]] for _ in range(3)] == order
