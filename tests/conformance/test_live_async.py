"""Live releases that schedule asynchronously, or in a pipeline: what was recorded of them, and what they refuse.

Not part of ``make test``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from neighbours import UNRECORDED

from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.engine import LiveScheduler
from stateat.sim.adapters.vllm.process import Child
from stateat.sim.conformance.compare import compare
from stateat.sim.conformance.recording import Recording, read
from stateat.sim.errors import RefusedError
from stateat.sim.events import Group, Observer
from stateat.sim.options import Options, Speculative
from stateat.sim.releases.async_default import by_default
from stateat.sim.releases.policy import Policy
from stateat.sim.releases.presets import PRESETS
from stateat.sim.run.engine import Make

pytestmark = pytest.mark.live

RELEASES = sorted(found.release for found in install.installed())
RECORDED = [release for release in RELEASES if f"vllm-{release}" in PRESETS and release not in UNRECORDED]
NEAREST = {"0.27.1": "0.27.0", "0.30.0": "0.29.0", "0.31.0": "0.32.0"}
"""Releases whose recordings are run on one that was not recorded."""


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


GROUPS = (Group("attention", "full-attention", 16), Group("gdn", "recurrent", 32))


def asked_of(release: str, asked: bool | str, method: str = "", depth: int = 1) -> Options:
    return Options(
        GROUPS,
        preset=f"vllm-{release}",
        rules={"worker": "v1"},
        max_concurrent_batches=depth,
        async_scheduling=asked,  # type: ignore[arg-type]
        speculative=Speculative(method, 2) if method else Speculative(),
    )


def begun(child: Child, release: str, asked: bool | str, method: str = "", depth: int = 1) -> LiveScheduler:
    options = asked_of(release, asked, method, depth)
    # A policy makes `auto` true or false: here the release is to say it.
    policy = replace(Policy.of(options), options=options)
    return LiveScheduler(policy, Observer(), 0, child)


@pytest.mark.parametrize(("child", "release"), [(r, r) for r in RELEASES], indirect=["child"], ids=RELEASES)
def test_a_release_schedules_asynchronously_on_its_own_conditions(child: Child, release: str) -> None:
    with pytest.raises(RefusedError, match=r"engine\.async_scheduling: the release refuses this itself \("):
        begun(child, release, True, "ngram")
    methods = ("", "mtp", "eagle3", "dspark", "ngram", "ngram_gpu", "suffix")
    found = {method: begun(child, release, "auto", method).in_flight.ahead for method in methods}
    assert found == {method: by_default(asked_of(release, "auto", method), {"worker": "v1"}) for method in methods}
    assert found["mtp"] and not found["ngram"]
    assert begun(child, release, True, "ngram_gpu").in_flight.ahead
    assert not begun(child, release, False).in_flight.several


@pytest.mark.parametrize(("child", "release"), [(r, r) for r in RELEASES], indirect=["child"], ids=RELEASES)
def test_a_pipeline_without_asynchronous_scheduling_has_no_drafts_or_a_warning(child: Child, release: str) -> None:
    said = "hands a pipeline's drafts over as soon as a step is launched"
    if release.startswith(("0.26", "0.27")):
        with pytest.raises(RefusedError, match=said):
            begun(child, release, False, "mtp", depth=2)
    else:
        assert any(said in warning for warning in begun(child, release, False, "mtp", depth=2).warnings)
    assert not any(said in warning for warning in begun(child, release, False, depth=2).warnings)
