"""The rules that a cache asks: the part of a table of rules that it sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stateat.sim.cache.connector import Connector
from stateat.sim.cache.drafter_drop import Guard
from stateat.sim.cache.lookup import Lookup
from stateat.sim.cache.skipped_states import Retire
from stateat.sim.cache.tier import TierReturn
from stateat.sim.cache.window import WindowPublishing
from stateat.sim.options import Options
from stateat.sim.rules.admission import Admission
from stateat.sim.rules.boundaries import Boundaries, Junction
from stateat.sim.rules.checkpoint import Checkpoint
from stateat.sim.rules.partial_hits import FineHits
from stateat.sim.rules.retention import Retention
from stateat.sim.rules.tail_copy import PartialHit


class Flag(Protocol):
    """A rule with two answers."""

    @property
    def on(self) -> bool: ...


class Publish(Protocol):
    """The rule of when and under which hash a state is published."""

    @property
    def refuses_same_step(self) -> bool: ...
    @property
    def once(self) -> bool: ...
    @property
    def under_node(self) -> bool: ...
    @property
    def hides(self) -> bool: ...


class Eviction(Protocol):
    """The rule of which free block is handed out next."""

    @property
    def deepest(self) -> bool: ...
    @property
    def uncached_last(self) -> bool: ...


class CacheRules(Protocol):
    """Rules by their names; ``stateat.sim.releases.rules.Rules`` has them all."""

    @property
    def grid(self) -> Callable[[Options], int]: ...
    @property
    def lookup(self) -> Lookup: ...
    @property
    def drafter_guard(self) -> Guard: ...
    @property
    def fine_hits(self) -> FineHits: ...
    @property
    def partial_hit(self) -> PartialHit: ...
    @property
    def window(self) -> WindowPublishing: ...
    @property
    def boundaries(self) -> Boundaries: ...
    @property
    def checkpoint(self) -> Checkpoint: ...
    @property
    def junction(self) -> Junction: ...
    @property
    def snapshots(self) -> Flag: ...
    @property
    def retention(self) -> Retention: ...
    @property
    def publish(self) -> Publish: ...
    @property
    def started(self) -> Flag: ...
    @property
    def retire(self) -> Retire: ...
    @property
    def state_slots(self) -> Flag: ...
    @property
    def offload(self) -> TierReturn: ...
    @property
    def connector(self) -> Connector: ...
    @property
    def admission(self) -> Admission: ...
    @property
    def item_hash(self) -> Flag: ...
    @property
    def eviction(self) -> Eviction: ...
