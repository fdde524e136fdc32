"""Live releases that schedule asynchronously, or in a pipeline: what was recorded of them, and what they refuse.

Not part of ``make test``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.engine import LiveScheduler
from stateat.sim.adapters.vllm.process import Child
from stateat.sim.conformance.compare import compare
from stateat.sim.conformance.recording import Recording, read
from stateat.sim.releases.presets import PRESETS
from stateat.sim.run.engine import Make

pytestmark = pytest.mark.live

RELEASES = sorted(found.release for found in install.installed())
RECORDED = [release for release in RELEASES if f"vllm-{release}" in PRESETS]
NEAREST = {"0.27.1": "0.27.0", "0.30.0": "0.29.0", "0.31.0": "0.32.0"}
"""Presets of releases that have none of their own and were not recorded."""


@pytest.fixture(scope="module")
def recorded(shared: Path) -> Callable[[str], list[Recording]]:
    files = sorted((shared / "golden-async").glob("*.json.gz"))
    return lambda release: [recording for path in files for recording in read(path, [release])]


@pytest.fixture(scope="module")
def child(request: pytest.FixtureRequest) -> Iterator[Child]:
    with install.of_release(request.param).open() as opened:
        yield opened


def on(child: Child) -> Make:
    return lambda policy, observer, seed: LiveScheduler(policy, observer, seed, child)


@pytest.mark.parametrize(("child", "release"), [(r, r) for r in RELEASES], indirect=["child"], ids=RELEASES)
def test_a_live_release_decides_asynchronously_as_recorded(
    child: Child, release: str, recorded: Callable[[str], list[Recording]]
) -> None:
    """One that was not recorded has to come to an end."""
    known = release if release in RECORDED else NEAREST.get(release, RECORDED[-1])
    results = [compare(recording, make=on(child)) for recording in recorded(known)]
    assert [r for r in results if r.status == "error"] == []
    assert sum(r.status != "unsupported" for r in results) >= 37
    if release in RECORDED:
        assert [r for r in results if r.status == "divergent"] == []
