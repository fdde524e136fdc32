"""The draws of :mod:`stateat.kernels.draws` as Triton functions: the same bits, computed where they are needed.

A kernel reads token ids and nothing else of its inputs, so a launch moves states alone. All of it is 32-bit unsigned
arithmetic that wraps; the two conversions to float32 are exact. Ids arrive as int32, which holds an id mod 2**32.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Triton has no types that a checker could see.

import triton
import triton.language as tl

CONV = tl.constexpr(0)
KEY = tl.constexpr(1)
VALUE = tl.constexpr(2)
GATE = tl.constexpr(3)
BETA = tl.constexpr(4)
INPUT = tl.constexpr(5)


@triton.jit
def mix(x):
    """lowbias32 (Wellons) of uint32, element by element."""
    x = x ^ (x >> 16)
    x = x * 0x7FEB352D
    x = x ^ (x >> 15)
    x = x * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def stream_key(layer, stream, index):
    """The key of one entry (index) of one stream of one layer: uint32 of the shape of ``index`` (int32)."""
    seed = (layer * 64 + stream + 1).to(tl.uint32)
    return mix(mix(seed) ^ (index.to(tl.uint32) * 0x9E3779B1))


@triton.jit
def token_seed(token):
    """Seed that one token adds to all of its draws: uint32 of the shape of ``token`` (int32)."""
    return token.to(tl.uint32, bitcast=True) * 0x85EBCA77


@triton.jit
def unit(bits):
    """float32 in [-1, 1), exact."""
    return (bits >> 8).to(tl.float32) * (2.0**-23) - 1.0


@triton.jit
def half(bits):
    """float32 in [0, 1), exact."""
    return (bits >> 8).to(tl.float32) * (2.0**-24)


@triton.jit
def wide(low, high):
    """int64 of two draws, by their bits."""
    return (high.to(tl.uint64) << 32 | low.to(tl.uint64)).to(tl.int64, bitcast=True)


@triton.jit
def pace(unit):
    """1 for even units, 2**-7 for odd ones, float32: see :data:`stateat.kernels.draws.SLOW`."""
    return 1.0 / (1 + 127 * (unit % 2)).to(tl.float32)
