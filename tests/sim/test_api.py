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

import stateat
from stateat.sim.errors import InputError
from stateat.sim.report.machine.json import dumps
from stateat.sim.run.simulate import replay as run_all
from stateat.sim.scenario.load import load

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
    assert set(stateat.__all__) <= set(dir(stateat))
    for name in stateat.__all__:
        assert not isinstance(getattr(stateat, name), ModuleType), name
    with pytest.raises(AttributeError, match="module 'stateat' has no attribute 'nothing'"):
        stateat.nothing  # noqa: B018


def test_a_submodule_does_not_take_the_place_of_a_function() -> None:
    # Importing every module of the package must leave the functions where they are.
    code = (
        "import importlib, pkgutil, stateat, stateat.sim\n"
        "for m in pkgutil.iter_modules(stateat.sim.__path__, 'stateat.sim.'):\n    importlib.import_module(m.name)\n"
        "print(*(n for n in stateat.__all__ if n[0] != '_' and not callable(getattr(stateat, n))))"
    )
    child = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert child.stdout.split() == []


def test_a_path_a_text_a_mapping_and_a_scenario_are_the_same() -> None:
    wanted = dumps(run_all(load(S02)))
    mapping = yaml.safe_load(S02.read_text())
    for source in (S02, str(S02), mapping, load(S02)):
        assert dumps(stateat.replay(source)) == wanted


def test_recording_changes_nothing_that_is_decided_or_found() -> None:
    with_it, without = stateat.replay(S02), stateat.replay(S02, record=False)
    assert dumps(with_it) == dumps(without)
    assert with_it.variants["old gate"].digest == without.variants["old gate"].digest


def test_variants_rules_and_state_are_those_of_the_command_line() -> None:
    assert list(stateat.replay(S02, variants="old gate").variants) == ["old gate"]
    assert list(stateat.replay(S02, variants=["fixed gate"]).variants) == ["fixed gate"]
    assert stateat.replay(S02, variants="old gate", rules={"split": "prefill-end"}).variants["old gate"].poisoned == 0
    states = stateat.replay(S02, variants="old gate", state="ring").variants["old gate"].states
    assert states is not None and states.truth.state == "ring"
    with pytest.raises(InputError, match="variant: found 'nobody', allowed old gate, fixed gate"):
        stateat.replay(S02, variants="nobody")
    with pytest.raises(InputError, match="allowed are reference, vllm"):
        stateat.replay(S02, engine="sglang")


def test_another_seed_is_another_run_of_which_nothing_is_expected() -> None:
    a, b, again = (stateat.replay({**LOAD, "expect": {"steps": 0}}, seed=s) for s in (1, 2, 1))
    (one,), (two,), (same,) = (r.variants.values() for r in (a, b, again))
    assert one.digest == same.digest != two.digest
    assert a.ok and not a.has_expectations
    assert stateat.replay({**LOAD, "expect": {"steps": 0}}).failures
    for wrong in (-1, 2**63, 1.5, "1"):
        with pytest.raises(InputError, match="seed: found"):
            stateat.replay(LOAD, seed=wrong)  # type: ignore[arg-type]


def test_a_mapping_may_hold_numpy_numbers_tuples_and_paths() -> None:
    engine = {**LOAD["engine"], "num_blocks": np.int64(400)}
    assert stateat.load({**LOAD, "engine": engine}).expanded[0].options.num_blocks == 400
    workload = {"requests": ({"id": "a", "prompt": ((1, 20),)},)}
    assert stateat.load({**LOAD, "workload": workload}).expanded[0].workload.requests is not None


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
        stateat.load({**LOAD, **change})
    assert message in str(caught.value)


def test_a_mapping_that_holds_itself_is_refused() -> None:
    endless: dict[str, Any] = dict(LOAD)
    endless["engine"] = endless
    with pytest.raises(InputError, match="nested too deeply"):
        stateat.load(endless)


class Everything:
    """A split that takes all that it is offered."""

    def __call__(self, chunk: Any) -> int:
        return int(chunk.offered)


def everything(chunk: Any) -> int:
    return int(chunk.offered)


