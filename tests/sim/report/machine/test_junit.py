"""JUnit XML of results."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.errors import EngineError, RefusedError
from stateat.sim.report.machine.junit import to_junit
from stateat.sim.report.words.findings import SHOWN_FINDINGS
from stateat.sim.run.result import Failure, NotRun, Outcome, Result


def test_a_suite_is_a_file_and_a_case_is_a_variant_or_one_of_its_cases(told: SimpleNamespace) -> None:
    result = told.result(x=told.outcome(cases={"resume": told.outcome()}), y=told.clean())
    root = ET.fromstring(to_junit([result, told.result()], {result.path: 1.5}))
    assert [case.get("name") for case in root[0]] == ["old gate", "old gate / resume", "fixed gate"]
    assert (root.get("tests"), root[0].get("tests"), root[0].get("time")) == ("5", "3", "1.500")
    assert root[0].get("file") == result.path
    assert root.get("failures") == "0"


def test_files_of_one_name_are_told_apart_by_their_paths(told: SimpleNamespace) -> None:
    one, two = (replace(told.result(), path=path) for path in ("a/s.yaml", "b/s.yaml"))
    suites = ET.fromstring(to_junit([one, two]))
    assert [suite.get("name") for suite in suites] == [f"{one.scenario} (a/s.yaml)", f"{one.scenario} (b/s.yaml)"]
    assert len({case.get("classname") for case in suites.iter("testcase")}) == 2
    assert ET.fromstring(to_junit([one]))[0].get("name") == one.scenario


def test_a_file_that_was_refused_is_a_suite_with_an_error(told: SimpleNamespace) -> None:
    root = ET.fromstring(to_junit([told.result()], refused={"bad.yaml": "bad.yaml:1: a\nbad.yaml:2: b"}))
    assert (root.get("errors"), root[1].get("errors"), root[1].get("file")) == ("1", "1", "bad.yaml")
    assert int(root.get("tests") or 0) == int(root[0].get("tests") or 0) + 1
    (error,) = root.iter("error")
    assert (error.get("message"), error.text) == ("bad.yaml:1: a", "bad.yaml:1: a\nbad.yaml:2: b")


def test_a_failed_expectation_fails_its_case_alone_with_both_values(told: SimpleNamespace) -> None:
    outcome = told.outcome(cases={"resume": told.outcome()})
    failures = [Failure("old gate", "resume", "poisoned", 0, 1), Failure("old gate", "resume", "deferred", 2, 3)]
    root = ET.fromstring(to_junit([told.result(*failures, x=outcome)]))
    failing = [case for case in root[0] if len(case)]
    assert [case.get("name") for case in failing] == ["old gate / resume"]
    assert failing[0][0].get("message") == "2 failed expectations"
    assert failing[0][0].text == (
        "old gate / resume: poisoned\n  expected  0\n  found     1\n"
        "old gate / resume: deferred\n  expected  2\n  found     3"
    )
    assert (root.get("failures"), root[0].get("failures")) == ("1", "1")


def test_poison_fails_a_case_only_where_nothing_is_expected(told: SimpleNamespace) -> None:
    shape = told.clean(findings=(told.finding(severity="shape"),))
    root = ET.fromstring(to_junit([told.result(x=told.outcome(), y=shape, expected=False)]))
    old, fixed = root[0]
    assert "is hashed as state@1600 but holds state@364" in (old[0].text or "")
    assert len(fixed) == 0


def test_what_is_not_compared_is_skipped(told: SimpleNamespace) -> None:
    result = replace(told.result(expected=False), uncompared=("old gate",))
    suite = ET.fromstring(to_junit([result]))[0]
    old, fixed = suite
    assert [child.tag for child in old] == ["skipped"] and len(fixed) == 0
    assert (suite.get("tests"), suite.get("skipped"), suite.get("failures")) == ("2", "1", "0")


def test_a_failure_of_an_unknown_variant_is_not_lost(told: SimpleNamespace) -> None:
    root = ET.fromstring(to_junit([told.result(Failure("gone", "", "poisoned", 0, "not run"))]))
    assert [case.get("name") for case in root[0] if len(case)] == ["gone"]


@given(st.text(), st.text(min_size=1), st.text())
def test_any_names_give_valid_xml(scenario: str, variant: str, found: str) -> None:
    result = Result(scenario, "", "", "f", "us", {variant: Outcome(variant, "", (), {})}, has_expectations=True)
    result = replace(result, failed_expectations=(Failure(variant, "", variant, 0, found),))
    root = ET.fromstring(to_junit([result]).encode())
    assert root.get("failures") == "1"
    assert len(root[0]) == 1


def test_what_xml_cannot_carry_is_written_as_an_escape() -> None:
    result = Result("s\x00\ud800<&\"'", "", "", "f", "us", {"v": Outcome("v", "", (), {})})
    assert ET.fromstring(to_junit([result]).encode())[0].get("name") == "s\\x00\\ud800<&\"'"


def test_whatever_makes_a_check_fail_fails_a_case(told: SimpleNamespace) -> None:
    """Poison, a state that is no number, a run that never ends."""
    for severity, more in (("poison", {}), ("numerics", {}), ("liveness", {"livelock": True})):
        result = told.result(x=told.clean("x", findings=(told.finding(severity=severity),), **more), expected=False)
        assert result.wrong_where_silent == ["x"]
        (case,) = ET.fromstring(to_junit([result]))[0]
        assert case[0].get("message") == f"1 {severity} finding"


def test_what_did_not_run_is_skipped_or_an_error_and_never_absent(told: SimpleNamespace) -> None:
    not_run = (
        NotRun("x", "", RefusedError("it has no such thing")),
        NotRun("old gate", "resume", EngineError("it was killed\n  it wrote last:\n  oh")),
    )
    suite = ET.fromstring(to_junit([replace(told.result(), not_run=not_run)]))[0]
    assert {str(case.get("name")): [child.tag for child in case] for case in suite} == {
        "old gate": [],
        "fixed gate": [],
        "x": ["skipped"],
        "old gate / resume": ["error"],
    }
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "0", "1", "1"]
    assert suite[3][0].get("message") == "it was killed" and "it wrote last" in (suite[3][0].text or "")


def test_a_file_that_was_skipped_is_there_with_its_reason(told: SimpleNamespace) -> None:
    root = ET.fromstring(to_junit([told.result()], skipped={"away.yaml": "there is no folder of traces"}))
    assert (root.get("skipped"), root.get("errors"), root[1].get("file")) == ("1", "0", "away.yaml")
    assert root[1][0][0].get("message") == "there is no folder of traces"


def test_cases_that_would_be_called_the_same_are_kept_apart(told: SimpleNamespace) -> None:
    result = told.result(x=told.outcome("a", cases={"b": told.clean("a")}), y=told.outcome("a / b"))
    suite = ET.fromstring(to_junit([result]))[0]
    assert [case.get("name") for case in suite] == ["a", "a / b", "a / b (2)"]
    named = replace(told.result(), scenario="s.yaml", path="")
    root = ET.fromstring(to_junit([named, named], refused={"s.yaml": "bad"}))
    assert [suite.get("name") for suite in root] == ["s.yaml", "s.yaml (2)", "s.yaml (3)"]
    assert root[2].get("file") == "s.yaml"


def test_a_finding_that_comes_again_step_by_step_is_one_line(told: SimpleNamespace) -> None:
    findings = tuple(told.finding(i, step=i, message=f"wrong {i % 12}") for i in range(24))
    result = told.result(x=told.clean("x", findings=findings), expected=False)
    text = to_junit([result])
    assert text.count("  wrong ") == 10
    assert "steps 0, 12  wrong 0" in text
    assert "all 24: I1 wrong offset 24" in text


@pytest.mark.parametrize(("count", "summed"), [(SHOWN_FINDINGS, False), (SHOWN_FINDINGS + 1, True)])
def test_findings_are_summed_up_only_where_some_are_not_shown(told: SimpleNamespace, count: int, summed: bool) -> None:
    findings = tuple(told.finding(i, message=f"wrong {i}") for i in range(count))
    text = to_junit([told.result(x=told.clean("x", findings=findings), expected=False)])
    assert text.count("  wrong ") == SHOWN_FINDINGS
    assert (f"all {count}: " in text) == summed


def test_what_the_baseline_has_too_is_told_and_fails_no_case(told: SimpleNamespace) -> None:
    known = (Failure("old gate", "", "poisoned", 0, 1), Failure("old gate", "", "deferred", 2, 3))
    result = replace(told.result(), baseline="vllm:0.27.0", in_baseline=known)
    old, fixed = ET.fromstring(to_junit([result]))[0]
    assert len(fixed) == 0
    assert {child.tag: child.text for child in old} == {
        "system-out": "also in the baseline  old gate: poisoned\n  expected  0\n  found     1\n"
        "also in the baseline  old gate: deferred\n  expected  2\n  found     3"
    }
