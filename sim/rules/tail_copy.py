"""What happens to a block that is published inside (a partial tail) when its owner, or a follower, writes on.

Such a hash says state@24 of a block of 32, so that nobody may write on in it: the owner, whose table only grows,
stays on it and the claim moves to a copy; a follower gets a copy of its own. The copies come before all else of the
step, in the order in which they were asked for.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartialHit:
    """How a release keeps a published tail as it is. Recurrent groups; attention only appends."""

    owner_copies: bool = True
    """Whether the owner makes a copy before it writes on."""
    follower_copies: bool = True
    """Whether a request that hits the tail does."""
    moves_claims: bool = True
    """Whether the owner's claims go to the copy, or stay with the block that it writes on."""
    rearms: bool = True
    """Whether a claim that has just moved counts as published in this step, so that a hit on it waits."""
    ordered: bool = True
    """Whether copies run in the order in which they were asked for, so that one may read what another wrote."""
    late: bool = False
    """Whether a tail is published a step after it was computed, without a copy."""


PARTIAL_HITS: dict[str, object] = {
    "copied": PartialHit(),
    "owner-in-place": PartialHit(owner_copies=False),
    "follower-in-place": PartialHit(follower_copies=False),
    "claim-stays": PartialHit(moves_claims=False),
    "not-rearmed": PartialHit(rearms=False, ordered=False),
    "published-late": PartialHit(owner_copies=False, late=True),
}
