"""The layout of a cache: sizes, the pool, and a manager for each group. Built first, it is given to the parts of the
cache that look up, publish and offload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stateat.sim.cache.groups import AllModeCache, AttentionCache, Place, RecurrentCache, Table
from stateat.sim.cache.ledger import Ledger
from stateat.sim.cache.lookup import Sizes, geometry
from stateat.sim.cache.pool import BlockPool
from stateat.sim.cache.request import CacheRequest
from stateat.sim.cache.rules import CacheRules
from stateat.sim.cache.victims import Ages, Chains, chooser
from stateat.sim.cache.window import ScratchCache, WindowCache
from stateat.sim.events import Group, Observer
from stateat.sim.options import Options
from stateat.sim.rules.eviction import Eviction, Refresh, Victim

Manager = AttentionCache | RecurrentCache


@dataclass(frozen=True, slots=True)
class Layout:
    """Parts and sizes of a cache; sizes in tokens."""

    options: Options
    rules: CacheRules
    geometry: Sizes
    pool: BlockPool
    pools: tuple[BlockPool, ...]
    """All pools, that one first: another one may be there for states."""
    ledger: Ledger
    managers: tuple[Manager, ...]
    """Managers of the groups, in their order."""
    drop: bool
    """A look-ahead drafter gives up something of each hit."""
    ahead: int
    """Tokens behind a block that its hash covers."""
    hash_unit: int
    scheduler_block: int
    tables: dict[str, list[Table]] = field(default_factory=dict)
    """Block tables, by group, of the requests that hold blocks."""

    def hashes(self, request: CacheRequest) -> list[bytes]:
        """Return the hashes of a request's hash units; those past :meth:`hashed` are not to be used yet."""
        return request.hashes(self.hash_unit, self.ahead, self.rules.item_hash.names_every_item)

    def hashed(self, request: CacheRequest) -> int:
        """Return how many tokens have hashes that are known."""
        return max(request.num_tokens - self.ahead, 0) // self.hash_unit * self.hash_unit


def layout(options: Options, rules: CacheRules, observer: Observer) -> Layout:
    """Lay out a cache; ``observer`` is told of the claims of recurrent groups."""
    guard, recurrent = rules.drafter_drop, frozenset(options.recurrent)
    sizes = geometry(
        options,
        guard.lookup_drops(options),
        guard.past_the_end and len(options.groups) > 1,
        guard.scope(options.groups),
        guard.states,
        rules.partial_hits_when.on(options) and options.enable_prefix_caching,
    )
    eviction = rules.eviction
    pool = BlockPool(
        options.num_blocks,
        len(options.groups),
        on_unclaim=lambda group, *claim: observer.unclaim(group, *claim) if group in recurrent else None,
        choose=chooser(eviction, recurrent),
        uncached_last=eviction.uncached_last and not options.enable_prefix_caching,
        chains=Chains() if eviction.victim is Victim.SUPERSEDED_STATE else None,
        ages=_ages(options, eviction),
    )
    states = pool.beside(options.num_state_blocks, _ages(options, eviction)) if options.num_state_blocks else pool
    ledger = Ledger(
        observer.claim,
        stores=options.offload.blocks > 0,
        tails=rules.connector.tails,
        traces=rules.publish.hides or options.batch_queue > 1,
        hides=rules.publish.hides,
    )
    drops = {group: family.drops for family in sizes.families for group in family.groups}
    places = [
        Place(i, group.block_size, sizes.hash_unit, states if group.recurrent else pool, ledger, drops.get(i, False))
        for i, group in enumerate(options.groups)
    ]
    managers = [
        MANAGERS[_kind(group)](place, group, options, rules)
        for place, group in zip(places, options.groups, strict=True)
    ]
    return Layout(
        options=options,
        rules=rules,
        geometry=sizes,
        pool=pool,
        pools=(pool,) if states is pool else (pool, states),
        ledger=ledger,
        managers=tuple(managers),
        drop=guard.drop(options),
        ahead=guard.ahead(options),
        hash_unit=sizes.hash_unit,
        scheduler_block=options.scheduler_block_size,
    )


def _ages(options: Options, eviction: Eviction) -> Ages | None:
    """Return the ages of a pool's blocks, where something depends on them."""
    named = {group.name: i for i, group in enumerate(options.groups)}
    times = {named[name]: time for name, time in options.group_times_to_live.items()}
    kept = eviction.refresh is Refresh.NOTHING
    return Ages(times, not kept) if times or kept else None


def _kind(group: Group) -> str:
    """Return the key in :data:`MANAGERS` of a group's manager."""
    if group.recurrent:
        return "aligned states" if group.aligned else "states in all mode"
    if not group.prefix_cacheable:
        return "scratch"
    return "window" if group.sliding_window else "attention"


def _aligned(place: Place, group: Group, options: Options, rules: CacheRules) -> Manager:
    return RecurrentCache(
        place,
        spare_blocks=options.speculative.num_speculative_tokens,
        retire=rules.skipped_states,
        eager=rules.started.when_scheduled,
        claims_scratch=rules.checkpoint.claims_scratch,
        parks_scratch=rules.checkpoint.parks_scratch,
        need=rules.state_need.blocks,
        tail_copy=rules.tail_copy,
    )


def _all_mode(place: Place, group: Group, options: Options, rules: CacheRules) -> Manager:
    return AllModeCache(place, spare_blocks=options.speculative.num_speculative_tokens, retire=rules.skipped_states)


def _window(place: Place, group: Group, options: Options, rules: CacheRules) -> Manager:
    # Rows that steps in flight may read are kept until they have run.
    in_flight = options.batch_queue * options.max_num_batched_tokens
    return WindowCache(
        place,
        window=group.sliding_window,
        row=rules.window_publishing.row(place.block_size, group.sliding_window, place.drops),
        most_tokens=min(group.sliding_window - 1 + in_flight, options.max_model_len),
    )


MANAGERS: dict[str, Callable[[Place, Group, Options, CacheRules], Manager]] = {
    "aligned states": _aligned,
    "states in all mode": _all_mode,
    "scratch": lambda place, *_: ScratchCache(place),
    "window": _window,
    "attention": lambda place, *_: AttentionCache(place),
}
"""The manager of each kind of group."""
