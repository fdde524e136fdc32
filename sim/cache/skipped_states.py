"""When a request lets go of the states that it no longer needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stateat.sim.events import NULL

Retire = Callable[[list[int], int, int], list[int]]
"""From a block table, a column and how far it was retired before, the columns to free, in the order of freeing."""


def stops_at_null_gap(table: list[int], before: int, done: int = 0) -> list[int]:
    """Backwards from ``before`` to the first null column (vLLM up to 0.29).

    States below a gap stay until the request ends.
    """
    columns = []
    for column in range(min(before, len(table)) - 1, -1, -1):
        if table[column] == NULL:
            break
        columns.append(column)
    return columns


def walks_gaps(table: list[int], before: int, done: int = 0) -> list[int]:
    """All states between what was retired before and ``before`` (vLLM 0.32)."""
    return [column for column in range(min(before, len(table)) - 1, done - 1, -1) if table[column] != NULL]


@dataclass(frozen=True, slots=True)
class KeepsServed:
    """As another rule, but a state that the cache advertises stays (vLLM 57253, open)."""

    rule: Retire

    def __call__(self, table: list[int], before: int, done: int = 0) -> list[int]:
        return self.rule(table, before, done)


RETIREMENTS: dict[str, object] = {
    "stops-at-null-gap": stops_at_null_gap,
    "walks-gaps": walks_gaps,
    "keeps-what-is-served": KeepsServed(walks_gaps),
}
