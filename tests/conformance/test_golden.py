"""The reference engine decides, step by step, what the real schedulers of the recorded releases decided."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from neighbours import UNRECORDED

from stateat.sim.cli.main import main
from stateat.sim.conformance.compare import compare
from stateat.sim.conformance.recording import Recording, arrivals_of, options_of, read
from stateat.sim.errors import EngineError, RefusedError
from stateat.sim.releases.presets import PRESETS
from stateat.sim.run.simulate import drive

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.fixture(scope="module")
def recordings(shared: Path) -> list[Recording]:
    return [recording for path in sorted((shared / "golden").glob("*.json.gz")) for recording in read(path)]


def test_stateat_conform_finds_every_recorded_scenario_of_every_release_equal_and_prints_what_is_shown(
    recordings: list[Recording], shared: Path, tmp_path: Path
) -> None:
    files = map(str, sorted((shared / "golden").glob("*.json.gz")))
    told = CliRunner().invoke(main, ["conform", *files, "--json", str(tmp_path / "out.json")])
    assert told.exit_code == 0, told.output
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    are_equal(recordings, [(r["scenario"], r["release"], r["status"]) for r in results])
    shown = re.search(
        r"^\$ stateat conform \.\./shared/golden/\*\.json\.gz\n(.*?)^```$", README.read_text(), re.M | re.S
    )
    assert shown is not None
    rows = [line for line in shown[1].splitlines() if line != "…"]
    assert len(rows) >= 3 and [row for row in rows if row not in told.stdout.splitlines()] == []


def test_every_recorded_scenario_of_every_release_is_equal_step_by_step(recordings: list[Recording]) -> None:
    results = [compare(recording, fast_forward=False) for recording in recordings]
    assert [r for r in results if r.status == "divergent"] == []
    are_equal(recordings, [(r.scenario, r.release, r.status) for r in results])


def are_equal(recordings: list[Recording], results: list[tuple[str, str, str]]) -> None:
    """All recordings are compared, and equal but where the release has no such thing."""
    expected = {"unsupported": "unsupported"}
    assert results == [(r.scenario, r.release, expected.get(r.result["status"], "equal")) for r in recordings]
    assert {r.release for r in recordings} == {preset.removeprefix("vllm-") for preset in PRESETS} - UNRECORDED
    assert sum(status == "equal" for _, _, status in results) >= 440


@pytest.mark.parametrize(
    ("release", "instead", "noticed"),
    [
        ("0.26.0", "vllm-0.27.0", {"leftover-da", "turns-db", "smallbudget-da", "padclip-da"}),
        ("0.27.0", "vllm-0.28.0", {"dslots-da", "dslots-dc"}),
        ("0.28.0", "vllm-0.29.0", {"padclip-da"}),
        ("0.29.0", "vllm-0.32.0", {"exact-da", "ckpt-da", "mtp-da"}),
        ("0.32.0", "vllm-0.33.0", {"mtp-da", "nopartial-da", "spec-da"}),
    ],
)
def test_the_rules_of_the_next_release_are_told_apart(
    recordings: list[Recording], release: str, instead: str, noticed: set[str]
) -> None:
    """Negative control: what changed between two releases shows in the recordings, and is said with its place."""
    found = {}
    for recording in recordings:
        if recording.release == release and recording.scenario in noticed:
            found[recording.scenario] = compare(recording, preset=instead)
    assert {name for name, result in found.items() if result.status == "divergent"} == noticed
    for result in found.values():
        assert result.first_divergence is not None
        assert result.first_divergence.recorded != result.first_divergence.ours


def test_an_option_that_a_release_lacks_is_a_divergence_where_it_was_recorded(recordings: list[Recording]) -> None:
    checkpoint = next(r for r in recordings if (r.scenario, r.release) == ("ckpt-da", "0.29.0"))
    result = compare(checkpoint, preset="vllm-0.27.0")
    assert result.first_divergence is not None
    assert "num_prefill_checkpoint_blocks" in result.first_divergence.ours


def test_the_worker_that_forgets_accepted_counts_is_told_from_the_one_that_keeps_them(
    recordings: list[Recording],
) -> None:
    """skip-dav1 and skip-dav2 differ in nothing but the worker."""
    recording = next(r for r in recordings if (r.scenario, r.release) == ("skip-dav1", "0.27.0"))
    options, outcomes = options_of(recording.config, "0.27.0"), {}
    for worker in ("v1", "v2"):
        outcomes[worker] = drive(replace(options, rules={"worker": worker}), arrivals_of(recording.requests))
    assert outcomes["v1"].digest == outcomes["v2"].digest
    assert (outcomes["v1"].poisoned, outcomes["v1"].wrong_reads) == (1, 11)
    assert (outcomes["v2"].poisoned, outcomes["v2"].wrong_reads) == (0, 0)


@pytest.mark.parametrize("field", ["launches", "copies"])
def test_another_block_is_a_divergence(recordings: list[Recording], field: str) -> None:
    """Negative control: one launch, or one copy, that names another block."""
    recording = next(r for r in recordings if (r.scenario, r.release) == ("ckpt-da", "0.32.0"))
    rows = [list(row) for row in recording.result[field]]
    rows[3][-1] += 1
    result = compare(replace(recording, result={**recording.result, field: rows}), fast_forward=False)
    assert result.first_divergence is not None
    assert (result.first_divergence.step, result.first_divergence.what) == (
        rows[3][0],
        {"launches": "launch"}.get(field, field),
    )


@pytest.mark.parametrize("field", ["steps", "launches", "copies", "claims", "evictions", "finished", "hits"])
def test_what_is_not_recorded_and_happens_is_a_divergence(recordings: list[Recording], field: str) -> None:
    """Negative control: the last entry is cut off, or all of them."""
    recording = next(r for r in recordings if (r.scenario, r.release) == ("ckpt-db", "0.32.0"))
    whole = recording.result[field]
    assert whole
    less = dict(list(whole.items())[:-1]) if isinstance(whole, dict) else whole[:-1]
    for part in (less, type(whole)()):
        result = compare(replace(recording, result={**recording.result, field: part}), fast_forward=False)
        assert result.status == "divergent"


def test_a_live_engine_that_refuses_diverges_and_one_that_dies_is_an_error(recordings: list[Recording]) -> None:
    def refuses(*_: object) -> Any:
        raise RefusedError("it has no such feature")

    def dies(*_: object) -> Any:
        raise EngineError("it was killed")

    assert compare(recordings[0], make=refuses).status == "divergent"
    died = compare(recordings[0], make=dies)
    assert died.status == "error" and died.first_divergence is not None
    assert (died.first_divergence.what, died.first_divergence.ours) == ("engine", "it was killed")
