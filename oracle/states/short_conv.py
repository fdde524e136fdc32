"""``short-conv``: a gated short convolution and nothing else (LFM2).

The state is the last w - 1 inputs, [w - 1, channels] float32, oldest first; zeros before the first token. It forgets
all but them, so a slot at a wrong offset is right in numbers wherever the last w - 1 tokens agree; the fingerprint is
not.
"""

from __future__ import annotations

from stateat.oracle.states.numeric import Numeric


class ShortConv(Numeric):
    """The family; inputs are drawn from token ids (:mod:`stateat.kernels.reference`)."""

    name = "short-conv"
