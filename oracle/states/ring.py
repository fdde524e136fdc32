"""``ring``: the gated delta rule over the integers modulo 2**64, truth without a tolerance.

    S <- a S,   S <- S + k b (v - k.S)          per head; S [K, V] uint64; k, a and b odd

Exact under any chunking and on any device, bit for bit the same in NumPy, torch and Triton; K is even, so that no step
loses anything: two different states never become one. It has no convolution.
"""

from __future__ import annotations

from stateat.oracle.states.numeric import Numeric


class Ring(Numeric):
    """The family; inputs are drawn from token ids (:mod:`stateat.kernels.reference`)."""

    name = "ring"
