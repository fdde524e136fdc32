"""The frames of a result add up to its counts, and say of each request, step, claim and chunk what happened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from worlds import World, worlds

import stateat
from stateat.sim.engine.step import Step
from stateat.sim.errors import InputError, MissingError
from stateat.sim.releases.presets import PRESETS
from stateat.sim.report.recorded import RecordedResult
from stateat.sim.run import frames
from stateat.sim.run.clock import step_us
from stateat.sim.run.recorder import Columns
from stateat.sim.run.result import Outcome, Result
from stateat.sim.run.simulate import drive, simulate
from stateat.sim.scenario.load import load, runs

ROOT = Path(__file__).resolve().parents[3]
SCENARIOS = ROOT / "scenarios"
S02 = SCENARIOS / "seeds" / "s02-anatomy.yaml"
FIELD = ("*in-flight*", "offload-*", "*-all-mode*", "aborted-*", "preempted-*", "*pressure*", "images-*", "*load-that*")
FILES = [
    *sorted((SCENARIOS / "seeds").glob("s[0-2][1-4689]-*.yaml")),
    *sorted(path for pattern in FIELD for path in (SCENARIOS / "field").glob(pattern)),
]
FRAMES = ("findings", "requests", "steps", "claims", "chunks")


def outcomes(result: Result) -> dict[tuple[str, str], Outcome]:
    return {
        (variant, case): one
        for variant, outcome in result.variants.items()
        for case, one in (outcome.cases or {"": outcome}).items()
    }


def of(frame: pd.DataFrame, key: tuple[str, str]) -> pd.DataFrame:
    return frame[(frame["variant"] == key[0]) & (frame["case"] == key[1])].reset_index(drop=True)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_frames_add_up_to_the_counts_of_each_run(file: Path) -> None:
    try:
        result = stateat.replay(file)
    except MissingError as error:
        pytest.skip(str(error))
    tables = {name: getattr(result, name) for name in FRAMES}
    for key, outcome in outcomes(result).items():
        findings, requests, steps, claims, chunks = (of(tables[name], key) for name in FRAMES)
        assert findings["finding"].tolist() == [f.id for f in outcome.findings]
        assert len(requests) == outcome.requests
        assert requests["hit_tokens"].sum() == outcome.hit_tokens
        assert requests["external_tokens"].sum() == outcome.loaded_tokens
        assert requests["prompt_tokens"].sum() == outcome.prompt_tokens
        assert requests["output_tokens"].sum() == outcome.output_tokens
        assert requests["preempted"].sum() == outcome.preempted
        assert requests["deferred"].sum() == outcome.deferred
        assert requests["tainted"].sum() == outcome.tainted_requests
        assert requests["finish_us"].notna().sum() == outcome.finished
        assert chunks["steps"].sum() == outcome.chunks
        assert claims["claim"].tolist() == list(range(outcome.claims))
        assert steps["claims"].sum() == outcome.claims
        assert steps["prefill_tokens"].sum() == outcome.prefill_tokens
        assert (requests["tainted_us"].notna() == requests["tainted"]).all()
        assert (steps["poisoned"].iloc[-1] if len(steps) else 0) == outcome.poisoned
        assert steps["step"].is_monotonic_increasing and steps["step"].is_unique
        about = findings[findings["invariant"].isin(["I1", "I13"])]
        assert set(claims["finding"].dropna()) == set(about["finding"])
        for row in claims[claims["finding"].notna()].itertuples():
            assert (findings["slot"][row.finding], findings["claimed"][row.finding]) == (row.slot, row.offset)
        # A root is its own, and every root that is named is one.
        assert (findings["root"] == findings["finding"])[findings["is_root"]].all()
        assert findings["is_root"].iloc[findings["root"].dropna().astype(int)].all()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_frames_do_not_depend_on_fast_forwarding(file: Path) -> None:
    for run in runs(load(file)):
        fast, slow = Columns(), Columns()
        try:
            one, other = simulate(run, [fast]), simulate(run, [slow], fast_forward=False)
        except MissingError as error:
            pytest.skip(str(error))
        quick, full = (
            RecordedResult("", "", "", "", "us", {run.variant: outcome}, columns={(run.variant, ""): heard})
            for outcome, heard in ((one, fast), (other, slow))
        )
        pd.testing.assert_frame_equal(quick.requests, full.requests)
        pd.testing.assert_frame_equal(quick.claims, full.claims)
        # The steps that were told are the same; the others only decoded.
        told = full.steps[full.steps["step"].isin(quick.steps["step"])].reset_index(drop=True)
        pd.testing.assert_frame_equal(quick.steps, told)
        skipped = full.steps[~full.steps["step"].isin(quick.steps["step"])]
        assert skipped["prefill_tokens"].sum() == skipped["claims"].sum() == 0
        assert quick.chunks["steps"].sum() == full.chunks["steps"].sum() == len(full.chunks)


@given(world=worlds(), preset=st.sampled_from(sorted(PRESETS)))
def test_the_prefill_of_all_steps_is_that_of_the_outcome(world: World, preset: str) -> None:
    """Drafts behind a prompt's end are no prefill in either."""
    world, columns = world.under(preset), Columns()
    outcome = drive(world.options, world.arrivals, world.budgets, observers=[columns])
    steps = RecordedResult("", "", "", "", "us", {"": outcome}, columns={("", ""): columns}).steps
    assert steps["prefill_tokens"].sum() == outcome.prefill_tokens
    behind = (np.asarray(columns.chunk_prefill) * np.asarray(columns.chunk_drafts)).any()
    event(f"drafts behind a prompt: {bool(behind)}")


