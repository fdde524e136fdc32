"""Triton kernel of ``ring``: the gated delta rule on integers mod 2**64, exact in any order.

A state is [K, V] int64, by its bits; a program holds all K rows of a tile of columns. Tables are those of
:mod:`stateat.kernels.triton_plan`.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Triton has no types that a checker could see.

import triton
import triton.language as tl

from stateat.kernels.triton_draws import BETA, GATE, KEY, VALUE, mix, stream_key, token_seed, wide


@triton.jit(do_not_specialize=["requests"])
def ring_kernel(
    out_ptr,  # int64 [wants, LAYERS, HEADS, K, V]
    state_ptr,  # int64 [requests, LAYERS, HEADS, K, V]
    token_ptr,  # int32 [tokens of all requests]
    first_ptr,  # int64 [requests]: where a request's tokens begin
    count_ptr,  # int32 [requests]: how many they are
    stop_ptr,  # int32 [stops]: token counts at which some request of the block wants its state
    block_ptr,  # int32 [blocks + 1]: which stops are a block's
    slot_ptr,  # int32 [stops, BLOCK]: the want that a row fills at a stop, or -1
    requests,
    LAYERS: tl.constexpr,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    BLOCK: tl.constexpr,  # requests
    ROWS: tl.constexpr,  # K, as a power of two
    TILE: tl.constexpr,  # columns
):
    """S <- a S; u = b (v - S'k); S <- S + k u'. Grid: request blocks, LAYERS * HEADS, column tiles."""
    block = tl.program_id(0)
    plane = tl.program_id(1)
    layer = plane // HEADS
    head = plane % HEADS
    row = block * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, ROWS)
    v = tl.program_id(2) * TILE + tl.arange(0, TILE)
    inside = row < requests
    cell = (k[:, None] * V + v[None, :])[None, :, :]
    real = ((k < K)[:, None] & (v < V)[None, :])[None, :, :]
    first = tl.load(first_ptr + row, mask=inside, other=0)
    count = tl.load(count_ptr + row, mask=inside, other=0)
    origin = (row.to(tl.int64) * (LAYERS * HEADS) + plane) * (K * V)
    state = tl.load(state_ptr + origin[:, None, None] + cell, mask=inside[:, None, None] & real, other=0)

    # Draw 2i is the low half of entry i and draw 2i + 1 the high half.
    key_entry = (head // (HEADS // KEY_HEADS) * K + k) * 2
    value_entry = (head * V + v) * 2
    key_low, key_high = stream_key(layer, KEY, key_entry), stream_key(layer, KEY, key_entry + 1)
    value_low, value_high = stream_key(layer, VALUE, value_entry), stream_key(layer, VALUE, value_entry + 1)
    gate_low, gate_high = stream_key(layer, GATE, head * 2), stream_key(layer, GATE, head * 2 + 1)
    beta_low, beta_high = stream_key(layer, BETA, head * 2), stream_key(layer, BETA, head * 2 + 1)

    done = 0
    for stop_index in range(tl.load(block_ptr + block), tl.load(block_ptr + block + 1)):
        stop = tl.load(stop_ptr + stop_index)
        for t in range(done, stop):
            # A request that has ended absorbs token 0: no state of it is wanted any more.
            seed = token_seed(tl.load(token_ptr + first + t, mask=t < count, other=0))
            column = seed[:, None]
            key = wide(mix(column ^ key_low[None, :]), mix(column ^ key_high[None, :])) | 1
            key = tl.where((k < K)[None, :], key, 0)
            value = wide(mix(column ^ value_low[None, :]), mix(column ^ value_high[None, :]))
            gate = wide(mix(seed ^ gate_low), mix(seed ^ gate_high)) | 1
            beta = wide(mix(seed ^ beta_low), mix(seed ^ beta_high)) | 1
            state = state * gate[:, None, None]
            read = tl.sum(state * key[:, :, None], 1)
            state = state + key[:, :, None] * (beta[:, None] * (value - read))[:, None, :]
        done = stop
        slot = tl.load(slot_ptr + stop_index * BLOCK + tl.arange(0, BLOCK))
        target = (slot.to(tl.int64) * (LAYERS * HEADS) + plane) * (K * V)
        tl.store(out_ptr + target[:, None, None] + cell, state, mask=(slot >= 0)[:, None, None] & real)
