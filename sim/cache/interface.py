"""The interface of a cache: all that a scheduler asks of one. Another cache with these methods can stand in the place
of :class:`stateat.sim.cache.manager.KVCache`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from stateat.sim.cache.groups import CopyOnWrite
from stateat.sim.cache.ledger import FullBlock
from stateat.sim.cache.lookup import Hit
from stateat.sim.cache.pool import Entry
from stateat.sim.cache.request import CacheRequest


class SplitFacts(NamedTuple):
    """Facts of hits that a split is told."""

    drop: bool
    """A look-ahead drafter gives up something of each hit."""
    ahead_tokens: int
    """Tokens behind a block that its hash covers."""
    exact_junctions: bool
    """A chunk may end, and be published, exactly where a prefix is known to be shared."""
    exact_snapshots: bool
    """A state that a client asked for is published under its own position."""


class Beyond(NamedTuple):
    """A hit with what a tier or a connector adds to it."""

    hit: Hit
    """The part of the hit that is left: its end may be given up."""
    external_tokens: int
    """Tokens behind it that are brought."""
    by_connector: bool
    """A connector brings them, not the tier."""


class Decided(NamedTuple):
    """Effects of a step on the cache, once all of it is scheduled."""

    copies: list[CopyOnWrite]
    """Copies to make before anything else; their blocks are pinned until the step runs."""
    given: list[list[int]]
    """Blocks newly given, by group; attention groups only."""
    full: list[FullBlock]
    """Full blocks that the step publishes, where a tier could store them."""
    published: list[tuple[str, Entry]]
    """Requests and what they publish, where that can be hidden or withdrawn."""


class LowerTier(Protocol):
    """A tier below the pool (CPU memory), or a connector to other caches."""

    def expect(self, external_tokens: int) -> None:
        """Hear that a request has come of which a connector can bring so many tokens."""

    def beyond(self, request: CacheRequest, hit: Hit, below_tokens: int | None = None) -> Beyond:
        """Return what a hit becomes with what a connector, or else the tier, has behind it.

        ``below_tokens``: only the tier is asked, for less than this; its load to there has failed.
        """

    def key_of(self, request: CacheRequest, group: int, tokens: int) -> str:
        """Return the tier's name for the block from which a request goes on at ``tokens``."""

    def store(self, prefills: Sequence[tuple[CacheRequest, int]], published: Sequence[FullBlock]) -> None:
        """Store the blocks that a step published and still does.

        ``prefills``: requests that computed tokens of their prompt, and up to where.
        """

    def save_cancelled(self, request: CacheRequest, unconfirmed_tokens: int = 0) -> None:
        """Store the state of a request that is taken away, under its tokens less one, where the connector does.

        ``unconfirmed_tokens``: those of ``request.computed`` that steps in flight have yet to compute.
        """


class Cache(Protocol):
    """A prefix cache, and the blocks of those who run."""

    @property
    def free_blocks(self) -> int:
        """Blocks in the free queue."""

    @property
    def split_facts(self) -> SplitFacts: ...
    @property
    def lower_tier(self) -> LowerTier: ...

    # A step.

    def new_step(self, time: int) -> None:
        """Forget what the step before was given and published, and what has not been used until ``time`` for as long
        as it may live."""

    def decided(self) -> Decided:
        """Return what the step that was just scheduled does."""

    def unpin(self, copies: Sequence[CopyOnWrite], after_step: int | None = None) -> None:
        """Free the blocks that copies pinned: now, or once this step has run."""

    def run(self, step: int) -> None:
        """Free the blocks that waited for this step to run."""

    def commit(self, published: Sequence[tuple[str, Entry]]) -> None:
        """Let everybody find what a committed step published, and what was published at its commit."""

    def withdraw(self, published: Sequence[Entry]) -> None:
        """Take back what steps publish that will not run."""

    # A request.

    def lookup(self, request: CacheRequest) -> Hit:
        """Return the longest prefix that all groups hold: a token short of everything at most."""

    def admit(
        self,
        request: CacheRequest,
        tokens: int,
        *,
        hit: Hit,
        external_tokens: int,
        reserve_full_sequence: bool,
        beside_others: bool,
    ) -> str:
        """Allocate for a waiting request's first chunk of ``tokens`` behind its hit and what is brought.

        Returns '' or a :class:`stateat.sim.events.Refusal`, which leaves everything as it was.
        ``reserve_full_sequence``: refuse unless the whole sequence would fit. ``beside_others``: something runs beside
        it, so that the watermark applies.
        """

    def grow(self, request: CacheRequest, tokens: int, *, unconfirmed_tokens: int = 0) -> bool:
        """Allocate for the next ``tokens`` of a running request; False if the pool cannot.

        ``unconfirmed_tokens``: those of ``request.computed`` that steps in flight have yet to compute.
        """

    def learn(self, request: CacheRequest, known: int, new: int) -> None:
        """Publish what an outcome has made known: the last ``new`` of ``known`` tokens, of whose chunk all else is."""

    def free(self, request: CacheRequest, after_step: int | None = None) -> None:
        """Take back all blocks of a request: now, or once this step has run."""

    def held(self, request: CacheRequest) -> set[int]:
        """Return the blocks of a request."""

    def quiet_until(self, request: CacheRequest) -> int:
        """Return the first chunk end (tokens) at which a decoding request would allocate, publish, free or copy
        anything; 0 when it might at once."""

    def evict(self, request: CacheRequest, group: int, offset: int) -> str:
        """Withdraw what is published as a group's state behind ``offset`` tokens of a request, or as its block that
        ends there; '' or, where there is no such thing, what is found and allowed."""

    def place(self, request: CacheRequest, group: int, offset: int) -> str:
        """Publish such a state in a slot of its own, or attention's blocks up to there; '' or what is found and
        allowed."""

    def reset(self) -> bool:
        """Withdraw all that the pool publishes; False, and nothing happens, while somebody uses a block."""

    # A chunk.

    def exempts(self, start: int, end: int, prefill_end: int, grid: int) -> bool:
        """Return True if the split lets a prefill chunk run on, since it exports a checkpoint on its way."""

    def exported(self, start: int, end: int, block: int) -> tuple[int, int]:
        """Return the offset (tokens) of the state that a kernel exports of a prefill chunk, 0 for none, and its
        column."""

    def retained(self, request: CacheRequest, start: int, end: int) -> tuple[int, ...]:
        """Return the boundaries inside (start, end) whose states stay published."""
