"""Shapes of recurrent states: the widths of real models, and small ones for tests and simulations."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

FAMILIES = ("ring", "gated-delta", "kda", "ssd", "selective-scan", "short-conv")
CHUNKED = ("gated-delta", "kda", "ssd")
"""Families with a chunked form, and a Triton kernel of it; the others are computed token by token in either form."""

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "uint64": 8}
"""Of one entry, by dtype."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The state of one request in all recurrent layers of a model.

    The recurrent part of a head is a matrix: [key, value] (``ring``, ``gated-delta``, ``kda``), [P, N] (``ssd``) or
    [D, N] (``selective-scan``, one head).
    """

    family: str
    layers: int
    heads: int
    """Of the recurrent state (value heads)."""
    key_heads: int
    """Heads of the keys, or groups of B (``ssd``); each serves ``heads // key_heads`` heads that follow one another."""
    rows: int
    columns: int
    conv_width: int
    """Taps of the short convolution, whose state is its last ``conv_width - 1`` inputs; 0: no convolution."""
    conv_channels: int

    @property
    def components(self) -> dict[str, tuple[int, ...]]:
        """``conv`` [layers, conv_width - 1, conv_channels], ``recurrent`` [layers, heads, rows, columns]; or one."""
        sizes: dict[str, tuple[int, ...]] = {}
        if self.conv_width:
            sizes["conv"] = (self.layers, self.conv_width - 1, self.conv_channels)
        if self.heads:
            sizes["recurrent"] = (self.layers, self.heads, self.rows, self.columns)
        return sizes

    @property
    def conv_entries(self) -> int:
        """Numbers in the conv component."""
        return self.layers * max(self.conv_width - 1, 0) * self.conv_channels

    @property
    def recurrent_entries(self) -> int:
        """Numbers in the recurrent component."""
        return self.layers * self.heads * self.rows * self.columns

    def bytes(self, recurrent: str = "float32", conv: str = "float32") -> int:
        """Bytes of one request's state with these dtypes (keys of :data:`BYTES`); a ``ring`` has 8-byte entries."""
        if self.family == "ring":
            recurrent = "uint64"
        for name in (recurrent, conv):
            if name not in BYTES:
                raise ValueError(f"no dtype {name!r}; there are {', '.join(BYTES)}")
        return self.recurrent_entries * BYTES[recurrent] + self.conv_entries * BYTES[conv]


def delta(family: str, key_heads: int, heads: int, dim: int, width: int = 4, *, value_dim: int | None = None) -> Shape:
    """One layer of the delta rule (``gated-delta``, ``kda``): the convolution runs over queries, keys and values."""
    values = dim if value_dim is None else value_dim
    return Shape(family, 1, heads, key_heads, dim, values, width, 2 * key_heads * dim + heads * values)


def ssd(heads: int, head_dim: int, columns: int, groups: int, width: int = 4) -> Shape:
    """One layer of Mamba-2: the convolution runs over x, B and C."""
    return Shape("ssd", 1, heads, groups, head_dim, columns, width, heads * head_dim + 2 * groups * columns)


def selective_scan(channels: int, columns: int, width: int = 4) -> Shape:
    """One layer of Mamba-1: the convolution runs over the channels of the scan."""
    return Shape("selective-scan", 1, 1, 1, channels, columns, width, channels)


def short_conv(channels: int, width: int = 3) -> Shape:
    """One layer that is a short convolution and no more."""
    return Shape("short-conv", 1, 0, 0, 0, 0, width, channels)


MODELS: dict[str, dict[str, Shape]] = {
    "ring": {"small": Shape("ring", 1, 2, 2, 16, 16, 0, 0)},
    "gated-delta": {
        "small": delta("gated-delta", 1, 2, 16),
        "qwen3-next": delta("gated-delta", 16, 32, 128),
        "qwen3.6-27b": delta("gated-delta", 16, 48, 128),
    },
    "kda": {"small": delta("kda", 2, 2, 16), "kimi-linear": delta("kda", 32, 32, 128)},
    "ssd": {
        "small": ssd(2, 16, 16, 1),
        "nemotron-nano-9b-v2": ssd(128, 80, 128, 8),
        "falcon-h1": ssd(24, 128, 256, 1),
    },
    "selective-scan": {"small": selective_scan(32, 16), "jamba-v0.1": selective_scan(8192, 16)},
    "short-conv": {"small": short_conv(32), "lfm2-1.2b": short_conv(2048)},
}
"""One layer of each preset, by family. Widths: the models' published configurations (falcon-h1 is the 7B)."""

_PRESET = re.compile(r"(?P<name>.+?)(?:\*(?P<layers>[1-9][0-9]*))?")


def shape(family: str, preset: str = "small") -> Shape:
    """The shape of a preset, "qwen3-next", or of that many layers of it, "qwen3-next*2"; ValueError if unknown."""
    if family not in MODELS:
        raise ValueError(f"no state family {family!r}; there are {', '.join(MODELS)}")
    found = _PRESET.fullmatch(preset)
    models = MODELS[family]
    if found is None or found["name"] not in models:
        raise ValueError(f"no preset {preset!r} of {family}; there are {', '.join(models)}, each with *N for N layers")
    return replace(models[found["name"]], layers=int(found["layers"] or 1))
