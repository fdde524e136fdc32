"""Checkouts of one release as engines beside each other, and under git bisect. Not part of ``make test``."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from click.testing import CliRunner
from fake_engines import git

import stateat
from stateat.sim.adapters.vllm import install
from stateat.sim.cli.main import main

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
RELEASE = "0.27.0"
ANATOMY: dict[str, Any] = {
    "schema": "stateat/1",
    "name": "anatomy",
    "engine": {
        "preset": "vllm-0.27.0",
        "groups": [
            {"name": "attention", "kind": "full-attention", "block_size": 16, "eagle": True},
            {"name": "gdn", "kind": "recurrent", "block_size": 1600},
        ],
        "speculative": {"method": "mtp", "num_speculative_tokens": 3},
        "clock": "steps",
    },
    "workload": {
        "budgets": [364, 2002],
        "requests": [{"id": "a", "prompt": [[1, 2002]]}, {"id": "b", "prompt": [[1, 2002]], "after": "a"}],
    },
}
"""Poisoned where the split keeps to no grid."""


def turn_split_off(folder: Path) -> None:
    file = folder / install.SCHEDULER
    lines = file.read_text().splitlines(keepends=True)
    (at,) = [i for i, line in enumerate(lines) if line.startswith("        prefill_end = max(")]
    file.write_text("".join([*lines[:at], "        prefill_end = 0\n", *lines[at + 1 :]]))


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two copies of a release: one as it is, one whose split is off."""
    found = next((each for each in install.installed() if each.release == RELEASE), None)
    if found is None:
        pytest.skip(f"vLLM {RELEASE} is not installed (stateat vllm install {RELEASE})")
    folder = tmp_path_factory.mktemp("copies")
    for name in ("clean", "edited"):
        shutil.copytree(found.folder, folder / name)
    turn_split_off(folder / "edited")
    (folder / "s.yaml").write_text(yaml.safe_dump(ANATOMY))
    return folder


@pytest.mark.parametrize("order", list(itertools.permutations(["./clean", "./edited", RELEASE])))
def test_checkouts_of_a_release_are_judged_each_for_itself(
    copies: Path, order: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copies)
    engines = [f"vllm:{name}" for name in order]
    wanted = {f"vllm-0.27.0@vllm:{name.removeprefix('./')}": int("edited" in name) for name in order}
    result = stateat.replay("s.yaml", engine=engines)
    assert {name: outcome.poisoned for name, outcome in result.variants.items()} == wanted
    assert list(result.variants) == list(wanted) and not result.ok
    named = [part for engine in engines for part in ("--engine", engine)]
    assert CliRunner().invoke(main, ["check", "s.yaml", *named, "--junit", "r.xml"]).exit_code == 1
    failed = {
        case.get("name"): int(case.find("failure") is not None) for case in ET.parse("r.xml").getroot().iter("testcase")
    }
    assert failed == wanted


@pytest.mark.parametrize(("name", "code"), [("clean", 0), ("edited", 1)])
def test_a_copy_of_a_release_is_held_to_it(copies: Path, name: str, code: int) -> None:
    names = ("s02-anatomy", "s16-reuse-of-a-workload", "s21-offload-cost")
    seeds = [str(ROOT / "scenarios" / "seeds" / f"{name}.yaml") for name in names]
    engines = ["--engine", f"vllm:{copies / name}", "--baseline", f"vllm:{RELEASE}"]
    told = CliRunner().invoke(main, ["check", *seeds, *engines])
    assert told.exit_code == code, told.output
    assert ("also in the baseline  " in told.output, "\nnew against the baseline  " in told.output) == (
        not code,
        bool(code),
    )
    assert "skip " in told.output


def test_git_bisect_finds_the_commit_that_poisons_past_those_that_do_not_import(copies: Path, tmp_path: Path) -> None:
    shutil.copytree(copies / "clean" / "vllm", tmp_path / "vllm")
    scheduler = tmp_path / install.SCHEDULER
    whole = scheduler.read_text()
    git(tmp_path, "init", "-q")
    for name, text in (("clean", whole), ("broken", "import nothing_of_this_name\n" + whole), ("mended", whole)):
        scheduler.write_text(f"{text}\n# {name}\n")
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-q", "-m", name)
    turn_split_off(tmp_path)
    git(tmp_path, "commit", "-q", "-a", "-m", "poisons")
    git(tmp_path, "bisect", "start", "HEAD", "HEAD~3")
    code = "from stateat.sim.cli.main import main; main(prog_name='stateat')"
    command = [sys.executable, "-P", "-c", code, "check", str(copies / "s.yaml"), "--engine", "vllm:.", "--bisect"]
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    done = subprocess.run(
        ["git", "bisect", "run", *command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert "is the first bad commit\n" in done.stdout, done.stdout + done.stderr
    assert git(tmp_path, "log", "-1", "--format=%s", "refs/bisect/bad") == "poisons"
