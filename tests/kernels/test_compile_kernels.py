"""The kernels, compiled ahead of time at real widths by ``benchmarks/compile_kernels.py``, in a process of its own:
here Triton's interpreter may have been chosen."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stateat.kernels.families import CHUNKED, FAMILIES

pytest.importorskip("torch")
pytest.importorskip("triton")

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("sm_80", "sm_90")
"""Of those that the program knows; the others take as long again."""

PROGRAM = """
import sys
sys.path.insert(0, "benchmarks")
import dataclasses, json
import compile_kernels as program
sys.argv[1:] = ["--json", "--targets", TARGETS]
try:
    program.main()
except SystemExit as ended:
    print(json.dumps(ended.code))
name, kernel, dtype = next(row for row in program.kernels() if row[0].startswith("kda"))
wide = dataclasses.replace(kernel, constants=kernel.constants | {"TILE": 32}, tiles=4)
print(json.dumps(program.measure(name, wide, dtype, "sm_90")))
program.triton_states.OPTIONS["enable_fp_fusion"] = True
print(json.dumps(program.measure(name, kernel, dtype, "sm_90")))
""".replace("TARGETS", repr(",".join(TARGETS)))
"""The program, its exit code, and what its counters must see: more columns than a warp can hold, and a kernel with
fusion allowed."""


def rows(*command, cache):
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    *table, code, spilled, fused = rows("-c", PROGRAM, cache=tmp_path_factory.mktemp("cache"))
    assert code == 0
    return table, spilled, fused


@pytest.fixture(scope="module")
def table(printed):
    return printed[0]


def test_every_family_and_form_compiles_for_every_target(table):
    found = {(row["kernel"].split()[0], row["chunked"], row["target"]) for row in table}
    expected = {(family, False, target) for family in FAMILIES for target in TARGETS}
    expected |= {(family, True, target) for family in CHUNKED for target in TARGETS}
    assert found == expected


def test_no_kernel_spills(table):
    assert {row["kernel"]: row["stack"] for row in table if row["stack"]} == {}
    assert all(0 < row["registers"] < 256 for row in table)


def test_sequential_kernels_have_no_fused_multiply_add(table):
    assert {row["kernel"] for row in table if row["fma"] and not row["chunked"]} == set()


def test_fusion_and_spills_are_seen_where_they_are(printed):
    _, spilled, fused = printed
    assert fused["fma"] > 0
    assert spilled["stack"] > 0
