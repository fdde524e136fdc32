"""A run against a baseline: what is new there fails, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_engines import SCENARIO, behave, checkout
from hypothesis import given
from hypothesis import strategies as st

import stateat
from stateat.sim.errors import InputError
from stateat.sim.events import Finding
from stateat.sim.run.baseline import against
from stateat.sim.run.result import Outcome

FINDING = Finding(0, "I1", "poison", 1, 1, "a", "gdn", 0, 7, 16, 8, "wrong offset", None, (), "it is wrong")
FINDINGS = st.lists(
    st.builds(
        lambda **changes: replace(FINDING, **changes),
        request=st.sampled_from("ab"),
        held=st.sampled_from([8, 12]),
        severity=st.sampled_from(["poison", "numerics", "shape"]),
        step=st.integers(0, 3),
        slot=st.integers(1, 3),
    ),
    max_size=5,
)


def outcome(findings: Sequence[Finding] = (), **changes: Any) -> Outcome:
    poisoned = sum(finding.severity == "poison" for finding in findings)
    return Outcome("v", "", (), {}, findings=tuple(findings), **{"poisoned": poisoned, **changes})


@given(FINDINGS, st.booleans())
def test_nothing_is_new_against_itself(findings: Sequence[Finding], livelock: bool) -> None:
    run = outcome(findings, livelock=livelock)
    for expect in (None, {"poisoned": 0}, {"poisoned": 0, "steps": 7}):
        new, known = against(expect, run, run)
        assert new == []
        assert bool(known) is (run.grave or livelock or bool(expect and "steps" in expect))


@given(FINDINGS, FINDINGS)
def test_what_the_baseline_lacks_fails_and_what_is_missing_does_not(
    some: Sequence[Finding], more: Sequence[Finding]
) -> None:
    base, worse = outcome(some), outcome([*some, *more])
    for expect in (None, {"poisoned": 0}):
        assert against(expect, base, worse)[0] == []
        assert bool(against(expect, worse, base)[0]) is any(finding.severity != "shape" for finding in more)
        assert bool(against(expect, worse, None)[0]) is worse.grave


@given(FINDINGS, st.integers(0, 99), st.integers(1, 99))
def test_another_step_or_slot_is_no_other_finding(findings: Sequence[Finding], step: int, slot: int) -> None:
    moved = [replace(finding, step=step, time_us=step, slot=slot, id=9) for finding in findings]
    assert against({"poisoned": 0}, outcome(moved), outcome(findings))[0] == []


def test_a_finding_of_another_content_is_new() -> None:
    for change in ({"held": 12}, {"request": "b"}, {"claimed": 32}, {"invariant": "I5"}, {"root": 0}, {"column": 1}):
        new, _ = against({"poisoned": 0}, outcome([replace(FINDING, **change)]), outcome([FINDING]))
        assert [failure.key for failure in new] == ["findings"], change


def test_what_is_expected_of_the_baseline_is_expected_of_both() -> None:
    base, other = outcome(hits={"b": 1600}, steps=5), outcome(hits={"b": 0}, steps=5)
    expect = {"hits": {"b": {"min": 1}}, "steps": 5}
    assert [failure.key for failure in against(expect, other, base)[0]] == ["hits.b"]
    # Neither does as the file says: no news, unless they differ.
    assert against({"steps": 6}, other, base)[0] == []
    assert [failure.key for failure in against({"steps": 6}, replace(other, steps=4), base)[0]] == ["steps"]


def test_a_fault_that_is_mended_is_no_failure() -> None:
    expect = {
        "poisoned": 2,
        "findings": {"contains": [{"invariant": "I1"}]},
        "invariants": {"I1": 2},
        "wrong_restores": 1,
    }
    base = outcome([FINDING, replace(FINDING, held=12)], wrong_restores=1)
    assert against(expect, outcome(), base) == ([], [])
    assert [failure.key for failure in against(expect, outcome(wrong_restores=2), base)[0]] == ["wrong_restores"]


def test_each_case_is_compared_with_its_own() -> None:
    one, two = outcome([FINDING]), outcome()
    base = replace(one, cases={"x": one, "y": two})
    other = replace(one, cases={"x": two, "y": one})
    new, known = against({"poisoned": 0}, other, base)
    assert [(failure.case, failure.key) for failure in new] == [("y", "findings")]
    assert known == []


def test_a_run_that_no_longer_ends_is_new() -> None:
    stuck = outcome(livelock=True)
    assert [failure.key for failure in against(None, stuck, outcome())[0]] == ["livelock"]
    assert against(None, stuck, stuck)[0] == []


@pytest.mark.parametrize(
    ("engine", "baseline", "ok", "known"),
    [("", "", True, 0), ("poison", "", False, 0), ("poison", "poison", True, 1), ("", "poison", True, 0)],
)
def test_an_engine_is_held_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, baseline: str, ok: bool, known: int
) -> None:
    behave(monkeypatch)
    ours, theirs = checkout(tmp_path / "ours", engine), checkout(tmp_path / "theirs", baseline)
    result = stateat.replay(SCENARIO, engine=ours, baseline=theirs)
    assert (result.ok, len(result.in_baseline), result.baseline) == (ok, known, "vllm:theirs")
    assert list(result.variants) == ["vllm-0.27.0@vllm:ours"]


@pytest.mark.parametrize(
    ("engine", "baseline", "kinds"),
    [
        ("raise", "raise", {"theirs": "error", "ours": "skipped"}),
        ("crash", "raise", {"theirs": "error", "ours": "error"}),
        ("crash", "", {"ours": "error"}),
        ("", "crash", {"theirs": "error"}),
        ("", "unsupported", {"theirs": "skipped"}),
        ("unsupported", "unsupported", {"theirs": "skipped", "ours": "skipped"}),
    ],
)
def test_what_ends_in_the_same_error_on_both_is_no_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, baseline: str, kinds: dict[str, str]
) -> None:
    behave(monkeypatch)
    ours, theirs = checkout(tmp_path / "ours", engine), checkout(tmp_path / "theirs", baseline)
    # The reference engine runs it, so that the baseline is missed.
    result = stateat.replay({**SCENARIO, "variants": {"v": {}}}, engine=[ours, "reference"], baseline=theirs)
    assert {each.engine.removeprefix("vllm:"): each.kind for each in result.not_run} == kinds
    assert "v" in result.variants and not result.ok


def test_a_baseline_is_an_engine() -> None:
    with pytest.raises(InputError, match="--engine frob: allowed are reference, vllm"):
        stateat.replay(SCENARIO, baseline="frob")
