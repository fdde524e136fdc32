"""Truth: what a scenario and the command line may say of it; a state family, and how its numbers are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal

from pydantic import Field

from stateat.kernels.families import BACKENDS, CHUNKED, DEVICES, DTYPES, FAMILIES, FORMS, ROUNDINGS, shape
from stateat.sim.schema import StrictRecord, choice

STATES = ("digest", *FAMILIES)
SEVERAL = "several"
"""State in the sum of cases that have different ones."""
FLOATING = tuple(name for name, family in FAMILIES.items() if not family.exact)
"""Families whose states are floating-point numbers."""
_KEYS = {"form": "kernel"}
"""Fields that files, logs and JSON know by another key."""
_FIELDS = {key: name for name, key in _KEYS.items()}


@dataclass(frozen=True, slots=True)
class Truth(StrictRecord):
    """State family, and the arithmetic in which the truth is computed."""

    state: str = "digest"
    """The state family (docs/states.md): `digest`, a 128-bit fingerprint of the tokens absorbed; `ring`,
    `gated-delta`, `kda`, `ssd`, `selective-scan` or `short-conv`, arrays beside it, of a model's widths behind a
    colon (`gated-delta:qwen3-next`)."""
    dtype: Literal[DTYPES] = "float32"  # type: ignore[valid-type]
    """Type in which a state is stored between chunks."""
    form: Annotated[Literal[FORMS], Field(alias=_KEYS["form"])] = "sequential"  # type: ignore[valid-type]
    """Form of the computation. `sequential`: float32 bits do not depend on how a prompt is cut; `chunked`, as
    prefill kernels: they do."""
    rounding: Literal[ROUNDINGS] = "nearest"  # type: ignore[valid-type]
    """Rounding to a narrower dtype: to `nearest`, or `stochastic`, which draws from the scenario's seed."""
    backend: Literal[BACKENDS] = "auto"  # type: ignore[valid-type]
    """Library that computes the states: `auto` is Triton where there is a GPU, else torch, else NumPy."""
    device: Literal[DEVICES] = "auto"  # type: ignore[valid-type]
    """Device that computes them: `auto` is the GPU where there is one."""

    @property
    def family(self) -> str:
        """Name of the family, without a preset."""
        return self.state.partition(":")[0]

    @property
    def stored(self) -> str:
        """Dtype of a stored entry: an exact family has its own."""
        family = FAMILIES.get(self.family)
        return family.dtype if family is not None and family.exact else self.dtype

    @property
    def keyed(self) -> dict[str, str]:
        """Values by the keys of a file."""
        return {_KEYS.get(field.name, field.name): getattr(self, field.name) for field in fields(self)}


DIGEST = Truth()


def told(truth: Truth) -> dict[str, str]:
    """Return what a log says of it: the state, and what else its numbers follow from, where it is not the default.

    Backend and device are of the machine that computes, and left out.
    """
    numbers = {key: value for key, value in truth.keyed.items() if key not in ("state", "backend", "device")}
    default = DIGEST.keyed
    return {"state": truth.state} | {key: value for key, value in numbers.items() if value != default[key]}


def changed(truth: Truth, changes: Mapping[str, str]) -> Truth:
    """Return the truth with changes, by the keys of a file; values that another family lacks become the default."""
    asked: Truth = replace(truth, **{_FIELDS.get(key, key): value for key, value in changes.items()})
    if "state" not in changes:
        return asked
    numbers, chunks = asked.family in FLOATING, asked.family in CHUNKED
    fitting = {"dtype": numbers, "rounding": numbers and asked.dtype != "float32", "kernel": chunks}
    default = DIGEST.keyed
    lost = {key: default[key] for key, fits in fitting.items() if not fits and key not in changes}
    return replace(asked, **{_FIELDS.get(key, key): value for key, value in lost.items()})


def wrong(truth: Truth, recurrent: bool) -> tuple[str, str] | None:
    """Return the key that is wrong, and why; ``recurrent``: some group is."""
    family, sign, preset = truth.state.partition(":")
    if family not in STATES:
        return "state", choice(family, STATES)
    if sign and not preset:
        return "state", f"found {truth.state!r}, allowed {family}, or {family}:PRESET"
    if family == "digest":
        if sign:
            return "state", f"found {truth.state!r}, allowed digest without a preset: it has no widths"
        for key, given in (("dtype", truth.dtype), ("kernel", truth.form), ("rounding", truth.rounding)):
            if given != DIGEST.keyed[key]:
                return (
                    key,
                    f"found {given} with state digest, which has no numbers; allowed with {', '.join(FLOATING)}",
                )
        for key, given in (("backend", truth.backend), ("device", truth.device)):
            if given != "auto":
                return key, f"found {given} with state digest, which needs none; allowed with {', '.join(FAMILIES)}"
        return None
    try:
        shape(family, preset or "small")
    except ValueError as error:
        return "state", f"found {truth.state!r}: {error}"
    if not recurrent:
        return "state", f"found {family}, but no group is recurrent; allowed digest"
    if FAMILIES[family].exact and (truth.dtype, truth.rounding) != ("float32", "nearest"):
        key, given = ("dtype", truth.dtype) if truth.dtype != "float32" else ("rounding", truth.rounding)
        return key, f"found {given}, but {family} is exact in 64-bit integers; leave it out"
    if truth.rounding == "stochastic" and truth.dtype == "float32":
        return "rounding", "found stochastic with dtype float32, where nothing is rounded; allowed bfloat16, float16"
    if truth.form == "chunked" and family not in CHUNKED:
        return "kernel", f"found chunked, which {family} does not have; allowed with {', '.join(CHUNKED)}"
    return None
