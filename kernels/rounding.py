"""Rounding of a state to what a serving engine stores: bfloat16 or float16, to nearest or stochastically.

Relative error of one rounding: at most 2**-8 (bfloat16) or 2**-11 (float16, within its normal range) to nearest, twice
that stochastically.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stateat.kernels.draws import MASK, bits, half, key
from stateat.kernels.families import DTYPES
from stateat.kernels.work import State

_FRACTION_BITS = {"bfloat16": 7, "float16": 10}
_LEAST_EXPONENT = {"bfloat16": -126, "float16": -14}
_LARGEST = {"bfloat16": (2 - 2.0**-7) * 2.0**127, "float16": 65504.0}
_STREAM = {"conv": 32, "recurrent": 33}
"""Streams of draws that no input uses."""


def round_state(state: State, dtype: str, seed: int | None = None) -> State:
    """The float32 ``state`` rounded to ``dtype``, as new float32 arrays.

    To nearest, ties to even, as a cast does; with a ``seed``, stochastically: up with a probability of the part cut
    off, so without bias, by a draw that is a function of seed, component, layer and entry. ValueError for another
    dtype, or for a state of integers.
    """
    if dtype not in DTYPES:
        raise ValueError(f"no state dtype {dtype!r}; there are {', '.join(DTYPES)}")
    for name, array in state.items():
        if array.dtype != np.float32:
            raise ValueError(f"component {name} is {array.dtype}; only float32 is rounded")
    if dtype == "float32":
        return {name: array.copy() for name, array in state.items()}
    if seed is None:
        return {name: _nearest(array, dtype) for name, array in state.items()}
    return {name: _stochastic(array, dtype, seed, _STREAM[name]) for name, array in state.items()}


def _nearest(array: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return array.astype(np.float16).astype(np.float32)
    word = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    # a NaN stays one, whatever its payload
    return np.where(np.isnan(array), array, rounded.view(np.float32))


def _stochastic(array: NDArray[Any], dtype: str, seed: int, stream: int) -> NDArray[np.float32]:
    out = np.empty_like(array)
    for layer in range(array.shape[0]):
        exact = array[layer].astype(np.float64)
        entry = np.arange(exact.size).reshape(exact.shape)
        drawn = half(bits(entry, key(layer, stream, seed & MASK))).astype(np.float64)
        exponent = np.maximum(np.frexp(exact)[1] - 1, _LEAST_EXPONENT[dtype])
        spacing = np.ldexp(1.0, exponent - _FRACTION_BITS[dtype])
        rounded = np.copysign(np.floor(np.abs(exact) / spacing + drawn) * spacing, exact)
        too_large = np.abs(rounded) > _LARGEST[dtype]
        out[layer] = np.where(too_large, np.copysign(np.inf, exact), rounded)
    return out
