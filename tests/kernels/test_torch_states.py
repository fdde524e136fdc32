"""What torch does on a GPU, done on the CPU: drawing and reading without NumPy."""

from __future__ import annotations

import pytest
from state_cases import at, distance, same, tokens

from stateat.kernels import backends, conv, sequential
from stateat.kernels.families import FAMILIES, shape
from stateat.kernels.reference import absorb
from stateat.kernels.shapes import Shape
from stateat.kernels.work import State, Work

pytest.importorskip("torch")

import torch

from stateat.kernels.torch_states import Torch, one_thread

GVA = Shape("gated-delta", 2, 6, 2, 8, 24, 4, 40)
SHAPES = [*(shape(family, "small*2") for family in FAMILIES if FAMILIES[family].update), GVA]


def on_device(found: Shape, works: list[Work]) -> list[list[State]]:
    results = [[backends.empty(found) for _ in work.offsets] for work in works]
    if found.conv_width:
        conv.fill(found, works, results)
    sequential.run(found, works, results, Torch("cpu", host=False))
    return results


@pytest.mark.parametrize("found", SHAPES, ids=lambda found: f"{found.family}-{found.heads}")
def test_states_are_within_1e_6_of_float64_and_a_ring_is_equal(found: Shape) -> None:
    ids = tokens(65)
    state, truth = on_device(found, [Work(ids, (65,))])[0][0]["recurrent"], absorb(found, ids)["recurrent"]
    if found.family == "ring":
        assert (state == truth).all()
    else:
        assert distance(state, truth) < 1e-6


@pytest.mark.parametrize("found", SHAPES, ids=lambda found: f"{found.family}-{found.heads}")
def test_neither_splits_nor_batches_change_a_bit(found: Shape) -> None:
    ids = tokens(65)
    whole = on_device(found, [Work(ids, (65,))])[0][0]
    for cut in (0, 1, 32, 64):
        start = on_device(found, [Work(ids[:cut], (cut,))])[0][0]
        others = [Work(tokens(length, seed=length), (length // 2,)) for length in (130, 2, 40)]
        assert same(on_device(found, [*others, Work(ids[cut:], (65 - cut,), start)])[-1][0], whole)


@pytest.mark.parametrize("family", ["gated-delta", "kda"])
def test_it_is_not_the_way_of_the_host(family: str) -> None:
    """Else the tests above would try nothing."""
    found, ids = shape(family), tokens(65)
    assert not same(on_device(found, [Work(ids, (65,))])[0][0], at(found, ids))


def test_torch_computes_with_one_thread_within_and_with_as_many_as_before_after_it() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