def test_a_step_lasts_what_its_tokens_cost() -> None:
    scenario = load(SCENARIOS / "load" / "demo.yaml")
    (options, *_) = [run.options for run in scenario.expanded]
    steps = stateat.replay(scenario).steps
    assert len(steps) > 500
    for row in steps.itertuples():
        cost = step_us(options.costs, Step(prefill_tokens=row.prefill_tokens, decode_tokens=row.decode_tokens))
        assert row.duration_us == cost


def test_a_fast_forwarded_chunk_lasts_as_long_as_its_steps() -> None:
    """Negative control of the last: fast-forwarding happens in it."""
    chunks = stateat.replay(SCENARIOS / "load" / "demo.yaml").chunks
    long = chunks[chunks["steps"] > 1]
    assert len(long)
    assert (long["duration_us"] >= 8000 * long["steps"]).all()


def test_the_anatomy_in_frames() -> None:
    result = stateat.replay(S02)
    old = result.requests[result.requests["variant"] == "old gate"].set_index("request")
    assert old["hit_tokens"].to_dict() == {"a": 0, "b": 1600, "c": 1600}
    assert old["tainted"].to_dict() == {"a": False, "b": True, "c": True}
    assert old["ttft_us"].tolist() == [2, 1, 1]
    assert old["tainted_us"].dropna().to_dict() == {"b": 3, "c": 6}
    (claim,) = result.claims[result.claims["variant"] == "old gate"].itertuples()
    assert (claim.request, claim.group, claim.column, claim.offset, claim.restores) == ("a", "gdn", 0, 1600, 2)
    found = result.findings.loc[claim.finding]
    assert (found["invariant"], found["held"], found["readers"]) == ("I1", 364, 2)
    assert (found["claimed_by"], found["written_by"]) == ("a in step 1", "a in step 0")
    (right,) = result.claims[result.claims["variant"] == "fixed gate"].itertuples()
    assert right.finding is pd.NA and right.end_step is pd.NA
    assert result.steps["poisoned"].tolist() == [0, 1, 1, 1, 0, 0, 0, 0, 0]


def test_a_claim_ends_where_it_is_withdrawn() -> None:
    claims = stateat.replay(SCENARIOS / "field" / "retention-under-pressure.yaml").claims
    over = claims[claims["end_step"].notna()]
    assert set(over["why"]) == {"evict"}
    assert set(claims[claims["end_step"].isna()]["why"]) == {""}
    assert (over["end_step"] >= over["step"]).all()


@pytest.mark.parametrize("name", FRAMES)
def test_columns_are_those_of_the_page(name: str) -> None:
    frame = getattr(stateat.replay(S02), name)
    types = getattr(frames, name.upper())
    assert list(frame.columns) == ["variant", "case", *types]
    for column, kind in types.items():
        assert str(frame[column].dtype).startswith(kind), column


def test_a_run_without_findings_or_claims_has_empty_frames_of_the_same_columns() -> None:
    full = stateat.replay(S02)
    bare = stateat.replay(
        {
            "schema": "stateat/1",
            "name": "bare",
            "engine": {"groups": [{"name": "a", "kind": "full-attention", "block_size": 16}]},
            "workload": {"requests": [{"id": "r", "prompt": [[1, 8]]}]},
        }
    )
    for name in ("findings", "claims"):
        frame = getattr(bare, name)
        assert len(frame) == 0
        assert frame.dtypes.to_dict() == getattr(full, name).dtypes.to_dict()


@pytest.mark.parametrize("name", FRAMES[1:])
def test_without_a_recording_there_is_one_message(name: str) -> None:
    result = stateat.replay(S02, record=False)
    with pytest.raises(InputError, match=r"s02-anatomy: nothing .* was recorded; stateat.replay"):
        getattr(result, name)
    assert len(result.findings) == 3


def test_a_notebook_shows_a_line_for_each_variant_and_escapes_its_name() -> None:
    result = stateat.replay(S02, record=False)
    shown = frames.summary(result)
    assert shown["variant"].tolist() == ["old gate", "fixed gate"]
    assert shown["poisoned"].tolist() == [1, 0] and shown["hit_rate"].tolist() == ["50.0 %", "25.0 %"]
    named = replace(result, variants={"<b>": result.variants["old gate"]})
    assert "&lt;b&gt;" in named._repr_html_() and "<b>" not in named._repr_html_()
