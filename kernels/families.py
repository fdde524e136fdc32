"""State families: one record each, from which every library here, the oracle and the docs take what they need to know.

A new family is a record here and its formula in :mod:`stateat.kernels.reference`. If it has an :class:`Update` of its
own, each library takes that too (``inputs``, ``numpy_states``, ``torch_states``, a Triton kernel).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from stateat.kernels.draws import BETA, GATE, KEY, VALUE, B
from stateat.kernels.shapes import Shape, delta, selective_scan, short_conv, ssd

DTYPES = ("float32", "bfloat16", "float16")
"""Dtypes in which a state may be stored; it is computed in float32."""
ROUNDINGS = ("nearest", "stochastic")
FORMS = ("sequential", "chunked")
"""Forms of computing: token by token, or chunks of tokens at once as prefill kernels do."""
BACKENDS = ("auto", "triton", "torch", "numpy")
DEVICES = ("auto", "cpu", "cuda")


class Update(Enum):
    """Update of a matrix by one token; a library has one step for each."""

    DELTA = "S <- exp(g) S, S <- S + k beta (v - k.S)"
    RING = "the delta rule in integers modulo 2^64, with a factor for exp(g)"
    OUTER = "S <- exp(g) S + x B"
    SCAN = "h <- exp(g) h + w, entry by entry: each row is a unit of its own"


@dataclass(frozen=True, slots=True)
class Family:
    """State family: its recurrence, its inputs, its widths."""

    name: str
    recurrence: str
    """Recurrence of one head, for readers."""
    source: str
    models: str
    """Models with such layers."""
    widths: Mapping[str, Shape]
    """Shape of one layer by preset; from the models' published configurations."""
    update: Update | None = None
    """Update of the matrix; None: the family has a convolution and no matrix."""
    channel_decay: bool = False
    """True if the decay is a number for each row (delta rule) or entry (scan) of a matrix, not one a head."""
    chunk_tokens: int = 0
    """Tokens of a chunk in the chunked form of its models; 0: there is no such form."""
    streams: Mapping[int, Callable[[Shape], int]] = field(default_factory=dict)
    """Entries in one layer of each stream that the matrix draws from."""

    @property
    def exact(self) -> bool:
        """True if entries are 64-bit integers: no rounding, no dtype, the same bits in every library."""
        return self.update is Update.RING

    @property
    def dtype(self) -> str:
        """Dtype of an entry as it is computed."""
        return "uint64" if self.exact else "float32"

    @property
    def by_row(self) -> bool:
        """True if the unit of computation is a row of the matrix, not a head."""
        return self.update is Update.SCAN


_DELTA: dict[int, Callable[[Shape], int]] = {
    KEY: lambda s: s.key_heads * s.rows,
    VALUE: lambda s: s.heads * s.columns,
    GATE: lambda s: s.heads,
    BETA: lambda s: s.heads,
}

FAMILIES = {
    family.name: family
    for family in (
        # Two different states never become one: keys, decays and writes are odd, the number of rows is even.
        Family(
            "ring",
            "the gated delta rule over integers modulo 2^64: exact under any chunking, on any device",
            "made for this simulator",
            "none",
            {"small": Shape("ring", 1, 2, 2, 16, 16, 0, 0)},
            Update.RING,
            streams=_DELTA,
        ),
        # S [K, V]; g <= 0 and beta are a number a head; k has length 1. Value head h reads key head
        # h // (heads // key_heads). The convolution runs over queries, keys and values.
        Family(
            "gated-delta",
            "`S <- exp(g) S; S <- S + k beta (v - k.S)`",
            "Gated DeltaNet (Yang, Kautz and Hatamizadeh, arXiv 2412.06464)",
            "Qwen3-Next, Qwen3.5, Qwen3.6",
            {
                "small": delta("gated-delta", 1, 2, 16),
                "qwen3-next": delta("gated-delta", 16, 32, 128),
                "qwen3.6-27b": delta("gated-delta", 16, 48, 128),
            },
            Update.DELTA,
            chunk_tokens=64,
            streams=_DELTA,
        ),
        # As gated-delta, with g a vector [K].
        Family(
            "kda",
            "the same with a decay for each row of S",
            "Kimi delta attention (Kimi Linear, arXiv 2510.26692)",
            "Kimi-Linear",
            {"small": delta("kda", 2, 2, 16), "kimi-linear": delta("kda", 32, 32, 128)},
            Update.DELTA,
            channel_decay=True,
            chunk_tokens=64,
            streams=_DELTA | {GATE: lambda s: s.heads * s.rows},
        ),
        # S [P, N]; dt > 0 and A < 0 are a number a head, B [N] is one of a group of heads. The convolution runs over
        # x, B and C. Nemotron-H's chunk is 128; falcon-h1 is the 7B.
        Family(
            "ssd",
            "`S <- exp(dt A) S + (dt x) B`",
            "Mamba-2 (Dao and Gu, arXiv 2405.21060)",
            "Nemotron-H, Falcon-H1",
            {
                "small": ssd(2, 16, 16, 1),
                "nemotron-nano-9b-v2": ssd(128, 80, 128, 8),
                "falcon-h1": ssd(24, 128, 256, 1),
            },
            Update.OUTER,
            chunk_tokens=128,
            streams={
                VALUE: lambda s: s.heads * s.rows,
                GATE: lambda s: s.heads,
                B: lambda s: s.key_heads * s.columns,
            },
        ),
        # h [D, N]; dt > 0 and u are a number a row, A < 0 [D, N], B [N]. The convolution runs over u.
        Family(
            "selective-scan",
            "`h <- exp(dt A) h + (dt u) B`",
            "Mamba-1 (Gu and Dao, arXiv 2312.00752)",
            "Jamba",
            {"small": selective_scan(32, 16), "jamba-v0.1": selective_scan(8192, 16)},
            Update.SCAN,
            channel_decay=True,
            streams={
                VALUE: lambda s: s.rows,
                GATE: lambda s: s.rows,
                B: lambda s: s.key_heads * s.columns,
            },
        ),
        # [w - 1, channels], oldest first; zeros before the first token. A slot at a wrong offset is right in numbers
        # wherever the last w - 1 tokens agree; the fingerprint is not.
        Family(
            "short-conv",
            "the last w - 1 inputs",
            "LFM2",
            "LFM2",
            {"small": short_conv(32), "lfm2-1.2b": short_conv(2048)},
        ),
    )
}

CHUNKED = tuple(name for name, family in FAMILIES.items() if family.chunk_tokens)
"""Families whose models have a chunked form. The others are computed token by token in either form."""

_PRESET = re.compile(r"(?P<name>.+?)(?:\*(?P<layers>[1-9][0-9]*))?")


def shape(family: str, preset: str = "small") -> Shape:
    """The shape of a preset, "qwen3-next", or of that many layers of it, "qwen3-next*2"; ValueError if unknown."""
    if family not in FAMILIES:
        raise ValueError(f"no state family {family!r}; there are {', '.join(FAMILIES)}")
    found = _PRESET.fullmatch(preset)
    widths = FAMILIES[family].widths
    if found is None or found["name"] not in widths:
        raise ValueError(f"no preset {preset!r} of {family}; there are {', '.join(widths)}, each with *N for N layers")
    return replace(widths[found["name"]], layers=int(found["layers"] or 1))
