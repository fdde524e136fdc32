"""Sliding windows: what they need to be hit, what they publish for that, and groups that opt out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateat.sim.cache.groups import Place
from stateat.sim.cache.ledger import Ledger
from stateat.sim.cache.lookup import geometry, intersection, window_blocks
from stateat.sim.cache.pool import BlockPool
from stateat.sim.cache.window import WINDOW_PUBLISHING, WindowCache, WindowPublishing
from stateat.sim.conformance.compare import Decisions
from stateat.sim.events import NULL, Group
from stateat.sim.options import Options, Speculative
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.tokens import Tokens
from stateat.sim.workload import Arrival

LENGTH = 96
TOKENS = Tokens.generate([(1, LENGTH)], 0, 0)


@given(
    window=st.integers(2, 40),
    published=st.sets(st.sampled_from(range(4, LENGTH + 1, 4))),
    limit=st.integers(0, LENGTH),
    drop=st.booleans(),
)
def test_a_window_is_hit_where_a_row_of_its_blocks_ends(
    window: int, published: set[int], limit: int, drop: bool
) -> None:
    """And the drafter's block behind it; a row that reaches the start may be shorter."""
    groups = (Group("attention", "full-attention", 12), Group("window", "full-attention", 4, sliding_window=window))
    pool = BlockPool(200, 2)
    hashes = TOKENS.block_hashes(4)
    for group, offsets in enumerate((set(range(12, LENGTH + 1, 12)), published)):
        for offset in sorted(offsets):
            (block,) = pool.take(1)
            pool.insert(group, hashes[offset // 4 - 1], block, offset)
    geo = geometry(Options(groups, partial_hits=False), drop, scope={1})
    hit = intersection(pool, geo, hashes, 2, limit)
    wanted = window_blocks(window, 4, drop)
    longest = 0
    for end in range(0, limit + 1, 12):
        columns = end // 4 + drop
        row = range(max(columns - wanted, 0), columns)
        # A row that reaches the start and is too short is cut to a multiple of 12 before the drop, and after it.
        if columns * 4 <= limit and all((c + 1) * 4 in published for c in row) and (len(row) == wanted or not drop):
            longest = end
    # The candidate is attention's; where the window lowers it, one look suffices, for attention has all below.
    assert hit.tokens == longest
    table = hit.blocks[1]
    assert len(table) == hit.tokens // 4
    assert all(block != NULL for block in table[len(table) - min(wanted - drop, len(table)) :])


def ran(mask: str, window: int, length: int, method: str, cap: int, prefix_cacheable: bool = True) -> Outcome:
    groups = (
        Group("attention", "full-attention", 32),
        Group("gdn", "recurrent", 32),
        Group("draft", "full-attention", 4, sliding_window=window, prefix_cacheable=prefix_cacheable),
    )
    options = Options(
        groups,
        rules={"window_publishing": mask},
        num_blocks=2000,
        max_num_batched_tokens=cap,
        partial_hits=False,
        speculative=Speculative(method, 3),
        clock="steps",
    )
    return drive(options, [Arrival(f"r{i}", i, i * 60, ((1, length),), 2) for i in range(2)])


@given(
    window=st.integers(2, 60),
    length=st.integers(1, 250),
    method=st.sampled_from(["mtp", "ngram"]),
    cap=st.sampled_from([32, 128]),
)
@settings(max_examples=40)
def test_what_is_published_is_all_that_a_hit_can_need(window: int, length: int, method: str, cap: int) -> None:
    some, dense = ran("reachable", window, length, method, cap), ran("dense", window, length, method, cap)
    assert (some.hits, some.poisoned, len(some.findings)) == (dense.hits, 0, 0)


def test_d11_a_mask_without_the_shift_leaves_nothing_to_hit_with_a_drop_and_all_without() -> None:
    found = {mask: ran(mask, 8, 150, "mtp", 32).hits["r1"] for mask in WINDOW_PUBLISHING}
    assert found == {**dict.fromkeys(WINDOW_PUBLISHING, 96), "unshifted": 0}
    assert [ran(mask, 8, 150, "ngram", 32).hits["r1"] for mask in WINDOW_PUBLISHING] == [128] * len(WINDOW_PUBLISHING)


def test_a_wide_window_publishes_all() -> None:
    assert (
        WindowPublishing().row(4, 33, False).before_each(8) is None
        and WindowPublishing().row(4, 29, False).before_each(8) is not None
    )


@given(
    size=st.integers(1, 8),
    window=st.integers(1, 60),
    drops=st.booleans(),
    segment=st.integers(1, 20),
    hit=st.integers(1, 9),
)
def test_the_row_of_a_hit_is_what_lies_before_each_multiple(
    size: int, window: int, drops: bool, segment: int, hit: int
) -> None:
    row = WindowPublishing().row(size, window, drops)
    grid = row.before_each(segment)
    asked = row.before(hit * segment * size)
    assert len(asked) == min(row.wanted, hit * segment + row.shift)
    assert grid is None or all(grid(end) for end in asked if end > size * row.shift)
    nothing = row.before_each(0)
    assert nothing is not None and not any(nothing(end) for end in asked)


def window_cache(size: int, window: int, step: int) -> WindowCache:
    place = Place(0, size, size, BlockPool(20, 1), Ledger(lambda *claim: None))
    row = WindowPublishing().row(size, window, False)
    return WindowCache(place, window=window, row=row, most_tokens=window - 1 + step)


@given(size=st.integers(1, 8), window=st.integers(1, 30), computed=st.integers(0, 90))
def test_a_window_skips_the_blocks_that_no_token_to_come_attends_to(size: int, window: int, computed: int) -> None:
    """A token attends to itself and to the ``window`` - 1 before it."""
    first = max(computed - (window - 1), 0)
    assert window_cache(size, window, 1).skipped(computed) == sum(end <= first for end in range(size, 100, size))


@given(size=st.integers(1, 8), window=st.integers(1, 30), step=st.integers(1, 30))
def test_a_window_and_a_step_lie_in_the_most_blocks_that_are_counted_for_them(
    size: int, window: int, step: int
) -> None:
    """Wherever the step starts. Counted is a block too many, as in vLLM, where a token more would lie in it."""
    cache = window_cache(size, window, step)
    held = max(-(-(start + step) // size) - cache.skipped(start) for start in range(100))
    assert cache.most == (held + ((window - 1 + step) % size == 1 or size == 1)) * size


@given(length=st.integers(1, 250), cap=st.sampled_from([32, 128]))
@settings(max_examples=20)
def test_f10_a_group_that_opts_out_changes_no_hit(length: int, cap: int) -> None:
    without = Options((Group("attention", "full-attention", 32), Group("gdn", "recurrent", 32)), partial_hits=False)
    options = Options(without.groups, num_blocks=2000, max_num_batched_tokens=cap, partial_hits=False, clock="steps")
    alone = drive(options, [Arrival(f"r{i}", i, i * 60, ((1, length),), 2) for i in range(2)])
    assert ran("reachable", 0, length, "ngram", cap, prefix_cacheable=False).hits == alone.hits


@pytest.mark.parametrize(("cacheable", "fine"), [(True, False), (False, True)])
def test_f10_a_window_turns_fine_hits_off_unless_it_opts_out(cacheable: bool, fine: bool) -> None:
    window = Group("window", "full-attention", 4, sliding_window=4, prefix_cacheable=cacheable)
    groups = (Group("attention", "full-attention", 4), Group("gdn", "recurrent", 8), window)
    assert geometry(Options(groups, prefix_match_unit=2), False).fine is fine


@pytest.mark.parametrize("release", ["0.26.0", "0.27.0", "0.28.0", "0.29.0", "0.32.0", "0.33.0"])
def test_a_window_alone_is_hit_inside_a_state_block_from_0_29_on(release: str) -> None:
    """As each release decides it: a window whose block is the hash unit, beside states of a wider block."""
    groups = (Group("window", "full-attention", 16, sliding_window=100), Group("gdn", "recurrent", 128))
    options = Options(groups, preset=f"vllm-{release}", clock="steps")
    outcome = drive(options, [Arrival(name, i, 0, ((1, 17),)) for i, name in enumerate("ab")])
    assert outcome.hits["b"] == (16 if release >= "0.29.0" else 0)


def test_blocks_are_let_go_of_in_the_order_of_the_groups() -> None:
    """As vLLM 0.33.0 decides it: slots that a request is handed next hang on what was freed first."""
    groups = (
        Group("attention", "full-attention", 2),
        Group("window", "full-attention", 2, sliding_window=7),
        Group("gdn", "recurrent", 4),
    )
    heard = Decisions()
    options = Options(groups, preset="vllm-0.33.0", num_blocks=49, clock="steps")
    arrivals = [Arrival("a", 0, 0, ((1, 20),)), Arrival("b", 1, 1, ((2, 12), (4, 7)), 7)]
    drive(options, arrivals, observers=[heard], fast_forward=False)
    assert heard.launches[9, "b"] == (24, 25, 0, 14, 14)


@pytest.mark.parametrize(("window", "slot"), [(1, 1), (6, 3), (30, 4)])
def test_a_window_holds_nothing_before_it_for_tokens_that_a_connector_brings(window: int, slot: int) -> None:
    """As vLLM 0.33.0 decides it: which slot the recurrent group's state gets, behind the window's blocks."""
    heard = Decisions()
    groups = (Group("window", "full-attention", 4, sliding_window=window), Group("gdn", "recurrent", 12))
    arrival = Arrival("a", 0, 0, ((2, 10),), external=21)
    drive(Options(groups, preset="vllm-0.33.0", clock="steps"), [arrival], observers=[heard], fast_forward=False)
    assert heard.launches[0, "a"] == (9, 10, 0, slot, slot)
