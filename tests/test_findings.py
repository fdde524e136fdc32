"""What docs/findings.md shows comes out again: one point of each sweep, and what the hour of traffic comes to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from stateat.sim.cli.main import main

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "findings.md").read_text()
TABLES = {
    found[1]: [line.split() for line in found[2].splitlines()]
    for found in re.finditer(r"^```text\n\$ stateat sweep (\S+) --jobs 2[^\n]*\n(.*?)^```", PAGE, re.M | re.S)
}
TRACE = "scenarios/sweeps/mooncake.yaml"
CONCURRENCY = "scenarios/sweeps/concurrency.yaml"


def point(sweep: dict[str, Any]) -> dict[str, Any]:
    """The sweep at one point, the first of each key's values: the cheapest."""
    grid = sweep.get("grid")
    return sweep if grid is None else {**sweep, "grid": {key: v[:1] for key, v in grid.items()}}


def rates(sweep: dict[str, Any], folder: Path) -> list[list[str]]:
    """Rows that the command prints of rates, one for each variant and point."""
    path = folder / "point.yaml"
    path.write_text(yaml.safe_dump(sweep, sort_keys=False))
    result = CliRunner().invoke(main, ["sweep", str(path)])
    assert result.exit_code == 0, result.output
    rows = result.stdout.partition("\n\n")[0].splitlines()[2:]
    assert len(rows) >= len(sweep["base"]["variants"])
    return [row.split() for row in rows if not row.startswith("note: ")]


@pytest.mark.parametrize("file", sorted(set(TABLES) - {TRACE}))
def test_a_point_of_each_table_comes_out_again(file: str, tmp_path: Path) -> None:
    for row in rates(point(yaml.safe_load((ROOT / file).read_text())), tmp_path):
        assert row in TABLES[file]


def test_where_the_old_gate_poisons_comes_out_again_as_two_pages_show_it(tmp_path: Path) -> None:
    sweep = yaml.safe_load((ROOT / CONCURRENCY).read_text())
    found = rates(sweep | {"grid": {"engine.max_num_seqs": [16]}}, tmp_path)
    assert [row[4] for row in found] == ["133", "0"]
    for page in ("README.md", "docs/sweeps.md"):
        text = (ROOT / page).read_text()
        block = re.search(rf"^```console\n\$ stateat sweep {CONCURRENCY} [^\n]*\n(.*?)^```$", text, re.M | re.S)
        assert block is not None
        shown = [line.split() for line in block[1].splitlines()]
        assert [row for row in found if row not in shown] == []


def test_another_seed_is_not_in_the_table(tmp_path: Path) -> None:
    """Negative control."""
    file = "scenarios/sweeps/onset.yaml"
    sweep = yaml.safe_load((ROOT / file).read_text())
    sweep |= {"grid": {"workload.arrivals.clients": [16]}, "seeds": "20:30"}
    (old,) = [row for row in rates(sweep, tmp_path) if row[1:3] == ["old", "gate"]]
    assert old[:4] == ["16", "old", "gate", "10"] and old not in TABLES[file]


def test_the_hour_of_traffic_is_what_its_scenario_expects() -> None:
    hour = yaml.safe_load((ROOT / "scenarios" / "load" / "mooncake-conversation.yaml").read_text())
    expected = hour["variants"]["old gate"]["expect"]
    share = f"{100 * expected['tainted_requests'] / 12_031:.1f} %"
    assert f"{expected['tainted_requests']} of 12,031 requests, {share}" in PAGE
    (row,) = [line for line in TABLES[TRACE] if line[:2] == ["old", "gate"] and "%" in line]
    assert row[3] == f"{expected['poisoned']:,}" and row[-4:-2] == share.split()


def test_every_shipped_sweep_of_a_question_is_on_the_page() -> None:
    shipped = {f"scenarios/sweeps/{path.name}" for path in (ROOT / "scenarios" / "sweeps").glob("*.yaml")}
    # These two are the examples of docs/sweeps.md.
    assert shipped - set(TABLES) == {"scenarios/sweeps/concurrency.yaml", "scenarios/sweeps/budget.yaml"}
