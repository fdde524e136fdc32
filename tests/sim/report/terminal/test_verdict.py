"""What a check and a replay say last: as expected, or what is otherwise, and what there is to expect."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console
from yaml import safe_load

from stateat.sim.errors import EngineError, RefusedError
from stateat.sim.report.machine.junit import to_junit
from stateat.sim.report.terminal.verdict import print_expectations, print_verdict, ready_expectation, standing, verdict
from stateat.sim.run.expect import compare
from stateat.sim.run.result import Failure, NotRun, Outcome, Result

FINDING = "I1 poison  step 1  gdn column 0 (slot 17, request a) is hashed as state@1600 but holds state@364"
STUCK = {"invariant": "I14", "severity": "liveness", "column": None, "slot": -1, "claimed": None, "held": None}


def checked(result: Result) -> list[str]:
    stream = io.StringIO()
    print_expectations(result, 0.25, Console(file=stream, width=80))
    return stream.getvalue().splitlines()


def test_a_check_is_a_line_where_all_is_as_expected(told: SimpleNamespace) -> None:
    assert checked(told.result()) == ["ok   scenarios/seeds/fragmented-first-chunk.yaml: as expected (0.2 s)"]
    (line,) = checked(told.result(x=told.clean(restores=1), expected=False))
    assert line.endswith(": nothing poisoned; the file expects nothing (0.2 s)")


def test_a_check_and_a_replay_end_in_the_same_words(told: SimpleNamespace) -> None:
    results = [
        told.result(),
        told.result(expected=False),
        told.result(Failure("old gate", "", "poisoned", 0, 1)),
        told.result(x=told.clean(), expected=False),
        told.result(x=stuck(told), expected=False),
        replace(told.result(), uncompared=("old gate",)),
    ]
    for result in results:
        stream = io.StringIO()
        print_verdict(result, Console(file=stream, width=80))
        assert stream.getvalue().splitlines()[-1] == verdict(result)
        assert f": {verdict(result)} (0.2 s)" in checked(result)[0]
    assert len(set(map(verdict, results))) == len(results)


def test_what_was_not_compared_is_said_and_nothing_is_asked_of_it(told: SimpleNamespace) -> None:
    result = replace(told.result(), uncompared=("old gate",))
    assert verdict(result) == "as expected; not compared: old gate"
    alone = replace(told.result(v=told.outcome("v"), expected=False), uncompared=("v",))
    assert (alone.wrong_where_silent, verdict(alone)) == ([], "not compared: v")
    # Nothing of these releases is in the file: nothing is "as expected".
    away = replace(told.result(x=told.clean("x", restores=1), expected=False), elsewhere=("x",))
    assert verdict(away) == "nothing poisoned; the file expects nothing of this engine"


def test_nothing_is_as_expected_where_nothing_was_held_to_an_expectation(told: SimpleNamespace) -> None:
    """The file expects something, of what did not run."""
    error = NotRun("old", "", EngineError("it crashed"))
    silent = told.result(new=told.clean("new", restores=1))
    found = replace(silent, silent=("new",), not_run=(error,))
    assert verdict(found) == "could not be run: old; nothing poisoned; the file expects nothing of what ran"
    assert (found.held, standing(found)) == ([], "error") and "as expected" not in f"{found}{found!r}"
    skipped = replace(found, not_run=(NotRun("old", "", RefusedError("it has no such thing")),))
    assert verdict(skipped) == "nothing poisoned; the file expects nothing of what ran; skipped: old"
    assert standing(skipped) == "silent"
    # Beside one that was held to something.
    assert verdict(replace(told.result(), not_run=(error,))) == "could not be run: old; all else as expected"
    failed = replace(told.result(Failure("old gate", "", "poisoned", 0, 1)), not_run=(error,))
    assert verdict(failed) == "could not be run: old; 1 expectation failed"


def test_an_expectation_of_which_nothing_was_compared_is_not_met(told: SimpleNamespace) -> None:
    for outcome, what in ((told.clean("v", restores=1), "nothing poisoned"), (told.outcome("v"), "poisoned")):
        found = replace(told.result(v=outcome), unheld=("v",))
        assert verdict(found).startswith(what) and standing(found) == "silent"
        assert verdict(found).endswith("; nothing that the file expects of v was compared")
        assert '<skipped message="not compared: ' in to_junit([found])
    both = replace(told.result(), unheld=("old gate",))
    assert verdict(both) == "as expected; nothing that the file expects of old gate was compared"


def test_wrong_reads_are_called_so_and_not_poisoned(told: SimpleNamespace) -> None:
    read = told.finding(invariant="I12")
    outcome = told.outcome("v", poisoned=0, findings=(read,), wrong_restores=0, wrong_reads=2)
    assert outcome.wrongs == {"wrong read": 2}
    assert verdict(told.result(v=outcome, expected=False)) == "wrong reads, and the file expects nothing"
    both = told.outcome("v", poisoned=0, wrong_restores=1, findings=(read, told.finding(1, invariant="I5")))
    assert both.wrongs == {"wrong restore": 1, "I5 finding": 1}
    started = told.outcome("v", poisoned=0, wrong_restores=0, findings=(told.finding(invariant="I6"),))
    assert verdict(told.result(v=started, expected=False)) == "I6 findings, and the file expects nothing"
    assert told.outcome().wrongs == {"poisoned": 1}
    assert told.clean().wrongs == {}


def test_a_check_that_fails_shows_both_values_and_a_line_ready_to_be_expected(told: SimpleNamespace) -> None:
    ready = (
        "    old gate: expect: {poisoned: 1, findings: {contains: "
        "[{invariant: I1, request: a, column: 0, claimed: 1600, held: 364}]}}"
    )
    first, *rest = checked(told.result(Failure("old gate", "", "poisoned", 0, 1)))
    assert first.startswith("FAIL scenarios/")
    assert rest == [
        "expectation failed  old gate: poisoned",
        "    expected  0",
        "    found     1",
        f"    old gate: {FINDING}",
        ready,
    ]
    first, *rest = checked(told.result(expected=False))
    assert "FAIL" in first
    assert "poisoned, and the file expects nothing" in first
    assert rest == [f"    old gate: {FINDING}", ready]


def test_the_ready_line_is_an_expectation_that_holds(told: SimpleNamespace) -> None:
    findings = (told.finding(0), told.finding(1, severity="shape", invariant="I2"), told.finding(2, root=0, held=None))
    outcome = told.outcome(poisoned=2, findings=findings)
    assert compare(safe_load(ready_expectation(outcome)), outcome) == []
    assert compare(safe_load(ready_expectation(outcome)), told.clean()) != []


def stuck(told: SimpleNamespace, **more: object) -> Outcome:
    """A run that never ends, and poisons nothing unless ``more`` says so."""
    finding = told.finding(1, message="a: no token in 200 steps", readers=(), write=None, **STUCK)
    return told.clean("v", **{"livelock": True, "findings": (finding,), **more})  # type: ignore[no-any-return]


def test_a_run_that_never_ends_fails_and_shows_how_to_expect_it(told: SimpleNamespace) -> None:
    first, *rest = checked(told.result(v=stuck(told), expected=False))
    assert first.startswith("FAIL") and "never ends, and the file expects nothing" in first
    ready = "    v: expect: {livelock: true, findings: {contains: [{invariant: I14, request: a}]}}"
    assert rest == ["    v: I14 liveness  step 1  a: no token in 200 steps", ready]


def test_a_ready_line_names_poison_and_the_end_that_is_missing(told: SimpleNamespace) -> None:
    both = stuck(told, poisoned=5, findings=(*map(told.finding, range(5)), *stuck(told).findings))
    expect = safe_load(ready_expectation(both))
    assert [entry["invariant"] for entry in expect["findings"]["contains"]] == ["I1", "I1", "I1", "I14"]
    assert compare(expect, both) == []
    assert {f.key for f in compare(expect, told.clean("v"))} == {"poisoned", "livelock", "findings"}
    assert "never ends" in " ".join(checked(told.result(v=both, expected=False)))
    assert "poisoned and never ends" in " ".join(checked(told.result(v=both, expected=False)))


def test_a_log_that_never_ends_says_so(told: SimpleNamespace) -> None:
    stream = io.StringIO()
    heard = Result("s", "", "", "s.jsonl", "us", {"v": stuck(told)}, is_scenario=False)
    print_verdict(heard, Console(file=stream, width=80))
    assert heard.wrong_where_silent == ["v"] and stream.getvalue() == "never ends\n"


@pytest.mark.parametrize("elsewhere", [True, False])
def test_on_another_release_nothing_is_offered_to_be_expected(told: SimpleNamespace, elsewhere: bool) -> None:
    result = told.result(Failure("old gate", "", "poisoned", 0, 1))
    lines = checked(replace(result, elsewhere=("old gate",) if elsewhere else ()))
    assert any("expect: {" in line for line in lines) is not elsewhere
    assert any("old gate: the file expects nothing of this engine" in line for line in lines) is elsewhere
