"""Whether a request could come to its end if it had the pool to itself: found by letting it, on its own scheduler."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stateat.sim.events import Observer
from stateat.sim.options import Options
from stateat.sim.rules.admission import Admission
from stateat.sim.workload import Arrival

if TYPE_CHECKING:
    from stateat.sim.releases.rules import Rules


class Shortage(Observer):
    """Whether somebody was refused, or put back, for want of blocks."""

    def __init__(self) -> None:
        self.found = False

    def refuse(self, request: str, reason: str) -> None:
        self.found = True

    def preempt(self, request: str) -> None:
        self.found = True


def outgrows(options: Options, rules: Rules, seed: int, arrival: Arrival) -> bool:
    """Whether a request wants more blocks than a pool has that nobody else uses.

    One that stops for another reason (an item that is larger than the encoder's budget) does not.
    """
    from stateat.sim.engine.scheduler import Scheduler

    waits = replace(rules, admission=Admission(rejects=False))
    heard = Shortage()
    scheduler = Scheduler(replace(options, max_concurrent_batches=1), waits, heard, seed, True)
    scheduler.add(arrival, 0)
    step = 0
    while not (scheduler.idle or heard.found):
        step += max(scheduler.jump(step), 0)
        if not scheduler.step(step, 0, options.max_num_batched_tokens).tokens:
            break
        step += 1
    return heard.found
