"""Steps in flight: what is decided, and what has run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stateat.sim.cache.groups import CopyOnWrite
from stateat.sim.events import EVENTS, Group, Observer
from stateat.sim.options import Options
from stateat.sim.run.simulate import drive
from stateat.sim.worker.pipeline import Batch, Pipeline
from stateat.sim.worker.worker import Row
from stateat.sim.workload import Arrival

GROUPS = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 64))
OPTIONS = Options(GROUPS, num_blocks=100, clock="steps", max_num_batched_tokens=64)


class Heard(Observer):
    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []


def _hear(name: str) -> Any:
    return lambda self, *args: self.events.append((name, *args))


for _name in EVENTS:
    setattr(Heard, _name, _hear(_name))


def play(depth: int, *arrivals: Arrival, **rules: str) -> list[tuple[Any, ...]]:
    heard = Heard()
    drive(replace(OPTIONS, max_concurrent_batches=depth, rules=rules), arrivals, observers=[heard])
    return heard.events


ONE = Arrival("a", 0, 0, ((1, 200),), 3)


def request(name: str) -> Any:
    return type("Request", (), {"id": name})()


def batch(index: int, *requests: Any) -> Batch:
    return Batch(index, [Row(r, 0, 10, [], 0) for r in requests])


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_batch_runs_once_so_many_are_in_flight(depth: int) -> None:
    pipeline, a = Pipeline(depth), request("a")
    ran = []
    for i in range(5):
        pipeline.push(batch(i, a))
        ran.append(pipeline.pop())
    assert [b.index if b else None for b in ran] == [None] * (depth - 1) + list(range(6 - depth))
    # An empty batch takes a place too.
    for i in range(1, depth):
        assert pipeline and pipeline.newest == 4
        pipeline.push(batch(4 + i))
        runs = pipeline.pop()
        assert runs is not None and runs.index == 5 - depth + i
    assert not pipeline and pipeline.newest is None


def test_what_is_dropped_leaves_the_others_in_place() -> None:
    pipeline, a, b = Pipeline(3), request("a"), request("b")
    first = batch(0, a, b)
    first.published = [("a", (1, b"x", 7)), ("b", (1, b"y", 8))]
    first.copies = [CopyOnWrite("a", 1, 3, 4), CopyOnWrite("b", 1, 5, 6)]
    first.given = [[7, 9], [8]]
    pipeline.push(first)
    assert pipeline.drop(a, {7}) == [(1, b"x", 7)]
    assert not pipeline.has(a) and pipeline.has(b)
    assert first.published == [("b", (1, b"y", 8))]
    assert first.copies == [CopyOnWrite("b", 1, 5, 6)] and first.given == [[9], [8]]


def test_what_is_detached_runs_on_for_nobody() -> None:
    pipeline, a = Pipeline(2), request("a")
    pipeline.push(batch(0, a))
    pipeline.detach(a)
    assert not pipeline.has(a)
    pipeline.push(batch(9))
    runs = pipeline.pop()
    assert runs is not None and [(row.request.id, row.void) for row in runs.rows] == [("a", True)]


def test_a_prefill_is_decided_ahead_and_a_decode_waits_for_its_token() -> None:
    events = play(2, ONE)
    told = [(e[0], *e[1:4]) if e[0] == "chunk" else (e[0], e[1]) for e in events if e[0] in ("step", "chunk", "launch")]
    assert told[:7] == [
        ("step", 0), ("chunk", "a", 0, 64), ("step", 1), ("chunk", "a", 64, 128), ("launch", 0), ("step", 2),
        ("chunk", "a", 128, 192),
    ]  # fmt: skip
    # Its third token is decided only after the second one is there.
    decodes = [e[1:4] for e in events if e[0] == "chunk" and e[2] >= 200]
    assert decodes == [("a", 200, 201), ("a", 201, 202)]


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_a_pipeline_computes_what_a_single_step_at_a_time_does(depth: int) -> None:
    def forwards(depth: int) -> list[tuple[Any, ...]]:
        return [(e[1], e[3], e[4]) for e in play(depth, ONE) if e[0] == "advance" and not e[8]]

    deep, plain = forwards(depth), forwards(1)
    assert deep[: len(plain)] == plain or {e[0] for e in deep} == {"a"}
    assert [e for e in deep if e[1] < 200] == [e for e in plain if e[1] < 200]


def test_nothing_is_told_of_launches_where_there_is_no_pipeline() -> None:
    assert "launch" not in {e[0] for e in play(1, ONE)}


def test_what_an_aborted_request_had_in_flight_runs_and_is_not_heard_of() -> None:
    events = play(3, replace(ONE, abort=3))
    abort = next(i for i, e in enumerate(events) if e[0] == "abort")
    after = [e for e in events[abort:] if e[0] in ("advance", "output", "finish")]
    assert [e[0] for e in after] == ["advance", "advance"]
    dropped = play(3, replace(ONE, abort=3), aborted_steps="dropped")
    abort = next(i for i, e in enumerate(dropped) if e[0] == "abort")
    assert not [e for e in dropped[abort:] if e[0] == "advance"]


def test_what_a_dropped_step_was_to_make_true_is_withdrawn_where_that_is_the_rule() -> None:
    kept, withdrawn = (
        [e for e in play(3, replace(ONE, abort=3), aborted_steps=rule) if e[0] == "unclaim"]
        for rule in ("dropped", "dropped-and-unpublished")
    )
    assert kept == []
    assert {e[4] for e in withdrawn} == {"abort"}
    assert len(withdrawn) == 2


@pytest.mark.parametrize(
    ("preset", "rules", "steps", "preempted"),
    [
        # As the releases' own schedulers, with a connector that consumes: 8 of the 14 free nothing.
        ("vllm-0.26.0", {}, 1267, 14),
        ("vllm-0.29.0", {}, 1267, 14),
        ("vllm-0.32.0", {}, 1267, 6),
        ("vllm-0.33.0", {}, 1267, 6),
        ("vllm-0.26.0", {"deferred_free": "at-once"}, 1266, 6),
        ("vllm-0.33.0", {"deferred_free": "at-once"}, 1266, 6),
    ],
)
def test_a_victim_whose_blocks_have_to_wait_is_preempted_in_vain_up_to_029(
    preset: str, rules: dict[str, str], steps: int, preempted: int
) -> None:
    options = Options(
        GROUPS[:1],
        preset=preset,
        rules=rules,
        num_blocks=61,
        max_num_batched_tokens=2048,
        max_num_seqs=32,
        max_concurrent_batches=2,
        kv_consumer=True,
        enable_prefix_caching=False,
        clock="steps",
    )
    six = [Arrival(name, i, int(i > 1), ((i + 1, 100),), 300) for i, name in enumerate("abcdef")]
    outcome = drive(options, six)
    assert (outcome.steps, outcome.preempted) == (steps, preempted)
