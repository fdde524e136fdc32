"""Which run goes on which engine, with stand-in workers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sim.adapters.vllm import install
from sim.adapters.vllm.fleet import Fleet
from sim.errors import InputError
from sim.scenario import Run, load

FAKE = Path(__file__).resolve().parents[2] / "support" / "fake_vllm_worker.py"
ANATOMY = Path(__file__).resolve().parents[3] / "scenarios" / "seeds" / "s02-anatomy.yaml"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The releases for which a worker was asked."""
    asked: list[str] = []

    def of_release(release: str, *, cache: Path) -> install.Source:
        asked.append(release)
        return install.Source(f"vLLM {release}", (sys.executable, str(FAKE)))

    monkeypatch.setattr(install, "of_release", of_release)
    monkeypatch.setattr(install, "of_python", lambda python: install.Source("mine", (sys.executable, str(FAKE))))
    return asked


def runs() -> list[Run]:
    return list(load(ANATOMY).expanded)


def test_without_a_word_every_run_is_the_reference_engines(started: list[str]) -> None:
    with Fleet([]) as fleet:
        assert [fleet.spread(run) for run in runs()] == [[run] for run in runs()]
        assert [fleet.maker(run) for run in runs()] == [None, None]
        assert not fleet.live
    assert started == []


def test_vllm_is_each_variants_own_release_with_its_expectations(started: list[str]) -> None:
    with Fleet(["vllm"]) as fleet:
        spread = [on for run in runs() for on in fleet.spread(run)]
        assert [on.variant for on in spread] == ["old gate@vllm:0.26.0", "fixed gate@vllm:0.27.0"]
        assert all(on.expect is not None and fleet.maker(on) is not None for on in spread)
    assert started == ["0.26.0", "0.27.0"]


def test_a_named_release_runs_all_and_is_held_to_its_own_variants(started: list[str]) -> None:
    with Fleet(["reference", "vllm:0.27.0", "vllm:0.27.0"]) as fleet:
        spread = [on for run in runs() for on in fleet.spread(run)]
        old, fixed = runs()
        assert [(on.variant, on.options.preset, on.expect) for on in spread] == [
            ("old gate", "vllm-0.26.0", old.expect),
            ("old gate@vllm:0.27.0", "vllm-0.27.0", {"poisoned": 0}),
            ("fixed gate", "vllm-0.27.0", fixed.expect),
            ("fixed gate@vllm:0.27.0", "vllm-0.27.0", fixed.expect),
        ]
        assert [on.elsewhere for on in spread] == [False, True, False, False]
    assert started == ["0.27.0"]


def test_a_variant_with_rules_of_its_own_is_not_judged_on_a_release(started: list[str]) -> None:
    run = runs()[0]
    ruled = replace(run, options=replace(run.options, rules={"grid": "min-over-groups"}))
    with Fleet(["vllm:0.27.0"]) as fleet:
        [on] = fleet.spread(ruled)
    assert (on.expect, on.compared, dict(on.options.rules)) == (None, False, {})
    assert all(run.compared for run in runs())


def test_a_python_of_ones_own_is_named_by_its_version(started: list[str]) -> None:
    with Fleet([], Path("python")) as fleet:
        assert [on.variant for run in runs() for on in fleet.spread(run)] == [
            "old gate@vllm:0.0.0",
            "fixed gate@vllm:0.0.0",
        ]


@pytest.mark.parametrize("spec", ["foo", "vllm:", "vllm-0.27.0"])
def test_other_engines_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match=f"--engine {spec}: allowed are reference, vllm, vllm:RELEASE"):
        Fleet([spec])


def test_a_python_of_ones_own_beside_another_engine_is_refused() -> None:
    with pytest.raises(InputError, match="--vllm-python: found --engine reference, allowed with --engine vllm"):
        Fleet(["reference"], Path("python"))
