"""States with NumPy alone: float32 (``ring``: uint64), sequential. For machines without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels import sequential
from kernels.inputs import NumpySource
from kernels.sequential import Step
from kernels.shapes import Shape
from kernels.work import State, Work

Array = NDArray[Any]


def fill(shape: Shape, works: Sequence[Work], results: Sequence[Sequence[State]]) -> None:
    """Fill the recurrent components of ``results``, one state for each offset of each work."""
    sequential.run(shape, works, results, Numpy())


def _delta(s: Array, values: tuple[Array, ...]) -> None:
    """``gated-delta`` and ``kda``: decay broadcast over s [n, U, K, V], k [n, U, 1, K], v [n, U, 1, V], beta."""
    decay, k, v, beta = values
    s *= decay
    u = v - np.matmul(k, s)
    u *= beta
    s += k.swapaxes(-1, -2) * u


def _ring(s: Array, values: tuple[Array, ...]) -> None:
    a, k, v, b = values
    s *= a
    column = k.swapaxes(-1, -2)
    s += column * (b * (v - (s * column).sum(-2, keepdims=True)))


def _ssd(s: Array, values: tuple[Array, ...]) -> None:
    decay, x, b = values
    s *= decay
    s += x * b


def _scan(s: Array, values: tuple[Array, ...]) -> None:
    decay, write = values
    s *= decay
    s += write


STEPS: dict[str, Step] = {"ring": _ring, "gated-delta": _delta, "kda": _delta, "ssd": _ssd, "selective-scan": _scan}


def shaped(family: str, drawn: tuple[Any, ...], exp: Any) -> tuple[Any, ...]:
    """The inputs of :mod:`kernels.inputs` with axes added so that they broadcast against states [n, U, ...]."""
    if family == "selective-scan":
        return exp(drawn[0]), drawn[1]
    if family == "ssd":
        return exp(drawn[0])[..., None, None], drawn[1][..., None], drawn[2][..., None, :]
    decay = drawn[0] if family == "ring" else exp(drawn[0])
    decay = decay[..., None] if family == "kda" else decay[..., None, None]
    return decay, drawn[1][..., None, :], drawn[2][..., None, :], drawn[3][..., None, None]


class Numpy:
    """NumPy as a :class:`kernels.sequential.Library`."""

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
        """See :class:`kernels.sequential.Library`."""
        return STEPS[family]
