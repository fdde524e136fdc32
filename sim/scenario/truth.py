"""What a scenario and the command line may say of the truth: a state family, and how its numbers are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stateat.kernels.families import CHUNKED, FAMILIES, shape
from stateat.sim.schema import choice

STATES = ("digest", *FAMILIES)
SEVERAL = "several"
"""In the sum of cases that have different ones."""
FLOATING = tuple(family for family in FAMILIES if family != "ring")


@dataclass(frozen=True, slots=True)
class Truth:
    """What the oracle computes with."""

    state: str = "digest"
    """``FAMILY`` or ``FAMILY:PRESET``."""
    dtype: str = "float32"
    kernel: str = "sequential"
    rounding: str = "nearest"
    backend: str = "auto"
    device: str = "auto"

    @property
    def family(self) -> str:
        return self.state.partition(":")[0]


DIGEST = Truth()


def told(truth: Truth) -> dict[str, str]:
    """What a log says of it: the family, and of what its numbers follow from all that is not as by default. Backend
    and device are of the machine that computes."""
    numbers = {key: getattr(truth, key) for key in ("dtype", "kernel", "rounding")}
    return {"state": truth.state} | {key: value for key, value in numbers.items() if value != getattr(DIGEST, key)}


def changed(truth: Truth, changes: Mapping[str, str]) -> Truth:
    """With these fields in place of the truth's own; of those that stay, what another family lacks is its default."""
    asked: Truth = replace(truth, **changes)
    if "state" not in changes:
        return asked
    numbers, chunks = asked.family not in ("digest", "ring"), asked.family in CHUNKED
    fitting = {"dtype": numbers, "rounding": numbers and asked.dtype != "float32", "kernel": chunks}
    lost = {key: getattr(DIGEST, key) for key, fits in fitting.items() if not fits and key not in changes}
    return replace(asked, **lost)


def wrong(truth: Truth, recurrent: bool) -> tuple[str, str] | None:
    """The key that is wrong, and why; ``recurrent``: whether some group is."""
    family, sign, preset = truth.state.partition(":")
    if family not in STATES:
        return "state", choice(family, STATES)
    if sign and not preset:
        return "state", f"found {truth.state!r}, allowed {family}, or {family}:PRESET"
    if family == "digest":
        if sign:
            return "state", f"found {truth.state!r}, allowed digest without a preset: it has no widths"
        for key, given in (("dtype", truth.dtype), ("kernel", truth.kernel), ("rounding", truth.rounding)):
            if given != getattr(DIGEST, key):
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
    if family == "ring" and (truth.dtype, truth.rounding) != ("float32", "nearest"):
        key, given = ("dtype", truth.dtype) if truth.dtype != "float32" else ("rounding", truth.rounding)
        return key, f"found {given}, but ring is exact in 64-bit integers; leave it out"
    if truth.rounding == "stochastic" and truth.dtype == "float32":
        return "rounding", "found stochastic with dtype float32, where nothing is rounded; allowed bfloat16, float16"
    if truth.kernel == "chunked" and family not in CHUNKED:
        return "kernel", f"found chunked, which {family} does not have; allowed with {', '.join(CHUNKED)}"
    return None
