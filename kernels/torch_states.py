"""States with torch: float32 (``ring``: int64 with the bits of uint64), sequential, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stateat.kernels import sequential
from stateat.kernels.families import FAMILIES, Update
from stateat.kernels.inputs import NumpySource, Source, total_sum
from stateat.kernels.numpy_states import shaped
from stateat.kernels.sequential import Step
from stateat.kernels.shapes import Shape
from stateat.kernels.torch_draws import TorchSource
from stateat.kernels.work import State, Work

Tensor = Any
"""torch has no types here."""


def fill(shape: Shape, works: Sequence[Work], results: Sequence[Sequence[State]], device: str = "cpu") -> None:
    """Fill the recurrent components of ``results``, one state for each offset of each work; with one thread."""
    with one_thread():
        sequential.run(shape, works, results, Torch(device))


def keep_freed_memory() -> None:
    """Let glibc keep up to 62 MiB that this process frees, instead of returning it after each step.

    It returns memory above a threshold, and the next step pays for each page again; a third to a half of the time of
    a step was spent so. The threshold follows the largest block freed so far (mallopt(3), M_MMAP_THRESHOLD). This
    block is never touched, so it costs nothing; other allocators do not care.
    """
    torch.empty(31 << 20, dtype=torch.uint8)


keep_freed_memory()


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, torch computes with one thread on a CPU.

    A tile is made for the cache of one core; on a core that is busy, a second thread makes all wait (five times as
    long, measured on two cores under load).
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _delta(s: Tensor, values: tuple[Tensor, ...]) -> None:
    decay, column, read, write = values
    s.mul_(decay)
    # NumPy's BLAS reads a matrix twice as fast as torch's, and one at a time: no batch can change the order of its sums
    u = np.matmul(read, s.numpy())
    u += write
    s.addcmul_(column, torch.from_numpy(u))


def _delta_on_device(s: Tensor, values: tuple[Tensor, ...]) -> None:
    # cuBLAS chooses its algorithm by the size of the batch, so the sum is spelled out
    decay, column, read, write = values
    s.mul_(decay)
    seen = total_sum((s * read.transpose(1, 2)).transpose(1, 2)).transpose(1, 2)
    s.addcmul_(column, write + seen)


def _ring(s: Tensor, values: tuple[Tensor, ...]) -> None:
    decay, column, read, write = values
    s.mul_(decay)
    s.addcmul_(column, write + (s * read.transpose(1, 2)).sum(1, keepdim=True))


def _ssd(s: Tensor, values: tuple[Tensor, ...]) -> None:
    decay, x, b = values
    s.mul_(decay)
    s.addcmul_(x, b)


def _scan(s: Tensor, values: tuple[Tensor, ...]) -> None:
    decay, write = values
    s.mul_(decay)
    s.add_(write)


STEPS: dict[Update | None, Step] = {
    Update.RING: _ring,
    Update.DELTA: _delta,
    Update.OUTER: _ssd,
    Update.SCAN: _scan,
}


class Torch:
    """torch on one device as a :class:`stateat.kernels.sequential.Library`.

    ``host``: NumPy, which is faster at both, draws and reads in the same memory; by default if the device is the CPU.
    """

    def __init__(self, device: str, host: bool | None = None) -> None:
        self.device = device
        self.host = device == "cpu" if host is None else host

    def source(self, shape: Shape, tokens: NDArray[np.int64]) -> Source:
        """Draws for tokens [A, B]."""
        return NumpySource(shape, tokens) if self.host else TorchSource(shape, tokens, self.device)

    def load(self, state: NDArray[Any]) -> Tensor:
        """Return an array on the device; integers as int64."""
        return tensor(state).to(self.device)

    def store(self, state: Tensor, out: NDArray[Any]) -> None:
        """Copy a state out."""
        tensor(out).copy_(state)

    def per_token(self, family: str, drawn: tuple[Any, ...]) -> Sequence[tuple[Tensor, ...]]:
        """A tuple of inputs for each token."""
        if not self.host:
            return list(zip(*(value.unbind(0) for value in shaped(family, drawn, torch.exp)), strict=True))
        values = shaped(family, drawn, np.exp)
        # a delta rule leaves read and write to NumPy
        ours = 2 if STEPS[FAMILIES[family].update] is _delta else len(values)
        parts = [tensor(value).unbind(0) for value in values[:ours]] + [list(value) for value in values[ours:]]
        return list(zip(*parts, strict=True))

    def step(self, family: str) -> Step:
        """See :class:`stateat.kernels.sequential.Library`."""
        step = STEPS[FAMILIES[family].update]
        return _delta_on_device if step is _delta and not self.host else step


def tensor(array: NDArray[Any]) -> Tensor:
    """The same memory as a tensor; uint64 as int64."""
    return torch.from_numpy(array.view(np.int64) if array.dtype == np.uint64 else array)
