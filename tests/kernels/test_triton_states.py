"""Runs ``triton_laws.py`` under Triton's interpreter, in a process of its own."""

import os
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

ROOT = Path(__file__).resolve().parents[2]
LAWS = Path(__file__).with_name("triton_laws.py")


def test_every_law_of_the_kernels_holds_under_the_interpreter(tmp_path):
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}"]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, LAWS], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-2000:]
    suite = xml.parse(report).getroot().find("testsuite")
    ran = {case.get("name").partition("[")[0] for case in suite.iter("testcase")}
    laws = {line.split("(")[0][4:] for line in LAWS.read_text().splitlines() if line.startswith("def test_")}
    assert ran == laws
    assert suite.get("skipped") == "0"
