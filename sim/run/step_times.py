"""Begin and end of each step: what pictures and traces need of each, and events say of most.

``step`` says when one begins and ``commit`` when it ends. Steps that were fast-forwarded are told by neither:
they share the time between the steps around them evenly.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any


class StepTimes:
    """Start and end of steps; microseconds, or step numbers under ``clock: steps``."""

    __slots__ = ("_commits", "_indices", "_times", "counts_steps")

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.counts_steps = (options or {}).get("clock") == "steps"
        self._indices: list[int] = []
        self._times: list[float] = []
        self._commits: list[float | None] = []

    def step(self, index: int, time_us: float) -> None:
        """A step starts."""
        self._indices.append(index)
        self._times.append(time_us)
        self._commits.append(None)

    def commit(self, time_us: float) -> None:
        """The current step is over."""
        if self._commits:
            self._commits[-1] = time_us

    def end(self, steps: int, time_us: float) -> None:
        """The run ended, after so many steps."""
        if not self._indices or steps > self._indices[-1]:
            self.step(steps, time_us)

    @property
    def current(self) -> int:
        """The step that events belong to now; 0 before the first."""
        return self._indices[-1] if self._indices else 0

    def begin(self, step: int) -> float:
        """Time at which a step started."""
        if self.counts_steps or not self._indices:
            return float(step)
        after = bisect_left(self._indices, step)
        if after == len(self._indices):
            return self._finish_of(after - 1)
        if self._indices[after] == step or after == 0:
            return float(self._times[after])
        before = after - 1
        first, low = self._indices[before] + 1, self._finish_of(before)
        return low + (self._times[after] - low) * (step - first) / (self._indices[after] - first)

    def finish(self, step: int) -> float:
        """Time at which a step ended."""
        if self.counts_steps or not self._indices:
            return float(step + 1)
        position = bisect_left(self._indices, step)
        if position < len(self._indices) and self._indices[position] == step:
            return self._finish_of(position)
        return self.begin(step + 1)

    def _finish_of(self, position: int) -> float:
        """The end of a step that an event named: its commit, else (a log without) its share of the time."""
        start, commit = float(self._times[position]), self._commits[position]
        if commit is not None:
            return float(commit)
        if position + 1 == len(self._times):
            return start
        return start + (self._times[position + 1] - start) / (self._indices[position + 1] - self._indices[position])
