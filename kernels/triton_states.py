"""States from Triton kernels: every requested state of many ragged requests in at most two launches.

Compiled, one program holds one request's head, or a tile of it; nothing of a program depends on the rest of the batch.
Under the interpreter (``TRITON_INTERPRET=1`` before this module is imported), where an operation costs the same
whatever its size, one program holds all requests of a head. Bits differ between the two, between GPUs, and between
releases of Triton; in one setting, those of the sequential form are the same for any split of a run and any batch.

Multiplications and additions are never fused (``enable_fp_fusion=False``), whose bits a release could change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
import triton

from stateat.kernels.families import CHUNKED, FAMILIES, FORMS, Update
from stateat.kernels.shapes import Shape
from stateat.kernels.triton_conv import conv_kernel
from stateat.kernels.triton_delta import delta_chunk_kernel, delta_kernel
from stateat.kernels.triton_plan import I32, Ragged, ragged, steps, stops
from stateat.kernels.triton_ring import ring_kernel
from stateat.kernels.triton_ssm import ssd_chunk_kernel, ssm_kernel
from stateat.kernels.work import State, Work, check, dtype

OPTIONS = {"enable_fp_fusion": False, "num_stages": 1}
"""No fusion, and no loads ahead of time: chunked kernels read back what they wrote."""
INTERPRETED = not isinstance(conv_kernel, triton.JITFunction)
POISON = -0x0123456789ABCDEF
"""Value that an output of ``ring`` holds before a launch; the others hold NaN."""

_LARGEST = 1 << 20
"""Elements that Triton allows in one tile."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel, specialised for a shape."""

    function: Any
    constants: dict[str, int]
    tiles: int
    """Third axis of the grid."""
    warps: int

    @property
    def block(self) -> int:
        """Requests (or wants) of one program."""
        return self.constants.get("BLOCK", 1)


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch: all that one call of :func:`states_at` runs, ready on a device; it may run many times."""

    plan: Ragged
    calls: tuple[tuple[Kernel, tuple[int, int, int], tuple[Any, ...]], ...]
    """Kernel, grid, arguments."""
    outputs: dict[str, Any]
    """Component to tensor [wants, ...]; ``ring`` as int64."""


def _power(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def _width(n: int, most: int, least: int = 1) -> int:
    """A tile over an axis of n: a power of two, the whole axis under the interpreter."""
    return max(least, _power(n) if INTERPRETED else min(_power(n), most))


def recurrent_kernel(shape: Shape, form: str = "sequential", chunk: int = 64, requests: int = 1) -> Kernel:
    """The kernel of the recurrent component; ValueError for a form that the family does not have."""
    if form not in FORMS:
        raise ValueError(f"no form {form!r}; there are {', '.join(FORMS)}")
    if form == "chunked" and shape.family not in CHUNKED:
        raise ValueError(f"no chunked Triton kernel of {shape.family}; there are those of {', '.join(CHUNKED)}")
    of = FAMILIES[shape.family]
    if of.update in (Update.DELTA, Update.RING):
        constants = {"LAYERS": shape.layers, "HEADS": shape.heads, "KEY_HEADS": shape.key_heads}
        constants |= {"K": shape.rows, "V": shape.columns}
        if form == "chunked":
            constants |= {"CHUNK": max(16, _power(chunk)), "PART": 16, "TILE": _width(shape.columns, 32, 16)}
            constants["CHANNEL_DECAY"] = int(of.channel_decay)
            return Kernel(delta_chunk_kernel, constants, triton.cdiv(shape.columns, constants["TILE"]), 8)
        constants |= {"ROWS": _power(shape.rows), "TILE": _width(shape.columns, 16)}
        constants["BLOCK"] = _block(requests, constants["ROWS"] * constants["TILE"])
        tiles = triton.cdiv(shape.columns, constants["TILE"])
        if of.exact:
            return Kernel(ring_kernel, constants, tiles, 1)
        return Kernel(delta_kernel, constants | {"CHANNEL_DECAY": int(of.channel_decay)}, tiles, 1)
    constants = {"LAYERS": shape.layers, "HEADS": shape.heads, "GROUPS": shape.key_heads}
    constants |= {"P": shape.rows, "N": shape.columns}
    if form == "chunked":
        constants |= {"PART": 16, "COLUMNS": max(16, _power(shape.columns)), "TILE": _width(shape.rows, 32, 16)}
        return Kernel(ssd_chunk_kernel, constants, triton.cdiv(shape.rows, constants["TILE"]), 8)
    constants["COLUMNS"] = _power(shape.columns)
    constants["TILE"] = _width(shape.rows, max(1, 1024 // constants["COLUMNS"]))
    constants["BLOCK"] = _block(requests, constants["COLUMNS"] * constants["TILE"])
    constants["CHANNEL_DECAY"] = int(of.channel_decay)
    return Kernel(ssm_kernel, constants, triton.cdiv(shape.rows, constants["TILE"]), 1)


def convolution_kernel(shape: Shape, wants: int = 1) -> Kernel:
    """The kernel of the conv component."""
    constants = {"LAYERS": shape.layers, "TAPS": shape.conv_width - 1, "CHANNELS": shape.conv_channels}
    constants["TILE"] = _width(shape.conv_channels, 1024)
    constants["BLOCK"] = _block(wants, constants["TILE"])
    return Kernel(conv_kernel, constants, triton.cdiv(shape.conv_channels, constants["TILE"]), 4)


def _block(rows: int, size: int) -> int:
    """Rows of ``size`` elements that one program takes."""
    return max(1, min(_power(rows), _LARGEST // size)) if INTERPRETED else 1


def prepare(
    shape: Shape, works: Sequence[Work], *, device: str = "cuda", form: str = "sequential", chunk: int = 64
) -> Launch:
    """Tables, states carried in and poisoned outputs, on ``device``; ValueError as :func:`recurrent_kernel`."""
    check(shape, works)
    plan = ragged(works)
    wants = plan.want_request.size
    outputs: dict[str, Any] = {}
    calls: list[tuple[Kernel, tuple[int, int, int], tuple[Any, ...]]] = []
    shared = [torch.from_numpy(array).to(device) for array in (plan.tokens, plan.first)]
    for name, size in shape.components.items():
        tables: tuple[I32, ...]
        rest: tuple[int, ...] = ()
        carried = torch.from_numpy(_carried(shape, works, name, size)).to(device)
        outputs[name] = torch.full((wants, *size), _poison(shape), dtype=carried.dtype, device=device)
        if name == "conv":
            kernel = convolution_kernel(shape, wants)
            tables = (plan.want_request, plan.want_offset)
            blocks, rest = triton.cdiv(wants, kernel.block), (wants,)
        else:
            kernel = recurrent_kernel(shape, form, chunk, len(works))
            blocks = triton.cdiv(len(works), kernel.block)
            if form == "chunked":
                walk = steps(works, chunk)
                tables = (walk.step, walk.request)
            else:
                halts = stops(plan, kernel.block)
                tables, rest = (plan.count, halts.stop, halts.block, halts.slot), (len(works),)
        scratch = (torch.empty_like(carried),) if kernel.function is delta_chunk_kernel else ()
        planes = size[0] if name == "conv" else size[0] * size[1]
        given = (torch.from_numpy(array).to(device) for array in tables)
        arguments = (outputs[name], carried, *scratch, *shared, *given, *rest)
        calls.append((kernel, (blocks, planes, kernel.tiles), arguments))
    return Launch(plan, tuple(calls), outputs)


def _carried(shape: Shape, works: Sequence[Work], name: str, size: tuple[int, ...]) -> Any:
    """[works, *size], float32 or int64."""
    states = np.zeros((len(works), *size), dtype(shape))
    for row, work in zip(states, works, strict=True):
        if work.state is not None:
            row[...] = work.state[name]
    return states.view(np.int64) if FAMILIES[shape.family].exact else states


def _poison(shape: Shape) -> float:
    return POISON if FAMILIES[shape.family].exact else float("nan")


def run(launch: Launch) -> None:
    """Fill the outputs (asynchronously on a GPU)."""
    for kernel, grid, arguments in launch.calls:
        if prod(grid) == 0:
            continue
        # The interpreter's scalars are NumPy's, which warn where 32-bit draws wrap.
        with np.errstate(over="ignore"):
            kernel.function[grid](*arguments, **kernel.constants, num_warps=kernel.warps, **OPTIONS)


def states_at(
    shape: Shape, works: Sequence[Work], *, device: str = "cuda", form: str = "sequential", chunk: int = 64
) -> list[list[State]]:
    """The states at each work's offsets, as NumPy arrays (float32; ``ring``: uint64).

    ``form="chunked"`` computes the families of :data:`CHUNKED` chunk by chunk from each work's own start, with one
    shorter chunk before an offset that is no multiple of ``chunk``; the others raise ValueError.
    """
    if not any(work.offsets for work in works):
        return [[] for _ in works]
    launch = prepare(shape, works, device=device, form=form, chunk=chunk)
    run(launch)
    arrays = {name: tensor.cpu().numpy().view(dtype(shape)) for name, tensor in launch.outputs.items()}
    answer: list[list[State]] = [[] for _ in works]
    for want, request in enumerate(launch.plan.want_request.tolist()):
        answer[request].append({name: array[want] for name, array in arrays.items()})
    return answer
