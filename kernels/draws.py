"""The inputs of a layer, drawn from token ids: counter-based, so that any program can draw any one of them alone.

A draw is a function of the token id and of a *key* that names layer, stream and entry; nothing is stored and
no order matters. All arithmetic is on 32-bit unsigned integers with wrap-around. The mixer is ``lowbias32``
(C. Wellons, "Prospecting for Hash Functions", 2018). :mod:`stateat.kernels.torch_draws` gives the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
F32 = NDArray[np.float32]

CONV, KEY, VALUE, GATE, BETA, B = range(6)
"""Streams: conv input, key, value (x of an SSM), gate (log decay or dt), write strength, B of an SSM."""

STREAMS = 64
"""Key space of one layer."""

MULTIPLIER_1, MULTIPLIER_2 = 0x7FEB352D, 0x846CA68B
MULTIPLIER_INDEX, MULTIPLIER_TOKEN = 0x9E3779B1, 0x85EBCA77
MASK = 0xFFFFFFFF

SLOW = 2.0**-7
"""Odd units (heads; of a selective scan, rows) decay and write at this pace: trained models have heads that remember
thousands of tokens beside such that remember a few, and what is rounded shows only in the former."""


def pace(unit: Any) -> F32:
    """1 for even units, :data:`SLOW` for odd ones; shape of ``unit``."""
    return np.where(np.asarray(unit) % 2 == 1, np.float32(SLOW), np.float32(1))


def mix(x: U32) -> U32:
    """``lowbias32`` of each entry; a new array of the same shape."""
    x = np.array(x, np.uint32, ndmin=1, copy=True).reshape(np.shape(x))
    return mix_in_place(x, np.empty_like(x))


def mix_in_place(x: U32, scratch: U32) -> U32:
    """``lowbias32`` of each entry of ``x``, into ``x``; ``scratch`` has its shape and is overwritten."""
    np.right_shift(x, 16, out=scratch)
    np.bitwise_xor(x, scratch, out=x)
    np.multiply(x, np.uint32(MULTIPLIER_1), out=x)
    np.right_shift(x, 15, out=scratch)
    np.bitwise_xor(x, scratch, out=x)
    np.multiply(x, np.uint32(MULTIPLIER_2), out=x)
    np.right_shift(x, 16, out=scratch)
    np.bitwise_xor(x, scratch, out=x)
    return x


def key(layer: int, stream: int, index: Any) -> U32:
    """The key of the entries ``index`` (int or int array) of one stream of one layer; shape of ``index``."""
    salt = mix(np.array([(layer * STREAMS + stream + 1) & MASK], np.uint32))
    entries = np.asarray(index, np.int64)
    spread = (entries.reshape(-1).astype(np.uint32) * np.uint32(MULTIPLIER_INDEX)) ^ salt
    return mix(spread).reshape(entries.shape)


def scale_tokens(tokens: Any) -> U32:
    """Token ids (int64, taken mod 2**32: a placeholder is -1) times the token multiplier; same shape."""
    ids = np.asarray(tokens, np.int64)
    return (ids.reshape(-1).astype(np.uint32) * np.uint32(MULTIPLIER_TOKEN)).reshape(ids.shape)


def bits(tokens: Any, keys: Any) -> U32:
    """32 bits for each pair; ``tokens`` and ``keys`` are broadcast against one another."""
    x = np.atleast_1d(np.asarray(scale_tokens(tokens) ^ np.asarray(keys, np.uint32)))
    shape = np.broadcast_shapes(np.shape(tokens), np.shape(keys))
    return mix_in_place(x, np.empty_like(x)).reshape(shape)


def unit(drawn: U32) -> F32:
    """Number in [-1, 1), a multiple of 2**-23, exactly; mean 0 and variance 1/3."""
    return (drawn >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)


def half(drawn: U32) -> F32:
    """Number in [0, 1), a multiple of 2**-24, exactly."""
    return (drawn >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def wide(tokens: Any, layer: int, stream: int, index: Any) -> U64:
    """64 bits for each pair of token and entry: draws 2i (low half) and 2i + 1 (high half) of the stream."""
    entries = np.asarray(index, np.int64)
    low = bits(tokens, key(layer, stream, 2 * entries)).astype(np.uint64)
    high = bits(tokens, key(layer, stream, 2 * entries + 1)).astype(np.uint64)
    return low | (high << np.uint64(32))
