"""The interface: what stands for ``auto``, what is refused, and that nothing heavy is loaded before it is used."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from state_cases import at, same, tokens

from stateat.kernels import backends
from stateat.kernels.backends import Unavailable, choose, states_at
from stateat.kernels.families import FAMILIES, shape
from stateat.kernels.work import Work

GPU, NO_GPU = True, False


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> object:
    def be(*packages: str, gpu: bool = NO_GPU, interpret: str = "") -> None:
        monkeypatch.setattr(backends, "_installed", lambda package: package in packages)
        monkeypatch.setattr(backends, "_gpu", lambda: gpu)
        monkeypatch.setenv("TRITON_INTERPRET", interpret)

    return be


@pytest.mark.parametrize(
    ("packages", "gpu", "backend", "device", "chosen"),
    [
        ((), NO_GPU, "auto", "auto", ("numpy", "cpu")),
        ((), NO_GPU, "auto", "cpu", ("numpy", "cpu")),
        ((), NO_GPU, "numpy", "auto", ("numpy", "cpu")),
        (("torch",), NO_GPU, "auto", "auto", ("torch", "cpu")),
        (("torch", "triton"), NO_GPU, "auto", "auto", ("torch", "cpu")),
        (("torch",), GPU, "auto", "auto", ("torch", "cuda")),
        (("torch", "triton"), GPU, "auto", "auto", ("triton", "cuda")),
        (("torch", "triton"), GPU, "auto", "cpu", ("torch", "cpu")),
        (("torch", "triton"), GPU, "auto", "cuda", ("triton", "cuda")),
        (("torch", "triton"), GPU, "torch", "auto", ("torch", "cuda")),
        (("torch", "triton"), GPU, "torch", "cpu", ("torch", "cpu")),
        (("torch", "triton"), GPU, "triton", "auto", ("triton", "cuda")),
        (("torch", "triton"), GPU, "numpy", "auto", ("numpy", "cpu")),
    ],
)
def test_auto_is_the_best_that_is_there(machine, packages, gpu, backend, device, chosen) -> None:  # type: ignore[no-untyped-def]
    machine(*packages, gpu=gpu)
    assert choose(backend, device, "kda") == chosen


def test_the_interpreter_makes_triton_run_on_a_cpu(machine) -> None:  # type: ignore[no-untyped-def]
    machine("torch", "triton", interpret="1")
    assert choose("triton", "cpu", "kda") == ("triton", "cpu")


@pytest.mark.parametrize(
    ("packages", "gpu", "backend", "device", "message"),
    [
        ((), NO_GPU, "numpy", "cuda", "numpy has no device cuda"),
        ((), NO_GPU, "torch", "auto", "needs torch, which is not installed"),
        ((), NO_GPU, "triton", "auto", "needs torch, which is not installed"),
        ((), NO_GPU, "auto", "cuda", "device cuda needs torch"),
        (("torch",), NO_GPU, "triton", "auto", "needs Triton, which is not installed"),
        (("torch",), NO_GPU, "auto", "cuda", "torch sees no CUDA GPU"),
        (("torch", "triton"), NO_GPU, "torch", "cuda", "torch sees no CUDA GPU"),
        (("torch", "triton"), NO_GPU, "triton", "auto", "TRITON_INTERPRET=1"),
        (("torch", "triton"), GPU, "triton", "cpu", "TRITON_INTERPRET=1"),
    ],
)
def test_what_is_named_and_missing_is_refused(machine, packages, gpu, backend, device, message) -> None:  # type: ignore[no-untyped-def]
    machine(*packages, gpu=gpu)
    with pytest.raises(Unavailable, match=message):
        choose(backend, device, "kda")


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    ids = [Work(tokens(3), (3,))]
    with pytest.raises(ValueError, match="no backend 'jax'; there are auto, triton, torch, numpy"):
        states_at(shape("kda"), ids, backend="jax")
    with pytest.raises(ValueError, match="no device 'tpu'; there are auto, cpu, cuda"):
        states_at(shape("kda"), ids, device="tpu")
    with pytest.raises(ValueError, match="no form 'parallel'; there are sequential, chunked"):
        states_at(shape("kda"), ids, form="parallel")
    for chunk in (0, 257):
        with pytest.raises(ValueError, match=rf"chunk {chunk} is not within 1\.\.256"):
            states_at(shape("kda"), ids, form="chunked", chunk=chunk)


def test_a_work_is_checked_before_a_backend_is_loaded() -> None:
    with pytest.raises(ValueError, match="work 0: offsets"):
        states_at(shape("kda"), [Work(tokens(3), (4,))], backend="numpy")


def test_numpy_has_no_chunked_form_where_there_is_one() -> None:
    with pytest.raises(Unavailable, match="numpy has no chunked form"):
        states_at(shape("kda"), [Work(tokens(3), (3,))], backend="numpy", form="chunked")


@pytest.mark.parametrize("family", ["ring", "selective-scan", "short-conv"])
def test_a_family_without_a_chunked_form_is_the_same_in_either(family: str) -> None:
    ids = tokens(70)
    assert same(at(shape(family), ids, backend="numpy", form="chunked"), at(shape(family), ids, backend="numpy"))


@pytest.mark.parametrize("family", FAMILIES)
def test_no_works_and_no_offsets_are_no_states(family: str) -> None:
    assert states_at(shape(family), [], backend="numpy") == []
    assert states_at(shape(family), [Work(tokens(3), ())], backend="numpy") == [[]]


@pytest.mark.parametrize("family", FAMILIES)
def test_states_are_new_arrays_of_the_shape(family: str) -> None:
    found = shape(family)
    one, other = (states_at(found, [Work(tokens(3), (2, 3))], backend="numpy")[0][0] for _ in range(2))
    for name, size in found.components.items():
        assert one[name].shape == size
        assert one[name].dtype == (np.uint64 if family == "ring" else np.float32)
        assert not np.shares_memory(one[name], other[name])


def test_neither_torch_nor_triton_is_loaded_before_it_is_used() -> None:
    program = (
        "import sys, numpy as np, kernels, stateat.kernels.families, stateat.kernels.backends as b\n"
        "from stateat.kernels.work import Work\n"
        "b.states_at(stateat.kernels.families.shape('kda'), [Work(np.arange(3), (3,))], backend='numpy')\n"
        "print([name for name in ('torch', 'triton') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
