"""Which run goes on which engine, with stand-in workers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fake_engines import SCENARIO, behave, checkout

import stateat
from stateat.sim.adapters.vllm.fleet import Fleet
from stateat.sim.errors import EngineError, InputError, NotAsExpected
from stateat.sim.scenario.load import Run, load

ANATOMY = Path(__file__).resolve().parents[3] / "scenarios" / "seeds" / "s02-anatomy.yaml"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The engines for which a worker was asked."""
    return behave(monkeypatch)


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
        assert [on.engine for on in spread] == ["vllm:0.26.0", "vllm:0.27.0"]
    # None before its first run.
    assert started == []


def test_a_named_release_runs_all_and_is_held_to_its_own_variants(started: list[str]) -> None:
    with Fleet(["reference", "vllm:0.27.0"]) as fleet:
        spread = [on for run in runs() for on in fleet.spread(run)]
        old, fixed = runs()
        assert [(on.variant, on.options.preset, on.expect) for on in spread] == [
            ("old gate", "vllm-0.26.0", old.expect),
            ("old gate@vllm:0.27.0", "vllm-0.27.0", {"poisoned": 0}),
            ("fixed gate", "vllm-0.27.0", fixed.expect),
            ("fixed gate@vllm:0.27.0", "vllm-0.27.0", fixed.expect),
        ]
        assert [on.elsewhere for on in spread] == [False, True, False, False]


def test_a_variant_with_rules_of_its_own_is_not_judged_on_a_release(started: list[str]) -> None:
    run = runs()[0]
    ruled = replace(run, options=replace(run.options, rules={"grid": "min-over-groups"}))
    with Fleet(["vllm:0.27.0"]) as fleet:
        [on] = fleet.spread(ruled)
    assert (on.expect, on.compared, dict(on.options.rules)) == (None, False, {})
    assert all(run.compared for run in runs())


def test_a_python_of_ones_own_is_called_by_its_path_and_is_nobodys_release(started: list[str]) -> None:
    with Fleet([], Path("/opt/venv/bin/python")) as fleet:
        spread = [on for run in runs() for on in fleet.spread(run)]
    assert [on.variant for on in spread] == ["old gate@vllm:venv/bin/python", "fixed gate@vllm:venv/bin/python"]
    assert all(on.elsewhere and on.expect == {"poisoned": 0} for on in spread)


NOT_ASKED = (
    "the rules of its worker (grid, restore_column, state_writes, undrafted_rows, worker) and the names of its stops"
)


def test_a_checkout_without_a_version_is_nobodys_release_and_takes_each_variants_preset_and_says_so(
    started: list[str], tmp_path: Path
) -> None:
    warned: list[str] = []
    with Fleet([checkout(tmp_path / "main")], warn=warned.append) as fleet:
        spread = [on for run in runs() for on in fleet.spread(run)]
        assert [(on.variant, on.options.preset) for on in spread] == [
            ("old gate@vllm:main", "vllm-0.26.0"),
            ("fixed gate@vllm:main", "vllm-0.27.0"),
        ]
        assert all(on.elsewhere for on in spread)
    why = (
        "it does not say which release it comes from (no tag such as v0.33.0 in git, no vllm/_version.py, no notes of a"
    )
    assert warned == [
        f"vllm:main: {why} package): of vllm-{release}, the variant's own preset, are {NOT_ASKED}"
        for release in ("0.26.0", "0.27.0")
    ]


@pytest.mark.parametrize(
    ("version", "preset", "order"),
    [
        ("0.27.1", "0.27.1", ""),
        ("0.29.1.dev3", "0.29.0", "the newest that is no newer"),
        ("0.34.0", "0.33.0", "the newest that is no newer"),
        ("0.26.1", "0.26.0", "the newest that is no newer"),
        ("0.25.1", "0.26.0", "the oldest that there is"),
    ],
)
def test_a_checkout_takes_the_preset_of_the_release_that_it_says_and_what_stands_in_for_another_is_said(
    started: list[str], tmp_path: Path, version: str, preset: str, order: str
) -> None:
    warned: list[str] = []
    with Fleet([checkout(tmp_path / "main")], warn=warned.append) as fleet:
        (tmp_path / "main" / "vllm" / "_version.py").write_text(f"__version__ = '{version}'\n")
        spread = [on for run in runs() for on in fleet.spread(run)]
    assert {on.options.preset for on in spread} == {f"vllm-{preset}"} and all(on.elsewhere for on in spread)
    told = f"vllm:main: it comes from vLLM {version}, of which there is no preset: of vllm-{preset}, {order}, are "
    assert warned == ([told + NOT_ASKED] if order else [])


@pytest.mark.parametrize(("release", "preset"), [("0.28.1", "0.28.0"), ("0.31.0", ""), ("0.33.0", "")])
def test_a_release_without_a_preset_says_which_one_stands_in(started: list[str], release: str, preset: str) -> None:
    warned: list[str] = []
    with Fleet([f"vllm:{release}"], warn=warned.append) as fleet:
        spread = [on for run in runs() for on in fleet.spread(run)]
    assert {on.options.preset for on in spread} == {f"vllm-{preset or release}"}
    told = (
        f"vllm:{release}: it comes from vLLM {release}, of which there is no preset: of vllm-{preset}, the newest that "
    )
    assert warned == ([f"{told}is no newer, are {NOT_ASKED}"] if preset else [])


