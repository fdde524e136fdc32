"""The prefix that a waiting request need not compute: the pool's hit, and what a tier or a connector has beyond it."""

from __future__ import annotations

from typing import NamedTuple

from stateat.sim.cache.interface import Beyond, Cache
from stateat.sim.cache.lookup import Hit
from stateat.sim.engine.request import Request
from stateat.sim.events import NULL, Observer
from stateat.sim.options import Options
from stateat.sim.rules.load_failure import LoadFailure


class ComputedPrefix(NamedTuple):
    """The start of a request, and what it consists of."""

    hit: Hit
    external_tokens: int
    """Tokens behind the hit that a connector or the tier brings."""
    by_connector: bool
    """A connector brings them, not the tier."""
    arrives: bool
    """The states of what is brought really come."""
    told: tuple[int, int]
    """Tokens that are reported: of a hit, and of what is brought."""

    @property
    def tokens(self) -> int:
        return self.hit.tokens + self.external_tokens


def find(request: Request, cache: Cache, failure: LoadFailure) -> ComputedPrefix:
    """Look a waiting request up, and remember where its prefix is shared."""
    pooled = cache.lookup(request)
    request.junction = pooled.junction
    found = cache.lower_tier.beyond(request, pooled)
    told = found.hit.tokens, found.external_tokens
    arrives = not (request.load_error and found.external_tokens and not request.started)
    if arrives or failure.ignored:
        return ComputedPrefix(*found, arrives, told)
    less = Beyond(pooled, 0, False)
    if failure.retries:
        less = cache.lower_tier.beyond(request, pooled, below_tokens=sum(told))
    if not failure.reports_first:
        told = less.hit.tokens, less.external_tokens
    return ComputedPrefix(*less, True, told)


def tell(
    request: Request, prefix: ComputedPrefix, cache: Cache, options: Options, whole: bool, observer: Observer
) -> None:
    """Tell that a request is admitted, and of the state from which it starts in each recurrent group.

    ``whole``: a connector brings a whole prompt's state, though its last token is computed again.
    """
    observer.admit(request.id, *prefix.told, request.started)
    start = prefix.tokens
    for group in options.recurrent:
        column = (start - 1) // options.groups[group].block_size
        if prefix.external_tokens and prefix.arrives:
            connector = prefix.by_connector
            key = request.id if connector else cache.lower_tier.key_of(request, group, start)
            more = connector and whole and start == request.num_tokens - 1
            observer.load(request.id, group, key, request.pages[group][column], start + more)
        elif prefix.external_tokens:
            # Nothing comes into it, and yet it is the request's.
            observer.allocate(request.id, group, column, [request.pages[group][column]])
        elif prefix.hit.tokens:
            blocks = prefix.hit.blocks[group]
            slot = blocks[column] if column < len(blocks) else NULL
            observer.restore(request.id, group, slot, column, start, prefix.hit.group_hits)
