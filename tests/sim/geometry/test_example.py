"""The scenario of a geometry runs, hits, is clean, and shows what the old gate poisons where there is something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from model_configs import config

from stateat.sim.errors import InputError
from stateat.sim.geometry.derive import derive, fits
from stateat.sim.geometry.example import options, scenario
from stateat.sim.geometry.families import model_of
from stateat.sim.geometry.model import Serving
from stateat.sim.geometry.named import NAMED, named
from stateat.sim.releases.presets import PRESETS
from stateat.sim.run.simulate import replay
from stateat.sim.scenario.load import load


def written(folder: Path, name: str, **flags: object) -> Path:
    file = folder / "geometry.yaml"
    file.write_text(scenario(derive(named(name), Serving(**flags)), "geometry"))  # type: ignore[arg-type]
    return file


@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize("name", list(NAMED))
def test_it_comes_to_what_it_expects(name: str, preset: str, tmp_path: Path) -> None:
    for drafts in (0, 3):
        scene = load(written(tmp_path, name, preset=preset, num_speculative_tokens=drafts))
        result = replay(scene)
        assert not result.failures
        assert result.ok
        assert all(outcome.hit_tokens > 0 for outcome in result.variants.values())
        if old := result.variants.get("old gate"):
            fixed = result.variants["fixed gate"]
            assert old.poisoned > 0
            assert old.hits["reader"] > 0
            assert old.wrong_restores > 0, "what is poisoned is read"
            assert (fixed.poisoned, fixed.wrong_restores) == (0, 0)
            assert fixed.hits["reader"] > 0


@pytest.mark.parametrize("unit", [None, 16])
@pytest.mark.parametrize("preset", list(PRESETS))
def test_what_the_old_gate_poisons_is_read_whatever_the_hash_unit(
    preset: str, unit: int | None, tmp_path: Path
) -> None:
    file = written(tmp_path, "qwen3.6-27b", preset=preset, num_speculative_tokens=3, prefix_match_unit=unit)
    result = replay(load(file))
    assert not result.failures
    assert {name: outcome.wrong_restores > 0 for name, outcome in result.variants.items()} == {
        "old gate": True,
        "fixed gate": False,
    }


def test_the_old_gate_is_shown_where_it_poisons(tmp_path: Path) -> None:
    def variants(**flags: object) -> list[str]:
        return list(yaml.safe_load(written(tmp_path, "qwen3.6-27b", **flags).read_text())["variants"])

    assert variants(num_speculative_tokens=3) == ["old gate", "fixed gate"]
    assert variants(num_speculative_tokens=3, preset="vllm-0.33.0") == ["old gate", "fixed gate"]
    assert variants() == ["vllm-0.27.0"]
    assert variants(num_speculative_tokens=3, speculative_method="ngram") == ["vllm-0.27.0"]
    assert variants(num_speculative_tokens=3, max_num_batched_tokens=900) == ["vllm-0.27.0"]


@given(
    st.sampled_from(list(NAMED.values())),
    st.builds(
        Serving,
        preset=st.sampled_from(list(PRESETS)),
        tensor_parallel_size=st.sampled_from((1, 2, 4)),
        num_speculative_tokens=st.integers(0, 7),
        speculative_method=st.sampled_from(("mtp", "eagle", "ngram")),
        kv_cache_dtype=st.sampled_from(("auto", "fp8")),
        mamba_cache_mode=st.sampled_from((None, "align")),
        max_num_batched_tokens=st.sampled_from((256, 2048, 8192)),
        block_size=st.sampled_from((None, 64)),
    ),
)
@settings(max_examples=40)
def test_any_geometry_runs_or_is_refused_by_flag(model: object, serving: Serving) -> None:
    import tempfile

    assume(fits(model, serving.tensor_parallel_size))  # type: ignore[arg-type]
    found = derive(model, serving)  # type: ignore[arg-type]
    try:
        text = scenario(found, "geometry")
    except InputError as error:
        assert str(error).startswith("--scenario: --max-num-batched-tokens")
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "geometry.yaml"
        file.write_text(text)
        result = replay(load(file))
    assert not result.failures
    assert result.ok


def test_each_group_and_each_request_has_a_line_of_its_own(tmp_path: Path) -> None:
    lines = written(tmp_path, "qwen3.6-27b").read_text().splitlines()
    scene = yaml.safe_load("\n".join(lines))
    items = [*scene["engine"]["groups"], *scene["workload"]["requests"]]
    assert [yaml.safe_load(line) for line in lines if line.startswith("    - ")] == [[item] for item in items]


def test_the_engine_is_told_all_that_the_geometry_says() -> None:
    found = options(derive(named("qwen3.6-27b"), Serving(preset="vllm-0.33.0", num_speculative_tokens=2)))
    assert [group.block_size for group in found.groups] == [832] * 4
    assert [group.eagle for group in found.groups] == [True, False, False, False]
    assert (found.num_prefill_checkpoint_blocks, found.prefill_checkpoint_alignment) == (1, 832)
    assert found.prefix_cache_retention_interval == 0


def test_flashkda_exports_on_its_own_grid_since_0_29_where_the_gate_is_bounded() -> None:
    values = config("kimi-linear")
    values["linear_attn_config"]["gate_lower_bound"] = -5.0
    bounded, free = model_of(values, "config.json", "it"), model_of(config("kimi-linear"), "config.json", "it")
    for preset in PRESETS:
        exports = preset >= "vllm-0.29.0"
        found = options(derive(bounded, Serving(preset=preset)))
        assert (found.num_prefill_checkpoint_blocks, found.prefill_checkpoint_alignment) == (
            (1, 16) if exports else (0, 1)
        )
        assert derive(bounded, Serving(preset=preset)).checkpoint_blocks == exports
        assert derive(bounded, Serving(preset=preset, dtype="float16")).checkpoint_blocks == 0
        assert derive(free, Serving(preset=preset)).checkpoint_blocks == 0


def test_what_no_scenario_can_say_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--scenario: nothing is cached without prefix caching"):
        written(tmp_path, "qwen3.6-27b", mamba_cache_mode="none")
    with pytest.raises(InputError, match=r"--scenario: found max_model_len 3,000, allowed above 3,145"):
        written(tmp_path, "qwen3.6-27b", max_model_len=3000)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\udcff"])
def test_a_name_that_no_scenario_can_have_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"--scenario: found .*, allowed a name of printable characters"):
        scenario(derive(named("qwen3.6-27b"), Serving()), name)


@pytest.mark.parametrize(
    ("preset", "architecture", "method", "worker"),
    [
        ("vllm-0.26.0", "KimiK3ForConditionalGeneration", "mtp", None),
        ("vllm-0.27.0", "KimiK3ForConditionalGeneration", "mtp", "v2"),
        ("vllm-0.28.0", "Qwen3NextForCausalLM", "mtp", None),
        ("vllm-0.29.0", "Qwen3NextForCausalLM", "ngram", "v1"),
        ("vllm-0.29.0", "KimiK3ForConditionalGeneration", "mtp", None),
        ("vllm-0.33.0", "Qwen3NextForCausalLM", "ngram", None),
    ],
)
def test_a_server_that_runs_on_the_other_model_runner_says_so(
    preset: str, architecture: str, method: str, worker: str | None, tmp_path: Path
) -> None:
    model = replace(named("qwen3.6-27b"), architectures=(architecture,))
    geometry = derive(model, Serving(preset=preset, num_speculative_tokens=2, speculative_method=method))
    file = tmp_path / "geometry.yaml"
    file.write_text(scenario(geometry, "geometry"))
    assert yaml.safe_load(file.read_text())["engine"].get("rules", {}).get("worker") == worker
    assert replay(load(file)).ok
