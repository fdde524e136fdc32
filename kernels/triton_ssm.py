"""Triton kernels of state space models: ``ssd`` token by token and in chunks, ``selective-scan`` token by token.

Formulas: SSD, Dao and Gu 2024 (arXiv:2405.21060); selective scan, Gu and Dao 2023 (arXiv:2312.00752). No entry of a
state needs another, so a program holds a tile of rows. Tables are those of :mod:`stateat.kernels.triton_plan`.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Triton has no types that a checker could see.

import triton
import triton.language as tl

from stateat.kernels.triton_draws import GATE, INPUT, VALUE, half, mix, pace, stream_key, token_seed, unit


@triton.jit
def time_step(bits, unit):
    """dt in [0.001, 0.101), float32, at the unit's pace."""
    return (half(bits) * 0.1 + 0.001) * pace(unit)


@triton.jit(do_not_specialize=["requests"])
def ssm_kernel(
    out_ptr,  # float32 [wants, LAYERS, HEADS, P, N]
    state_ptr,  # float32 [requests, LAYERS, HEADS, P, N]
    token_ptr,  # int32 [tokens of all requests]
    first_ptr,  # int64 [requests]: where a request's tokens begin
    count_ptr,  # int32 [requests]: how many they are
    stop_ptr,  # int32 [stops]: token counts at which some request of the block wants its state
    block_ptr,  # int32 [blocks + 1]: which stops are a block's
    slot_ptr,  # int32 [stops, BLOCK]: the want that a row fills at a stop, or -1
    requests,
    LAYERS: tl.constexpr,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    P: tl.constexpr,
    N: tl.constexpr,
    CHANNEL_DECAY: tl.constexpr,  # selective-scan: dt per row and A = -(1 + column); else both per head
    BLOCK: tl.constexpr,  # requests
    TILE: tl.constexpr,  # rows
    COLUMNS: tl.constexpr,  # N, as a power of two
):
    """h <- e^(dt A) h + (dt x) B'. Grid: request blocks, LAYERS * HEADS, row tiles."""
    block = tl.program_id(0)
    plane = tl.program_id(1)
    layer = plane // HEADS
    head = plane % HEADS
    row = block * BLOCK + tl.arange(0, BLOCK)
    p = tl.program_id(2) * TILE + tl.arange(0, TILE)
    n = tl.arange(0, COLUMNS)
    inside = row < requests
    cell = (p[:, None] * N + n[None, :])[None, :, :]
    real = ((p < P)[:, None] & (n < N)[None, :])[None, :, :]
    first = tl.load(first_ptr + row, mask=inside, other=0)
    count = tl.load(count_ptr + row, mask=inside, other=0)
    origin = (row.to(tl.int64) * (LAYERS * HEADS) + plane) * (P * N)
    state = tl.load(state_ptr + origin[:, None, None] + cell, mask=inside[:, None, None] & real, other=0.0)

    value_key = stream_key(layer, VALUE, head * P + p)
    input_key = stream_key(layer, INPUT, head // (HEADS // GROUPS) * N + n)
    if CHANNEL_DECAY:
        gate_key = stream_key(layer, GATE, p)
        pole = -(n + 1).to(tl.float32)
    else:
        gate_key = stream_key(layer, GATE, head)
        pole = -(head % 16 + 1).to(tl.float32)

    done = 0
    for stop_index in range(tl.load(block_ptr + block), tl.load(block_ptr + block + 1)):
        stop = tl.load(stop_ptr + stop_index)
        for t in range(done, stop):
            # A request that has ended absorbs token 0: no state of it is wanted any more.
            seed = token_seed(tl.load(token_ptr + first + t, mask=t < count, other=0))
            x = unit(mix(seed[:, None] ^ value_key[None, :]))
            b = unit(mix(seed[:, None] ^ input_key[None, :]))
            if CHANNEL_DECAY:
                dt = time_step(mix(seed[:, None] ^ gate_key[None, :]), p[None, :])
                decay = tl.exp(dt[:, :, None] * pole[None, None, :])
            else:
                dt = time_step(mix(seed ^ gate_key), head)[:, None]
                decay = tl.exp(dt * pole)[:, :, None]
            state = state * decay + (dt * x)[:, :, None] * b[:, None, :]
        done = stop
        slot = tl.load(slot_ptr + stop_index * BLOCK + tl.arange(0, BLOCK))
        target = (slot.to(tl.int64) * (LAYERS * HEADS) + plane) * (P * N)
        tl.store(out_ptr + target[:, None, None] + cell, state, mask=(slot >= 0)[:, None, None] & real)


@triton.jit
def ssd_chunk_kernel(
    out_ptr,  # float32 [wants, LAYERS, HEADS, P, N]
    state_ptr,  # float32 [requests, LAYERS, HEADS, P, N]
    token_ptr,  # int32 [tokens of all requests]
    first_ptr,  # int64 [requests]: where a request's tokens begin
    step_ptr,  # int32 [steps, 4]: first token, tokens, want or -1, whether the state moves on
    request_ptr,  # int32 [requests + 1]: which steps are a request's
    LAYERS: tl.constexpr,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    P: tl.constexpr,
    N: tl.constexpr,
    PART: tl.constexpr,  # tokens in registers at a time, at least 16
    TILE: tl.constexpr,  # rows, at least 16
    COLUMNS: tl.constexpr,  # N, as a power of two, at least 16
):
    """h <- e^(A sum of dt) h + X' B, each x scaled by its dt and by the decay of the tokens after it: part by part
    from the last token to the first. Grid: requests, LAYERS * HEADS, row tiles."""
    request = tl.program_id(0)
    plane = tl.program_id(1)
    layer = plane // HEADS
    head = plane % HEADS
    j = tl.arange(0, PART)
    p = tl.program_id(2) * TILE + tl.arange(0, TILE)
    n = tl.arange(0, COLUMNS)
    cell = p[:, None] * N + n[None, :]
    real = (p < P)[:, None] & (n < N)[None, :]
    first = tl.load(first_ptr + request)
    state = tl.load(
        state_ptr + (request.to(tl.int64) * (LAYERS * HEADS) + plane) * (P * N) + cell, mask=real, other=0.0
    )

    value_key = stream_key(layer, VALUE, head * P + p)
    input_key = stream_key(layer, INPUT, head // (HEADS // GROUPS) * N + n)
    gate_key = stream_key(layer, GATE, head)
    pole = -(head % 16 + 1).to(tl.float32)

    for step in range(tl.load(request_ptr + request), tl.load(request_ptr + request + 1)):
        start = tl.load(step_ptr + step * 4)
        length = tl.load(step_ptr + step * 4 + 1)
        slot = tl.load(step_ptr + step * 4 + 2)
        moves = tl.load(step_ptr + step * 4 + 3)
        written = tl.zeros((TILE, COLUMNS), tl.float32)
        later = 0.0
        for part in range(tl.cdiv(length, PART) - 1, -1, -1):
            at = part * PART + j
            live = at < length
            seed = token_seed(tl.load(token_ptr + first + start + at, mask=live, other=0))
            dt = tl.where(live, time_step(mix(seed ^ gate_key), head), 0.0)
            after = later + (tl.cumsum(dt, 0, reverse=True) - dt)
            x = unit(mix(seed[None, :] ^ value_key[:, None])) * (dt * tl.exp(after * pole))[None, :]
            b = unit(mix(seed[:, None] ^ input_key[None, :]))
            written = tl.dot(x, b, written, input_precision="ieee")
            later += tl.sum(dt, 0)
        after_step = state * tl.exp(later * pole) + written
        target = (slot.to(tl.int64) * (LAYERS * HEADS) + plane) * (P * N)
        tl.store(out_ptr + target + cell, after_step, mask=(slot >= 0) & real)
        state = tl.where(moves != 0, after_step, state)
