"""Proposals that vary are scheduled as live releases were recorded to schedule them (no vLLM is needed)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from varying import WORLDS, said, told

from stateat.sim.releases.presets import PRESETS


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_schedules_varying_proposals_as_its_release(name: str, preset: str) -> None:
    assert said(WORLDS[name], preset) == told(name, preset.removeprefix("vllm-"))


@pytest.mark.parametrize("name", WORLDS)
def test_k_drafts_always_would_be_scheduled_otherwise(name: str) -> None:
    """Negative control of the records."""
    server = WORLDS[name]
    speculative = replace(server.options.speculative, proposed_drafts=None, num_speculative_tokens_per_batch_size=None)
    arrivals = tuple(replace(arrival, proposed_drafts=None) for arrival in server.arrivals)
    always = replace(server, options=replace(server.options, speculative=speculative), arrivals=arrivals)
    assert said(always, "vllm-0.33.0") != told(name, "0.33.0")
