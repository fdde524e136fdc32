"""A work that does not keep its promises is refused before anything is computed."""

from __future__ import annotations

import numpy as np
import pytest

from stateat.kernels.families import FAMILIES, shape
from stateat.kernels.work import Work, check, zero

KDA = shape("kda")
TOKENS = np.arange(5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("batch", [None, 3])
def test_the_zero_state_has_the_shape_and_dtype_of_the_family(family: str, batch: int | None) -> None:
    found = shape(family, "small*2")
    state = zero(found, batch)
    lead = () if batch is None else (batch,)
    assert {name: array.shape for name, array in state.items()} == {
        name: (*lead, *size) for name, size in found.components.items()
    }
    assert {array.dtype for array in state.values()} == {np.dtype("uint64" if family == "ring" else "float32")}
    assert not any(array.any() for array in state.values())


def test_a_work_that_keeps_its_promises_is_taken() -> None:
    check(KDA, [Work(TOKENS, (0, 2, 5)), Work(TOKENS[:0], ()), Work(TOKENS, (5,), zero(KDA))])


@pytest.mark.parametrize("offsets", [(6,), (-1,), (2, 2), (3, 2), (0, 6)])
def test_offsets_must_increase_within_the_tokens(offsets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"work 1: offsets .* do not increase within 0\.\.5"):
        check(KDA, [Work(TOKENS, (5,)), Work(TOKENS, offsets)])


def test_tokens_must_be_one_row() -> None:
    with pytest.raises(ValueError, match=r"work 0: tokens have shape \(1, 5\), expected \[T\]"):
        check(KDA, [Work(TOKENS[None], ())])


def test_a_carried_state_must_be_one_of_the_shape() -> None:
    right = zero(KDA)
    wrong = [
        {"conv": right["conv"]},
        right | {"extra": right["conv"]},
        right | {"recurrent": right["recurrent"][:, :1]},
        right | {"recurrent": right["recurrent"].astype(np.float64)},
        zero(shape("kda", "small*2")),
        zero(shape("ring")),
    ]
    for state in wrong:
        with pytest.raises(ValueError, match="work 0: its state has"):
            check(KDA, [Work(TOKENS, (5,), state)])
