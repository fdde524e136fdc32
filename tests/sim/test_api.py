"""The Python interface: what is at the top of the package, and what it takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml

import sim
from sim.errors import InputError
from sim.report.json import dumps
from sim.scenario import load
from sim.simulate import replay as run_all

ROOT = Path(__file__).resolve().parents[2]
S02 = ROOT / "scenarios" / "seeds" / "s02-anatomy.yaml"
LOAD: dict[str, Any] = {
    "schema": "stateat/1",
    "name": "inline",
    "engine": {
        "groups": [
            {"name": "attention", "kind": "full-attention", "block_size": 16},
            {"name": "gdn", "kind": "recurrent", "block_size": 160},
        ],
        "num_blocks": 400,
    },
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 20},
        "count": 20,
        "prompt": {"kind": "uniform", "low": 100, "high": 900},
        "prefixes": {"kind": "repeat", "distinct": 4},
    },
}


def test_what_is_exported_is_there_and_is_no_module() -> None:
    assert set(sim.__all__) <= set(dir(sim))
    for name in sim.__all__:
        assert not isinstance(getattr(sim, name), ModuleType), name
    with pytest.raises(AttributeError, match="module 'sim' has no attribute 'nothing'"):
        sim.nothing  # noqa: B018


def test_a_submodule_does_not_take_the_place_of_a_function() -> None:
    # Importing every module of the package must leave the functions where they are.
    code = (
        "import importlib, pkgutil, sim\n"
        "for m in pkgutil.iter_modules(sim.__path__, 'sim.'):\n    importlib.import_module(m.name)\n"
        "print(*(n for n in sim.__all__ if not callable(getattr(sim, n))))"
    )
    child = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert child.stdout.split() == []


def test_a_path_a_text_a_mapping_and_a_scenario_are_the_same() -> None:
    wanted = dumps(run_all(load(S02)))
    mapping = yaml.safe_load(S02.read_text())
    for source in (S02, str(S02), mapping, load(S02)):
        assert dumps(sim.replay(source)) == wanted


def test_recording_changes_nothing_that_is_decided_or_found() -> None:
    with_it, without = sim.replay(S02), sim.replay(S02, record=False)
    assert dumps(with_it) == dumps(without)
    assert with_it.variants["old gate"].digest == without.variants["old gate"].digest


def test_variants_rules_and_state_are_those_of_the_command_line() -> None:
    assert list(sim.replay(S02, variants="old gate").variants) == ["old gate"]
    assert list(sim.replay(S02, variants=["fixed gate"]).variants) == ["fixed gate"]
    assert sim.replay(S02, variants="old gate", rules={"split": "prefill-end"}).variants["old gate"].poisoned == 0
    states = sim.replay(S02, variants="old gate", state="ring").variants["old gate"].states
    assert states is not None and states.truth.state == "ring"
    with pytest.raises(InputError, match="variant: found 'nobody', allowed old gate, fixed gate"):
        sim.replay(S02, variants="nobody")
    with pytest.raises(InputError, match="allowed are reference, vllm"):
        sim.replay(S02, engine="sglang")


def test_another_seed_is_another_run_of_which_nothing_is_expected() -> None:
    a, b, again = (sim.replay({**LOAD, "expect": {"steps": 0}}, seed=s) for s in (1, 2, 1))
    (one,), (two,), (same,) = (r.variants.values() for r in (a, b, again))
    assert one.digest == same.digest != two.digest
    assert a.ok and not a.has_expectations
    assert sim.replay({**LOAD, "expect": {"steps": 0}}).failures
    for wrong in (-1, 2**63, 1.5, "1"):
        with pytest.raises(InputError, match="seed: found"):
            sim.replay(LOAD, seed=wrong)  # type: ignore[arg-type]


def test_a_mapping_may_hold_numpy_numbers_tuples_and_paths() -> None:
    engine = {**LOAD["engine"], "num_blocks": np.int64(400)}
    assert sim.load({**LOAD, "engine": engine}).expanded[0].options.num_blocks == 400
    workload = {"requests": ({"id": "a", "prompt": ((1, 20),)},)}
    assert sim.load({**LOAD, "workload": workload}).expanded[0].workload.requests is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"engine": {**LOAD["engine"], "num_blocks": -1}},
            "<mapping>: engine.num_blocks: found -1, allowed at least 1",
        ),
        ({"engin": {}}, "<mapping>: engin: unknown key (did you mean engine?)"),
        ({"title": {1, 2}}, "<mapping>: title: found set, allowed what YAML has"),
        ({"engine": {1: 2}}, "<mapping>: engine: found 1 as a key, allowed text"),
    ],
)
def test_what_is_wrong_with_a_mapping_is_said_without_lines(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        sim.load({**LOAD, **change})
    assert message in str(caught.value)


def test_a_mapping_that_holds_itself_is_refused() -> None:
    endless: dict[str, Any] = dict(LOAD)
    endless["engine"] = endless
    with pytest.raises(InputError, match="nested too deeply"):
        sim.load(endless)


class Everything:
    """A split that takes all that it is offered."""

    def __call__(self, chunk: Any) -> int:
        return int(chunk.offered)


def everything(chunk: Any) -> int:
    return int(chunk.offered)


def test_a_rule_may_be_a_class_or_a_function_of_a_module() -> None:
    by_name = sim.replay(S02, variants="old gate", rules={"split": "unguarded"}).variants["old gate"]
    for rule in (Everything, everything):
        outcome = sim.replay(S02, variants="old gate", rules={"split": rule}).variants["old gate"]
        assert outcome.rules["split"] == f"{rule.__module__}:{rule.__name__}"
        assert outcome.poisoned == by_name.poisoned == 1


def test_a_class_of_a_notebook_is_one_of_main() -> None:
    code = (
        "import sim\nclass Mine:\n    def __call__(self, chunk):\n        return chunk.offered\n"
        f"result = sim.replay({str(S02)!r}, variants='old gate', rules={{'split': Mine}})\n"
        "print(result.variants['old gate'].rules['split'], result.variants['old gate'].poisoned)"
    )
    child = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert child.stdout.split() == ["__main__:Mine", "1"]


def test_a_rule_that_no_file_could_name_is_refused() -> None:
    for rule in (Everything(), lambda chunk: chunk.offered, 7):
        with pytest.raises(InputError, match=r"rule split: found .*, allowed: a name, module:Name, or a class or func"):
            sim.replay(S02, rules={"split": rule})
