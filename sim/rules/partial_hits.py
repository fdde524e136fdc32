"""Partial hits, finer than a block: a recurrent state inside its block can be hit, and every group is cut there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stateat.sim.events import Group
from stateat.sim.options import Options
from stateat.sim.rules.record import Rule, Value


def nobody(group: Group) -> bool:
    """Ask no group (vLLM to 0.27, which stops with an assertion where a window cannot)."""
    return False


def everyone(group: Group) -> bool:
    """Ask every group, even one whose blocks are scratch (vLLM 0.28)."""
    return True


def cacheable(group: Group) -> bool:
    """Ask every group that takes part in prefix caching (vLLM 0.29)."""
    return group.prefix_cacheable


@dataclass(frozen=True, slots=True)
class PartialHitsWhen:
    """Configurations in which a release has partial hits, if the option ``partial_hits`` allows them."""

    asked: Callable[[Group], bool]
    """Groups that must be able to; windows and scratch are not, unless their block is the hash unit."""
    parallel: bool = True
    """True if context parallelism has them too, for states as wide as the hash unit already that are not alone."""
    tails_alone: bool = False
    """True if chunks stop at a prompt's tail without them too, where the hash unit is less than a scheduler block."""

    def on(self, options: Options) -> bool:
        """Return True if these options get partial hits."""
        unit, ranks = options.hash_unit, options.decode_context_parallel_size
        if not options.partial_hits or (ranks > 1 and not self.parallel):
            return False
        least = unit if ranks > 1 and len(options.groups) > 1 else unit + 1
        unable = (g for g in options.groups if g.sliding_window or not g.prefix_cacheable)
        return any(g.aligned and g.block_size >= least for g in options.groups) and not any(
            self.asked(g) and g.block_size != unit for g in unable
        )

    def stops(self, options: Options) -> bool:
        """Return True if chunks stop at a prompt's end in hash units, where these are less than a scheduler block."""
        finer = options.partial_hits and options.hash_unit < options.scheduler_block_size
        return finer and (self.tails_alone or self.on(options))


PARTIAL_HITS_WHEN: Rule[PartialHitsWhen] = Rule(
    "Which configurations have hits finer than a block?",
    {
        "states-alone": Value(
            PartialHitsWhen(nobody, parallel=False, tails_alone=True),
            "Those with a state block in `align` mode wider than the hash unit, on one rank of context parallelism; a "
            "release stops with an assertion where a window has a wider block. Chunks stop at a prompt's tail in other "
            "configurations too, if attention's block is the wider one.",
            "vLLM to 0.27",
        ),
        "every-group": Value(
            PartialHitsWhen(everyone, parallel=False),
            "Those with a state block in `align` mode wider than the hash unit, on one rank of context parallelism, "
            "unless a window or a scratch group has another block than the unit.",
            "vLLM 0.28",
        ),
        "cacheable-groups": Value(
            PartialHitsWhen(cacheable),
            "Those with a state block in `align` mode wider than the hash unit, or on several ranks of context "
            "parallelism and beside another group as wide as it, unless a window has another block than the unit; "
            "scratch groups do not count.",
            "vLLM 0.29",
        ),
    },
)
