"""The JSON of a result."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.errors import EngineError
from stateat.sim.report.machine.json import dumps, to_json
from stateat.sim.run.result import Failure, NotRun, Outcome, Result
from stateat.sim.scenario.counts import COUNTS

OUTCOME_KEYS = [
    "poisoned", "poisoned_roots", "findings", "wrong_restores", "wrong_reads", "tainted_requests",
    "not_judged", "null_boundaries", "materialized_boundaries", "deferred", "same_step_refused", "hit_tokens",
    "resume_hit_tokens", "loaded_tokens", "prefill_tokens", "prompt_tokens", "output_tokens", "requests", "finished",
    "steps", "chunks", "preempted", "evicted", "claims", "restores", "resets", "rejected", "livelock", "ttft_us",
    "digest", "ends", "hits", "loads", "cases", "violated",
]  # fmt: skip


def test_the_keys_are_the_published_ones_in_their_order(told: SimpleNamespace) -> None:
    tree = to_json(told.result())
    assert list(tree) == ["scenario", "clock", "variants", "not_run"]
    assert list(tree["variants"]) == ["old gate", "fixed gate"]
    assert list(tree["variants"]["old gate"]) == OUTCOME_KEYS


def test_every_count_of_an_outcome_is_in_the_json(told: SimpleNamespace) -> None:
    tree = to_json(told.result())["variants"]["old gate"]
    not_counts = {"variant", "preset", "groups", "rules", "wall_s", "free_blocks", "states", "engine"}
    # Of the frames: single requests and claims, as many as there are.
    not_counts |= {"tainted", "wrong_claims"}
    # Of logs that leave something out.
    not_counts |= {"not_asked"}
    not_counts |= {name for name, count in COUNTS.items() if not count.in_json}
    assert set(Outcome.__dataclass_fields__) - not_counts == set(tree)


def test_hits_and_loads_are_told_apart(told: SimpleNamespace) -> None:
    tree = to_json(told.result(x=told.outcome(hits={"b": 1600}, loads={"b": 16})))["variants"]["old gate"]
    assert (tree["hits"], tree["loads"]) == ({"b": 1600}, {"b": 16})


def test_what_did_not_run_is_in_the_json_and_so_is_the_engine(told: SimpleNamespace) -> None:
    result = told.result(x=told.outcome("v@vllm:main", engine="vllm:main"))
    error = EngineError("vllm:main was killed")
    tree = to_json(replace(result, not_run=(NotRun("w@vllm:main", "c", error, "vllm:main"),)))
    assert tree["variants"]["v@vllm:main"]["engine"] == "vllm:main"
    why = {"kind": "error", "why": "vllm:main was killed"}
    assert tree["not_run"] == [{"variant": "w@vllm:main", "case": "c", "engine": "vllm:main", **why}]


def test_against_a_baseline_what_is_new_and_what_is_not_is_in_the_json(told: SimpleNamespace) -> None:
    new, old = Failure("v", "", "hits.b", {"min": 1}, 0), Failure("v", "c", "findings", "none", "I1")
    tree = to_json(replace(told.result(new), baseline="vllm:0.27.0", in_baseline=(old,)))
    assert tree["baseline"] == {
        "engine": "vllm:0.27.0",
        "new": [{"variant": "v", "case": "", "key": "hits.b", "expected": {"min": 1}, "found": 0}],
        "also_there": [{"variant": "v", "case": "c", "key": "findings", "expected": "none", "found": "I1"}],
    }


def test_a_finding_says_what_is_claimed_what_is_held_and_by_which_write(told: SimpleNamespace) -> None:
    outcome = told.outcome(findings=(told.finding(3), told.finding(4, root=3, write=None, held=None)))
    root, downstream = to_json(told.result(x=outcome))["variants"]["old gate"]["findings"]
    assert (root["id"], root["claimed"], root["held"], root["root"], root["readers"]) == (3, 1600, 364, None, ["b"])
    assert root["write"] == {"step": 0, "request": "a", "start": 0, "end": 364, "kind": "chunk"}
    assert (downstream["root"], downstream["held"], downstream["write"]) == (3, None, None)


def test_a_case_has_the_same_shape_without_cases(told: SimpleNamespace) -> None:
    tree = to_json(told.result(x=told.outcome(cases={"resume": told.clean()})))
    case = tree["variants"]["old gate"]["cases"]["resume"]
    assert list(case) == [key for key in OUTCOME_KEYS if key != "cases"]
    assert case["deferred"] == 1


def test_how_long_a_run_took_changes_no_byte(told: SimpleNamespace) -> None:
    texts = {dumps(told.result(x=replace(told.outcome(), wall_s=seconds))) for seconds in (0.1, 99.0)}
    assert len(texts) == 1


def test_a_number_that_is_none_becomes_null_and_the_keys_stay(told: SimpleNamespace) -> None:
    outcomes = {
        "nan": told.outcome("nan", ttft_us={"p50": float("nan"), "p95": float("inf"), "p99": 3.5}),
        "none": told.outcome("none", ttft_us={}),
    }
    variants = json.loads(dumps(told.result(**outcomes)))["variants"]
    assert variants["nan"]["ttft_us"] == {"p50": None, "p95": None, "p99": 3.5}
    assert variants["none"]["ttft_us"] == {"p50": None, "p95": None, "p99": None}


def test_several_results_are_a_list_with_their_paths_and_one_is_an_object(told: SimpleNamespace) -> None:
    result, other = told.result(), replace(told.result(), path="other/s.yaml")
    trees = [{"path": each.path, **to_json(each)} for each in (result, other)]
    assert json.loads(dumps([result, other])) == trees
    assert json.loads(dumps([result])) == trees[:1]
    assert json.loads(dumps(result)) == to_json(result)


@given(st.text(), st.text())
def test_any_name_survives_the_round_trip(scenario: str, request: str) -> None:
    outcome = Outcome("v", "", (), {}, hits={request: 3})
    result = Result(scenario, "", "", "", "us", {"v": outcome})
    tree = json.loads(dumps(result))
    assert tree["scenario"] == scenario
    assert tree["variants"]["v"]["hits"] == {request: 3}
