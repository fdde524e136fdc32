"""Keys of a world: each option and property that a release is told, whether it is away from its default, and how it is
put back there. One list, for drawing, shrinking and counting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from typing import Any

from random_worlds.world import World
from stateat.sim.adapters.vllm.config import OURS, REACH, SENT
from stateat.sim.events import Group
from stateat.sim.options import METHODS, Options, Speculative
from stateat.sim.releases.presets import PRESETS
from stateat.sim.run.result import Outcome
from stateat.sim.workload import Arrival

UNDRAWN = frozenset({"preset", "rules", "initial_block_size", "clock", "costs", "acceptance_rate"})
"""Options of this side that decide nothing under a preset's own rules, or only when steps begin and which drafts are
right."""


@dataclass(frozen=True)
class Key:
    """A key: the parts of a world that have it, and its default."""

    name: str
    default: Any
    parts: Callable[[World], list[Any]]
    put: Callable[[World, str, Any], World]

    @property
    def field(self) -> str:
        return self.name.rpartition(".")[2]

    def away(self, world: World) -> bool:
        """True if some part of the world has another value than the default."""
        return any(getattr(part, self.field) != self.default for part in self.parts(world))

    def reset(self, world: World) -> World:
        """The world with the default in all parts."""
        return self.put(world, self.field, self.default)


def _put_option(world: World, name: str, value: Any) -> World:
    return replace(world, options=replace(world.options, **{name: value}))


def _put_speculative(world: World, name: str, value: Any) -> World:
    return _put_option(world, "speculative", replace(world.options.speculative, **{name: value}))


def _put_groups(world: World, name: str, value: Any) -> World:
    return _put_option(world, "groups", tuple(replace(group, **{name: value}) for group in world.options.groups))


def _put_requests(world: World, name: str, value: Any) -> World:
    return replace(world, arrivals=tuple(replace(each, **{name: value}) for each in world.arrivals))


Parts = tuple[type, str, Callable[[World], list[Any]], Callable[[World, str, Any], World]]
PARTS: tuple[Parts, ...] = (
    (Options, "", lambda world: [world.options], _put_option),
    (Group, "groups.", lambda world: list(world.options.groups), _put_groups),
    (Speculative, "speculative.", lambda world: [world.options.speculative], _put_speculative),
    (Arrival, "requests.", lambda world: list(world.arrivals), _put_requests),
    (World, "workload.", lambda world: [world], lambda world, name, value: replace(world, **{name: value})),
)


def _drawn(part: type, field: Field[Any]) -> bool:
    if part is World:
        return field.name != "options"
    reach = REACH[part][field.name]
    return reach in (SENT, OURS) and field.name not in UNDRAWN


KEYS: Mapping[str, Key] = {
    f"{prefix}{field.name}": Key(f"{prefix}{field.name}", field.default, parts, put)
    for part, prefix, parts, put in PARTS
    for field in fields(part)
    if _drawn(part, field) and field.default is not MISSING
}
"""Every key that has a default; sizes and kinds of groups, and prompts, have none."""


def _states(world: World) -> list[Group]:
    return [group for group in world.options.groups if group.recurrent]


def _plain(world: World) -> list[Group]:
    return [group for group in world.options.groups if not (group.recurrent or group.sliding_window)]


def _windows(world: World) -> list[Group]:
    return [group for group in world.options.groups if group.sliding_window]


def _modes(world: World) -> set[str]:
    return {group.mamba_cache_mode for group in _states(world)}


def _flags(world: World) -> int:
    return sum(group.eagle for group in world.options.groups)


def _drafting(method: str) -> Callable[[World], bool]:
    return lambda world: (
        world.options.speculative.num_speculative_tokens > 0 and world.options.speculative.method == method
    )


SHAPES: Mapping[str, Callable[[World], bool]] = {
    "groups: a recurrent one": lambda world: bool(_states(world)),
    "groups: none recurrent": lambda world: not _states(world),
    "groups: one alone": lambda world: len(world.options.groups) == 1,
    "groups: several recurrent": lambda world: len(_states(world)) > 1,
    "groups: recurrent blocks of several sizes": lambda world: len({g.block_size for g in _states(world)}) > 1,
    "groups: several full attention": lambda world: len(_plain(world)) > 1,
    "groups: attention blocks of several sizes": lambda world: len({g.block_size for g in _plain(world)}) > 1,
    "groups: windows and states": lambda world: bool(_windows(world) and _states(world)),
    "groups: all mode alone": lambda world: _modes(world) == {"all"},
    "groups: both modes": lambda world: len(_modes(world)) > 1,
    "drafter looks ahead, some groups flagged": lambda world: (
        world.options.speculative.eagle and 0 < _flags(world) < len(world.options.groups)
    ),
    "drafter looks ahead, no group flagged": lambda world: world.options.speculative.eagle and not _flags(world),
    **{f"drafter {method}": _drafting(method) for method in METHODS},
    "steps in flight, synchronous": lambda world: (
        world.options.max_concurrent_batches > 1 and not world.options.async_scheduling
    ),
    "steps in flight, more than two": lambda world: world.options.batch_queue > 2,
    "asynchronous beside drafts": lambda world: (
        bool(world.options.async_scheduling) and world.options.speculative.num_speculative_tokens > 0
    ),
    "retention 0": lambda world: world.options.prefix_cache_retention_interval == 0,
    "retention every so many": lambda world: bool(world.options.prefix_cache_retention_interval),
}
"""Shapes of a world that no single key tells."""

REACHED: Mapping[str, Callable[[Outcome], bool]] = {
    "hits": lambda outcome: bool(outcome.hit_tokens or outcome.resume_hit_tokens),
    "preemptions": lambda outcome: bool(outcome.preempted),
    "evictions": lambda outcome: bool(outcome.evicted),
    "deferrals": lambda outcome: bool(outcome.deferred),
    "refusals in the same step": lambda outcome: bool(outcome.same_step_refused),
    "resets that took place": lambda outcome: bool(outcome.resets),
    "findings": lambda outcome: bool(outcome.findings),
    "poisoned": lambda outcome: bool(outcome.poisoned),
    "livelocks": lambda outcome: outcome.livelock,
}
"""What came about in a world."""


def under(world: World, preset: str) -> World:
    """The world under a preset: what its release lacks is at its default there."""
    if preset not in PRESETS:
        raise ValueError(f"no preset {preset}")
    world = _put_option(world, "preset", preset)
    while lacking := world.lacking():
        place, name = lacking[0][0], str(lacking[0][-1])
        key = f"{place}.{name}" if len(lacking[0]) > 1 else name
        world = _one_size(world) if key == "groups.block_size" else KEYS[key].reset(world)
    return world


def _one_size(world: World) -> World:
    """The world with the first block size of its aligned groups in all of them."""
    size = next(group.block_size for group in world.options.groups if group.aligned)
    groups = (replace(group, block_size=size) if group.aligned else group for group in world.options.groups)
    return _put_option(world, "groups", tuple(groups))


def in_mode(world: World, mode: str) -> World:
    """The world in a mode: ``sync``, a step at a time, ``async``, or ``any``, as it was drawn."""
    if mode == "sync":
        return KEYS["max_concurrent_batches"].reset(KEYS["async_scheduling"].reset(world))
    return world if mode == "any" else _put_option(world, "async_scheduling", True)


MODES = ("any", "sync", "async")


def only(world: World, names: set[str]) -> World:
    """The world with all keys at their defaults, but for those named and those that make it small."""
    for name, key in KEYS.items():
        if names and name not in names:
            world = key.reset(world)
    return world
