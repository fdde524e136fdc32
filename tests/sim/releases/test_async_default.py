"""Asynchronous scheduling by release: its default, and what is refused beside it."""

from __future__ import annotations

from typing import Any

import pytest

from stateat.sim.events import Group
from stateat.sim.options import METHODS, Options, Speculative
from stateat.sim.releases.async_default import ASYNC_DEFAULT, by_default, lacks
from stateat.sim.releases.policy import Policy
from stateat.sim.releases.presets import PRESETS, table

GROUPS = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 32))


def options(preset: str, method: str = "", **given: Any) -> Options:
    slots = 1 if method == "draft_model" else 0
    drafter = Speculative("ngram" if slots else method, 2, draft_slots=slots) if method else Speculative()
    return Options(GROUPS, preset=preset, speculative=drafter, **given)


def test_every_preset_has_a_default() -> None:
    assert set(PRESETS) <= set(ASYNC_DEFAULT)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_server_is_asynchronous_by_default_unless_its_drafter_is_on_the_cpu(preset: str) -> None:
    values = table(preset, {"worker": "v1"})
    off = {method for method in ("", "draft_model", *METHODS) if not by_default(options(preset, method), values)}
    early = {"draft_model"} if preset < "vllm-0.28" else set()
    assert off == {"ngram", "suffix"} | early
    asked = {m for m in ("", "draft_model", *METHODS) if any(lacks(options(preset, m, async_scheduling=True), values))}
    assert asked == {"ngram", "suffix"}
    assert not any(lacks(options(preset, "ngram", async_scheduling="auto"), values))


def test_runner_v2_of_0_33_is_ahead_of_ngram_too() -> None:
    for worker, on in (("v1", False), ("v2", True)):
        values = table("vllm-0.33.0", {"worker": worker})
        assert by_default(options("vllm-0.33.0", "ngram"), values) is on
        assert any(lacks(options("vllm-0.33.0", "ngram", async_scheduling=True), values)) is not on


@pytest.mark.parametrize(
    ("preset", "worker", "default", "refused"),
    [
        ("vllm-0.29.0", "v1", True, False),
        ("vllm-0.32.0", "v1", False, False),
        ("vllm-0.32.0", "v2", True, False),
        ("vllm-0.33.0", "v1", False, True),
        ("vllm-0.33.0", "v2", True, False),
    ],
)
def test_a_pipeline_on_runner_v1_waits_from_0_31_and_is_refused_from_0_33(
    preset: str, worker: str, default: bool, refused: bool
) -> None:
    values = table(preset, {"worker": worker})
    assert by_default(options(preset, max_concurrent_batches=3), values) is default
    assert any(lacks(options(preset, async_scheduling=True, max_concurrent_batches=3), values)) is refused


def test_auto_is_made_true_or_false_before_anything_asks() -> None:
    for method, said in (("ngram", False), ("ngram_gpu", True), ("", True)):
        policy = Policy.of(options("vllm-0.32.0", method, async_scheduling="auto"))
        assert policy.options.async_scheduling is said
        assert policy.in_force()["async_scheduling"] is said
