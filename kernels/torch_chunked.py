"""The chunked forms with torch: what a prefill kernel computes, a chunk of tokens at a time, on a CPU or a GPU.

``gated-delta`` and ``kda`` solve for all writes of a chunk at once (the WY form of the delta rule: Yang et al., arXiv
2406.06484 and 2412.06464); ``ssd`` is one matrix product (arXiv 2405.21060, section 6). With g_i the sum of the log
decays from the chunk's start up to and including token i, S the state before the chunk and R = [r_i] row by row:

    r_i = beta_i (v_i - exp(g_i) k_i.S),   (I + L) U = R,   L_ij = beta_i exp(g_i - g_j) k_i.k_j for j < i
    S  <- exp(g_C) S + sum_j (exp(g_C - g_j) k_j) u_j

Chunks are counted from the start of a call, so a call that starts elsewhere rounds differently: that is why this form
is here. A state within a chunk is computed aside from the chunk's start and changes nothing after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stateat.kernels import inputs
from stateat.kernels.families import FAMILIES, Update
from stateat.kernels.sequential import Tile, carried, length, tiles, unit_view
from stateat.kernels.shapes import Shape
from stateat.kernels.torch_states import Tensor, Torch, one_thread, tensor
from stateat.kernels.work import State, Work

STATE_BYTES = 1 << 20
"""Bytes of the states of a tile."""


def fill(shape: Shape, works: Sequence[Work], results: Sequence[Sequence[State]], device: str, chunk: int) -> None:
    """Fill the recurrent components of ``results``, one state for each offset of each work; with one thread."""
    with one_thread():
        for tile in tiles(shape, works, STATE_BYTES):
            _run_tile(shape, works, results, Torch(device), tile, chunk)


def _run_tile(
    shape: Shape,
    works: Sequence[Work],
    results: Sequence[Sequence[State]],
    library: Torch,
    tile: Tile,
    chunk: int,
) -> None:
    start_states = carried(shape, works, tile)
    state = library.load(start_states.reshape(len(tile.rows), -1, *start_states.shape[1:]))
    lengths = [length(works[number]) for number in tile.rows]
    ids = [works[number].tokens for number in tile.rows]
    # chunk to: rows, tokens of the chunk and place of each state asked for; a whole chunk only as its last choice
    wanted: dict[int, list[tuple[int, int, NDArray[Any]]]] = defaultdict(list)
    for row, number in enumerate(tile.rows):
        for offset, result in zip(works[number].offsets, results[number], strict=True):
            out = unit_view(shape, result["recurrent"])[tile.first : tile.last]
            if offset == 0:
                library.store(state[row], out)
            else:
                wanted[(offset - 1) // chunk].append((row, (offset - 1) % chunk + 1, out))
    for index in range(-(-lengths[0] // chunk)):
        start = index * chunk
        aside: dict[int, list[tuple[int, int, NDArray[Any]]]] = defaultdict(list)
        for row, count, out in wanted.get(index, ()):
            if count < chunk:
                aside[_padded(count, chunk)].append((row, count, out))
        for size, group in aside.items():
            part = state[[row for row, _, _ in group]]
            tokens = np.zeros((len(group), size), np.int64)
            for place, (row, count, _) in enumerate(group):
                tokens[place, :count] = ids[row][start : start + count]
            after = _absorb(shape, library, tile, part, tokens, [count for _, count, _ in group])
            for place, (_, _, out) in enumerate(group):
                library.store(after[place], out)
        whole = sum(size >= start + chunk for size in lengths)
        if whole:
            tokens = np.stack([ids[row][start : start + chunk] for row in range(whole)])
            state = _absorb(shape, library, tile, state[:whole], tokens, [chunk] * whole)
        for row, count, out in wanted.get(index, ()):
            if count == chunk:
                library.store(state[row], out)


def _padded(count: int, chunk: int) -> int:
    """The size at which a shorter chunk is computed: few sizes, and a function of its own length alone."""
    return min(chunk, max(8, 1 << (count - 1).bit_length()))


def _absorb(
    shape: Shape, library: Torch, tile: Tile, s: Tensor, tokens: NDArray[np.int64], counts: list[int]
) -> Tensor:
    """States [n, U, ...] after ``tokens`` [n, C], of which each row counts only its first ones; in place."""
    of = FAMILIES[shape.family]
    drawn = inputs.draw_inputs(shape, library.source(shape, tokens), tile.first, tile.last)
    if isinstance(drawn[0], np.ndarray):
        drawn = tuple(tensor(array) for array in drawn)
    if min(counts) < tokens.shape[1]:
        # a token without decay, key and write leaves a state as it is
        real = torch.arange(tokens.shape[1])[None, :] < torch.tensor(counts)[:, None]
        real = real.to(torch.float32).to(library.device)[:, :, None]
        if of.update is Update.OUTER:
            drawn = (drawn[0] * real, drawn[1] * real[..., None], drawn[2])
        else:
            decay = real[..., None] if of.channel_decay else real
            drawn = (drawn[0] * decay, drawn[1], drawn[2], drawn[3] * real)
    # [n, C, U, ...] to [n * U, C, ...]
    by_unit = [array.transpose(1, 2).flatten(0, 1) for array in drawn]
    after = _FORMS[of.update, of.channel_decay](s.flatten(0, 1), *by_unit)
    return after.view(s.shape)


def gated_delta(s: Tensor, g: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """s [M, K, V], g [M, C], k [M, C, K], v [M, C, V], beta [M, C]; s in place, as in the other forms."""
    g = g.cumsum(1)
    between = (g[:, :, None] - g[:, None, :]).clamp_(max=0).exp_()
    left = torch.bmm(k, k.transpose(1, 2)).mul_(between).mul_(beta[:, :, None])
    right = torch.baddbmm(v, k * g.exp()[:, :, None], s, alpha=-1).mul_(beta[:, :, None])
    last = g[:, -1:]
    s.mul_(last[:, :, None].exp())
    return s.baddbmm_((k * (last - g).exp()[:, :, None]).transpose(1, 2), _solve(left, right))


def _solve(left: Tensor, right: Tensor) -> Tensor:
    """U of (I + L) U = R, with L what is below the diagonal of ``left``; transposed, LAPACK's order saves copies."""
    rows = torch.linalg.solve_triangular(
        left.transpose(1, 2), right.transpose(1, 2), upper=True, left=False, unitriangular=True
    )
    return rows.transpose(1, 2)


