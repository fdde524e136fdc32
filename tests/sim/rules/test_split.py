"""The split rules, case by case (scenarios/seeds s01 to s03 and s08) and as laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.rules.split import Chunk, Cut, last_cache_position, partial_tail
from stateat.sim.rules.splits import SPLIT

OLD, NEW, BELOW, EVERY, NONE = (
    "last-cache-position", "prefill-end", "realign-below-last-cache-position", "every-boundary", "unguarded",
)  # fmt: skip
NAMES = tuple(SPLIT)


def cut(name: str, chunk: Chunk) -> Cut:
    answer = SPLIT[name](chunk)  # type: ignore[operator]
    assert isinstance(answer, Cut)
    return answer


def ends(
    name: str,
    prompt: int,
    budgets: Sequence[int],
    block: int = 1600,
    start: int = 0,
    drop: bool = True,
    cap: int = 65_536,
    unit: int = 0,
    junction: int = 0,
) -> list[int]:
    """Where the chunks of a prompt end, given what it is offered step by step (the last offer repeats)."""
    found, steps = list[int](), 0
    while start < prompt:
        offered = min(budgets[min(steps, len(budgets) - 1)], prompt - start)
        chunk = Chunk(start, offered, prompt, prompt, prompt, block, unit, cap, drop, 0, junction)
        start += cut(name, chunk).tokens
        steps += 1
        if not found or found[-1] != start:
            found.append(start)
        assert steps < 200, "no progress"
    return [end for end in found if end]


# S1: PR 51113's cases, and S2, the anatomy.


@pytest.mark.parametrize(
    ("prompt", "block", "budgets", "old", "new"),
    [
        (2002, 1600, (364, 2002), [364, 2002], [2002]),
        (3602, 1600, (1600, 1000, 3602), [1600, 2600, 3602], [1600, 3602]),
        (2002, 1600, (800, 2002), [800, 2002], [2002]),
        (2002, 1600, (900, 2002), [900, 2002], [2002]),
        (2002, 1600, (1599, 2002), [1599, 2002], [2002]),
        (2002, 1600, (1601, 2002), [1601, 2002], [1600, 2002]),
        (2002, 1600, (2000, 2002), [2000, 2002], [1600, 2002]),
        (30_000, 1536, (27_648, 1024, 30_000), [27_648, 28_672, 30_000], [27_648, 30_000]),
        (30_000, 12_288, (12_288, 4000, 30_000), [12_288, 16_288, 30_000], [12_288, 30_000]),
        (41_000, 12_288, (24_576, 8000, 41_000), [24_576, 32_576, 41_000], [24_576, 41_000]),
    ],
)
def test_s1_budgets(prompt: int, block: int, budgets: Sequence[int], old: list[int], new: list[int]) -> None:
    assert ends(OLD, prompt, budgets, block) == old
    assert ends(NEW, prompt, budgets, block) == new


@pytest.mark.parametrize(
    ("start", "old", "new", "below"),
    [
        (331, [1600, 3602], [1600, 3602], [1600, 3602]),
        (1599, [1600, 3602], [1600, 3602], [1600, 3602]),
        (1601, [3602], [3200, 3602], [3602]),
        (2531, [3602], [3200, 3602], [3602]),
        (3011, [3602], [3200, 3602], [3602]),
    ],
)
def test_s1_s3_s8_resumes(start: int, old: list[int], new: list[int], below: list[int]) -> None:
    """last_cache_position is 1600: PR 45477 re-aligns below it alone (S8), PR 51113 always (S3)."""
    assert ends(OLD, 3602, (65_536,), start=start) == old
    assert ends(NEW, 3602, (65_536,), start=start) == new
    assert ends(BELOW, 3602, (65_536,), start=start) == below
    # With hits finer than a block the prompt's last hash unit is one more stop.
    assert ends(OLD, 3602, (65_536,), start=start, unit=16) == sorted({*old, 3600})
    assert ends(NEW, 3602, (65_536,), start=start, unit=16) == sorted({*new, 3600})


def test_s2_a_fragment_is_deferred_and_not_run() -> None:
    chunk = Chunk(0, 364, 2002, 2002, 2002, 1600, 0, 8192, True, 0, 0)
    assert cut(OLD, chunk) == (364, "")
    assert cut(NEW, chunk) == (0, "block-boundary")
    assert cut(BELOW, chunk) == (0, "block-boundary")
    assert cut(NONE, chunk) == (364, "")


def test_mechanisms_2_exactly_three_resumes_cross_their_block_under_the_old_gate() -> None:
    starts = (331, 1599, 1601, 2531, 3011)
    for name, crossing in ((OLD, 3), (BELOW, 3), (NEW, 0)):
        first = [ends(name, 3602, (65_536,), start=s)[0] for s in starts]
        assert sum(e > (s // 1600 + 1) * 1600 for s, e in zip(starts, first, strict=True)) == crossing


def test_mechanisms_4_wrong_and_right_grid() -> None:
    assert ends(NEW, 5000, (2048,), 816, drop=False, cap=2048) == [1632, 3264, 4896, 5000]
    assert ends(NEW, 5000, (2048,), 1648, drop=False, cap=2048) == [1648, 3296, 4944, 5000]


def test_s11_every_boundary_leaves_every_state() -> None:
    assert ends(EVERY, 8240, (16_384,), 1648, drop=False) == [1648, 3296, 4944, 6592, 8240]
    assert ends(NEW, 8240, (16_384,), 1648, drop=False) == [8240]
    assert ends(NEW, 8240, (16_384,), 1648, drop=True) == [6592, 8240]


def test_a_block_wider_than_any_chunk_advances_inside_it() -> None:
    """J1: block 11392 and a budget of 8192, which 0.26 never gets past."""
    assert ends(NEW, 30_000, (8192,), 11_392, cap=8192, drop=False) == [8192, 11_392, 19_584, 22_784, 30_000]
    with pytest.raises(AssertionError, match="no progress"):
        ends(OLD, 30_000, (8192,), 11_392, cap=8192, drop=False)


# The parts.


@pytest.mark.parametrize(
    ("tokens", "drop", "position"),
    [(2002, True, 0), (2002, False, 1600), (3602, True, 1600), (1599, True, 0), (1600, True, 0), (1600, False, 1600)],
)
def test_last_cache_position(tokens: int, drop: bool, position: int) -> None:
    chunk = Chunk(0, tokens, tokens, tokens, tokens, 1600, 0, 8192, drop, 0, 0)
    assert last_cache_position(chunk) == position
    # The old gate keeps to the grid below it, and not from it on.
    for end in (position - 1, position):
        if 0 < end < tokens:
            assert (cut(OLD, replace(chunk, offered=end)).tokens == end) == (end >= position)


def test_partial_tail() -> None:
    chunk = Chunk(0, 2002, 2002, 2002, 2002, 1600, 16, 8192, False, 0, 0)
    assert partial_tail(chunk) == 2000
    assert partial_tail(replace(chunk, hash_unit=0)) == 0
    assert cut(NEW, replace(chunk, start=1600, offered=402)) == (400, "partial-tail")
    assert cut(NEW, replace(chunk, start=2000, offered=2)) == (2, "")
    # A replay after a preemption goes past the prompt, and stops at its tail too.
    replayed = replace(chunk, start=1600, offered=449, prefill_end=2049, num_tokens=2050)
    assert cut(NEW, replayed) == (400, "partial-tail")
    assert cut(NEW, replace(replayed, num_prompt=2000)) == (449, "")
    # A prompt that ends on a hash unit has no tail to stop at.
    exact = replace(chunk, start=1600, offered=400, prefill_end=2000, num_prompt=2000, num_tokens=2000)
    assert cut(NEW, exact) == (400, "")


def test_a_junction_stops_at_its_block() -> None:
    chunk = Chunk(0, 8000, 8000, 8000, 8000, 1600, 0, 8192, False, 0, 3300)
    assert cut(NEW, chunk) == (3200, "junction")
    assert cut(NEW, replace(chunk, start=3200, offered=4800)) == (4800, "")
    assert cut(NEW, replace(chunk, junction=0)) == (8000, "")
    # One within the first block floors to where the chunk starts: no stop.
    assert cut(NEW, replace(chunk, junction=1599)).stop != "junction"


def test_the_earliest_stop_wins() -> None:
    chunk = Chunk(1700, 8000, 9700, 9700, 9700, 1600, 16, 9700, True, 0, 5000)
    assert cut(NEW, chunk) == (1500, "mid-block")
    assert cut(NONE, chunk) == (3200, "junction")
    assert cut(NONE, replace(chunk, junction=0)) == (6300, "last-cache-position")


# Laws.


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    prompt = draw(st.integers(1, 200))
    outputs = draw(st.integers(0, 40))
    tokens = prompt + outputs
    end = max(prompt, tokens - 1)
    start = draw(st.integers(0, end - 1))
    cap = draw(st.integers(1, 250))
    offered = draw(st.integers(1, min(cap, max(tokens - start, 1))))
    block = draw(st.sampled_from([4, 16, 48, 64]))
    unit = draw(st.sampled_from([0, 2, 4]))
    junction = draw(st.integers(0, 200))
    return Chunk(start, offered, end, prompt, tokens, block, unit, cap, draw(st.booleans()), 0, junction)


@pytest.mark.parametrize("name", NAMES)
@given(chunk=chunks())
def test_a_split_gives_no_more_than_was_offered(name: str, chunk: Chunk) -> None:
    answer = cut(name, chunk)
    assert 0 <= answer.tokens <= chunk.offered
    # A stop is named exactly where the split cut.
    assert bool(answer.stop) == (answer.tokens < chunk.offered)


@pytest.mark.parametrize("name", [NEW, EVERY, BELOW])
@given(chunk=chunks())
def test_prefill_end_never_ends_off_the_grid_before_the_prefills_end_without_a_cause(name: str, chunk: Chunk) -> None:
    answer = cut(name, chunk)
    end = chunk.start + answer.tokens
    if not answer.tokens or end >= chunk.prefill_end or end % chunk.block == 0:
        return
    floored = chunk.start + (chunk.junction - chunk.start) // chunk.block * chunk.block
    assert (
        chunk.block > chunk.cap
        or (answer.stop == "partial-tail" and end == partial_tail(chunk))
        or (answer.stop == "junction" and end == floored)
    )


@pytest.mark.parametrize("name", [NEW, EVERY])
@given(chunk=chunks())
def test_prefill_end_never_lets_a_mid_block_start_cross_its_block(name: str, chunk: Chunk) -> None:
    if chunk.start % chunk.block:
        assert chunk.start + cut(name, chunk).tokens <= (chunk.start // chunk.block + 1) * chunk.block


@given(chunk=chunks())
def test_every_boundary_never_crosses_any(chunk: Chunk) -> None:
    assert chunk.start + cut(EVERY, chunk).tokens <= (chunk.start // chunk.block + 1) * chunk.block


@pytest.mark.parametrize("name", [OLD, BELOW, NONE])
def test_the_law_of_crossing_is_broken_by_the_other_rules(name: str) -> None:
    """Negative control: some chunk runs past its block."""
    chunk = Chunk(2531, 1071, 3602, 3602, 3602, 1600, 0, 65_536, True, 0, 0)
    assert chunk.start + cut(name, chunk).tokens > 3200


@pytest.mark.parametrize("name", [OLD, NONE])
def test_the_law_of_the_grid_is_broken_by_the_other_rules(name: str) -> None:
    assert cut(name, Chunk(0, 364, 2002, 2002, 2002, 1600, 0, 8192, True, 0, 0)).tokens % 1600


@given(chunk=chunks())
def test_all_that_is_left_runs_when_there_is_nothing_to_stop_at(chunk: Chunk) -> None:
    """A prompt within a block, offered whole, from its start."""
    whole = replace(
        chunk, start=0, offered=chunk.num_prompt, prefill_end=chunk.num_prompt, num_tokens=chunk.num_prompt,
        block=256, hash_unit=0, junction=0,
    )  # fmt: skip
    for name in NAMES:
        assert cut(name, whole) == (whole.offered, "")


@given(chunk=chunks())
def test_prefill_end_always_makes_progress_with_a_whole_budget(chunk: Chunk) -> None:
    """Offered all that a chunk may ever take, it takes something."""
    offered = min(chunk.cap, chunk.num_tokens - chunk.start)
    assert cut(NEW, replace(chunk, offered=offered)).tokens > 0
