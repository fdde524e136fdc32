"""Several engines on the command line: a column and a test case for each, and what the exit code says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from click.testing import CliRunner, Result
from fake_engines import SCENARIO, behave, checkout

from stateat.sim.adapters.vllm import install
from stateat.sim.cli.main import main
from stateat.sim.errors import InputError

BAD_RULE = {"rules": {"split": "builtins:repr"}}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a checkout for each way to behave, and a scenario."""
    monkeypatch.chdir(tmp_path)
    behave(monkeypatch)
    for how in ("good", "poison", "crash", "no-start", "unsupported"):
        checkout(tmp_path / how, "" if how == "good" else how)
    checkout(tmp_path / "other")
    (tmp_path / "old").mkdir()
    write(tmp_path / "s.yaml")
    return tmp_path


def write(file: Path, **more: Any) -> None:
    file.write_text(yaml.safe_dump({**SCENARIO, **more}))


def run(*args: str) -> Result:
    result = CliRunner().invoke(main, list(args), prog_name="stateat")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def on(*names: str) -> list[str]:
    return [part for name in names for part in ("--engine", name if name == "reference" else f"vllm:./{name}")]


def cases(file: Path) -> dict[str, str]:
    """What each test case came to."""
    return {
        str(case.get("name")): next((child.tag for child in case if child.tag != "system-out"), "passed")
        for case in ET.parse(file).getroot().iter("testcase")
    }


@pytest.mark.parametrize(
    ("engines", "code", "came"),
    [
        (("good", "other"), 0, {"good": "passed", "other": "passed"}),
        (("poison", "good"), 1, {"poison": "failure", "good": "passed"}),
        (("good", "poison"), 1, {"good": "passed", "poison": "failure"}),
        (("good", "unsupported"), 0, {"good": "passed", "unsupported": "skipped"}),
        (("crash", "good", "poison"), 2, {"crash": "error", "good": "passed", "poison": "failure"}),
        (("no-start", "poison"), 2, {"no-start": "error", "poison": "failure"}),
        (("no-start",), 2, {"no-start": "error"}),
        (("unsupported",), 2, {"unsupported": "skipped"}),
        (("old", "good"), 0, {"old": "passed", "good": "passed"}),
    ],
)
def test_check_has_a_case_for_each_engine_and_exits_for_the_worst(
    here: Path, engines: Sequence[str], code: int, came: dict[str, str]
) -> None:
    if "old" in engines:
        checkout(here / "old")
    told = run("check", "s.yaml", *on(*engines), "--junit", "r.xml", "--json", "r.json")
    assert told.exit_code == code, told.output
    assert cases(here / "r.xml") == {f"vllm-0.27.0@vllm:{name}": what for name, what in came.items()}
    tree = json.loads((here / "r.json").read_text())
    assert [*tree["variants"], *(each["variant"] for each in tree["not_run"])] == sorted(
        cases(here / "r.xml"), key=lambda name: came[name.rpartition(":")[2]] in ("error", "skipped")
    )


