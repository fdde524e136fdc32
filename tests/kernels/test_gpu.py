"""``benchmarks/gpu.sh`` on machines without a GPU: it says so, and its rehearsal walks all the way."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

ROOT = Path(__file__).resolve().parents[2]
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}


def start(*command, **environment):
    environment = os.environ | NO_GPU | {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def test_without_a_gpu_it_ends_with_2_one_message_and_no_figure():
    done = start("benchmarks/gpu.sh")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "sees no GPU here, so nothing was measured" in done.stderr


def test_without_the_packages_it_ends_with_2_and_names_them(tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    done = start("benchmarks/gpu.sh", PYTHON=str(bare))
    assert done.returncode == 2
    assert "lacks numpy, torch or triton" in done.stderr


def test_a_rehearsal_checks_times_and_says_that_it_is_one(tmp_path):
    file = tmp_path / "found.json"
    done = start("benchmarks/gpu.sh", "--rehearse", "--only", "short-conv", "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "This was a rehearsal: no figure above is of a GPU."
    found = json.loads(file.read_text())
    assert "no GPU" in found["device"]
    assert found["failures"] == []
    assert [(row["requests"], row["tokens"]) for row in found["speed"]] == [(2, 17), (3, 1)]


def test_a_check_that_fails_ends_it_with_1():
    arguments = ["--rehearse", "--only", "selective-scan"]
    code = (
        f"import sys; sys.path.insert(0, 'benchmarks'); import gpu; gpu.TOLERANCE = 1e-12; sys.argv[1:] = {arguments}"
    )
    done = start(sys.executable, "-c", f"{code}; gpu.main()")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAIL selective-scan small sequential: largest error" in done.stdout
    assert "1 failures" in done.stdout
