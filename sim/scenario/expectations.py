"""Keys of an expectation by how they are compared, and what a number in it pins."""

from __future__ import annotations

from collections.abc import Mapping

PLAIN = ("livelock", "digest")
"""Keys compared as they are; the others but those below are numbers."""
MEASURED = ("exact", "noise", "not_finite")
"""Keys that only a family with numbers has; ``digest`` says nothing of them."""
WRONG = ("wrong_restores", "wrong_reads", "tainted_requests")
"""Numbers that expect something grave, unless they are pinned to 0."""
STRUCTURED = ("ends", "hits", "loads", "findings", "invariants", "vacuous", "cases")
UNCOMPARED = ("vacuous", "cases")
"""Of those, what is nothing that a run can come to."""
FINDING_KEYS = (
    "invariant", "severity", "step", "request", "group", "column", "claimed", "held", "verdict", "root",
)  # fmt: skip


def pins_to_zero(wanted: int | Mapping[str, int | None] | None) -> bool:
    """Whether a number must be 0."""
    return (wanted.get("max") == 0) if isinstance(wanted, Mapping) else wanted == 0
