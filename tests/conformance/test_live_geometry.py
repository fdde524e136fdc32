"""What we derive is what the functions of installed releases of vLLM say, for many models and flags."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_configs import CONFIGS, config, varied

from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.install import CHILD
from stateat.sim.errors import InputError
from stateat.sim.geometry.capacity import tokens_of
from stateat.sim.geometry.derive import derive, fits
from stateat.sim.geometry.families import model_of
from stateat.sim.geometry.model import Serving
from stateat.sim.geometry.releases import sizing
from stateat.sim.releases.presets import PRESETS

pytestmark = pytest.mark.live

RELEASES = [preset.removeprefix("vllm-") for preset in PRESETS]
ASKER = Path(__file__).resolve().parents[1] / "support" / "vllm_geometry.py"
CASES = 200


def ask(release: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers of a release's own functions."""
    if release not in {found.release for found in install.installed()}:
        pytest.skip(f"vLLM {release} is not installed (stateat vllm install {release})")
    source = install.of_release(release)
    child = subprocess.run(
        [source.command[0], str(ASKER), str(source.path)],
        input=json.dumps(cases),
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        | {"VLLM_LOGGING_LEVEL": "ERROR", "PYTHONPATH": os.pathsep.join((str(CHILD), str(source.path)))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-3000:]
    answers: list[dict[str, Any]] = json.loads(child.stdout)
    return answers


def flags(rng: np.random.Generator, preset: str, name: str) -> dict[str, Any]:
    """A server's flags."""

    def one(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    modes = [None, "align", *(["all"] if sizing(preset).all_mode else [])]
    block = one(None, None, None, 64, 1600)
    return {
        "preset": preset,
        "tensor_parallel_size": one(1, 1, 2, 4, 8),
        "num_speculative_tokens": one(0, 1, 3, 7),
        "dtype": one("bfloat16", "bfloat16", "float16", "float32"),
        "kv_cache_dtype": one("auto", "fp8", "fp8_e5m2", "bfloat16", *(["nvfp4"] if name != "kimi-linear" else [])),
        "mamba_cache_dtype": one("auto", "auto", "float32", "bfloat16"),
        "mamba_ssm_cache_dtype": one("auto", "float32", "bfloat16", *(["float16"] if name != "kimi-linear" else [])),
        "mamba_cache_mode": one(*modes),
        "enable_prefix_caching": one(True, True, True, False),
        "block_size": block,
        "mamba_block_size": one(None, None, 512),
        "max_model_len": one(8192, 262144),
        "gdn_prefill_backend": one("auto", "triton"),
        "attention_kernel_block": one(16, 16, 32, 64),
    }


def cases(release: str) -> list[dict[str, Any]]:
    """Random models and flags, and each model as it is published, on one rank."""
    rng = np.random.Generator(np.random.PCG64([20, RELEASES.index(release)]))
    names = list(CONFIGS)
    found = []
    for i in range(CASES):
        name = names[i % len(names)]
        values = config(name) if i < len(names) else varied(name, rng)
        if name == "falcon-h1":
            values["mamba_d_ssm"] = values["mamba_n_heads"] * values["mamba_d_head"]
        model, given = model_of(values, name, name), flags(rng, f"vllm-{release}", name)
        if not fits(model, given["tensor_parallel_size"]):
            given["tensor_parallel_size"] = 1
        drafted = model.mtp_layers if given["num_speculative_tokens"] else 0
        layers = {
            "attention_layers": model.attention.layers + drafted,
            "recurrent_layers": model.recurrent_layers,
        }
        pool = {
            "num_blocks": int(rng.integers(1, 100_000)),
            "checkpoint_blocks": derive(model, Serving(**given)).checkpoint_blocks,
        }
        found.append({"family": model.family, "config": values, "flags": given, **layers, **pool, "name": name})
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_a_releases_own_functions_say_the_same(release: str) -> None:
    asked = cases(release)
    compared, modes = 0, set()
    for case, answer in zip(asked, ask(release, asked), strict=True):
        ours = derive(model_of(case["config"], case["name"], case["name"]), Serving(**case["flags"]))
        mamba = ours.mamba_block_size
        if ours.mode == "none" and case["flags"]["mamba_block_size"]:
            # vLLM refuses the flag there; its functions take it as it is
            mamba = case["flags"]["mamba_block_size"]
        pinned = ours.state_blocks(ours.max_model_len) // ours.recurrent_groups - ours.checkpoint_blocks
        expected = {
            "tokens": tokens_of(ours, case["num_blocks"]),
            "mode": ours.mode,
            "block_size": ours.block_size,
            "mamba_block_size": mamba,
            "state_bytes": ours.state_bytes,
            "page_bytes": ours.page_bytes,
            "pinned": pinned,
            "groups": [ours.attention_groups, ours.recurrent_groups],
            "retention": ours.sizing.retention,
        }
        if mamba == ours.mamba_block_size:
            told = Serving(**case["flags"], kv_cache_size_tokens=answer["tokens"])
            again = derive(model_of(case["config"], case["name"], case["name"]), told)
            assert again.num_blocks == case["num_blocks"]
        assert answer == expected, case
        compared += 1
        modes.add(ours.mode)
    assert compared == CASES
    assert modes == {"none", "align", *(["all"] if sizing(f"vllm-{release}").all_mode else [])}


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_does_not_divide_is_refused(release: str) -> None:
    """Its functions divide the state alone; we refuse at least that."""
    plain = flags(np.random.Generator(np.random.PCG64(1)), f"vllm-{release}", "kimi-linear")
    given = {**plain, "tensor_parallel_size": 7}
    models = {name: model_of(config(name), name, name) for name in CONFIGS}
    layers = {"attention_layers": 1, "recurrent_layers": 1, "flags": given}
    asked = [{"family": models[name].family, "config": config(name), **layers} for name in CONFIGS]
    for name, answer in zip(CONFIGS, ask(release, asked), strict=True):
        assert "is not divisible by" in answer["refused"], name
        with pytest.raises(InputError, match="--tensor-parallel-size: found 7"):
            derive(models[name], Serving(**given))


def test_another_releases_answer_is_not_met() -> None:
    """Negative control: a look-ahead of K does not widen Kimi-Linear's convolution in 0.26, and does in 0.27."""
    given = {
        **flags(np.random.Generator(np.random.PCG64(1)), "vllm-0.27.0", "kimi-linear"),
        "num_speculative_tokens": 7,
        "tensor_parallel_size": 1,
    }
    model = model_of(config("kimi-linear"), "", "kimi-linear")
    case = {"family": model.family, "config": config("kimi-linear"), "flags": given}
    (answer,) = ask("0.26.0", [{**case, "attention_layers": 7, "recurrent_layers": 20}])
    assert answer["state_bytes"] < derive(model, Serving(**given)).state_bytes
