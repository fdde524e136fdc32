"""``selective-scan``: Mamba-1 (Gu and Dao, arXiv 2312.00752); Jamba.

    h <- exp(dt A) h + (dt u) B          h [D, N] float32; dt > 0 and u a number a row d, A < 0 [D, N], B [N]

The convolution runs over u: [w - 1, D].
"""

from __future__ import annotations

from stateat.oracle.states.numeric import Numeric


class SelectiveScan(Numeric):
    """The family; inputs are drawn from token ids (:mod:`stateat.kernels.reference`)."""

    name = "selective-scan"
