"""Requests that hit nothing although an earlier prompt begins alike: what each group had of the shared prefix then.

Heard from a second, equal run, in which every lookup is listened to (the cache itself is asked, group by group).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sim.cache.lookup import Family, Geometry, Hit, Lookup, family_hit
from sim.cache.pool import BlockPool
from sim.engine.options import Options
from sim.engine.rules import Rules
from sim.engine.scheduler import Scheduler
from sim.events import Group, Observer
from sim.scenario import Run
from sim.simulate import simulate


@dataclass(frozen=True, slots=True)
class Had:
    """What one group had of a prefix; lengths in tokens."""

    group: str
    recurrent: bool
    block: int
    boundaries: int
    """Of its blocks, within the prefix that is shared and can be hit."""
    null: int
    """Recurrent: those that nobody had ever claimed."""
    longest: int
    """The longest prefix that it could have hit by itself, before a look-ahead drafter gives something up."""
    left: int
    """And after."""


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
    groups: tuple[Had, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The last lookup."""

    hashes: Sequence[bytes]
    miss: Miss | None
    """What it would be if it is admitted so."""


class Misses(Observer):
    """Collects them; :meth:`lookup` takes the place of the rule of that name."""

    def __init__(self, options: Options) -> None:
        self.found: list[Miss] = []
        self._groups = options.groups
        self._blocks = [options.groups[i].block_size for i in options.recurrent]
        self._seen: dict[bytes, str] = {}
        """Hashes of all units of the prompts that were admitted, by the first request that had them."""
        self._claimed: set[tuple[int, bytes]] = set()
        self._asked: _Asked | None = None
        self._step = 0

    def lookup(self, real: Lookup) -> Lookup:
        """The rule, listened to."""

        def ask(
            pool: BlockPool, geo: Geometry, hashes: Sequence[bytes], num_groups: int, limit: int, known: int
        ) -> Hit:
            hit = real(pool, geo, hashes, num_groups, limit, known)
            prompt = hashes[: known // geo.hash_unit]
            miss = None if hit.tokens else self._missed(pool, geo, prompt, limit, known)
            self._asked = _Asked(prompt, miss)
            return hit

        return ask

    def _missed(self, pool: BlockPool, geo: Geometry, hashes: Sequence[bytes], limit: int, known: int) -> Miss | None:
        units = next((i for i, key in enumerate(hashes) if key not in self._seen), len(hashes))
        shared = units * geo.hash_unit
        if not self._blocks or shared < min(self._blocks):
            return None
        reach = min(shared, limit)
        groups = [
            self._had(pool, geo, family, group, hashes, reach, limit, known)
            for family in geo.families
            for group in family.groups
        ]
        return Miss("", 0, self._seen[hashes[units - 1]], shared, reach, tuple(groups))

    def _had(
        self,
        pool: BlockPool,
        geo: Geometry,
        family: Family,
        group: int,
        hashes: Sequence[bytes],
        reach: int,
        limit: int,
        known: int,
    ) -> Had:
        own, block, unit = replace(family, groups=(group,)), family.block_size, geo.hash_unit
        ends = range(block, reach + 1, block)
        null = sum((group, hashes[end // unit - 1]) not in self._claimed for end in ends) if family.recurrent else 0
        # A tail of its own is none of the shared prefix.
        longest, left = (
            min(family_hit(pool, geo, own, hashes, limit, limit, known, drop)[1], reach)
            for drop in (False, family.drops)
        )
        name: Group = self._groups[group]
        return Had(name.name, family.recurrent, block, len(ends), null, longest, left)

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
        for key in asked.hashes:
            self._seen.setdefault(key, request)


def misses(run: Run) -> list[Miss]:
    """The requests of a run that hit nothing although they share a recurrent block with an earlier prompt."""
    if not run.options.enable_prefix_caching:
        return []
    heard = Misses(run.options)

    def make(options: Options, rules: Rules, observer: Observer, seed: int) -> Scheduler:
        return Scheduler(options, replace(rules, lookup=heard.lookup(rules.lookup)), observer, seed, True)

    simulate(run, [heard], make=make)
    return heard.found
