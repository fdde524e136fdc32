"""Live releases whose states are evicted by name: what is left is decided as by the reference engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from random_worlds.draw import world as drawn
from random_worlds.keys import under
from random_worlds.world import World

from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.engine import LiveScheduler
from stateat.sim.adapters.vllm.process import Child
from stateat.sim.conformance.compare import Decisions
from stateat.sim.errors import EngineError
from stateat.sim.events import Observer
from stateat.sim.run.engine import Make
from stateat.sim.run.simulate import drive
from stateat.sim.workload.named_states import StateChange

pytestmark = pytest.mark.live

RELEASES = ("0.26.0", "0.29.0", "0.33.0")
WORLDS = 60


class Published(Observer):
    """The states that stand at the end of each step, with the request that published them."""

    def __init__(self) -> None:
        self.standing: dict[tuple[int, int, bytes], tuple[int, str, int]] = {}
        self.found: list[tuple[int, int, str, int]] = []
        self._step = 0

    def step(self, index: int, time_us: int, budget: int) -> None:
        self._step = index

    def claim(self, group: int, slot: int, request: str, column: int, offset: int, hash: bytes) -> None:
        self.standing[group, slot, hash] = group, request, offset

    def unclaim(self, group: int, slot: int, hash: bytes, why: str) -> None:
        self.standing.pop((group, slot, hash), None)

    def commit(self, time_us: int) -> None:
        self.found += [(self._step + 1, *state) for state in self.standing.values()]

    def end(self, steps: int, time_us: int, livelock: bool) -> None:
        # Of what stands after the last step nothing is asked any more.
        self.found = [state for state in self.found if state[0] < steps]


class Children:
    """A child of each release, opened anew after one that a server has crashed."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.installed = [source.release for source in install.installed()]
        self._open: dict[str, Child] = {}

    def on(self, release: str) -> Make:
        if release not in self._open:
            self._open[release] = self.stack.enter_context(install.of_release(release).open())
        child = self._open[release]
        return lambda policy, observer, seed: LiveScheduler(policy, observer, seed, child)

    def crashed(self, release: str) -> None:
        del self._open[release]


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    with ExitStack() as stack:
        yield Children(stack)


def facts(server: World, changes: Sequence[StateChange], make: Make | None, *others: Observer) -> dict[str, Any]:
    decisions = Decisions()
    outcome = drive(
        server.options,
        server.arrivals,
        server.budgets,
        observers=[decisions, *others],
        fast_forward=False,
        make=make,
        resets=server.resets,
        reset_running=server.reset_running,
        changes=changes,
    )
    told = ("scheduled", "hits", "preempted", "refused", "claims", "copies", "finished")
    kept = ("digest", "poisoned", "wrong_reads", "deferred", "free_blocks", "livelock")
    gone = {step: evicted for step in range(outcome.steps + 1) if (evicted := decisions.evictions(step))}
    return {name: getattr(decisions, name) for name in told} | {k: getattr(outcome, k) for k in kept} | {"gone": gone}


@pytest.mark.parametrize("release", RELEASES)
def test_an_eviction_by_name_leaves_what_the_live_release_is_left_with(children: Children, release: str) -> None:
    if release not in children.installed:
        pytest.skip(f"vLLM {release} is not installed (stateat vllm install {release})")
    compared = 0
    for index in range(WORLDS):
        server = under(drawn(17, index), f"vllm-{release}")
        published = Published()
        plain = facts(server, (), None, published)
        # Resets come first, and leave nothing to evict.
        found = [state for state in published.found if state[0] not in server.resets]
        if not found:
            continue
        try:
            equal = plain == facts(server, (), children.on(release))
        except EngineError:
            children.crashed(release)
            continue
        # What differs without an eviction is no matter of evictions.
        if not equal:
            continue
        step, group, request, offset = found[index % len(found)]
        changes = [StateChange(step, False, group, request, offset)]
        compared += 1
        assert facts(server, changes, None) == facts(server, changes, children.on(release)), index
    assert compared > WORLDS // 5
