"""The one interface to the states of every family: which library computes them, where, and in which form."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stateat.kernels import conv
from stateat.kernels.families import BACKENDS, CHUNKED, DEVICES, FAMILIES, FORMS
from stateat.kernels.rounding import round_state
from stateat.kernels.shapes import Shape
from stateat.kernels.work import State, Work, check, dtype, zero

LARGEST_CHUNK = 256
"""Beyond it, products of decays could leave float32."""

INSTALL = "pip install -e '.[states]' -c constraints.txt"
"""Command that brings torch and Triton, from a checkout."""


class Unavailable(ValueError):
    """Backend, device or form that cannot be had on this machine; the message says what is missing."""


def choose(backend: str, device: str, family: str) -> tuple[str, str]:
    """The backend and device that ``auto`` stands for: Triton where there is a CUDA GPU, else torch, else NumPy.

    On a CPU a ``ring`` is NumPy's, whose sums of 64-bit integers are some twenty times as fast as torch's. What is
    named is taken or refused with :class:`Unavailable`, never replaced. The conv component of every family, and so all
    of ``short-conv``, needs no library and no GPU.
    """
    if backend not in BACKENDS:
        raise ValueError(f"no backend {backend!r}; there are {', '.join(BACKENDS)}")
    if device not in DEVICES:
        raise ValueError(f"no device {device!r}; there are {', '.join(DEVICES)}")
    torch_here, triton_here = _installed("torch"), _installed("triton")
    whole = (FAMILIES[family].exact or FAMILIES[family].update is None) and (device == "cpu" or not _gpu_may_be())
    if backend == "auto" and (not torch_here or whole) and device != "cuda":
        return "numpy", "cpu"
    if backend == "numpy":
        if device == "cuda":
            raise Unavailable("backend numpy has no device cuda; torch and triton have")
        return "numpy", "cpu"
    if not torch_here:
        raise Unavailable(
            f"{_asked(backend, device)} needs torch, which is not installed ({INSTALL}); it adds chunked kernels, GPUs "
            "and faster states"
        )
    if backend == "triton" and not triton_here:
        raise Unavailable(
            f"backend triton needs Triton, which is not installed ({INSTALL}, on Linux and x86-64); it adds the states "
            "of all requests in one launch on a GPU"
        )
    gpu = device != "cpu" and _gpu()
    if device == "cuda" and not gpu:
        raise Unavailable(f"{_asked(backend, device)}: torch sees no CUDA GPU here")
    if backend == "auto":
        backend = "triton" if gpu and triton_here else "torch"
    device = "cuda" if gpu else "cpu"
    if backend == "triton" and device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise Unavailable(
            "backend triton on a CPU runs only in Triton's interpreter (set TRITON_INTERPRET=1 before the start), "
            "which is slow; torch is the fast backend there"
        )
    return backend, device


def _asked(backend: str, device: str) -> str:
    return f"device {device}" if backend == "auto" else f"backend {backend} on device {device}"


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _gpu_may_be() -> bool:
    """False where it is clear, without torch, that there is no CUDA GPU."""
    return not sys.platform.startswith("linux") or any(Path(name).exists() for name in ("/dev/nvidiactl", "/dev/dxg"))


def _gpu() -> bool:
    if not _gpu_may_be():
        return False
    try:
        import torch
    except (ImportError, OSError) as error:
        raise Unavailable(f"torch is installed and cannot be loaded: {error}") from error
    return bool(torch.cuda.is_available())


def states_at(
    shape: Shape,
    works: Sequence[Work],
    *,
    backend: str = "torch",
    device: str = "cpu",
    form: str = "sequential",
    chunk: int = 64,
) -> list[list[State]]:
    """Return for each work its states at its offsets: new float32 arrays (``ring``: uint64).

    ``sequential`` absorbs token by token: the bits do not depend on how tokens are split over calls, on the rest of the
    batch, or on the other offsets. ``chunked`` is the form of prefill kernels: chunks of ``chunk`` tokens (1..256)
    counted from the work's own start, and a shorter one for an offset within; a split within a chunk changes the bits.
    ``auto`` and unavailable backends and devices: :func:`choose`. ValueError for what is not allowed.
    """
    if form not in FORMS:
        raise ValueError(f"no form {form!r}; there are {', '.join(FORMS)}")
    if not 1 <= chunk <= LARGEST_CHUNK:
        raise ValueError(f"chunk {chunk} is not within 1..{LARGEST_CHUNK}")
    check(shape, works)
    backend, device = choose(backend, device, shape.family)
    if form == "chunked" and shape.family not in CHUNKED:
        form = "sequential"
    if form == "chunked" and backend == "numpy":
        raise Unavailable("backend numpy has no chunked form; torch and triton have")
    if backend == "triton":
        from stateat.kernels import triton_states

        return triton_states.states_at(shape, works, device=device, form=form, chunk=chunk)
    results = [[empty(shape) for _ in work.offsets] for work in works]
    if shape.conv_width:
        conv.fill(shape, works, results)
    if not shape.heads:
        return results
    if backend == "numpy":
        from stateat.kernels import numpy_states

        numpy_states.fill(shape, works, results)
    elif form == "sequential":
        from stateat.kernels import torch_states

        torch_states.fill(shape, works, results, device)
    else:
        from stateat.kernels import torch_chunked

        torch_chunked.fill(shape, works, results, device, chunk)
    return results


def empty(shape: Shape) -> State:
    """A state whose entries are not set yet."""
    return {name: np.empty(size, dtype(shape)) for name, size in shape.components.items()}


__all__ = ["State", "Unavailable", "Work", "choose", "round_state", "states_at", "zero"]
