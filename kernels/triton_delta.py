"""Triton kernels of the delta rule: ``gated-delta`` and ``kda`` token by token and in chunks.

Formulas: gated delta rule, Yang et al. 2024 (arXiv:2412.06464); per-channel decay, Kimi Linear (arXiv:2510.26692); the
chunk form solves the unit lower triangular system of the same paper. A state is [K, V]; a program holds all K rows of a
tile of columns, since a column never needs another. Tables are those of :mod:`stateat.kernels.triton_plan`.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Triton has no types that a checker could see.

import triton
import triton.language as tl

from stateat.kernels.triton_draws import BETA, GATE, KEY, VALUE, half, mix, pace, stream_key, token_seed, unit


@triton.jit
def normalised(x, axis: tl.constexpr):
    """x / sqrt(sum of squares + 1e-6), with the rounding of IEEE 754."""
    length = tl.sqrt_rn(tl.sum(x * x, axis, keep_dims=True) + 1e-6)
    return tl.div_rn(x, tl.broadcast_to(length, x.shape))


@triton.jit
def rate(index):
    """2**-(1 + index mod 8) of int32 indices: the largest decay of a step, as a power of e."""
    return 1.0 / (2 << (index % 8)).to(tl.float32)


@triton.jit(do_not_specialize=["requests"])
def delta_kernel(
    out_ptr,  # float32 [wants, LAYERS, HEADS, K, V]
    state_ptr,  # float32 [requests, LAYERS, HEADS, K, V]
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
    CHANNEL_DECAY: tl.constexpr,  # kda: one decay per key channel; else one per head
    BLOCK: tl.constexpr,  # requests
    ROWS: tl.constexpr,  # K, as a power of two
    TILE: tl.constexpr,  # columns
):
    """S <- e^g S; u = beta (v - S'k); S <- S + k u'. Grid: request blocks, LAYERS * HEADS, column tiles."""
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
    state = tl.load(state_ptr + origin[:, None, None] + cell, mask=inside[:, None, None] & real, other=0.0)

    key_key = stream_key(layer, KEY, head // (HEADS // KEY_HEADS) * K + k)
    value_key = stream_key(layer, VALUE, head * V + v)
    beta_key = stream_key(layer, BETA, head)
    if CHANNEL_DECAY:
        gate_key = stream_key(layer, GATE, head * K + k)
        speed = rate(k) * pace(head)
    else:
        gate_key = stream_key(layer, GATE, head)
        speed = rate(head) * pace(head)

    done = 0
    for stop_index in range(tl.load(block_ptr + block), tl.load(block_ptr + block + 1)):
        stop = tl.load(stop_ptr + stop_index)
        for t in range(done, stop):
            # A request that has ended absorbs token 0: no state of it is wanted any more.
            seed = token_seed(tl.load(token_ptr + first + t, mask=t < count, other=0))
            drawn = unit(mix(seed[:, None] ^ key_key[None, :]))
            key = normalised(tl.where((k < K)[None, :], drawn, 0.0), 1)
            value = unit(mix(seed[:, None] ^ value_key[None, :]))
            beta = half(mix(seed ^ beta_key)) * pace(head)
            if CHANNEL_DECAY:
                decay = tl.exp(-speed[None, :] * half(mix(seed[:, None] ^ gate_key[None, :])))[:, :, None]
            else:
                decay = tl.exp(-speed * half(mix(seed ^ gate_key)))[:, None, None]
            state = state * decay
            read = tl.sum(state * key[:, :, None], 1)
            state = state + key[:, :, None] * (beta[:, None] * (value - read))[:, None, :]
        done = stop
        slot = tl.load(slot_ptr + stop_index * BLOCK + tl.arange(0, BLOCK))
        target = (slot.to(tl.int64) * (LAYERS * HEADS) + plane) * (K * V)
        tl.store(out_ptr + target[:, None, None] + cell, state, mask=(slot >= 0)[:, None, None] & real)


@triton.jit
def delta_chunk_kernel(
    out_ptr,  # float32 [wants, LAYERS, HEADS, K, V]
    state_ptr,  # float32 [requests, LAYERS, HEADS, K, V]
    work_ptr,  # float32 [requests, LAYERS, HEADS, K, V]: the state as it moves on
    token_ptr,  # int32 [tokens of all requests]
    first_ptr,  # int64 [requests]: where a request's tokens begin
    step_ptr,  # int32 [steps, 4]: first token, tokens, want or -1, whether the state moves on
    request_ptr,  # int32 [requests + 1]: which steps are a request's
    LAYERS: tl.constexpr,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    CHANNEL_DECAY: tl.constexpr,  # kda: one decay per key channel; else one per head
    CHUNK: tl.constexpr,  # tokens of the longest step, as a power of two, at least 16
    PART: tl.constexpr,  # rows of the state in registers at a time, at least 16
    TILE: tl.constexpr,  # columns, at least 16
):
    """The same rule for a chunk at once, with G_i the sum of g_1..g_i and S the state before the chunk:
    u_i = beta_i (v_i - e^G_i S'k_i - sum over j < i of e^(G_i - G_j) (k_i.k_j) u_j), solved downwards for U;
    S <- e^G S + sum over j of e^(G - G_j) k_j u_j'. With a decay per channel, e^(G_i - G_j) goes into k_i and k_j,
    from the middle of the chunk's decay, so that neither leaves float32. Grid: requests, LAYERS * HEADS, column tiles.

    Keys and state pass through registers part by part, drawn and read where they are needed: whole, at head dim 128,
    they are more than a program has."""
    request = tl.program_id(0)
    plane = tl.program_id(1)
    layer = plane // HEADS
    head = plane % HEADS
    j = tl.arange(0, CHUNK)
    v = tl.program_id(2) * TILE + tl.arange(0, TILE)
    origin = (request.to(tl.int64) * (LAYERS * HEADS) + plane) * (K * V)
    first = tl.load(first_ptr + request)

    key_entry = head // (HEADS // KEY_HEADS) * K
    value_key = stream_key(layer, VALUE, head * V + v)
    beta_key = stream_key(layer, BETA, head)
    lower = j[:, None] > j[None, :]
    if not CHANNEL_DECAY:
        gate_key = stream_key(layer, GATE, head)

    for top in range(0, K, PART):
        k = top + tl.arange(0, PART)
        cell = k[:, None] * V + v[None, :]
        real = (k < K)[:, None] & (v < V)[None, :]
        tl.store(work_ptr + origin + cell, tl.load(state_ptr + origin + cell, mask=real, other=0.0), mask=real)

    for step in range(tl.load(request_ptr + request), tl.load(request_ptr + request + 1)):
        start = tl.load(step_ptr + step * 4)
        length = tl.load(step_ptr + step * 4 + 1)
        slot = tl.load(step_ptr + step * 4 + 2)
        moves = tl.load(step_ptr + step * 4 + 3) != 0
        live = j < length
        seed = token_seed(tl.load(token_ptr + first + start + j, mask=live, other=0))
        # A row past the end has beta and log decay 0: it changes nothing.
        beta = tl.where(live, half(mix(seed ^ beta_key)) * pace(head), 0.0)
        if not CHANNEL_DECAY:
            gate = tl.where(live, -rate(head) * pace(head) * half(mix(seed ^ gate_key)), 0.0)
            until = tl.cumsum(gate, 0)
            after = tl.cumsum(gate, 0, reverse=True) - gate
            whole = tl.sum(gate, 0)

        # The threads of a program wrote the state for one another.
        tl.debug_barrier()
        squares = tl.zeros((CHUNK,), tl.float32)
        likeness = tl.zeros((CHUNK, CHUNK), tl.float32)
        read = tl.zeros((CHUNK, TILE), tl.float32)
        for top in range(0, K, PART):
            k = top + tl.arange(0, PART)
            drawn = unit(mix(seed[:, None] ^ stream_key(layer, KEY, key_entry + k)[None, :]))
            key = tl.where((k < K)[None, :], drawn, 0.0)
            real = (k < K)[:, None] & (v < V)[None, :]
            state = tl.load(work_ptr + origin + k[:, None] * V + v[None, :], mask=real, other=0.0)
            squares += tl.sum(key * key, 1)
            if CHANNEL_DECAY:
                drawn = half(mix(seed[:, None] ^ stream_key(layer, GATE, head * K + k)[None, :]))
                gates = tl.where(live[:, None], -rate(k)[None, :] * pace(head) * drawn, 0.0)
                sums = tl.cumsum(gates, 0)
                middle = (tl.sum(gates, 0) * 0.5)[None, :]
                early = tl.trans(key * tl.exp(middle - sums))
                likeness = tl.dot(key * tl.exp(sums - middle), early, likeness, input_precision="ieee")
                key = key * tl.exp(sums)
            else:
                likeness = tl.dot(key, tl.trans(key), likeness, input_precision="ieee")
            read = tl.dot(key, state, read, input_precision="ieee")
        scale = tl.div_rn(tl.full((CHUNK,), 1.0, tl.float32), tl.sqrt_rn(squares + 1e-6))

        weight = likeness * scale[None, :] * (beta * scale)[:, None]
        update = read * scale[:, None]
        if not CHANNEL_DECAY:
            # Above the diagonal the exponent is positive and could overflow.
            weight = weight * tl.exp(tl.where(lower, until[:, None] - until[None, :], 0.0))
            update = update * tl.exp(until)[:, None]
        weight = tl.where(lower, weight, 0.0)
        value = unit(mix(seed[:, None] ^ value_key[None, :]))
        update = beta[:, None] * (value - update)
        for i in range(1, length):
            line = tl.sum(tl.where((j == i)[:, None], weight, 0.0), 0)
            known = tl.sum(line[:, None] * update, 0)
            update = tl.where((j == i)[:, None], update - known[None, :], update)

        update = update * scale[:, None]
        if not CHANNEL_DECAY:
            update = update * tl.exp(after)[:, None]
        target = (slot.to(tl.int64) * (LAYERS * HEADS) + plane) * (K * V)
        # All reads of the state come before its first write.
        tl.debug_barrier()
        for top in range(0, K, PART):
            k = top + tl.arange(0, PART)
            key = unit(mix(seed[None, :] ^ stream_key(layer, KEY, key_entry + k)[:, None]))
            cell = k[:, None] * V + v[None, :]
            real = (k < K)[:, None] & (v < V)[None, :]
            state = tl.load(work_ptr + origin + cell, mask=real, other=0.0)
            if CHANNEL_DECAY:
                drawn = half(mix(seed[None, :] ^ stream_key(layer, GATE, head * K + k)[:, None]))
                gates = tl.where(live[None, :], -rate(k)[:, None] * pace(head) * drawn, 0.0)
                key = key * tl.exp(tl.cumsum(gates, 1, reverse=True) - gates)
                state = state * tl.exp(tl.sum(gates, 1))[:, None]
            else:
                state = state * tl.exp(whole)
            state = tl.dot(key, update, state, input_precision="ieee")
            tl.store(work_ptr + origin + cell, state, mask=moves & real)
            tl.store(out_ptr + target + cell, state, mask=(slot >= 0) & real)
