"""Lookups on which groups do not agree: each against what every group has by itself, and each caught."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.cache.joint import LOOKUP, maximum, minimum, per_group
from stateat.sim.cache.lookup import Hit, Sizes, geometry, intersection
from stateat.sim.cache.pool import BlockPool
from stateat.sim.events import NULL, Group
from stateat.sim.options import Options
from stateat.sim.tokens import Tokens

LENGTH = 64
TOKENS = Tokens.generate([(1, LENGTH)], 0, 0)
OFFSETS = st.sets(st.sampled_from(range(16, LENGTH + 1, 16)))


def cache(dense: int, *states: set[int]) -> tuple[BlockPool, Sizes]:
    """Attention has ``dense`` tokens; the recurrent groups, of 16 and 32, these states."""
    groups = (
        Group("attention", "full-attention", 8),
        *(Group(f"g{i}", "recurrent", 16 * (i + 1)) for i in range(len(states))),
    )
    pool = BlockPool(200, len(groups))
    hashes = TOKENS.block_hashes(8)
    published = [
        set(range(8, dense + 1, 8)),
        *({o for o in s if o % groups[i + 1].block_size == 0} for i, s in enumerate(states)),
    ]
    for group, offsets in enumerate(published):
        for offset in sorted(offsets):
            (block,) = pool.take(1)
            pool.insert(group, hashes[offset // 8 - 1], block, offset)
    return pool, geometry(Options(groups, partial_hits=False, prefix_match_unit=8), False)


def ask(name: str, pool: BlockPool, geo: Sizes) -> Hit:
    groups = sum(len(f.groups) for f in geo.families)
    return LOOKUP[name](pool, geo, TOKENS.block_hashes(8), groups, LENGTH)


@given(dense=st.integers(0, LENGTH), first=OFFSETS, second=OFFSETS)
def test_the_least_and_the_most_are_of_the_groups_own_hits(dense: int, first: set[int], second: set[int]) -> None:
    pool, geo = cache(dense, first, second)
    least, most = ask("minimum", pool, geo), ask("maximum", pool, geo)
    assert least.group_hits == most.group_hits
    assert (least.tokens, most.tokens) == (min(least.group_hits), max(most.group_hits))
    agreed = ask("intersection", pool, geo)
    assert agreed.tokens <= least.tokens <= most.tokens


@given(dense=st.integers(0, LENGTH), first=OFFSETS, second=OFFSETS)
def test_each_its_own_starts_where_attention_ends_unless_a_state_lies_beyond(
    dense: int, first: set[int], second: set[int]
) -> None:
    pool, geo = cache(dense, first, second)
    own, found = ask("minimum", pool, geo).group_hits, ask("per-group", pool, geo)
    if max(own) > own[0]:
        assert found == ask("intersection", pool, geo)
    else:
        assert found.tokens == own[0] and found.group_hits == own


@given(dense=st.integers(0, LENGTH), states=OFFSETS)
def test_i5_only_the_intersection_always_has_a_state_and_attentions_blocks(dense: int, states: set[int]) -> None:
    pool, geo = cache(dense, states)
    for name in LOOKUP:
        hit = ask(name, pool, geo)
        table = hit.blocks[1]
        columns = -(-hit.tokens // 16)
        assert len(table) <= columns, "a recurrent table reaches no further than the hit"
        agrees = hit.tokens == 0 or (hit.group_hits[0] >= hit.tokens and len(table) == columns and table[-1] != NULL)
        assert agrees or not name.startswith("intersection")


def test_each_of_them_is_wrong_where_the_groups_differ() -> None:
    pool, geo = cache(48, {32, 64})
    assert [ask(name, pool, geo).tokens for name in LOOKUP] == [32, 32, 48, 64, 32]
    pool, geo = cache(48, {32})
    assert [ask(name, pool, geo).tokens for name in LOOKUP] == [32, 32, 32, 48, 48]


def test_the_lookups_are_those_of_the_rule() -> None:
    assert LOOKUP["intersection"] is intersection
    assert list(LOOKUP.values())[2:] == [minimum, maximum, per_group]


@given(dense=st.integers(0, LENGTH), wide=st.integers(0, LENGTH), states=OFFSETS)
def test_attention_groups_after_the_first_may_keep_what_lies_beyond_the_hit(
    dense: int, wide: int, states: set[int]
) -> None:
    """Up to vLLM 0.28; all else is the same."""
    groups = (
        Group("narrow", "full-attention", 8),
        Group("wide", "full-attention", 16),
        Group("gdn", "recurrent", 16),
    )
    pool, hashes = BlockPool(200, 3), TOKENS.block_hashes(8)
    for group, ends in enumerate((range(8, dense + 1, 8), range(16, wide + 1, 16), sorted(states))):
        for end in ends:
            (block,) = pool.take(1)
            pool.insert(group, hashes[end // 8 - 1], block, end)
    geo = geometry(Options(groups, partial_hits=False, prefix_match_unit=8), False)
    cut, kept = ask("intersection", pool, geo), ask("intersection-first-cut", pool, geo)
    assert cut == kept._replace(blocks=[*kept.blocks[:1], kept.blocks[1][: cut.tokens // 16], *kept.blocks[2:]])
    assert len(kept.blocks[1]) >= cut.tokens // 16
