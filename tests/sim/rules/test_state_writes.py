"""What a kernel leaves at the boundaries that a step's prefill rows pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.events import Group
from stateat.sim.options import Options
from stateat.sim.rules.state_writes import STATE_WRITES, Left, Span, end_only, flat_grid, own_grid


@st.composite
def batches(draw: st.DrawFn) -> list[Span]:
    """Rows of prefills, each from anywhere to anywhere."""
    starts = draw(st.lists(st.integers(0, 300), min_size=1, max_size=4))
    return [Span(start, start + draw(st.integers(1, 300))) for start in starts]


def boundaries(spans: list[Span], block: int) -> list[Left]:
    """Each row's own state at each boundary that it passes, in the boundary's column."""
    return [
        Left(i, end, i, end // block - 1)
        for i, span in enumerate(spans)
        for end in range((span.start // block + 1) * block, span.end, block)
    ]


@given(spans=batches(), chunk=st.integers(1, 40), times=st.integers(1, 4))
def test_a_kernel_chunk_that_divides_the_block_ends_at_every_boundary(
    spans: list[Span], chunk: int, times: int
) -> None:
    assert own_grid(spans, chunk * times, chunk) == boundaries(spans, chunk * times)


@given(spans=batches(), block=st.integers(1, 80), chunk=st.integers(1, 80))
def test_what_is_left_goes_into_columns_of_boundaries_that_are_passed(
    spans: list[Span], block: int, chunk: int
) -> None:
    passed = {(left.target, left.column) for left in boundaries(spans, block)}
    for leaves in (own_grid, flat_grid, end_only):
        for left in leaves(spans, block, chunk):
            assert (left.target, left.column) in passed
            assert spans[left.source].start < left.offset <= spans[left.source].end


def test_a_chunk_of_256_and_a_block_of_384_leave_256_and_512() -> None:
    """The figures of vLLM issues 57266 and 57278, by derivation."""
    assert own_grid([Span(0, 1000)], 384, 256) == [Left(0, 256, 0, 0), Left(0, 512, 0, 1)]


def test_a_start_inside_a_block_counts_chunks_back_into_the_row_before() -> None:
    assert own_grid([Span(384, 768), Span(300, 684)], 384, 256) == [Left(0, 768, 1, 0)]


@pytest.mark.parametrize("spans", [[Span(300, 684)], [Span(0, 384), Span(0, 384)]])
def test_where_no_such_chunk_is_there_nothing_is_left(spans: list[Span]) -> None:
    assert own_grid(spans, 384, 256) == []


def test_a_chunk_wider_than_the_block_leaves_nothing_at_boundaries() -> None:
    assert own_grid([Span(0, 1000)], 32, 256) == []


@given(spans=batches(), chunk=st.integers(1, 40), times=st.integers(1, 4))
def test_the_flat_grid_is_right_for_rows_that_begin_on_it_and_blocks_of_whole_chunks(
    spans: list[Span], chunk: int, times: int
) -> None:
    block = chunk * times
    aligned = [Span(s.start // block * block, s.start // block * block + chunk * (s.end - s.start)) for s in spans]
    assert flat_grid(aligned, block, chunk) == boundaries(aligned, block)


@given(first=st.integers(1, 300), length=st.integers(1, 400), chunk=st.integers(1, 64), times=st.integers(1, 4))
def test_on_the_flat_grid_a_second_row_is_short_by_what_the_first_leaves_over(
    first: int, length: int, chunk: int, times: int
) -> None:
    block = chunk * times
    left = flat_grid([Span(0, first), Span(0, length)], block, chunk)
    short = first % chunk
    assert [x.offset for x in left if x.target == 1 and x.source == 1] == [
        end - short for end in range(block, length, block) if end > short
    ]


def test_only_the_align_kernels_have_no_all_mode() -> None:
    groups = (Group("attention", "full-attention", 16), Group("states", "recurrent", 16, mamba_cache_mode="all"))
    refused = {name: list(value.lacks(Options(groups))) for name, value in STATE_WRITES.records.items()}
    assert refused.pop("align") == [(("groups", 1, "mamba_cache_mode"), "all", "align", "")]
    assert not any(refused.values())
