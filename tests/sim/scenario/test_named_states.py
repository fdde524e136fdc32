"""States by name in a file: what cannot be done is one message with its place, and nothing is left out in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from stateat.sim.cli.main import main
from stateat.sim.scenario.load import load, runs

FILE = """schema: stateat/1
name: named
engine:
  preset: vllm-0.27.0
  partial_hits: false
  groups:
    - {name: attention, kind: full-attention, block_size: 16}
    - {name: gdn, kind: recurrent, block_size: 64}
  clock: steps
workload:
  requests:
    - {id: a, prompt: [[1, 200]]}
    - {id: b, prompt: [[1, 200], [2, 50]], arrive: 5}
  evict:
    - {at: 5, group: gdn, request: a, offset: 192}
variants:
  once: {}
  put back:
    workload: {place: [{at: 5, group: gdn, request: b, offset: 192}]}
  twice:
    workload:
      evict:
        - {at: 5, group: gdn, request: a, offset: 192}
        - {at: 5, group: gdn, request: a, offset: 192}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "named.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_an_eviction_of_what_is_not_there_is_one_message_with_its_line_and_exit_code_2(file: Path) -> None:
    told = CliRunner().invoke(main, ["replay", str(file), "--variant", "twice"])
    assert told.exit_code == 2
    (line,) = (line for line in told.stderr.splitlines() if line.startswith("stateat: "))
    assert line.endswith(
        "named.yaml:24: variants.twice.workload.evict[1]: found no state@192 of request 'a' in group 'gdn', allowed "
        "one that is published then (variant twice)"
    )


def test_changes_are_the_run_s_in_order_with_their_places(file: Path) -> None:
    once, back, twice = runs(load(file))
    assert [(c.time, c.places, c.group, c.request, c.offset) for c in back.changes] == [
        (5, False, 1, "a", 192),
        (5, True, 1, "b", 192),
    ]
    assert [c.where.rpartition(":")[0].rpartition(":")[2] for c in (*once.changes, *back.changes)] == ["15", "15", "19"]
    assert len(twice.changes) == 2


@pytest.mark.parametrize(("variant", "hit"), [("once", 0), ("put back", 192)])
def test_a_file_s_changes_are_made(file: Path, variant: str, hit: int) -> None:
    from stateat.sim.run.simulate import replay

    outcome = replay(load(file), only=[variant]).variants[variant]
    assert outcome.hits["b"] == hit
