"""State writes: which states a recurrent kernel leaves on its way through a step's prefill rows, in ``all`` mode.

A kernel works in chunks of its own (``mamba_chunk_size``) and has a state at the end of each. What it leaves in the
column of a boundary is the state of the chunk that it takes for the one that ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stateat.sim.options import Options
from stateat.sim.rules.record import Lack, Rule, Standing, Value, When


class Span(NamedTuple):
    """A row's tokens [start, end)."""

    start: int
    end: int


class Left(NamedTuple):
    """A state that is left."""

    source: int
    """The row whose tokens it has absorbed."""
    offset: int
    """So many."""
    target: int
    """The row in whose table it is left."""
    column: int


Leaves = Callable[[Sequence[Span], int, int], list[Left]]
"""(the step's prefill rows in the order of the batch, block, kernel chunk) -> what is left beside each row's end."""


Ends = list[tuple[int, int]]
"""Kernel chunks of a step: the row of each, and the offset at its end."""


def own_grid(spans: Sequence[Span], block: int, chunk: int) -> list[Left]:
    """Each row's kernel chunks end at multiples of ``chunk``; the one of a boundary is counted in whole chunks a block.

    A start off that grid is finished to it first (vLLM PR 34798), so that a chunk that divides the block ends at every
    boundary (vLLM to 0.30). One that does not gives the end of another chunk, of the row before too (vLLM issues
    57266 and 57278). Where no such chunk is there the release's engine dies; here nothing is left.
    """
    return _counted(spans, block, chunk, _sliced)


def own_grid_indexed(spans: Sequence[Span], block: int, chunk: int) -> list[Left]:
    """Leave what :func:`own_grid` leaves, each kernel chunk by its own index (vLLM 0.31): one before the first is
    counted from the
    batch's end, also for a block of less than a chunk."""
    return _counted(spans, block, chunk, _indexed)


def _sliced(ends: Ends, at: int, count: int, stride: int) -> Ends:
    """Take a slice; a negative start counts from the end, and a single state goes into every column."""
    taken = ends[at : at + count * stride : stride] if stride else []
    return taken * count if len(taken) == 1 else taken


def _indexed(ends: Ends, at: int, count: int, stride: int) -> Ends:
    """Take each by its index; a negative one counts from the end."""
    taken = [at + i * stride for i in range(count)]
    return [ends[i] for i in taken] if -len(ends) <= taken[0] and taken[-1] < len(ends) else []


def _counted(spans: Sequence[Span], block: int, chunk: int, take: Callable[[Ends, int, int, int], Ends]) -> list[Left]:
    ends: Ends = []
    first: list[int] = []
    for i, span in enumerate(spans):
        first.append(len(ends))
        grid = [*range((span.start // chunk + 1) * chunk, span.end, chunk), span.end]
        ends += [(i, end) for end in grid]
    stride = block // chunk
    left: list[Left] = []
    for i, span in enumerate(spans):
        column = span.start // block
        count = -(-span.end // block) - 1 - column
        if count <= 0:
            continue
        taken = take(ends, first[i] + stride - 1 - span.start % block // chunk, count, stride)
        if len(taken) == count:
            left += [Left(source, end, i, column + j) for j, (source, end) in enumerate(taken)]
    return left


def end_only(spans: Sequence[Span], block: int, chunk: int) -> list[Left]:
    """Leave nothing but the end of each row, although every boundary is published (vLLM issue 34587)."""
    return []


def flat_grid(spans: Sequence[Span], block: int, chunk: int) -> list[Left]:
    """Kernel chunks end on the grid of the flattened batch; the one of a boundary is counted from the chunk that the
    row begins in, as if it began there (SGLang issue 31833)."""
    begins: list[int] = []
    total = 0
    for span in spans:
        begins.append(total)
        total += span.end - span.start
    left: list[Left] = []
    for i, span in enumerate(spans):
        for boundary in range((span.start // block + 1) * block, span.end, block):
            end = (begins[i] // chunk + (boundary - span.start) // chunk) * chunk
            source = next((k for k, begin in enumerate(begins) if begin < end <= begin + _length(spans[k])), -1)
            if source >= 0:
                offset = spans[source].start + end - begins[source]
                left.append(Left(source, offset, i, boundary // block - 1))
    return left


def _length(span: Span) -> int:
    return span.end - span.start


@dataclass(frozen=True, slots=True)
class StateWrites:
    """Writes of a release's recurrent kernels."""

    leaves: Leaves = own_grid
    """States that a step leaves on its way, in ``all`` mode."""


EVERY_BOUNDARY = StateWrites()


def _no_all_mode(options: Options) -> Iterator[Lack]:
    for i, group in enumerate(options.groups):
        if group.recurrent and not group.aligned:
            yield Lack(("groups", i, "mamba_cache_mode"), group.mamba_cache_mode, "align")


STATE_WRITES: Rule[StateWrites] = Rule(
    "Which states does a chunk leave, and which cache modes are there?",
    {
        "align-and-all": Value(
            EVERY_BOUNDARY,
            "In `align` mode the state at its end. In `all` mode those at every boundary too, where "
            "`mamba_chunk_size` divides the block; else the ends of other kernel chunks, `block // mamba_chunk_size` "
            "of them a block; decode rows with drafts leave the states after each token, from the last one's column "
            "on.",
            "vLLM to 0.30, issues 57266, 57278",
        ),
        "align-and-all-indexed": Value(
            StateWrites(own_grid_indexed),
            "As `align-and-all`; where `mamba_chunk_size` does not divide the block, a kernel chunk that would lie "
            "before the batch's first is counted from its end.",
            "vLLM 0.31",
        ),
        "align": Value(
            StateWrites(),
            "In `align` mode the state at its end; `all` mode is refused.",
            "vLLM 0.32",
            lacks=_no_all_mode,
        ),
        "all-chunk-end-only": Value(
            StateWrites(end_only),
            "In `all` mode too only the state at its end, although every boundary is published.",
            "vLLM issue 34587",
            Standing.FAULT,
        ),
        "flat-batch-grid": Value(
            StateWrites(flat_grid),
            "In `all` mode the states where kernel chunks end on the grid of the step's flattened batch, counted as if "
            "each request began one.",
            "SGLang issue 31833",
            Standing.FAULT,
        ),
    },
    When(
        "with a recurrent group in `all` mode",
        lambda options, requests: any(group.recurrent and not group.aligned for group in options.groups),
    ),
)
