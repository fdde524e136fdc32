"""A user's code runs in a child that is watched: an end without a result is no success, and nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import pytest
from forked import Codes, done

from stateat.sim.cli.watch import runs_code

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

ROOT = Path(__file__).resolve().parents[3]
START = [sys.executable, "-P", "-c", "from stateat.sim.cli.main import main; main(prog_name='stateat')"]
SCENARIO = """\
schema: stateat/1
name: s
engine:
  groups: [{name: gdn, kind: recurrent, block_size: 64}]
workload: {requests: [{id: a, prompt: [[1, 200]]}]}
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    (tmp_path / "code.yaml").write_text(SCENARIO.replace("engine:\n", "engine:\n  rules: {split: 'their_rule:Rule'}\n"))
    return tmp_path


def write(here: Path, body: str) -> None:
    (here / "their_rule.py").write_text(
        "import os, signal, sys, threading, time\n\n\nclass Rule:\n"
        f"    def __call__(self, chunk):\n        {body}\n        return chunk.offered\n"
    )


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(here: Path, forked: Codes) -> Run:
    """Runs the command with a rule of this body, in a fork of a process that has loaded it; the rule it loads anew."""

    def run(body: str, *arguments: str) -> tuple[int, str, str]:
        write(here, body)
        return astuple(done(forked, here, *arguments))  # type: ignore[return-value]

    return run


def start(here: Path, body: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts the same in a new Python, with pipes."""
    write(here, body)
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{here}", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [*START, *arguments], cwd=here, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err


RULE = ("--rule", "split=their_rule:Rule")


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("os._exit(0)", ("replay", "s.yaml", *RULE, "--json", "o.json")),
        ("os.execv(sys.executable, [sys.executable, '-c', ''])", ("replay", "s.yaml", *RULE, "--json", "o.json")),
        ("threading.Thread(target=os._exit, args=(0,)).start(); time.sleep(9)", ("replay", "s.yaml", *RULE)),
        ("os._exit(0)", ("check", "s.yaml", "code.yaml", "--allow-code", "--junit", "o.xml")),
    ],
)
def test_an_end_without_a_result_is_no_success(here: Path, body: str, arguments: tuple[str, ...], run: Run) -> None:
    code, _, err = run(body, *arguments)
    assert code == 2 and "Traceback" not in err
    said = "the process ended with exit code 0 before there was a result; last it was in rule split=their_rule:Rule"
    assert err.splitlines()[-1] == f"stateat: {said}"
    assert not (here / "o.json").exists() and not (here / "o.xml").exists()


@pytest.mark.parametrize(
    "body",
    [
        "os.fork()",
        "os.fork() or sys.exit(1)",
        # A handler of a signal forks while the engine runs, and not the rule.
        "signal.signal(signal.SIGALRM, lambda *_: os.fork()); signal.setitimer(signal.ITIMER_REAL, 0.01)",
    ],
)
def test_a_process_that_code_forks_tells_and_writes_nothing(here: Path, body: str, run: Run) -> None:
    log = here / "o.jsonl"
    code, out, err = run(body, "replay", "s.yaml", *RULE, "--json", "-", "--log", str(log))
    assert code == 0 and json.loads(out)["scenario"] == "s" and err.count("1 variant in") == 1
    assert sorted(path.suffix for path in here.iterdir()) == [".jsonl", ".py", ".yaml", ".yaml"]


def test_the_fork_of_a_process_that_has_ended_writes_nothing(here: Path) -> None:
    body = "os.fork() and os._exit(0); time.sleep(0.2)"
    code, out, err = ended(start(here, body, "replay", "s.yaml", *RULE, "--json", "o.json"))
    # Both ends of the pipes are closed by now: the fork has ended too.
    assert (code, out) == (2, "") and "before there was a result" in err.splitlines()[-1]
    assert not (here / "o.json").exists() and "1 variant in" not in err


def test_closing_all_that_is_open_takes_no_result_away(here: Path, run: Run) -> None:
    """Neither the streams nor the way in which the exit code is told."""
    for out in ("-", "o.json"):
        code, told, err = run("os.closerange(0, 64)", "replay", "s.yaml", *RULE, "--json", out)
        assert code == 0 and "1 variant in" in err.splitlines()[-1]
        assert json.loads(told if out == "-" else (here / out).read_text())["scenario"] == "s"
    # An output that it did close is not there, and the exit code says so.
    code, _, err = run("os.closerange(0, 64)", "replay", "s.yaml", *RULE, "--log", "o.jsonl")
    assert code == 2 and err.splitlines()[-1] == "stateat: --log o.jsonl: Bad file descriptor"
    assert not (here / "o.jsonl").exists()


def test_a_thread_that_is_left_keeps_nothing_alive(here: Path) -> None:
    child = start(
        here, "threading.Thread(target=time.sleep, args=(60,)).start()", "replay", "s.yaml", *RULE, "--json", "-"
    )
    out = child.stdout
    assert out is not None
    assert json.load(out)["scenario"] == "s"
    before = time.monotonic()
    assert ended(child)[0] == 0 and time.monotonic() - before < 2


def test_what_is_written_below_the_streams_spoils_no_result(run: Run) -> None:
    body = "print('a'); os.write(1, b'b'); os.system('echo c'); sys.__stdout__.write('d'); os.close(1)"
    code, out, err = run(f"if not chunk.start: {body}", "replay", "s.yaml", *RULE, "--json", "-")
    assert code == 0 and json.loads(out)["scenario"] == "s"
    assert all(noise in err for noise in "abcd")


def test_a_signal_to_the_parent_ends_both(here: Path) -> None:
    child = start(here, "print('now', flush=True); time.sleep(60)", "replay", "s.yaml", *RULE)
    assert child.stderr is not None
    while child.stderr.readline() != "now\n":
        pass
    child.send_signal(signal.SIGTERM)
    code, _, err = ended(child)
    assert code == 143 and err.splitlines()[-1] == "stateat: interrupted; nothing was written"


def test_a_child_ends_with_its_parent(here: Path) -> None:
    child = start(here, "print(os.getpid(), flush=True); time.sleep(60)", "replay", "s.yaml", *RULE)
    assert child.stderr is not None
    said = ""
    while not said.strip().isdecimal():
        said = child.stderr.readline()
    child.kill()
    until = time.monotonic() + 10
    while Path(f"/proc/{said.strip()}/cmdline").exists() and time.monotonic() < until:
        time.sleep(0.02)
    _, err = child.communicate(timeout=10)
    # What it printed in the moment of the signal may come again.
    assert set(err.splitlines()) <= {said.strip(), "stateat: interrupted; nothing was written"}
    with pytest.raises(ProcessLookupError):
        os.kill(int(said), 0)


def test_what_may_run_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATEAT_ALLOW_CODE", raising=False)
    assert runs_code(["check", "--allow-code"])
    assert runs_code(["replay", "--rule", "split=a.b:C"]) and runs_code(["replay", "--rule=split=a:C"])
    assert not runs_code(["replay", "s.yaml", "--rule", "split=prefill-end", "--engine", "vllm:0.27.0"])
    monkeypatch.setenv("STATEAT_ALLOW_CODE", "1")
    assert runs_code(["check"])
