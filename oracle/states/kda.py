"""``kda``: Kimi delta attention (Kimi Linear, arXiv 2510.26692).

    S <- diag(exp(g)) S,   S <- S + k beta (v - k.S)          per head; S [K, V] float32

g <= 0 is a vector [K], beta a number, k of length 1. The convolution runs over queries, keys and values:
[w - 1, 2 * key_heads * K + heads * V].
"""

from __future__ import annotations

from stateat.oracle.states.numeric import Numeric


class Kda(Numeric):
    """The family; inputs are drawn from token ids (:mod:`stateat.kernels.reference`)."""

    name = "kda"
