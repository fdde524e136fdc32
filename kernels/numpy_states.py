"""States with NumPy alone: float32 (``ring``: uint64), sequential. For machines without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stateat.kernels import sequential
from stateat.kernels.families import FAMILIES, Update
from stateat.kernels.inputs import NumpySource
from stateat.kernels.sequential import Step
from stateat.kernels.shapes import Shape
from stateat.kernels.work import State, Work

Array = NDArray[Any]


def fill(shape: Shape, works: Sequence[Work], results: Sequence[Sequence[State]]) -> None:
    """Fill the recurrent components of ``results``, one state for each offset of each work."""
    sequential.run(shape, works, results, Numpy())


def _delta(s: Array, values: tuple[Array, ...]) -> None:
    decay, column, read, write = values
    s *= decay
    s += column * (write + np.matmul(read, s))


def _ring(s: Array, values: tuple[Array, ...]) -> None:
    decay, column, read, write = values
    s *= decay
    s += column * (write + (s * read.swapaxes(-1, -2)).sum(-2, keepdims=True))


def _ssd(s: Array, values: tuple[Array, ...]) -> None:
    decay, x, b = values
    s *= decay
    s += x * b


def _scan(s: Array, values: tuple[Array, ...]) -> None:
    decay, write = values
    s *= decay
    s += write


STEPS: dict[Update | None, Step] = {
    Update.RING: _ring,
    Update.DELTA: _delta,
    Update.OUTER: _ssd,
    Update.SCAN: _scan,
}


def shaped(family: str, drawn: tuple[Any, ...], exp: Any) -> tuple[Any, ...]:
    """Arguments of a step, for all tokens: [T, M, ...] with M = n * U, from inputs [T, n, U, ...].

    For the delta rules that is: decay, key k as a column [M, K, 1], the read ``-beta k`` [M, 1, K] and the write
    ``beta v`` [M, 1, V], so that a step is ``S <- decay S`` and ``S <- S + k (beta v - beta k.S)``.
    """
    drawn = tuple(array.reshape(len(array), -1, *array.shape[3:]) for array in drawn)
    of = FAMILIES[family]
    if of.update is Update.SCAN:
        return exp(drawn[0]), drawn[1]
    if of.update is Update.OUTER:
        return exp(drawn[0])[..., None, None], drawn[1][..., None], drawn[2][..., None, :]
    decay, k, v, beta = drawn
    if not of.exact:
        decay = exp(decay)
    decay = decay[..., None] if of.channel_decay else decay[..., None, None]
    v *= beta[..., None]
    return decay, k[..., None], (k * -beta[..., None])[..., None, :], v[..., None, :]


class Numpy:
    """NumPy as a :class:`stateat.kernels.sequential.Library`."""

    def source(self, shape: Shape, tokens: NDArray[np.int64]) -> NumpySource:
        """Draws for tokens [A, B]."""
        return NumpySource(shape, tokens)

    def load(self, state: Array) -> Array:
        """The state itself."""
        return state

    def store(self, state: Array, out: Array) -> None:
        """Copy a state out."""
        out[...] = state

    def per_token(self, family: str, drawn: tuple[Array, ...]) -> Sequence[tuple[Array, ...]]:
        """A tuple of inputs for each token."""
        return list(zip(*shaped(family, drawn, np.exp), strict=True))

    def step(self, family: str) -> Step:
        """See :class:`stateat.kernels.sequential.Library`."""
        return STEPS[FAMILIES[family].update]
