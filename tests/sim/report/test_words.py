"""Findings and failed expectations in words."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.events import Write
from stateat.sim.report.words.failures import SHOWN_CHARACTERS, failure_lines
from stateat.sim.report.words.findings import (
    disagreement,
    evidence_lines,
    finding_line,
    one_line,
    roots_first,
    summary,
    write_text,
)
from stateat.sim.run.result import Failure, Outcome


def lines(expected: Any, found: Any) -> list[str]:
    return failure_lines(Failure("v", "", "key", expected, found))


def test_a_finding_is_one_readable_line(told: SimpleNamespace) -> None:
    assert finding_line(told.finding()) == (
        "I1 poison  step 1  gdn column 0 (slot 17, request a) is hashed as state@1600 but holds state@364"
    )


def test_the_evidence_names_write_claim_and_readers(told: SimpleNamespace) -> None:
    assert list(evidence_lines(told.finding())) == [
        "written   by a in step 0: chunk [0, 364)",
        "claimed   by a in step 1",
        "restored  by b",
    ]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("cow", "copy of a shared slot before it is written"),
        ("pre", "copy before the step, into the column where its chunk ends"),
        ("post", "copy after verification, of the boundary that it passed"),
        ("load", "load from a connector or a tier"),
    ],
)
def test_each_kind_of_write_is_told_in_words(kind: str, said: str) -> None:
    assert write_text(Write(201, "r7", 16, 16, kind)) == f"by r7 in step 201: {said}"


def test_nobody_wrote_the_null_block() -> None:
    assert write_text(Write(-1, "", 0, 0, "null")) == "by nobody: memory comes zeroed"


def test_many_readers_are_counted(told: SimpleNamespace) -> None:
    finding = told.finding(readers=tuple(f"r{i}" for i in range(1008)), write=None, claimed_by="")
    assert list(evidence_lines(finding)) == ["restored  by r0, r1, r2, r3, r4, r5, r6, r7 and 1,000 more"]


def test_roots_come_before_what_they_caused_and_poison_before_shape(told: SimpleNamespace) -> None:
    findings = [
        told.finding(0, step=0, root=2),
        told.finding(1, step=1, severity="shape"),
        told.finding(2, step=9),
        told.finding(3, step=3),
    ]
    assert [f.id for _, f in roots_first(("", f) for f in findings)] == [3, 2, 1, 0]


def test_a_summary_counts_each_invariant_and_verdict(told: SimpleNamespace) -> None:
    findings = [told.finding(), told.finding(), told.finding(invariant="I2", verdict="")]
    assert summary(findings) == "I1 wrong offset 2, I2 1"


@pytest.mark.parametrize(
    ("expected", "found", "said"),
    [
        (0, 1, ["expected  0", "found     1"]),
        ({"min": 3}, 1, ['expected  {"min": 3}', "found     1"]),
        ({"a": [2002], "b": [7]}, {"a": (364, 2002), "b": (7,)}, ["at a", "expected  [2002]", "found     [364, 2002]"]),
        ({"a": 1}, {}, ["at a", "expected  1", "found     nothing"]),
        (False, True, ["expected  false", "found     true"]),
    ],
)
def test_a_failure_shows_only_what_differs(expected: Any, found: Any, said: list[str]) -> None:
    assert lines(expected, found) == said


def test_long_lists_are_compared_at_their_first_difference() -> None:
    same = list(range(1000, 1100))
    assert lines([*same, 5], [*same, 6, 7]) == ["at [100]", "expected  5", "found     6"]
    assert lines([*same, 5], same) == ["at [100]", "expected  5", "found     nothing (100 in all)"]


def test_of_findings_only_those_without_a_partner_are_shown() -> None:
    found = [{"request": "a", "held": 364}, {"request": "b", "held": 7}, {"request": "c", "held": 8}]
    assert lines([{"held": 7}, {"held": 9}], found[:2]) == [
        'missing       {"held": 9}',
        'not expected  {"request": "a", "held": 364}',
    ]
    assert lines([{"held": 7}], found[:2]) == ['not expected  {"request": "a", "held": 364}']
    assert lines({"contains": [{"held": 9}]}, found[:1])[0] == 'missing       {"held": 9}'


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_whatever_was_expected_its_lines_are_lines_and_short(expected: Any) -> None:
    said = lines(expected, "found")
    assert said[-2].startswith("expected")
    assert all(len(line.splitlines()) == 1 for line in said)
    assert all(len(line) <= 10 * SHOWN_CHARACTERS + 10 for line in said)


@given(st.text(min_size=1))
def test_one_line_is_one_line_without_control_characters(text: str) -> None:
    assert one_line(text).isprintable()
    if text.isprintable():
        assert one_line(text) == text


def test_what_differs_of_two_runs_is_named(told: SimpleNamespace) -> None:
    found = told.finding()
    one = Outcome("v", "p", (), {}, digest="a" * 64, findings=(found,), poisoned=1)
    line = finding_line(found)
    assert disagreement(one, replace(one, digest="b" * 64)) == f"digests {'a' * 16} and {'b' * 16}"
    assert disagreement(one, replace(one, poisoned=2)) == "poisoned 1 and 2"
    gone = "findings (1 and 0), the first of them #0"
    assert disagreement(one, replace(one, findings=())) == f"{gone}: {line}; step by step: none"
    more = "findings (1 and 2), the first of them #1"
    assert disagreement(one, replace(one, findings=(found, found))) == f"{more}: none; step by step: {line}"
    other = replace(found, readers=())
    differs = disagreement(one, replace(one, findings=(other,), digest="b"))
    assert differs.startswith("digests ") and differs.endswith(f"{line}, readers ('b',); step by step: ()")
