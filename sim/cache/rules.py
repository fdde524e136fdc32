"""The rules that a cache asks: the part of a table of rules that it sees."""

from __future__ import annotations

from typing import Protocol

from stateat.sim.cache.connector import Connector
from stateat.sim.cache.drafter_drop import DrafterDrop
from stateat.sim.cache.lookup import Lookup
from stateat.sim.cache.skipped_states import SkippedStates
from stateat.sim.cache.tier import TierReturn
from stateat.sim.cache.window import WindowPublishing
from stateat.sim.rules.admission import Admission
from stateat.sim.rules.boundaries import Boundaries, Junction
from stateat.sim.rules.checkpoint import Checkpoint
from stateat.sim.rules.eviction import Eviction
from stateat.sim.rules.grid import Grid
from stateat.sim.rules.partial_hits import PartialHitsWhen
from stateat.sim.rules.publishing import ItemHash, Publish, Snapshots
from stateat.sim.rules.retention import Retention
from stateat.sim.rules.scheduling import Started
from stateat.sim.rules.state_blocks import StateNeed, StateSlots
from stateat.sim.rules.tail_copy import TailCopy


class CacheRules(Protocol):
    """Rules by their names; ``stateat.sim.releases.rules.Rules`` has them all."""

    @property
    def grid(self) -> Grid: ...
    @property
    def lookup(self) -> Lookup: ...
    @property
    def drafter_drop(self) -> DrafterDrop: ...
    @property
    def partial_hits_when(self) -> PartialHitsWhen: ...
    @property
    def tail_copy(self) -> TailCopy: ...
    @property
    def window_publishing(self) -> WindowPublishing: ...
    @property
    def boundaries(self) -> Boundaries: ...
    @property
    def checkpoint(self) -> Checkpoint: ...
    @property
    def junction(self) -> Junction: ...
    @property
    def snapshots(self) -> Snapshots: ...
    @property
    def retention(self) -> Retention: ...
    @property
    def publish(self) -> Publish: ...
    @property
    def started(self) -> Started: ...
    @property
    def skipped_states(self) -> SkippedStates: ...
    @property
    def state_slots(self) -> StateSlots: ...
    @property
    def state_need(self) -> StateNeed: ...
    @property
    def tier_return(self) -> TierReturn: ...
    @property
    def connector(self) -> Connector: ...
    @property
    def admission(self) -> Admission: ...
    @property
    def item_hash(self) -> ItemHash: ...
    @property
    def eviction(self) -> Eviction: ...
