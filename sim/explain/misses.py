"""Requests that hit nothing although an earlier request begins alike: what each group had of the shared prefix then.

Heard from a second, equal run, in which every lookup is listened to (the cache itself is asked, group by group).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stateat.sim.cache.lookup import GroupSet, Hit, Lookup, Sizes, family_hit
from stateat.sim.cache.pool import BlockPool
from stateat.sim.engine.scheduler import Scheduler
from stateat.sim.events import Group, Observer
from stateat.sim.options import Options
from stateat.sim.releases.policy import Policy
from stateat.sim.run.simulate import simulate
from stateat.sim.scenario.load import Run
from stateat.sim.tokens import Segments, Spans


@dataclass(frozen=True, slots=True)
class GroupCoverage:
    """A group's part of a prefix; lengths in tokens."""

    group: str
    recurrent: bool
    block: int
    boundaries: int
    """Blocks of the group within the prefix that is shared and can be hit."""
    null: int
    """Recurrent: those that nobody had ever claimed."""
    longest: int
    """The longest prefix that it could have hit by itself, before a look-ahead drafter gives something up."""
    left: int
    """The longest prefix after that drop."""


@dataclass(frozen=True, slots=True)
class Miss:
    """A request that was admitted with nothing."""

    request: str
    step: int
    earlier: str
    """The request with the longest prefix in common, the first of several."""
    shared: int
    """Tokens of it, in whole hash units."""
    reach: int
    """Tokens of it that a hit may have: a token is always computed."""
    groups: tuple[GroupCoverage, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The last lookup."""

    hashes: Sequence[bytes]
    """Hashes of the whole stream, its output too."""
    unit: int
    known: int
    """Tokens whose hash is known: at a first admission those of the prompt."""
    miss: Miss | None
    """The miss, if the request is admitted so."""


@dataclass(slots=True)
class _Stream:
    """A request that runs, and how much of it is in ``_seen``."""

    asked: _Asked
    prompt: int
    outputs: int = 0
    units: int = 0

    def new(self) -> Sequence[bytes]:
        """The hashes of what it has been given since: the last output is not computed yet."""
        asked = self.asked
        computed = max(asked.known, self.prompt + self.outputs - 1)
        before, self.units = self.units, computed // asked.unit
        return asked.hashes[before : self.units]


class Misses(Observer):
    """Collects them; :meth:`lookup` takes the place of the rule of that name."""

    def __init__(self, options: Options) -> None:
        self.found: list[Miss] = []
        self._groups = options.groups
        self._blocks = [options.groups[i].block_size for i in options.recurrent]
        self._seen: dict[bytes, str] = {}
        """Hashes of all units of the prompts that were admitted and of what was computed behind them, by the first
        request that had them."""
        self._prompts: dict[str, int] = {}
        self._streams: dict[str, _Stream] = {}
        self._claimed: set[tuple[int, bytes]] = set()
        self._asked: _Asked | None = None
        self._step = 0

    def lookup(self, real: Lookup) -> Lookup:
        """The rule, listened to."""

        def ask(pool: BlockPool, geo: Sizes, hashes: Sequence[bytes], num_groups: int, limit: int, known: int) -> Hit:
            hit = real(pool, geo, hashes, num_groups, limit, known)
            unit = geo.hash_unit
            miss = None if hit.tokens else self._missed(pool, geo, hashes[: known // unit], limit, known)
            self._asked = _Asked(hashes, unit, known, miss)
            return hit

        return ask

    def _missed(self, pool: BlockPool, geo: Sizes, hashes: Sequence[bytes], limit: int, known: int) -> Miss | None:
        units = next((i for i, key in enumerate(hashes) if key not in self._seen), len(hashes))
        shared = units * geo.hash_unit
        if not self._blocks or shared < min(self._blocks):
            return None
        reach = min(shared, limit)
        groups = [
            self._coverage(pool, geo, family, group, hashes, reach, limit, known)
            for family in geo.families
            for group in family.groups
        ]
        return Miss("", 0, self._seen[hashes[units - 1]], shared, reach, tuple(groups))

    def _coverage(
        self,
        pool: BlockPool,
        geo: Sizes,
        family: GroupSet,
        group: int,
        hashes: Sequence[bytes],
        reach: int,
        limit: int,
        known: int,
    ) -> GroupCoverage:
        own, block, unit = replace(family, groups=(group,)), family.block_size, geo.hash_unit
        ends = range(block, reach + 1, block)
        null = sum((group, hashes[end // unit - 1]) not in self._claimed for end in ends) if family.recurrent else 0
        # A tail of its own is none of the shared prefix.
        longest, left = (
            min(family_hit(pool, geo, own, hashes, limit, limit, known, drop)[1], reach)
            for drop in (False, family.drops)
        )
        name: Group = self._groups[group]
        return GroupCoverage(name.name, family.recurrent, block, len(ends), null, longest, left)

    def step(self, index: int, time_us: int, budget: int) -> None:
        self._step = index

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        self._claimed.add((group, hash))

    def admit(self, request: str, hit: int, external: int, resumed: bool) -> None:
        asked, self._asked = self._asked, None
        if asked is None:
            return
        if asked.miss is not None and not (hit or external or resumed):
            self.found.append(replace(asked.miss, request=request, step=self._step))
        if request not in self._streams:
            self._streams[request] = _Stream(asked, self._prompts[request])
        self._remember(request)

    def arrive(
        self,
        request: str,
        index: int,
        time_us: int,
        segments: Segments,
        tokens: tuple[int, ...] | None,
        max_tokens: int,
        encoder: Spans = (),
    ) -> None:
        self._prompts[request] = sum(length for _, length in segments)

    def output(self, request: str, count: int, tokens: tuple[int, ...] | None) -> None:
        if request in self._streams:
            self._streams[request].outputs += count
            self._remember(request)

    def finish(self, request: str) -> None:
        self._streams.pop(request, None)

    def abort(self, request: str) -> None:
        self._streams.pop(request, None)

    def _remember(self, request: str) -> None:
        for key in self._streams[request].new():
            self._seen.setdefault(key, request)


def misses(run: Run) -> list[Miss]:
    """The requests of a run that hit nothing although they share a recurrent block with an earlier request."""
    if not run.options.enable_prefix_caching:
        return []
    heard = Misses(run.options)

    def make(policy: Policy, observer: Observer, seed: int) -> Scheduler:
        listened = replace(policy.rules, lookup=heard.lookup(policy.rules.lookup))
        return Scheduler(replace(policy, rules=listened), observer, seed, True)

    simulate(run, [heard], make=make)
    return heard.found
