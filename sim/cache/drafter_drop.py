"""Drop: the part of a hit that a look-ahead drafter gives up, since its state depends on the token behind the block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from stateat.sim.cache.lookup import StateSearch, flagged_or_all
from stateat.sim.cache.state_drop import gains, pops, pops_to_null, searches_again
from stateat.sim.events import Group
from stateat.sim.options import INFILL_METHODS, Options
from stateat.sim.rules.record import Lack, Rule, Standing, Value

Scope = Callable[[Sequence[Group]], Collection[int]]
"""The groups that give something up."""


def flagged(groups: Sequence[Group]) -> Collection[int]:
    """Return the groups that are flagged for the drafter, be it none."""
    return {i for i, g in enumerate(groups) if g.eagle}


def everyone(groups: Sequence[Group]) -> Collection[int]:
    """Return all groups, whichever are flagged."""
    return range(len(groups))


@dataclass(frozen=True, slots=True)
class DrafterDrop:
    """Guard of a release for a drafter, against tokens that a hash does not cover."""

    drops: bool
    """True if the drafter gives up the last block of a hit, or the last hash unit where hits are finer."""
    optional: bool = False
    """``speculative.block_drop`` can turn that off."""
    past_the_end: bool = False
    """The lookup may match a block past the last token but one, and drop it (0.32)."""
    flags_drop: bool = False
    """A group that is flagged for the drafter drops even when that is turned off (0.30)."""
    hashes_ahead: bool = False
    """Hashes cover the tokens behind their block in its stead (0.33)."""
    spares_infill: bool = False
    """A drafter that fills in (dflash, dspark) gives nothing up: its states do not depend on the next token (0.33)."""
    scope: Scope = flagged_or_all
    """Groups whose hits are cut."""
    scopes_split: bool = False
    """The split, and what is kept for a repeat, backs off only if a recurrent group is in the scope."""
    states: StateSearch | None = None
    """Search of a recurrent group that takes part in the drop; None: it does not, as in all releases."""

    def _looks_ahead(self, options: Options) -> bool:
        s = options.speculative
        return s.eagle and not (self.spares_infill and s.method in INFILL_METHODS)

    def ahead(self, options: Options) -> int:
        """Count the tokens behind a block that its hash covers: none beside a tier, whose connector keeps hashes as
        they were."""
        s = options.speculative
        wanted = self.hashes_ahead and s.hash_lookahead and s.block_drop and options.enable_prefix_caching
        wanted = wanted and not options.offload.blocks
        return s.prefill_lookahead if wanted and self._looks_ahead(options) else 0

    def drop(self, options: Options) -> bool:
        """Return True if something is given up of each hit."""
        scope = self.scope(options.groups)
        if self.scopes_split and not any(i in scope for i in options.recurrent):
            return False
        return self._given_up(options)

    def lookup_drops(self, options: Options) -> bool:
        """Return True if the lookup gives something up."""
        return self._given_up(options) or self._flags_drop(options)

    def replay_drops(self, options: Options) -> bool:
        """Return True if what retention keeps for a repeat lies a block lower: where the lookup of some group drops
        one."""
        return self.drop(options) or self._flags_drop(options)

    def marks(self, options: Options) -> bool:
        """Return True if a look-ahead drafter has groups of its own: those that are flagged, whatever they give up, or
        all if none is and something is given up (vLLM's ``eagle_group_ids``)."""
        return self._flagged(options) or self._given_up(options)

    def _flagged(self, options: Options) -> bool:
        return options.speculative.eagle and any(g.eagle for g in options.groups)

    def _flags_drop(self, options: Options) -> bool:
        return self.flags_drop and self._flagged(options)

    def _given_up(self, options: Options) -> bool:
        wanted = options.speculative.block_drop or not self.optional
        wanted = wanted and self.drops and len(self.scope(options.groups)) > 0
        return wanted and self._looks_ahead(options) and not self.ahead(options)


def _always_drops(options: Options) -> Iterator[Lack]:
    if not options.speculative.block_drop:
        yield Lack(("speculative", "block_drop"), "false", "true")


DRAFTER_DROP: Rule[DrafterDrop] = Rule(
    "What of a hit does a look-ahead drafter give up, because its state there depends on the token behind it?",
    {
        "drop": Value(
            DrafterDrop(drops=True),
            "The last block of the hit, or the last hash unit where hits are finer than a block.",
            "vLLM to 0.29",
            lacks=_always_drops,
        ),
        "drop-optional": Value(
            DrafterDrop(drops=True, optional=True, flags_drop=True),
            "As `drop`; `speculative.block_drop: false` turns it off, but not in the lookup of a group with "
            "`eagle: true`.",
            "vLLM 0.30",
        ),
        "drop-at-hashed": Value(
            DrafterDrop(drops=True, optional=True, past_the_end=True, flags_drop=True),
            "As `drop-optional`; what is dropped may lie past the last token but one, unless a group is alone.",
            "vLLM 0.32",
        ),
        "look-ahead-hash": Value(
            DrafterDrop(drops=True, optional=True, past_the_end=True, hashes_ahead=True, spares_infill=True),
            "Nothing: a block's hash covers the tokens behind it that the drafter reads. Without "
            "`speculative.hash_lookahead` one block or unit, past the end as well; without `block_drop`, and with "
            "`dflash` and `dspark`, neither. Beside an offload tier as without `hash_lookahead`.",
            "vLLM 0.33",
        ),
        "drop-eagle-family": Value(
            DrafterDrop(drops=True, spares_infill=True),
            "As `drop`, but `dflash` and `dspark` give nothing up: what they read does not depend on the next token.",
            "vLLM 0.33, of the drop alone",
            Standing.PROPOSAL,
            _always_drops,
        ),
        "drop-all-groups": Value(
            DrafterDrop(drops=True, scope=everyone),
            "As `drop`, of all groups, whichever are flagged (`eagle`).",
            "the reports behind PR 54041",
            Standing.FAULT,
            _always_drops,
        ),
        "drop-flagged": Value(
            DrafterDrop(drops=True, scope=flagged, scopes_split=True),
            "As `drop`, of the flagged groups alone, even if there is none; the split, and what is retained, backs off "
            "only if a recurrent group is among them.",
            "PRs 54041, 51250",
            Standing.PROPOSAL,
            _always_drops,
        ),
        "raise": Value(
            DrafterDrop(drops=True, states=gains),
            "As `drop`; but a recurrent group searches one block or unit past the candidate and then drops nothing, so "
            "that its hit may be longer than the candidate.",
            "issue 45614",
            Standing.FAULT,
            _always_drops,
        ),
        "pop": Value(
            DrafterDrop(drops=True, states=pops),
            "As `drop`; but a recurrent group takes its last block off, which is its only one.",
            "issue 48375",
            Standing.FAULT,
            _always_drops,
        ),
        "pop-to-null": Value(
            DrafterDrop(drops=True, states=pops_to_null),
            "As `pop`, and the null columns that are left count as a hit.",
            "vllm-ascend issue 12038",
            Standing.FAULT,
            _always_drops,
        ),
        "re-search": Value(
            DrafterDrop(drops=True, states=searches_again),
            "As `drop`; but a recurrent group takes the last state that lies a block (or unit) before its own.",
            "issue 48375",
            Standing.PROPOSAL,
            _always_drops,
        ),
        "ignore": Value(DrafterDrop(drops=False), "Nothing.", "the control", Standing.FAULT),
    },
)
