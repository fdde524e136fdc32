"""Models of a scenario file, apart from its workload: the engine, the oracle, expectations, variants.

The descriptions below the fields are what the JSON Schema shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, SkipValidation, Tag, create_model, model_validator

from stateat.sim.events import Holding, Severity
from stateat.sim.events import Invariant as Law
from stateat.sim.options import Options
from stateat.sim.scenario.counts import COUNTS
from stateat.sim.scenario.truth import DIGEST, Truth
from stateat.sim.schema import (
    Name,
    Strict,
)
from stateat.sim.workload.generate import Workload

SCHEMA = "stateat/1"
INVARIANTS = tuple(word.value for word in Law)
"""Invariants, as in docs/invariants.md."""
MECHANISMS = tuple(f"M{n}" for n in (*range(1, 28), 30, 32))
"""Classes of faults, as in docs/mechanisms.md."""


def _invariant(name: str) -> str:
    """Name of an invariant; also a key of a mapping, of which a Literal would not say what is allowed."""
    if name not in INVARIANTS:
        raise ValueError(f"found {name!r}, allowed {', '.join(INVARIANTS)}")
    return name


Invariant = Annotated[str, AfterValidator(_invariant)]


class Bounds(Strict):
    """A range, ends included; at least one end."""

    min: Annotated[int, Field(ge=0)] | None = None
    """Least number allowed."""
    max: Annotated[int, Field(ge=0)] | None = None
    """Greatest number allowed."""

    @model_validator(mode="after")
    def _ordered(self) -> Bounds:
        if self.min is None and self.max is None:
            raise ValueError("found neither min nor max, allowed at least one of them")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"found min {self.min} above max {self.max}, allowed min <= max")
        return self


def _number_or_bounds(value: Any) -> str:
    return "bounds" if isinstance(value, Mapping | Bounds) else "number"


def _all_or_some(value: Any) -> str:
    return "all" if isinstance(value, list) or not isinstance(value, Mapping | Strict) else "some"


Number = Annotated[
    Annotated[int, Field(ge=0), Tag("number")] | Annotated[Bounds, Tag("bounds")], Discriminator(_number_or_bounds)
]
End = Annotated[int, Field(ge=0)]
Mechanism = Literal[MECHANISMS]  # type: ignore[valid-type]


class SomeEnds(Strict):
    """Chunk ends that occur, among others."""

    contains: Annotated[list[End], Field(min_length=1)]
    """Ends of prefill chunks (under `findings`: findings) that occur, among others."""


Ends = Annotated[Annotated[list[End], Tag("all")] | Annotated[SomeEnds, Tag("some")], Discriminator(_all_or_some)]


SEVERITIES = tuple(word.value for word in Severity)
HOLDINGS = (*(word.value for word in Holding), "")
SeverityName = Literal[SEVERITIES]  # type: ignore[valid-type]
HoldingName = Literal[HOLDINGS]  # type: ignore[valid-type]


class FindingModel(Strict):
    """A finding; only the keys given are compared."""

    invariant: Invariant | None = None
    """An invariant, `I1` and so on (docs/invariants.md)."""
    severity: SeverityName | None = None
    """Severity; the order in which findings are shown."""
    step: Annotated[int, Field(ge=0)] | None = None
    """The step at whose end it was found."""
    request: str | None = None
    """The id of the request concerned."""
    group: str | None = None
    """The name of the group."""
    column: int | None = None
    """Index into the request's block table of that group."""
    claimed: int | None = None
    """The offset that the hash claims, tokens."""
    held: int | None = None
    """The offset that the slot holds, tokens; null where it holds none."""
    verdict: HoldingName | None = None
    """Content of the slot, in a word."""
    root: bool | None = None
    """Root cause, rather than downstream of another finding."""

    @model_validator(mode="after")
    def _something(self) -> FindingModel:
        if not self.model_fields_set:
            raise ValueError("found an empty mapping, allowed at least one key of a finding")
        return self


class SomeFindings(Strict):
    """Findings that occur, among others."""

    contains: Annotated[list[FindingModel], Field(min_length=1)]
    """Each of them matches a finding of its own."""


Findings = Annotated[
    Annotated[list[FindingModel], Tag("all")] | Annotated[SomeFindings, Tag("some")], Discriminator(_all_or_some)
]


