"""Standard streams that are closed, full or read by nobody: no command makes a verdict of them or loses its files."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from forked import Codes

CLEAN = """\
schema: stateat/1
name: clean
engine:
  groups: [{name: attention, kind: full-attention, block_size: 16}, {name: gdn, kind: recurrent, block_size: 64}]
workload:
  requests: [{id: a, prompt: [[1, 200]]}, {id: b, prompt: [[1, 200]], after: a}]
"""
POISONED = """\
schema: stateat/1
name: poisoned
engine:
  preset: vllm-0.26.0
  groups:
    - {name: attention, kind: full-attention, block_size: 16, eagle: true}
    - {name: gdn, kind: recurrent, block_size: 1600}
  speculative: {method: mtp, num_speculative_tokens: 3, accepted_drafts: [3]}
workload: {budgets: [364, 2002], requests: [{id: a, prompt: [[1, 2002]]}]}
"""
SWEEP = "schema: stateat-sweep/1\nname: small\nbase: clean.yaml\ngrid: {engine.max_num_batched_tokens: [64, 128]}\n"
PEOPLE: dict[str, tuple[str, ...]] = {
    "replay": ("replay", "clean.yaml"),
    "check": ("check", "clean.yaml"),
    "explain": ("explain", "clean.yaml", "--no-remedy"),
    "audit": ("audit", "clean.jsonl"),
    "sweep": ("sweep", "sweep.yaml"),
    "geometry": ("geometry", "--model", "qwen3.6-27b"),
    "list": ("list", "clean.yaml"),
    "conform": ("conform", "recording.json.gz"),
    "vllm list": ("vllm", "list"),
    "help": ("--help",),
    "version": ("--version",),
}
"""What prints for people."""
MACHINES = {
    **{name: (*PEOPLE[name], "--json", "-") for name in ("replay", "check", "explain", "audit", "sweep", "geometry")},
    "list": ("list", "clean.yaml", "--json"),
    "conform": ("conform", "recording.json.gz", "--json", "-"),
    "vllm list": ("vllm", "list", "--json"),
    "schema": ("schema",),
}
"""What prints for machines."""
WORST = ("closed", "full", "broken")


@dataclass(frozen=True, slots=True)
class Here:
    """A folder with files, and what runs commands in it."""

    folder: Path
    forked: Codes

    def codes(self, cells: list[dict[str, Any]]) -> list[int]:
        """The exit codes of commands."""
        given = {"folder": str(self.folder), "env": {"XDG_CACHE_HOME": str(self.folder / "cache")}}
        return self.forked([cell | given for cell in cells])


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, forked: Codes) -> Here:
    folder = tmp_path_factory.mktemp("streams")
    for name, text in (("clean", CLEAN), ("poisoned", POISONED), ("sweep", SWEEP)):
        (folder / f"{name}.yaml").write_text(text)
    request = {"id": "a", "arrival_step": 0, "segments": [[1, 9]], "max_tokens": 1}
    recording = {
        "format": "engine-golden/1",
        "scenario": {"config": {}, "requests": [request]},
        "results": {"0.27.0": {"status": "unsupported"}},
    }
    (folder / "recording.json.gz").write_bytes(gzip.compress(json.dumps(recording).encode()))
    found = Here(folder, forked)
    assert found.codes([cell(("replay", "clean.yaml", "--log", "clean.jsonl"))]) == [0]
    return found


def cell(args: tuple[str, ...], **streams: str) -> dict[str, Any]:
    """A command; streams that are not named go to a file."""
    given = {"stdin": "0", "stdout": "1", "stderr": "2"}
    plain = {"1": "out.txt", "2": "err.txt"}
    return {"args": args, "streams": plain | {given[name]: how for name, how in streams.items()}}


def test_standard_error_and_input_change_no_exit_code_and_no_output(here: Here) -> None:
    """Every command, for people and for machines; a poisoned file says so still."""
    poisoned = (("replay", "poisoned.yaml"), ("check", "poisoned.yaml"))
    commands = [*PEOPLE.values(), *MACHINES.values()]
    cells = [cell(args, stderr=how) for args, how in product(commands, WORST)]
    cells += [cell(args, stdin="closed") for args in PEOPLE.values()]
    cells += [cell(args, stderr=how) for args, how in product(poisoned, WORST)]
    expected = [0] * (len(cells) - 6) + [1] * 6
    found = here.codes(cells)
    assert [(c, code) for c, code, right in zip(cells, found, expected, strict=True) if code != right] == []


def test_what_people_read_is_dropped_where_nobody_does_and_missed_where_the_disk_is_full(here: Here) -> None:
    cells = [cell(args, stdout=how) for args, how in product(PEOPLE.values(), WORST)]
    found = here.codes(cells)
    assert [(c, code) for c, code in zip(cells, found, strict=True) if code != 2 * ("full" in c["streams"]["1"])] == []


def test_what_a_machine_reads_arrives_or_is_exit_code_2(here: Here) -> None:
    cells = [cell(args, stdout=how) for args, how in product(MACHINES.values(), WORST)]
    assert set(here.codes(cells)) == {2}


def test_the_doctor_is_no_exception(here: Here) -> None:
    """It takes a second of its own."""
    streams = ({"stderr": "closed"}, {"stdout": "full"})
    assert here.codes([cell(("doctor", "--json"), **how) for how in streams]) == [0, 2]


def test_the_message_names_the_stream_and_is_one_line(here: Here) -> None:
    for how, said in (("full", "No space left on device"), ("closed", "closed"), ("broken", "Broken pipe")):
        assert here.codes([cell(("schema",), stdout=how)]) == [2]
        assert (here.folder / "err.txt").read_text() == f"stateat: standard output: {said}\n"
    assert here.codes([cell(("replay", "clean.yaml"), stdout="full")]) == [2]
    assert (here.folder / "err.txt").read_text().splitlines()[-1] == "stateat: standard output: No space left on device"


def test_files_are_written_whole_whatever_the_streams_are(here: Here) -> None:
    """Their numbers are not those of closed streams, into which something is printed."""
    outputs = ("--json", "o.json", "--log", "o.jsonl", "--perfetto", "o.trace")
    said = []
    for streams in (
        {},
        {"stdin": "closed", "stdout": "closed", "stderr": "closed"},
        {"stdout": "broken", "stderr": "full"},
    ):
        assert here.codes([cell(("replay", "clean.yaml", *outputs), **streams)]) == [0]
        said.append([(here.folder / name).read_bytes() for name in outputs[1::2]])
    assert said[0] == said[1] == said[2]


def test_output_for_people_is_the_same_with_standard_error_closed(here: Here) -> None:
    texts = []
    for streams in ({}, {"stderr": "closed"}):
        assert here.codes([cell(("replay", "clean.yaml"), **streams)]) == [0]
        texts.append((here.folder / "out.txt").read_text())
    assert texts[0] == texts[1] and "nothing poisoned" in texts[0]
