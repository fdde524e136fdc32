"""Shrinking: of a world in which two engines differ, one as small as can be in which they still do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from random_worlds.keys import KEYS
from random_worlds.world import World
from stateat.sim.workload import Arrival

MOST_TRIES = 3000
"""Worlds that are tried."""


def shrink(world: World, fails: Callable[[World], bool]) -> World:
    """Drop and shorten, one thing at a time, as long as it still fails."""
    tries = 0
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(world):
            if candidate == world or candidate.lacking() or not candidate.valid():
                continue
            tries += 1
            if tries > MOST_TRIES:
                return world
            if fails(candidate):
                # From the start: what could not be dropped before may be now.
                world, smaller = candidate, True
                break
    return world


def _smaller(world: World) -> Iterator[World]:
    """Smaller worlds, those that lose most first."""
    for i in range(len(world.arrivals)):
        yield _without_request(world, i)
    yield replace(world, budgets=())
    yield replace(world, resets=(), reset_running=False)
    for i in range(len(world.resets)):
        yield replace(world, resets=(*world.resets[:i], *world.resets[i + 1 :]))
    for i in range(len(world.options.groups)):
        groups = world.options.groups
        yield _with(world, groups=(*groups[:i], *groups[i + 1 :]))
    for key in KEYS.values():
        if key.away(world):
            yield key.reset(world)
    yield from _plainer_options(world)
    for i, arrival in enumerate(world.arrivals):
        for changed in _plainer_request(arrival):
            yield replace(world, arrivals=(*world.arrivals[:i], changed, *world.arrivals[i + 1 :]))


def _without_request(world: World, place: int) -> World:
    """The world without a request; who waits for it waits for the one that it waited for, and who repeats its output
    has a text in that place."""
    gone = world.arrivals[place]
    seeds = {-1 - i: i + 100 if i == place else -1 - i + (i > place) for i in range(len(world.arrivals))}
    left = [
        replace(
            each,
            after=gone.after if each.after == gone.id else each.after,
            segments=tuple((seeds.get(seed, seed), length) for seed, length in each.segments),
        )
        for each in world.arrivals
        if each is not gone
    ]
    return replace(world, arrivals=tuple(replace(arrival, index=i) for i, arrival in enumerate(left)))


def _with(world: World, **changed: object) -> World:
    return replace(world, options=replace(world.options, **changed))  # type: ignore[arg-type]


def _plainer_options(world: World) -> Iterator[World]:
    speculative = world.options.speculative
    for drafts in range(speculative.num_speculative_tokens):
        accepted = tuple(min(each, drafts) for each in speculative.cycle)
        yield _with(world, speculative=replace(speculative, num_speculative_tokens=drafts, accepted_drafts=accepted))
    if len(speculative.cycle) > 1:
        for i in range(len(speculative.cycle)):
            yield _with(world, speculative=replace(speculative, accepted_drafts=(speculative.cycle[i],)))
    for i, group in enumerate(world.options.groups):
        for changed in (replace(group, eagle=False), replace(group, sliding_window=0)):
            groups = world.options.groups
            yield _with(world, groups=(*groups[:i], changed, *groups[i + 1 :]))
    for number in world.resets:
        yield replace(world, resets=tuple(sorted({each - (each == number) for each in world.resets} - {0})))


def _plainer_request(arrival: Arrival) -> Iterator[Arrival]:
    """A request with less to it."""
    if len(arrival.segments) > 1:
        for i in range(len(arrival.segments)):
            yield replace(arrival, segments=(*arrival.segments[:i], *arrival.segments[i + 1 :]))
    for i in range(len(arrival.encoder)):
        yield replace(arrival, encoder=(*arrival.encoder[:i], *arrival.encoder[i + 1 :]))
    for name in ("external", "abort", "after", "accepted_drafts"):
        yield replace(arrival, **{name: KEYS[f"requests.{name}"].default})  # type: ignore[arg-type]
    for i, (seed, length) in enumerate(arrival.segments):
        for shorter in dict.fromkeys((length // 2, length * 3 // 4, length - 1)):
            if shorter:
                segments = (*arrival.segments[:i], (seed, shorter), *arrival.segments[i + 1 :])
                yield replace(arrival, segments=segments)
    for tokens in dict.fromkeys((1, arrival.max_tokens // 2, arrival.max_tokens - 1)):
        if 0 < tokens < arrival.max_tokens:
            yield replace(arrival, max_tokens=tokens)
    for time in dict.fromkeys((0, arrival.time // 2, arrival.time - 1)):
        if 0 <= time < arrival.time:
            yield replace(arrival, time=time)
    if arrival.external > 1:
        yield replace(arrival, external=arrival.external // 2)
        yield replace(arrival, external=arrival.external - 1)
