"""Time: who enters before which step, what a step lasts, and when nothing will ever move again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.engine.step import Step
from stateat.sim.events import EVENTS, Group, Observer
from stateat.sim.options import Costs, Options
from stateat.sim.run.clock import LIVELOCK_STEPS, step_us
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

GROUPS = (Group("attention", "full-attention", 4), Group("gdn", "recurrent", 16))
STEPS = Options(GROUPS, num_blocks=500, clock="steps", enable_prefix_caching=False)
MICROS = replace(STEPS, clock="us", costs=Costs(100, 0, 0))
STUCK = replace(STEPS, enable_prefix_caching=True, max_num_batched_tokens=16, preset="vllm-0.26.0")
"""Under 0.26 a request of a drafter-less engine whose budget is always 8 tokens never gets one."""


class Heard(Observer):
    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [event[1:] for event in self.events if event[0] == name]


def _hear(name: str) -> Any:
    return lambda self, *args: self.events.append((name, *args))


for _name in EVENTS:
    setattr(Heard, _name, _hear(_name))


class StillRunningError(Exception):
    """The loop went on for longer than the test allows."""


def ask(name: str, time: int = 0, prompt: int = 5, outputs: int = 1, **more: Any) -> Any:
    return lambda index: Arrival(name, index, time, ((index + 1, prompt),), outputs, **more)


def play(
    options: Options, *asked: Any, budgets: Sequence[int] = (), fast_forward: bool = False, most: int = 2000
) -> tuple[Outcome, Heard]:
    def stop(done: int, total: int, step: int, time: int, poisoned: int) -> None:
        if step > most:
            raise StillRunningError

    heard = Heard()
    arrivals = [make(i) for i, make in enumerate(asked)]
    outcome = drive(options, arrivals, budgets, observers=[heard], fast_forward=fast_forward, progress=stop)
    return outcome, heard


def admissions(heard: Heard) -> dict[str, tuple[int, int]]:
    """Step and time in which each request was first admitted."""
    step, found = (-1, -1), dict[str, tuple[int, int]]()
    for name, *args in heard.events:
        if name == "step":
            step = (args[0], args[1])
        elif name == "admit":
            found.setdefault(args[0], step)
    return found


# Arrivals.


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6))
def test_an_arrival_at_t_enters_before_the_step_that_starts_at_t(times: list[int]) -> None:
    _, heard = play(STEPS, *(ask(f"r{i}", t) for i, t in enumerate(times)))
    assert admissions(heard) == {f"r{i}": (t, t) for i, t in enumerate(times)}


@pytest.mark.parametrize(("time", "step"), [(0, 0), (1, 100), (99, 100), (100, 100), (101, 200), (200, 200)])
def test_an_arrival_during_a_step_waits_for_the_next(time: int, step: int) -> None:
    _, heard = play(MICROS, ask("a", 0, 5, 9), ask("b", time))
    assert admissions(heard)["b"] == (step // 100, step)


def test_an_arrival_at_the_end_of_a_step_enters_even_when_another_came_during_it() -> None:
    _, heard = play(MICROS, ask("a", 0, 5, 9), ask("b", 50), ask("c", 100))
    assert admissions(heard) == {"a": (0, 0), "b": (1, 100), "c": (1, 100)}


def test_arrivals_of_one_time_enter_in_the_order_of_the_file() -> None:
    _, heard = play(STEPS, ask("z", 4), ask("m", 2), ask("a", 4), ask("b", 2))
    assert [e[0] for e in heard.of("arrive")] == ["m", "b", "z", "a"]
    assert list(admissions(heard)) == ["m", "b", "z", "a"]


def test_each_arrival_is_told_with_its_time() -> None:
    _, heard = play(MICROS, ask("a", 0, 5, 9), ask("b", 150))
    assert [(e[0], e[2]) for e in heard.of("arrive")] == [("a", 0), ("b", 150)]


# Clocks.


@given(st.integers(0, 40), st.integers(1, 8), st.booleans())
def test_under_steps_there_is_a_step_at_every_integer_until_the_last_request_ends(
    time: int, outputs: int, fast_forward: bool
) -> None:
    outcome, heard = play(STEPS, ask("a"), ask("b", time, outputs=outputs), fast_forward=fast_forward)
    assert outcome.steps == outcome.time_us == time + outputs
    assert all(index == at for index, at, _ in heard.of("step"))
    assert heard.of("end") == [(time + outputs, time + outputs, False)]


def test_under_steps_an_empty_step_uses_its_budget() -> None:
    _, heard = play(STEPS, ask("a", 3), budgets=[10, 10, 10, 2, 7])
    assert [(e[0], e[2]) for e in heard.of("step")] == [(3, 2), (4, 7)]


def test_a_deferred_step_uses_its_budget_too() -> None:
    options = replace(STUCK, max_num_batched_tokens=100, preset="vllm-0.27.0")
    outcome, heard = play(options, ask("a", prompt=20), budgets=[8, 8, 17])
    assert [e[2] for e in heard.of("step")][:3] == [8, 8, 17]
    assert outcome.deferred == 2 and outcome.ends["a"] == (16, 20)


def test_under_us_there_is_no_step_while_nothing_waits_or_runs() -> None:
    outcome, heard = play(MICROS, ask("a"), ask("b", 1_000_000))
    assert [e[:2] for e in heard.of("step")] == [(0, 0), (1, 1_000_000)]
    assert (outcome.steps, outcome.time_us) == (2, 1_000_100)


def test_under_us_a_step_that_schedules_nothing_lasts_the_base_time() -> None:
    options = replace(STUCK, clock="us", costs=Costs(70, 10, 1), max_num_batched_tokens=100, preset="vllm-0.27.0")
    _, heard = play(options, ask("a", prompt=20), budgets=[8, 8, 20])
    # 16 tokens of prefill at 10 each, then 4.
    assert [e[1] for e in heard.of("step")] == [0, 70, 140, 140 + 70 + 160]
    assert [e[0] for e in heard.of("commit")] == [70, 140, 370, 370 + 70 + 40]


@pytest.mark.parametrize(
    ("costs", "prefill", "decode", "lasts"),
    [
        (Costs(), 0, 0, 8000),
        (Costs(), 100, 3, 8000 + 2000 + 120),
        (Costs(0, 0, 0), 100, 3, 1),
        (Costs(0, 0.4, 0), 1, 0, 1),
        (Costs(1, 0.25, 0.5), 3, 1, 2),
        (Costs(10, 0.25, 0), 3, 0, 11),
    ],
)
def test_what_a_step_lasts(costs: Costs, prefill: int, decode: int, lasts: int) -> None:
    assert step_us(costs, Step(prefill, decode)) == lasts
    assert type(step_us(costs, Step(prefill, decode))) is int


def test_the_first_token_is_there_when_its_step_is_over() -> None:
    outcome, _ = play(MICROS, ask("a", 30, 5, 3))
    assert outcome.ttft_us == {"p50": 100, "p95": 100, "p99": 100}
    outcome, _ = play(MICROS, ask("a", 0, 5, 3), ask("b", 30))
    # b waits 70 for the next step, and 100 in it.
    assert outcome.ttft_us["p99"] == pytest.approx(100 + 0.99 * 70)


# Closed loops.


def test_a_follower_arrives_some_time_after_the_end_of_whom_it_waits_for() -> None:
    _, heard = play(MICROS, ask("a", 0, 5, 3), ask("b", 25, after="a"), ask("c", 0, after="b"))
    assert [(e[0], e[2]) for e in heard.of("arrive")] == [("a", 0), ("b", 325), ("c", 425)]


def test_several_may_wait_for_the_same() -> None:
    _, heard = play(STEPS, ask("a", 0, 5, 2), ask("b", 3, after="a"), ask("c", 0, after="a"))
    assert [(e[0], e[2]) for e in heard.of("arrive")] == [("a", 0), ("c", 2), ("b", 5)]


def test_a_follower_without_delay_enters_before_the_next_step() -> None:
    for options in (STEPS, MICROS):
        _, heard = play(options, ask("a", 0, 5, 2), ask("b", 0, after="a"))
        assert admissions(heard)["b"][0] == 2


@given(st.integers(1, 12), st.integers(1, 4), st.booleans())
def test_a_closed_loop_never_has_more_than_its_clients(requests: int, clients: int, fast_forward: bool) -> None:
    asked = [
        ask(f"r{i}", 0, 5, 1 + i % 3, **({"after": f"r{i - clients}"} if i >= clients else {})) for i in range(requests)
    ]
    outcome, heard = play(STEPS, *asked, fast_forward=fast_forward)
    inside = 0
    for name, *_ in heard.events:
        inside += (name == "arrive") - (name == "finish")
        assert inside <= clients
    assert outcome.finished == requests


# Aborts: the step that starts next takes the request away, and is the last that it is part of.


def test_a_running_request_is_taken_away_before_the_step_of_that_time() -> None:
    outcome, heard = play(STEPS, ask("a", 0, 5, 50, abort=7), ask("b", 0, 5, 9))
    assert heard.of("abort") == [("a",)]
    assert max(i for i, e in enumerate(heard.events) if e[:2] == ("chunk", "a")) < heard.events.index(("abort", "a"))
    assert sum(e[0] == "a" for e in heard.of("chunk")) == 7
    assert (outcome.finished, outcome.output_tokens) == (1, 7 + 9)


def test_a_waiting_request_is_taken_away() -> None:
    outcome, heard = play(replace(STEPS, max_num_seqs=1), ask("a", 0, 5, 9), ask("b", 1, abort=4), ask("c", 2))
    assert heard.of("abort") == [("b",)]
    assert list(admissions(heard)) == ["a", "c"]
    assert outcome.finished == 2


def test_an_abort_after_the_end_does_nothing() -> None:
    outcome, heard = play(STEPS, ask("a", abort=5), ask("b", 0, 5, 9))
    assert not heard.of("abort") and outcome.finished == 2


def aborted(fast_forward: bool) -> Outcome:
    return play(STEPS, ask("a", 0, 5, 50, abort=7), fast_forward=fast_forward)[0]


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast-forward", "step by step"])
def test_an_abort_wakes_a_fast_forwarded_request_where_it_would_be(fast_forward: bool) -> None:
    outcome = aborted(fast_forward)
    assert (outcome.output_tokens, outcome.chunks, outcome.steps, outcome.time_us) == (7, 7, 8, 8)


def test_an_abort_of_a_fast_forwarded_request_does_not_change_the_digest() -> None:
    assert aborted(True).digest == aborted(False).digest


def test_who_waits_for_an_aborted_request_may_come() -> None:
    outcome, heard = play(STEPS, ask("a", 0, 5, 50, abort=7), ask("b", 2, after="a"))
    assert [(e[0], e[2]) for e in heard.of("arrive")] == [("a", 0), ("b", 10)]
    assert outcome.finished == 1


def test_a_run_whose_requests_are_all_aborted_ends() -> None:
    outcome, _ = play(STEPS, ask("a", 0, 5, 50, abort=3), ask("b", 0, 5, 50, abort=4))
    assert (outcome.finished, outcome.livelock, outcome.steps) == (0, False, 5)


# Livelock.


def test_nothing_moves_any_more_exactly_after_so_many_silent_steps() -> None:
    assert LIVELOCK_STEPS == 200
    budgets = [8] * 1000
    for fast_forward in (True, False):
        outcome, heard = play(replace(STUCK, preset="vllm-0.27.0"), ask("a", prompt=40), budgets=budgets,
                              fast_forward=fast_forward)  # fmt: skip
        assert outcome.livelock and (outcome.steps, outcome.time_us) == (200, 200)
        assert len(heard.of("step")) == outcome.deferred == 200
        assert heard.of("end") == [(200, 200, True)]


def test_silence_counts_from_the_last_token() -> None:
    options = replace(STUCK, preset="vllm-0.27.0")
    outcome, _ = play(options, ask("a", prompt=40), budgets=[8] * 5 + [16] + [8] * 1000)
    assert outcome.livelock and outcome.steps == 206
    outcome, _ = play(options, ask("a", prompt=40), budgets=[8] * 199 + [16] * 4)
    assert not outcome.livelock and outcome.finished == 1


def test_who_is_still_to_arrive_is_waited_for() -> None:
    options = replace(STUCK, preset="vllm-0.27.0")
    # Another arrival is pending until step 400; it moves, and then there are 200 silent steps.
    outcome, _ = play(options, ask("a", prompt=40), ask("b", 400, prompt=40), budgets=[8] * 2000)
    assert outcome.livelock and outcome.steps >= 400


def test_another_that_runs_is_no_livelock() -> None:
    options = replace(STUCK, preset="vllm-0.27.0")
    outcome, _ = play(options, ask("b", 0, 5, 300), ask("a", prompt=40), budgets=[8] * 300 + [16] * 300)
    assert not outcome.livelock and outcome.finished == 2


def test_who_waits_for_a_stuck_request_will_not_arrive() -> None:
    options = replace(STUCK, preset="vllm-0.27.0")
    outcome, _ = play(options, ask("a", prompt=40), ask("b", 0, after="a"), budgets=[8] * 3000)
    assert outcome.livelock and outcome.steps == 200


def test_a_stuck_request_that_will_be_aborted_is_no_livelock() -> None:
    options = replace(STUCK, preset="vllm-0.27.0")
    outcome, _ = play(options, ask("a", prompt=40, abort=500), budgets=[8] * 3000)
    assert (outcome.livelock, outcome.steps) == (False, 501)


# Progress.


def test_progress_is_told_after_each_step() -> None:
    told: list[tuple[int, ...]] = []
    drive(STEPS, [ask("a", 0, 5, 2)(0), ask("b", 1)(1)], progress=lambda *row: told.append(row), fast_forward=False)
    # (done, of, step, time, poisoned)
    assert told == [(0, 2, 0, 0, 0), (0, 2, 1, 1, 0), (2, 2, 2, 2, 0)]


# Resets.


def reset(running: bool, *times: int, **rules: str) -> tuple[Outcome, Heard]:
    """Two requests that decode from step 1 on, with resets."""
    heard = Heard()
    options = replace(STEPS, enable_prefix_caching=True, partial_hits=False, rules=rules)
    arrivals = [Arrival("a", 0, 0, ((1, 20),), 12), Arrival("b", 1, 0, ((2, 20),), 12)]
    return drive(options, arrivals, observers=[heard], resets=times, reset_running=running), heard


def test_a_reset_is_refused_while_a_request_runs_unless_that_is_put_back() -> None:
    outcome, heard = reset(False, 5)
    assert heard.of("reset") == [(False,)] and (outcome.resets, outcome.preempted) == (0, 0)
    outcome, heard = reset(True, 5)
    assert heard.of("reset") == [(True,)] and (outcome.resets, outcome.preempted) == (1, 2)


def test_those_put_back_come_again_in_their_order_in_the_same_step_from_nothing() -> None:
    outcome, heard = reset(True, 5)
    # The youngest first, so that the oldest is at the head of the queue.
    assert heard.of("preempt") == [("b",), ("a",)]
    names = [event[0] for event in heard.events]
    at = names.index("reset")
    assert names[:at].count("preempt") == 2 and "admit" not in names[names.index("preempt") : at]
    assert [e[:4] for e in heard.of("admit")][2:] == [("a", 0, 0, True), ("b", 0, 0, True)]
    assert outcome.finished == 2 and outcome.output_tokens == 24
    assert outcome.resume_hit_tokens == 0


def test_a_worker_that_is_not_told_of_the_reset_goes_on_with_the_old_column() -> None:
    """Where a request starts from zero nothing is read from there."""
    told, untold = reset(True, 9), reset(True, 9, worker="stale-on-reset")
    assert told[0].digest == untold[0].digest
    copies = [[e[1] for e in heard.of("copy") if e[2] == "pre"] for _, heard in (told, untold)]
    assert len(copies[1]) > len(copies[0])
    assert not told[0].findings and not untold[0].findings
