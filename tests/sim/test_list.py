"""`stateat list` and `stateat new`: what there is, read from the heads of files, and a file to start from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim.catalog import entries, scenario_files
from sim.cli import main
from sim.report.catalog import to_markdown
from sim.scenario import load

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "scenarios"
SOME = """\
schema: stateat/1
name: some
title: One | two
source: vLLM PR 54076
mechanism: [M3]
engine: {groups: [{name: gdn, kind: recurrent, block_size: 8}]}
workload: {requests: [{id: a, prompt: [[1, 9]]}]}
variants: {one: {expect: {claims: 1}}, two: {}}
cases: {x: {}, y: {}, z: {}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.yaml").write_text(SOME)
    (tmp_path / "broken.yaml").write_text("schema: [")
    (tmp_path / "refused.yaml").write_text("# expect: not YAML\nschema: [")
    return tmp_path


def run(*args: str) -> Result:
    result = CliRunner().invoke(main, list(args), prog_name="stateat", env={"COLUMNS": "80"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def test_the_page_of_the_scenarios_is_what_the_files_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make catalog` writes it."""
    monkeypatch.chdir(ROOT)
    folder = Path("scenarios")
    assert (folder / "README.md").read_text(encoding="utf-8") == to_markdown(entries(scenario_files([folder])), folder)


def test_every_file_that_runs_has_a_title_a_source_and_expectations() -> None:
    for entry in entries(scenario_files([SCENARIOS])):
        assert not entry.unreadable, entry.unreadable
        assert entry.refused or (entry.title and (entry.source or "load" in entry.path)), entry.path
        assert entry.refused or entry.state == "all expect", entry.path


def test_a_file_says_what_it_is_without_being_run() -> None:
    result = run("list", "some.yaml")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "some.yaml  M3  2 variants × 3 cases  1 expect",
        "    One | two",
        "    vLLM PR 54076",
        "1 scenario file",
    ]


def test_a_file_that_cannot_be_read_is_listed_as_such() -> None:
    told = {Path(e.path).name: e.state for e in entries(scenario_files([Path(".")]))}
    assert told == {"broken.yaml": "unreadable", "refused.yaml": "must be refused", "some.yaml": "1 expect"}
    assert "not YAML" in run("list", "broken.yaml").stdout


@pytest.mark.parametrize(
    ("args", "names"),
    [
        ((), ["broken", "refused", "some"]),
        (("--class", "M3"), ["some"]),
        (("--class", "M4"), []),
        (("--class", "M4", "--class", "M3"), ["some"]),
        (("--source", "54076"), ["some"]),
        (("--source", "vllm pr"), ["some"]),
        (("--class", "M3", "--source", "51113"), []),
    ],
)
def test_classes_and_sources_choose(args: tuple[str, ...], names: list[str]) -> None:
    told = json.loads(run("list", ".", "--json", *args).stdout)
    assert [Path(entry["path"]).stem for entry in told] == names


def test_the_page_breaks_no_cell_and_links_each_file() -> None:
    page = run("list", ".", "--markdown").stdout
    assert "| [some](some.yaml) | One \\| two | vLLM PR 54076 | M3 | 2 variants × 3 cases | 1 expect |" in page


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("list", "none"), "none: no such file"),
        (("list", ".", "--class", "poison"), "--class: found 'poison', allowed M1, M2, M3"),
        (("list", ".", "--json", "--markdown"), "name one of them"),
        (("list", "some.yaml", "--markdown"), "takes one folder"),
        (("new", "some.yaml"), "some.yaml: it is there already"),
        (("new", "some"), "allowed a name that ends in .yaml"),
        (("new", "none/some.yaml"), "there is no folder none"),
    ],
)
def test_bad_usage_is_one_message(args: tuple[str, ...], message: str, here: Path) -> None:
    before = {path.name: path.read_text() for path in here.iterdir()}
    result = run(*args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout
    assert {path.name: path.read_text() for path in here.iterdir()} == before


def test_a_new_file_comes_to_what_it_expects_and_fails_when_its_variants_are_swapped(here: Path) -> None:
    assert run("new", "a b: c.yaml").exit_code == 0
    assert load(here / "a b: c.yaml").name == "a b: c"
    assert run("check", "a b: c.yaml").exit_code == 0
    for split in ("prefill-end", "last-cache-position"):
        assert run("replay", "a b: c.yaml", "--rule", f"split={split}").exit_code == 1
