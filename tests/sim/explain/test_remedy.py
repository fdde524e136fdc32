"""Which single rule value avoids a finding: the same run under each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from stateat.sim.cli.main import main
from stateat.sim.explain import remedy
from stateat.sim.explain.explanation import roots
from stateat.sim.explain.remedy import RuleValue, Search, candidates
from stateat.sim.releases.presets import PRESETS
from stateat.sim.releases.rules import RULES
from stateat.sim.releases.unused_rules import idle
from stateat.sim.run.result import Outcome
from stateat.sim.run.simulate import simulate
from stateat.sim.scenario.load import Run, load, runs

ROOT = Path(__file__).resolve().parents[3]
S02 = ROOT / "scenarios" / "seeds" / "s02-anatomy.yaml"
S09 = ROOT / "scenarios" / "seeds" / "s09-heterogeneous-blocks.yaml"
IMAGES = ROOT / "scenarios" / "field" / "encoder-cap-before-the-split.yaml"


def run_of(file: Path, variant: str) -> Run:
    return runs(load(file), only=[variant])[0]


def test_the_split_that_mends_s2_is_named() -> None:
    run = run_of(S02, "old gate")
    outcome = simulate(run)
    found = Search(run).avoiding(next(f for f in outcome.findings if f.invariant == "I1"), outcome)
    assert RuleValue("split", "prefill-end") in found
    assert RuleValue("split", "unguarded") not in found
    assert RuleValue("publish", "at-schedule-at-once") not in found
    # Where those of releases have an answer, the others are not asked.
    assert all(value.released for value in found)


def test_what_mends_a_run_that_stands_still_is_named() -> None:
    run = run_of(IMAGES, "cap first")
    outcome = simulate(run)
    (finding,) = outcome.findings
    found = Search(run).avoiding(finding, outcome)
    assert found == [RuleValue("encoder_cap", "after-split"), RuleValue("encoder_cap", "after-split-unshifted")]


def test_where_no_release_has_an_answer_the_others_are_asked() -> None:
    run = run_of(S09, next(iter(load(S09).variants)))
    outcome = simulate(run)
    search = Search(run)
    found = search.avoiding(roots(outcome.findings)[0], outcome)
    assert RuleValue("grid", "recurrent-group") in found and not any(value.released for value in found)
    assert set(search.tried) == set(search.values)
    # It reads memory as it is: one fault from which all others follow.
    assert RuleValue("worker", "unzeroed") not in found


def test_a_fault_that_only_moves_is_not_avoided() -> None:
    """Under another schedule the same request may publish a wrong state of another offset."""
    run = run_of(S02, "old gate")
    before = simulate(run)
    (finding, *_) = roots(before.findings)
    search = Search(run)
    split = RuleValue("split", "prefill-end")
    assert split in search.avoiding(finding, before)
    moved = replace(finding, claimed=3200, held=2000)
    search.tried[split] = replace(search.tried[split], findings=(moved,))
    twice = replace(before, findings=(finding, replace(finding, id=1, request="other")))
    # There are fewer roots, and this one is at another offset.
    assert split not in search.avoiding(finding, twice)
    search.tried[split] = replace(search.tried[split], findings=(replace(moved, request="third"),))
    assert split in search.avoiding(finding, twice)
    assert split not in search.avoiding(finding, before)
    search.tried[split] = replace(search.tried[split], findings=(replace(moved, invariant="I10", request="third"),))
    assert split not in search.avoiding(finding, twice)
    search.tried[split] = replace(search.tried[split], findings=(), tainted_requests=before.tainted_requests + 1)
    assert split not in search.avoiding(finding, twice)


def test_every_known_value_is_a_candidate_but_those_in_force_and_those_that_take_an_option_away() -> None:
    run = run_of(S02, "old gate")
    found = candidates(run)
    everything = {RuleValue(rule, name) for rule, values in RULES.items() for name in values}
    in_force = {RuleValue(rule, name) for rule, name in PRESETS["vllm-0.26.0"].items()}
    unasked = {value for value in everything if value.rule in idle(run.options, run.arrivals())}
    assert set(found) == everything - in_force - unasked
    assert unasked - in_force
    later = run_of(ROOT / "scenarios" / "seeds" / "s17-offload-all-mode.yaml", next(iter(_variants())))
    assert RuleValue("state_writes", "align") not in candidates(later)


def _variants() -> list[str]:
    return list(load(ROOT / "scenarios" / "seeds" / "s17-offload-all-mode.yaml").variants)


def test_releases_of_a_value() -> None:
    assert RuleValue("split", "prefill-end").releases == "vllm-0.27.0 and later"
    assert RuleValue("split", "last-cache-position").releases == "vllm-0.26.0"
    assert RuleValue("encoder_cap", "after-split").releases == "vllm-0.28.0 to vllm-0.32.0"
    assert RuleValue("split", "unguarded").releases == "no release"
    assert RuleValue("drafter_drop", "look-ahead-hash").releases == "vllm-0.33.0"
    assert RuleValue("worker", "v2").releases == "vllm-0.29.0 and later"
    assert RuleValue("grid", "cache-config").releases == "every preset"
    everything = [RuleValue(rule, name) for rule, values in RULES.items() for name in values]
    assert all(value.released is (value.releases != "no release") for value in everything)


def test_a_value_that_poisons_more_raises_nothing_though_the_roots_are_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(S02, "fixed gate")
    outcome = simulate(run)
    assert outcome.hits["b"] == 0
    assert Search(run).raising("b", outcome) == {RuleValue("drafter_drop", "look-ahead-hash"): 1600}

    def worse(other: Run) -> Outcome:
        found = simulate(other)
        return replace(found, poisoned=found.poisoned + 1)

    monkeypatch.setattr(remedy, "simulate", worse)
    assert Search(run).raising("b", outcome) == {}


def test_a_long_search_stops_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remedy, "MAX_CHUNKS", 10)
    run = run_of(S02, "old gate")
    outcome, done = simulate(run), Search(run)
    found = done.avoiding(roots(outcome.findings)[0], outcome)
    assert list(done.tried) == found == [RuleValue("split", "prefill-end")]
    released = sum(value.released for value in done.values)
    assert done.untried(found) == released - 1
    # Where nothing is found the other values might be it too.
    assert done.raising("a", outcome) == {}
    assert done.untried([]) == len(done.values) - 1
    result = CliRunner().invoke(main, ["explain", str(S02)], prog_name="stateat")
    assert f"; the search stopped with {released - 1} values left to try" in result.stdout


def test_without_the_search_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remedy, "candidates", None)
    result = CliRunner().invoke(main, ["explain", str(S02), "--no-remedy"], prog_name="stateat")
    assert result.exit_code == 0
    assert "avoided" not in result.output
    assert "trying" not in result.output


def test_what_lets_a_request_hit_is_named_unless_something_else_gets_worse() -> None:
    run = run_of(S02, "fixed gate")
    outcome = simulate(run)
    found = Search(run)
    raised = found.raising("b", outcome)
    assert raised[RuleValue("drafter_drop", "look-ahead-hash")] == 1600
    # The old gate lets b hit too, what is poisoned.
    old = RuleValue("split", "last-cache-position")
    assert found.tried[old].hits["b"] == 1600 and old not in raised
    assert all(simulate(replaced(run, value)).hits["b"] == tokens for value, tokens in raised.items())
    assert found.raising("nobody", outcome) == {}


def replaced(run: Run, value: RuleValue) -> Run:
    return replace(run, options=replace(run.options, rules={**run.options.rules, value.rule: value.name}))
