"""`stateat list` and `stateat new`: what there is, read from the heads of files, and a file to start from."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stateat.sim.cli.main import main
from stateat.sim.report.terminal.catalog import to_markdown
from stateat.sim.scenario.catalog import entries, scenario_files
from stateat.sim.scenario.load import load

ROOT = Path(__file__).resolve().parents[3]
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
        assert not entry.wrong, entry.wrong
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


def test_what_check_refuses_is_listed_as_refused_and_not_counted(here: Path) -> None:
    """Bad YAML, a key that is wrong, and a trace that is broken: whatever `stateat check` exits with 2 for."""
    (here / "keys.yaml").write_text(SOME.replace("block_size: 8", "block_size: 8, kint: 1, blok: 2"))
    trace = "workload: {trace: {format: mooncake, path: none.jsonl}}"
    (here / "trace.yaml").write_text(SOME.replace("workload: {requests: [{id: a, prompt: [[1, 9]]}]}", trace))
    told = {Path(e.path).stem: e.state for e in entries(scenario_files([Path(".")]))}
    assert told == {
        "broken": "refused",
        "keys": "refused",
        "refused": "must be refused",
        "some": "1 expect",
        "trace": "refused",
    }
    for name, state in told.items():
        assert (run("check", f"{name}.yaml").exit_code == 2) == (state == "refused")
    listed = run("list", ".").stdout
    assert listed.endswith("\n2 scenario files, 3 refused\n")
    words = " ".join(listed.split())
    for part in ("not YAML", "unknown key (did you mean", "(and 1 more)", "found 'none.jsonl'"):
        assert part in words
    # What can be read of such a file still chooses it.
    assert run("list", ".", "--class", "M3").stdout.endswith("\n1 scenario file, 2 refused\n")


def test_a_folder_hides_nothing_that_has_the_name_of_a_scenario(here: Path) -> None:
    (here / "UPPER.YAML").write_text(SOME)
    (here / "gone.yaml").symlink_to("nowhere")
    (here / "loop.yml").symlink_to("loop.yml")
    told = {e["path"]: e["wrong"] for e in json.loads(run("list", ".", "--json").stdout)}
    assert told["UPPER.YAML"] == ""
    assert told["gone.yaml"] == "gone.yaml: no such file"
    assert told["loop.yml"] == "loop.yml: cannot be read: Too many levels of symbolic links"
    checked = run("check", ".")
    assert checked.exit_code == 2
    assert "UPPER.YAML" in checked.stdout
    assert told["gone.yaml"] in checked.stderr and told["loop.yml"] in checked.stderr


def test_a_file_that_is_named_twice_is_there_once(here: Path) -> None:
    names = [e["path"] for e in json.loads(run("list", ".", "./some.yaml", str(here / "some.yaml"), "--json").stdout)]
    assert names == ["broken.yaml", "refused.yaml", "some.yaml"]
    assert run("check", "some.yaml", "./some.yaml").stdout.count("some.yaml:") == 1


def test_what_is_no_regular_file_is_read_as_check_reads_it(here: Path) -> None:
    assert "/dev/null: the file is empty" in " ".join(run("list", "/dev/null").stdout.split())
    assert "/dev/null: the file is empty" in run("check", "/dev/null").stderr


def test_a_name_that_is_not_utf_8_is_escaped(here: Path) -> None:
    (here / os.fsdecode(b"n\xff.yaml")).write_text(SOME)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}

    def told(*args: str) -> str:
        code = "from stateat.sim.cli.main import main; main(prog_name='stateat')"
        done = subprocess.run([sys.executable, "-c", code, *args], cwd=here, env=env, capture_output=True, check=False)
        # Some of what is there is refused.
        assert done.returncode == 2, done.stderr
        return done.stdout.decode()

    assert "n\\udcff.yaml" in told("list", ".")
    assert "[n\\udcff](n\\udcff.yaml)" in told("list", ".", "--markdown")
    assert os.fsdecode(b"n\xff.yaml") in [entry["path"] for entry in json.loads(told("list", ".", "--json"))]


def test_a_trace_that_is_not_here_is_no_bad_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = "workload: {trace: {format: mooncake, path: 'shared:none.jsonl'}}"
    (here / "some.yaml").write_text(SOME.replace("workload: {requests: [{id: a, prompt: [[1, 9]]}]}", trace))
    monkeypatch.setenv("STATEAT_SHARED", str(here / "nowhere"))
    assert run("list", "some.yaml").stdout.endswith("1 scenario file\n")
    assert run("check", "some.yaml", "refused.yaml").exit_code == 0
    # Alone it is no pass either: nothing was judged.
    alone = run("check", "some.yaml")
    assert (alone.exit_code, "nothing was judged" in alone.stderr) == (2, True)
    (here / "nowhere").mkdir()
    assert run("list", "some.yaml").stdout.endswith("0 scenario files, 1 refused\n")
    assert run("check", "some.yaml").exit_code == 2


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
        (("new", "some"), "some: found 'some', allowed a name that ends in .yaml or .yml"),
        (("new", ""), "found '', allowed a name that ends in .yaml or .yml"),
        (("new", ".yaml"), "found '.yaml', allowed a name that ends in .yaml or .yml"),
        (("new", " .yaml"), "found ' .yaml', allowed a name that ends in .yaml or .yml"),
        (("new", "a\nb.yaml"), "'a b.yaml': found a control character"),
        (("new", "a\x1b[31m.yaml"), "found a control character, allowed a name without"),
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


@pytest.mark.parametrize("name", ["plain.yml", "two words.yaml", "it's $HOME.yaml"])
def test_the_next_command_that_is_named_is_one_that_a_shell_runs(here: Path, name: str) -> None:
    told = run("new", name)
    _, _, command = told.stderr.rstrip("\n").partition("next: ")
    assert shlex.split(command) == ["stateat", "replay", name]
    assert run(*shlex.split(command)[1:]).exit_code == 0
