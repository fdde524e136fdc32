"""Shapes of recurrent states: how many layers, heads, rows and columns; :mod:`stateat.kernels.families` has the widths
of models."""

from __future__ import annotations

from dataclasses import dataclass

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "uint64": 8}
"""Bytes of one entry, by dtype."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The state of one request in all recurrent layers of a model.

    The recurrent part of a head is a matrix: [key, value] (``ring``, ``gated-delta``, ``kda``), [P, N] (``ssd``) or
    [D, N] (``selective-scan``, one head).
    """

    family: str
    layers: int
    heads: int
    """Heads of the recurrent state (value heads)."""
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
        """Bytes of one request's state with these dtypes (keys of :data:`BYTES`)."""
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
