"""The small inputs of the shared folder ``faults``, run as a user runs them: each comes out as it should.

Each once had a wrong verdict, a crash or a silent swap. What holds the kind of each stands in the tests of its own
room; this runs the inputs themselves, so that none comes back by another way. Needs the shared folder and installed
releases, so it is part of ``make conformance``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stateat.sim.adapters.vllm import install

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
STATEAT = Path(sys.executable).with_name("stateat")
RELEASE = install.CACHE.expanduser() / "0.27.0"
LIMIT_S = 300
MODULES = {"sim.events": "stateat.sim.events", "sim.report.text": "stateat.sim.report.words.findings"}
"""Modules that programs there import, by the names that they had then."""
SINCE = {"partial_hit": "tail_copy", "drafter_guard": "drafter_drop"}
"""Rules that some files name as they were called when those were written."""

Ran = subprocess.CompletedProcess[str]
Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def faults(shared: Path) -> Path:
    folder = shared / "faults"
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}")
    return folder


@pytest.fixture
def run(faults: Path, tmp_path: Path) -> Run:
    """Runs the command in a copy of the folder."""
    work = tmp_path / "faults"
    shutil.copytree(faults, work)
    for file in work.glob("*.yaml"):
        text = file.read_bytes()
        for old, new in SINCE.items():
            text = text.replace(f"rules: {{{old}:".encode(), f"rules: {{{new}:".encode())
        file.write_bytes(text)
    for file in work.glob("*.py"):
        text = file.read_bytes()
        for module, now in MODULES.items():
            text = text.replace(f"from {module} ".encode(), f"from {now} ".encode())
        file.write_bytes(text)

    def run(*args: str, env: dict[str, str] | None = None, **more: Any) -> Ran:
        where = {**os.environ, "STATEAT_SHARED": str(faults.parent), **(env or {})}
        return subprocess.run(
            [str(STATEAT), *args],
            cwd=work,
            env=where,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            **more,
        )

    return run


def in_shell(run: Run, tmp_path: Path, line: str, **env: str) -> Ran:
    """A line of shell, in the copy of the folder, with ``stateat`` on the path."""
    path = f"{STATEAT.parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-c", line],
        cwd=tmp_path / "faults",
        env={**os.environ, "PATH": path, **env},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def refused(ran: Ran, *words: str) -> None:
    """Exit code 2, one message with these words, no traceback."""
    assert ran.returncode == 2, (ran.returncode, ran.stdout, ran.stderr)
    assert "Traceback" not in ran.stderr + ran.stdout
    for word in words:
        assert word in ran.stderr + ran.stdout


def both(run: Run, file: str) -> dict[str, Any]:
    """What the preset and its release came to: {variant: outcome}."""
    ran = run("replay", file, "--engine", "reference", "--engine", "vllm", "--json", "-")
    assert ran.returncode in (0, 1), ran.stderr
    variants: dict[str, Any] = json.loads(ran.stdout)["variants"]
    return variants


@pytest.fixture
def trees(tmp_path: Path, run: Run) -> Path:
    """A release's Python twice, once with the split turned off."""
    if not RELEASE.is_dir():
        pytest.skip("vLLM 0.27.0 is not installed (stateat vllm install 0.27.0)")
    work = tmp_path / "faults"
    for name in ("clean", "edited"):
        shutil.copytree(RELEASE, work / name)
    edited = work / "edited" / "vllm/v1/core/sched/scheduler.py"
    lines = edited.read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith("        prefill_end = max("))
    lines[at] = "        prefill_end = 0\n"
    edited.write_text("".join(lines))
    return work


@pytest.mark.parametrize("order", [("edited", "clean"), ("clean", "edited")])
def test_two_checkouts_are_two_engines(run: Run, trees: Path, order: Sequence[str]) -> None:
    engines = [word for name in order for word in ("--engine", f"vllm:./{name}")]
    ran = run("check", "f01-anatomy.yaml", *engines, "--junit", "r.xml")
    assert ran.returncode == 1
    report = (trees / "r.xml").read_text()
    assert report.count("<testcase") == 2
    assert report.count("<failure") == 1
    assert "edited" in ran.stdout and "364" in ran.stdout and "@vllm:0.27.0" not in ran.stdout