def test_a_replay_keeps_what_ran_and_marks_what_did_not(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEAT_ALLOW_CODE", "1")
    write(here / "v.yaml", variants={"a": {}, "b": BAD_RULE, "c": {}})
    told = run("replay", "v.yaml", "--json", "o.json", "--log", "o.jsonl", "--plot", "o.svg", "--perfetto", "p.json")
    assert told.exit_code == 2
    tree = json.loads((here / "o.json").read_text())
    assert (list(tree["variants"]), [each["variant"] for each in tree["not_run"]]) == (["a", "c"], ["b"])
    assert "not run" in told.stdout and "could not be run  b: one-request, variant b: rule split=" in told.stdout
    # Nothing of the run that broke is in the log.
    audited = run("audit", "o.jsonl", "--json", "-")
    assert list(json.loads(audited.stdout)["variants"]) == ["a", "c"]
    told = run("check", "v.yaml", "--junit", "r.xml")
    assert (told.exit_code, cases(here / "r.xml")) == (2, {"a": "passed", "c": "passed", "b": "error"})
    assert told.stdout.startswith("ERR  v.yaml: ")


def test_a_replay_exits_with_2_for_what_an_engine_has_not(here: Path) -> None:
    told = run("replay", "s.yaml", *on("unsupported", "good"), "--json", "o.json")
    assert told.exit_code == 2
    assert "skipped  vllm-0.27.0@vllm:unsupported: vllm:unsupported cannot run this: it has no retention" in told.stdout
    assert list(json.loads((here / "o.json").read_text())["variants"]) == ["vllm-0.27.0@vllm:good"]


def test_where_nothing_ran_a_replay_writes_nothing(here: Path) -> None:
    told = run("replay", "s.yaml", *on("no-start", "unsupported"), "--json", "o.json")
    assert (told.exit_code, told.stdout, (here / "o.json").exists()) == (2, "", False)
    assert "vllm:no-start" in told.stderr and "vllm:unsupported" in told.stderr


def test_a_file_of_which_nothing_ran_does_not_keep_a_replay_from_the_others(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATEAT_ALLOW_CODE", "1")
    write(here / "bad.yaml", name="bad", variants={"v": BAD_RULE})
    told = run("replay", "bad.yaml", "s.yaml", "--json", "o.json")
    first, second = json.loads((here / "o.json").read_text())
    assert told.exit_code == 2
    assert (list(first["variants"]), [each["variant"] for each in first["not_run"]]) == ([], ["v"])
    assert (list(second["variants"]), second["not_run"]) == (["vllm-0.27.0"], [])
    assert "could not be run  v: bad, variant v: rule split=builtins:repr" in told.stdout


@pytest.mark.parametrize(
    ("engine", "more", "code"),
    [
        ("good", (), 0),
        ("poison", (), 1),
        ("no-start", (), 125),
        ("crash", (), 125),
        ("unsupported", (), 125),
        ("old", (), 125),
        ("missing", (), 128),
        ("good", ("none.yaml",), 128),
        ("good", ("bad.yaml",), 128),
        ("poison", ("bad.yaml",), 1),
        ("poison", ("--baseline", "vllm:./poison"), 0),
        ("poison", ("--baseline", "vllm:./good"), 1),
        ("good", ("--baseline", "vllm:./no-start"), 128),
        ("poison", ("--baseline", "vllm:./no-start"), 128),
        ("good", ("ruled.yaml",), 0),
    ],
)
def test_git_bisect_is_told_good_bad_skip_or_give_up(here: Path, engine: str, more: Sequence[str], code: int) -> None:
    (here / "bad.yaml").write_text("schema: stateat/1\n")
    write(here / "ruled.yaml", variants={"v": {"rules": {"split": "unguarded"}}})
    assert run("check", "s.yaml", *more, *on(engine), "--bisect").exit_code == code


@pytest.mark.parametrize(
    "usage",
    [
        ("--frob",),
        ("--junit",),
        ("--device",),
        ("--state-dtype", "x"),
        ("--state", "x"),
        ("--engine", "frob"),
        ("--baseline", "frob"),
        ("--junit", "nowhere/r.xml"),
        ("--bisect=x",),
    ],
)
def test_what_is_no_commits_fault_makes_git_bisect_give_up(here: Path, usage: Sequence[str]) -> None:
    for more in ((), ("s.yaml", *on("poison"))):
        told = run("check", *more, "--bisect", *usage)
        assert (told.exit_code, told.stdout) == (128, "") and told.stderr
    assert run("check", "s.yaml", *(each.replace("bisect", "frob") for each in usage)).exit_code == 2


def test_a_fault_of_our_own_is_no_bad_commit(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("stateat.sim.scenario.catalog.scenario_files", broken)
    told = run("check", "s.yaml", *on("good"), "--bisect")
    assert (told.exit_code, told.stdout) == (128, "") and "RuntimeError: a fault of ours" in told.stderr
    with pytest.raises(RuntimeError):
        CliRunner().invoke(main, ["check", "s.yaml"], catch_exceptions=False)


def test_a_baseline_that_does_not_run_makes_git_bisect_give_up_by_either_name(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(release: str, cache: Path) -> install.Source:
        raise InputError(f"vLLM {release} is not installed")

    monkeypatch.setattr(install, "of_release", missing)
    for baseline in ("vllm", "vllm:0.27.0"):
        assert run("check", "s.yaml", *on("good"), "--baseline", baseline, "--bisect").exit_code == 128


def test_a_crash_of_an_engine_that_is_its_own_baseline_is_skipped(here: Path) -> None:
    command = ("check", "s.yaml", *on("crash"), "--baseline", "vllm:./crash")
    assert run(*command, "--bisect").exit_code == 125
    told = run(*command)
    assert told.exit_code == 2 and "nothing was judged" in told.stderr


def test_a_crash_is_told_without_more_words(here: Path) -> None:
    told = run("check", "s.yaml", *on("crash"))
    assert told.exit_code == 2 and "nothing was judged" not in told.stderr


def test_what_is_as_expected_names_its_engines(here: Path) -> None:
    first = run("check", "s.yaml", *on("good", "reference", "other")).stdout.splitlines()[0]
    assert first.startswith("ok   s.yaml: ") and " (on vllm:good, vllm:other, " in first
    assert "(on " not in run("check", "s.yaml").stdout


def test_a_file_of_which_nothing_can_be_judged_is_no_good_commit(here: Path) -> None:
    write(here / "ruled.yaml", variants={"v": {"rules": {"split": "unguarded"}}})
    assert run("check", "ruled.yaml", *on("good"), "--bisect").exit_code == 125


def test_against_a_baseline_only_what_is_new_fails(here: Path) -> None:
    told = run("check", "s.yaml", *on("poison"), "--baseline", "vllm:./poison", "--junit", "r.xml")
    assert told.exit_code == 0
    assert told.stdout.splitlines()[0].startswith(
        "ok   s.yaml: nothing new against the baseline vllm:poison; also in the baseline: 1 ("
    )
    assert "also in the baseline  vllm-0.27.0@vllm:poison: findings" in told.stdout
    assert cases(here / "r.xml") == {"vllm-0.27.0@vllm:poison": "passed"}
    assert "also in the baseline" in (here / "r.xml").read_text()
    told = run("check", "s.yaml", *on("poison", "good"), "--baseline", "vllm:0.27.0", "--junit", "r.xml")
    assert told.exit_code == 1
    assert "new against the baseline  vllm-0.27.0@vllm:poison: findings" in told.stdout
    assert cases(here / "r.xml") == {"vllm-0.27.0@vllm:poison": "failure", "vllm-0.27.0@vllm:good": "passed"}


def test_a_baseline_alone_is_refused(here: Path) -> None:
    told = run("check", "s.yaml", "--baseline", "vllm:0.27.0")
    assert (told.exit_code, told.stdout) == (2, "") and "--baseline: found no --engine" in told.stderr


def test_the_sum_of_a_check_counts_what_was_skipped(here: Path) -> None:
    tier = {**SCENARIO["engine"], "offload": {"blocks": 4}}
    write(here / "tier.yaml", name="tier", engine=tier)
    write(here / "both.yaml", name="both", variants={"a": {}, "b": {"engine": {"offload": {"blocks": 4}}}})
    told = run("check", "s.yaml", "tier.yaml", "both.yaml", *on("good"), "--junit", "r.xml")
    assert told.stdout.splitlines()[-1] == (
        "3 files: 0 as expected, 0 failed, 1 skipped, 2 compared with nothing; within them 1 run skipped"
    )
    assert told.exit_code == 0
    assert [line.split()[:2] for line in told.stdout.splitlines() if line.startswith(("ok", "skip "))] == [
        ["ok", "s.yaml:"],
        ["skip", "tier.yaml:"],
        ["ok", "both.yaml:"],
    ]
    root = ET.parse(here / "r.xml").getroot()
    assert [[child.tag for child in case] for case in root.iter("testcase")] == [[], ["skipped"], [], ["skipped"]]


def test_folders_of_one_name_are_told_apart_and_one_folder_twice_is_refused(here: Path) -> None:
    for folder in ("a", "b"):
        checkout(here / folder / "vllm", "poison" if folder == "a" else "")
    told = run("check", "s.yaml", "--engine", "vllm:./a/vllm", "--engine", "vllm:./b/vllm", "--junit", "r.xml")
    assert told.exit_code == 1
    assert cases(here / "r.xml") == {"vllm-0.27.0@vllm:a/vllm": "failure", "vllm-0.27.0@vllm:b/vllm": "passed"}
    told = run("check", "s.yaml", "--engine", "vllm:./good", "--engine", "vllm:good/")
    assert told.exit_code == 2 and "--engine vllm:good/: the same as --engine vllm:./good" in told.stderr
