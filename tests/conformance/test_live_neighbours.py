"""Live releases on the small worlds that tell neighbours apart."""

from __future__ import annotations

import pytest
from neighbours import WORLDS

from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.engine import LiveScheduler

pytestmark = pytest.mark.live


@pytest.mark.parametrize("release", ["0.29.0", "0.30.0", "0.31.0", "0.32.0"])
def test_a_live_release_decides_the_small_worlds_as_written_down(release: str) -> None:
    if release not in {found.release for found in install.installed()}:
        pytest.skip(f"vLLM {release} is not installed (stateat vllm install {release})")
    with install.of_release(release).open() as child:
        for name, world in WORLDS.items():
            if release in world.found:
                found = world.facts(
                    release, lambda policy, observer, seed: LiveScheduler(policy, observer, seed, child)
                )
                assert found == world.found[release], name
