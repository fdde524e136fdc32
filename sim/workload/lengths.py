"""Lengths of prompts and outputs: models of the file, and draws from each. Lengths are tokens, at least 1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from stateat.sim.errors import InputError
from stateat.sim.inputs import csv_rows, open_lines
from stateat.sim.printable import short
from stateat.sim.schema import MAX_STEP_TOKENS, Length, Strict
from stateat.sim.workload.files import discreet, resolve
from stateat.sim.workload.streams import lognormal, uniforms

MAX_ROWS = 10_000_000
"""Rows of a table of lengths, at most."""


class Fixed(Strict):
    """Always the same length."""

    kind: Literal["fixed"]
    """Always the same."""
    length: Length
    """Tokens of each."""


class _Between(Strict):
    @model_validator(mode="after")
    def _ordered(self) -> _Between:
        low, high = getattr(self, "low", 1), getattr(self, "high", MAX_STEP_TOKENS)
        if low > high:
            raise ValueError(f"found low {low} above high {high}, allowed low <= high")
        return self


class Uniform(_Between):
    """Every length from low to high equally often."""

    kind: Literal["uniform"]
    """Every length equally often."""
    low: Length
    """Shortest, tokens."""
    high: Length
    """Longest, tokens (may occur)."""


class Lognormal(_Between):
    """A long-tailed distribution, cut to low and high."""

    kind: Literal["lognormal"]
    """A long tail, cut to low and high."""
    mean: Annotated[float, Field(ge=1, le=MAX_STEP_TOKENS)]
    """Mean of the distribution before it is cut, tokens."""
    sigma: Annotated[float, Field(ge=0, le=10)]
    """Standard deviation of the logarithm."""
    low: Length = 1
    """Shorter draws become this, tokens."""
    high: Length
    """Longer draws become this, tokens."""


class Empirical(Strict):
    """Lengths drawn, with equal chances, from the rows of a CSV column."""

    kind: Literal["empirical"]
    """Drawn, with equal chances, from a CSV column."""
    path: Annotated[str, Field(min_length=1)]
    """A CSV file with a header: absolute, relative to the scenario file, or `shared:NAME`."""
    column: Annotated[str, Field(min_length=1)]
    """Name of the column that holds the lengths, tokens."""


Lengths = Fixed | Uniform | Lognormal | Empirical


def draw(lengths: Lengths, count: int, rng: np.random.Generator, base: Path, where: str) -> list[int]:
    """``count`` lengths. Raises InputError for an empirical file that is missing, empty or broken."""
    match lengths:
        case Fixed(length=length):
            return [length] * count
        case Uniform(low=low, high=high):
            return [low + int(u * (high - low + 1)) for u in uniforms(rng, count)]
        case Lognormal(mean=mean, sigma=sigma, low=low, high=high):
            return [min(high, max(low, round(lognormal(u, mean, sigma)))) for u in uniforms(rng, count)]
        case Empirical(path=path, column=column):
            file = resolve(path, base, where)
            with discreet(file, base):
                values = _column(file, column)
            return [values[int(u * len(values))] for u in uniforms(rng, count)]


def _column(file: Path, column: str) -> list[int]:
    with open_lines(file) as lines:
        values = list(_values(file, column, csv_rows(file, lines)))
    if not values:
        raise InputError(f"{file}: the column {column!r} is empty")
    return values


def _values(file: Path, column: str, rows: Iterator[tuple[int, list[str]]]) -> Iterator[int]:
    first, header = next(rows, (1, []))
    if column not in header:
        raise InputError(f"{file}:{first}: found no column {column!r}, allowed {short(', '.join(header)) or 'none'}")
    place = header.index(column)
    for i, (line, row) in enumerate(rows):
        if i == MAX_ROWS:
            raise InputError(f"{file}:{line}: more than {MAX_ROWS:,} rows")
        if row:
            yield _length(file, line, row[place] if place < len(row) else "")


def _length(file: Path, line: int, text: str) -> int:
    if text.strip().isdecimal() and len(text) < 12 and 1 <= int(text) <= MAX_STEP_TOKENS:
        return int(text)
    raise InputError(f"{file}:{line}: found {short(text)!r}, allowed a length of 1 to {MAX_STEP_TOKENS} tokens")
