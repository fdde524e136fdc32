"""Keys of an expectation by how they are compared."""

from __future__ import annotations

PLAIN = ("livelock", "digest")
"""Keys compared as they are; the others but those below are numbers."""
MEASURED = ("exact", "noise", "not_finite")
"""Keys that only a family with numbers has; ``digest`` says nothing of them."""
WRONG = ("wrong_restores", "wrong_reads", "tainted_requests")
"""Numbers that expect something grave, unless they are pinned to 0."""
STRUCTURED = ("ends", "hits", "loads", "findings", "invariants", "vacuous", "cases")
UNCOMPARED = ("vacuous", "cases")
"""Keys among them that are nothing a run can come to."""
FINDING_KEYS = (
    "invariant", "severity", "step", "request", "group", "column", "claimed", "held", "verdict", "root",
)  # fmt: skip
