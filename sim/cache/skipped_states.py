"""Skipped states: when a request frees those that it has passed (vLLM's ``remove_skipped_blocks``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stateat.sim.events import NULL
from stateat.sim.rules.answers import counts
from stateat.sim.rules.record import Argument, Rule, Signature, Standing, Value

SkippedStates = Callable[[list[int], int, int], list[int]]
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
    """Free all states between what was freed before and ``before`` (vLLM 0.30)."""
    return [column for column in range(min(before, len(table)) - 1, done - 1, -1) if table[column] != NULL]


@dataclass(frozen=True, slots=True)
class KeepsServed:
    """Another rule, except that a published state stays (vLLM 57253, open)."""

    rule: SkippedStates

    def __call__(self, table: list[int], before: int, done: int = 0) -> list[int]:
        return self.rule(table, before, done)


SKIPPED_STATES: Rule[SkippedStates] = Rule(
    "When does a request free the states that it has passed (vLLM's `remove_skipped_blocks`)?",
    {
        "stops-at-null-gap": Value(
            stops_at_null_gap,
            "Those backwards from the one that it reads to the first null column; states below such a gap stay until "
            "it ends.",
            "vLLM to 0.29",
        ),
        "walks-gaps": Value(
            walks_gaps,
            "All between the column up to which it freed before and the one that it reads.",
            "vLLM 0.30",
        ),
        "keeps-what-is-served": Value(
            KeepsServed(walks_gaps),
            "As `walks-gaps`, but not what the cache advertises.",
            "vLLM issue 57253",
            Standing.PROPOSAL,
        ),
    },
    signature=Signature(
        (
            Argument("blocks", "list[int]", "the request's block table of the group; 0: the null block"),
            Argument("before", "int", "the column of the state that the request reads: columns before it may go"),
            Argument("retired", "int", "the column up to which states were freed before"),
        ),
        "a list of columns",
        counts,
        "the columns whose blocks are freed, in the order of freeing",
    ),
)