def test_a_checkout_beside_its_release_leaves_the_release_clean(run: Run, trees: Path) -> None:
    ran = run("replay", "f01-anatomy.yaml", "--engine", "vllm:0.27.0", "--engine", "vllm:./edited", "--json", "-")
    variants = json.loads(ran.stdout)["variants"]
    assert ran.returncode == 1
    assert sorted(outcome["poisoned"] for outcome in variants.values()) == [0, 1]
    assert next(o for name, o in variants.items() if name.endswith("@vllm:0.27.0"))["poisoned"] == 0


def test_bisect_skips_what_does_not_import(run: Run, tmp_path: Path, trees: Path) -> None:
    script = (tmp_path / "faults" / "f05-bisect.sh").read_text()
    (tmp_path / "faults" / "bisect.sh").write_text(script.replace('check "$3"', 'check --bisect "$3"'))
    ran = in_shell(run, tmp_path, f"sh bisect.sh {RELEASE} {STATEAT} $PWD/f01-anatomy.yaml")
    assert "five-poisons" in ran.stdout, ran.stdout + ran.stderr
    assert "two-does-not-import is" not in ran.stdout


def test_a_release_against_itself_is_green_and_an_edited_one_red(run: Run, trees: Path) -> None:
    seeds = str(ROOT / "scenarios" / "seeds")
    clean = run("check", seeds, "--engine", "vllm:./clean", "--baseline", "vllm:0.27.0")
    assert clean.returncode == 0, clean.stdout + clean.stderr
    edited = run("check", seeds, "--engine", "vllm:./edited", "--baseline", "vllm:0.27.0")
    assert edited.returncode == 1, edited.stdout + edited.stderr


@pytest.mark.parametrize(
    "command", ["replay f02-clean.yaml --json o.json", "explain f02-clean.yaml", "check f02-clean.yaml", "list ."]
)
@pytest.mark.parametrize("stream", ["2>&-", "0<&-"])
def test_a_closed_stream_is_no_verdict(run: Run, tmp_path: Path, command: str, stream: str) -> None:
    ran = in_shell(run, tmp_path, f"stateat {command} {stream}")
    assert ran.returncode == in_shell(run, tmp_path, f"stateat {command}").returncode


@pytest.mark.parametrize("name", ["f03-group-77", "f03-end-123456", "f03-write-999", "f19-rules-list"])
def test_a_log_that_says_what_cannot_be_is_refused_with_its_line(run: Run, name: str) -> None:
    ran = run("audit", f"{name}.jsonl")
    if name == "f19-rules-list":
        assert "Traceback" not in ran.stderr
        assert ran.returncode in (0, 2)
    else:
        refused(ran, f"{name}.jsonl:")


def test_a_result_that_failed_its_expectations_is_not_ok(run: Run, tmp_path: Path) -> None:
    code = "import stateat; r = stateat.replay('f04-expected.yaml'); print(r.ok)"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "faults", capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "False"


@pytest.mark.parametrize("rule", ["Raises", "Generator", "Exits"])
def test_a_rule_that_ends_or_raises_is_bad_input(run: Run, tmp_path: Path, rule: str) -> None:
    ran = run(
        "replay", "f02-clean.yaml", "--rule", f"split=f07_rules:{rule}", "--json", "o.json", env={"PYTHONPATH": "."}
    )
    refused(ran, "f07_rules")
    assert not (tmp_path / "faults" / "o.json").exists()


def test_a_rule_that_changes_the_folder_does_not_move_the_output(run: Run, tmp_path: Path) -> None:
    (tmp_path / "faults" / "elsewhere").mkdir()
    ran = run(
        "replay", "f02-clean.yaml", "--rule", "split=f07_rules:Moves", "--json", "o.json", env={"PYTHONPATH": "."}
    )
    assert ran.returncode == 0
    assert (tmp_path / "faults" / "o.json").exists()


def test_a_follower_in_place_reads_what_it_was_given(run: Run) -> None:
    assert run("check", "f08-follower-in-place.yaml").returncode == 0


def test_who_can_never_fit_computes_nothing(run: Run) -> None:
    ran = run("replay", "f09-rejects-late.yaml", "--json", "-")
    for outcome in json.loads(ran.stdout)["variants"].values():
        assert outcome["rejected"] == 1


