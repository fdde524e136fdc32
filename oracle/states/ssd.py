"""``ssd``: Mamba-2 (Dao and Gu, arXiv 2405.21060); Nemotron-H, Falcon-H1.

    S <- exp(dt A) S + (dt x) B          per head; S [P, N] float32

dt > 0 and A < 0 are a number a head, B [N] is one of a group of heads. The convolution runs over x, B and C:
[w - 1, heads * P + 2 * groups * N].
"""

from __future__ import annotations

from stateat.oracle.states.numeric import Numeric


class Ssd(Numeric):
    """The family; inputs are drawn from token ids (:mod:`stateat.kernels.reference`)."""

    name = "ssd"
