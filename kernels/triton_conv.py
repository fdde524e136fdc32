"""Triton kernel of the convolution state, which every family with a convolution shares: its last inputs.

A state is [W - 1, channels], oldest first. An input is one draw, so a state is gathered, not accumulated: no program
walks along the tokens. Tables are those of :mod:`stateat.kernels.triton_plan`.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Triton has no types that a checker could see.

import triton
import triton.language as tl

from stateat.kernels.triton_draws import CONV, mix, stream_key, token_seed, unit


@triton.jit(do_not_specialize=["wants"])
def conv_kernel(
    out_ptr,  # float32 [wants, LAYERS, TAPS, CHANNELS]
    state_ptr,  # float32 [requests, LAYERS, TAPS, CHANNELS]
    token_ptr,  # int32 [tokens of all requests]
    first_ptr,  # int64 [requests]: where a request's tokens begin
    request_ptr,  # int32 [wants]: whose state
    offset_ptr,  # int32 [wants]: after how many of its tokens
    wants,
    LAYERS: tl.constexpr,
    TAPS: tl.constexpr,  # W - 1
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,  # wants
    TILE: tl.constexpr,  # channels
):
    """Grid: want blocks, LAYERS, channel tiles."""
    layer = tl.program_id(1)
    want = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.program_id(2) * TILE + tl.arange(0, TILE)
    inside = want < wants
    real = inside[:, None] & (channel < CHANNELS)[None, :]
    request = tl.load(request_ptr + want, mask=inside, other=0)
    offset = tl.load(offset_ptr + want, mask=inside, other=0)
    first = tl.load(first_ptr + request, mask=inside, other=0)
    carried = (request.to(tl.int64) * LAYERS + layer) * (TAPS * CHANNELS)
    target = (want.to(tl.int64) * LAYERS + layer) * (TAPS * CHANNELS)
    key = stream_key(layer, CONV, channel)
    for tap in tl.static_range(TAPS):
        position = offset - TAPS + tap
        seed = token_seed(tl.load(token_ptr + first + position, mask=inside & (position >= 0), other=0))
        drawn = unit(mix(seed[:, None] ^ key[None, :]))
        # Before the first token of the run the window reaches into the state carried in.
        old = (position < 0)[:, None]
        source = carried[:, None] + (offset + tap)[:, None] * CHANNELS + channel[None, :]
        value = tl.where(old, tl.load(state_ptr + source, mask=real & old, other=0.0), drawn)
        tl.store(out_ptr + target[:, None] + tap * CHANNELS + channel[None, :], value, mask=real)
