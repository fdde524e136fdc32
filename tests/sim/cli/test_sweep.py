"""``stateat sweep``: what it prints, how it ends, and where."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import small_sweep
import yaml
from click.testing import CliRunner, Result

from stateat.sim.cli.main import main
from stateat.sim.errors import InputError
from stateat.sim.report import plots
from stateat.sim.report.terminal.sweep import short
from stateat.sim.sweeps.stats import PER

ROOT = Path(__file__).resolve().parents[3]
SWEEPS = sorted((ROOT / "scenarios" / "sweeps").glob("*.yaml"))


def invoke(folder: Path, *arguments: str, **changes: Any) -> Result:
    file = folder / "sweep.yaml"
    file.write_text(yaml.safe_dump(small_sweep.sweep(**changes), sort_keys=False))
    return CliRunner().invoke(main, ["sweep", str(file), *arguments])


def test_a_line_for_each_point_and_variant_on_stdout_and_progress_on_stderr(tmp_path: Path) -> None:
    result = invoke(tmp_path, seeds="3:8")
    assert result.exit_code == 0, result.output
    rates, costs = result.stdout.split("\n\n")
    head, *lines = rates.splitlines()[1:]
    assert head.split()[:2] == ["max_num_batched_tokens", "variant"]
    assert head.split()[2:6] == ["runs", "poisoned", "of", "claims"] and head.endswith("requests  hit rate")
    assert [line.split()[:3] for line in lines] == [
        ["400", "old", "5"], ["400", "new", "5"], ["800", "old", "5"], ["800", "new", "5"],
    ]  # fmt: skip
    head, line = costs.splitlines()
    assert head.split() == ["against", "old", "pairs", "hit_rate", "ttft_p50_us", "steps", "deferred"]
    assert line.split()[:2] == ["new", "10"] and line.count("[") == 4
    assert "small: 20 runs (2 points, 5 seeds, 2 variants and cases)" in result.stderr
    assert "nothing is kept without --out" in result.stderr


def test_times_in_steps_are_called_so_and_few_pairs_have_no_interval(tmp_path: Path) -> None:
    base = small_sweep.base()
    base["engine"]["clock"] = "steps"
    base["workload"]["arrivals"]["rate"] = 1
    head, line = invoke(tmp_path, base=base).stdout.split("\n\n")[1].splitlines()
    assert head.split() == ["against", "old", "pairs", "hit_rate", "ttft_p50", "(steps)", "steps", "deferred"]
    assert "[" not in line


def test_points_that_change_nothing_are_no_new_pairs(tmp_path: Path) -> None:
    one = invoke(tmp_path, grid=None, seeds="3:8").stdout.split("\n\n")[1]
    many = invoke(tmp_path, grid={"engine.num_blocks": [4000, 5000, 6000, 7000]}, seeds="3:8").stdout.split("\n\n")[1]
    assert many == one and one.split()[7:9] == ["new", "5"]


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        (["engine.groups.0.block_size", "engine.groups.1.block_size"], ["0.block_size", "1.block_size"]),
        (["engine.max_num_seqs", "workload.count"], ["max_num_seqs", "count"]),
        (
            ["variants.a.engine.watermark", "variants.b.engine.watermark", "x"],
            ["a.engine.watermark", "b.engine.watermark", "x"],
        ),
        (["rules", "variants.a.rules"], ["rules", "a.rules"]),
    ],
)
def test_a_column_is_headed_by_as_much_of_its_key_as_tells_it_apart(keys: list[str], shown: list[str]) -> None:
    assert short(keys) == shown


def test_what_was_poisoned_in_runs_without_hits_is_told(tmp_path: Path) -> None:
    """Nobody reads a cache that each request fills anew; what it holds may be wrong all the same."""
    workload = {**small_sweep.BASE["workload"], "prefixes": {"kind": "none"}}
    result = invoke(
        tmp_path, base=small_sweep.base(workload=workload), grid={"engine.max_num_batched_tokens": [400]}, seeds=[1]
    )
    table = json.loads(
        invoke(
            tmp_path,
            "--json",
            "-",
            base=small_sweep.base(workload=workload),
            grid={"engine.max_num_batched_tokens": [400]},
            seeds=[1],
        ).stdout
    )
    (old, new) = table["rates"]["claim"]
    assert old["wrong_without_hits"] > 0 == new["wrong_without_hits"]
    count = old["wrong_without_hits"]
    assert [line.split()[:6] for line in result.stdout.splitlines() if line.startswith("400")] == [
        ["400", "old", "1", "no", "hits,", str(count)], ["400", "new", "1", "no", "hits", "no"],
    ]  # fmt: skip
    assert (
        f"2 runs without hits are left out of the rates; {count} poisoned slots in them, which nobody" in result.stdout
    )


def test_a_narrow_terminal_cuts_no_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = invoke(tmp_path).stdout
    monkeypatch.setenv("COLUMNS", "30")
    assert invoke(tmp_path).stdout == wide
    assert "…" not in wide


def test_the_file_and_json_say_the_same(tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    result = invoke(tmp_path, "--out", str(out), "--json", "-")
    told = json.loads(result.stdout)
    assert list(told) == ["sweep", "rows", "differences", "rates"] and list(told["rates"]) == list(PER)
    table = pd.read_parquet(out)
    assert [row["digest"] for row in told["rows"]] == table["digest"].tolist()
    assert sum(row["wrong"] for row in told["rates"]["claim"]) == table["poisoned"].sum()
    # The table goes to stderr then.
    assert "hit rate" in result.stderr


def test_a_finished_sweep_is_not_run_again(tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    first = invoke(tmp_path, "--out", str(out))
    again = invoke(tmp_path, "--out", str(out))
    assert "8 of 8 runs are there" in again.stderr and again.stdout == first.stdout
    other = invoke(tmp_path, "--out", str(out), seeds=[9])
    assert other.exit_code == 2 and "--restart" in other.stderr
    assert invoke(tmp_path, "--out", str(out), "--restart", seeds=[9]).exit_code == 0


def test_without_hits_there_is_no_conclusion(tmp_path: Path) -> None:
    workload = {**small_sweep.BASE["workload"], "prompt": {"kind": "fixed", "length": 100}}
    result = invoke(tmp_path, base=small_sweep.base(workload=workload), grid=None)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()[2:]]
    assert lines == [[v, "2", "no", "hits", "no", "conclusion"] for v in ("old", "new")]


def test_some_runs_without_hits_and_seeds_that_change_nothing_are_told(tmp_path: Path) -> None:
    some = invoke(tmp_path, grid={"engine.enable_prefix_caching": [True, False]})
    assert "no hits" in some.stdout and "4 runs without hits are left out of the rates" in some.stdout
    inline = {"requests": [{"id": n, "arrive": t, "prompt": [[1, 400]]} for t, n in enumerate("ab")]}
    same = invoke(tmp_path, base=small_sweep.base(workload=inline), grid=None, seeds="0:10")
    assert "where the seeds change nothing they count as one run (18 repeats)" in same.stdout


def test_a_failed_run_is_told_and_the_exit_code_is_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_rule.py").write_text(
        "class Raise:\n    def __call__(self, chunk):\n        raise RuntimeError('no' * 400)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    variants = {"old": {}, "odd": {"rules": {"split": "failing_rule:Raise"}}}
    result = invoke(tmp_path, "--allow-code", base=small_sweep.base(variants=variants))
    sys.modules.pop("failing_rule", None)
    assert result.exit_code == 1
    assert "every run failed" in result.stdout
    (told,) = [line for line in result.stdout.splitlines() if "failed (first: run 1)" in line]
    assert "RuntimeError: nono" in told and len(told) < 400


def test_a_million_runs_ask_first(tmp_path: Path) -> None:
    grid = {"engine.num_blocks": list(range(4000, 4500)), "workload.count": list(range(1, 501))}
    result = invoke(tmp_path, grid=grid)
    assert result.exit_code == 2
    assert "1,000,000 runs" in result.stderr and "unless you say --yes" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "t.xlsx"], "--out t.xlsx: found '.xlsx', allowed: .parquet, .csv"),
        (["--jobs", "0"], "0 is not in the range x>=1"),
        (["--backend", "spark"], "--backend: found 'spark', allowed loky, dask, ray"),
        (["--variant", "nobody"], "variant: found 'nobody', allowed old, new"),
    ],
)
def test_bad_usage_is_one_message(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = invoke(tmp_path, *arguments)
    assert result.exit_code == 2 and message in result.stderr
    assert "Traceback" not in result.output


def test_the_table_is_never_the_sweep_itself(tmp_path: Path) -> None:
    file = tmp_path / "sweep.csv"
    file.write_text(yaml.safe_dump(small_sweep.sweep(), sort_keys=False))
    before = file.read_text()
    result = CliRunner().invoke(main, ["sweep", str(file), "--out", str(file)])
    assert result.exit_code == 2 and "that is the input" in result.stderr
    assert file.read_text() == before


def test_the_json_is_never_the_journal(tmp_path: Path) -> None:
    out, journal = tmp_path / "t.csv", tmp_path / "t.csv.runs.jsonl"
    result = invoke(tmp_path, "--out", str(out), "--json", str(journal))
    assert result.exit_code == 2
    assert f"--json {journal}: that is the journal of --out {journal} too" in result.stderr


def test_where_there_is_nothing_to_draw_the_table_and_the_json_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise ValueError("x")

    monkeypatch.setattr("stateat.sim.run.simulate.simulate", breaks)
    files = [str(tmp_path / name) for name in ("p.png", "p.json", "p.csv")]
    result = invoke(tmp_path, "--plot", files[0], "--json", files[1], "--out", files[2])
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        2,
        "stateat: nothing to draw: of 8 runs none came to an end",
    )
    assert {path.name for path in tmp_path.iterdir()} >= {"p.json", "p.csv", "p.csv.runs.jsonl"}
    assert not (tmp_path / "p.png").exists()
    assert result.stdout.startswith("small")


def test_folders_of_scenarios_may_hold_sweeps(tmp_path: Path) -> None:
    assert SWEEPS
    for line in (["list", str(ROOT / "scenarios" / "sweeps")], ["check", str(ROOT / "scenarios" / "sweeps")]):
        assert "no scenario files" in CliRunner().invoke(main, line).stderr
    result = CliRunner().invoke(main, ["replay", str(SWEEPS[0])])
    assert result.exit_code == 2 and f"to run it: stateat sweep {SWEEPS[0]}" in result.stderr


def test_a_picture_is_written_and_what_cannot_be_drawn_is_refused_before_anything_runs(tmp_path: Path) -> None:
    done = invoke(tmp_path, "--plot", str(tmp_path / "p.png"))
    assert done.exit_code == 0 and (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    keys = {"engine.max_num_batched_tokens": [400, 800], "engine.max_num_seqs": [1, 2], "workload.count": [8, 9]}
    for path, grid, said in (
        ("p.jpg", None, "found '.jpg', allowed: .png, .svg, .pdf"),
        ("q.png", {**keys, "engine.num_blocks": [1000, 2000]}, "swept keys"),
    ):
        refused = invoke(tmp_path, "--plot", str(tmp_path / path), **({} if grid is None else {"grid": grid}))
        assert refused.exit_code == 2 and said in refused.stderr and not refused.stdout
        assert not (tmp_path / path).exists()


def test_a_fault_of_the_picture_costs_neither_table_nor_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: Any) -> None:
        raise InputError("no ink")

    monkeypatch.setattr(plots, "sweep_picture", faulty)
    result = invoke(tmp_path, "--plot", str(tmp_path / "p.png"), "--json", str(tmp_path / "t.json"), grid=None)
    assert result.exit_code == 2 and "no ink" in result.stderr
    assert "hit rate" in result.stdout and len(json.loads((tmp_path / "t.json").read_text())["rows"]) == 4
    assert not (tmp_path / "p.png").exists()


def test_null_among_the_values_of_a_key_is_drawn_too(tmp_path: Path) -> None:
    grid = {"workload.prefixes": [None, {"kind": "repeat", "distinct": 3}]}
    result = invoke(tmp_path, "--plot", str(tmp_path / "p.svg"), grid=grid, seeds=[1])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "p.svg").exists()


def test_more_series_than_can_be_told_apart_are_refused_before_anything_runs(tmp_path: Path) -> None:
    variants = {f"v{i}": {"preset": "vllm-0.27.0"} for i in range(25)}
    result = invoke(tmp_path, "--plot", str(tmp_path / "p.png"), base=small_sweep.base(variants=variants))
    assert result.exit_code == 2 and "found 25 series (variants and cases), allowed at most 24" in result.stderr
    assert not result.stdout
