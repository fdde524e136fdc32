"""``digest``: a state that is the 128-bit fingerprint of the tokens absorbed (:mod:`stateat.sim.tokens`).

Any wrong token, order, repetition, owner or offset changes it; an advance costs O(1).
"""

from __future__ import annotations

from collections.abc import Sequence

from stateat.sim.tokens import EMPTY, Fingerprint, Tokens, append


class DigestFamily:
    """The fingerprint family."""

    name = "digest"

    def zero(self) -> Fingerprint:
        """No tokens absorbed."""
        return EMPTY

    def advance(self, state: Fingerprint, tokens: Tokens, start: int, end: int, drafts: Sequence[int]) -> Fingerprint:
        """State after tokens [start, end) of the stream, and then ``drafts``."""
        if end > start:
            state = tokens.advance(state, start, end)
        for draft in drafts:
            state = append(state, draft)
        return state

    def state_at(self, tokens: Tokens, offset: int) -> Fingerprint:
        """The fingerprint of the first ``offset`` tokens."""
        return tokens.fingerprint(offset)

    def equal(self, one: Fingerprint, other: Fingerprint) -> bool:
        """Equal in both lanes."""
        return one == other

    def find(self, state: Fingerprint, tokens: Tokens) -> int | None:
        """The offset whose prefix has this fingerprint."""
        return tokens.find(state)
