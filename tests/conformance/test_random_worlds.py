"""Random worlds: drawn alike everywhere over every option, shrunk, kept, and (``make conformance``) held live."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from random_worlds import kept, program
from random_worlds.compare import compare
from random_worlds.draw import world as drawn
from random_worlds.heard import Heard
from random_worlds.keys import KEYS, SHAPES, only, under
from random_worlds.shrink import shrink
from random_worlds.table import Column
from random_worlds.world import World

from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.config import REACH, SENT
from stateat.sim.engine.request import Request
from stateat.sim.engine.scheduler import Scheduler
from stateat.sim.events import Group
from stateat.sim.options import Options, Speculative
from stateat.sim.releases.presets import PRESETS
from stateat.sim.run.engine import Engine
from stateat.sim.workload import Arrival

RELEASES = [preset.removeprefix("vllm-") for preset in PRESETS]
KEPT = kept.read()


def test_a_world_is_the_same_each_time_and_another_under_each_number() -> None:
    assert [drawn(3, i) for i in range(20)] == [drawn(3, i) for i in range(20)]
    assert len({repr(drawn(seed, i)) for seed in range(2) for i in range(20)}) == 40


@pytest.mark.parametrize("preset", PRESETS)
def test_a_scenario_file_may_say_each_world_and_gives_it_back(preset: str) -> None:
    for index in range(25):
        world = under(drawn(1, index), preset)
        assert world.valid() and not world.lacking()
        assert World.of(world.plain("w")) == world


def test_every_option_that_a_release_is_told_is_drawn_in_a_twentieth_of_the_worlds() -> None:
    column = Column("")
    for index in range(400):
        world = drawn(0, index)
        column.away.update(name for name, key in KEYS.items() if key.away(world))
        column.shapes.update(name for name, holds in SHAPES.items() if holds(world))
    assert {name: n for name, n in column.away.items() if n < 20} == {}
    assert set(column.away) == set(KEYS) and set(column.shapes) == set(SHAPES)
    parts = ((Options, ""), (Group, "groups."), (Speculative, "speculative."), (Arrival, "requests."))
    sent = {f"{prefix}{name}" for part, prefix in parts for name, reach in REACH[part].items() if reach == SENT}
    # They have no default: every world says them.
    without = {"groups.name", "groups.kind", "groups.block_size", "requests.id", "requests.segments"}
    assert sent - without <= set(KEYS)


@pytest.mark.parametrize("preset", ["vllm-0.26.0", "vllm-0.33.0"])
def test_half_of_the_worlds_hit_and_a_tenth_each_preempt_and_evict(preset: str) -> None:
    outcomes = [under(drawn(0, index), preset).run(Heard()) for index in range(100)]
    assert sum(outcome.hit_tokens > 0 for outcome in outcomes) >= 50
    assert sum(outcome.preempted > 0 for outcome in outcomes) >= 10
    assert sum(outcome.evicted > 0 for outcome in outcomes) >= 10


def test_with_keys_named_all_others_are_at_their_defaults() -> None:
    for index in range(20):
        world = only(drawn(0, index), {"watermark", "max_num_seqs"})
        assert {name for name, key in KEYS.items() if key.away(world)} <= {"watermark", "max_num_seqs"}


def reference(policy: Any, observer: Any, seed: int) -> Scheduler:
    """The reference engine in the place of a live one."""
    return Scheduler(policy, observer, seed, False)


def test_the_reference_engine_is_equal_to_itself() -> None:
    for index in range(10):
        assert compare(under(drawn(0, index), "vllm-0.29.0"), reference).status == "equal"


def charged_once(policy: Any, observer: Any, seed: int) -> Engine:
    """A scheduler that charges encoded items for a first prefill alone."""
    scheduler = reference(policy, observer, seed)
    charge = scheduler._encode

    def first_alone(request: Request) -> None:
        if not request.outputs:
            charge(request)

    scheduler._encode = first_alone  # type: ignore[method-assign]
    return scheduler


def test_an_engine_that_decides_otherwise_is_found() -> None:
    """Negative control: some worlds tell that a replay is not charged for its items."""
    worlds = (under(drawn(0, index), "vllm-0.33.0") for index in range(1000))
    assert any(compare(world, charged_once).fault for world in worlds if any(a.encoder for a in world.arrivals))


def test_a_difference_is_shrunk_to_what_it_needs() -> None:
    def fails(world: World) -> bool:
        return world.options.watermark > 0 and sum(arrival.num_prompt_tokens > 9 for arrival in world.arrivals) > 1

    first = next(world for index in range(100) if fails(world := under(drawn(0, index), "vllm-0.33.0")))
    small = shrink(first, fails)
    assert {name for name, key in KEYS.items() if key.away(small)} == {"watermark"}
    assert [arrival.num_prompt_tokens for arrival in small.arrivals] == [10, 10]
    assert len(small.options.groups) == 1


@pytest.mark.parametrize("world", KEPT, ids=[f"{each['scenario']['name']}" for each in KEPT])
def test_a_kept_world_is_decided_as_its_release_decided_it(world: dict[str, Any]) -> None:
    assert list(kept.differences(world)) == []


def test_a_kept_world_is_not_met_by_another_decision() -> None:
    """Negative control: each kept world that ends tells a token more in its first prompt."""
    for each in (each for each in KEPT if not each["release"]["totals"]["livelock"]):
        world = World.of(each["scenario"])
        *before, (seed, length) = world.arrivals[0].segments
        more = replace(world.arrivals[0], segments=(*before, (seed, length + 1)))
        changed = replace(world, arrivals=(more, *world.arrivals[1:])).plain(each["scenario"]["name"])
        assert list(kept.differences({**each, "scenario": changed}))


@pytest.fixture(scope="module")
def installed() -> list[str]:
    return [found.release for found in install.installed()]


@pytest.mark.live
@pytest.mark.parametrize("release", RELEASES)
def test_a_hundred_worlds_are_decided_as_the_live_release_decides_them(installed: list[str], release: str) -> None:
    if release not in installed:
        pytest.skip(f"vLLM {release} is not installed (stateat vllm install {release})")
    assert program.column(release, seed=0, indices=range(100)).faults == {}
