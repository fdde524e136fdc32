"""Live releases that schedule asynchronously decide what was recorded of them, and pipelines of any depth come to an end.

Not part of ``make test``.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateat.sim.adapters.vllm import install
from stateat.sim.adapters.vllm.engine import LiveScheduler
from stateat.sim.adapters.vllm.process import Child
from stateat.sim.conformance.compare import Decisions, Divergence, _by_step, _totals
from stateat.sim.conformance.recording import arrivals_of, options_of
from stateat.sim.engine.step import Step
from stateat.sim.options import Options
from stateat.sim.releases.presets import PRESETS
from stateat.sim.run.engine import Make
from stateat.sim.run.simulate import drive
from stateat.sim.workload import Arrival

pytestmark = pytest.mark.live

RELEASES = sorted(found.release for found in install.installed())


class Aborting(LiveScheduler):
    """Takes requests away behind the decisions of a step."""

    late: Mapping[int, list[str]]

    def step(self, index: int, time: int, budget: int) -> Step:
        for name in self.late.get(index, ()):
            self.abort(name, late=True)
        return super().step(index, time, budget)


def on(child: Child, requests: list[dict[str, Any]]) -> Make:
    late: dict[int, list[str]] = {}
    for request in requests:
        if "abort_late" in request:
            late.setdefault(request["abort_late"], []).append(request["id"])

    def make(*args: Any) -> LiveScheduler:
        made = Aborting(*args, child)
        made.late = late
        return made

    return make


def world(scenario: Mapping[str, Any], release: str) -> tuple[Options, list[Arrival]]:
    """What was run: a drafter without look-ahead is one that a worker runs by itself."""
    near = release if f"vllm-{release}" in PRESETS else "0.29.0" if release == "0.30.0" else "0.32.0"
    options = options_of(scenario["config"], near)
    drafter = options.speculative
    if drafter.method == "ngram":
        drafter = replace(drafter, method="ngram_gpu")
    arrivals = [
        replace(arrival, abort=request.get("abort_step"))
        for arrival, request in zip(arrivals_of(scenario["requests"]), scenario["requests"], strict=True)
    ]
    return replace(options, speculative=drafter, async_scheduling=True), arrivals


def synchronous(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result as a synchronous one is written: each row where it truly starts, each end at the call that it follows."""
    true = {(n, name): start for n, name, start, *_ in result["launches"]}
    steps = [
        step
        | {
            "scheduled": [
                (name, true[step["n"], name], true[step["n"], name] + tokens, drafts)
                for name, _, tokens, drafts in step["scheduled"]
            ]
        }
        for step in result["steps"]
    ]
    return {**result, "steps": steps, "finished": {name: call for name, (_, call) in result["finished"].items()}}


def first_divergence(
    scenario: Mapping[str, Any], result: Mapping[str, Any] | None, release: str, child: Child
) -> Divergence | None:
    options, arrivals = world(scenario, release)
    ours = Decisions()
    outcome = drive(options, arrivals, observers=[ours], fast_forward=False, make=on(child, scenario["requests"]))
    if result is None:
        return None
    told = synchronous(result)
    found = [*_by_step(told, ours), *_totals(told, ours, outcome)]
    return next((divergence for divergence in found if not divergence.what.endswith("boundaries")), None)


@pytest.fixture(scope="module")
def recorded(shared: Path) -> dict[str, Any]:
    files = sorted((shared / "golden-async").glob("*.json.gz"))
    return {path.name.split(".")[0]: json.loads(gzip.decompress(path.read_bytes())) for path in files}


def result_of(results: Mapping[str, Any], release: str) -> Mapping[str, Any] | None:
    """The result of a release; None where it was not recorded."""
    found = results.get(release)
    return found if found is None or "same_as" not in found else result_of(results, found["same_as"])


@pytest.fixture(scope="module")
def child(request: pytest.FixtureRequest) -> Iterator[Child]:
    with install.of_release(request.param).open() as opened:
        yield opened


@pytest.mark.parametrize(("child", "release"), [(r, r) for r in RELEASES], indirect=["child"], ids=RELEASES)
def test_a_live_release_decides_asynchronously_as_recorded(
    child: Child, release: str, recorded: dict[str, Any]
) -> None:
    assert len(recorded) >= 39
    found = {}
    for name, file in recorded.items():
        result = result_of(file["results"], release)
        if result is None or result["status"] == "ok":
            found[name] = first_divergence(file["scenario"], result, release, child)
    assert {name: divergence for name, divergence in found.items() if divergence is not None} == {}
    assert len(found) >= 37
