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
OLD = "old gate"
POINTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "alone": ({"engine.max_num_batched_tokens": [1600]}, [OLD]),
    "budgets": ({"engine.max_num_batched_tokens": [2048]}, [OLD]),
    "cost": ({}, [OLD, "every boundary"]),
    "drafts": ({"engine.speculative.num_speculative_tokens": [1]}, [OLD]),
    "lengths": ({"engine.groups.1.block_size": [544], "workload.prompt.length": [1000]}, [OLD]),
    "onset": ({"workload.arrivals.clients": [5]}, [OLD, "old gate, 1600/1600"]),
}
"""One point of each table and some of its variants: where slots are poisoned, since zeros would come out of much."""


def rates(sweep: dict[str, Any], folder: Path) -> list[list[str]]:
    """Rows that the command prints of rates, one for each variant and point."""
    path = folder / "point.yaml"
    path.write_text(yaml.safe_dump(sweep, sort_keys=False))
    result = CliRunner().invoke(main, ["sweep", str(path)])
    assert result.exit_code == 0, result.output
    rows = result.stdout.partition("\n\n")[0].splitlines()[2:]
    assert len(rows) >= len(sweep["variants"])
    return [row.split() for row in rows if not row.startswith("note: ")]


def some(file: str, grid: dict[str, Any], variants: list[str]) -> dict[str, Any]:
    """A shipped sweep, of these points and variants alone."""
    sweep: dict[str, Any] = yaml.safe_load((ROOT / file).read_text())
    return {**sweep, "variants": variants} | ({"grid": grid} if grid else {})


@pytest.mark.parametrize("file", sorted(set(TABLES) - {TRACE}))
def test_a_point_of_each_table_comes_out_again(file: str, tmp_path: Path) -> None:
    found = rates(some(file, *POINTS[Path(file).stem]), tmp_path)
    assert [row for row in found if row not in TABLES[file]] == []


def test_where_the_old_gate_poisons_comes_out_again_as_two_pages_show_it(tmp_path: Path) -> None:
    found = rates(some(CONCURRENCY, {"engine.max_num_seqs": [16]}, [OLD, "fixed gate"]), tmp_path)
    assert [row[4] for row in found] == ["133", "0"]
    for page in ("README.md", "docs/sweeps.md"):
        text = (ROOT / page).read_text()
        block = re.search(
            r"^```console\n\$ stateat sweep (?:\S*/)?concurrency(?:\.yaml)? [^\n]*\n(.*?)^```$", text, re.M | re.S
        )
        assert block is not None
        shown = [line.split() for line in block[1].splitlines()]
        assert [row for row in found if row not in shown] == []


def test_another_seed_is_not_in_the_table(tmp_path: Path) -> None:
    """Negative control."""
    file = "scenarios/sweeps/onset.yaml"
    sweep = some(file, {"workload.arrivals.clients": [16]}, [OLD]) | {"seeds": "20:30"}
    (old,) = rates(sweep, tmp_path)
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
