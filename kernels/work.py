"""Work that a launch is asked for, and states that it gives, whatever computes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stateat.kernels.families import FAMILIES
from stateat.kernels.shapes import Shape

State = dict[str, NDArray[Any]]
"""Component name to array, float32 (``ring``: uint64); the shapes are :attr:`Shape.components`."""


@dataclass(frozen=True, slots=True)
class Work:
    """One request's part of a launch: absorb ``tokens``, and give the states at ``offsets``."""

    tokens: NDArray[np.int64]
    """Ids to absorb, shape [T], T >= 0."""
    offsets: tuple[int, ...]
    """Counted from 0 at this work's start, increasing, each in 0..T; 0 is the state carried in."""
    state: State | None = None
    """Carried in, never written to. None: zero."""


def dtype(shape: Shape) -> type[np.uint64] | type[np.float32]:
    """Dtype of every array of a state of this shape."""
    return np.uint64 if FAMILIES[shape.family].exact else np.float32


def zero(shape: Shape, batch: int | None = None) -> State:
    """The state before any token; with ``batch``, that many of them along a first axis."""
    lead = () if batch is None else (batch,)
    return {name: np.zeros((*lead, *size), dtype(shape)) for name, size in shape.components.items()}


def check(shape: Shape, works: Sequence[Work]) -> None:
    """ValueError if a work does not keep what :class:`Work` says, or its state is not one of ``shape``."""
    for number, work in enumerate(works):
        if work.tokens.ndim != 1:
            raise ValueError(f"work {number}: tokens have shape {work.tokens.shape}, expected [T]")
        bounds = (-1, *work.offsets)
        length = work.tokens.size
        if any(b <= a for a, b in zip(bounds, work.offsets, strict=False)) or bounds[-1] > length:
            raise ValueError(f"work {number}: offsets {work.offsets} do not increase within 0..{length}")
        if work.state is None:
            continue
        found = {name: (array.shape, array.dtype) for name, array in work.state.items()}
        expected = {name: (size, np.dtype(dtype(shape))) for name, size in shape.components.items()}
        if found != expected:
            raise ValueError(f"work {number}: its state has {found}, expected {expected}")
