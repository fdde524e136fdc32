"""Every output that a backend fills starts as poison, so that an entry which is not written cannot pass."""

from __future__ import annotations

import numpy as np
import pytest

from stateat.kernels import backends
from stateat.kernels.shapes import Shape
from stateat.kernels.work import State, zero

POISON = np.uint64(0xDEADBEEFDEADBEEF)


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(shape: Shape) -> State:
        state = zero(shape)
        for array in state.values():
            array[...] = POISON if array.dtype == np.uint64 else np.nan
        return state

    monkeypatch.setattr(backends, "empty", poisoned)
