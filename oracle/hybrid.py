"""A small hybrid language model with seeded weights, to see what a wrong recurrent state does to an output.

Eight blocks: short convolution and a recurrence (the gated delta rule, or Mamba-2's SSD), and in every fourth one
full attention instead; RMS norms, an MLP in each block, greedy decoding. It has learnt nothing. All is float32 and
runs token by token with sums in a fixed order, so that the bits do not depend on how a prompt is cut into chunks.

Recurrences as in the field's references, decay first, then read, then write:

- gated delta rule (fla, ``ops/gated_delta_rule/naive.py``): ``S <- exp(g) S; u = beta (v - S^T k); S <- S + k u^T``,
  ``g = -A softplus(a + dt_bias)``, ``beta = sigmoid(b)``, q and k of length 1
- SSD (mamba, ``selective_state_update_ref``): ``S <- exp(dt A) S + B (dt x)^T``, ``dt = softplus(a + dt_bias)``
- short convolution: depthwise over the last :data:`WINDOW` inputs; its state is all of them but the newest
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stateat.sim.tokens import Ids

F32 = NDArray[np.float32]

VOCABULARY = 1024
"""Token ids are taken modulo this."""
WIDTH = 48
HEADS = 4
HEAD = 16
"""Key and value dimensions of a recurrent head, and of an attention head."""
ATTENTION_HEADS = 2
WINDOW = 4
HIDDEN = 96
LAYERS = ("gated-delta", "ssd", "gated-delta", "attention") * 2
RECURRENT = tuple(kind for kind in LAYERS if kind != "attention")
LOGIT_SCALE = 3.0
"""The standard deviation of the logits: a peaked distribution with a few rivals, neither flat nor certain."""
EMBEDDING_SCALE = 0.5
"""Below the size of what a block adds: the next token depends on more than the last one."""

INNER = HEADS * HEAD
TINY = np.float32(1e-6)


class Recurrent(NamedTuple):
    """The state of one recurrent layer: all that a slot of a prefix cache holds of it."""

    window: F32
    """The last inputs of the convolution, oldest first; shape [WINDOW - 1, 3 * INNER]."""
    state: F32
    """Shape [HEADS, HEAD (keys), HEAD (values)]."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of the model after ``position`` tokens: recurrent states, and keys and values of all tokens."""

    position: int
    recurrent: tuple[Recurrent, ...]
    """One for each of :data:`RECURRENT`."""
    keys: tuple[F32, ...]
    """Keys of an attention layer; shape [ATTENTION_HEADS, HEAD, position]: sums over the head run along the tokens."""
    values: tuple[F32, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Weights of one block; matrices are [inputs, outputs]. The last four are empty in an attention block."""

    kind: str
    into: F32
    out: F32
    up: F32
    down: F32
    conv: F32
    """Shape [WINDOW, 3 * INNER]."""
    rate: F32
    """A of each head, negative (published initialisation: -A uniform in 1..16)."""
    dt_bias: F32
    skip: F32
    """SSD's D."""


@dataclass(frozen=True, slots=True)
class HybridModel:
    """Weights of the model."""

    embedding: F32
    """Shape [VOCABULARY, WIDTH]."""
    blocks: tuple[Block, ...]
    head: F32
    """Shape [WIDTH, VOCABULARY]."""


@lru_cache(maxsize=2)
def build(seed: int = 0) -> HybridModel:
    """The model of a seed; the same on every machine, since NumPy's PCG64 is."""
    random = np.random.Generator(np.random.PCG64(seed))

    def matrix(inputs: int, outputs: int, scale: float = 1.0) -> F32:
        return np.asarray(random.standard_normal((inputs, outputs)) * (scale / np.sqrt(inputs)), np.float32)

    def block(kind: str) -> Block:
        attention = kind == "attention"
        inner = ATTENTION_HEADS * HEAD if attention else INNER
        gates = np.zeros((WIDTH, 0), np.float32) if attention else matrix(WIDTH, 2 * HEADS, 0.5)
        into = np.concatenate([matrix(WIDTH, 4 * inner), gates], axis=1)
        heads = 0 if attention else HEADS
        # Mamba-2's initialisation: softplus(dt_bias) log-uniform in 0.001..0.1. Some heads remember a thousand tokens.
        dt = np.exp(random.uniform(np.log(1e-3), np.log(1e-1), heads))
        return Block(
            kind,
            into,
            matrix(inner, WIDTH),
            matrix(WIDTH, HIDDEN),
            matrix(HIDDEN, WIDTH),
            matrix(WINDOW, 0 if attention else 3 * INNER),
            -random.uniform(1, 16, heads).astype(np.float32),
            (dt + np.log(-np.expm1(-dt))).astype(np.float32),
            np.ones(heads, np.float32),
        )

    embedding = matrix(1, VOCABULARY * WIDTH, EMBEDDING_SCALE).reshape(VOCABULARY, WIDTH)
    return HybridModel(embedding, tuple(block(kind) for kind in LAYERS), matrix(WIDTH, VOCABULARY, LOGIT_SCALE))


def empty() -> Memory:
    """State before any token: zero states, no keys and values."""
    layer = Recurrent(np.zeros((WINDOW - 1, 3 * INNER), np.float32), np.zeros((HEADS, HEAD, HEAD), np.float32))
    none = tuple(np.zeros((ATTENTION_HEADS, HEAD, 0), np.float32) for kind in LAYERS if kind == "attention")
    return Memory(0, tuple(layer for _ in RECURRENT), none, none)


def consume(model: HybridModel, memory: Memory, ids: Ids | Iterable[int]) -> tuple[Memory, F32]:
    """The memory after these tokens too, and the logits after the last one (shape [VOCABULARY]; zeros without one)."""
    tokens = np.fromiter(ids, np.int64) % VOCABULARY
    end = memory.position + tokens.size
    recurrent = list(memory.recurrent)
    keys, values = [_room(k, end) for k in memory.keys], [_room(v, end) for v in memory.values]
    x = np.zeros(WIDTH, np.float32)
    for position, token in enumerate(tokens.tolist(), memory.position):
        x = model.embedding[token]
        nth = attention = 0
        for block in model.blocks:
            mixed = _times(_norm(x), block.into)
            if block.kind == "attention":
                x = x + _times(_attend(mixed, keys[attention], values[attention], position), block.out)
                attention += 1
            else:
                y, recurrent[nth] = _recur(block, mixed, recurrent[nth])
                x = x + _times(y, block.out)
                nth += 1
            x = x + _times(_silu(_times(_norm(x), block.up)), block.down)
    logits = _times(_norm(x), model.head) if tokens.size else np.zeros(VOCABULARY, np.float32)
    return Memory(end, tuple(recurrent), tuple(keys), tuple(values)), logits


def _room(array: F32, end: int) -> F32:
    grown = np.zeros((*array.shape[:2], end), np.float32)
    grown[:, :, : array.shape[2]] = array
    return grown


def _attend(mixed: F32, keys: F32, values: F32, position: int) -> F32:
    """Causal attention with an output gate, no positional encoding (the recurrences know the order)."""
    query, key, value, gate = mixed.reshape(4, ATTENTION_HEADS, HEAD)
    keys[:, :, position], values[:, :, position] = key, value
    # The products are new arrays as long as the past: their sums do not depend on how the caches lie in memory.
    scores = (keys[:, :, : position + 1] * query[:, :, None]).sum(1) * np.float32(HEAD**-0.5)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    read = (values[:, :, : position + 1] * weights[:, None, :]).sum(2) / weights.sum(1)[:, None]
    return (_norm(read) * _silu(gate)).reshape(-1)


def _recur(block: Block, mixed: F32, before: Recurrent) -> tuple[F32, Recurrent]:
    inputs, gate, gates = mixed[: 3 * INNER], mixed[3 * INNER : 4 * INNER], mixed[4 * INNER :]
    window = np.concatenate([before.window, inputs[None]])
    one, two, three = _silu((window * block.conv).sum(0)).reshape(3, HEADS, HEAD)
    dt = _softplus(gates[:HEADS] + block.dt_bias)
    step = gated_delta if block.kind == "gated-delta" else ssd
    state, y = step(before.state, one, two, three, dt, gates[HEADS:], block.rate, block.skip)
    out = (_norm(y) * _silu(gate.reshape(HEADS, HEAD))).reshape(-1)
    return out, Recurrent(window[1:], state)


def gated_delta(
    state: F32, query: F32, key: F32, value: F32, dt: F32, beta: F32, rate: F32, skip: F32
) -> tuple[F32, F32]:
    """One token of the gated delta rule: the state after it [HEADS, HEAD, HEAD], and what is read [HEADS, HEAD].

    ``query``, ``key``, ``value`` are [HEADS, HEAD], ``dt`` and ``rate`` give the decay, ``beta`` is before its sigmoid.
    """
    query, key = _unit(query), _unit(key)
    state = state * np.exp(dt * rate)[:, None, None]
    read = (state * key[:, :, None]).sum(1)
    state = state + key[:, :, None] * (_sigmoid(beta)[:, None] * (value - read))[:, None, :]
    return state, (state * query[:, :, None]).sum(1)


def ssd(state: F32, out: F32, into: F32, x: F32, dt: F32, _: F32, rate: F32, skip: F32) -> tuple[F32, F32]:
    """One token of Mamba-2: C = ``out``, B = ``into``, x, all [HEADS, HEAD]; the state is [HEADS, B, x]."""
    state = state * np.exp(dt * rate)[:, None, None] + into[:, :, None] * (dt[:, None] * x)[:, None, :]
    return state, (state * out[:, :, None]).sum(1) + skip[:, None] * x


def _times(x: F32, matrix: F32) -> F32:
    """x @ matrix without a BLAS, which sums in an order of its own: here row by row, everywhere."""
    return np.asarray(np.add.reduce(x[:, None] * matrix), np.float32)


def _norm(x: F32) -> F32:
    """Divided by its root mean square (last axis)."""
    return _scaled(x, np.float32(x.shape[-1]))


def _unit(x: F32) -> F32:
    """Divided by its length (last axis)."""
    return _scaled(x, np.float32(1))


def _scaled(x: F32, share: np.float32) -> F32:
    size = np.sqrt(np.add.reduce(x * x, -1, keepdims=True) / share + TINY)
    return np.asarray(x / size, np.float32)


def _sigmoid(x: F32) -> F32:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


def _silu(x: F32) -> F32:
    return x * _sigmoid(x)


def _softplus(x: F32) -> F32:
    return np.maximum(x, np.float32(0)) + np.log1p(np.exp(-np.abs(x)))