def test_a_rule_may_be_a_class_or_a_function_of_a_module() -> None:
    by_name = stateat.replay(S02, variants="old gate", rules={"split": "unguarded"}).variants["old gate"]
    for rule in (Everything, everything):
        outcome = stateat.replay(S02, variants="old gate", rules={"split": rule}).variants["old gate"]
        assert outcome.rules["split"] == f"{rule.__module__}:{rule.__name__}"
        assert outcome.poisoned == by_name.poisoned == 1


def test_a_class_of_a_notebook_is_one_of_main() -> None:
    code = (
        "import stateat\nclass Mine:\n    def __call__(self, chunk):\n        return chunk.offered\n"
        f"result = stateat.replay({str(S02)!r}, variants='old gate', rules={{'split': Mine}})\n"
        "print(result.variants['old gate'].rules['split'], result.variants['old gate'].poisoned)"
    )
    child = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert child.stdout.split() == ["__main__:Mine", "1"]


def test_a_rule_that_no_file_could_name_is_refused() -> None:
    for rule in (Everything(), lambda chunk: chunk.offered, 7):
        with pytest.raises(InputError, match=r"rule split: found .*, allowed: a name, module:Name, or a class or func"):
            stateat.replay(S02, rules={"split": rule})


def test_names_come_in_anything_that_gives_them_one_by_one() -> None:
    both = {"old gate", "fixed gate"}
    for variants in (both, frozenset(both), tuple(both), iter(both), dict.fromkeys(both).keys()):
        assert set(stateat.replay(S02, variants=variants).variants) == both
    for engine in ({"reference"}, ("reference",), iter(["reference"])):
        assert stateat.replay(S02, engine=engine).ok


SWEEP: dict[str, Any] = {"schema": "stateat-sweep/1", "name": "w", "base": LOAD}


@pytest.mark.parametrize(
    ("call", "given", "said"),
    [
        (stateat.replay, {"variants": []}, "variants: found no name, allowed at least one"),
        (stateat.replay, {"variants": [None]}, "variants: found None, allowed a name or a list of names"),
        (stateat.replay, {"variants": {"a": 1}}, "variants: found {'a': 1}, allowed a name or"),
        (stateat.replay, {"engine": []}, "engine: found no name, allowed at least one"),
        (stateat.replay, {"engine": None}, "engine: found None, allowed a name or a list of names"),
        (stateat.replay, {"rules": ["split=a"]}, "rules: found ['split=a'], allowed a mapping"),
        (stateat.replay, {"rules": "split=a"}, "rules: found 'split=a', allowed a mapping"),
        (stateat.replay, {"rules": {1: "a"}}, "rules: found 1, allowed a text"),
        (stateat.replay, {"rules": {"split": None}}, "rule split: found None, allowed: a name, module:Name"),
        (stateat.replay, {"state": 5}, "state: found 5, allowed a text"),
        (stateat.replay, {"baseline": ""}, "baseline: found '', allowed a text"),
        (stateat.replay, {"seed": True}, "seed: found True, allowed a whole number from 0 to"),
        (stateat.sweep, {"variants": []}, "variants: found no name, allowed at least one"),
        (stateat.sweep, {"jobs": "2"}, "jobs: found '2', allowed a whole number from 1 to 1024"),
        (stateat.sweep, {"jobs": 0}, "jobs: found 0, allowed a whole number from 1 to 1024"),
        (stateat.sweep, {"backend": 3}, "backend: found 3, allowed a text"),
        (stateat.sweep, {"out": 4}, "out: found 4, allowed a path"),
        *((call, {"source": wrong}, f"source: found {wrong!r}, allowed a path or a mapping")
          for call in (stateat.replay, stateat.load, stateat.sweep) for wrong in (None, 5, [1], b"s.yaml")),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_named_with_what_is_allowed(call: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        call(**{"source": SWEEP if call is stateat.sweep else LOAD} | given)
    assert said in str(caught.value)


def test_a_seed_may_be_a_number_of_numpy() -> None:
    assert repr(stateat.replay(LOAD, seed=np.int64(3))) == repr(stateat.replay(LOAD, seed=3))  # type: ignore[arg-type]


def test_statistics_take_a_table() -> None:
    for call in (stateat.rates, lambda frame: stateat.paired(frame, "a", "b", "steps")):
        with pytest.raises(InputError, match="frame: found 5, allowed the table of a sweep"):
            call(5)
