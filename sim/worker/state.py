"""A worker's memory of one request: the block tables that it was handed, and where in them the state lies."""

from __future__ import annotations

from typing import Protocol, TypeVar


class WorkerState:
    """The memory of a request between its steps, a list entry for each group."""

    __slots__ = ("accepted", "last_step", "pages", "running")

    def __init__(self, num_groups: int) -> None:
        self.pages: list[list[int]] = [[] for _ in range(num_groups)]
        """Block tables: append-only, as the scheduler handed them."""
        self.running = [-1] * num_groups
        """The running column, in which the last chunk ended; -1: none."""
        self.accepted = [1] * num_groups
        """Tokens that the last verification kept, the sampled one included: the state lies so many columns less one
        behind the running one."""
        self.last_step = -1
        """The step in which it ran last."""

    def appended(self, group: int, blocks: list[int], table: list[int]) -> None:
        """Take more of a recurrent group's table; a new one goes over whole, with what was hit or loaded."""
        pages = self.pages[group]
        pages += blocks if pages else table

    def slot(self, group: int) -> int:
        """Return the slot of the last accepted token's state; -1 if the request has not run."""
        column = self.running[group]
        return self.pages[group][column + self.accepted[group] - 1] if column >= 0 else -1

    def emptied(self, told: bool) -> WorkerState:
        """Return the memory after a preemption; unless the worker is ``told`` of it, columns and counts stay.

        A new record, for steps in flight go on with the old one.
        """
        new = WorkerState(len(self.pages))
        new.last_step = self.last_step
        if not told:
            new.running, new.accepted = self.running, self.accepted
        return new


class Asked(Protocol):
    """A request, as far as a worker reads it. Lengths in tokens."""

    @property
    def id(self) -> str: ...
    @property
    def num_prompt(self) -> int: ...
    @property
    def prefill_end(self) -> int:
        """End of the prefill, or of its replay after a preemption."""

    @property
    def worker(self) -> WorkerState: ...


R = TypeVar("R", bound=Asked)
"""The engine's own class of requests."""
