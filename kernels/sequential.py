"""Token by token, many requests at once: what is common to the libraries that can do it.

A launch is cut into *tiles* of requests and units whose states stay in cache for all their tokens. Requests are sorted
by length, so those that still run are the first ones. No operation mixes two requests or two units, and each token is
one step from one float32 state to the next: so the bits of a state depend neither on how a run of tokens was split over
calls, nor on the rest of the batch, nor on which other states were asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stateat.kernels import inputs
from stateat.kernels.families import FAMILIES
from stateat.kernels.inputs import Array, Source
from stateat.kernels.shapes import Shape
from stateat.kernels.work import State, Work, dtype

STATE_BYTES = 1 << 20
"""Bytes of the states of a tile."""
INPUT_ENTRIES = 1 << 17
"""Entries of the inputs drawn at a time for a tile."""

Step = Callable[[Array, tuple[Array, ...]], None]


class Library(Protocol):
    """An array library, on one device."""

    def source(self, shape: Shape, tokens: NDArray[np.int64]) -> Source:
        """Draws for tokens [A, B]."""

    def load(self, state: NDArray[Any]) -> Array:
        """A state that a step may write to; the array given is not used again."""

    def store(self, state: Array, out: NDArray[Any]) -> None:
        """Copy a state out."""

    def per_token(self, family: str, drawn: tuple[Array, ...]) -> Sequence[tuple[Array, ...]]:
        """The inputs [T, n, U, ...] of :mod:`stateat.kernels.inputs`, as what the step takes for each token, [n *
        U, ...]."""

    def step(self, family: str) -> Step:
        """Absorbs one token: changes states [n * U, ...] in place."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Requests (indices of works, longest first) and units [first, last) of a launch."""

    rows: tuple[int, ...]
    first: int
    last: int


def length(work: Work) -> int:
    """Tokens that must be absorbed to give the states asked for."""
    return work.offsets[-1] if work.offsets else 0


def tiles(shape: Shape, works: Sequence[Work], state_bytes: int = STATE_BYTES) -> Iterator[Tile]:
    """The tiles of a launch: whole requests if several fit, otherwise parts of one."""
    count = shape.layers * inputs.units(shape)
    each = shape.recurrent_entries * np.dtype(dtype(shape)).itemsize
    order = sorted(range(len(works)), key=lambda row: -length(works[row]))
    together = max(1, state_bytes // each)
    parts = -(-each // state_bytes) if together == 1 else 1
    across = -(-count // min(parts, count))
    for start in range(0, len(order), together):
        for first in range(0, count, across):
            yield Tile(tuple(order[start : start + together]), first, min(first + across, count))


def unit_view(shape: Shape, array: NDArray[Any]) -> NDArray[Any]:
    """A recurrent component as [units, ...], without copying."""
    if FAMILIES[shape.family].by_row:
        return array.reshape(shape.layers * shape.rows, shape.columns)
    return array.reshape(shape.layers * shape.heads, shape.rows, shape.columns)


def run(shape: Shape, works: Sequence[Work], results: Sequence[Sequence[State]], library: Library) -> None:
    """Fill the recurrent components of ``results``: one state for each offset of each work."""
    for tile in tiles(shape, works):
        _run_tile(shape, works, results, library, tile)


def carried(shape: Shape, works: Sequence[Work], tile: Tile) -> NDArray[Any]:
    """The states of a tile before its first token, [rows * units, ...], a new array."""
    size = (shape.columns,) if FAMILIES[shape.family].by_row else (shape.rows, shape.columns)
    start = np.zeros((len(tile.rows), tile.last - tile.first, *size), dtype(shape))
    for row, number in enumerate(tile.rows):
        state = works[number].state
        if state is not None:
            start[row] = unit_view(shape, state["recurrent"])[tile.first : tile.last]
    return start.reshape(-1, *size)


def _run_tile(
    shape: Shape, works: Sequence[Work], results: Sequence[Sequence[State]], library: Library, tile: Tile
) -> None:
    lengths = [length(works[number]) for number in tile.rows]
    count = tile.last - tile.first
    state = library.load(carried(shape, works, tile))
    wanted: dict[int, list[tuple[int, NDArray[Any]]]] = defaultdict(list)
    tokens = np.zeros((lengths[0], len(lengths)), np.int64)
    for row, number in enumerate(tile.rows):
        tokens[: lengths[row], row] = works[number].tokens[: lengths[row]]
        for offset, result in zip(works[number].offsets, results[number], strict=True):
            wanted[offset].append((row, unit_view(shape, result["recurrent"])[tile.first : tile.last]))

    def give(offset: int) -> None:
        for row, out in wanted.get(offset, ()):
            library.store(state[row * count : (row + 1) * count], out)

    give(0)
    step = library.step(shape.family)
    share = count / inputs.units(shape)
    entries = max(1, int(share * sum(inputs.width(shape, stream) for stream in FAMILIES[shape.family].streams)))
    running = len(lengths)
    start = 0
    while start < lengths[0]:
        while lengths[running - 1] <= start:
            running -= 1
        end = min(lengths[0], start + max(1, INPUT_ENTRIES // (entries * running)))
        source = library.source(shape, tokens[start:end, :running])
        drawn = library.per_token(shape.family, inputs.draw_inputs(shape, source, tile.first, tile.last))
        rows, active = running, state[: running * count]
        for offset, values in enumerate(drawn, start):
            if lengths[rows - 1] <= offset:
                while lengths[rows - 1] <= offset:
                    rows -= 1
                active = state[: rows * count]
            step(active, values if rows == running else tuple(value[: rows * count] for value in values))
            if offset + 1 in wanted:
                give(offset + 1)
        start = end
