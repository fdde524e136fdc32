"""Skipped states: when a request frees those that it has passed (vLLM's ``remove_skipped_blocks``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stateat.sim.cache.pool import NULL

Retire = Callable[[list[int], int, int], list[int]]
"""(block table, column, column up to which it was freed before) -> the columns to free, in the order of freeing."""


def stops_at_null_gap(table: list[int], before: int, done: int = 0) -> list[int]:
    """Free backwards from ``before`` to the first null column (vLLM up to 0.29).

    States below a gap stay until the request ends.
    """
    columns = []
    for column in range(min(before, len(table)) - 1, -1, -1):
        if table[column] == NULL:
            break
        columns.append(column)
    return columns


def walks_gaps(table: list[int], before: int, done: int = 0) -> list[int]:
    """Free all states between what was freed before and ``before`` (vLLM 0.32)."""
    return [column for column in range(min(before, len(table)) - 1, done - 1, -1) if table[column] != NULL]


@dataclass(frozen=True, slots=True)
class KeepsServed:
    """Another rule, except that a published state stays (vLLM 57253, open)."""

    rule: Retire

    def __call__(self, table: list[int], before: int, done: int = 0) -> list[int]:
        return self.rule(table, before, done)


RETIREMENTS: dict[str, object] = {
    "stops-at-null-gap": stops_at_null_gap,
    "walks-gaps": walks_gaps,
    "keeps-what-is-served": KeepsServed(walks_gaps),
}
