"""The joint lookup against brute force over random published sets, and the closed laws of hits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateat.sim.cache.lookup import Hit, Sizes, geometry, intersection
from stateat.sim.cache.pool import BlockPool
from stateat.sim.events import NULL, Group
from stateat.sim.options import Options, Speculative
from stateat.sim.run.simulate import drive
from stateat.sim.tokens import Tokens
from stateat.sim.workload import Arrival

LENGTH = 96
TOKENS = Tokens.generate([(1, LENGTH)], 0, 0)


def attention(size: int, eagle: bool = False) -> Group:
    return Group(f"attention {size}", "full-attention", size, eagle)


def recurrent(size: int) -> Group:
    return Group(f"recurrent {size}", "recurrent", size)


@dataclass
class Cache:
    """A pool in which every group has published states (or blocks) at these offsets."""

    geo: Sizes
    groups: tuple[Group, ...]
    published: list[set[int]]
    pool: BlockPool

    @classmethod
    def of(cls, options: Options, drops: bool, published: list[set[int]]) -> Cache:
        pool = BlockPool(4000, len(options.groups))
        geo = geometry(options, drops)
        hashes = TOKENS.block_hashes(geo.hash_unit)
        for group, offsets in enumerate(published):
            for offset in sorted(offsets):
                (block,) = pool.take(1)
                pool.insert(group, hashes[offset // geo.hash_unit - 1], block, offset)
        return cls(geo, options.groups, published, pool)

    def lookup(self, limit: int) -> Hit:
        return intersection(self.pool, self.geo, TOKENS.block_hashes(self.geo.hash_unit), len(self.groups), limit)

    def reach(self, group: int, limit: int) -> int:
        """Tokens that an attention group covers: full blocks from the left, then one tail inside the next."""
        size, offsets = self.groups[group].block_size, self.published[group]
        full = 0
        while full + size <= limit and full + size in offsets:
            full += size
        tails = [o for o in offsets if full < o < full + size and o <= limit] if self.geo.fine else []
        return max(tails, default=full)

    def block(self, group: int, offset: int) -> int | None:
        return self.pool.find(group, TOKENS.block_hashes(self.geo.hash_unit)[offset // self.geo.hash_unit - 1])


def brute(cache: Cache, drops: set[int], limit: int) -> int:
    """The longest prefix that all recurrent groups have published and all attention groups cover, with what a
    look-ahead drafter gives up beyond it."""
    geo = cache.geo
    for offset in range(limit // geo.alignment * geo.alignment, 0, -geo.alignment):
        fits = True
        for i, group in enumerate(cache.groups):
            if group.recurrent:
                fits &= offset in cache.published[i]
            else:
                given_up = min(geo.alignment, group.block_size) if i in drops else 0
                fits &= cache.reach(i, limit) >= offset + given_up
        if fits:
            return offset
    return 0


GEOMETRIES = {
    "coarse, blocks 4 and 16": Options((attention(4), recurrent(16)), partial_hits=False),
    "coarse, equal blocks": Options((attention(8), recurrent(8)), partial_hits=False),
    "coarse, 6 and 4": Options((attention(6), recurrent(4)), partial_hits=False),
    "fine, blocks 4 and 16": Options((attention(4), recurrent(16))),
    "fine, unit 2": Options((attention(8), recurrent(16)), prefix_match_unit=2),
    "fine, unit 4 of equal blocks": Options((attention(16), recurrent(16)), prefix_match_unit=4),
    "two recurrent groups of one size": Options((attention(4), recurrent(16), recurrent(16))),
    "two recurrent groups of two sizes": Options((attention(4), recurrent(16), recurrent(8))),
    "two recurrent groups, coarse": Options((attention(4), recurrent(12), recurrent(8)), partial_hits=False),
    "recurrent first": Options((recurrent(16), attention(4))),
    "no attention": Options((recurrent(16), recurrent(8))),
    "three recurrent sizes": Options((attention(2), recurrent(12), recurrent(8), recurrent(4))),
}


def offsets(options: Options, group: Group) -> st.SearchStrategy[set[int]]:
    """Where a group may have published: multiples of its block; hash units too where hits are fine."""
    full = range(group.block_size, LENGTH + 1, group.block_size)
    fine = range(options.hash_unit, LENGTH + 1, options.hash_unit)
    prefix = st.integers(0, len(full)).map(lambda n: set(full[:n]))
    some = st.sets(st.sampled_from(fine if geometry(options, False).fine else full))
    # Attention is mostly dense from the left: unions of a prefix and anything.
    return st.tuples(prefix, some).map(lambda pair: pair[0] | pair[1])


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("drops", [False, True], ids=["no drafter", "look-ahead drafter"])
@given(data=st.data())
@settings(max_examples=40)
def test_i5_the_joint_hit_is_the_longest_that_all_groups_agree_on(name: str, drops: bool, data: st.DataObject) -> None:
    options = GEOMETRIES[name]
    published = [data.draw(offsets(options, group)) for group in options.groups]
    limit = data.draw(st.integers(0, LENGTH))
    cache = Cache.of(options, drops, published)
    hit = cache.lookup(limit)
    # Nobody is flagged, so that the drop is everyone's; a state cannot be given up in part.
    flagged = {i for i, g in enumerate(options.groups) if not g.recurrent} if drops else set[int]()
    assert hit.tokens == brute(cache, flagged, limit)
    for i, (group, blocks) in enumerate(zip(options.groups, hit.blocks, strict=True)):
        size = group.block_size
        if not hit.tokens:
            assert blocks == []
        elif group.recurrent:
            column = (hit.tokens - 1) // size
            assert blocks == [NULL] * column + [cache.block(i, hit.tokens)]
        else:
            assert len(blocks) == -(-hit.tokens // size)
            full = hit.tokens // size
            assert blocks[:full] == [cache.block(i, (n + 1) * size) for n in range(full)]
            assert NULL not in blocks


@pytest.mark.parametrize("name", ["coarse, blocks 4 and 16", "fine, blocks 4 and 16", "fine, unit 2"])
@given(data=st.data(), drops=st.booleans())
def test_a_junction_is_where_attention_knows_more_than_all_agree_on(
    name: str, drops: bool, data: st.DataObject
) -> None:
    options = GEOMETRIES[name]
    cache = Cache.of(options, drops, [data.draw(offsets(options, group)) for group in options.groups])
    hit = cache.lookup(LENGTH - 1)
    given_up = min(cache.geo.alignment, options.groups[0].block_size) if drops else 0
    dense = max(cache.reach(0, LENGTH - 1) - given_up, 0) // cache.geo.alignment * cache.geo.alignment
    assert hit.junction == (dense if dense > hit.tokens else 0)


@given(data=st.data())
def test_i5_holds_with_two_attention_sizes_too(data: st.DataObject) -> None:
    options = Options((attention(4), attention(12), recurrent(24)), partial_hits=data.draw(st.booleans()))
    cache = Cache.of(options, True, [data.draw(offsets(options, group)) for group in options.groups])
    hit = cache.lookup(LENGTH - 1)
    longest = brute(cache, {0, 1}, LENGTH - 1)
    # What the first gives up may end inside a block of the second, which then has no entry there.
    assert hit.tokens <= longest if cache.geo.fine else hit.tokens == longest
    if hit.tokens:
        assert hit.tokens in cache.published[2]
        assert all(cache.reach(i, LENGTH - 1) >= hit.tokens for i in (0, 1))


def test_neither_the_least_nor_the_most_of_the_groups_hits_is_the_joint_one() -> None:
    """Attention knows 64, one group 16 and 48, the other 16 and 32: only 16 is in both."""
    options = Options((attention(4), recurrent(16), recurrent(16)), partial_hits=False)
    published = [set(range(4, 68, 4)), {16, 48}, {16, 32}]
    hit = Cache.of(options, False, published).lookup(80)
    assert (hit.tokens, hit.junction) == (16, 64)


def test_the_drop_applies_to_flagged_groups_alone() -> None:
    published = [set(range(8, 65, 8)), {32, 64}]
    for eagle, tokens in ((True, 32), (False, 64)):
        groups = (attention(8, eagle), replace(recurrent(32), eagle=not eagle))
        assert Cache.of(Options(groups, partial_hits=False), True, published).lookup(80).tokens == tokens


def test_a_hole_in_attention_ends_a_hit_and_a_hole_in_a_recurrent_group_does_not() -> None:
    options = Options((attention(4), recurrent(16)), partial_hits=False)
    dense = set(range(4, 65, 4))
    assert Cache.of(options, False, [dense, {64}]).lookup(80).tokens == 64
    assert Cache.of(options, False, [dense - {20}, {16, 64}]).lookup(80).tokens == 16


def test_geometry_puts_attention_first_and_joins_groups_of_a_size() -> None:
    geo = geometry(Options((recurrent(16), attention(4), recurrent(16), recurrent(8))), False)
    assert [(f.recurrent, f.block_size, f.groups) for f in geo.families] == [
        (False, 4, (1,)),
        (True, 16, (0, 2)),
        (True, 8, (3,)),
    ]
    assert (geo.hash_unit, geo.alignment, geo.fine) == (4, 4, True)
    assert geometry(Options((attention(4), recurrent(16)), partial_hits=False), False).alignment == 16
    # Hits finer than a block need a state's block wider than the unit.
    assert not geometry(Options((attention(16), recurrent(16))), False).fine


# The closed laws of coarse hits: what a prompt hits when it is sent again, or a longer one.


def hits(prompts: list[tuple[tuple[int, int], ...]], block: int, drafts: int, cap: int, preset: str) -> list[int]:
    """What each of the prompts hits, one after the other, with equal blocks."""
    groups = (Group("attention", "full-attention", block, eagle=True), Group("gdn", "recurrent", block))
    options = Options(
        groups,
        preset=f"vllm-{preset}",
        num_blocks=2000,
        max_num_batched_tokens=cap,
        partial_hits=False,
        speculative=Speculative("mtp" if drafts else "ngram", drafts),
        clock="steps",
    )
    arrivals = [Arrival(f"r{i}", i, i * 400, segments) for i, segments in enumerate(prompts)]
    outcome = drive(options, arrivals)
    assert outcome.poisoned == 0
    return list(outcome.hits.values())


@given(n=st.integers(1, 200), block=st.sampled_from([4, 16]), preset=st.sampled_from(["0.26.0", "0.27.0"]))
def test_a_resend_hits_all_whole_blocks_but_its_last_token(n: int, block: int, preset: str) -> None:
    """States retained: every chunk is a block."""
    assert hits([((1, n),)] * 2, block, 0, block, preset)[1] == (n - 1) // block * block


@given(n=st.integers(1, 200), block=st.sampled_from([4, 16]), preset=st.sampled_from(["0.26.0", "0.27.0"]))
def test_a_resend_hits_one_block_less_with_a_look_ahead_drafter(n: int, block: int, preset: str) -> None:
    assert hits([((1, n),)] * 2, block, 3, block, preset)[1] == max(0, (n - 1) // block - 1) * block


@given(
    n=st.integers(1, 200),
    more=st.integers(40, 80),
    block=st.sampled_from([4, 16]),
    cap=st.sampled_from([16, 512]),
    preset=st.sampled_from(["0.26.0", "0.27.0"]),
)
def test_a_longer_sibling_hits_one_block_less_than_its_producers_whole_blocks(
    n: int, more: int, block: int, cap: int, preset: str
) -> None:
    prompts = [((1, n),), ((1, n), (2, more))]
    # Where chunks are wider than a block, only the last cacheable position is certain to have a state: the sibling's.
    assert hits(prompts, block, 3, cap, preset)[1] == max(0, n // block - 1) * block


@pytest.mark.parametrize("preset", ["0.26.0", "0.27.0"])
@pytest.mark.parametrize(("n", "hit"), [(31, 16), (32, 0), (33, 32), (48, 0), (64, 0)])
def test_an_exact_multiple_leaves_a_state_that_its_repeat_cannot_hit(n: int, hit: int, preset: str) -> None:
    """As released (vLLM issue 50235): the only state lies at N, and a lookup is capped at N - 1."""
    assert hits([((1, n),)] * 2, 16, 0, 512, preset)[1] == hit
