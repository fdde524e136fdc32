"""Chrome traces of runs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stateat.sim.events import SCHEMA, Finding, Observer
from stateat.sim.report.machine.perfetto import Perfetto, write
from stateat.sim.run.result import Outcome

Event = dict[str, Any]


def trace(path: Path, *variants: Perfetto, findings: Sequence[Finding] = ()) -> list[Event]:
    """The events of variants ``v0``, ``v1``, ...; the findings are the first one's."""
    outcomes = [Outcome("", "", (), {}, findings=tuple(findings) if i == 0 else ()) for i in range(len(variants))]
    write(path, [(f"v{i}", *pair) for i, pair in enumerate(zip(variants, outcomes, strict=True))])
    events: list[Event] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return events


def of(events: list[Event], phase: str, **values: Any) -> list[Event]:
    return [e for e in events if e["ph"] == phase and all(e[key] == value for key, value in values.items())]


def tell_microseconds(to: Observer, groups: Any) -> None:
    """a is fast-forwarded until b arrives; b is preempted and resumed."""
    to.run(SCHEMA, "reference", groups, 0, {"clock": "us"})
    to.arrive("a", 0, 0, ((1, 10),), None, 9)
    to.step(0, 0, 100)
    to.admit("a", 0, 0, False)
    to.chunk("a", 0, 10, 0, "prompt-end", 0, ())
    to.commit(900)
    to.arrive("b", 1, 5000, ((2, 10),), None, 9)
    to.step(5, 5000, 100)
    to.chunk("a", 10, 14, 0, "decode", 4, (0, 0, 0, 0))
    to.admit("b", 0, 0, False)
    to.chunk("a", 14, 15, 0, "decode", 0, ())
    to.chunk("b", 0, 10, 0, "prompt-end", 0, ())
    to.finish("a")
    to.step(6, 6000, 100)
    to.preempt("b")
    to.defer("b", 4, "block-boundary")
    to.step(7, 7000, 100)
    to.admit("b", 0, 0, True)
    to.chunk("b", 0, 10, 0, "prompt-end", 0, ())
    to.finish("b")
    to.end(8, 8000, False)


@pytest.fixture
def events(told: SimpleNamespace, tmp_path: Path) -> list[Event]:
    variant = Perfetto()
    tell_microseconds(variant, told.groups)
    return trace(tmp_path / "t.json", variant)


def test_a_step_is_a_millisecond_under_a_clock_of_steps(told: SimpleNamespace, tmp_path: Path) -> None:
    variant = Perfetto()
    told.old_gate(variant)
    slices = of(trace(tmp_path / "t.json", variant), "X")
    assert [(s["ts"], s["dur"], s["args"]["stop"]) for s in slices] == [
        (0, 1000, "budget"),
        (1000, 1000, "prompt-end"),
        (2000, 1000, "prompt-end"),
    ]


def test_time_does_not_run_backwards_on_any_thread_and_slices_do_not_overlap(events: list[Event]) -> None:
    last: dict[int, int] = defaultdict(int)
    busy: dict[int, int] = defaultdict(int)
    for event in (e for e in events if e["ph"] in "XiC"):
        assert event["ts"] >= last[event["tid"]]
        last[event["tid"]] = event["ts"]
        if event["ph"] == "X":
            assert event["ts"] >= busy[event["tid"]]
            busy[event["tid"]] = event["ts"] + event["dur"]
    assert len(busy) == 2


def test_a_fast_forwarded_run_is_one_slice_that_ends_where_its_telling_step_begins(events: list[Event]) -> None:
    (run,) = [s for s in of(events, "X") if s["args"]["steps"] > 1]
    assert (run["name"], run["args"]["steps"]) == ("10 → 14", 4)
    assert run["ts"] + run["dur"] == 5000


def test_threads_are_requests_and_processes_variants(told: SimpleNamespace, tmp_path: Path) -> None:
    variants = [Perfetto(), Perfetto()]
    told.old_gate(variants[0])
    told.fixed_gate(variants[1])
    events = trace(tmp_path / "t.json", *variants)
    processes = {e["pid"]: e["args"]["name"] for e in of(events, "M", name="process_name")}
    assert processes == {1: "v0", 2: "v1"}
    threads = [(e["pid"], e["args"]["name"]) for e in of(events, "M", name="thread_name")]
    assert threads == [(1, "engine"), (1, "a"), (1, "b"), (2, "engine"), (2, "a"), (2, "b")]
    named = {(e["pid"], e["tid"]) for e in of(events, "M")}
    assert {(e["pid"], e["tid"]) for e in events} == named


def test_claims_restores_deferrals_and_findings_are_marked(told: SimpleNamespace, tmp_path: Path) -> None:
    variants = [Perfetto(), Perfetto()]
    told.old_gate(variants[0])
    told.fixed_gate(variants[1])
    findings = [told.finding(), told.finding(request="")]
    marks = of(trace(tmp_path / "t.json", *variants, findings=findings), "i")
    assert [(m["pid"], m["name"], m["tid"], m["ts"]) for m in marks] == [
        (1, "claim", 1, 1000),
        (1, "restore", 2, 2000),
        (1, "finding I1", 1, 2000),
        (1, "finding I1", 0, 2000),
        (2, "defer", 1, 0),
    ]
    assert marks[0]["args"]["offset"] == marks[1]["args"]["offset"] == 1600


def test_the_counter_of_tokens_is_what_the_slices_hold_and_ends_at_nothing(events: list[Event]) -> None:
    counters = of(events, "C", name="step tokens")
    seen = [(c["ts"], c["args"]["tokens"]) for c in counters]
    assert seen == [(0, 10), (900, 1), (5000, 11), (6000, 0), (7000, 10), (8000, 0)]


def test_the_counters_of_requests_follow_admission_preemption_and_finish(events: list[Event]) -> None:
    counters = of(events, "C", name="requests")
    seen = [(c["ts"], c["args"]["running"], c["args"]["waiting"]) for c in counters]
    assert (5000, 2, 0) in seen
    assert (6000, 0, 1) in seen
    assert seen[-1] == (8000, 0, 0)


def test_a_run_writes_itself_as_it_is_written_among_others(told: SimpleNamespace, tmp_path: Path) -> None:
    variant = Perfetto()
    told.old_gate(variant)
    variant.write(tmp_path / "one.json")
    alone = json.loads((tmp_path / "one.json").read_text(encoding="utf-8"))["traceEvents"]
    named = {"ph": "M", "name": "process_name"}
    together = trace(tmp_path / "many.json", variant)
    assert [e for e in alone if not named.items() <= e.items()] == [
        e for e in together if not named.items() <= e.items()
    ]