def _counted() -> type[Strict]:
    """Return a model with a key for each count that an expectation may name."""
    fields: dict[str, Any] = {
        name: (bool | None if count.total is any else Number | None, Field(None, description=count.says))
        for name, count in COUNTS.items()
        if count.expected
    }
    return create_model("Counted", __base__=Strict, **fields)


if TYPE_CHECKING:
    Counted = Strict
else:
    Counted = _counted()


class Expectation(Counted):
    """Expectation of a run. A number is exact, or {min, max}; `poisoned: 0` needs a hit as well: hit_tokens,
    resume_hit_tokens or hits with a positive minimum (with an offload tier also loaded_tokens or loads), or `vacuous`
    with the reason why not."""

    exact: Number | None = None
    """Claimed slots that hold the true state bit for bit; not compared where the state family is `digest`."""
    noise: Number | None = None
    """Claimed slots that hold the right state with other bits (rounding, or the shape of chunks); not compared
    where the state family is `digest`."""
    not_finite: Number | None = None
    """Claimed slots that hold NaN or infinity."""
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """The digest of every decision (docs/scenario-files.md#expectations)."""
    ends: dict[str, Ends] | None = None
    """Ends of the prefill chunks by request id, tokens, in order; for the first 1000 requests."""
    hits: dict[str, Number] | None = None
    """Tokens by request id, skipped by the hit of its first admission; for the first 1000 requests."""
    loads: dict[str, Number] | None = None
    """Tokens by request id that an offload tier or a connector brought at its first admission; for the first 1000
    requests."""
    findings: Findings | None = None
    """A list: these findings and no other, in any order. `contains`: these among others."""
    invariants: dict[Invariant, Number] | None = None
    """Number of findings by invariant, of any severity."""
    vacuous: Annotated[str, Field(min_length=1)] | None = None
    """Reason why `poisoned: 0` means something although no hit is expected."""


class VariantExpectation(Expectation):
    """Expectation of a variant: the sum of its cases, and each case."""

    cases: dict[str, Expectation] | None = None
    """Expectations by name of a case; the other keys hold for the sum of all cases."""


class Override(Strict):
    """Changes of a variant or a case: maps merge, lists replace, a map of another `kind` replaces."""

    # Validated after merging, as a whole: see stateat.sim.scenario.load.
    preset: SkipValidation[str] | None = None
    """Short for `engine.preset`."""
    rules: SkipValidation[dict[str, str]] | None = None
    """Short for `engine.rules`."""
    engine: SkipValidation[Options] | None = None
    """Changes of the engine."""
    workload: SkipValidation[Workload] | None = None
    """Changes of the workload."""
    oracle: SkipValidation[Truth] | None = None
    """Changes of the oracle."""
    expect: SkipValidation[VariantExpectation] | None = None
    """Expectation of the variant or case."""


class File(Strict):
    """A scenario of stateat: an engine, a workload, variants to compare and what each must come to."""

    schema_: Annotated[Literal["stateat/1"], Field(alias="schema")]
    """The version of this format."""
    name: Name
    """A short name."""
    title: str = ""
    """One line for people."""
    source: str = ""
    """Source of the case: an issue, a pull request, a paper."""
    mechanism: Annotated[list[Mechanism], Field(max_length=8)] = Field(default_factory=list)
    """The classes of fault that it shows, `M1` and so on (docs/mechanisms.md)."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of all that is drawn: arrivals, lengths, prefixes, acceptance."""
    engine: SkipValidation[Options] | None = None
    """The engine; variants may change it."""
    workload: SkipValidation[Workload] | None = None
    """The requests; variants may change them."""
    oracle: SkipValidation[Truth] | None = None
    """Computation of the truth."""
    variants: Annotated[dict[Name, Override], Field(min_length=1, max_length=1000)] | None = None
    """Variants by name: what to run and compare; without it the file is the one variant, named after its preset."""
    cases: Annotated[dict[Name, Override], Field(min_length=1, max_length=1000)] | None = None
    """Cases by name: changes that are crossed with the variants; a variant's outcome is the sum over its cases."""
    expect: SkipValidation[VariantExpectation] | None = None
    """Expectation of the run; with variants each has its own."""


class Whole(Strict):
    """One variant and case after merging."""

    engine: Options
    """The engine."""
    workload: Workload
    """The requests."""
    oracle: Truth = DIGEST
    """Computation of the truth."""