LIKE_ITS_RELEASE = [
    "f10-junction-unflagged", "f10-junction-flagged", "f10-junction-server", "f11-all-mode-claims", "f11-all-mode-hits",
    "f13-encoder-item-hash", "f14-window-alone",
]  # fmt: skip


@pytest.mark.parametrize("name", LIKE_ITS_RELEASE)
def test_the_preset_decides_as_its_release(run: Run, name: str) -> None:
    variants = both(run, f"{name}.yaml")
    ours = {key: o for key, o in variants.items() if "@" not in key}
    assert ours
    for key, outcome in ours.items():
        (live,) = [o for other, o in variants.items() if other.startswith(f"{key}@")]
        for part in ("digest", "claims", "hits", "steps", "chunks", "poisoned"):
            assert outcome[part] == live[part], (key, part)


@pytest.mark.parametrize("name", ["f16-draft-slots-method", "f16-draft-slots-load"])
def test_slots_of_a_drafter_keep_its_method_or_are_refused(run: Run, name: str) -> None:
    ran = run("replay", f"{name}.yaml", "--engine", "reference", "--engine", "vllm", "--json", "-")
    variants = json.loads(ran.stdout)["variants"]
    ours = {key: o for key, o in variants.items() if "@" not in key}
    assert ours
    for key, outcome in ours.items():
        (live,) = [o for other, o in variants.items() if other.startswith(f"{key}@")]
        assert live.get("status", "ran") != "ran" or live["digest"] == outcome["digest"], key


def test_the_checkpoint_of_0_30_is_asked_of_0_30(run: Run) -> None:
    assert run("check", "f15-checkpoint-of-030.yaml", "--engine", "vllm:0.30.0").returncode == 0


@pytest.mark.parametrize("command", ["check", "replay", "explain", "list"])
@pytest.mark.parametrize("name", ["f17-wide-block", "f17-drafter-guard"])
def test_a_wrong_value_of_a_rule_is_told_with_its_line(run: Run, command: str, name: str) -> None:
    refused(run(command, f"{name}.yaml"), f"{name}.yaml:", "unknown value")


def test_a_trace_with_an_empty_first_line_is_refused(run: Run) -> None:
    refused(run("check", "f18-empty-first-line.yaml"), "f18-empty-first-line.csv:1")


def test_one_variant_that_cannot_run_leaves_the_other(run: Run, tmp_path: Path) -> None:
    ran = run("replay", "f20-one-stops-all.yaml", "--engine", "vllm", "--json", "o.json")
    assert ran.returncode == 2
    told = json.loads((tmp_path / "faults" / "o.json").read_text())
    variants = told["variants"]
    assert [outcome["finished"] for outcome in variants.values()] == [2]
    assert [each["variant"] for each in told["not_run"]] == ["two in flight@vllm:0.27.0"]


@pytest.mark.parametrize("how", ["deep", "init", "endless", "escape"])
def test_a_worker_that_answers_nonsense_is_told_by_name(run: Run, tmp_path: Path, how: str) -> None:
    ran = in_shell(
        run,
        tmp_path,
        'ulimit -v 2000000; stateat replay f02-clean.yaml --vllm-python "$PWD/f21-worker.sh"',
        WORKER=how,
        OPENBLAS_NUM_THREADS="1",
    )
    refused(ran, "f21-worker.sh")
    assert "\x1b" not in ran.stderr + ran.stdout


def test_a_bomb_is_refused_in_bounded_memory(run: Run, tmp_path: Path) -> None:
    line = f"{sys.executable} f23-bomb.py b.json.gz; ulimit -v 1500000; stateat conform b.json.gz"
    ran = in_shell(run, tmp_path, line, OPENBLAS_NUM_THREADS="1")
    refused(ran, "b.json.gz")
    assert len(ran.stderr) < 1000


def test_what_is_killed_leaves_nothing(run: Run, tmp_path: Path) -> None:
    ran = in_shell(run, tmp_path, f"{sys.executable} f24-killed.py {STATEAT} {ROOT}")
    assert "after a complete run ['o.log']" in ran.stdout, ran.stdout
    assert "5 s after a sweep was killed: 0 processes" in ran.stdout, ran.stdout


