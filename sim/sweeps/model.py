"""Model of a sweep file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from stateat.sim.inputs import shown
from stateat.sim.schema import Name, Strict

SCHEMA = "stateat-sweep/1"
MAX_POINTS = 1_000_000
"""Points of a sample, and values of one key of a grid."""
MAX_SEED = 2**63 - 1
_RANGE = re.compile(r"([0-9]{1,19}):([0-9]{1,19})")
_SEEDS = "allowed a list of seeds, or FIRST:END such as 0:100 (END is not in it)"

Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
T = TypeVar("T", int, str)
Number = Annotated[float, Field(ge=-1e18, le=1e18)]


def _seed_range(text: Any) -> Any:
    if not isinstance(text, str):
        raise ValueError(_SEEDS)
    found = _RANGE.fullmatch(text)
    if not found or not 0 < int(found[2]) - int(found[1]) <= MAX_POINTS or int(found[2]) > MAX_SEED:
        raise ValueError(f"found {shown(text)}, {_SEEDS}")
    return text


def _once(values: list[T]) -> list[T]:
    seen: set[T] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"found {shown(value)} twice, allowed once")
        seen.add(value)
    return values


def _listed(value: Any) -> str:
    return "list" if isinstance(value, list) else "range"


class _Between(Strict):
    @model_validator(mode="after")
    def _ordered(self) -> _Between:
        low, high = getattr(self, "low", 0), getattr(self, "high", 0)
        if low > high:
            raise ValueError(f"found low {low} above high {high}, allowed low <= high")
        return self


class Uniform(_Between):
    """Every number from low to high equally often."""

    kind: Literal["uniform"]
    low: Number
    """Least."""
    high: Number
    """Most."""


class LogUniform(_Between):
    """Every order of magnitude from low to high equally often."""

    kind: Literal["loguniform"]
    low: Annotated[float, Field(gt=0, le=1e18)]
    """Least."""
    high: Annotated[float, Field(gt=0, le=1e18)]
    """Most."""


class Integers(_Between):
    """Whole numbers: low, low + step and so on up to high, equally often."""

    kind: Literal["integers"]
    low: Annotated[int, Field(ge=0, le=2**53)]
    """Least."""
    high: Annotated[int, Field(ge=0, le=2**53)]
    """Most (may occur)."""
    step: Annotated[int, Field(ge=1, le=2**53)] = 1
    """Between two of them."""


class Choice(Strict):
    """One of these values, each equally often."""

    kind: Literal["choice"]
    values: Annotated[list[Any], Field(min_length=1, max_length=MAX_POINTS)]
    """Anything that the key may be."""


Distribution = Annotated[Uniform | LogUniform | Integers | Choice, Field(discriminator="kind")]


class Sample(Strict):
    """Points drawn at random, from a seed of their own."""

    n: Annotated[int, Field(ge=1, le=MAX_POINTS)]
    """Number of points."""
    seed: Seed = 0
    """Seed of the drawing."""
    over: Annotated[dict[str, Distribution], Field(min_length=1, max_length=100)]
    """Distributions by key: how its values are drawn."""


def _base(value: Any) -> Any:
    if not isinstance(value, str | Mapping) or not value:
        raise ValueError("allowed the path of a scenario file, or a scenario")
    return value


class SweepFile(Strict):
    """A sweep of stateat: a scenario, and what of it takes which values."""

    schema_: Annotated[Literal["stateat-sweep/1"], Field(alias="schema")]
    """The version of this format."""
    name: Name
    """A short name."""
    title: str = ""
    """One line for people."""
    base: Annotated[Any, AfterValidator(_base)]
    """The scenario: its file, relative to this one, or written here. What it expects is not compared."""
    grid: (
        Annotated[
            dict[str, Annotated[list[Any], Field(min_length=1, max_length=MAX_POINTS)]],
            Field(min_length=1, max_length=100),
        ]
        | None
    ) = None
    """Values by key of the scenario (`engine.num_blocks`). The points are all combinations."""
    sample: Sample | None = None
    """Instead of a grid: points drawn at random."""
    seeds: (
        Annotated[
            Annotated[
                Annotated[list[Seed], Field(min_length=1, max_length=MAX_POINTS), AfterValidator(_once)], Tag("list")
            ]
            | Annotated[Annotated[str, BeforeValidator(_seed_range)], Tag("range")],
            Discriminator(_listed),
        ]
        | None
    ) = None
    """Seeds of the scenario, each with every point: a list, or `0:100`; by default the base's own."""
    variants: Annotated[list[Name], Field(min_length=1, max_length=1000), AfterValidator(_once)] | None = None
    """Only these variants of the base; all by default."""

    @model_validator(mode="after")
    def _one(self) -> SweepFile:
        if self.grid is not None and self.sample is not None:
            raise ValueError("found grid and sample, allowed one of them")
        return self

    def seed_list(self, default: int) -> list[int] | range:
        """The seeds, in order."""
        if self.seeds is None:
            return [default]
        if isinstance(self.seeds, list):
            return self.seeds
        first, end = self.seeds.split(":")
        return range(int(first), int(end))
