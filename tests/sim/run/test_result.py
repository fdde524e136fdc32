"""Whether a result is ok, what it raises, and how little room it takes when it is printed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_engines import SCENARIO

import stateat
from stateat.sim.errors import EngineError, NotAsExpected, PolicyError, RefusedError
from stateat.sim.events import Finding
from stateat.sim.report.recorded import RecordedResult
from stateat.sim.run.result import Failure, NotRun, Outcome, States
from stateat.sim.scenario.truth import Truth

ROOT = Path(__file__).resolve().parents[3]
S02 = ROOT / "scenarios" / "seeds" / "s02-anatomy.yaml"
LINE, SCREEN = 500, 3000
"""Characters that a repr and a print may take at most."""
LONG = "x" * 10_000


def finding(**changes: Any) -> Finding:
    values: dict[str, Any] = {"id": 0, "invariant": "I1", "severity": "poison", "step": 1, "message": "it is wrong"}
    rest = {"time_us": 0, "request": "a", "group": "gdn", "column": 0, "slot": 7, "claimed": 16, "held": 8}
    return Finding(**{**values, **rest, "verdict": "wrong offset", "root": None, "readers": (), **changes})


def outcome(variant: str = "v", **changes: Any) -> Outcome:
    return Outcome(variant, "vllm-0.27.0", (), {}, **changes)


def result(*outcomes: Outcome, **changes: Any) -> RecordedResult:
    variants = {each.variant: each for each in outcomes or (outcome(),)}
    return RecordedResult("s", "", "", "s.yaml", "us", variants, **changes)


POISONED = outcome(poisoned=1, findings=(finding(),))
ERROR = NotRun("w", "", EngineError("w was killed"))
REFUSED = NotRun("w", "", RefusedError("w has no such thing"))


@pytest.mark.parametrize(
    ("found", "ok", "keys"),
    [
        (result(), True, []),
        (result(has_expectations=True), True, []),
        (result(POISONED, has_expectations=True), True, []),
        (result(POISONED), False, ["findings"]),
        (result(POISONED, has_expectations=True, silent=("v",)), False, ["findings"]),
        (result(POISONED, uncompared=("v",)), True, []),
        (result(outcome(livelock=True)), False, ["livelock"]),
        (result(outcome(findings=(finding(severity="numerics"),))), False, ["findings"]),
        (result(outcome(findings=(finding(severity="shape"),))), True, []),
        (result(failed_expectations=(Failure("v", "", "steps", 1, 2),), has_expectations=True), False, ["steps"]),
        (result(not_run=(ERROR,)), False, ["run"]),
        (result(not_run=(REFUSED,)), False, ["run"]),
        (result(POISONED, baseline="vllm:0.27.0"), True, []),
    ],
)
def test_ok_is_that_all_ran_and_nothing_is_wrong(found: RecordedResult, ok: bool, keys: list[str]) -> None:
    assert (found.ok, [failure.key for failure in found.failures]) == (ok, keys)
    if ok:
        found.raise_for_findings()
    else:
        with pytest.raises(NotAsExpected, match=rf"^s: not as expected\n  [vw]: {keys[0]}: "):
            found.raise_for_findings()


def test_a_result_is_neither_true_nor_false() -> None:
    """``assert stateat.replay(file)`` would pass whatever came out."""
    for found in (result(), result(POISONED)):
        with pytest.raises(TypeError, match=r"ask result\.ok"):
            bool(found)


def test_a_file_that_expects_otherwise_is_not_ok_though_it_has_expectations() -> None:
    file = {**SCENARIO, "expect": {"finished": 2}}
    found = stateat.replay(file)
    assert (found.ok, found.has_expectations) == (False, True)
    with pytest.raises(NotAsExpected, match="finished: expected 2; found 1"):
        found.raise_for_findings()
    assert stateat.replay({**SCENARIO, "expect": {"finished": 1}}).ok
    assert stateat.replay(SCENARIO).ok and not stateat.replay(SCENARIO).has_expectations


class Negative:
    def __call__(self, chunk: Any) -> int:
        return -1


def test_a_rule_that_breaks_its_contract_in_one_variant_leaves_the_others() -> None:
    rules = {"split": f"{__name__}:Negative"} if __name__ != "__main__" else {}
    found = stateat.replay(
        {**SCENARIO, "variants": {"good": {}, "bad": {"rules": {"split": "builtins:repr"}}}}, allow_code=True
    )
    assert rules and list(found.variants) == ["good"] and not found.ok
    (bad,) = found.not_run
    assert (bad.variant, bad.kind, type(bad.error)) == ("bad", "error", PolicyError)
    assert len(found.requests) == 1
    with pytest.raises(NotAsExpected, match="bad: run: expected an outcome; found one-request, variant bad: rule"):
        found.raise_for_findings()
    with pytest.raises(PolicyError, match="variant bad: rule split=builtins:repr gave"):
        stateat.replay({**SCENARIO, "variants": {"bad": {"rules": {"split": "builtins:repr"}}}}, allow_code=True)


def test_of_a_sum_without_a_case_what_is_too_much_already_fails() -> None:
    cases = {"a": {}, "b": {"engine": {"rules": {"split": "builtins:repr"}}}}
    for expect, failed in (({"steps": 100}, False), ({"steps": 1}, True), ({"finished": {"max": 0}}, True)):
        found = stateat.replay({**SCENARIO, "cases": cases, "variants": {"v": {"expect": expect}}}, allow_code=True)
        assert [each.case for each in found.not_run] == ["b"]
        assert bool(found.failed_expectations) is failed and list(found.variants["v"].cases) == ["a"]


def test_what_is_expected_is_held_to_what_ran_alone() -> None:
    """An expectation of a variant, a case or a state family that is not there is not met."""
    bad = {"rules": {"split": "builtins:repr"}}
    variants = {"old": {**bad, "expect": {"steps": 1}}, "new": {}}
    found = stateat.replay({**SCENARIO, "variants": variants}, allow_code=True)
    assert found.held == [] and str(found).splitlines()[0].startswith("one-request: could not be run: old; nothing")
    part = {"v": {"expect": {"cases": {"b": {"steps": 1}}}}}
    found = stateat.replay({**SCENARIO, "cases": {"a": {}, "b": {"engine": bad}}, "variants": part}, allow_code=True)
    assert (found.held, found.unheld) == ([], ("v",)) and "as expected" not in repr(found)
    found = stateat.replay({**SCENARIO, "expect": {"exact": 7}}, state="digest")
    assert (found.held, list(found.unheld)) == ([], list(found.variants)) and "as expected" not in repr(found)
    found = stateat.replay({**SCENARIO, "expect": {"finished": 1}})
    assert found.held == list(found.variants) and "as expected" in repr(found)
    assert not stateat.replay({**SCENARIO, "expect": {}}).has_expectations


def test_a_result_fits_on_a_screen() -> None:
    found = stateat.replay(S02)
    assert str(found).splitlines() == [
        "s02-anatomy: as expected",
        "  old gate    1 poisoned (1 root), 50.0% hit, 3 requests, 7 steps",
        "  fixed gate  0 poisoned, 25.0% hit, 3 requests, 7 steps",
    ]
    assert repr(found) == "<Result s02-anatomy: as expected (old gate 1 poisoned, fixed gate 0 poisoned)>"


def test_whatever_is_public_stays_short_when_it_is_shown() -> None:
    wrong = finding(message=LONG, request=LONG, readers=(LONG,) * 100)
    outcomes = [
        outcome(f"{i}{LONG}", findings=(wrong,) * 1000, poisoned=1000, ends={LONG: (1,) * 1000}) for i in range(40)
    ]
    states = States(Truth(state=LONG), 8, {"exact": 1}, ({"request": LONG},) * 100)
    failure = Failure(LONG, LONG, LONG, [LONG] * 100, [LONG] * 100)
    not_run = NotRun(LONG, LONG, EngineError(LONG))
    big = result(*outcomes, failed_expectations=(failure,) * 1000, not_run=(not_run,) * 1000)
    requests = [{"id": f"{i}{LONG[:100]}", "prompt": [[1, 16]]} for i in range(2000)]
    scenario = stateat.load({**SCENARIO, "workload": {"requests": requests}})
    for thing in (big, outcomes[0], wrong, states, failure, not_run, scenario, scenario.expanded[0]):
        assert len(repr(thing)) <= 2 * LINE and "\n" not in repr(thing), type(thing)
        assert len(str(thing)) <= SCREEN and len(str(thing).splitlines()) <= 15, type(thing)
    with pytest.raises(NotAsExpected) as raised:
        big.raise_for_findings()
    assert len(str(raised.value).splitlines()) <= 25


def test_what_cannot_be_printed_is_escaped() -> None:
    assert "\x1b" not in repr(outcome("\x1b]0;title\x07")) and "\\x1b" in repr(outcome("\x1b]0;title\x07"))
    assert "\x1b" not in str(result(outcome("\x1b[2J")))


def test_a_notebook_shows_the_verdict_too() -> None:
    assert "<p>poisoned, and the file expects nothing</p>" in result(POISONED)._repr_html_()
    assert "<b>" not in replace(result(POISONED), uncompared=("<b>",))._repr_html_()
