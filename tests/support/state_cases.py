"""What the tests of the state kernels share: token runs, and how far apart two states are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from stateat.kernels.backends import states_at
from stateat.kernels.reference import absorb
from stateat.kernels.shapes import Shape
from stateat.kernels.work import State, Work

VOCABULARY = 50_000


def tokens(count: int, seed: int = 0) -> NDArray[np.int64]:
    """Ids, of which the third is a placeholder."""
    ids = np.random.default_rng([seed, 77]).integers(0, VOCABULARY, count)
    ids[2:3] = -1
    return ids


def need(backend: str) -> str:
    """The backend, or a skipped test where its library is missing."""
    if backend != "numpy":
        pytest.importorskip("torch")
    return backend


def at(shape: Shape, ids: NDArray[np.int64], state: State | None = None, **options: object) -> State:
    """The state after all of ``ids``."""
    return states_at(shape, [Work(ids, (len(ids),), state)], **options)[0][0]  # type: ignore[arg-type]


@cache
def truths(shape: Shape, ids: tuple[int, ...], offsets: tuple[int, ...]) -> list[State]:
    """The float64 states of one run at several offsets; do not write to them."""
    found: list[State] = []
    state, done = None, 0
    for offset in offsets:
        state = absorb(shape, np.array(ids[done:offset], np.int64), state)
        found.append(state)
        done = offset
    return found


def same(one: State, other: State) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and one[name].tobytes() == other[name].tobytes() for name in one
    )


def distance(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """Relative to ``other``, in the Frobenius norm."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def in_pieces(shape: Shape, ids: NDArray[np.int64], cuts: Sequence[int], **options: object) -> State:
    """The state after all of ``ids``, absorbed in one call for each part between the cuts."""
    bounds = [0, *sorted(cuts), len(ids)]
    state: State | None = None
    for start, end in pairwise(bounds):
        state = at(shape, ids[start:end], state, **options)
    assert state is not None
    return state
