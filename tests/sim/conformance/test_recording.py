"""Recordings as input: what is wrong is one message with its place, whatever was done to the file."""

from __future__ import annotations

import copy
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from stateat.sim.cli.main import main
from stateat.sim.conformance.compare import compare
from stateat.sim.conformance.recording import read
from stateat.sim.errors import InputError

TREE = {
    "format": "engine-golden/1",
    "scenario": {
        "config": {"attention_block_size": 16, "mamba_block_size": 64, "num_blocks": 50},
        "requests": [{"id": "a", "arrival_step": 0, "segments": [[1, 40]], "max_tokens": 1}],
    },
    "results": {
        "0.26.0": {"status": "unsupported", "error": "no such thing"},
        "0.27.0": {
            "status": "ok",
            "steps": [{"n": 0, "scheduled": [["a", 0, 32, 0]], "preempted": []}],
            "hits": {"a": [0, 0, -1]},
            "deferred": [],
            "claims": [[0, "a", 0, 32, 4]],
            "evictions": [],
            "launches": [[0, "a", 0, 32, 0, -1, 4]],
            "copies": [],
            "poisoned": [],
            "wrong_resumes": [],
            "wrong_reads": [],
            "boundaries": {"a": {"null": [], "materialized": []}},
            "finished": {"a": 1},
            "livelock": False,
            "free_blocks_end": 49,
        },
        "0.28.0": {"same_as": "0.27.0"},
    },
}
KEYS = st.sampled_from(["format", "scenario", "results", "0.27.0", "config", "steps", "x"])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 1 << 70) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)


def written(folder: Path, tree: Any) -> Path:
    path = folder / "case.json"
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for key, value in items for place in places(value, (*path, key)))]


def changed(place: tuple[Any, ...], value: Any) -> Any:
    tree = copy.deepcopy(TREE)
    node: Any = tree
    if not place:
        return value
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    return tree


def test_each_release_of_a_file_is_a_recording(tmp_path: Path) -> None:
    found = read(written(tmp_path, TREE))
    assert [(r.scenario, r.release, r.result["status"]) for r in found] == [
        ("case", "0.26.0", "unsupported"),
        ("case", "0.27.0", "ok"),
        ("case", "0.28.0", "ok"),
    ]
    assert [r.release for r in read(written(tmp_path, TREE), ["0.28.0"])] == ["0.28.0"]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("format",), "engine-golden/2", "format: found 'engine-golden/2', allowed 'engine-golden/1'"),
        (("scenario", "config", "num_blocks"), "50", 'scenario.config.num_blocks: found "50": '),
        (("scenario", "config", "num_blokcs"), 50, "scenario.config.num_blokcs: found 50: "),
        (("scenario", "config", "hash_block_size"), 24, "hash_block_size: found 24, allowed a divisor of 16 and 64"),
        (("scenario", "requests", 0, "segments"), [[1, 400_000]], "segments: found 400000 tokens, allowed fewer than"),
        (("scenario", "requests", 0, "max_tokens"), 0, "scenario.requests.0.max_tokens: found 0: "),
        (("results",), {}, "results: found {}, allowed a mapping of releases"),
        (("results", "0.28.0", "same_as"), "0.28.0", "results.0.28.0.same_as: found"),
        (("results", "next"), {}, "results: found 'next', allowed releases such as 0.27.0"),
        (("results", "0.27.0", "steps", 0, "scheduled"), [["a", 0]], "results.0.27.0.steps.0.scheduled.0.2: found"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, place: tuple[Any, ...], value: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        read(written(tmp_path, changed(place, value)))


@given(place=st.sampled_from(places(TREE)), value=ANY)
def test_any_other_value_anywhere_is_a_recording_or_one_message(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[Any, ...], value: Any
) -> None:
    path = written(tmp_path_factory.mktemp("any"), changed(place, value))
    try:
        recordings = read(path)
    except InputError as error:
        assert str(path) in str(error) and "\n" not in str(error)
    else:
        for recording in recordings:
            assert compare(recording).status in ("equal", "divergent", "unsupported")


@pytest.mark.parametrize("cut", [0, 1, 3, 20, -1])
def test_half_a_file_is_said_to_be_none(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "case.json.gz"
    path.write_bytes(gzip.compress(json.dumps(TREE).encode())[:cut])
    with pytest.raises(InputError, match=re.escape(str(path))):
        read(path)


def test_a_step_that_schedules_nothing_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, TREE)
    told = CliRunner().invoke(main, ["conform", str(path), "--release", "0.27.0", "--step", "99"])
    assert (told.exit_code, "--step: found 99" in told.output) == (2, True)
    shown = CliRunner().invoke(main, ["conform", str(path), "--release", "0.27.0", "--step", "0"])
    assert (shown.exit_code, "[0, 32, 0]" in shown.output) == (0, True)
