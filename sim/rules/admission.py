"""What becomes of a waiting request that cannot be admitted, and of those behind it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Admission:
    """What of a request that can never fit."""

    rejects: bool
    """Whether it is refused for good, with a reason, or waits for ever."""
    piecemeal: bool = False
    """Whether a refusal for want of blocks comes when some were taken, which then are nobody's (SGLang 36770)."""


ADMISSIONS: dict[str, object] = {
    "wait": Admission(rejects=False),
    "reject": Admission(rejects=True),
    "piecemeal": Admission(rejects=False, piecemeal=True),
}
"""vLLM to 0.33 waits (issues 52520, 52530)."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Whether a waiting request that gets nothing in a step lets those behind it be asked."""

    capped: bool = False
    """If the encoder's cap, or what a look-ahead drafter holds back, left it no token (vLLM 0.33)."""
    deferred: bool = False
    """If the split left it no token: the rest of a budget that is less than a block (vLLM issue 45414)."""
    refused: bool = False
    """If it was refused: blocks, watermark, a hit of the same step."""

    def steps_aside(self, deferred_by: str) -> bool:
        """``deferred_by``: the stop that left it no token; '': it was refused."""
        if not deferred_by:
            return self.refused
        return self.deferred or (self.capped and deferred_by in ("encoder", "look-ahead"))


BLOCKED: dict[str, object] = {
    "stop": Blocked(),
    "skip-capped": Blocked(capped=True),
    "skip-deferred": Blocked(capped=True, deferred=True),
    "skip": Blocked(capped=True, deferred=True, refused=True),
}
