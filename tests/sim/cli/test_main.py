"""The command line: exit codes, what goes where, and one message for each bad usage."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result
from forked import Codes, Done, done

from stateat.sim.cli import doctor
from stateat.sim.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
S02 = str(ROOT / "scenarios" / "seeds" / "s02-anatomy.yaml")
S03 = str(ROOT / "scenarios" / "seeds" / "s03-resume-mid-block.yaml")
LIMITS = ROOT / "scenarios" / "limits"
STATEAT = (sys.executable, "-c", "from stateat.sim.cli.main import main; main(prog_name='stateat')")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}

POISONED = """\
schema: stateat/1
name: poisoned
engine:
  preset: vllm-0.26.0
  partial_hits: false
  groups:
    - {name: attention, kind: full-attention, block_size: 16, eagle: true}
    - {name: gdn, kind: recurrent, block_size: 1600}
  speculative: {method: mtp, num_speculative_tokens: 3}
  clock: steps
workload:
  budgets: [364, 2002]
  requests:
    - {id: a, prompt: [[1, 2002]]}
"""
WRONG = POISONED + "variants:\n  old: {expect: {poisoned: 0, vacuous: one request, ends: {a: [2002]}}}\n"
RIGHT = POISONED + "variants:\n  old: {expect: {poisoned: 1, ends: {a: [364, 2002]}}}\n"
CLEAN = POISONED.replace("vllm-0.26.0", "vllm-0.27.0")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for every test."""
    monkeypatch.chdir(tmp_path)
    # The command line adds the current folder, for plug-ins.
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, text in (("poisoned", POISONED), ("wrong", WRONG), ("right", RIGHT), ("clean", CLEAN)):
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def run(*args: str) -> Result:
    """Through Click, with nothing but our own exits let through."""
    result = CliRunner().invoke(main, list(args), prog_name="stateat")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


Process = Callable[..., Done]


@pytest.fixture
def process(here: Path, forked: Codes) -> Process:
    """Runs the command in a fork of a process that has loaded it."""
    return partial(done, forked, here)


