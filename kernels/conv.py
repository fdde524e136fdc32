"""The state of a short convolution: its last inputs, which are draws, so any offset is as cheap as any other.

There is no arithmetic in it, hence no error, no split and no twin: every backend takes it from here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stateat.kernels.draws import CONV, U32, key, scale_tokens
from stateat.kernels.inputs import as_unit, draw
from stateat.kernels.shapes import Shape
from stateat.kernels.work import State, Work

_KEYS: dict[tuple[int, int], U32] = {}


def _keys(shape: Shape) -> U32:
    """[layers * channels]"""
    found = _KEYS.get((shape.layers, shape.conv_channels))
    if found is None:
        channels = np.arange(shape.conv_channels)
        found = np.concatenate([key(layer, CONV, channels) for layer in range(shape.layers)])
        _KEYS[shape.layers, shape.conv_channels] = found
    return found


def fill(shape: Shape, works: Sequence[Work], results: Sequence[Sequence[State]]) -> None:
    """Fill the conv components [layers, conv_width - 1, channels] of ``results``, oldest input first.

    One state for each offset of each work; what comes before the work's first token is the end of its state.
    """
    taps, keys = shape.conv_width - 1, _keys(shape)
    for work, states in zip(works, results, strict=True):
        for offset, state in zip(work.offsets, states, strict=True):
            out, fresh = state["conv"], min(offset, taps)
            kept = taps - fresh
            if kept:
                out[:, :kept] = 0 if work.state is None else work.state["conv"][:, fresh:]
            if fresh:
                mixed = draw(scale_tokens(work.tokens[offset - fresh : offset]), keys)
                out[:, kept:] = as_unit(mixed).reshape(fresh, shape.layers, -1).swapaxes(0, 1)
