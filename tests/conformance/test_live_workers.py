"""Our workers against the model runners of installed releases, which are run on batches drawn at random."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from asker import Asker, made
from release_runners import Copied, Planned, RunnerV1, RunnerV2, bare, execute, function, tree

from stateat.sim.adapters.vllm import install
from stateat.sim.events import Group, Observer
from stateat.sim.releases.presets import PRESETS, table
from stateat.sim.releases.rules import resolve
from stateat.sim.worker.rules import WORKER
from stateat.sim.worker.worker import Row, Worker

pytestmark = pytest.mark.live

RELEASES = [preset.removeprefix("vllm-") for preset in PRESETS]
BLOCK, K, COLUMNS = 8, 3, 60
GROUPS = (Group("attention", "full-attention", BLOCK), Group("gdn", "recurrent", BLOCK))
WORLDS, STEPS = 40, 40


def folder(release: str) -> Path:
    if release not in {found.release for found in install.installed()}:
        pytest.skip(f"vLLM {release} is not installed (stateat vllm install {release})")
    return install.of_release(release).path / "vllm"


@dataclass
class Ours(Observer):
    """Our worker, and what it told of a step: copies by columns."""

    worker: Worker = field(init=False)
    copies: dict[str, list[Copied]] = field(default_factory=lambda: {"pre": [], "post": []})

    def copy(self, request: str, group: int, kind: str, source: int, target: int, inputs: int, shift: int) -> None:
        assert source == inputs + shift
        self.copies[kind].append(Copied(request, inputs % 1000, target % 1000, shift))

    def told(self, kind: str) -> list[Copied]:
        found, self.copies[kind] = self.copies[kind], []
        return sorted(found)


def ours(release: str, name: str, config_block: int) -> Ours:
    observer = Ours()
    rules = resolve(table(f"vllm-{release}", {}))
    observer.worker = made(WORKER[name], GROUPS, K, observer, seed=rules.restore_column, config_block=config_block)
    return observer


class World:
    """Requests that prefill in chunks, decode with up to K drafts, are skipped, preempted and restored."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.prompts = {name: int(self.rng.integers(1, 30)) for name in "abcd"}
        self.asked: dict[str, Asker] = {}
        self.computed: dict[str, int] = {}
        self.away: set[str] = set(self.prompts)

    def step(self) -> tuple[list[Planned], list[str]]:
        """Draw who is preempted, then who runs, and what."""
        rng = self.rng
        preempted = [name for name in self.prompts if name not in self.away and rng.random() < 0.03]
        self.away.update(preempted)
        rows = []
        for i, name in enumerate(self.prompts):
            if rng.random() < 0.25 or self.computed.get(name, 0) > (COLUMNS - 6) * BLOCK:
                continue
            fresh = name in self.away
            if fresh:
                self.away.discard(name)
                had = self.computed.get(name, self.prompts[name] - 1)
                self.computed[name] = int(rng.integers(0, had // BLOCK + 1)) * BLOCK
                pages = [[], list(range(1000 * (i + 1), 1000 * (i + 1) + COLUMNS))]
                self.asked[name] = Asker(name, self.prompts[name], pages)
            start, prompt = self.computed[name], self.prompts[name]
            if start < prompt:
                end = min(prompt, start + int(rng.integers(1, 20)))
                rows.append(Planned(name, start, end, 0, int(end == prompt), fresh))
                self.computed[name] = end
            else:
                drafts = int(rng.choice([0, 1, K, K, K]))
                kept = int(rng.integers(1, drafts + 2))
                rows.append(Planned(name, start, start + 1 + drafts, drafts, kept, fresh))
                self.computed[name] = start + kept
        return rows, preempted


def compare(release: str, name: str, runner: Any, config_block: int, seed: int) -> None:
    """Play a world on both, step by step."""
    path, world, mine = folder(release), World(seed), ours(release, name, config_block)
    real = runner(path, BLOCK, K, config_block)
    for number in range(STEPS):
        rows, preempted = world.step()
        # What the request had before it was preempted went with it.
        batch = [
            Row(world.asked[row.name], row.start, row.end, list(range(row.drafts)), row.drafts, row.sampled)
            for row in rows
        ]
        mine.worker.before(number, batch, [], [[], []])
        before, after = real.step(rows, preempted)
        at = f"vLLM {release}, {name}, world {seed}, step {number}: {rows}"
        # A copy of a restored state into its own column is none.
        assert mine.told("pre") == sorted(before), at
        assert {row.name: world.asked[row.name].accepted[1] for row in rows} == real.read, at
        mine.worker.after(batch)
        assert mine.told("post") == sorted(after), at
        assert {row.name: world.asked[row.name].accepted[1] for row in rows} == {
            row.name: real.counts[row.name] for row in rows
        }, at


@pytest.mark.parametrize("release", RELEASES)
def test_runner_v1_copies_what_ours_does_and_keeps_the_same_counts(release: str) -> None:
    for seed in range(WORLDS):
        # It counts columns in the group's blocks, whatever the configuration says.
        compare(release, "v1", RunnerV1, BLOCK, seed)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("config_block", [BLOCK, BLOCK // 2])
def test_runner_v2_copies_what_ours_does_and_keeps_the_same_counts(release: str, config_block: int) -> None:
    if config_block != BLOCK and PRESETS[f"vllm-{release}"]["worker"] != "v2":
        pytest.skip("the preset's restore column is runner v1's")
    for seed in range(WORLDS):
        compare(release, "v2", RunnerV2, config_block, seed)


@pytest.mark.parametrize(("name", "runner"), [("v1", RunnerV2), ("v2", RunnerV1)])
def test_a_worker_of_the_other_kind_is_told_apart(name: str, runner: Any) -> None:
    """The negative control."""
    with pytest.raises(AssertionError, match="world"):
        for seed in range(WORLDS):
            compare("0.28.0", name, runner, BLOCK, seed)


# Rows without drafts: one of the batch drafted K tokens, one nothing, and one is a chunk of a prompt.

DRAFTED, SCHEDULED, COMPUTED, PROMPT = [K, 0, 0], [1 + K, 1, 5], [20, 20, 0], [10, 10, 30]


def of_v1(path: Path) -> Any:
    """Counts of drafts by row as runner v1 hands them to kernels; -1: no speculative row."""
    prepared = function(tree(path / "v1/worker/gpu_model_runner.py"), "_prepare_inputs")
    branch = next(
        node
        for node in ast.walk(prepared)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "not use_spec_decode"
    )
    last = next(i for i, node in enumerate(branch.orelse) if "_calc_spec_decode_metadata" in ast.unparse(node))
    names = {
        "np": np,
        "num_reqs": 3,
        "num_scheduled_tokens": np.array(SCHEDULED),
        "scheduler_output": SimpleNamespace(scheduled_spec_decode_tokens={"a": [1] * K}),
        "self": SimpleNamespace(
            input_batch=SimpleNamespace(
                req_id_to_index={"a": 0, "b": 1, "c": 2},
                num_computed_tokens_cpu=np.array(COMPUTED),
                num_prompt_tokens=np.array(PROMPT),
            )
        ),
    }
    return execute(branch.orelse[:last], names)["num_decode_draft_tokens"]


def of_v2(path: Path) -> Any:
    """The same of runner v2."""
    torch = pytest.importorskip("torch")
    prepared = function(tree(path / "v1/worker/gpu/model_states/mamba_hybrid.py"), "prepare_attn")
    branch = next(
        node
        for node in ast.walk(prepared)
        if isinstance(node, ast.If) and "not for_capture and self.vllm_config" in ast.unparse(node.test)
    )
    prefilling = np.array(COMPUTED) < np.array(PROMPT)
    names = {
        "np": np,
        "torch": torch,
        "num_reqs": 3,
        "is_prefilling_np": prefilling,
        "input_batch": SimpleNamespace(
            num_reqs=3,
            idx_mapping=torch.arange(3),
            num_scheduled_tokens=np.array(SCHEDULED),
            num_draft_tokens_per_req=np.array(DRAFTED),
            is_prefilling_np=prefilling,
        ),
        "self": SimpleNamespace(
            num_accepted_tokens_gpu=torch.ones(3, dtype=torch.int32),
            vllm_config=SimpleNamespace(num_speculative_tokens=K),
        ),
    }
    return execute(branch.body, names)["num_decode_draft_tokens_np"]


def speculative(path: Path, drafts: Any) -> list[bool]:
    """The rows that GDN's metadata gives to the kernel that applies accepted counts."""
    torch = pytest.importorskip("torch")
    build = function(tree(path / "v1/attention/backends/gdn_attn.py"), "build")
    branch = next(
        node for node in build.body if isinstance(node, ast.If) and "use_spec_decode" in ast.unparse(node.test)
    )
    names = execute(
        [branch],
        {
            "self": SimpleNamespace(use_spec_decode=True),
            "num_decode_draft_tokens_cpu": torch.as_tensor(drafts),
            "query_start_loc": SimpleNamespace(device=None),
            "async_tensor_h2d": lambda tensor, device: tensor,
        },
    )
    mask = names["spec_sequence_masks_cpu"] if names["spec_sequence_masks"] is not None else [False] * 3
    return [bool(row) for row in mask]


@pytest.mark.parametrize("drafts", [of_v1, of_v2])
@pytest.mark.parametrize("release", RELEASES)
def test_a_row_without_drafts_is_plain_where_the_preset_says_so(release: str, drafts: Any) -> None:
    plain = PRESETS[f"vllm-{release}"]["undrafted_rows"] == "running-column"
    path = folder(release)
    assert speculative(path, drafts(path)) == [True, not plain, False]


# Which runner is the default of a hybrid.


def default(path: Path, architectures: list[str], method: str = "mtp") -> bool:
    """Return True if a release runs a hybrid of these architectures on v2, on a machine with Triton."""
    whole = tree(path / "config/vllm.py")
    listed = [node for node in whole.body if isinstance(node, ast.Assign) and "ARCHITECTURES" in ast.unparse(node)]
    names: dict[str, Any] = {
        "envs": SimpleNamespace(VLLM_USE_V2_MODEL_RUNNER=None),
        "HAS_TRITON": True,
        "current_platform": SimpleNamespace(is_rocm=lambda: False, is_unspecified=lambda: False),
        "logger": SimpleNamespace(warning_once=lambda *args: None),
    }
    execute(listed, names)
    names["default_v2_model_runner_architectures"] = lambda: names["DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES"]
    known = {n.name for n in ast.walk(whole) if isinstance(n, ast.FunctionDef)}
    members = ["use_v2_model_runner", "_is_default_v2_model_runner_model"]
    found = [bare(function(whole, name)) for name in members if name in known]
    for node in found:
        node.body = [part for part in node.body if not isinstance(part, ast.ImportFrom)]
    execute(found, names)
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(prefill_context_parallel_size=1),
        speculative_config=SimpleNamespace(method=method),
        attention_config=SimpleNamespace(hisparse_config=None),
        model_config=SimpleNamespace(
            runner_type="generate", is_hybrid=True, is_attention_free=False, is_moe=True, is_diffusion=False,
            architectures=architectures,
        ),
        _dflash_needs_multi_kv_group=lambda: False,
        _is_dflash2_draft=lambda: False,
        _get_v2_model_runner_unsupported_features=list,
    )  # fmt: skip
    if "_is_default_v2_model_runner_model" in names:
        config._is_default_v2_model_runner_model = lambda: names["_is_default_v2_model_runner_model"](config)
    return bool(names["use_v2_model_runner"](config))


@pytest.mark.parametrize("release", RELEASES)
def test_a_preset_has_the_runner_that_its_release_runs_hybrids_on(release: str) -> None:
    v2 = PRESETS[f"vllm-{release}"]["worker"] == "v2"
    assert default(folder(release), ["Qwen3NextForCausalLM"]) == v2


@pytest.mark.parametrize("release", RELEASES)
def test_a_listed_architecture_runs_on_v2_before_others_do(release: str) -> None:
    listed = release not in ("0.26.0",)
    assert default(folder(release), ["KimiK3ForConditionalGeneration"]) == listed
    assert default(folder(release), ["Qwen3NextForCausalLM"], "dspark") is True
