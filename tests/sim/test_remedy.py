"""Which single rule value avoids a finding: the same run under each."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from sim import remedy
from sim.cli import main
from sim.engine.presets import PRESETS
from sim.engine.rules import RULES
from sim.remedy import Value, candidates, search
from sim.scenario import Run, load, runs
from sim.simulate import simulate

ROOT = Path(__file__).resolve().parents[2]
S02 = ROOT / "scenarios" / "seeds" / "s02-anatomy.yaml"
IMAGES = ROOT / "scenarios" / "field" / "encoder-cap-before-the-split.yaml"


def run_of(file: Path, variant: str) -> Run:
    return runs(load(file), only=[variant])[0]


def test_the_split_that_mends_s2_is_named() -> None:
    run = run_of(S02, "old gate")
    outcome = simulate(run)
    found = search(run).avoiding(next(f for f in outcome.findings if f.invariant == "I1"), outcome)
    assert Value("split", "prefill-end") in found
    assert Value("split", "unguarded") not in found
    assert Value("publish", "at-schedule-at-once") not in found
    # Those of releases come first.
    released = [value.releases != "no release" for value in found]
    assert released == sorted(released, reverse=True)


def test_what_mends_a_run_that_stands_still_is_named() -> None:
    run = run_of(IMAGES, "cap first")
    outcome = simulate(run)
    (finding,) = outcome.findings
    found = search(run).avoiding(finding, outcome)
    assert found == [
        Value("encoder", "after-split"),
        Value("encoder", "after-split-unshifted"),
        Value("wide_block", "private-always"),
    ]


def test_every_known_value_is_a_candidate_but_those_in_force_and_those_that_take_an_option_away() -> None:
    run = run_of(S02, "old gate")
    found = candidates(run)
    everything = {Value(rule, name) for rule, values in RULES.items() for name in values}
    in_force = {Value(rule, name) for rule, name in PRESETS["vllm-0.26.0"].items()}
    assert set(found) == everything - in_force
    later = run_of(ROOT / "scenarios" / "seeds" / "s17-offload-all-mode.yaml", next(iter(_variants())))
    assert Value("kernel", "align") not in candidates(later)


def _variants() -> list[str]:
    return list(load(ROOT / "scenarios" / "seeds" / "s17-offload-all-mode.yaml").variants)


def test_releases_of_a_value() -> None:
    assert Value("split", "prefill-end").releases == "vllm-0.27.0 and later"
    assert Value("split", "last-cache-position").releases == "vllm-0.26.0"
    assert Value("encoder", "after-split").releases == "vllm-0.28.0 to vllm-0.32.0"
    assert Value("split", "unguarded").releases == "no release"


def test_a_long_search_stops_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remedy, "MAX_CHUNKS", 10)
    done = search(run_of(S02, "old gate"))
    assert not done.complete
    assert list(done.tried) == [Value("split", "prefill-end")]
    result = CliRunner().invoke(main, ["explain", str(S02)], prog_name="stateat")
    assert "the search stopped before all were tried" in result.stdout


def test_without_the_search_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remedy, "candidates", None)
    result = CliRunner().invoke(main, ["explain", str(S02), "--no-remedy"], prog_name="stateat")
    assert result.exit_code == 0
    assert "avoided" not in result.output
    assert "trying" not in result.output
