"""What lies between vLLM 0.29 and 0.32, as the live releases have decided it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from neighbours import WORLDS

from stateat.sim.releases.presets import PRESETS


@pytest.mark.parametrize("name", WORLDS)
def test_a_preset_decides_a_small_world_as_its_release_did(name: str) -> None:
    world = WORLDS[name]
    assert {release: world.facts(release) for release in world.found} == world.found


def test_each_of_the_four_is_told_from_the_next() -> None:
    for before, after in pairwise(("0.29.0", "0.30.0", "0.31.0", "0.32.0")):
        apart = [name for name, w in WORLDS.items() if before in w.found and w.found[before] != w.found[after]]
        assert len(apart) >= 3, (before, after)


def test_0_27_1_is_0_27_0() -> None:
    assert PRESETS["vllm-0.27.1"] == PRESETS["vllm-0.27.0"]