def program(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The command in a new Python, for what is settled when that starts."""
    return subprocess.run(
        [*STATEAT, *args], capture_output=True, text=True, timeout=60, check=False, env=ENVIRONMENT | env
    )


def made(folder: Path) -> set[str]:
    """Files beyond those of the fixture."""
    return {p.name for p in folder.iterdir()} - {"poisoned.yaml", "wrong.yaml", "right.yaml", "clean.yaml"}


# Exit codes.


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("replay", S02), 0),
        (("replay", "right.yaml"), 0),
        (("replay", "clean.yaml"), 0),
        (("replay", "wrong.yaml"), 1),
        (("replay", "poisoned.yaml"), 1),
        (("replay", "clean.yaml", "poisoned.yaml"), 1),
        (("replay", "poisoned.yaml", "--rule", "split=prefill-end"), 0),
        (("replay", "right.yaml", "--rule", "split=prefill-end"), 1),
        (("check", "right.yaml"), 0),
        (("check", "wrong.yaml"), 1),
        (("check", "poisoned.yaml"), 1),
        (("check", "right.yaml", "wrong.yaml"), 1),
        (("check", S02, S03), 0),
        (("schema",), 0),
        (("--help",), 0),
        (("--version",), 0),
        ((), 2),
    ],
)
def test_exit_code(args: Sequence[str], code: int) -> None:
    assert run(*args).exit_code == code


def test_a_real_process_exits_alike(process: Process) -> None:
    assert [process("replay", f).returncode for f in ("right.yaml", "wrong.yaml", "none.yaml")] == [0, 1, 2]


# Bad usage: one message, exit code 2, nothing on stdout, no traceback.

BAD: list[tuple[Sequence[str], str]] = [
    (("repaly", S02), "No such command 'repaly'. Did you mean 'replay'?"),
    (("frobnicate",), "No such command 'frobnicate'."),
    (("replay",), "Missing argument 'FILES...'"),
    (("replay", S02, "--nothing"), "No such option '--nothing'"),
    (("replay", "none.yaml"), "none.yaml: no such file"),
    (("replay", "."), "is a directory"),
    (("replay", S02, "--variant", "old"), "variant: found 'old', allowed old gate, fixed gate"),
    (("replay", S02, "--rule", "split"), "found 'split', allowed is NAME=VALUE"),
    (("replay", S02, "--rule", "split="), "allowed is NAME=VALUE"),
    (("replay", S02, "--rule", "=x"), "allowed is NAME=VALUE"),
    (("replay", S02, "--rule", "splt=x"), "unknown rule 'splt': did you mean split?"),
    (("replay", S02, "--rule", "split=prefil-end"), "did you mean prefill-end?"),
    (("replay", S02, "--rule", "split=none_such:Class"), "cannot load it: ModuleNotFoundError"),
    (("replay", S02, "--rule", "split=builtins:repr"), "rule split=builtins:repr gave 'Chunk(start=0"),
    (("replay", S02, "--state", "dig"), "--state: found 'dig', allowed digest"),
    (("replay", S02, "--json", "none/out.json"), "--json none/out.json: there is no folder none"),
    (("replay", S02, "--json", "."), "--json .: found a folder, allowed is a file"),
    (("replay", S02, "--log", "none/out.jsonl"), "--log none/out.jsonl: there is no folder none"),
    (("replay", S02, "--plot", "none/out.png"), "--plot none/out.png: there is no folder none"),
    (("replay", S02, "--perfetto", "none/out.json"), "--perfetto none/out.json: there is no folder none"),
    (("replay", S02, "--plot", "out.gif"), "--plot out.gif: found '.gif', allowed: .png, .svg, .pdf"),
    (("replay", S02, "--plot", "out"), "--plot out: found '', allowed: .png, .svg, .pdf"),
    (("replay", S02, S03, "--log", "out.jsonl"), "--log, --plot and --perfetto take one scenario file"),
    (("replay", S02, S03, "--plot", "out.png"), "take one scenario file"),
    (("replay", S02, S03, "--perfetto", "out.json"), "take one scenario file"),
    (("check", "none.yaml"), "none.yaml: no such file"),
    (("check", "empty"), "empty: no scenario files (*.yaml) in this folder"),
    (("check", "right.yaml", "--junit", "none/out.xml"), "--junit none/out.xml: there is no folder none"),
    (("check", "right.yaml", "--json", "."), "--json .: found a folder"),
    (("check", "right.yaml", "--state", "dig"), "--state: found 'dig', allowed digest"),
    (("audit",), "Missing argument 'LOG'"),
    (("audit", "none.jsonl"), "none.jsonl: no such file"),
    (("audit", "."), "is a directory"),
    (("audit", "right.yaml"), "right.yaml:1: not JSON"),
    (("schema", "more"), "unexpected extra argument"),
    (("doctor", "--yaml"), "No such option '--yaml'"),
]


@pytest.mark.parametrize(("args", "said"), BAD, ids=[" ".join(Path(a).name for a in args) for args, _ in BAD])
def test_bad_usage(here: Path, args: Sequence[str], said: str) -> None:
    (here / "empty").mkdir()
    result = run(*args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""
    assert made(here) == {"empty"}


def test_bad_usage_leaves_no_traceback_in_a_real_process(process: Process) -> None:
    for args, said in (BAD[0], BAD[4], BAD[11], BAD[13]):
        ran = process(*args)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert said in ran.stderr and "Traceback" not in ran.stderr


def test_an_unknown_state_is_refused_before_the_log_is_read(here: Path) -> None:
    (here / "log.jsonl").write_text("not a log")
    for file in ("log.jsonl", "none.jsonl"):
        result = run("audit", file, "--state", "dig")
        assert result.exit_code == 2 and "--state: found 'dig', allowed digest" in result.stderr


def test_a_rule_with_named_answers_alone_takes_no_plug_in() -> None:
    result = run("replay", S02, "--rule", "publish=json:JSONDecoder")
    assert result.exit_code == 2
    assert "'json:JSONDecoder' of rule 'publish'; allowed: at-schedule, at-schedule-at-once" in result.stderr


def test_a_grid_that_raises_is_named() -> None:
    result = run("replay", S02, "--rule", "grid=json:dumps")
    assert result.exit_code == 2 and "grid=json:dumps" in result.stderr


# A broken trace is named by its own line: tests/sim/workload/test_traces.py.
@pytest.mark.parametrize("file", sorted(p.name for p in LIMITS.glob("*.yaml") if p.stem != "trace-broken")[::6])
def test_a_bad_scenario_names_its_file_and_line(file: str) -> None:
    result = run("replay", str(LIMITS / file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"stateat: {LIMITS / file}" in result.stderr


# Help.


def test_the_version_is_printed() -> None:
    assert run("--version").stdout.startswith("stateat 0.")


# Machine output.


def test_json_goes_to_stdout_alone(process: Process) -> None:
    for args, count in ((("replay", S02), 2), (("replay", "wrong.yaml"), 1), (("check", S02), 2)):
        ran = process(*args, "--json", "-")
        tree = json.loads(ran.stdout)
        assert len(tree["variants"]) == count
        assert ran.stdout == json.dumps(tree, indent=2, ensure_ascii=False) + "\n"
        assert tree["scenario"] in ran.stderr


def test_several_results_are_a_list() -> None:
    tree = json.loads(run("replay", S02, S03, "--json", "-").stdout)
    assert [r["scenario"] for r in tree] == ["s02-anatomy", "s03-resume-mid-block"]


def test_json_has_the_same_bytes_in_every_process_and_under_every_hash_seed(here: Path) -> None:
    # This process has a third seed.
    texts = {program("replay", S02, "--json", "-", PYTHONHASHSEED=seed).stdout for seed in ("0", "1")}
    assert len(texts) == 1
    assert run("replay", S02, "--json", "out.json").exit_code == 0
    assert (here / "out.json").read_text() in texts


def test_json_is_written_even_when_an_expectation_fails(here: Path) -> None:
    assert run("replay", "wrong.yaml", "--json", "out.json").exit_code == 1
    assert json.loads((here / "out.json").read_text())["variants"]["old"]["poisoned"] == 1
    assert made(here) == {"out.json"}


def test_the_log_of_a_replay_is_audited_to_the_same_json(here: Path) -> None:
    assert run("replay", S02, "--log", "run.jsonl", "--json", "live.json").exit_code == 0
    result = run("audit", "run.jsonl", "--json", "heard.json")
    # A log expects nothing, and something is poisoned.
    assert result.exit_code == 1
    assert (here / "heard.json").read_bytes() == (here / "live.json").read_bytes()
    assert run("replay", S02, "--variant", "fixed gate", "--log", "run.jsonl").exit_code == 0
    assert run("audit", "run.jsonl").exit_code == 0


def test_an_audit_of_which_nothing_was_judged_is_no_pass(here: Path) -> None:
    # No request comes past a block, and nothing is claimed.
    assert run("replay", "clean.yaml", "--log", "run.jsonl").exit_code == 0
    result = run("audit", "run.jsonl", "--json", "heard.json")
    assert result.exit_code == 2 and "run.jsonl: nothing was judged" in result.stderr
    assert "nothing was judged" in result.stdout and "nothing poisoned" not in result.stdout
    assert json.loads((here / "heard.json").read_text())["variants"]


def test_a_name_that_utf8_cannot_carry_leaves_no_traceback(here: Path, process: Process) -> None:
    assert run("replay", S02, "--log", "run.jsonl").exit_code == 0
    log = (here / "run.jsonl").read_text().replace('"request":"a"', '"request":"\\ud800"')
    (here / "run.jsonl").write_text(log)
    ran = process("audit", "run.jsonl", "--json", "-")
    assert "Traceback" not in ran.stderr


def test_a_plot_and_a_trace_are_written(here: Path) -> None:
    assert run("replay", "right.yaml", "--plot", "out.svg", "--perfetto", "out.json").exit_code == 0
    assert "<svg" in (here / "out.svg").read_text()
    json.loads((here / "out.json").read_text())
    assert made(here) == {"out.svg", "out.json"}


def test_the_schema_is_json_schema_and_admits_the_seeds() -> None:
    tree = json.loads(run("schema").stdout)
    assert tree["$schema"].startswith("https://json-schema.org/")
    assert {"schema", "name", "engine", "workload", "variants"} <= set(tree["properties"])
    assert tree["additionalProperties"] is False


def test_doctor_says_what_is_installed() -> None:
    done = run("doctor")
    assert done.exit_code == 0
    assert all(name in done.stdout for name in (*doctor.NEEDED, *doctor.OPTIONAL["states"]))


# Tables for people.


def test_a_replay_shows_what_was_found_and_what_failed() -> None:
    told = run("replay", "wrong.yaml")
    assert "gdn column 0 (slot " in told.stdout
    assert "request a) is hashed as state@1600 but holds state@364" in told.stdout
    lines = [line.split() for line in told.stdout.splitlines()]
    at = lines.index(["expectation", "failed", "old:", "poisoned"])
    assert lines[at + 1 : at + 3] == [["expected", "0"], ["found", "1"]]
    assert "1 (1 root)" in told.stdout
    assert "grid 1600" in told.stderr and "grid 1600" not in told.stdout


def test_verbose_shows_chunk_ends_and_hits() -> None:
    plain, verbose = run("replay", "right.yaml").stdout, run("replay", "right.yaml", "-v").stdout
    assert len(verbose) > len(plain)
    assert "364" in verbose


def test_determinism_is_checked() -> None:
    told = run("replay", S02, "--check-determinism")
    assert told.exit_code == 0
    assert told.stderr.count("the same again, step by step") == 2


def test_what_is_not_deterministic_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import stateat.sim.run.simulate

    real, calls = stateat.sim.run.simulate.simulate, list[int]()

    def simulate(run: Any, *args: Any, **more: Any) -> Any:
        from dataclasses import replace

        calls.append(1)
        return replace(real(run, *args, **more), digest=str(len(calls)))

    monkeypatch.setattr(stateat.sim.run.simulate, "simulate", simulate)
    told = run("replay", "right.yaml", "--check-determinism")
    assert told.exit_code == 1
    assert "poisoned, variant old: not deterministic" in told.stderr


def test_findings_that_differ_are_told_with_the_first_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    import stateat.sim.run.simulate

    real, calls = stateat.sim.run.simulate.simulate, list[int]()

    def simulate(run: Any, *args: Any, **more: Any) -> Any:
        from dataclasses import replace

        calls.append(1)
        outcome = real(run, *args, **more)
        late = [replace(f, step=f.step + 7) if f.invariant == "I2" else f for f in outcome.findings]
        return outcome if len(calls) == 1 else replace(outcome, findings=tuple(late))

    monkeypatch.setattr(stateat.sim.run.simulate, "simulate", simulate)
    told = run("replay", "right.yaml", "--check-determinism")
    assert told.exit_code == 1
    assert "digest" not in told.stderr.splitlines()[-1]
    assert "step by step it differs: findings (3 and 3), the first of them #0: I2 shape  step 0" in told.stderr
    assert "; step by step: I2 shape  step 7" in told.stderr


def test_without_fast_forwarding_the_json_is_the_same() -> None:
    assert run("replay", S02, "--no-fast-forward", "--json", "-").stdout == run("replay", S02, "--json", "-").stdout


# Check.


def test_check_prints_a_readable_difference_and_a_ready_line() -> None:
    told = run("check", "wrong.yaml").stdout
    assert told.startswith("FAIL wrong.yaml")
    for text in ("old: poisoned", "expected  0", "found     1", "old: ends.a", "expected  [2002]", "[364, 2002]"):
        assert text in told
    assert "expect: {poisoned: 1, findings: {contains: [{invariant: I1, request: a, column: 0" in told


def test_the_ready_line_passes_when_it_is_put_in(here: Path) -> None:
    told = run("check", "poisoned.yaml").stdout
    line = next(text for text in told.splitlines() if "expect: {" in text)
    expect = line.partition("expect: ")[2]
    (here / "mended.yaml").write_text(f"{POISONED}variants:\n  old: {{expect: {expect}}}\n")
    assert run("check", "mended.yaml").exit_code == 0


def test_check_takes_folders_and_names_every_file(here: Path) -> None:
    told = run("check", ".")
    assert told.exit_code == 1
    rows = [line.split()[:2] for line in told.stdout.splitlines() if line.startswith(("ok", "FAIL"))]
    assert rows == [["ok", "clean.yaml:"], ["FAIL", "poisoned.yaml:"], ["ok", "right.yaml:"], ["FAIL", "wrong.yaml:"]]


def test_junit_is_xml_with_a_case_for_each_variant(here: Path) -> None:
    assert run("check", "right.yaml", "wrong.yaml", S02, "--junit", "out.xml").exit_code == 1
    root = ET.parse(here / "out.xml").getroot()
    assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", "4", "1")
    failed = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    assert failed == ["old"]
    text = next(root.iter("failure")).text or ""
    assert "expected  0" in text and "found     1" in text
    assert made(here) == {"out.xml"}


def test_a_file_that_must_be_refused_is_checked_for_its_message(here: Path) -> None:
    told = run("check", str(LIMITS / "unknown-key.yaml"))
    assert told.exit_code == 0 and told.stdout.startswith("ok")
    (here / "accepted.yaml").write_text(f"# expect: something\n{CLEAN}")
    told = run("check", "accepted.yaml")
    assert told.exit_code == 1 and told.stdout.startswith("FAIL")
    assert "something" in told.stdout and "the file is accepted" in told.stdout


def test_a_broken_file_does_not_keep_check_from_the_others(here: Path) -> None:
    (here / "broken.yaml").write_text("schema: stateat/1\n")
    told = run("check", "broken.yaml", "right.yaml", "wrong.yaml", "--junit", "out.xml")
    assert told.exit_code == 2
    assert "stateat: broken.yaml" in told.stderr
    assert [line.split()[:2] for line in told.stdout.splitlines() if line.startswith(("ok", "FAIL"))] == [
        ["ok", "right.yaml:"],
        ["FAIL", "wrong.yaml:"],
    ]
    root = ET.parse(here / "out.xml").getroot()
    assert [root.get(count) for count in ("tests", "failures", "errors")] == ["3", "1", "1"]
    (error,) = root.iter("error")
    assert (error.text or "").startswith("broken.yaml:1: ")


def test_a_trace_is_never_written_over(here: Path) -> None:
    (here / "trace.jsonl").write_text('{"id": "a", "arrive": 0, "prompt": [[1, 200]], "max_tokens": 3}\n')
    (here / "traced.yaml").write_text(
        "schema: stateat/1\nname: t\nengine: {groups: [{name: gdn, kind: recurrent, block_size: 8}]}\n"
        "workload: {trace: {format: jsonl, path: trace.jsonl}}\n"
    )
    assert run("replay", "traced.yaml").exit_code == 0
    for command, option in (("replay", "--log"), ("replay", "--json"), ("check", "--junit"), ("explain", "--json")):
        told = run(command, "traced.yaml", option, "trace.jsonl")
        assert told.exit_code == 2
        assert f"stateat: {option} trace.jsonl: that is the input trace.jsonl too" in told.stderr
    assert (here / "trace.jsonl").read_text().startswith('{"id"')


def test_a_name_that_is_too_long_is_said_to_be_that() -> None:
    told = run("replay", "x" * 5000)
    assert told.exit_code == 2
    assert told.stderr.endswith("x: File name too long\n") or "cannot be read: File name too long" in told.stderr


@pytest.mark.parametrize("command", ["check", "replay", "explain", "audit", "conform", "geometry", "sweep"])
def test_a_link_to_itself_is_one_message(here: Path, command: str) -> None:
    (here / "self.yaml").symlink_to("self.yaml")
    told = run(command, "self.yaml")
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.splitlines()[-1].endswith("Too many levels of symbolic links")
    told = run("replay", "right.yaml", "--json", "self.yaml")
    assert (told.exit_code, told.stderr) == (2, "stateat: --json self.yaml: Too many levels of symbolic links\n")


def test_a_check_of_several_files_ends_with_their_sum(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEAT_SHARED", str(here / "nowhere"))
    (here / "broken.yaml").write_text("schema: stateat/1\n")
    (here / "away.yaml").write_text(
        "schema: stateat/1\nname: away\nengine:\n  groups: [{name: gdn, kind: recurrent, block_size: 64}]\n"
        "workload:\n  trace: {format: mooncake, path: 'shared:nowhere.jsonl'}\n"
    )
    limits = str(LIMITS / "unknown-key.yaml")
    told = run("check", "broken.yaml", "right.yaml", "wrong.yaml", "away.yaml", "poisoned.yaml", "clean.yaml", limits)
    assert told.stdout.splitlines()[-1] == (
        "7 files: 2 as expected, 2 failed, 1 skipped, 1 compared with nothing, 1 could not be run"
    )
    assert run("check", "right.yaml", S02).stdout.splitlines()[-1] == "2 files: 2 as expected, 0 failed, 0 skipped"
    assert "files" not in run("check", "right.yaml").stdout
    # Nothing but JSON goes where JSON goes.
    told = run("check", "right.yaml", S02, "--json", "-")
    assert len(json.loads(told.stdout)) == 2 and "2 files: 2 as expected" in told.stderr


# Interrupts, failures and pipes.


def test_a_failing_replay_leaves_no_file(here: Path, process: Process) -> None:
    (here / "breaks.py").write_text(
        "class Policy:\n    def __call__(self, chunk):\n        return -1 if chunk.start else 364\n"
    )
    rule = ("--rule", "split=breaks:Policy")
    outputs = ("--log", "o.jsonl", "--plot", "o.svg", "--perfetto", "o.json", "--json", "all.json")
    # A plug-in may lie in the current folder.
    ran = process("replay", "clean.yaml", *rule, *outputs)
    assert ran.returncode == 2 and "Traceback" not in ran.stderr
    assert "poisoned, variant vllm-0.27.0: rule split=breaks:Policy gave -1 tokens" in ran.stderr
    assert made(here) - {"__pycache__"} == {"breaks.py"}


def test_an_older_file_survives_a_failing_replay(here: Path) -> None:
    (here / "o.jsonl").write_text("old")
    assert run("replay", S02, "--rule", "split=builtins:repr", "--log", "o.jsonl").exit_code == 2
    assert (here / "o.jsonl").read_text() == "old"
    assert made(here) == {"o.jsonl"}


def test_an_interrupted_replay_leaves_no_file(here: Path) -> None:
    (here / "endless.yaml").write_text(
        CLEAN.replace(
            "- {id: a, prompt: [[1, 2002]]}",
            "\n    ".join(f"- {{id: r{i}, prompt: [[{i}, 2002]], max_tokens: 3000}}" for i in range(300)),
        )
    )
    arguments = ("replay", "endless.yaml", "--no-fast-forward", "--log", "o.jsonl", "--json", "o.json")
    child = subprocess.Popen(
        [*STATEAT, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        # A shell that runs the tests in the background makes its children deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 30
    while not any(p.stat().st_size for p in here.glob(".o*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    # It is at work: something is half-written, under another name.
    assert child.poll() is None and time.monotonic() < deadline
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert out == "" and "stateat: interrupted; nothing was written" in err and "Traceback" not in err
    assert made(here) == {"endless.yaml"}


def test_a_reader_that_was_never_there_leaves_no_traceback(process: Process) -> None:
    for args in (("replay", S02), ("replay", S02, "--json", "-"), ("check", S02, S03), ("schema",), ("--help",)):
        ran = process(*args, stdout="broken")
        # What a machine waits for is missed.
        assert ran.returncode == (2 if args[-1] in ("-", "schema") else 0)
        assert all(word not in ran.stderr for word in ("Traceback", "BrokenPipe", "Exception ignored"))


def test_a_reader_that_has_seen_enough_leaves_no_traceback(here: Path) -> None:
    """Of what is printed file by file; the rest is in the pipe before its first line is read."""
    (here / "many").mkdir()
    for i in range(20):
        (here / "many" / f"{i}.yaml").write_text(RIGHT)
    child = subprocess.Popen(
        [*STATEAT, "check", "many"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    assert child.stdout is not None and child.stderr is not None
    assert child.stdout.readline()
    child.stdout.close()
    said = child.stderr.read()
    child.stderr.close()
    assert child.wait(60) == 0
    assert all(word not in said for word in ("Traceback", "BrokenPipe", "Exception ignored"))


def test_an_ascii_terminal_gets_the_table_all_the_same() -> None:
    ran = program("replay", "right.yaml", PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert ran.returncode == 0 and "Traceback" not in ran.stderr


def test_zero_hits_that_the_configuration_forbids_are_told_from_others(here: Path) -> None:
    """E11: prompts below the first boundary, beside one that reaches it and is not repeated."""
    for second, told in (("[1, 2002]", True), ("[2, 3300]", False)):
        both = f"    - {{id: a, prompt: [[1, 2002]]}}\n    - {{id: b, after: a, prompt: [{second}]}}\n"
        (here / "two.yaml").write_text(CLEAN.replace("    - {id: a, prompt: [[1, 2002]]}\n", both))
        result = run("replay", "two.yaml")
        words = "nothing was hit: the longest prompt has 2,002 tokens, and alone none below 3,200 is hit by its first"
        assert (words in result.stderr) == told


STUCK = """\
schema: stateat/1
name: stuck
engine:
  preset: vllm-0.26.0
  long_prefill_token_threshold: 800
  groups:
    - {name: attention, kind: full-attention, block_size: 16}
    - {name: gdn, kind: recurrent, block_size: 1600}
  clock: steps
workload:
  requests: [{id: a, prompt: [[1, 5000]]}]
"""
"""The old gate defers a request for ever whose chunk may not reach the boundary."""


@pytest.mark.parametrize(
    ("expect", "code", "told"),
    [
        (None, 1, "never ends, and the file expects nothing"),
        ("{}", 1, "never ends, and the file expects nothing"),
        ("{poisoned: 0, vacuous: nothing runs}", 1, "old: livelock"),
        ("{livelock: false}", 1, "old: livelock"),
        ("{livelock: true}", 0, "as expected"),
        ("{deferred: 200, findings: [{invariant: I14}]}", 0, "as expected"),
        ("{findings: {contains: [{severity: liveness}]}}", 0, "as expected"),
        ("{invariants: {I14: 1}}", 0, "as expected"),
        ("{invariants: {I14: 0}}", 1, "old: invariants.I14"),
    ],
)
def test_a_run_that_never_ends_is_as_expected_only_if_that_is_named(
    here: Path, expect: str | None, code: int, told: str
) -> None:
    (here / "stuck.yaml").write_text(STUCK + (f"variants: {{old: {{expect: {expect}}}}}\n" if expect else ""))
    for command in (("check", "stuck.yaml", "--junit", "out.xml"), ("replay", "stuck.yaml")):
        result = run(*command)
        assert (result.exit_code, told in result.stdout) == (code, True)
    assert ET.parse(here / "out.xml").getroot().get("failures") == str(code)


def test_the_ready_line_of_a_run_that_never_ends_passes_when_it_is_put_in(here: Path) -> None:
    (here / "stuck.yaml").write_text(STUCK)
    told = run("check", "stuck.yaml").stdout
    assert "I14 liveness" in told and "a: no token in 200 steps" in told
    expect = next(line for line in told.splitlines() if "expect: {" in line).partition("expect: ")[2]
    (here / "stuck.yaml").write_text(f"{STUCK}variants: {{old: {{expect: {expect}}}}}\n")
    assert run("check", "stuck.yaml").exit_code == 0


def test_a_log_that_ends_as_a_livelock_fails_its_audit(here: Path) -> None:
    (here / "stuck.yaml").write_text(STUCK)
    assert run("replay", "stuck.yaml", "--log", "run.jsonl").exit_code == 1
    result = run("audit", "run.jsonl")
    assert result.exit_code == 1 and result.stdout.endswith("never ends\n")


@pytest.mark.parametrize("engines", [("vllm",), ("vllm:0.26.0",), ("vllm:0.26.0", "vllm:0.27.0")])
def test_a_rule_for_releases_alone_is_refused(here: Path, engines: Sequence[str]) -> None:
    named = [part for engine in engines for part in ("--engine", engine)]
    result = run("replay", "right.yaml", "--rule", "split=unguarded", *named)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--rule: found --engine {engines[0]}, which runs its own rules" in result.stderr


def test_one_variant_is_no_plural() -> None:
    assert "poisoned: 1 variant in" in run("replay", "right.yaml").stderr
    assert "s02-anatomy: 2 variants in" in run("replay", S02).stderr


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_signal_inside_a_users_rule_ends_the_program_and_is_not_the_rules_fault(tmp_path: Path) -> None:
    (tmp_path / "told_rule.py").write_text(
        "import os, signal, time\n\n\nclass Told:\n    def __call__(self, chunk):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n        time.sleep(5)\n        return chunk.offered\n"
    )
    code = "from stateat.sim.cli.main import main; main(prog_name='stateat')"
    child = subprocess.run(
        [sys.executable, "-P", "-c", code, "replay", str(S02), "--rule", "split=told_rule:Told"],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 143, child.stderr
    assert child.stderr.splitlines()[-1] == "stateat: interrupted; nothing was written"
