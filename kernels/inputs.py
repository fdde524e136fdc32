"""The inputs of each family (see :mod:`stateat.kernels.reference`) in float32, for many tokens and heads at once.

Layers are folded into *units*: unit u of a shape is head ``u % heads`` of layer ``u // heads`` (``selective-scan``: row
``u % rows``). The formulas are written once, for whatever array library a :class:`Source` draws with.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stateat.kernels.draws import BETA, GATE, KEY, U32, VALUE, B, key, mix_in_place, pace, scale_tokens
from stateat.kernels.families import FAMILIES, Update
from stateat.kernels.shapes import Shape

Array = Any
"""Array of NumPy or torch."""

BLOCK = 1 << 16
"""Draws mixed at a time: with their scratch they stay in the second-level cache."""


class Source(Protocol):
    """Draws for a matrix of tokens [A, B], from entries [first, last) of a stream counted over all layers."""

    def unit(self, stream: int, first: int, last: int) -> Array:
        """float32 [A, B, last - first]"""

    def half(self, stream: int, first: int, last: int) -> Array:
        """float32 [A, B, last - first]"""

    def wide(self, stream: int, first: int, last: int) -> Array:
        """64-bit integers with wrap-around [A, B, last - first]"""

    def constant(self, values: NDArray[Any]) -> Array:
        """Return these values in the library and on the device of the draws."""


def width(shape: Shape, stream: int) -> int:
    """Entries of a stream in one layer."""
    return FAMILIES[shape.family].streams[stream](shape)


def units(shape: Shape) -> int:
    """Units of one layer."""
    return shape.rows if FAMILIES[shape.family].by_row else shape.heads


@lru_cache(maxsize=64)
def stream_keys(shape: Shape, stream: int) -> U32:
    """The draw keys of all entries of a stream, layer by layer; a ``ring`` takes two for each entry."""
    count = width(shape, stream) * (2 if FAMILIES[shape.family].exact else 1)
    keys = np.concatenate([key(layer, stream, np.arange(count)) for layer in range(shape.layers)])
    keys.flags.writeable = False
    return keys


def total_sum(x: Array) -> Array:
    """The sum over the last axis by halving: one order of additions in every library and for every batch."""
    while x.shape[-1] > 1:
        middle = x.shape[-1] // 2
        rest = x[..., 2 * middle :]
        x = x[..., :middle] + x[..., middle : 2 * middle]
        if rest.shape[-1]:
            x[..., :1] += rest
    return x


def _normalised(x: Array) -> Array:
    x /= (total_sum(x * x) + 1e-6) ** 0.5
    return x


def _shared(x: Array, first: int, last: int, each: int) -> Array:
    """[A, B, key heads, width], drawn for key heads from ``first // each``, repeated for units [first, last)."""
    if each == 1:
        return x
    return x[:, :, np.arange(first, last) // each - first // each]


def _key_heads(first: int, last: int, each: int) -> tuple[int, int]:
    return first // each, (last - 1) // each + 1


def _vectors(draw: Any, stream: int, first: int, last: int, across: int) -> Array:
    x = draw(stream, first * across, last * across)
    return x.reshape(*x.shape[:2], last - first, across)


def delta(shape: Shape, source: Source, first: int, last: int) -> tuple[Array, ...]:
    """``gated-delta`` and ``kda``, units [first, last) as U: log decay g [A, B, U] or [A, B, U, K], keys
    [A, B, U, K], values [A, B, U, V], beta [A, B, U].
    """
    each = shape.heads // shape.key_heads
    k = _vectors(source.unit, KEY, *_key_heads(first, last, each), shape.rows)
    slow = pace(np.arange(first, last) % shape.heads)
    if FAMILIES[shape.family].channel_decay:
        rates = -(0.5 ** (1 + np.arange(shape.rows, dtype=np.float32) % 8)) * slow[:, None]
        g = _vectors(source.half, GATE, first, last, shape.rows)
    else:
        rates = -(0.5 ** (1 + (np.arange(first, last) % shape.heads % 8).astype(np.float32))) * slow
        g = source.half(GATE, first, last)
    g *= source.constant(rates)
    v = _vectors(source.unit, VALUE, first, last, shape.columns)
    beta = source.half(BETA, first, last)
    beta *= source.constant(slow)
    return g, _shared(_normalised(k), first, last, each), v, beta


def _steps(shape: Shape, source: Source, first: int, last: int) -> Array:
    """dt [A, B, U]"""
    dt = source.half(GATE, first, last)
    dt *= 0.1
    dt += 0.001
    dt *= source.constant(pace(np.arange(first, last) % units(shape)))
    return dt


def ssd(shape: Shape, source: Source, first: int, last: int) -> tuple[Array, ...]:
    """``ssd``: log decay dt A [A, B, U], dt x [A, B, U, P], B [A, B, U, N]."""
    each = shape.heads // shape.key_heads
    b = _vectors(source.unit, B, *_key_heads(first, last, each), shape.columns)
    dt = _steps(shape, source, first, last)
    a = source.constant(-(1 + (np.arange(first, last) % shape.heads % 16).astype(np.float32)))
    x = _vectors(source.unit, VALUE, first, last, shape.rows)
    x *= dt[..., None]
    return dt * a, x, _shared(b, first, last, each)


def selective_scan(shape: Shape, source: Source, first: int, last: int) -> tuple[Array, ...]:
    """``selective-scan``: log decay dt A [A, B, U, N], and what is added, dt u B [A, B, U, N]."""
    low, high = _key_heads(first, last, shape.rows)
    b = _vectors(source.unit, B, low, high, shape.columns)
    if high - low > 1:
        b = _shared(b, first, last, shape.rows)
    dt = _steps(shape, source, first, last)
    a = source.constant(-(1 + np.arange(shape.columns, dtype=np.float32)))
    u = source.unit(VALUE, first, last)
    u *= dt
    return dt[..., None] * a, u[..., None] * b


def ring(shape: Shape, source: Source, first: int, last: int) -> tuple[Array, ...]:
    """``ring``: decay [A, B, U], keys [A, B, U, K], values [A, B, U, V], writes [A, B, U]; 64-bit integers."""
    each = shape.heads // shape.key_heads
    k = _vectors(source.wide, KEY, *_key_heads(first, last, each), shape.rows)
    a, b = source.wide(GATE, first, last), source.wide(BETA, first, last)
    for odd in (k, a, b):
        odd |= 1
    return a, _shared(k, first, last, each), _vectors(source.wide, VALUE, first, last, shape.columns), b


_FORMULAS = {Update.RING: ring, Update.DELTA: delta, Update.OUTER: ssd, Update.SCAN: selective_scan}


def draw_inputs(shape: Shape, source: Source, first: int, last: int) -> tuple[Array, ...]:
    """Inputs of units [first, last) of a shape that has a matrix, as its update takes them."""
    update = FAMILIES[shape.family].update
    assert update is not None, f"{shape.family} has no matrix"
    return _FORMULAS[update](shape, source, first, last)


class NumpySource:
    """Draws with NumPy for tokens int64 [A, B]."""

    __slots__ = ("shape", "tokens")

    def __init__(self, shape: Shape, tokens: NDArray[np.int64]) -> None:
        self.shape = shape
        self.tokens = scale_tokens(tokens)

    def _mixed(self, stream: int, first: int, last: int) -> U32:
        return draw(self.tokens, stream_keys(self.shape, stream)[first:last])

    def unit(self, stream: int, first: int, last: int) -> NDArray[np.float32]:
        """See :class:`Source`."""
        return as_unit(self._mixed(stream, first, last))

    def half(self, stream: int, first: int, last: int) -> NDArray[np.float32]:
        """See :class:`Source`."""
        return _as_float(self._mixed(stream, first, last), 2.0**-24)

    def wide(self, stream: int, first: int, last: int) -> NDArray[np.uint64]:
        """See :class:`Source`."""
        pairs = self._mixed(stream, 2 * first, 2 * last).astype(np.uint64)
        return pairs[..., ::2] | (pairs[..., 1::2] << np.uint64(32))

    def constant(self, values: NDArray[Any]) -> NDArray[Any]:
        """See :class:`Source`."""
        return values


def draw(scaled: U32, keys: U32) -> U32:
    """Mixed bits [*scaled.shape, keys] of scaled tokens (:func:`stateat.kernels.draws.scale_tokens`), block by
    block."""
    out = np.empty((scaled.size, keys.size), np.uint32)
    step = max(1, BLOCK // max(keys.size, 1))
    scratch = np.empty((step, keys.size), np.uint32)
    flat = scaled.reshape(-1, 1)
    for start in range(0, scaled.size, step):
        block = out[start : start + step]
        np.bitwise_xor(flat[start : start + step], keys, out=block)
        mix_in_place(block, scratch[: block.shape[0]])
    return out.reshape(*scaled.shape, keys.size)


def _as_float(mixed: U32, scale: float) -> NDArray[np.float32]:
    """The upper 24 bits times ``scale``, in the memory of ``mixed``."""
    np.right_shift(mixed, 8, out=mixed)
    drawn: NDArray[np.float32] = mixed.view(np.float32)
    # signed, because the CPU converts these faster
    np.copyto(drawn, mixed.view(np.int32), casting="unsafe")
    drawn *= np.float32(scale)
    return drawn


def as_unit(mixed: U32) -> NDArray[np.float32]:
    """:func:`stateat.kernels.draws.unit` in the memory of ``mixed``."""
    drawn = _as_float(mixed, 2.0**-23)
    drawn -= np.float32(1)
    return drawn
