"""Invariants, one record each: the auditor is assembled from this list, and docs/invariants.md is printed from it.

A check that needs no memory of its own has a :class:`Moment`, at which the auditor asks it. The others follow slots or
requests from event to event, so the auditor feeds them; what they say of themselves stands in their modules' heads,
under *Verified* and *Not verified*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from stateat.oracle.acceptance import Acceptance
from stateat.oracle.agreement import check_agreement
from stateat.oracle.chunks import check_shape, check_start
from stateat.oracle.claims import Claims
from stateat.oracle.grid import check_grid
from stateat.oracle.liveness import check_progress
from stateat.oracle.lockstep import Lockstep
from stateat.oracle.numerics import Numerics
from stateat.oracle.ownership import Ownership
from stateat.oracle.reachability import Reachability
from stateat.oracle.reads import Reads
from stateat.sim.events import Invariant, Severity


class Moment(Enum):
    """Moment at which the auditor asks a check, and with what."""

    RUN = auto()
    """The geometry is told: evidence, options."""
    RESTORE = auto()
    """A hit in one group: evidence, claims, request, group, slot, column, offset, group_hits."""
    CHUNK = auto()
    """A chunk is decided: evidence, request, what was seen of it, start, end, stop."""
    PREFILL = auto()
    """The same, of chunks that start before the prefill's end."""
    LIVELOCK = auto()
    """A run ended because nothing moved: evidence, requests that ended, steps, time in microseconds."""


@dataclass(frozen=True, slots=True)
class Check:
    """Invariant: where it is checked, and scenarios that break and keep it."""

    invariant: Invariant
    severity: Severity
    check: Callable[..., Any]
    trips: str
    """Scenario file and variant that break it; or why there is none."""
    keeps: str
    """The nearest variant that keeps it."""
    moment: Moment | None = None
    """Moment at which it is asked; None: the auditor feeds it with each event that it follows."""
    also: Callable[..., Any] | None = None
    """A second check of the same law."""


def _file(path: str, variant: str) -> str:
    return f"`{path}.yaml` ({variant})"


def _field(name: str, variant: str) -> str:
    return _file(f"scenarios/field/{name}", variant)


S02, S03 = "scenarios/seeds/s02-anatomy", "scenarios/seeds/s03-resume-mid-block"

CHECKS = (
    Check(
        Invariant.I1, Severity.POISON, Claims.check_content, _file(S02, "old gate"), _file(S02, "fixed gate")
    ),
    Check(
        Invariant.I2, Severity.SHAPE, check_shape, _file(S03, "old gate"), _file(S03, "fixed gate"), Moment.PREFILL
    ),
    Check(
        Invariant.I3, Severity.SHAPE, check_grid,
        _field("split-and-seed-are-two-faults", "neither mended"),
        _field("split-and-seed-are-two-faults", "both mended"),
        Moment.RUN,
    ),
    Check(
        Invariant.I4, Severity.LOSS, Reachability.count_boundaries,
        _field("replay-boundary", "before"),
        _field("replay-boundary", "PR 50409"),
    ),
    Check(
        Invariant.I5, Severity.POISON, check_agreement,
        _field("neither-least-nor-most", "the most"),
        _field("neither-least-nor-most", "in all of them"),
        Moment.RESTORE,
    ),
    Check(
        Invariant.I6, Severity.POISON, check_start,
        _field("padded-clipped", "0.27.0"),
        _field("padded-clipped", "placeholders dropped"),
        Moment.CHUNK,
    ),
    Check(
        Invariant.I7, Severity.HAZARD, Ownership._check_commit,
        _field("hit-in-the-same-step", "at once"),
        _field("hit-in-the-same-step", "in the next step"),
    ),
    Check(
        Invariant.I8, Severity.HAZARD, Ownership._check_owner,
        _field("freed-while-in-flight", "freed at once"),
        _field("freed-while-in-flight", "freed when the step has run"),
        also=Ownership._check_reader,
    ),
    Check(
        Invariant.I9, Severity.HAZARD, Ownership._check_immutable,
        _field("external-tokens-inside-a-block", "when given a block"),
        _field("external-tokens-inside-a-block", "when scheduled"),
    ),
    Check(
        Invariant.I10, Severity.POISON, Reads.check_read,
        _file("docs/examples/same-step-hit", "at once"),
        _file("docs/examples/same-step-hit", "refused"),
    ),
    Check(
        Invariant.I11, Severity.SHAPE, Acceptance.check_count,
        _field("accepted-count-out-of-range", "one too many"),
        _field("accepted-count-out-of-range", "its own"),
    ),
    Check(
        Invariant.I12, Severity.POISON, Reads.check_read,
        _file("docs/examples/forgetful-worker", "worker v1"),
        _file("docs/examples/forgetful-worker", "worker v2"),
        also=Reads.check_boundary,
    ),
    Check(
        Invariant.I13, Severity.POISON, Lockstep.check_window,
        _field("components-of-a-slot-apart", "the inputs are not shifted"),
        _field("components-of-a-slot-apart", "as it should be"),
    ),
    Check(
        Invariant.I14, Severity.LIVENESS, check_progress,
        _file("docs/examples/livelock", "old gate"),
        _file("docs/examples/livelock", "fixed gate"),
        Moment.LIVELOCK,
    ),
    Check(
        Invariant.I16, Severity.LOSS, Ownership._check_retention,
        _field("retirement-stops-at-a-gap", "stops at null gaps"),
        _field("retirement-stops-at-a-gap", "walks gaps"),
    ),
    # The same function as I6, which the auditor asks once.
    Check(
        Invariant.I17, Severity.HONESTY, check_start,
        _field("reported-before-the-load-failed", "reported first"),
        _field("reported-before-the-load-failed", "reported when it has failed"),
    ),
    Check(
        Invariant.I18, Severity.NUMERICS, Numerics.settle,
        "no scenario: no family here overflows; one made by hand does, in the tests",
        _field("components-of-a-slot-apart", "as it should be"),
    ),
)  # fmt: skip
