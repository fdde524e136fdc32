"""What a look-ahead drafter gives up: its state at a block's end depends on the token behind it."""

from __future__ import annotations

from dataclasses import dataclass

from sim.engine.options import Options


@dataclass(frozen=True, slots=True)
class Guard:
    """How a release guards a drafter against what a hash does not cover."""

    drops: bool
    """It gives up the last block of a hit, or the last hash unit where hits are finer."""
    optional: bool = False
    """Whether ``speculative.block_drop`` can turn that off."""
    past_the_end: bool = False
    """Whether the lookup may match a block past the last token but one, and drop it (0.32), or not (0.29)."""
    flags_drop: bool = False
    """Whether a group that is flagged for the drafter drops even when that is turned off (0.32)."""
    hashes_ahead: bool = False
    """Whether hashes cover the tokens behind their block in its stead (0.33)."""

    def ahead(self, options: Options) -> int:
        """Tokens behind a block that its hash covers."""
        s = options.speculative
        wanted = self.hashes_ahead and s.hash_lookahead and s.block_drop and options.enable_prefix_caching
        return s.prefill_lookahead if wanted else 0

    def drop(self, options: Options) -> bool:
        """Whether something is given up of each hit."""
        s = options.speculative
        return self.drops and s.eagle and (s.block_drop or not self.optional) and not self.ahead(options)

    def lookup_drops(self, options: Options) -> bool:
        """Whether the lookup gives something up."""
        flagged = self.flags_drop and options.speculative.eagle and any(g.eagle for g in options.groups)
        return self.drop(options) or flagged


GUARDS: dict[str, object] = {
    "drop": Guard(drops=True),
    "drop-at-hashed": Guard(drops=True, optional=True, past_the_end=True, flags_drop=True),
    "look-ahead-hash": Guard(drops=True, optional=True, past_the_end=True, hashes_ahead=True),
    "ignore": Guard(drops=False),
}
