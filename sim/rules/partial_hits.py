"""Where hits are finer than a block: a recurrent state inside its block can be hit, and every group cut there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stateat.sim.events import Group
from stateat.sim.options import Options


def nobody(group: Group) -> bool:
    """No group is asked (vLLM up to 0.27, which stops with an assertion where a window cannot)."""
    return False


def everyone(group: Group) -> bool:
    """Every group is asked, be its blocks scratch (vLLM 0.28)."""
    return True


def cacheable(group: Group) -> bool:
    """Every group that takes part in prefix caching is asked (vLLM 0.29)."""
    return group.prefix_cacheable


@dataclass(frozen=True, slots=True)
class FineHits:
    """When a release has them, ``partial_hits`` allowing."""

    asked: Callable[[Group], bool]
    """Which groups must be able to; windows and scratch are not, unless their block is the hash unit."""
    parallel: bool = True
    """Whether context parallelism has them too, for states as wide as the hash unit already."""
    tails_alone: bool = False
    """Whether chunks stop at a prompt's tail without them too, where the hash unit is less than a scheduler block."""

    def on(self, options: Options) -> bool:
        """Whether these options get them."""
        unit, ranks = options.hash_unit, options.decode_context_parallel_size
        if not options.partial_hits or (ranks > 1 and not self.parallel):
            return False
        least = unit if ranks > 1 else unit + 1
        unable = (g for g in options.groups if g.sliding_window or not g.prefix_cacheable)
        return any(g.aligned and g.block_size >= least for g in options.groups) and not any(
            self.asked(g) and g.block_size != unit for g in unable
        )

    def stops(self, options: Options) -> bool:
        """Whether chunks stop at a prompt's end in hash units."""
        finer = self.tails_alone and options.partial_hits and options.hash_unit < options.scheduler_block_size
        return finer or self.on(options)


FINE_HITS: dict[str, FineHits] = {
    "states-alone": FineHits(nobody, parallel=False, tails_alone=True),
    "every-group": FineHits(everyone, parallel=False),
    "cacheable-groups": FineHits(cacheable),
}
