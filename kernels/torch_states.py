"""States with torch: float32 (``ring``: int64 with the bits of uint64), sequential, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kernels import sequential
from kernels.inputs import NumpySource, Source, total_sum
from kernels.numpy_states import shaped
from kernels.sequential import Step
from kernels.shapes import Shape
from kernels.torch_draws import TorchSource
from kernels.work import State, Work

Tensor = Any
"""torch has no types here."""


def fill(shape: Shape, works: Sequence[Work], results: Sequence[Sequence[State]], device: str = "cpu") -> None:
    """Fill the recurrent components of ``results``, one state for each offset of each work."""
    sequential.run(shape, works, results, Torch(device))


def _read(s: Tensor, k: Tensor) -> Tensor:
    """k.S of each tile: [M, 1, V] from s [M, K, V] and k [M, 1, K]."""
    if s.device.type == "cpu":
        return torch.bmm(k, s)
    # cuBLAS chooses its algorithm by the size of the batch
    return total_sum((s * k.transpose(1, 2)).transpose(1, 2)).transpose(1, 2)


def _delta(s: Tensor, values: tuple[Tensor, ...]) -> None:
    decay, k, v, beta, column = values
    s.mul_(decay)
    u = torch.sub(v, _read(s.flatten(0, 1), k.flatten(0, 1)).view_as(v))
    u.mul_(beta)
    s.addcmul_(column, u)


def _ring(s: Tensor, values: tuple[Tensor, ...]) -> None:
    a, _, v, b, column = values
    s.mul_(a)
    u = v - (s * column).sum(-2, keepdim=True)
    u.mul_(b)
    s.addcmul_(column, u)


def _ssd(s: Tensor, values: tuple[Tensor, ...]) -> None:
    decay, x, b = values
    s.mul_(decay)
    s.addcmul_(x, b)


def _scan(s: Tensor, values: tuple[Tensor, ...]) -> None:
    decay, write = values
    s.mul_(decay)
    s.add_(write)


STEPS: dict[str, Step] = {"ring": _ring, "gated-delta": _delta, "kda": _delta, "ssd": _ssd, "selective-scan": _scan}


class Torch:
    """torch on one device as a :class:`kernels.sequential.Library`."""

    def __init__(self, device: str) -> None:
        self.device = device

    def source(self, shape: Shape, tokens: NDArray[np.int64]) -> Source:
        """Draws for tokens [A, B]; on a CPU NumPy draws faster."""
        return NumpySource(shape, tokens) if self.device == "cpu" else TorchSource(shape, tokens, self.device)

    def load(self, state: NDArray[Any]) -> Tensor:
        """On the device; integers as int64."""
        return tensor(state).to(self.device)

    def store(self, state: Tensor, out: NDArray[Any]) -> None:
        """Copy a state out."""
        tensor(out).copy_(state)

    def per_token(self, family: str, drawn: tuple[Any, ...]) -> Sequence[tuple[Tensor, ...]]:
        """A tuple of inputs for each token."""
        if self.device == "cpu":
            drawn = tuple(tensor(array) for array in drawn)
        values = shaped(family, drawn, torch.exp)
        if len(values) == 4:
            values = (*values, values[1].transpose(-1, -2))
        return list(zip(*(value.unbind(0) for value in values), strict=True))

    def step(self, family: str) -> Step:
        """See :class:`kernels.sequential.Library`."""
        return STEPS[family]


def tensor(array: NDArray[Any]) -> Tensor:
    """The same memory as a tensor; uint64 as int64."""
    return torch.from_numpy(array.view(np.int64) if array.dtype == np.uint64 else array)
