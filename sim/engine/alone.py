"""Trial of a request that has the pool to itself: could it come to its end, if it never had to wait for another?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from stateat.sim.events import Observer
from stateat.sim.releases.policy import Policy
from stateat.sim.rules.admission import Admission
from stateat.sim.workload import Arrival


class Trial(Protocol):
    """A scheduler of its own for one request."""

    @property
    def idle(self) -> bool: ...
    def add(self, arrival: Arrival, time: int) -> None: ...
    def jump(self, step: int) -> int: ...
    def step(self, index: int, time: int, budget: int) -> Any: ...


class Shortage(Observer):
    """Hears of a request that is refused, or put back, for want of blocks."""

    def __init__(self) -> None:
        self.found = False

    def refuse(self, request: str, reason: str) -> None:
        self.found = True

    def preempt(self, request: str) -> None:
        self.found = True


def outgrows(arrival: Arrival, policy: Policy, trial: Callable[[Policy, Observer], Trial]) -> bool:
    """Return True if a request wants more blocks than a pool has that nobody else uses.

    One that stops for another reason (an item that is larger than the encoder's budget) does not. ``trial`` makes a
    scheduler that waits for blocks and runs one step at a time.
    """
    waits = replace(policy.rules, admission=Admission(rejects=False))
    heard = Shortage()
    scheduler = trial(
        replace(policy, options=replace(policy.options, max_concurrent_batches=1, async_scheduling=False), rules=waits),
        heard,
    )
    scheduler.add(arrival, 0)
    step = 0
    while not (scheduler.idle or heard.found):
        step += max(scheduler.jump(step), 0)
        if not scheduler.step(step, 0, policy.options.max_num_batched_tokens).tokens:
            break
        step += 1
    return heard.found
