"""What a waiting request need not compute: the pool's hit, and what a tier or a connector has beyond it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stateat.sim.cache.lookup import Hit
from stateat.sim.cache.manager import KVCache

if TYPE_CHECKING:
    from stateat.sim.engine.request import Request
    from stateat.sim.rules.load_failure import LoadFailure


@dataclass(frozen=True, slots=True)
class Prior:
    """Where a request starts, and why."""

    hit: Hit
    external: int
    """Tokens behind the hit that a connector or the tier brings."""
    connector: bool
    """Whether it is a connector that does."""
    arrives: bool
    """Whether their states really come."""
    told: tuple[int, int]
    """What is reported: tokens of a hit, and of what is brought."""

    @property
    def tokens(self) -> int:
        return self.hit.tokens + self.external


def find(request: Request, cache: KVCache, failure: LoadFailure) -> Prior:
    """Look a waiting request up, and remember where its prefix is shared."""
    pooled = cache.lookup(request)
    request.junction = pooled.junction
    hit, external = cache.offload.connected(request, pooled)
    connector = external > 0
    if not connector:
        hit, external = cache.offload.offloaded(request, hit)
    told = hit.tokens, external
    arrives = not (request.load_error and external and not request.started)
    if arrives or failure.ignored:
        return Prior(hit, external, connector, arrives, told)
    failed = hit.tokens + external
    hit, external = pooled, 0
    if failure.retries:
        hit, external = cache.offload.offloaded(request, pooled, failed)
    return Prior(hit, external, False, True, told if failure.reports_first else (hit.tokens, external))
