"""A scenario becomes a result: variants, cases, overrides, and what is told of the run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fake_engines import SCENARIO

from stateat.oracle.audit import Auditor
from stateat.oracle.records import AuditCounts as OracleCounts
from stateat.sim.adapters.log import Recorder
from stateat.sim.errors import InputError, PolicyError
from stateat.sim.events import SCHEMA, Finding, Group, Observer
from stateat.sim.options import Options
from stateat.sim.releases.policy import Policy
from stateat.sim.report.machine.json import dumps
from stateat.sim.run.digest import Digest
from stateat.sim.run.result import Outcome, States
from stateat.sim.run.simulate import audit, drive, outcome_of, replay, simulate, sum_of
from stateat.sim.run.tally import Tally
from stateat.sim.scenario.counts import COUNTS
from stateat.sim.scenario.load import load, runs
from stateat.sim.scenario.truth import Truth
from stateat.sim.workload import Arrival

SEEDS = Path(__file__).resolve().parents[3] / "scenarios" / "seeds"
S01, S02 = SEEDS / "s01-pr51113-cases.yaml", SEEDS / "s02-anatomy.yaml"


class Heard(Observer):
    def __init__(self) -> None:
        self.runs: list[tuple[Any, ...]] = []
        self.ends: list[tuple[Any, ...]] = []

    def run(self, *args: Any) -> None:
        self.runs.append(args)

    def end(self, *args: Any) -> None:
        self.ends.append(args)


def test_a_result_has_every_variant_in_the_order_of_the_file_and_no_failure() -> None:
    result = replay(load(S02))
    assert list(result.variants) == ["old gate", "fixed gate"]
    assert (result.failures, result.has_expectations, result.clock) == ((), True, "steps")
    assert [o.poisoned for o in result.variants.values()] == [1, 0]


def test_only_the_named_variants_run() -> None:
    assert list(replay(load(S02), only=["fixed gate"]).variants) == ["fixed gate"]
    with pytest.raises(InputError, match="variant: found 'nobody', allowed old gate, fixed gate"):
        replay(load(S02), only=["nobody"])


def test_an_override_goes_before_the_file_and_expectations_stay() -> None:
    result = replay(load(S02), only=["old gate"], overrides={"split": "prefill-end"})
    assert result.variants["old gate"].poisoned == 0
    assert result.variants["old gate"].rules["split"] == "prefill-end"
    assert {f.key for f in result.failures} >= {"poisoned", "deferred", "ends.a", "findings"}


def test_a_result_is_the_same_again_and_step_by_step() -> None:
    first = dumps(replay(load(S02)))
    assert dumps(replay(load(S02))) == first
    assert dumps(replay(load(S02), fast_forward=False)) == first


def test_the_run_event_says_what_is_in_force() -> None:
    heard = Heard()
    (run,) = runs(load(S02), only=["old gate"])
    outcome = simulate(run, [heard])
    ((schema, engine, groups, drafts, options),) = heard.runs
    assert (schema, engine, drafts) == (SCHEMA, "vllm-0.26.0", 3)
    assert [g.name for g in groups] == ["attention", "gdn"]
    assert options["rules"] == dict(outcome.rules)
    assert (options["hash_unit"], options["scheduler_block_size"], options["grid"]) == (16, 1600, 1600)
    assert (options["scenario"], options["variant"], options["case"]) == ("s02-anatomy", "old gate", "")
    assert "groups" not in options
    assert heard.ends == [(outcome.steps, outcome.time_us, False)]


def test_the_grid_in_force_is_the_rules() -> None:
    groups = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 1648))
    options = Options(groups, cache_config_block_size=816)
    assert Policy.of(options).in_force()["grid"] == 816
    assert Policy.of(replace(options, rules={"grid": "recurrent-group"})).in_force()["grid"] == 1648


def test_a_broken_policy_is_named_with_scenario_variant_and_case() -> None:
    (run, *_) = runs(load(S01), rules={"split": "builtins:repr"})
    with pytest.raises(PolicyError) as caught:
        simulate(run)
    said = str(caught.value)
    assert said.startswith(
        "s01-pr51113-cases, variant old gate, case fragmented first chunk: rule split=builtins:repr gave "
    )


def test_progress_is_told_from_the_start() -> None:
    told: list[tuple[int, ...]] = []
    (run,) = runs(load(S02), only=["old gate"])
    outcome = simulate(run, progress=lambda *row: told.append(row))
    assert told[0] == (0, 3, 0, 0, 0)
    assert told[-1] == (3, 3, outcome.steps, outcome.time_us, 1)
    assert all(a[0] <= b[0] and a[2] <= b[2] for a, b in pairwise(told))


# Cases.


def test_a_variant_is_the_sum_of_its_cases() -> None:
    (total,) = replay(load(S01), only=["old gate"]).variants.values()
    assert len(total.cases) == 20
    assert total.violated == sum(c.violated for c in total.cases.values()) == 14
    for name, count in COUNTS.items():
        assert getattr(total, name) == count.total(getattr(c, name) for c in total.cases.values())
    assert len(total.findings) == sum(len(c.findings) for c in total.cases.values())
    assert [f.id for f in total.findings] == list(range(len(total.findings)))
    digests = "".join(c.digest for c in total.cases.values())
    assert total.digest == hashlib.sha256(digests.encode()).hexdigest()


def finding(id: int, root: int | None) -> Finding:
    return Finding(id, "I1", "poison", 0, 0, "a", "gdn", 0, 7, 16, 10, "tainted", root, (), "")


def test_roots_are_renumbered_with_their_findings() -> None:
    def case(*findings: Finding, **counts: Any) -> Outcome:
        return Outcome("v", "p", (), {}, findings=findings, **counts)

    one = case(finding(0, None), finding(1, 0), steps=3)
    other = case(finding(0, None), finding(1, 0), finding(2, -1), steps=4, livelock=True)
    total = sum_of({"one": one, "other": other})
    assert [(f.id, f.root) for f in total.findings] == [(0, None), (1, 0), (2, None), (3, 2), (4, -1)]
    assert (total.steps, total.livelock, dict(total.cases)) == (7, True, {"one": one, "other": other})


def test_every_count_that_adds_up_is_added() -> None:
    numbers = {name for name, value in vars_of(Outcome("v", "p", (), {})).items() if type(value) in (int, float)}
    assert numbers - {"free_blocks", "wall_s"} == {name for name, count in COUNTS.items() if count.total is sum}


@pytest.mark.parametrize(("poisoned", "mid_block", "violated"), [(0, 0, 0), (2, 0, 1), (0, 3, 1), (1, 1, 1)])
def test_a_run_is_violated_by_a_wrong_claim_or_by_a_start_inside_a_block(
    poisoned: int, mid_block: int, violated: int
) -> None:
    auditor = Auditor()
    auditor.counts.poisoned, auditor.counts.mid_block = poisoned, mid_block
    assert outcome_of("v", "p", (), {}, auditor, Tally(), Digest()).violated == violated


def test_of_the_cases_the_nearest_wrong_state_is_kept() -> None:
    def case(nearest: float | None) -> Outcome:
        return Outcome("v", "p", (), {}, states=States(Truth(state="ssd"), 8, nearest_wrong=nearest))

    total = sum_of({"a": case(0.5), "b": case(0.25), "c": case(None), "d": case(0.75)}).states
    assert total is not None and total.nearest_wrong == 0.25


def test_a_log_that_merges_two_decode_steps_is_refused_where_each_is_rounded(tmp_path: Path) -> None:
    request = {"id": "a", "prompt": [[1, 20]], "max_tokens": 5}
    (run,) = load({**SCENARIO, "workload": {"requests": [request]}}).expanded
    path = tmp_path / "run.jsonl"
    with path.open("w") as stream:
        simulate(run, [Recorder(stream)])
    advances = [line for line in path.read_text().splitlines() if '"advance"' in line]
    assert [json.loads(line)["steps"] for line in advances] == [0, 0, 0, 2, 0]
    assert audit(path).ok
    with pytest.raises(InputError, match="advance: 2 decode steps in one, and a state in float16 is rounded at each"):
        audit(path, {"state": "gated-delta", "dtype": "float16"})


def test_each_count_is_told_by_one_who_counts_it() -> None:
    """Whoever adds a count counts it in one place: the tally, the oracle, or where both are put together."""
    told = [{*vars(Tally())}, {each.name for each in fields(OracleCounts)}]
    derived = {"tainted_requests", "not_judged", "violated"}
    for name in COUNTS:
        assert sum(name in part for part in told) == (0 if name in derived - {"not_judged"} else 1), name


def vars_of(outcome: Outcome) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in outcome.__dataclass_fields__}


def test_no_requests_no_steps() -> None:
    groups = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 64))
    outcome = drive(Options(groups, clock="steps"), list[Arrival]())
    assert (outcome.steps, outcome.requests, outcome.livelock, outcome.findings) == (0, 0, False, ())


def test_a_result_says_which_variants_ran_where_the_file_expects_nothing() -> None:
    scenario = load(Path(__file__).resolve().parents[3] / "scenarios" / "seeds" / "s02-anatomy.yaml")
    away = replay(scenario, spread=lambda run: [replace(run, elsewhere=run.variant == "old gate")])
    assert (away.elsewhere, replay(scenario).elsewhere) == (("old gate",), ())