def kda(s: Tensor, g: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """Kimi delta attention: :func:`gated_delta` with g [M, C, K]."""
    g = g.cumsum(1)
    last = g[:, -1:]
    # exp(g_i - g_j) is taken apart about the middle, so that neither part leaves float32
    middle = last * 0.5
    decay = (g - middle).exp_()
    forward, backward = k * decay, k / decay
    s.mul_(middle.transpose(1, 2).exp())
    left = torch.bmm(forward, backward.transpose(1, 2)).mul_(beta[:, :, None])
    right = torch.baddbmm(v, forward, s, alpha=-1).mul_(beta[:, :, None])
    s.baddbmm_(backward.transpose(1, 2), _solve(left, right))
    return s.mul_((last - middle).transpose(1, 2).exp())


def ssd(s: Tensor, g: Tensor, x: Tensor, b: Tensor) -> Tensor:
    """s [M, P, N], g [M, C], dt x [M, C, P], B [M, C, N]."""
    g = g.cumsum(1)
    last = g[:, -1:]
    s.mul_(last[:, :, None].exp())
    return s.baddbmm_((x * (last - g).exp()[:, :, None]).transpose(1, 2), b)


_FORMS: dict[tuple[Update | None, bool], Callable[..., Tensor]] = {
    (Update.DELTA, False): gated_delta,
    (Update.DELTA, True): kda,
    (Update.OUTER, False): ssd,
}
"""Chunked form of an update, without and with a decay for each row."""
