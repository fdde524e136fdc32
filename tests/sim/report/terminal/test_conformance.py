"""Conformance in a terminal: the table, what diverges first, and one step of both sides."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from stateat.sim.conformance.compare import Conformance, Decisions, Divergence
from stateat.sim.conformance.recording import Recording
from stateat.sim.errors import InputError
from stateat.sim.report.terminal.conformance import print_conformance, print_step


def lines(print_it: Callable[[Console], None]) -> list[str]:
    stream = io.StringIO()
    print_it(Console(file=stream, width=100))
    return [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]


def conformance(**changes: Any) -> list[str]:
    divergence = {"step": 3, "request": "a", "what": "chunk", "recorded": [0, 8], "ours": [0, 9], "rule": "split"}
    first = Divergence(**{**divergence, **changes})
    results = [
        Conformance("s", "0.9.0", "divergent", first),
        Conformance("s", "0.27.0", "equal"),
        Conformance("t", "0.27.0", "unsupported"),
    ]
    return lines(lambda console: print_conformance(results, console))


def test_scenarios_are_rows_and_releases_columns_in_their_order() -> None:
    head, _, *rows, summary = [line.split() for line in conformance() if not line.startswith(("s 0.9.0", "    "))]
    assert head == ["scenario", "0.9.0", "0.27.0"]
    assert rows == [["s", "DIFF", "="], ["t", "-"]]
    assert " ".join(summary).startswith("1 equal, 1 divergent, 1 unsupported (")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, ["s 0.9.0: step 3 request a chunk", "    recorded  [0, 8]", "    ours      [0, 9]  (ended by split)"]),
        ({"rule": None}, ["s 0.9.0: step 3 request a chunk", "    recorded  [0, 8]", "    ours      [0, 9]"]),
        ({"step": 0, "request": None}, ["s 0.9.0: step 0 chunk"]),
        ({"step": None, "request": None, "what": "steps"}, ["s 0.9.0: steps"]),
    ],
)
def test_the_first_divergence_is_told_with_both_sides(changes: dict[str, Any], told: list[str]) -> None:
    found = conformance(**changes)
    place = found.index(told[0])
    assert found[place : place + len(told)] == told


def step(number: int) -> list[str]:
    scheduled = {"n": 3, "scheduled": [["a", 0, 8, 0], ["b", 4, 5, 0]], "preempted": ["d"]}
    recording = Recording("s", "0.27.0", {}, [], {"steps": [scheduled]})
    ours = Decisions()
    ours.scheduled = {3: {"a": (0, 8, 0), "c": (0, 2, 0)}, 5: {"a": (8, 9, 0)}}
    ours.stops = {(3, "a"): "split"}
    return lines(lambda console: print_step(recording, ours, number, console))


def test_a_step_shows_both_sides_with_what_ended_our_chunks() -> None:
    title, head, _, *rows, preempted = step(3)
    assert title == "s 0.27.0: step 3, 2 chunks (start, end, drafts)"
    assert head.split() == ["request", "recorded", "ours", "ended", "by"]
    assert preempted == "preempted: recorded ['d'], ours []"
    assert [row.split() for row in rows] == [
        ["a", "[0,", "8,", "0]", "[0,", "8,", "0]", "split"],
        ["b", "[4,", "5,", "0]", "-"],
        ["c", "-", "[0,", "2,", "0]", "fast-forwarded"],
    ]


def test_a_step_of_one_side_alone_is_shown_and_one_of_neither_refused() -> None:
    assert step(5)[-2].split()[:2] == ["a", "-"]
    with pytest.raises(InputError, match=r"--step: found 4, which schedules nothing in s; the last is 5"):
        step(4)
