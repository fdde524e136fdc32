"""Expectations against outcomes."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.events import Finding
from stateat.sim.run.expect import compare, compares, finding_facts, findings_match
from stateat.sim.run.result import Failure, Outcome, States
from stateat.sim.scenario.counts import number_matches
from stateat.sim.scenario.truth import Truth


def finding(id: int = 0, **changes: Any) -> Finding:
    made = Finding(
        id=id, invariant="I1", severity="poison", step=3, time_us=3, request="a", group="gdn", column=0, slot=17,
        claimed=1600, held=364, verdict="wrong offset", root=None, readers=(), message="",
    )  # fmt: skip
    return replace(made, **changes)


STATES = States(Truth("ring"), 4096, {"exact": 3})


def outcome(**counts: Any) -> Outcome:
    return Outcome(variant="old", preset="vllm-0.26.0", groups=(), rules={}, **counts)


def test_a_number_is_exact() -> None:
    assert compare({"poisoned": 2}, outcome(poisoned=2)) == []
    assert compare({"poisoned": 1}, outcome(poisoned=2)) == [Failure("old", "", "poisoned", 1, 2)]


@pytest.mark.parametrize(
    ("expect", "whole", "partial"),
    [({"hits": {"a": 3}}, True, False), ({"deferred": 2}, True, True), ({"deferred": {"min": 2}}, True, False)],
)
def test_a_sum_of_which_a_case_is_missing_is_held_to_its_highest_numbers_alone(
    expect: dict[str, Any], whole: bool, partial: bool
) -> None:
    assert compares(expect, outcome()) is whole
    assert compares(expect, outcome(), absent=["resume"]) is partial


def test_a_number_may_be_a_range_with_its_ends() -> None:
    for steps, fine in ((3, False), (4, True), (6, True), (7, False)):
        assert (compare({"steps": {"min": 4, "max": 6}}, outcome(steps=steps)) == []) is fine
    assert compare({"steps": {"min": 4}}, outcome(steps=10**9)) == []
    assert compare({"steps": {"max": 4}}, outcome(steps=5)) == [Failure("old", "", "steps", {"max": 4}, 5)]


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_range_is_an_interval(low: int, high: int, n: int) -> None:
    assert number_matches({"min": low, "max": high}, n) == (n in range(low, high + 1))


def test_livelock_and_digest_are_compared_as_they_are() -> None:
    assert compare({"livelock": True, "digest": "ab"}, outcome(livelock=True, digest="ab")) == []
    keys = [f.key for f in compare({"livelock": False, "digest": "ab"}, outcome(livelock=True, digest="cd"))]
    assert keys == ["livelock", "digest"]


def test_a_run_that_never_ends_is_named_or_fails_in_its_own_case() -> None:
    cases = {"x": outcome(livelock=True), "y": outcome(livelock=True), "z": outcome()}
    total = outcome(livelock=True, cases=cases)
    assert compare({"livelock": True}, total) == []
    assert compare({"invariants": {"I14": 1}}, replace(total, findings=(finding(invariant="I14"),))) == []
    assert compare({"poisoned": 0, "cases": {"y": {"livelock": True}}}, total) == [
        Failure("old", "x", "livelock", False, True)
    ]
    assert compare({"poisoned": 0}, outcome(livelock=True)) == [Failure("old", "", "livelock", False, True)]
    assert compare({"poisoned": 0}, outcome()) == []
    assert compare(None, outcome(livelock=True)) == []


WRONG_READ = finding(invariant="I12", message="a continues at 1600")


@pytest.mark.parametrize("invariant", ["I5", "I6", "I10", "I12", "I13", "I18"])
def test_who_is_expected_to_be_clean_and_reads_wrong_states_fails(invariant: str) -> None:
    severity = "numerics" if invariant == "I18" else "poison"
    one = finding(invariant=invariant, severity=severity, message="it reads")
    text = f"{invariant} {severity}  step 3  it reads"
    for zero in (0, {"max": 0}):
        assert compare({"poisoned": zero}, outcome(findings=(one,))) == [Failure("old", "", "findings", "none", text)]
    two = outcome(findings=(one, replace(one, id=1)))
    assert compare({"poisoned": 0}, two)[0].found == f"2, the first of them: {text}"
    # Numbers that are pinned to 0 too excuse nothing.
    assert [f.key for f in compare({"poisoned": 0, "wrong_restores": 0}, two)] == ["findings"]


@pytest.mark.parametrize(
    "said",
    [
        {"wrong_reads": 2},
        {"wrong_restores": {"max": 9}, "wrong_reads": 2},
        {"tainted_requests": {"min": 1}, "wrong_reads": 2},
        {"findings": {"contains": [{"invariant": "I12"}]}},
        {"invariants": {"I12": 1}},
    ],
)
def test_what_an_expectation_says_is_wrong_is_not_unclean(said: dict[str, Any]) -> None:
    got = outcome(findings=(WRONG_READ,), wrong_reads=2, tainted_requests=1)
    assert compare({"poisoned": 0, **said}, got) == []


def test_what_is_not_expected_to_be_clean_is_not_asked_to_be() -> None:
    hazard = finding(invariant="I8", severity="hazard")
    assert compare({"steps": 0}, outcome(findings=(WRONG_READ,))) == []
    assert compare({"poisoned": 0}, outcome(findings=(hazard, finding(1, invariant="I2", severity="shape")))) == []
    # A wrong claim has failed by its number.
    assert [f.key for f in compare({"poisoned": 0}, outcome(poisoned=1, findings=(finding(),)))] == ["poisoned"]
    # Another invariant than the one that is named.
    assert [f.key for f in compare({"poisoned": 0, "invariants": {"I5": 0}}, outcome(findings=(WRONG_READ,)))] == [
        "findings"
    ]


def test_each_case_is_clean_by_itself() -> None:
    wrong = outcome(findings=(WRONG_READ,), wrong_reads=1)
    total = replace(wrong, cases={"x": outcome(), "y": wrong})
    assert [(f.case, f.key) for f in compare({"poisoned": 0}, total)] == [("y", "findings")]
    assert compare({"poisoned": 0, "cases": {"y": {"wrong_reads": 1}}}, total) == []
    assert [f.case for f in compare({"cases": {"y": {"poisoned": 0}}}, total)] == ["y"]


def test_findings_are_counted_by_invariant_whatever_their_severity() -> None:
    got = outcome(findings=(finding(), finding(1, invariant="I8", severity="hazard")))
    assert compare({"invariants": {"I1": 1, "I8": {"min": 1}, "I16": 0}}, got) == []
    wrong = compare({"invariants": {"I8": 0, "I16": 1}}, got)
    assert wrong == [Failure("old", "", "invariants.I8", 0, 1), Failure("old", "", "invariants.I16", 1, 0)]


def test_ends_in_order_or_contained() -> None:
    got = outcome(ends={"a": (1600, 2002)})
    assert compare({"ends": {"a": [1600, 2002]}}, got) == []
    assert compare({"ends": {"a": {"contains": [2002]}}}, got) == []
    assert compare({"ends": {"a": [2002, 1600]}}, got) == [Failure("old", "", "ends.a", [2002, 1600], [1600, 2002])]
    assert compare({"ends": {"a": {"contains": [364]}}}, got)[0].key == "ends.a"
    assert compare({"ends": {"b": [1]}}, got) == [Failure("old", "", "ends.b", [1], None)]


def test_hits_of_each_request() -> None:
    got = outcome(hits={"a": 1600})
    assert compare({"hits": {"a": {"min": 1}}}, got) == []
    assert compare({"hits": {"a": 0, "b": 0}}, got) == [
        Failure("old", "", "hits.a", 0, 1600),
        Failure("old", "", "hits.b", 0, None),
    ]


def test_findings_list_leaves_none_over() -> None:
    entry = {"request": "a", "held": 364}
    assert compare({"findings": [entry]}, outcome(findings=(finding(),))) == []
    assert compare({"findings": [entry]}, outcome(findings=(finding(), finding(1))))[0].key == "findings"
    assert compare({"findings": []}, outcome()) == []
    assert compare({"findings": []}, outcome(findings=(finding(),)))[0].found == [finding_facts(finding())]


def test_contained_findings_each_need_their_own() -> None:
    entry = {"column": 0}
    assert findings_match({"contains": [entry]}, (finding(), finding(1, column=1)))
    assert not findings_match({"contains": [entry, entry]}, (finding(), finding(1, column=1)))


def test_findings_are_matched_whatever_the_order() -> None:
    # The first entry fits both; only the second finding is left for it once the second entry took the first.
    general, special = {"request": "a"}, {"column": 0}
    assert findings_match([general, special], (finding(), finding(1, column=1)))
    assert findings_match([special, general], (finding(1, column=1), finding()))


def test_a_held_null_is_compared_and_a_missing_key_is_not() -> None:
    assert findings_match([{"held": None}], (finding(held=None),))
    assert not findings_match([{"held": None}], (finding(),))


def test_roots_are_those_without_a_cause() -> None:
    assert findings_match([{"root": True}, {"root": False}], (finding(1, root=0), finding(0)))
    assert not findings_match([{"root": True}], (finding(1, root=0),))


def test_cases_have_expectations_of_their_own() -> None:
    cases = {"x": outcome(poisoned=1), "y": outcome(poisoned=0)}
    total = outcome(poisoned=1, cases=cases)
    expect = {"poisoned": 1, "cases": {"x": {"poisoned": 1}, "y": {"poisoned": 1}, "z": {"poisoned": 0}}}
    assert compare(expect, total) == [
        Failure("old", "y", "poisoned", 1, 0),
        Failure("old", "z", "case", "an outcome", None),
    ]


@pytest.mark.parametrize("expect", [None, {}, {"vacuous": "why"}, {"poisoned": None}])
def test_what_expects_nothing_cannot_fail(expect: Any) -> None:
    assert compare(expect, outcome(poisoned=3)) == []


def test_every_key_of_the_file_is_a_field_of_an_outcome() -> None:
    from stateat.sim.scenario.models import Expectation

    for key in Expectation.model_fields:
        wrong: Any = {"livelock": True, "digest": "x" * 64, "ends": {"a": [1]}}.get(
            key, {"a": 1} if key in ("hits", "loads", "invariants") else 1
        )
        if key == "findings":
            wrong = [{"request": "a"}]
        if key != "vacuous":
            assert [f.key.split(".")[0] for f in compare({key: wrong}, outcome(states=STATES))] == [key]


@pytest.mark.parametrize("key", ["exact", "noise", "not_finite"])
def test_a_family_without_numbers_is_not_asked_for_them(key: str) -> None:
    assert compare({key: 7}, outcome()) == []
