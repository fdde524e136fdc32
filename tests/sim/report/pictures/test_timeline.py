"""Timelines, and the times of steps under them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateat
from stateat.sim.events import SCHEMA
from stateat.sim.report.pictures.timeline import DrawnChunk, State, Timeline, from_chunks
from stateat.sim.run.step_times import StepTimes


def test_chunks_claims_and_restores_stand_with_their_request(told: SimpleNamespace) -> None:
    timeline = Timeline()
    told.old_gate(timeline)
    a, b = timeline.tracks.values()
    assert a.chunks == [DrawnChunk(0, 1, 0, 0, 364, 0, "budget"), DrawnChunk(1, 1, 1, 364, 2002, 0, "prompt-end")]
    assert a.claims == [State(1, 1, 17, 0, 1600)]
    assert (b.restores, b.admits) == ([State(2, 1, 17, 0, 1600)], [(2, 1600, False)])
    assert (a.finish, b.finish, a.prompt, b.time_us) == (1, 2, 2002, 2)
    assert [timeline.span(piece) for piece in a.chunks] == [(0, 1), (1, 2)]
    assert timeline.block_size == 1600


def test_a_frames_chunks_last_as_long_as_their_steps() -> None:
    scene = {
        "schema": "stateat/1",
        "name": "two",
        "engine": {"preset": "vllm-0.27.0", "groups": [{"name": "kv", "kind": "full-attention", "block_size": 16}]},
        "workload": {"requests": [{"id": "a", "arrive": 0, "prompt": [[1, 100]], "max_tokens": 1}]},
    }
    chunks = stateat.replay(scene).chunks
    (row,) = chunks.to_dict("records")
    timeline = from_chunks(chunks)
    (piece,) = timeline.tracks["a"].chunks
    assert timeline.span(piece) == (0, row["duration_us"]) == (0, 8000 + 20 * 100)


def test_a_deferral_is_kept_with_what_was_offered(told: SimpleNamespace) -> None:
    timeline = Timeline()
    told.fixed_gate(timeline)
    assert timeline.tracks["a"].defers == [(0, 364, "block-boundary")]


def test_a_fast_forwarded_run_ends_before_the_step_that_tells_it(told: SimpleNamespace) -> None:
    timeline = Timeline()
    timeline.run(SCHEMA, "reference", told.groups, 0, {"clock": "steps"})
    timeline.arrive("a", 0, 0, ((1, 10),), None, 9)
    timeline.step(0, 0, 100)
    timeline.chunk("a", 0, 10, 0, "prompt-end", 0, ())
    timeline.step(8, 8, 100)
    timeline.chunk("a", 10, 17, 0, "decode", 7, (0,) * 7)
    timeline.chunk("a", 17, 18, 0, "decode", 0, ())
    timeline.step(10, 10, 100)
    timeline.chunk("a", 18, 19, 0, "decode", 1, (0,))
    _, run, now, one = timeline.tracks["a"].chunks
    assert (run.step, run.steps, run.time_us) == (1, 7, 8)
    assert [timeline.span(piece) for piece in (run, now, one)] == [(1, 8), (8, 9), (9, 10)]


def test_an_unclaim_stands_with_the_request_that_claimed(told: SimpleNamespace) -> None:
    timeline = Timeline()
    told.old_gate(timeline)
    timeline.unclaim(1, 17, b"\x01" * 16, "evict")
    timeline.unclaim(1, 17, b"\x01" * 16, "evict")
    assert timeline.tracks["a"].unclaims == [(3, State(1, 1, 17, 0, 1600), "evict")]


def test_attention_claims_are_no_states(told: SimpleNamespace) -> None:
    timeline = Timeline()
    told.old_gate(timeline)
    timeline.claim(0, 3, "a", 0, 16, b"x")
    assert len(timeline.tracks["a"].claims) == 1


def test_only_the_first_requests_are_collected_and_the_note_says_so(told: SimpleNamespace) -> None:
    timeline = Timeline(limit=3)
    timeline.run(SCHEMA, "reference", told.groups, 0, {})
    assert timeline.note == ""
    for i in range(5000):
        timeline.arrive(f"r{i}", i, 0, ((1, 10),), None, 1)
        timeline.step(i, i, 10)
        timeline.chunk(f"r{i}", 0, 10, 0, "prompt-end", 0, ())
        timeline.claim(1, i, f"r{i}", 0, 10, b"")
        timeline.finish(f"r{i}")
    assert list(timeline.tracks) == ["r0", "r1", "r2"]
    assert timeline.note == "the first 3 of 5,000 requests"


def test_a_step_ends_where_the_next_begins() -> None:
    times = StepTimes()
    times.step(0, 100)
    times.step(1, 350)
    times.end(2, 500)
    assert [(times.begin(i), times.finish(i)) for i in (0, 1)] == [(100, 350), (350, 500)]


def test_a_step_before_an_idle_time_ends_at_its_commit() -> None:
    times = StepTimes()
    times.step(0, 0)
    times.commit(1700)
    times.step(1, 1_000_000)
    times.commit(1_001_000)
    times.end(2, 1_001_000)
    assert (times.finish(0), times.finish(1)) == (1700, 1_001_000)


def test_fast_forwarded_steps_share_the_time_that_a_step_left_them() -> None:
    times = StepTimes()
    times.step(0, 0)
    times.commit(2000)
    times.step(5, 10_000)
    assert [times.begin(i) for i in range(6)] == [0, 2000, 4000, 6000, 8000, 10_000]
    assert times.finish(3) == 8000


def test_without_commits_steps_share_the_time_evenly() -> None:
    times = StepTimes()
    times.step(0, 0)
    times.step(5, 10_000)
    assert [times.finish(i) for i in range(5)] == [2000, 4000, 6000, 8000, 10_000]


@pytest.mark.parametrize("clock", ["us", "steps"])
@given(gaps=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 10_000)), min_size=1, max_size=20))
def test_time_never_runs_backwards(clock: str, gaps: list[tuple[int, int]]) -> None:
    times = StepTimes({"clock": clock})
    index = time = 0
    for steps, gap in gaps:
        times.step(index, index if clock == "steps" else time)
        if gap % 3:
            times.commit(index + 1 if clock == "steps" else time + gap // steps)
        index, time = index + steps, time + gap
    times.end(index, index if clock == "steps" else time)
    edges = [edge for i in range(index) for edge in (times.begin(i), times.finish(i))]
    assert edges == sorted(edges)
