"""Live releases schedule proposals that vary as was recorded of them."""

from __future__ import annotations

import pytest
from varying import WORLDS, said, told

from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.engine import LiveScheduler
from stateat.sim.releases.presets import PRESETS

pytestmark = pytest.mark.live


@pytest.mark.parametrize("preset", PRESETS)
def test_a_live_release_schedules_varying_proposals_as_recorded(preset: str) -> None:
    release = preset.removeprefix("vllm-")
    if release not in {found.release for found in install.installed()}:
        pytest.skip(f"vLLM {release} is not installed (stateat vllm install {release})")
    with install.of_release(release).open() as child:
        for name, server in WORLDS.items():
            found = said(server, preset, lambda policy, observer, seed: LiveScheduler(policy, observer, seed, child))
            assert found == told(name, release), name