def test_an_interrupt_is_one_line_from_the_start(run: Run, tmp_path: Path) -> None:
    ran = in_shell(run, tmp_path, f"{sys.executable} f25-interrupt.py {STATEAT}")
    lines = ran.stdout.splitlines()
    assert len(lines) == 4
    # The first may still find Python itself starting, before any line of ours.
    assert all(line.endswith("exit 130, traceback: False") for line in lines[1:]), ran.stdout


@pytest.mark.parametrize("name", ["f26-runs-code", "f26-runs-input"])
@pytest.mark.parametrize("command", ["check", "replay", "explain"])
def test_a_file_runs_no_code_of_its_own(run: Run, command: str, name: str) -> None:
    ran = run(command, f"{name}.yaml", input='import os; os.write(1, b"this ran too\n")\n')
    refused(ran, "--allow-code", f"{name}.yaml:")
    assert "this ran" not in ran.stdout


def test_a_file_runs_code_where_that_is_allowed(run: Run) -> None:
    """The control: with the flag it does."""
    ran = run("replay", "f26-runs-code.yaml", "--allow-code", env={"PYTHONPATH": "."})
    assert ran.returncode == 0
    assert "this ran" in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "command",
    [
        "replay f27-escape-in-key.yaml",
        "replay f27-escape-in-variant.yaml",
        "replay f27-escape-in-path.yaml",
        "replay f27-escape-in-rule.yaml",
        "audit f27-escape-in-log-key.jsonl",
        "replay f02-clean.yaml --rule split=f07_rules:Escapes",
    ],
)
def test_no_escape_reaches_the_terminal(run: Run, command: str) -> None:
    ran = run(*command.split(), env={"PYTHONPATH": "."})
    assert ran.returncode == 2
    assert "\x1b" not in ran.stdout + ran.stderr
    assert "\x07" not in ran.stdout + ran.stderr


@pytest.mark.parametrize("name", ["f28-leaves-shared", "f28-climbs"])
def test_shared_does_not_leave_its_folder(run: Run, name: str) -> None:
    ran = run("check", f"{name}.yaml", env={"STATEAT_SHARED": "."})
    refused(ran, f"{name}.yaml:")
    assert "root:" not in ran.stdout + ran.stderr


def test_the_banner_promises_what_attention_can_hold(run: Run) -> None:
    ran = run("replay", "f30-banner.yaml")
    assert ran.returncode == 0
    assert "8,928 tokens" not in ran.stdout + ran.stderr


def test_an_error_of_a_variant_names_the_variant(run: Run) -> None:
    refused(run("check", "f32-variant-name.yaml"), "drafter off")


def test_a_hazard_that_stays_is_one_line(run: Run) -> None:
    ran = run("replay", "f33-repeats.yaml", "-v")
    hazards = [line for line in ran.stdout.splitlines() if line.lstrip().startswith("I9")]
    assert len(hazards) == 2, ran.stdout
    assert "steps 1 to 7" in hazards[0]
    assert "step 8 (2 times)" in hazards[1]


def test_a_printed_result_fits_on_a_screen(run: Run) -> None:
    code = f"import stateat; print(stateat.replay({str(ROOT / 'scenarios/load/demo.yaml')!r}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(ran.stdout) < 2000


def test_prints_of_an_edited_release_reach_standard_error(run: Run, trees: Path) -> None:
    edited = trees / "edited" / "vllm/v1/core/sched/scheduler.py"
    said = '        import sys; print("to out"); print("to err", file=sys.stderr)\n        prefill_end = 0\n'
    edited.write_text(edited.read_text().replace("        prefill_end = 0\n", said))
    ran = run("replay", "f01-anatomy.yaml", "-v", "--engine", "vllm:./edited")
    assert "to out" in ran.stderr
    assert "to err" in ran.stderr


def test_a_seed_rule_with_an_argument_too_many_is_told_with_its_own_words(run: Run) -> None:
    """The page once told four arguments; it tells the three that there are."""
    ran = run("replay", "f02-clean.yaml", "--rule", "restore_column=f37_seed:Seed", env={"PYTHONPATH": "."})
    refused(ran, "f37_seed:Seed", "config_block")
    assert "`(computed, state_block, config_block)`" in (ROOT / "docs" / "rules.md").read_text()


def test_numerics_come_before_losses(run: Run, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "f38_order.py"], cwd=tmp_path / "faults", capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith("['I18'"), ran.stdout
