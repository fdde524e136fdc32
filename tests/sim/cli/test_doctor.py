"""The report says what is there, and nothing that is broken can stop it."""

import configparser
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stateat.sim.cli import doctor

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with an empty home, without torch, Triton and the shared folder."""
    known = doctor._version
    extras = [name for parts in doctor.OPTIONAL.values() for name in parts]
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in extras else known(name))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("STATEAT_SHARED", str(tmp_path / "shared"))
    return tmp_path


def lines() -> dict[str, dict[str, Any]]:
    return {part["name"]: part for part in doctor.report()["parts"]}


def test_a_bare_machine_is_well_and_learns_what_it_lacks(bare: Path) -> None:
    told = doctor.report()
    assert told["ok"]
    assert {part["name"] for part in told["parts"] if not part["ok"]} == {
        "torch",
        "triton",
        "dask",
        "ray",
        "GPU",
        "vLLM",
        "shared folder",
    }
    assert all(part["adds"] and part["found"] for part in told["parts"])
    assert json.loads(json.dumps(told)) == told


def test_what_is_needed_and_missing_is_not_well(monkeypatch: pytest.MonkeyPatch) -> None:
    known = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("simpy", "torch") else known(name))
    assert not doctor.report()["ok"]
    assert lines()["simpy"]["found"] == "not installed"


def test_finished_releases_of_vllm_are_listed_in_order(bare: Path) -> None:
    for name in ("0.27.0", "0.9.1", "0.26.0", ".partial-1-0.28.0"):
        folder = bare / ".cache" / "stateat" / "vllm" / name
        folder.mkdir(parents=True)
        (folder / "stateat.json").write_text('{"package": "vllm", "size": 1}')
    (bare / ".cache" / "stateat" / "vllm" / "0.33.0").mkdir()
    assert lines()["vLLM"] == {
        "name": "vLLM",
        "ok": True,
        "needed": False,
        "found": "0.9.1, 0.26.0, 0.27.0",
        "adds": "real schedulers to compare with",
    }


def test_the_shared_folder_is_found(bare: Path) -> None:
    (bare / "shared").mkdir()
    assert lines()["shared folder"]["found"] == str(bare / "shared")


@pytest.mark.parametrize(
    ("probe", "ok", "found"),
    [
        ("print('[]')", False, "torch sees none"),
        ("print('noise'); print('[\"A100\", \"A100\"]')", True, "A100, A100"),
        (
            "raise OSError('libcudart.so: not found')",
            False,
            "torch could not be asked: OSError: libcudart.so: not found",
        ),
        ("import os; os.abort()", False, "torch could not be asked: exit status -6"),
        ("print('surprise')", False, "torch could not be asked: it said 'surprise'"),
        ("", False, "torch could not be asked: it said nothing"),
        ("import time; time.sleep(60)", False, "torch did not answer within 0.5 s"),
    ],
    ids=["none", "two", "broken library", "crash", "surprise", "silence", "hang"],
)
def test_a_gpu_is_asked_for_in_a_child(monkeypatch: pytest.MonkeyPatch, probe: str, ok: bool, found: str) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: "1.0")
    monkeypatch.setattr(doctor, "GPU_PROBE", probe)
    assert doctor._gpu(timeout_s=0.5 if "sleep" in probe else 30) == (ok, found)


def test_the_table_shows_brackets_and_every_line(bare: Path) -> None:
    printed = io.StringIO()
    doctor.print_report(Console(width=200, file=printed))
    text = printed.getvalue()
    assert "pip install 'stateat[states]'" in text
    assert "would add: floating-point state families" in text
    rows = text.splitlines()
    for name, part in lines().items():
        row = next(row for row in rows if row.startswith(name + " "))
        assert row[len(name) :].split()[0] == ("ok" if part["ok"] else "missing")
    assert rows[-1].strip() == "What is missing is optional."


def test_it_imports_nothing_that_it_looks_for() -> None:
    code = (
        "import sys; from stateat.sim.cli import doctor; doctor._gpu = lambda: (False, ''); doctor.report();"
        "print(sorted({'numpy', 'simpy', 'matplotlib', 'torch', 'triton'} & set(sys.modules)))"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert child.stdout.strip() == "[]"


def test_it_looks_for_what_setup_cfg_declares() -> None:
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg", encoding="utf-8")

    def names(requirements: str) -> set[str]:
        return {m[0] for line in requirements.splitlines() if (m := re.match(r"[\w-]+", line))}

    assert names(config["options"]["install_requires"]) == set(doctor.NEEDED)
    extras = {name: names(text) for name, text in config["options.extras_require"].items() if name != "dev"}
    assert extras == {name: set(parts) for name, parts in doctor.OPTIONAL.items()}
