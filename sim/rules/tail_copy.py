"""Copies of a partial tail: what happens to a block that is published inside when its owner, or a follower, writes on.

Such a hash says state@24 of a block of 32, so that nobody may write on in it: the owner, whose table only grows,
stays on it and the claim moves to a copy; a follower gets a copy of its own. The copies come before all else of the
step, in the order in which they were asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateat.sim.rules.record import Rule, Standing, Value


@dataclass(frozen=True, slots=True)
class TailCopy:
    """Ways to keep a published tail as it is, in recurrent groups; attention only appends."""

    owner_copies: bool = True
    """True if the owner makes a copy before it writes on."""
    follower_copies: bool = True
    """True if a request that hits the tail makes a copy before it writes on."""
    moves_claims: bool = True
    """True: the owner's claims go to the copy; False: they stay with the block that it writes on."""
    rearms: bool = True
    """True if a claim that has just moved counts as published in this step, so that a hit on it waits."""
    ordered: bool = True
    """True if copies run in the order in which they were asked for, so that one may read what another wrote."""
    late: bool = False
    """True if a tail is published a step after it was computed, without a copy."""


TAIL_COPY: Rule[TailCopy] = Rule(
    "How is a block that is published inside (a partial tail) kept as it is when its owner writes on, or another "
    "request starts there?",
    {
        "copied": Value(
            TailCopy(),
            "The owner stays on it and its claims move to a copy, made before the step's forward pass; a hit on that "
            "copy waits a step. A request that hits the tail gets a copy of its own.",
            "vLLM to 0.33",
        ),
        "owner-in-place": Value(
            TailCopy(owner_copies=False),
            "Not at all for its owner, which writes on in it; a request that hits it gets a copy.",
            "the control",
            Standing.FAULT,
        ),
        "follower-in-place": Value(
            TailCopy(follower_copies=False),
            "Not at all for a request that hits it, which writes on in it; the owner's claims move to a copy.",
            "the control",
            Standing.FAULT,
        ),
        "claim-stays": Value(
            TailCopy(moves_claims=False),
            "The copy is made, but the claims stay with the block that the owner writes on.",
            "the control",
            Standing.FAULT,
        ),
        "not-rearmed": Value(
            TailCopy(rearms=False, ordered=False),
            "As `copied`, but a moved claim can be hit in the same step, and copies run last asked first.",
            "the control",
            Standing.FAULT,
        ),
        "published-late": Value(
            TailCopy(owner_copies=False, late=True),
            "The tail is published when its owner is scheduled again, without a copy.",
            "the control",
            Standing.FAULT,
        ),
    },
)
