"""Time: arrivals, engine steps and what follows on a request's end are SimPy processes.

Time is an integer: microseconds, or under ``clock: steps`` the number of the step. Arrivals at t enter before a
step that starts at t.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import groupby
from typing import Any

import simpy

from stateat.sim.engine.step import Step
from stateat.sim.errors import ChangeError
from stateat.sim.events import Observer
from stateat.sim.options import Costs, Options
from stateat.sim.run.engine import Engine
from stateat.sim.workload import Arrival
from stateat.sim.workload.named_states import StateChange

LIVELOCK_STEPS = 200
"""Steps without a token, and no arrival pending, after which nothing will ever move again."""
LIVELOCK_PREEMPTIONS = 200
"""Preemptions in which nobody got further than before, after which a request takes its own blocks away for ever."""

Process = Generator[simpy.Event, Any, None]
Progress = Callable[[int, int, int], None]
"""Called after each step with the requests done, the step and the time."""


def step_us(costs: Costs, step: Step) -> int:
    """Return the duration of a step, in microseconds (at least 1)."""
    if step.filled:
        return 1
    variable = costs.per_prefill_token * step.prefill_tokens + costs.per_decode_token * step.decode_tokens
    return max(1, round(costs.base + variable))


class Simulation:
    """One engine under one workload."""

    def __init__(
        self,
        scheduler: Engine,
        options: Options,
        arrivals: Sequence[Arrival],
        budgets: Sequence[int],
        observer: Observer,
        progress: Progress | None = None,
        resets: Sequence[int] = (),
        reset_running: bool = False,
        changes: Sequence[StateChange] = (),
    ) -> None:
        self.env = simpy.Environment()
        self.scheduler = scheduler
        self.options = options
        self.budgets = budgets
        self.observer = observer
        self.progress = progress
        self.by_steps = options.clock == "steps"
        self.coming = sum(a.after is None for a in arrivals)
        """Arrivals that need nothing but time: those with a time, and those whose predecessor has ended."""
        self.finished = 0
        self.livelock = False
        self.index = 0
        self.calls = 0
        self._sleeping: simpy.Event | None = None
        self._gone: set[str] = set()
        """Requests that were aborted when they were not there."""
        self._calendar: list[tuple[int, list[Arrival]]] = []
        self._aborts: list[tuple[int, str, bool]] = sorted(
            ((a.abort, a.id, a.abort_late) for a in arrivals if a.abort is not None), reverse=True
        )
        """The next one last."""
        self._resets = sorted(resets)
        self._reset_running = reset_running
        self._changes = deque(changes)
        """Changes of the cache by name that are still to come, in order."""
        self._named: dict[str, Arrival | None] = dict.fromkeys(change.request for change in changes)
        """Requests that they name, as far as they have come."""
        self._followers: dict[str, list[Arrival]] = defaultdict(list)
        for arrival in arrivals:
            if arrival.after is not None:
                self._followers[arrival.after].append(arrival)
        timed = sorted((a for a in arrivals if a.after is None), key=lambda a: (a.time, a.index))
        self._calendar = [(time, list(batch)) for time, batch in groupby(timed, key=lambda a: a.time)]

    def run(self) -> None:
        """Run until the last request has ended, or nothing moves any more."""
        self.env.process(self._arrive())
        self.env.process(self._abort())
        self.env.process(self._reset())
        self.env.process(self._change())
        engine = self.env.process(self._steps())
        self.env.run(until=engine)
        for change in self._changes:
            raise ChangeError(f"{change.where}: found at {change.time}, allowed before the run ends, at {self._now}")
        self.observer.end(self.index, self._now, self.livelock)

    @property
    def _now(self) -> int:
        return int(self.env.now)

    def _arrive(self) -> Process:
        for time, batch in self._calendar:
            if time > self.env.now:
                yield self.env.timeout(time - self.env.now)
            self._enter(batch)

    def _enter(self, batch: Iterable[Arrival]) -> None:
        for arrival in batch:
            self.coming -= 1
            if arrival.id in self._gone:
                # Taken away before it could come (it waited for another).
                self._done([arrival.id])
                continue
            self.scheduler.add(arrival, self._now)
            if arrival.id in self._named:
                self._named[arrival.id] = arrival
        if self._sleeping is not None and not self._sleeping.triggered:
            self._sleeping.succeed()

    def _follow(self, arrival: Arrival) -> Process:
        yield self.env.timeout(arrival.time)
        self._enter([arrival])

    def _abort(self) -> Process:
        while self._aborts:
            time, name, late = self._aborts[-1]
            if time > self.env.now:
                yield self.env.timeout(time - self.env.now)
            self._aborts.pop()
            if not self.scheduler.abort(name, late):
                self._gone.add(name)

    def _reset(self) -> Process:
        for time in self._resets:
            if time > self.env.now:
                yield self.env.timeout(time - self.env.now)
            self.scheduler.reset(self._reset_running)

    def _change(self) -> Process:
        """No step is skipped in which something changes."""
        for time in [change.time for change in self._changes]:
            if time > self.env.now:
                yield self.env.timeout(time - self.env.now)

    def _tell_changes(self) -> None:
        """Tell the engine of the changes that are due before the next step."""
        while self._changes and self._changes[0].time <= self.env.now:
            change = self._changes.popleft()
            arrival = self._named[change.request]
            if arrival is None:
                raise ChangeError(
                    f"{change.where}: found request {change.request!r}, which has not come by {self._now}, allowed one "
                    "that has"
                )
            self.scheduler.change(change, arrival)

    def _done(self, names: Iterable[str]) -> None:
        for name in names:
            self.finished += 1
            for arrival in self._followers.pop(name, ()):
                self.coming += 1
                self.env.process(self._follow(arrival))

    def _steps(self) -> Process:
        silent = 0
        while True:
            # Whatever else happens at this instant happens before the step.
            yield self.env.timeout(0)
            if self.scheduler.idle:
                if not self.coming:
                    return
                self._sleeping = self.env.event()
                yield self._sleeping
                self._sleeping = None
                silent = 0
                continue
            if self.by_steps:
                self.index = self._now
            skipped = self._skippable()
            if skipped:
                step = Step(decode_tokens=self.scheduler.quiet_tokens)
                lasts = 1 if self.by_steps else step_us(self.options.costs, step)
                self.index += skipped
                yield self.env.timeout(skipped * lasts)
                continue
            self._tell_changes()
            step = self.scheduler.step(self.index, self._now, self._budget())
            self.index += 1
            self.calls += 1
            yield self.env.timeout(1 if self.by_steps else step_us(self.options.costs, step))
            self.observer.commit(self._now)
            self._done(step.finished)
            if self.progress is not None:
                self.progress(self.finished, self.index, self._now)
            silent = 0 if step.tokens else silent + 1
            stuck = silent >= LIVELOCK_STEPS or self.scheduler.preempted_in_vain >= LIVELOCK_PREEMPTIONS
            if stuck and not self.scheduler.idle and not self._expects():
                self.livelock = True
                return

    def _expects(self) -> bool:
        """True if something is still to happen that might set a stuck engine going."""
        return bool(self.coming or self._aborts or self._changes or self.scheduler.aborting)

    def _budget(self) -> int:
        """Token budget of the step."""
        if self.index < len(self.budgets):
            return self.budgets[self.index]
        return self.options.max_num_batched_tokens

    def _skippable(self) -> int:
        """Return the number of steps from now on in which every request is quiet and nobody arrives."""
        if self.index < len(self.budgets) or (self._changes and self._changes[0].time <= self.env.now):
            return 0
        steps = self.scheduler.jump(self.index)
        if steps <= 0:
            return 0
        until = self.env.peek()
        if until == float("inf"):
            return steps
        lasts = 1 if self.by_steps else step_us(self.options.costs, Step(decode_tokens=self.scheduler.quiet_tokens))
        return min(steps, max(0, -(-int(until - self.env.now) // lasts)))
