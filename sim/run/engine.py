"""Interface of an engine: what a run asks of whoever schedules, the reference engine or a live server.

A new engine implements :class:`Engine`, tells the observer what it decides in the language of
:mod:`stateat.sim.events`, and is handed to :func:`stateat.sim.run.simulate.drive` as ``make``. docs/engines.md, "A new
engine", says what else there is to write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stateat.sim.engine.step import Step
from stateat.sim.events import Observer
from stateat.sim.releases.policy import Policy
from stateat.sim.workload import Arrival
from stateat.sim.workload.named_states import StateChange


class Engine(Protocol):
    """A scheduler with its cache and its worker, driven step by step. Times are µs, or steps under ``clock: steps``."""

    preempted_in_vain: int
    """Preemptions since some request last got further than it had ever been: many of them are a livelock."""

    @property
    def free_blocks(self) -> int:
        """Blocks in the free queue; -1 where the engine cannot say."""
        ...

    @property
    def idle(self) -> bool:
        """No request is here: the clock waits for an arrival."""
        ...

    @property
    def aborting(self) -> bool:
        """An abort is still to take effect in the next step."""
        ...

    @property
    def quiet_tokens(self) -> int:
        """Tokens that each step of a :meth:`jump` decodes; 0 for an engine that never jumps."""
        ...

    def add(self, arrival: Arrival, time: int) -> None:
        """Take a request in; the observer is told ``arrive``."""
        ...

    def abort(self, name: str, late: bool = False) -> bool:
        """Take a request away in the next step, before it is decided or, ``late``, behind that; False: it is not
        here."""
        ...

    def reset(self, running: bool = False) -> None:
        """Empty the prefix cache in the next step; ``running``: preempt the running requests for it."""
        ...

    def change(self, change: StateChange, arrival: Arrival) -> None:
        """Evict or place a state of this request's tokens in the next step, which raises InputError if it cannot."""
        ...

    def jump(self, step: int) -> int:
        """Steps from ``step`` on that only decode and can be skipped at once; 0: none."""
        ...

    def step(self, index: int, time: int, budget: int) -> Step:
        """Decide and run one step of at most ``budget`` tokens, telling the observer all of it but ``commit``."""
        ...


Make = Callable[[Policy, Observer, int], Engine]
"""Maker of an engine from (options with the rules in force, observer, seed)."""
