"""``gated-delta``: Gated DeltaNet (Yang, Kautz and Hatamizadeh, arXiv 2412.06464); Qwen3-Next, Qwen3.5 and 3.6.

    S <- exp(g) S,   S <- S + k beta (v - k.S)          per head; S [K, V] float32; g <= 0 and beta a number a head

``k`` has length 1; value head h reads key head ``h // (heads // key_heads)``. The convolution runs over queries, keys
and values: its state is the last w - 1 inputs, [w - 1, 2 * key_heads * K + heads * V].
"""

from __future__ import annotations

from stateat.oracle.states.numeric import Numeric


class GatedDelta(Numeric):
    """The family; inputs are drawn from token ids (:mod:`stateat.kernels.reference`)."""

    name = "gated-delta"
