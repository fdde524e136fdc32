"""The draws of :mod:`stateat.kernels.draws` with torch, bit for bit, on any device.

torch has no unsigned 32-bit arithmetic everywhere, so bits are carried in int64 and masked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stateat.kernels import draws
from stateat.kernels.draws import MASK
from stateat.kernels.inputs import stream_keys
from stateat.kernels.shapes import Shape

Tensor = Any
"""torch has no types here."""


def mix(x: Tensor) -> Tensor:
    """``lowbias32`` of each entry of an int64 tensor with values below 2**32; a new tensor."""
    x = x ^ (x >> 16)
    x = _times(x, draws.MULTIPLIER_1)
    x = x ^ (x >> 15)
    x = _times(x, draws.MULTIPLIER_2)
    return x ^ (x >> 16)


def _times(x: Tensor, multiplier: int) -> Tensor:
    # the product of two 32-bit numbers wraps in int64, but its lower 32 bits are right
    return (x * multiplier) & MASK


def bits(tokens: Tensor, keys: Tensor) -> Tensor:
    """32 bits for each pair of int64 token ids and keys, broadcast; int64 below 2**32."""
    return mix(_times(tokens & MASK, draws.MULTIPLIER_TOKEN) ^ keys)


def unit(drawn: Tensor) -> Tensor:
    """Number in [-1, 1), as :func:`stateat.kernels.draws.unit`."""
    return (drawn >> 8).to(torch.float32) * 2.0**-23 - 1


def half(drawn: Tensor) -> Tensor:
    """Number in [0, 1), as :func:`stateat.kernels.draws.half`."""
    return (drawn >> 8).to(torch.float32) * 2.0**-24


class TorchSource:
    """Draws on a device, for tokens int64 [A, B]; a :class:`stateat.kernels.inputs.Source`."""

    def __init__(self, shape: Shape, tokens: NDArray[np.int64], device: str) -> None:
        self.shape = shape
        self.device = device
        self.tokens = torch.from_numpy(np.ascontiguousarray(tokens)).to(device)[..., None]

    def _bits(self, stream: int, first: int, last: int) -> Tensor:
        keys = stream_keys(self.shape, stream)[first:last].astype(np.int64)
        return bits(self.tokens, torch.from_numpy(keys).to(self.device))

    def unit(self, stream: int, first: int, last: int) -> Tensor:
        """See :class:`stateat.kernels.inputs.Source`."""
        return unit(self._bits(stream, first, last))

    def half(self, stream: int, first: int, last: int) -> Tensor:
        """See :class:`stateat.kernels.inputs.Source`."""
        return half(self._bits(stream, first, last))

    def wide(self, stream: int, first: int, last: int) -> Tensor:
        """See :class:`stateat.kernels.inputs.Source`."""
        pairs = self._bits(stream, 2 * first, 2 * last)
        return pairs[..., ::2] | (pairs[..., 1::2] << 32)

    def constant(self, values: NDArray[Any]) -> Tensor:
        """See :class:`stateat.kernels.inputs.Source`."""
        return torch.from_numpy(values).to(self.device)
