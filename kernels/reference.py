"""States of each family by definition: the recurrences in float64, token by token. For truth, not for speed.

With h a head, c an entry of a vector, t a token, and draws as in :mod:`stateat.kernels.draws` of (token, key(layer,
stream, index)):

=============== =========== ==================== ================================================
input           stream      index                value
=============== =========== ==================== ================================================
conv input      0 CONV      channel              unit
key k           1 KEY       key head * K + c     unit, then k / sqrt(sum k**2 + 1e-6) over the head
value v, x, u   2 VALUE     h * V + c (ssd: P)   unit (selective-scan: index d)
log decay g     3 GATE      h                    -half * 2**-(1 + h mod 8) * pace(h) (gated-delta)
log decay g     3 GATE      h * K + c            -half * 2**-(1 + c mod 8) * pace(h) (kda)
time step dt    3 GATE      h (sel.-scan: d)     (0.001 + 0.1 * half) * pace(h or d)
write beta      4 BETA      h                    half * pace(h)
B               5 B         group * N + n        unit (selective-scan: index n)
A               -           -                    -(1 + h mod 16); selective-scan: A[d, n] = -(1 + n)
=============== =========== ==================== ================================================

``pace`` is 1 for even units and 2**-7 for odd ones, which so remember 128 times as many tokens. Head h takes the key
(group) ``h // (heads // key_heads)``. The entries of ``ring`` are 64-bit integers
(:func:`stateat.kernels.draws.wide`): keys, decays and writes made odd, values any. Its number of rows is even, so
``k.k`` is even and each step ``S -> a (S - b k (k.S))`` is invertible mod 2**64: two different states never become one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stateat.kernels.draws import BETA, CONV, GATE, KEY, U64, VALUE, B, bits, half, key, pace, unit, wide
from stateat.kernels.families import FAMILIES
from stateat.kernels.shapes import Shape

F64 = NDArray[np.float64]
Array = NDArray[Any]
Reference = dict[str, Array]


def _unit(token: int, layer: int, stream: int, heads: int, width: int) -> F64:
    """[heads, width]"""
    return unit(bits(token, key(layer, stream, np.arange(heads * width)))).astype(np.float64).reshape(heads, width)


def _half(token: int, layer: int, stream: int, count: int) -> F64:
    """[count]"""
    return half(bits(token, key(layer, stream, np.arange(count)))).astype(np.float64)


def _pace(units: int) -> F64:
    """[units]"""
    return pace(np.arange(units)).astype(np.float64)


def _keys(token: int, layer: int, shape: Shape) -> F64:
    """[heads, rows], each of length 1 (nearly)."""
    k = _unit(token, layer, KEY, shape.key_heads, shape.rows)
    k = k / np.sqrt((k * k).sum(-1, keepdims=True) + 1e-6)
    repeated: F64 = np.repeat(k, shape.heads // shape.key_heads, axis=0)
    return repeated


def _delta(s: F64, k: F64, v: F64, beta: F64) -> F64:
    """The delta rule, read and then write, on [heads, rows, columns]."""
    u = beta[:, None] * (v - (s * k[:, :, None]).sum(1))
    after: F64 = s + k[:, :, None] * u[:, None, :]
    return after


def gated_delta(shape: Shape, layer: int, s: F64, token: int) -> F64:
    """Gated DeltaNet (Yang et al., arXiv 2412.06464): ``S <- exp(g) S``, ``S <- S + beta k (v - k.S)``."""
    g = -_half(token, layer, GATE, shape.heads) * 2.0 ** -(1 + np.arange(shape.heads) % 8) * _pace(shape.heads)
    v = _unit(token, layer, VALUE, shape.heads, shape.columns)
    s = np.exp(g)[:, None, None] * s
    return _delta(s, _keys(token, layer, shape), v, _half(token, layer, BETA, shape.heads) * _pace(shape.heads))


def kda(shape: Shape, layer: int, s: F64, token: int) -> F64:
    """Kimi delta attention (arXiv 2510.26692): the gated delta rule with a decay for each row of a head."""
    g = -_half(token, layer, GATE, shape.heads * shape.rows).reshape(shape.heads, shape.rows)
    g = g * 2.0 ** -(1 + np.arange(shape.rows) % 8) * _pace(shape.heads)[:, None]
    v = _unit(token, layer, VALUE, shape.heads, shape.columns)
    s = np.exp(g)[:, :, None] * s
    return _delta(s, _keys(token, layer, shape), v, _half(token, layer, BETA, shape.heads) * _pace(shape.heads))


def ssd(shape: Shape, layer: int, s: F64, token: int) -> F64:
    """Mamba-2 (Dao and Gu, arXiv 2405.21060): ``S <- exp(dt A) S + (dt x) B``, A and dt one number a head."""
    dt = (0.001 + 0.1 * _half(token, layer, GATE, shape.heads)) * _pace(shape.heads)
    a = -(1.0 + np.arange(shape.heads) % 16)
    x = _unit(token, layer, VALUE, shape.heads, shape.rows)
    b = np.repeat(_unit(token, layer, B, shape.key_heads, shape.columns), shape.heads // shape.key_heads, axis=0)
    return np.exp(dt * a)[:, None, None] * s + (dt[:, None] * x)[:, :, None] * b[:, None, :]


def selective_scan(shape: Shape, layer: int, s: F64, token: int) -> F64:
    """Mamba (Gu and Dao, arXiv 2312.00752): ``h <- exp(dt A) h + (dt u) B`` with dt and u one number a row."""
    dt = ((0.001 + 0.1 * _half(token, layer, GATE, shape.rows)) * _pace(shape.rows))[:, None]
    a = -(1.0 + np.arange(shape.columns))
    u = _unit(token, layer, VALUE, shape.rows, 1)
    after: F64 = np.exp(dt * a) * s + (dt * u) * _unit(token, layer, B, 1, shape.columns)
    return after


def ring(shape: Shape, layer: int, s: U64, token: int) -> U64:
    """The gated delta rule on integers mod 2**64, uint64: ``S <- a S``, ``S <- S + k b (v - k.S)``."""
    one = np.uint64(1)
    k = wide(token, layer, KEY, np.arange(shape.key_heads * shape.rows)).reshape(shape.key_heads, shape.rows) | one
    k = np.repeat(k, shape.heads // shape.key_heads, axis=0)
    v = wide(token, layer, VALUE, np.arange(shape.heads * shape.columns)).reshape(shape.heads, shape.columns)
    a = wide(token, layer, GATE, np.arange(shape.heads)) | one
    b = wide(token, layer, BETA, np.arange(shape.heads)) | one
    s = a[:, None, None] * s
    u = b[:, None] * (v - (s * k[:, :, None]).sum(1))
    after: U64 = s + k[:, :, None] * u[:, None, :]
    return after


STEPS: dict[str, Callable[[Shape, int, Any, int], Any]] = {
    "ring": ring,
    "gated-delta": gated_delta,
    "kda": kda,
    "ssd": ssd,
    "selective-scan": selective_scan,
}
"""One token absorbed by the recurrent state of one layer, [heads, rows, columns], of each family that has one."""


def conv(shape: Shape, layer: int, window: F64, token: int) -> F64:
    """The last conv_width - 1 inputs of a causal convolution, [conv_width - 1, channels], oldest first."""
    return np.concatenate([window[1:], _unit(token, layer, CONV, 1, shape.conv_channels)])


def absorb(shape: Shape, tokens: NDArray[np.int64], state: Reference | None = None) -> Reference:
    """The state after ``tokens`` [T], from ``state`` (None: zero); arrays of float64, of uint64 for ``ring``."""
    dtype = np.uint64 if FAMILIES[shape.family].exact else np.float64
    sizes = shape.components
    after = {name: np.zeros(size, dtype) for name, size in sizes.items()}
    for name, array in (state or {}).items():
        after[name][...] = array
    for layer in range(shape.layers):
        for token in tokens.tolist():
            if "conv" in sizes:
                after["conv"][layer] = conv(shape, layer, after["conv"][layer], token)
            if "recurrent" in sizes:
                step = STEPS[shape.family]
                after["recurrent"][layer] = step(shape, layer, after["recurrent"][layer], token)
    return after