@pytest.mark.parametrize("order", list(itertools.permutations(["clean", "edited", "0.27.0"])))
def test_engines_of_one_version_are_engines_of_their_own(
    started: list[str], tmp_path: Path, order: Sequence[str]
) -> None:
    """All of them say that they are 0.0.0."""
    specs = {
        "clean": checkout(tmp_path / "clean"),
        "edited": checkout(tmp_path / "edited", "poison"),
        "0.27.0": "vllm:0.27.0",
    }
    result = stateat.replay(SCENARIO, engine=[specs[name] for name in order])
    assert {name: outcome.poisoned for name, outcome in result.variants.items()} == {
        "vllm-0.27.0@vllm:clean": 0,
        "vllm-0.27.0@vllm:edited": 1,
        "vllm-0.27.0@vllm:0.27.0": 0,
    }
    assert [outcome.engine for outcome in result.variants.values()] == [f"vllm:{name}" for name in order]
    assert sorted(started) == sorted(order) and not result.ok
    assert [failure.variant for failure in result.failures] == ["vllm-0.27.0@vllm:edited"]


@pytest.mark.parametrize("how", ["crash", "no-start", "raise", "kill", "garbage", "unsupported"])
def test_an_engine_that_fails_costs_its_own_column(started: list[str], tmp_path: Path, how: str) -> None:
    good, bad = checkout(tmp_path / "good"), checkout(tmp_path / "bad", how)
    for engines in ([good, bad], [bad, good]):
        result = stateat.replay({**SCENARIO, "variants": {"v": {}, "w": {}}}, engine=engines)
        assert sorted(result.variants) == ["v@vllm:good", "w@vllm:good"]
        assert [each.variant for each in result.not_run] == ["v@vllm:bad", "w@vllm:bad"]
        assert {each.kind for each in result.not_run} == {"skipped" if how == "unsupported" else "error"}
        assert all("vllm:bad" in each.why and each.engine == "vllm:bad" for each in result.not_run)
        assert not result.ok
        with pytest.raises(NotAsExpected, match="v@vllm:bad: run"):
            result.raise_for_findings()
    # What cannot start is not tried again and again.
    assert started.count("bad") == {"no-start": 2, "unsupported": 2}.get(how, 4)
    with pytest.raises(EngineError, match="vllm:bad"):
        stateat.replay(SCENARIO, engine=bad)


def test_an_engine_that_crashed_runs_the_next_variant_anew(started: list[str], tmp_path: Path) -> None:
    engine = checkout(tmp_path / "main", f"crash-once {tmp_path / 'flag'}")
    result = stateat.replay({**SCENARIO, "variants": {"v": {}, "w": {}}}, engine=engine)
    assert list(result.variants) == ["w@vllm:main"]
    assert [each.variant for each in result.not_run] == ["v@vllm:main"]
    assert result.variants["w@vllm:main"].finished == 1


def test_an_engine_asked_for_twice_is_refused(started: list[str], tmp_path: Path) -> None:
    spec = checkout(tmp_path / "main")
    for engines in (["vllm:0.27.0", "vllm:0.27.0"], ["reference", "reference"], ["vllm", "vllm"], [spec, spec + "/"]):
        with pytest.raises(InputError, match=f"--engine {re.escape(engines[1])}: the same as --engine .*allowed once"):
            Fleet(engines)


def test_a_release_beside_the_word_for_it_is_refused_where_it_is_the_same(started: list[str]) -> None:
    with Fleet(["vllm", "vllm:0.27.0"]) as fleet:
        old, fixed = runs()
        assert [on.engine for on in fleet.spread(old)] == ["vllm:0.26.0", "vllm:0.27.0"]
        with pytest.raises(InputError, match=r"of variant fixed gate it is vllm:0\.27\.0, which is named too"):
            fleet.spread(fixed)


def test_a_variant_that_is_called_like_another_on_its_engine_is_refused(started: list[str]) -> None:
    file = {**SCENARIO, "variants": {"v": {}, "v@vllm:0.27.0": {}}}
    with pytest.raises(InputError, match=r"two runs would be called v@vllm:0\.27\.0"):
        stateat.replay(file, engine=["reference", "vllm:0.27.0"])


def test_a_baseline_may_be_an_engine_that_is_asked_for(started: list[str], tmp_path: Path) -> None:
    for engine in ("vllm:0.27.0", checkout(tmp_path / "main", "poison")):
        result = stateat.replay(SCENARIO, engine=engine, baseline=engine)
        assert result.ok and result.baseline in next(iter(result.variants))
    assert started == ["0.27.0", "main"]


def test_a_python_of_ones_own_beside_another_engine_is_refused() -> None:
    with pytest.raises(InputError, match="--vllm-python: found --engine reference, allowed with --engine vllm"):
        Fleet(["reference"], "python")


def test_beside_a_python_a_baseline_called_vllm_is_each_variants_release(started: list[str]) -> None:
    with Fleet(["vllm"], "python", baseline="vllm") as fleet:
        old, fixed = runs()
        assert [on.engine for run in (old, fixed) for on in fleet.spread(run)] == ["vllm:python"] * 2
        assert [fleet.below(run).engine for run in (old, fixed)] == ["vllm:0.26.0", "vllm:0.27.0"]
        assert fleet.baseline == "vllm"
